/**
 * What every view of the extension reads and acts through: store, feed, history, clock and the person's actions.
 */
import { Token } from '@lumino/coreutils';
import { IDisposable } from '@lumino/disposable';
import { ISignal, Signal } from '@lumino/signaling';
import { Clock } from '../clock';
import { EVENT_SCHEMA, ISession, IState, Policy, Priority, readHistory } from '../wire';
import { Answer, Client, Verb } from './client';
import { Feed } from './feed';
import { History, KEPT_S } from './history';
import { IIntent, Store } from './store';

/** The events of a Jupyter server, as `ServiceManager.events.stream` gives them. */
export type EventStream = ISignal<unknown, { readonly schema_id?: unknown; readonly [key: string]: unknown }>;

/** An action that the server refused, or that didn't reach it. */
export interface IFailure {
  readonly action: 'priority' | 'pin' | 'policy' | 'shutdown' | Verb;
  /** The session's or device's name. */
  readonly target: string;
  readonly message: string;
}

/** A session of this server went from one state to another, or waits for another reason. */
export interface ITransition {
  readonly before: ISession;
  readonly after: ISession;
}

export interface IModelOptions {
  readonly client: Client;
  readonly events: EventStream;
  /** Ends a kernel of this server. */
  readonly shutdownKernel: (kernelId: string) => Promise<void>;
  readonly fallbackMs: number;
}

/** Milliseconds that a confirmed change may take to come back as a row before the row counts as the truth again. */
const CONFIRM_MS = 3_000;

export class Model implements IDisposable {
  readonly clock = new Clock();
  readonly store = new Store();
  readonly history = new History();
  readonly feed: Feed;

  constructor(private readonly _options: IModelOptions) {
    this.feed = new Feed(this.store, {
      fallbackMs: _options.fallbackMs,
      fetchState: async etag => {
        const answer = await _options.client.state(etag);
        if (answer.kind === 'body' && answer.date) {
          this.clock.observe(Date.parse(answer.date) / 1000);
        }
        return answer;
      }
    });
    _options.events.connect(this._onEvent, this);
    this.store.changed.connect(this._onChanged, this);
    document.addEventListener('visibilitychange', this._onVisibility);
  }

  /** An action failed; the change it had shown is reverted. */
  get failed(): ISignal<this, IFailure> {
    return this._failed;
  }

  /** A session of this server changed its state, or waits for another reason. */
  get transitioned(): ISignal<this, ITransition> {
    return this._transitioned;
  }

  /** False once the server refused an action on somebody else's session: this person isn't an administrator. */
  get mayActOnOthers(): boolean {
    return this._mayActOnOthers;
  }

  /** False once the server refused a change of a policy. */
  get mayChoosePolicy(): boolean {
    return this._mayChoosePolicy;
  }

  get isDisposed(): boolean {
    return this.feed.isDisposed;
  }

  dispose(): void {
    document.removeEventListener('visibilitychange', this._onVisibility);
    this._options.events.disconnect(this._onEvent, this);
    this.feed.dispose();
    Signal.clearData(this);
  }

  start(): void {
    this.feed.start();
  }

  setPriority(id: string, priority: Priority): Promise<void> {
    return this._change(id, { priority }, 'priority', () => this._options.client.changeSession(id, { priority }));
  }

  setPinned(id: string, pinned: boolean): Promise<void> {
    return this._change(id, { pinned }, 'pin', () => this._options.client.changeSession(id, { pinned }));
  }

  async act(id: string, verb: Verb): Promise<void> {
    this._asked.set(id, verb);
    this.store.intend(id, { verb });
    const answer = await this._options.client.act(id, verb);
    this._tell(answer, verb, id);
    this.store.settle(id, ['verb']);
  }

  /** Whether this was asked for here, since the session last ran. */
  wasAsked(id: string, verb: Verb): boolean {
    return this._asked.get(id) === verb;
  }

  async shutdown(id: string): Promise<void> {
    const kernelId = this.store.session(id)?.kernelId;
    if (!kernelId) {
      return;
    }
    this.store.intend(id, { verb: 'shutdown' });
    try {
      await this._options.shutdownKernel(kernelId);
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      this._failed.emit({ action: 'shutdown', target: this._nameOf(id), message });
    } finally {
      this.store.settle(id, ['verb']);
    }
  }

