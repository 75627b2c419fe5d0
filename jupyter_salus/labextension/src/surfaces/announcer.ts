/**
 * Says the state of the notebook in front to screen readers, once for each change. Other notebooks change all the
 * time; hearing them all would be noise.
 */
import { INotebookTracker } from '@jupyterlab/notebook';
import type { TranslationBundle } from '@jupyterlab/translation';
import { Model } from '../model/model';
import { sessionName, stateLine } from '../words';

export function announce(model: Model, tracker: INotebookTracker, trans: TranslationBundle): HTMLElement {
  const region = document.createElement('div');
  region.className = 'jp-Salus-announcer';
  region.setAttribute('role', 'status');
  region.setAttribute('aria-live', 'polite');
  region.setAttribute('aria-label', trans.__('This notebook on the GPU'));
  document.body.appendChild(region);
  model.transitioned.connect((_, { after }) => {
    if (after.kernelId !== null && after.kernelId === tracker.currentWidget?.sessionContext.session?.kernel?.id) {
      const reason = after.reason ? ` ${after.reason.text}` : '';
      region.textContent = `${sessionName(after, trans)}: ${stateLine(after, trans)}.${reason}`;
    }
  });
  return region;
}
