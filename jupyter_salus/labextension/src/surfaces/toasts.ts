/**
 * What a person must not miss: an action that failed, and their own notebook evicted or unable to go on.
 */
import { Notification } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import { IFailure, ITransition, Model } from '../model/model';
import { IReason, ISession } from '../wire';
import { sessionName } from '../words';

/** Reasons of a wait that no turn of somebody else ends, and milliseconds that one stands before it is told. */
const STUCK: ReadonlySet<string> = new Set(['failed_return', 'no_room', 'over_capacity', 'user_limit', 'drained', 'lost']);
const STUCK_MS = 3_000;

/** Why the session can't go on, or null. One that runs does, whatever else is said of it. */
function stuck(session: ISession | undefined): IReason | null {
  const reason = session && session.state !== 'running' ? session.reason : null;
  return reason && STUCK.has(reason.code) ? reason : null;
}

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
    if (after.state === 'broken' && before.state !== 'broken') {
      const text = after.reason?.text ?? trans.__('Its device reported an error that can’t be repaired.');
      Notification.emit(trans.__('%1 can’t go on: %2 Restart its kernel.', name, text), 'error', {
        autoClose: false,
        actions: [show]
      });
    } else if (stuck(after) && stuck(after)?.code !== stuck(before)?.code) {
      // Room is often short for a moment only, while somebody is moved out.
      setTimeout(() => {
        const reason = stuck(model.store.session(after.id));
        if (reason && reason.code === after.reason?.code) {
          Notification.emit(trans.__('%1 can’t go on now: %2.', name, reason.text), 'warning', {
            autoClose: 10_000,
            actions: [show]
          });
        }
      }, STUCK_MS);
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