  async setPolicy(device: string, policy: Policy): Promise<void> {
    this.store.intendPolicy(device, policy);
    const answer = await this._options.client.changeDevice(device, policy);
    if (this._tell(answer, 'policy', device)) {
      await delay(CONFIRM_MS, () => this.store.state?.devices.find(row => row.id === device)?.policy === policy, this.store);
    }
    this.store.settlePolicy(device);
  }

  /** Asks for the last minutes; views of the past call it when they are first shown. */
  async loadHistory(): Promise<void> {
    if (this._historyLoaded) {
      return;
    }
    this._historyLoaded = true;
    const answer = await this._options.client.history(0);
    if (answer.kind === 'body') {
      const since = this.clock.now() - KEPT_S;
      this.history.load(readHistory(answer.body).moments.filter(moment => moment.at >= since));
      this._historyChanged.emit();
    } else {
      this._historyLoaded = false;
    }
  }

  get historyChanged(): ISignal<this, void> {
    return this._historyChanged;
  }

  private async _change(
    id: string,
    intent: Required<Pick<IIntent, 'priority'>> | Required<Pick<IIntent, 'pinned'>>,
    action: 'priority' | 'pin',
    ask: () => Promise<Answer>
  ): Promise<void> {
    const wanted: IIntent = intent;
    this.store.intend(id, wanted);
    const answer = await ask();
    if (this._tell(answer, action, id)) {
      const confirmed = () => {
        const row = this.store.state?.sessions.find(session => session.id === id);
        return (
          !row ||
          ((wanted.priority ?? row.priority) === row.priority && (wanted.pinned ?? row.pinned) === row.pinned)
        );
      };
      await delay(CONFIRM_MS, confirmed, this.store);
    }
    this.store.settle(id, action === 'pin' ? ['pinned'] : ['priority']);
  }

  /** True if the server took the action on a session or device. */
  private _tell(answer: Answer, action: IFailure['action'], id: string): boolean {
    if (answer.kind === 'body' || answer.kind === 'unchanged') {
      return true;
    }
    if (answer.kind === 'refused' && answer.code === 'not_allowed') {
      this._mayChoosePolicy &&= action !== 'policy';
      this._mayActOnOthers &&= this.store.session(id)?.own !== false;
    }
    this._failed.emit({ action, target: this._nameOf(id), message: answer.message });
    return false;
  }

  private _nameOf(id: string): string {
    return this.store.session(id)?.name ?? this.store.devices.find(row => row.id === id)?.name ?? id;
  }

  private _onEvent(_: unknown, event: { readonly schema_id?: unknown; readonly [key: string]: unknown }): void {
    if (event.schema_id !== EVENT_SCHEMA) {
      return;
    }
    if (typeof event['as_of'] === 'number') {
      this.clock.observe(event['as_of']);
    }
    this.feed.receive(event);
  }

  private _onChanged(): void {
    const state = this.store.state;
    if (!state || state === this._seen) {
      return;
    }
    const before = new Map(this._seen?.sessions.map(session => [session.id, session]));
    this._seen = state;
    this.history.record(state.asOf, state.sessions);
    for (const after of state.sessions) {
      const was = before.get(after.id);
      if (was && was.state !== after.state && (after.state === 'running' || after.state === 'restoring')) {
        this._asked.delete(after.id);
      }
      if (was && after.here && (was.state !== after.state || was.reason?.code !== after.reason?.code)) {
        this._transitioned.emit({ before: was, after: this.store.session(after.id) ?? after });
      }
    }
  }

  private readonly _onVisibility = (): void => {
    if (document.visibilityState === 'visible') {
      this.feed.refresh();
    }
  };

  private _seen: IState | null = null;
  private readonly _asked = new Map<string, Verb>();
  private _historyLoaded = false;
  private _mayActOnOthers = true;
  private _mayChoosePolicy = true;
  private readonly _failed = new Signal<this, IFailure>(this);
  private readonly _transitioned = new Signal<this, ITransition>(this);
  private readonly _historyChanged = new Signal<this, void>(this);
}

/** Resolves when `met` holds after a change of the store, at the latest after `ms`. */
function delay(ms: number, met: () => boolean, store: Store): Promise<void> {
  return new Promise(resolve => {
    const check = () => {
      if (met()) {
        end();
      }
    };
    const end = () => {
      clearTimeout(timer);
      store.changed.disconnect(check);
      resolve();
    };
    const timer = setTimeout(end, ms);
    store.changed.connect(check);
    check();
  });
}

/** The extension's model, for other extensions that want to show who has the GPU. */
export const IModel = new Token<Model>('jupyter-salus:IModel', 'Who has the GPU, who waits, and why.');
export type IModel = Model;
