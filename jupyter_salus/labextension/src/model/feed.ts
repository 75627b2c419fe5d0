/**
 * Keeps the store up to date: Jupyter events carry each change, a GET fills gaps, polling is the fallback.
 *
 * While events arrive, a slow GET with the known ETag (answered 304 without a body) only checks that nothing was
 * missed. A check that finds a change no event has told of shows that events don't reach this browser: from then on
 * the state is polled, until an event arrives again. Failed requests are repeated with back-off. Nothing is asked
 * for while the page is hidden; becoming visible asks at once.
 */
import { IDisposable } from '@lumino/disposable';
import { Poll } from '@lumino/polling';
import { ISignal, Signal } from '@lumino/signaling';
import { IChange, readChange, readState, WireError } from '../wire';
import { Answer } from './client';
import { Store } from './store';

/** How the browser stands with the server and its backend. */
export type Link =
  | { readonly kind: 'starting' }
  | { readonly kind: 'live' }
  /** The server answers, its backend doesn't. */
  | { readonly kind: 'no_backend'; readonly message: string }
  | { readonly kind: 'not_authorised' }
  /** The server doesn't know our addresses: the extension's server part isn't there or isn't enabled. */
  | { readonly kind: 'no_server_part' }
  | { readonly kind: 'unreachable'; readonly message: string }
  /** The server's answer doesn't fit this browser part: two versions. */
  | { readonly kind: 'unfit'; readonly message: string }
  | { readonly kind: 'failed'; readonly message: string };

/** Milliseconds between checks while events arrive, … */
export const CHECK_MS = 60_000;
/** … before a GET asked for while another was on its way, … */
export const AGAIN_MS = 200;
/** … before the first repetition of a failed request, … */
export const RETRY_MS = 1_000;
/** … and at most, after back-off. */
export const RETRY_MAX_MS = 30_000;

export interface IFeedOptions {
  /** GETs the state; `etag` is the one of the last answer. Never rejects. */
  readonly fetchState: (etag: string | null) => Promise<Answer>;
  /** Milliseconds between GETs where events don't arrive. */
  readonly fallbackMs: number;
  /** Seconds since the epoch, by this browser's clock. */
  readonly now?: () => number;
  /** Overrides the standby while the page is hidden, for tests without a page. */
  readonly standby?: Poll.Standby;
}

export class Feed implements IDisposable {
  constructor(
    private readonly _store: Store,
    private readonly _options: IFeedOptions
  ) {
    this._now = _options.now ?? (() => Date.now() / 1000);
    this._poll = new Poll({
      name: 'jupyter-salus:state',
      auto: false,
      factory: () => this._tick(),
      frequency: { interval: CHECK_MS, backoff: true, max: RETRY_MAX_MS * 10 },
      standby: _options.standby ?? 'when-hidden'
    });
  }

  get link(): Link {
    return this._link;
  }

  get linkChanged(): ISignal<this, Link> {
    return this._linkChanged;
  }

  /** When the store was last known to be true, in seconds by this browser's clock; null before the first answer. */
  get freshAt(): number | null {
    return this._freshAt;
  }

  /** Whether changes are found by polling because events don't arrive. */
  get polling(): boolean {
    return this._polling;
  }

  get isDisposed(): boolean {
    return this._poll.isDisposed;
  }

  dispose(): void {
    this._poll.dispose();
    Signal.clearData(this);
  }

  start(): void {
    void this._poll.start();
  }

  /** Asks now: on becoming visible, on a gap, on the person's "Retry". */
  refresh(): void {
    if (this._fetching) {
      this._again = true;
    } else {
      void this._poll.refresh();
    }
  }

  set fallbackMs(value: number) {
    this._fallbackMs = value;
    if (this._polling) {
      this._setPace(value);
    }
  }

  /** The data of a Jupyter event of our schema. */
  receive(data: unknown): void {
    let change: IChange;
    try {
      change = readChange(data);
    } catch (error) {
      this._unfit(error);
      return;
    }
    this._eventsArrive();
    if (this._fetching) {
      this._held.push(change);
    } else {
      this._take(change);
    }
  }

