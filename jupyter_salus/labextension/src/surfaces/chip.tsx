/**
 * One notebook's session in a few words: in its toolbar, and in the status bar for the notebook in front.
 */
import { ReactWidget } from '@jupyterlab/ui-components';
import { NotebookPanel } from '@jupyterlab/notebook';
import * as React from 'react';
import { lanesIcon, stateIcon } from '../icons';
import { ISurroundings, SurroundingsProvider, useNow, useSignal, useSurroundings } from '../panel/context';
import { ISession } from '../wire';
import { shortLine, stateLine, waits } from '../words';

export class Chip extends ReactWidget {
  /** `follow` calls its argument whenever another kernel may be meant. */
  constructor(
    private readonly _surroundings: ISurroundings,
    private readonly _kernelId: () => string | null,
    private readonly _place: 'toolbar' | 'status'
  ) {
    super();
    this.addClass('jp-Salus-chipHost');
  }

  protected override render(): JSX.Element {
    return (
      <SurroundingsProvider value={this._surroundings}>
        <ChipView kernelId={this._kernelId} place={this._place} />
      </SurroundingsProvider>
    );
  }
}

/** The chip of a notebook's own toolbar. */
export function toolbarChip(surroundings: ISurroundings, panel: NotebookPanel): Chip {
  const chip = new Chip(surroundings, () => panel.sessionContext.session?.kernel?.id ?? null, 'toolbar');
  const update = () => chip.update();
  panel.sessionContext.kernelChanged.connect(update);
  chip.disposed.connect(() => {
    panel.sessionContext.kernelChanged.disconnect(update);
  });
  return chip;
}

function ChipView(props: {
  readonly kernelId: () => string | null;
  readonly place: 'toolbar' | 'status';
}): JSX.Element | null {
  const { model, commands, trans } = useSurroundings();
  useSignal(model.store.changed);
  useSignal(model.feed.linkChanged);
  const kernelId = props.kernelId();
  const session = kernelId === null ? undefined : model.store.ofKernel(kernelId);
  const now = useNow(session !== undefined && waits(session));
  if (kernelId === null || model.store.state === null) {
    return null;
  }
  const live = model.feed.link.kind === 'live';
  const text = live ? shortLine(session, trans, now) : trans.__('No backend');
  // Without the seconds: a name that changes each second would be read out again and again.
  const word = live && session ? stateLine(session, trans) : text;
  const Icon = live ? (session ? stateIcon(session.state) : lanesIcon) : stateIcon('broken');
  return (
    <button
      type="button"
      className={`jp-Salus-chip jp-mod-${props.place}`}
      data-state={live ? (session?.state ?? 'unmanaged') : 'gone'}
      title={tip(session)}
      aria-label={trans.__('GPU: %1. Show GPU lanes', word)}
      onClick={() => void commands.execute('jupyter-salus:show')}
    >
      <Icon.react tag="span" className="jp-Salus-icon" />
      <span>{text}</span>
    </button>
  );

  function tip(of: ISession | undefined): string {
    if (!live) {
      return trans.__('No backend answers: see GPU lanes in the left sidebar');
    }
    if (!of) {
      return trans.__('This notebook’s kernel runs without turns: see GPU lanes in the left sidebar');
    }
    return of.reason?.text ?? trans.__('This notebook on the GPU: %1', shortLine(of, trans, now));
  }
}
