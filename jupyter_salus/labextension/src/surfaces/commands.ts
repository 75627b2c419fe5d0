/**
 * Every action as a command: the buttons, menus, palette and shortcuts all come here.
 *
 * Without a `session` argument a command means the notebook in front. An action that hits somebody else asks first.
 */
import { JupyterFrontEnd } from '@jupyterlab/application';
import { Dialog, ICommandPalette, showDialog } from '@jupyterlab/apputils';
import { INotebookTracker } from '@jupyterlab/notebook';
import type { TranslationBundle } from '@jupyterlab/translation';
import { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import { Action, isPossible, movesMemory } from '../actions';
import { evictIcon, lanesIcon, pinIcon, restoreIcon, shutdownIcon, yieldIcon } from '../icons';
import { Model } from '../model/model';
import { ISession, POLICIES, PRIORITIES } from '../wire';
import { policyWord, priorityWord, sessionName } from '../words';

export interface ICommandParts {
  readonly app: JupyterFrontEnd;
  readonly model: Model;
  readonly trans: TranslationBundle;
  readonly tracker: INotebookTracker | null;
  readonly palette: ICommandPalette | null;
}

/** Commands whose state depends on a session's, and milliseconds after which they follow it. */
const FOLLOWING = ['yield', 'evict', 'restore', 'pin', 'priority', 'shutdown', 'open'] as const;
const FOLLOW_MS = 200;

type Args = ReadonlyPartialJSONObject;

export function addCommands({ app, model, trans, tracker, palette }: ICommandParts): void {
  const { commands } = app;
  const category = trans.__('GPU lanes');

  const sessionOf = (args: Args): ISession | undefined => {
    if (typeof args['session'] === 'string') {
      return model.store.session(args['session']);
    }
    if (args['pointed'] === true) {
      const row = app.contextMenuHitTest(node => node.dataset['session'] !== undefined);
      return model.store.session(row?.dataset['session'] ?? '');
    }
    const kernelId = tracker?.currentWidget?.sessionContext.session?.kernel?.id;
    return kernelId === undefined ? undefined : model.store.ofKernel(kernelId);
  };

  const moves = (session: ISession | undefined): boolean => session !== undefined && movesMemory(session);

  const ask = async (title: string, body: string, accept: string): Promise<boolean> => {
    const buttons = [Dialog.cancelButton({ label: trans.__('Leave it') }), Dialog.warnButton({ label: accept })];
    return (await showDialog({ title, body, buttons })).button.accept;
  };

  /** Asks before somebody else is hit; true where it isn't so, or the person wants it. */
  const agreed = async (session: ISession, question: string, accept: string): Promise<boolean> =>
    session.own || ask(trans.__('This is somebody else’s notebook'), question, accept);

  const whose = (session: ISession) => session.user ?? trans.__('somebody else');

  const addVerb = (
    verb: Extract<Action, 'yield' | 'evict' | 'restore'>,
    parts: { label: string; short: string; question: (session: ISession) => string; icon: typeof yieldIcon }
  ): void => {
    commands.addCommand(`jupyter-salus:${verb}`, {
      label: parts.label,
      icon: parts.icon,
      isEnabled: args => {
        const session = sessionOf(args);
        return session !== undefined && isPossible(verb, session);
      },
      isVisible: args => args['pointed'] !== true || verb === 'yield' || moves(sessionOf(args)),
      execute: async args => {
        const session = sessionOf(args);
        if (session && (await agreed(session, parts.question(session), parts.short))) {
          await model.act(session.id, verb);
        }
      }
    });
  };

  addVerb('yield', {
    label: trans.__('Yield the GPU'),
    short: trans.__('Yield'),
    icon: yieldIcon,
    question: session =>
      trans.__('%1 of %2 will pass its turn on at its next boundary.', sessionName(session, trans), whose(session))
  });
  addVerb('evict', {
    label: trans.__('Evict from the GPU'),
    short: trans.__('Evict'),
    icon: evictIcon,
    question: session =>
      trans.__(
        '%1 of %2 will be moved to host memory; it comes back when it next uses the GPU.',
        sessionName(session, trans),
        whose(session)
      )
  });
  addVerb('restore', {
    label: trans.__('Restore to the GPU'),
    short: trans.__('Restore'),
    icon: restoreIcon,
    question: session => trans.__('%1 of %2 will be brought back to the GPU.', sessionName(session, trans), whose(session))
  });

  commands.addCommand('jupyter-salus:pin', {
    label: trans.__('Pin to the GPU'),
    caption: trans.__('A pinned notebook is evicted last'),
    icon: pinIcon,
    isToggleable: true,
    isToggled: args => sessionOf(args)?.pinned ?? false,
    isVisible: args => args['pointed'] !== true || moves(sessionOf(args)),
    isEnabled: args => {
      const session = sessionOf(args);
      return session !== undefined && isPossible('pin', session);
    },
    execute: async args => {
      const session = sessionOf(args);
      const question = session
        ? trans.__('%1 of %2 will be evicted later or sooner than it asked for.', sessionName(session, trans), whose(session))
        : '';
      if (session && (await agreed(session, question, trans.__('Change it')))) {
        await model.setPinned(session.id, !session.pinned);
      }
    }
  });

  commands.addCommand('jupyter-salus:priority', {
    label: args => {
      const priority = PRIORITIES.find(one => one === args['priority']);
      return priority ? trans.__('GPU priority: %1', priorityWord(priority, trans)) : trans.__('GPU priority');
    },
    isToggleable: true,
    isToggled: args => sessionOf(args)?.priority === args['priority'],
    isEnabled: args => sessionOf(args) !== undefined,
    execute: async args => {
      const session = sessionOf(args);
      const priority = PRIORITIES.find(one => one === args['priority']);
      if (!session || !priority) {
        return;
      }
      const question = trans.__(
        'The priority of %1 of %2 will be “%3”.',
        sessionName(session, trans),
        whose(session),
        priorityWord(priority, trans)
      );
      if (await agreed(session, question, trans.__('Change it'))) {
        await model.setPriority(session.id, priority);
      }
    }
  });

  commands.addCommand('jupyter-salus:policy', {
    label: trans.__('Policy of a GPU'),
    execute: async args => {
      const policy = POLICIES.find(one => one === args['policy']);
      const device = model.store.devices.find(one => one.id === args['device']);
      if (!policy || !device || policy === device.policy) {
        return;
      }
      const others = model.store.sessions.filter(session => session.device === device.id && !session.own);
      const question = trans._n(
        '“%2” will decide who runs next on %3, also for %1 notebook of somebody else.',
        '“%2” will decide who runs next on %3, also for %1 notebooks of other people.',
        others.length,
        policyWord(policy, trans),
        device.name
      );
      if (!others.length || (await ask(trans.__('Other people use this device'), question, trans.__('Change it')))) {
        await model.setPolicy(device.id, policy);
      }
    }
  });

  commands.addCommand('jupyter-salus:shutdown', {
    label: trans.__('Shut down the kernel'),
    icon: shutdownIcon,
    isEnabled: args => {
      const session = sessionOf(args);
      return session !== undefined && isPossible('shutdown', session);
    },
    execute: async args => {
      const session = sessionOf(args);
      if (!session) {
        return;
      }
      const answer = await showDialog({
        title: trans.__('Shut down the kernel of %1?', sessionName(session, trans)),
        body: trans.__('Its variables will be lost, and its memory is free again.'),
        buttons: [Dialog.cancelButton(), Dialog.warnButton({ label: trans.__('Shut down') })]
      });
      if (answer.button.accept) {
        await model.shutdown(session.id);
      }
    }
  });

  commands.addCommand('jupyter-salus:open', {
    label: trans.__('Open the notebook'),
    isEnabled: args => {
      const session = sessionOf(args);
      return session !== undefined && isPossible('open', session);
    },
    execute: async args => {
      const path = sessionOf(args)?.path;
      if (path) {
        await commands.execute('docmanager:open', { path });
      }
    }
  });

  commands.addCommand('jupyter-salus:show', {
    label: trans.__('Show GPU Lanes'),
    caption: trans.__('Who has the GPU, who waits, and why'),
    icon: lanesIcon,
    execute: () => app.shell.activateById('jupyter-salus-sidebar')
  });

  commands.addCommand('jupyter-salus:refresh', {
    label: trans.__('Refresh GPU Lanes'),
    execute: () => model.feed.refresh()
  });

  if (palette) {
    for (const command of ['show', 'refresh', 'yield', 'evict', 'restore', 'pin']) {
      palette.addItem({ command: `jupyter-salus:${command}`, category });
    }
    for (const priority of PRIORITIES) {
      palette.addItem({ command: 'jupyter-salus:priority', category, args: { priority } });
    }
  }

  // Enabled states and toggles follow the sessions, a few times a second at most.
  let scheduled = false;
  const follow = () => {
    if (!scheduled) {
      scheduled = true;
      setTimeout(() => {
        scheduled = false;
        FOLLOWING.forEach(command => commands.notifyCommandChanged(`jupyter-salus:${command}`));
      }, FOLLOW_MS);
    }
  };
  model.transitioned.connect(follow);
  tracker?.currentChanged.connect(follow);
}
