/**
 * Who did what in the last minutes: each session's states in time, and the memory they held.
 *
 * Filled once from `GET salus/api/history`, then from the same changes that the sidebar shows. A session's moment
 * holds until its next one.
 */
import { compareNames } from '../format';
import { IMoment, ISession, SessionState } from '../wire';
import { IMemoryStep, Usage } from './usage';

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

export class History {
  /** Puts what the server remembers in front of what was seen since. */
  load(moments: readonly IMoment[]): void {
    const seen = [...this._moments.values()].flat();
    const oldest = seen.reduce((least, moment) => Math.min(least, moment.at), Infinity);
    this._moments = new Map();
    this._usage = new Usage();
    // What was seen here counts from when it was first seen: the server's own entries of that time say the same again.
    const all = [...moments.filter(moment => moment.at < oldest), ...seen];
    all.sort((a, b) => a.at - b.at).forEach(moment => this._push(moment));
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
        this._push({ ...last, at, lane: null, state: 'closed', persistentBytes: 0, ephemeralBytes: 0 });
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
    const own = this._moments.get(session) ?? [];
    const spans: ISpan[] = [];
    let stop = to;
    // From the end: a window is mostly the last minutes of many.
    for (let at = own.length - 1; at >= 0 && stop > from; at--) {
      const moment = own[at] as IMoment;
      const start = Math.max(from, moment.at);
      if (moment.at >= stop) {
        continue;
      }
      const next = spans[spans.length - 1];
      if (moment.state === 'closed') {
        // A gap.
      } else if (next && next.state === moment.state && next.lane === moment.lane && next.from === stop) {
        spans[spans.length - 1] = { ...next, from: start };
      } else {
        spans.push({ session, state: moment.state, lane: moment.lane, from: start, to: stop });
      }
      stop = start;
    }
    return spans.reverse();
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
    return this._usage.between(device, from, to);
  }

  private _push(moment: IMoment): void {
    const own = this._moments.get(moment.session);
    const last = own?.[own.length - 1];
    if (!own || !last) {
      this._moments.set(moment.session, [moment]);
    } else if (moment.at >= last.at && !same(last, moment)) {
      own.push(moment);
    } else {
      return;
    }
    this._usage.note(moment);
  }

  private _forget(before: number): void {
    this._usage.forget(before);
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
  private _usage = new Usage();
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
