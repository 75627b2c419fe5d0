/**
 * The state as this browser knows it: the server's rows, with the person's own changes laid over them until the
 * server has answered.
 *
 * Rules: a whole state replaces everything, unless it is an older one of the same backend; a change is applied only on top of the revision that it was made from;
 * what is older than the state is never applied. Rows keep their identity while nothing in them changes, so that
 * views can skip them.
 */
import { ISignal, Signal } from '@lumino/signaling';
import { IChange, IDevice, ILane, ISession, IState, Priority } from '../wire';

/** What became of a change. `gap`: it builds on a revision that this store has never seen. */
export type Applied = 'applied' | 'old' | 'gap';

/** The person's own change of a session that the server hasn't confirmed yet. */
export interface IIntent {
  readonly priority?: Priority;
  readonly pinned?: boolean;
  /** A verb on its way; its button waits. */
  readonly verb?: 'yield' | 'evict' | 'restore' | 'shutdown';
}

/** A name that says nothing to a person: a kernel's or path's identifier, made by a program. */
const IDENTIFIER = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

export class Store {
  /** Emitted after every visible change. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** The last state the server told; null before the first. */
  get state(): IState | null {
    return this._state;
  }

  get revision(): number {
    return this._state?.revision ?? -1;
  }

  /** The sessions, the person's own pending changes included. */
  get sessions(): readonly ISession[] {
    return this._shown;
  }

  get lanes(): readonly ILane[] {
    return this._state?.lanes ?? [];
  }

  get devices(): readonly IDevice[] {
    return this._devices;
  }

  session(id: string): ISession | undefined {
    return this._byId.get(id);
  }

  /** The session of a kernel of this server. */
  ofKernel(kernelId: string): ISession | undefined {
    return this._shown.find(session => session.here && session.kernelId === kernelId);
  }

  intent(id: string): IIntent | undefined {
    return this._intents.get(id);
  }

  /**
   * Tells which notebooks this server's kernels run. A notebook that was opened by its address gets its kernel before
   * the kernel's session gets its path, so that the backend may know it by an identifier alone.
   */
  set notebooks(paths: ReadonlyMap<string, string>) {
    this._notebooks = paths;
    this._show();
  }

  replace(state: IState): void {
    const before = new Map(this._state?.sessions.map(session => [session.id, session]));
    const sessions = state.sessions.map(session => kept(before.get(session.id), session));
    this._state = { ...state, sessions };
    this._show();
  }

  apply(change: IChange): Applied {
    const { backend, devices, lanes } = change;
    const known = this._state;
    if (change.previousRevision === 0 && backend && devices && lanes) {
      // Revisions of one backend grow: a request may have brought a newer state before this event arrived.
      const { pid, startedAt } = known?.backend ?? {};
      if (known && pid === backend.pid && startedAt === backend.startedAt && change.revision <= known.revision) {
        return 'old';
      }
      this.replace({
        revision: change.revision,
        asOf: change.asOf,
        backend,
        devices,
        lanes,
        sessions: change.sessions
      });
      return 'applied';
    }
    const state = this._state;
    if (!state || change.previousRevision > state.revision) {
      return 'gap';
    }
    if (change.revision <= state.revision) {
      return 'old';
    }
    if (change.previousRevision < state.revision) {
      return 'gap';
    }
    const news = new Map(change.sessions.map(session => [session.id, session]));
    const gone = new Set(change.removedSessions);
    const sessions = state.sessions
      .filter(session => !gone.has(session.id))
      .map(session => {
        const row = news.get(session.id);
        news.delete(session.id);
        return row ? kept(session, row) : session;
      });
    this._state = {
      revision: change.revision,
      asOf: change.asOf,
      backend: backend ?? state.backend,
      devices: devices ?? state.devices,
      lanes: lanes ?? state.lanes,
      sessions: [...sessions, ...news.values()]
    };
    this._show();
    return 'applied';
  }

  /** Shows a change of a session before the server confirmed it. `settle` ends it, whatever the answer was. */
  intend(id: string, intent: IIntent): void {
    this._intents.set(id, { ...this._intents.get(id), ...intent });
    this._show();
  }

  /** The same for a device's policy. */
  intendPolicy(id: string, policy: string): void {
    this._policies.set(id, policy);
    this._show();
  }

  settle(id: string, keys: readonly (keyof IIntent)[]): void {
    const left: { -readonly [key in keyof IIntent]: IIntent[key] } = { ...this._intents.get(id) };
    keys.forEach(key => delete left[key]);
    if (Object.keys(left).length) {
      this._intents.set(id, left);
    } else {
      this._intents.delete(id);
    }
    this._show();
  }

  settlePolicy(id: string): void {
    this._policies.delete(id);
    this._show();
  }

  private _show(): void {
    const state = this._state;
    this._shown = (state?.sessions ?? []).map(row => {
      const session = this._named(row);
      const intent = this._intents.get(session.id);
      if (!intent) {
        return session;
      }
      const { priority = session.priority, pinned = session.pinned } = intent;
      return priority === session.priority && pinned === session.pinned ? session : { ...session, priority, pinned };
    });
    this._devices = (state?.devices ?? []).map(device => {
      const policy = this._policies.get(device.id);
      return policy === undefined || policy === device.policy ? device : { ...device, policy };
    });
    this._byId = new Map(this._shown.map(session => [session.id, session]));
    this._changed.emit();
  }

  private _named(row: ISession): ISession {
    const path = row.here && row.kernelId !== null ? this._notebooks.get(row.kernelId) : undefined;
    if (path === undefined || !(row.name === null || IDENTIFIER.test(row.name))) {
      return row;
    }
    const before = this._renamed.get(row);
    if (before?.path === path) {
      return before;
    }
    const named = { ...row, name: path.slice(path.lastIndexOf('/') + 1), path };
    this._renamed.set(row, named);
    return named;
  }

  private _state: IState | null = null;
  private _notebooks: ReadonlyMap<string, string> = new Map();
  /** By the server's row, so that what is shown keeps its identity as long as the row does. */
  private readonly _renamed = new WeakMap<ISession, ISession>();
  private _shown: readonly ISession[] = [];
  private _devices: readonly IDevice[] = [];
  private _byId: ReadonlyMap<string, ISession> = new Map();
  private readonly _intents = new Map<string, IIntent>();
  private readonly _policies = new Map<string, string>();
  private readonly _changed = new Signal<this, void>(this);
}

/**
 * The old row if the new one says the same. A running or waiting session's totals grow with time, so there `asOf`
 * counts as a difference; elsewhere it doesn't.
 */
function kept(before: ISession | undefined, now: ISession): ISession {
  if (!before) {
    return now;
  }
  const grows = now.state === 'running' || now.state === 'yielding' || now.waitingSince !== null;
  const plain = grows ? now : { ...now, asOf: before.asOf };
  return JSON.stringify(before) === JSON.stringify(plain) ? before : now;
}
