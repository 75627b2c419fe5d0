/**
 * What comes over the wire, and the checks between JSON and these types.
 *
 * Unknown fields are ignored, so that a newer server may say more. A missing or wrongly typed field raises `WireError`
 * with the path of the field: showing half a state would be worse than saying that the two ends don't fit.
 * Times are absolute (seconds since the Unix epoch); totals (`usedS`, `waitedS`) are as of `asOf`.
 */

export type SessionState =
  | 'none'
  | 'waiting'
  | 'running'
  | 'holding'
  | 'yielding'
  | 'evicting'
  | 'evicted'
  | 'restoring'
  | 'leaving'
  | 'broken'
  | 'closed';

export const SESSION_STATES: readonly SessionState[] = [
  'none',
  'waiting',
  'running',
  'holding',
  'yielding',
  'evicting',
  'evicted',
  'restoring',
  'leaving',
  'broken',
  'closed'
];

export type Priority = 'high' | 'normal' | 'low';
export const PRIORITIES: readonly Priority[] = ['high', 'normal', 'low'];

export type Policy = 'fair' | 'fifo' | 'srtf' | 'pack' | 'priority';
export const POLICIES: readonly Policy[] = ['fair', 'fifo', 'srtf', 'pack', 'priority'];

export interface IReason {
  readonly code: string;
  /** Ready to show to a person. */
  readonly text: string;
  /** The session waited for. */
  readonly behind: string | null;
}

export interface IBackend {
  readonly version: string;
  readonly pid: number;
  readonly healthy: boolean;
  readonly startedAt: number;
}

export interface IDevice {
  readonly id: string;
  readonly name: string;
  readonly capacityBytes: number;
  readonly foreignBytes: number;
  readonly freeBytes: number;
  readonly policy: string;
  /** The policies this person may choose; null where the server doesn't say. */
  readonly policies: readonly string[] | null;
  /** Why nobody gets a turn, while an admin has the device drained. */
  readonly draining: string | null;
  /** Nobody's bytes or turns are there any more. */
  readonly empty: boolean;
}

export interface ILane {
  readonly id: string;
  readonly device: string;
  readonly ephemeralBytes: number;
  readonly holder: string | null;
  /** Session ids in the order in which they will run. */
  readonly waiting: readonly string[];
}

export interface ISession {
  readonly id: string;
  readonly kernelId: string | null;
  readonly incarnation: number;
  readonly name: string | null;
  readonly path: string | null;
  readonly cellId: string | null;
  readonly user: string | null;
  /** Of the same user. */
  readonly own: boolean;
  /** A kernel of this Jupyter server. */
  readonly here: boolean;
  readonly state: SessionState;
  /** Null where the server doesn't say. */
  readonly stateSince: number | null;
  readonly lane: string | null;
  readonly device: string | null;
  readonly priority: Priority;
  readonly pinned: boolean;
  readonly persistentBytes: number;
  readonly ephemeralBytes: number;
  /** 1 for the next one. */
  readonly position: number | null;
  readonly reason: IReason | null;
  readonly sharingWith: readonly string[];
  readonly waitingSince: number | null;
  readonly waitedS: number;
  readonly usedS: number;
  readonly iterations: number;
  readonly turns: number;
  readonly evictions: number;
  readonly frameworks: readonly string[];
  readonly memoryMode: string | null;
  /** False: its kernel runs without us, for the reason in `unmanagedReason`. */
  readonly managed: boolean;
  readonly unmanagedReason: string | null;
  /** Why no guard is in its kernel, where one could be. */
  readonly unguardedReason: string | null;
  /** When the totals of this row were taken; rows of one state differ in it. */
  readonly asOf: number;
}

export interface IState {
  readonly revision: number;
  readonly asOf: number;
  readonly backend: IBackend;
  readonly devices: readonly IDevice[];
  readonly lanes: readonly ILane[];
  readonly sessions: readonly ISession[];
}

/** Changed rows since `previousRevision`; what is undefined hasn't changed. */
export interface IChange {
  readonly revision: number;
  readonly previousRevision: number;
  readonly asOf: number;
  readonly backend?: IBackend;
  readonly devices?: readonly IDevice[];
  readonly lanes?: readonly ILane[];
  readonly sessions: readonly ISession[];
  readonly removedSessions: readonly string[];
}

