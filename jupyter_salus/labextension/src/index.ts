/**
 * The plugins: one for the model, one for each surface. All but the first can be disabled on their own.
 */
import { ILayoutRestorer, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette, IToolbarWidgetRegistry } from '@jupyterlab/apputils';
import { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { IRunningSessionManagers } from '@jupyterlab/running';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ITranslator, nullTranslator, TranslationBundle } from '@jupyterlab/translation';
import { Signal } from '@lumino/signaling';
import { Client } from './model/client';
import { EventStream, IModel, Model } from './model/model';
import { ISurroundings } from './panel/context';
import { Sidebar } from './panel/sidebar';
import { announce } from './surfaces/announcer';
import { markCells } from './surfaces/cellmark';
import { Chip, toolbarChip } from './surfaces/chip';
import { addCommands } from './surfaces/commands';
import { Desk } from './surfaces/desk';
import { addRunningSection } from './surfaces/running';
import { raiseToasts } from './surfaces/toasts';

const SETTINGS = 'jupyter-salus:plugin';
const DEFAULT_FALLBACK_S = 5;

function bundle(translator: ITranslator | null): TranslationBundle {
  return (translator ?? nullTranslator).load('jupyter_salus');
}

function surroundings(app: JupyterFrontEnd, model: Model, translator: ITranslator | null): ISurroundings {
  return { model, commands: app.commands, translator: translator ?? nullTranslator, trans: bundle(translator) };
}

const model: JupyterFrontEndPlugin<IModel> = {
  id: 'jupyter-salus:model',
  description: 'Who has the GPU, who waits, and why: the state that all views share.',
  autoStart: true,
  provides: IModel,
  activate: (app: JupyterFrontEnd): IModel => {
    const { events, kernels, sessions, serverSettings } = app.serviceManager;
    const made = new Model({
      client: new Client(serverSettings),
      events: events.stream as unknown as EventStream,
      shutdownKernel: id => kernels.shutdown(id),
      fallbackMs: DEFAULT_FALLBACK_S * 1000
    });
    const lookAtNotebooks = () => {
      const notebooks = [...sessions.running()].filter(session => session.type === 'notebook' && session.kernel);
      made.store.notebooks = new Map(notebooks.map(session => [session.kernel!.id, session.path]));
    };
    sessions.runningChanged.connect(lookAtNotebooks);
    lookAtNotebooks();
    void app.started.then(() => made.start());
    return made;
  }
};

const plugin: JupyterFrontEndPlugin<void> = {
  id: SETTINGS,
  description: 'The sidebar of GPU lanes, its commands, notices and settings.',
  autoStart: true,
  requires: [IModel],
  optional: [ITranslator, ISettingRegistry, ILayoutRestorer, ICommandPalette, INotebookTracker],
  activate: (
    app: JupyterFrontEnd,
    shared: IModel,
    translator: ITranslator | null,
    registry: ISettingRegistry | null,
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null,
    tracker: INotebookTracker | null
  ): void => {
    const trans = bundle(translator);
    let tellEvictions = true;
    addCommands({ app, model: shared, trans, tracker, palette });
    raiseToasts(shared, trans, {
      tellEvictions: () => tellEvictions,
      showPanel: () => void app.commands.execute('jupyter-salus:show')
    });
    const sidebar = new Sidebar(
      surroundings(app, shared, translator),
      new Desk(shared, app.serviceManager.kernels, tracker)
    );
    app.shell.add(sidebar, 'left', { rank: 350, type: 'GPU lanes' });
    restorer?.add(sidebar, sidebar.id);
    if (tracker) {
      announce(shared, tracker, trans);
    }
    void registry?.load(SETTINGS).then(settings => {
      const read = () => {
        shared.feed.fallbackMs = 1000 * (settings.get('fallbackInterval').composite as number);
        tellEvictions = settings.get('notifyEvictions').composite as boolean;
      };
      settings.changed.connect(read);
      read();
    });
  }
};

const status: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-salus:status',
  description: 'The state of the notebook in front, in the status bar.',
  autoStart: true,
  requires: [IModel],
  // Notebook 7 has no status bar.
  optional: [IStatusBar, INotebookTracker, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    shared: IModel,
    bar: IStatusBar | null,
    tracker: INotebookTracker | null,
    translator: ITranslator | null
  ): void => {
    if (!bar || !tracker) {
      return;
    }
    const kernelId = () => tracker.currentWidget?.sessionContext.session?.kernel?.id ?? null;
    const item = new Chip(surroundings(app, shared, translator), kernelId, 'status');
    const activeStateChanged = new Signal<unknown, void>({});
    const update = () => {
      item.update();
      activeStateChanged.emit();
    };
    shared.store.changed.connect(() => activeStateChanged.emit());
    tracker.currentChanged.connect((_, panel) => {
      panel?.sessionContext.kernelChanged.connect(update);
      update();
    });
    bar.registerStatusItem('jupyter-salus:status', {
      item,
      align: 'left',
      rank: 5,
      isActive: () => kernelId() !== null && shared.store.state !== null,
      activeStateChanged
    });
  }
};

const toolbar: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-salus:toolbar',
  description: 'A notebook’s own state, in its toolbar.',
  autoStart: true,
  requires: [IModel, IToolbarWidgetRegistry],
  optional: [ITranslator],
  activate: (
    app: JupyterFrontEnd,
    shared: IModel,
    registry: IToolbarWidgetRegistry,
    translator: ITranslator | null
  ): void => {
    registry.addFactory<NotebookPanel>('Notebook', 'jupyter-salus', panel =>
      toolbarChip(surroundings(app, shared, translator), panel)
    );
  }
};

const cells: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-salus:cells',
  description: 'Marks the cell that waits for the GPU.',
  autoStart: true,
  requires: [IModel, INotebookTracker],
  optional: [ITranslator],
  activate: (_: JupyterFrontEnd, shared: IModel, tracker: INotebookTracker, translator: ITranslator | null): void =>
    markCells(shared, tracker, bundle(translator))
};

const running: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-salus:running',
  description: 'The sessions of this server, in the panel of running kernels.',
  autoStart: true,
  requires: [IModel],
  optional: [IRunningSessionManagers, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    shared: IModel,
    managers: IRunningSessionManagers | null,
    translator: ITranslator | null
  ): void => {
    if (managers) {
      addRunningSection(managers, shared, app.commands, bundle(translator));
    }
  }
};

export { IModel } from './model/model';
export default [model, plugin, status, toolbar, cells, running];