  private _take(change: IChange): void {
    if (change.backend && !change.backend.healthy) {
      // The GET brings the reason, and its repetition finds the backend when it is back.
      this._setLink({ kind: 'no_backend', message: '' });
      this.refresh();
    }
    switch (this._store.apply(change)) {
      case 'applied':
        this._freshAt = this._now();
        if (this._store.state?.backend.healthy) {
          this._setLink({ kind: 'live' });
        }
        break;
      case 'gap':
        this.refresh();
        break;
      case 'old':
        // Also what a new backend, which counts from the start, sends to a browser that missed its first event.
        if (change.revision < this._store.revision) {
          this.refresh();
        } else if (change.backend?.healthy) {
          // The server lost its backend for a moment and found it as it was.
          this._freshAt = this._now();
          this._setLink({ kind: 'live' });
        }
        break;
    }
  }

  /** One poll tick. A rejection makes the poll back off. */
  private async _tick(): Promise<void> {
    this._fetching = true;
    this._again = false;
    const told = this._told;
    const answer = await this._options.fetchState(this._etag);
    this._fetching = false;
    if (this.isDisposed) {
      return;
    }
    const link = this._judge(answer, told);
    this._setLink(link);
    const held = this._held.splice(0);
    held.forEach(change => this._take(change));
    if (this._again) {
      // The poll ignores a refresh asked for within its own tick.
      void Promise.resolve().then(() => this._poll.schedule({ interval: AGAIN_MS, phase: 'refreshed' }));
    }
    if (this._link.kind !== 'live') {
      this._setPace(RETRY_MS, RETRY_MAX_MS);
      throw new Error(this._link.kind);
    }
    this._setPace(this._polling ? this._fallbackMs : CHECK_MS);
  }

  private _judge(answer: Answer, told: number): Link {
    switch (answer.kind) {
      case 'body':
        try {
          const state = readState(answer.body);
          const missed = this._store.state !== null && this._link.kind === 'live' && state.revision !== this._store.revision;
          this._etag = answer.etag;
          this._store.replace(state);
          this._freshAt = this._now();
          if (missed && told === this._told) {
            this._polling = true;
          }
          return state.backend.healthy ? { kind: 'live' } : { kind: 'no_backend', message: '' };
        } catch (error) {
          this._etag = null;
          return { kind: 'unfit', message: messageOf(error) };
        }
      case 'unchanged':
        this._freshAt = this._now();
        return this._store.state?.backend.healthy === false ? { kind: 'no_backend', message: '' } : { kind: 'live' };
      case 'unreachable':
        return { kind: 'unreachable', message: answer.message };
      case 'refused':
        this._etag = null;
        return judgeRefusal(answer.status, answer.code, answer.message);
    }
  }

  private _eventsArrive(): void {
    this._told += 1;
    if (this._polling) {
      this._polling = false;
      this._setPace(CHECK_MS);
    }
  }

  private _unfit(error: unknown): void {
    this._setLink({ kind: 'unfit', message: messageOf(error) });
  }

  private _setPace(interval: number, max = RETRY_MAX_MS * 10): void {
    this._poll.frequency = { interval, backoff: true, max };
  }

  private _setLink(link: Link): void {
    if (JSON.stringify(link) !== JSON.stringify(this._link)) {
      this._link = link;
      this._linkChanged.emit(link);
    }
  }

  private readonly _poll: Poll<void, Error>;
  private readonly _now: () => number;
  private _fallbackMs = this._options.fallbackMs;
  private _link: Link = { kind: 'starting' };
  private _freshAt: number | null = null;
  private _etag: string | null = null;
  private _fetching = false;
  private _again = false;
  private _polling = false;
  /** Events seen so far. */
  private _told = 0;
  /** Changes that arrived while a GET was on its way: they count from what it brings. */
  private _held: IChange[] = [];
  private readonly _linkChanged = new Signal<this, Link>(this);
}

function judgeRefusal(status: number, code: string | null, message: string): Link {
  if (code === 'backend_gone') {
    return { kind: 'no_backend', message };
  }
  if (status === 401 || status === 403) {
    return { kind: 'not_authorised' };
  }
  if (status === 404 && code === null) {
    return { kind: 'no_server_part' };
  }
  if (status === 502 || status === 503 || status === 504) {
    return { kind: 'unreachable', message };
  }
  return { kind: 'failed', message };
}

function messageOf(error: unknown): string {
  if (error instanceof WireError) {
    return error.message;
  }
  throw error;
}
