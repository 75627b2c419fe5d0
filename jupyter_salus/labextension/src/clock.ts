/**
 * The server's time in this browser, and the tick by which shown durations grow.
 *
 * The clocks of browser and server may differ; without a correction a wait would read as minutes, or as nothing.
 */
import { ISignal, Signal } from '@lumino/signaling';

/** A difference below this many seconds is the transport's delay, not a wrong clock. */
const TOLERANCE_S = 2;

export class Clock {
  constructor(private readonly _local: () => number = () => Date.now() / 1000) {}

  /** Seconds since the epoch on the server. */
  now(): number {
    return this._local() + this._offset;
  }

  /** The server's time was `serverNow` a moment ago. */
  observe(serverNow: number): void {
    const offset = serverNow - this._local();
    this._offset = Math.abs(offset) > TOLERANCE_S ? offset : 0;
  }

  /** Once a second while somebody listens and the page is visible. */
  get second(): ISignal<this, void> {
    return this._second;
  }

  /** Starts the tick; the returned function ends it. Views call it while they show a growing duration. */
  listen(slot: () => void): () => void {
    const handler = () => slot();
    this._second.connect(handler);
    this._listeners += 1;
    this._timer ??= setInterval(() => {
      if (typeof document === 'undefined' || document.visibilityState === 'visible') {
        this._second.emit();
      }
    }, 1000);
    return () => {
      this._second.disconnect(handler);
      this._listeners -= 1;
      if (this._listeners === 0 && this._timer !== null) {
        clearInterval(this._timer);
        this._timer = null;
      }
    };
  }

  private _offset = 0;
  private _listeners = 0;
  private _timer: ReturnType<typeof setInterval> | null = null;
  private readonly _second = new Signal<this, void>(this);
}