/** One moment of the history: from `at` on the session was in this state, until its next entry. */
export interface IMoment {
  readonly at: number;
  readonly session: string;
  readonly device: string | null;
  readonly lane: string | null;
  readonly state: SessionState;
  readonly persistentBytes: number;
  readonly ephemeralBytes: number;
}

export interface IHistory {
  readonly revision: number;
  readonly moments: readonly IMoment[];
}

/** The server's answer to a request that it refused. */
export interface IRefusal {
  readonly code: string;
  readonly message: string;
}

/** The schema id of the Jupyter event that carries an `IChange`. */
export const EVENT_SCHEMA = 'https://schema.jupyter-salus.org/state/v1';

export class WireError extends Error {
  constructor(where: string, expected: string, found: unknown) {
    super(`cannot read ${where}: expected ${expected}, found ${JSON.stringify(found) ?? 'nothing'}`);
    this.name = 'WireError';
  }
}

type Json = { readonly [key: string]: unknown };

/** A JSON object with the path that leads to it, for errors that name the field. */
class Row {
  constructor(
    value: unknown,
    private readonly _where: string
  ) {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) {
      throw new WireError(_where, 'an object', value);
    }
    this._json = value as Json;
  }

  has(key: string): boolean {
    return this._json[key] !== undefined && this._json[key] !== null;
  }

  number(key: string): number {
    const value = this._json[key];
    if (typeof value !== 'number') {
      throw new WireError(this._path(key), 'a number', value);
    }
    return value;
  }

  string(key: string): string {
    const value = this._json[key];
    if (typeof value !== 'string') {
      throw new WireError(this._path(key), 'a string', value);
    }
    return value;
  }

  boolean(key: string): boolean {
    const value = this._json[key];
    if (typeof value !== 'boolean') {
      throw new WireError(this._path(key), 'true or false', value);
    }
    return value;
  }

  numberOr<T>(key: string, otherwise: T): number | T {
    return this.has(key) ? this.number(key) : otherwise;
  }

  stringOr<T>(key: string, otherwise: T): string | T {
    return this.has(key) ? this.string(key) : otherwise;
  }

  booleanOr(key: string, otherwise: boolean): boolean {
    return this.has(key) ? this.boolean(key) : otherwise;
  }

  oneOf<T extends string>(key: string, allowed: readonly T[]): T {
    const value = this.string(key);
    const found = allowed.find(word => word === value);
    if (found === undefined) {
      throw new WireError(this._path(key), allowed.join(' or '), value);
    }
    return found;
  }

  rows<T>(key: string, read: (row: Row) => T): T[] {
    return this._array(key).map((value, at) => read(new Row(value, `${this._path(key)}[${at}]`)));
  }

  strings(key: string): string[] {
    return this._array(key).map((value, at) => {
      if (typeof value !== 'string') {
        throw new WireError(`${this._path(key)}[${at}]`, 'a string', value);
      }
      return value;
    });
  }

  row(key: string): Row {
    return new Row(this._json[key], this._path(key));
  }

  private _array(key: string): readonly unknown[] {
    const value = this._json[key];
    if (!Array.isArray(value)) {
      throw new WireError(this._path(key), 'a list', value);
    }
    return value;
  }

  private _path(key: string): string {
    return `${this._where}.${key}`;
  }

  private readonly _json: Json;
}

function readBackend(row: Row): IBackend {
  return {
    version: row.string('version'),
    pid: row.number('pid'),
    healthy: row.boolean('healthy'),
    startedAt: row.number('started_at')
  };
}

function readDevice(row: Row): IDevice {
  return {
    id: row.string('id'),
    name: row.string('name'),
    capacityBytes: row.number('capacity_bytes'),
    foreignBytes: row.number('foreign_bytes'),
    freeBytes: row.number('free_bytes'),
    policy: row.string('policy'),
    policies: row.has('policies') ? row.strings('policies') : null,
    draining: row.stringOr('draining', null),
    empty: row.booleanOr('empty', false)
  };
}

function readLane(row: Row): ILane {
  return {
    id: row.string('id'),
    device: row.string('device'),
    ephemeralBytes: row.number('ephemeral_bytes'),
    holder: row.stringOr('holder', null),
    waiting: row.strings('waiting')
  };
}

