/**
 * Marks the cell whose code waits for the GPU, by the state's `cell_id`: so that whoever has the notebook open sees it,
 * not only who ran the cell.
 */
import { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import type { TranslationBundle } from '@jupyterlab/translation';
import { stateIcon } from '../icons';
import { Model } from '../model/model';
import { ISession } from '../wire';

const MARK = 'jp-Salus-cellMark';

export function markCells(model: Model, tracker: INotebookTracker, trans: TranslationBundle): void {
  const mark = (panel: NotebookPanel): void => {
    const kernelId = panel.sessionContext.session?.kernel?.id;
    const session = kernelId === undefined ? undefined : model.store.ofKernel(kernelId);
    const waits = session?.state === 'waiting' || session?.state === 'restoring' ? session : undefined;
    for (const cell of panel.content.widgets) {
      const old = cell.node.querySelector<HTMLElement>(`.${MARK}`);
      if (waits?.cellId && cell.model.id === waits.cellId) {
        const host = cell.inputArea?.node ?? cell.node;
        draw(old ?? host.appendChild(document.createElement('div')), waits);
      } else {
        old?.remove();
      }
    }
  };

  const draw = (element: HTMLElement, session: ISession): void => {
    const text =
      session.state === 'restoring'
        ? trans.__('Its memory comes back to the GPU')
        : (session.reason?.text ?? trans.__('Waits for the GPU'));
    if (element.title === text && element.className === MARK) {
      return;
    }
    element.className = MARK;
    element.title = text;
    element.setAttribute('role', 'img');
    element.setAttribute('aria-label', text);
    element.replaceChildren(stateIcon(session.state).element({ tag: 'span' }));
  };

  const markAll = () => tracker.forEach(mark);
  model.store.changed.connect(markAll);
  // A notebook that is opened while its cell waits: its kernel or its cells may come later than the state.
  tracker.widgetAdded.connect((_, panel) => {
    const again = () => mark(panel);
    panel.sessionContext.kernelChanged.connect(again);
    void Promise.all([panel.revealed, panel.sessionContext.ready]).then(again);
  });
}
