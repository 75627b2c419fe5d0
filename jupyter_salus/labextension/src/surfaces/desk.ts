/**
 * The rest of the page as the panel sees it: the notebook in front, and kernels of this server that run without us.
 */
import { INotebookTracker } from '@jupyterlab/notebook';
import { Kernel } from '@jupyterlab/services';
import { Signal } from '@lumino/signaling';
import { Model } from '../model/model';
import { IDesk } from '../panel/sidebar';

/** Milliseconds after which a kernel without a session counts as unmanaged: its row comes a moment after it. */
const PATIENCE_MS = 5_000;

export class Desk implements IDesk {
  constructor(
    private readonly _model: Model,
    private readonly _kernels: Kernel.IManager,
    private readonly _tracker: INotebookTracker | null
  ) {
    _kernels.runningChanged.connect(this._look, this);
    _model.store.changed.connect(this._look, this);
    _tracker?.currentChanged.connect(this._onCurrent, this);
    this._onCurrent();
  }

  readonly changed = new Signal<this, void>(this);

  get currentKernel(): string | null {
    return this._tracker?.currentWidget?.sessionContext.session?.kernel?.id ?? null;
  }

  /** How many kernels of this server have had no session for a while; none as long as some have one. */
  get unmanaged(): number {
    return this._unmanaged;
  }

  private _onCurrent(): void {
    const context = this._tracker?.currentWidget?.sessionContext;
    if (context && !this._followed.has(context)) {
      this._followed.add(context);
      context.kernelChanged.connect(() => this.changed.emit());
    }
    this.changed.emit();
  }

  private _look(): void {
    if (this._timer !== null) {
      clearTimeout(this._timer);
      this._timer = null;
    }
    const count = this._count();
    if (count <= this._unmanaged) {
      this._set(count);
    } else {
      this._timer = setTimeout(() => {
        this._timer = null;
        this._set(this._count());
      }, PATIENCE_MS);
    }
  }

  private _count(): number {
    if (this._model.store.state === null) {
      return 0;
    }
    const running = [...this._kernels.running()];
    const without = running.filter(kernel => !this._model.store.ofKernel(kernel.id));
    return without.length === running.length ? without.length : 0;
  }

  private _set(count: number): void {
    if (count !== this._unmanaged) {
      this._unmanaged = count;
      this.changed.emit();
    }
  }

  private _unmanaged = 0;
  private _timer: ReturnType<typeof setTimeout> | null = null;
  private readonly _followed = new WeakSet<object>();
}
