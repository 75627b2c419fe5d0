/**
 * A section in the "Running Terminals and Kernels" panel: the sessions of this server that hold something.
 */
import { IRunningSessionManagers, IRunningSessions } from '@jupyterlab/running';
import type { TranslationBundle } from '@jupyterlab/translation';
import { CommandRegistry } from '@lumino/commands';
import { Signal } from '@lumino/signaling';
import { withUnit } from '../format';
import { stateIcon } from '../icons';
import { Model } from '../model/model';
import { ISession } from '../wire';
import { sessionName, stateLine } from '../words';

/** Milliseconds between two drawings at least. */
const SPACING_MS = 1_000;

export function addRunningSection(
  managers: IRunningSessionManagers,
  model: Model,
  commands: CommandRegistry,
  trans: TranslationBundle
): void {
  const runningChanged = new Signal<unknown, unknown>({});
  const shown = (): ISession[] => model.store.sessions.filter(session => session.here && session.state !== 'none');
  const item = (session: ISession): IRunningSessions.IRunningItem => ({
    label: () => sessionName(session, trans),
    icon: () => stateIcon(session.state),
    labelTitle: () => [session.path, stateLine(session, trans), session.reason?.text].filter(text => text).join('\n'),
    detail: () => `${stateLine(session, trans)}, ${withUnit(session.persistentBytes)}`,
    open: () => void commands.execute('jupyter-salus:open', { session: session.id }),
    shutdown: () => void commands.execute('jupyter-salus:shutdown', { session: session.id })
  });
  // The panel draws all its sections at each of these, seen or not.
  let scheduled = false;
  model.store.changed.connect(() => {
    if (!scheduled) {
      scheduled = true;
      setTimeout(() => {
        scheduled = false;
        runningChanged.emit(undefined);
      }, SPACING_MS);
    }
  });
  managers.add({
    name: trans.__('GPU lanes'),
    running: () => shown().map(item),
    shutdownAll: () => shown().forEach(session => void model.shutdown(session.id)),
    refreshRunning: () => model.feed.refresh(),
    runningChanged,
    shutdownLabel: trans.__('Shut down the kernel'),
    shutdownAllLabel: trans.__('Shut down all'),
    shutdownAllConfirmationText: trans.__('Shut down the kernels of all notebooks that use the GPU?')
  });
}
