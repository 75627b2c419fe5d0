/**
 * Who did what in the last minutes: each session's states in time, and the memory they held.
 *
 * Filled once from `GET salus/api/history`, then from the same changes that the sidebar shows. A session's moment
 * holds until its next one.
 */
import { compareNames } from '../format';
import { IMoment, ISession, SessionState } from '../wire';

/** Seconds kept. */
export const KEPT_S = 30 * 60;

/** A stretch of time in which a session was in one state and lane. `to` is the next moment, or the end asked for. */
export interface ISpan {
  readonly session: string;
  readonly state: SessionState;
  readonly lane: string | null;
  readonly from: number;
  readonly to: number;
}

/** Bytes on a device from `at` on. */
export interface IMemoryStep {
  readonly at: number;
  readonly persistentBytes: number;
  readonly ephemeralBytes: number;
}

/** States in which P isn't on the device. */
const OFF_DEVICE: ReadonlySet<SessionState> = new Set<SessionState>(['none', 'evicted', 'closed']);

export class History {
  /** Puts what the server remembers in front of what was seen since. */
  load(moments: readonly IMoment[]): void {
    const seen = this._moments;
    this._moments = new Map();
    const sorted = [...moments].sort((a, b) => a.at - b.at);
    sorted.forEach(moment => this._push(moment));
    seen.forEach(own => own.forEach(moment => this._push(moment)));
  }

  /** Notes what differs from the last moment of each session; who is missing has closed. */
  record(at: number, sessions: readonly ISession[]): void {
    const present = new Set<string>();
    for (const { id, name, device, lane, state, persistentBytes, ephemeralBytes } of sessions) {
      present.add(id);
      if (name !== null) {
        this._names.set(id, name);
      }
      this._push({ at, session: id, device, lane, state, persistentBytes, ephemeralBytes });
    }
    for (const [session, own] of this._moments) {
      const last = own[own.length - 1];
      if (!present.has(session) && last && last.state !== 'closed') {
        own.push({ ...last, at, lane: null, state: 'closed', persistentBytes: 0, ephemeralBytes: 0 });
      }
    }
    this._forget(at - KEPT_S);
  }

  /** Sessions with a moment that reaches into the time after `from`, oldest first. */
  sessions(from: number): string[] {
    const alive = [...this._moments].filter(([, own]) => {
      const last = own[own.length - 1];
      return last !== undefined && (last.state !== 'closed' || last.at > from);
    });
    return alive.map(([session]) => session);
  }

  /** What a session was called when it was last seen here; undefined for one that closed before. */
  nameOf(session: string): string | undefined {
    return this._names.get(session);
  }

  spans(session: string, from: number, to: number): ISpan[] {
    const spans: ISpan[] = [];
    const own = this._moments.get(session) ?? [];
    own.forEach((moment, at) => {
      const end = own[at + 1]?.at ?? to;
      const start = Math.max(from, moment.at);
      const stop = Math.min(to, end);
      const last = spans[spans.length - 1];
      if (stop <= start || moment.state === 'closed') {
        return;
      }
      if (last && last.state === moment.state && last.lane === moment.lane && last.to === start) {
        spans[spans.length - 1] = { ...last, to: stop };
      } else {
        spans.push({ session, state: moment.state, lane: moment.lane, from: start, to: stop });
      }
    });
    return spans;
  }

  /** Who ran in each lane: the lanes that anybody ran in, each with its spans in time. */
  lanes(from: number, to: number): Map<string, ISpan[]> {
    const lanes = new Map<string, ISpan[]>();
    for (const session of this.sessions(from)) {
      for (const span of this.spans(session, from, to)) {
        if (span.lane !== null && (span.state === 'running' || span.state === 'yielding')) {
          const own = lanes.get(span.lane);
          if (own) {
            own.push(span);
          } else {
            lanes.set(span.lane, [span]);
          }
        }
      }
    }
    lanes.forEach(spans => spans.sort((a, b) => a.from - b.from));
    return new Map([...lanes].sort(([a], [b]) => compareNames(a, b)));
  }

  /** Memory of a device over time. E counts while its owner runs: what others of the lane would need isn't there. */
  memory(device: string, from: number, to: number): IMemoryStep[] {
    const last = new Map<string, IMoment>();
    const steps: IMemoryStep[] = [];
    let persistentBytes = 0;
    let ephemeralBytes = 0;
    const count = (moment: IMoment | undefined, sign: 1 | -1) => {
      if (moment?.device === device) {
        persistentBytes += OFF_DEVICE.has(moment.state) ? 0 : sign * moment.persistentBytes;
        ephemeralBytes += moment.state === 'running' || moment.state === 'yielding' ? sign * moment.ephemeralBytes : 0;
      }
    };
    const all = [...this._moments.values()].flat().sort((a, b) => a.at - b.at);
    for (const moment of all) {
      if (moment.at > to) {
        break;
      }
      count(last.get(moment.session), -1);
      count(moment, 1);
      last.set(moment.session, moment);
      const step = { at: Math.max(from, moment.at), persistentBytes, ephemeralBytes };
      if (steps[steps.length - 1]?.at === step.at) {
        steps.pop();
      }
      steps.push(step);
    }
    return steps;
  }

  private _push(moment: IMoment): void {
    const own = this._moments.get(moment.session);
    const last = own?.[own.length - 1];
    if (!own || !last) {
      this._moments.set(moment.session, [moment]);
    } else if (moment.at >= last.at && !same(last, moment)) {
      own.push(moment);
    }
  }

  private _forget(before: number): void {
    for (const [session, own] of this._moments) {
      // The moment that holds at `before` is kept: it tells the state from there on.
      const keep = own.findIndex((_, at) => (own[at + 1]?.at ?? Infinity) > before);
      own.splice(0, keep);
      const [only] = own;
      if (own.length === 1 && only?.state === 'closed' && only.at < before) {
        this._moments.delete(session);
        this._names.delete(session);
      }
    }
  }

  private readonly _names = new Map<string, string>();
  private _moments = new Map<string, IMoment[]>();
}

function same(a: IMoment, b: IMoment): boolean {
  return (
    a.state === b.state &&
    a.lane === b.lane &&
    a.device === b.device &&
    a.persistentBytes === b.persistentBytes &&
    a.ephemeralBytes === b.ephemeralBytes
  );
}