function readReason(row: Row): IReason {
  return { code: row.string('code'), text: row.string('text'), behind: row.stringOr('behind', null) };
}

/** Other people's rows may come with less: names, paths and figures that the server keeps back are null or missing. */
function readSession(row: Row, asOf: number): ISession {
  return {
    id: row.string('id'),
    kernelId: row.stringOr('kernel_id', null),
    incarnation: row.numberOr('incarnation', 0),
    name: row.stringOr('name', null),
    path: row.stringOr('path', null),
    cellId: row.stringOr('cell_id', null),
    user: row.stringOr('user', null),
    own: row.boolean('own'),
    here: row.boolean('here'),
    state: row.oneOf('state', SESSION_STATES),
    stateSince: row.numberOr('state_since', null),
    lane: row.stringOr('lane', null),
    device: row.stringOr('device', null),
    priority: row.oneOf('priority', PRIORITIES),
    pinned: row.booleanOr('pinned', false),
    persistentBytes: row.numberOr('persistent_bytes', 0),
    ephemeralBytes: row.numberOr('ephemeral_bytes', 0),
    position: row.numberOr('position', null),
    reason: row.has('reason') ? readReason(row.row('reason')) : null,
    sharingWith: row.has('sharing_with') ? row.strings('sharing_with') : [],
    waitingSince: row.numberOr('waiting_since', null),
    waitedS: row.numberOr('waited_s', 0),
    usedS: row.numberOr('used_s', 0),
    iterations: row.numberOr('iterations', 0),
    turns: row.numberOr('turns', 0),
    evictions: row.numberOr('evictions', 0),
    frameworks: row.has('frameworks') ? row.strings('frameworks') : [],
    memoryMode: row.stringOr('memory_mode', null),
    managed: row.booleanOr('managed', true),
    unmanagedReason: row.stringOr('unmanaged_reason', null),
    unguardedReason: row.stringOr('unguarded_reason', null),
    asOf
  };
}

/** The body of `GET salus/api/state`. */
export function readState(json: unknown): IState {
  const row = new Row(json, 'state');
  const asOf = row.number('as_of');
  return {
    revision: row.number('revision'),
    asOf,
    backend: readBackend(row.row('backend')),
    devices: row.rows('devices', readDevice),
    lanes: row.rows('lanes', readLane),
    sessions: row.rows('sessions', session => readSession(session, asOf))
  };
}

/** The data of the event `EVENT_SCHEMA`. */
export function readChange(json: unknown): IChange {
  const row = new Row(json, 'event');
  const asOf = row.number('as_of');
  return {
    revision: row.number('revision'),
    previousRevision: row.number('previous_revision'),
    asOf,
    ...(row.has('backend') ? { backend: readBackend(row.row('backend')) } : {}),
    ...(row.has('devices') ? { devices: row.rows('devices', readDevice) } : {}),
    ...(row.has('lanes') ? { lanes: row.rows('lanes', readLane) } : {}),
    sessions: row.has('sessions') ? row.rows('sessions', session => readSession(session, asOf)) : [],
    removedSessions: row.has('removed_sessions') ? row.strings('removed_sessions') : []
  };
}

/** The body of an answer that is one session: to `PATCH salus/api/sessions/{id}` and the verbs. */
export function readSessionBody(json: unknown, asOf: number): ISession {
  return readSession(new Row(json, 'session'), asOf);
}

/** The body of `GET salus/api/history`. */
export function readHistory(json: unknown): IHistory {
  const row = new Row(json, 'history');
  return {
    revision: row.number('revision'),
    moments: row.rows('entries', entry => ({
      at: entry.number('at'),
      session: entry.string('session'),
      device: entry.stringOr('device', null),
      lane: entry.stringOr('lane', null),
      state: entry.oneOf('state', SESSION_STATES),
      persistentBytes: entry.numberOr('persistent_bytes', 0),
      ephemeralBytes: entry.numberOr('ephemeral_bytes', 0)
    }))
  };
}

/** An error body, or null where the answer isn't one of ours: a proxy's page, a login form, an older server. */
export function readRefusal(json: unknown): IRefusal | null {
  if (typeof json !== 'object' || json === null) {
    return null;
  }
  const { code, message } = json as Json;
  return typeof code === 'string' && typeof message === 'string' ? { code, message } : null;
}
