/**
 * The server's time in this browser, and the tick by which shown durations grow.
 *
 * The clocks of browser and server may differ; without a correction a wait would read as minutes, or as nothing.
 */

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

  /**
   * Calls `slot` once a second while the page is visible; the returned function ends it. A plain set, not a signal:
   * each growing duration of some hundred rows listens, and a signal looks through all its slots to add one.
   */
  listen(slot: () => void): () => void {
    const own = () => slot();
    this._slots.add(own);
    this._timer ??= setInterval(() => {
      if (typeof document === 'undefined' || document.visibilityState === 'visible') {
        this._slots.forEach(one => one());
      }
    }, 1000);
    return () => {
      this._slots.delete(own);
      if (this._slots.size === 0 && this._timer !== null) {
        clearInterval(this._timer);
        this._timer = null;
      }
    };
  }

  private _offset = 0;
  private _timer: ReturnType<typeof setInterval> | null = null;
  private readonly _slots = new Set<() => void>();
}
