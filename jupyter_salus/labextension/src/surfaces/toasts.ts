/**
 * What a person must not miss: an action that failed, and their own notebook evicted or unable to go on.
 */
import { Notification } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import { IFailure, ITransition, Model } from '../model/model';
import { sessionName } from '../words';

/** Reasons of a wait that no turn of somebody else ends. */
const STUCK: ReadonlySet<string> = new Set(['failed_return', 'no_room', 'over_capacity']);

export interface IToastOptions {
  /** Whether to tell of evictions; failures and broken sessions are always told. */
  readonly tellEvictions: () => boolean;
  readonly showPanel: () => void;
}

export function raiseToasts(model: Model, trans: TranslationBundle, options: IToastOptions): void {
  const show = { label: trans.__('Show'), callback: options.showPanel };

  model.failed.connect((_, failure) => {
    Notification.emit(`${failureText(failure, trans)} ${failure.message}`, 'error', { autoClose: 10_000 });
  });

  model.transitioned.connect((_, { before, after }: ITransition) => {
    if (!after.own) {
      return;
    }
    const name = sessionName(after, trans);
    const code = after.reason?.code;
    if (after.state === 'broken' && before.state !== 'broken') {
      const text = after.reason?.text ?? trans.__('Its device reported an error that can’t be repaired.');
      Notification.emit(trans.__('%1 can’t go on: %2 Restart its kernel.', name, text), 'error', {
        autoClose: false,
        actions: [show]
      });
    } else if (code !== undefined && STUCK.has(code) && before.reason?.code !== code) {
      Notification.emit(trans.__('%1 can’t go on now: it %2.', name, after.reason?.text ?? code), 'warning', {
        autoClose: 10_000,
        actions: [show]
      });
    } else if (after.state === 'evicted' && before.state !== 'evicted' && options.tellEvictions()) {
      if (!model.wasAsked(after.id, 'evict')) {
        Notification.emit(
          trans.__('%1 was moved to host memory. It comes back where it was when it next uses the GPU.', name),
          'info',
          { autoClose: 8_000, actions: [show] }
        );
      }
    }
  });
}

function failureText(failure: IFailure, trans: TranslationBundle): string {
  switch (failure.action) {
    case 'priority':
      return trans.__('The priority of %1 wasn’t changed.', failure.target);
    case 'pin':
      return trans.__('%1 wasn’t pinned or unpinned.', failure.target);
    case 'policy':
      return trans.__('The policy of %1 wasn’t changed.', failure.target);
    case 'shutdown':
      return trans.__('The kernel of %1 wasn’t shut down.', failure.target);
    case 'yield':
      return trans.__('%1 wasn’t asked to yield.', failure.target);
    case 'evict':
      return trans.__('%1 wasn’t evicted.', failure.target);
    case 'restore':
      return trans.__('%1 wasn’t restored.', failure.target);
  }
}
