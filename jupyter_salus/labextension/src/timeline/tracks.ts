/**
 * What the timeline draws in a window of time: memory of each device, who ran in each lane, what each session did.
 */
import type { TranslationBundle } from '@jupyterlab/translation';
import { clockTime, compareNames, duration, withUnit } from '../format';
import { laneName } from '../memory';
import { History, ISpan } from '../model/history';
import { Store } from '../model/store';
import { IMemoryStep } from '../model/usage';
import { IDevice } from '../wire';
import { sessionName, stateWord } from '../words';

/** Sessions drawn at most: more would be a carpet, and slow. */
export const TRACKS = 30;

export interface IMemoryTrack {
  readonly device: IDevice;
  readonly label: string;
  readonly steps: readonly IMemoryStep[];
}

export interface ITrack {
  readonly key: string;
  readonly kind: 'lane' | 'session';
  readonly label: string;
  readonly spans: readonly ISpan[];
}

export interface IScene {
  readonly from: number;
  readonly to: number;
  readonly memory: readonly IMemoryTrack[];
  readonly tracks: readonly ITrack[];
  /** Sessions that have something in the window but aren't drawn. */
  readonly left: number;
  /** What a session is or was called. */
  readonly nameOf: (session: string) => string;
}

export function sceneOf(history: History, store: Store, trans: TranslationBundle, from: number, to: number): IScene {
  const several = store.devices.length > 1;
  /** Empty for a session that closed before this page was loaded: nobody could say which it was. */
  const nameOf = (id: string): string => {
    const session = store.session(id);
    return (session ? sessionName(session, trans) : history.nameOf(id)) ?? '';
  };
  const deviceOf = (lane: string): string => lane.slice(0, lane.lastIndexOf('/'));
  const lanes = [...history.lanes(from, to)].map(([lane, spans]): ITrack => {
    const label = several ? `${deviceOf(lane)}, ${laneName(lane, trans)}` : laneName(lane, trans);
    return { key: lane, kind: 'lane', label, spans };
  });
  const sessions = history
    .sessions(from)
    .map((id): ITrack => {
      const spans = history.spans(id, from, to).filter(span => span.state !== 'none');
      return { key: id, kind: 'session', label: nameOf(id), spans };
    })
    .filter(({ label, spans }) => label && spans.length)
    .sort((a, b) => compareNames(a.label, b.label) || (a.key < b.key ? -1 : 1));
  return {
    from,
    to,
    memory: store.devices.map(device => ({
      device,
      label: several ? trans.__('%1, memory', device.id) : trans.__('Memory'),
      steps: history.memory(device.id, from, to)
    })),
    tracks: [...lanes, ...sessions.slice(0, TRACKS)],
    left: Math.max(0, sessions.length - TRACKS),
    nameOf
  };
}

/** What a track or a device's memory says at a time. */
export interface IReading {
  readonly key: string;
  readonly label: string;
  readonly text: string;
}

/** What was so at a time: the memory of each device, then each session drawn. */
export function readAt(scene: IScene, time: number, trans: TranslationBundle): IReading[] {
  const memory = scene.memory.map(({ device, label, steps }): IReading => {
    const step = [...steps].reverse().find(one => one.at <= time);
    const text = step
      ? trans.__('P %1, E %2', withUnit(step.persistentBytes), withUnit(step.ephemeralBytes))
      : '';
    return { key: device.id, label, text };
  });
  const sessions = scene.tracks
    .filter(track => track.kind === 'session')
    .map(({ key, label, spans }): IReading => {
      const span = [...spans].reverse().find(one => one.from <= time && time <= one.to);
      if (!span) {
        return { key, label, text: '' };
      }
      const lane = span.lane === null ? '' : `, ${laneName(span.lane, trans)}`;
      const word = stateWord(span.state, trans);
      return { key, label, text: trans.__('%1 for %2', `${word}${lane}`, duration(time - span.from, trans)) };
    });
  return [...memory, ...sessions].filter(reading => reading.text);
}

/** The readings as one text, for those who hear it. */
export function spoken(readings: readonly IReading[], time: number): string {
  return [clockTime(time), ...readings.map(({ label, text }) => `${label}: ${text}`)].join('. ');
}
