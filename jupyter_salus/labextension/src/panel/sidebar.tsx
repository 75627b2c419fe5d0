/**
 * The left sidebar: devices, lanes, sessions, timeline; or what is wrong.
 */
import { ReactWidget } from '@jupyterlab/ui-components';
import { ISignal } from '@lumino/signaling';
import * as React from 'react';
import { lanesIcon } from '../icons';
import { Timeline } from '../timeline/timeline';
import { ISurroundings, SurroundingsProvider, useSignal, useSurroundings } from './context';
import { Device } from './device';
import { Faults, Unmanaged } from './faults';
import { Section } from './section';
import { Sessions } from './sessions';

/** What the panel needs to know about the rest of the page. */
export interface IDesk {
  /** The kernel of the notebook in front, and the kernels of this server that run without us. */
  readonly currentKernel: string | null;
  readonly unmanaged: number;
  readonly changed: ISignal<unknown, void>;
}

export class Sidebar extends ReactWidget {
  constructor(
    private readonly _surroundings: ISurroundings,
    private readonly _desk: IDesk
  ) {
    super();
    const { trans } = _surroundings;
    this.id = 'jupyter-salus-sidebar';
    this.addClass('jp-Salus');
    this.title.icon = lanesIcon;
    this.title.caption = trans.__('GPU lanes');
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', trans.__('GPU lanes'));
    this.node.addEventListener('pointerover', event => this._light(event.target));
    this.node.addEventListener('pointerleave', () => this._light(null));
  }

  /** Lights up the pointed session wherever it stands: in the bar, in its lane, in its row, in the timeline. */
  private _light(target: EventTarget | null): void {
    const pointed = target instanceof Element ? target.closest('[data-session]')?.getAttribute('data-session') : null;
    if ((pointed ?? null) === this._lit) {
      return;
    }
    this._lit = pointed ?? null;
    this.node.querySelectorAll('[data-lit]').forEach(element => element.removeAttribute('data-lit'));
    if (this._lit !== null) {
      this.node
        .querySelectorAll(`[data-session="${CSS.escape(this._lit)}"]`)
        .forEach(element => element.setAttribute('data-lit', ''));
    }
  }

  private _lit: string | null = null;

  protected override render(): JSX.Element {
    return (
      <SurroundingsProvider value={this._surroundings}>
        <Panel desk={this._desk} />
      </SurroundingsProvider>
    );
  }
}

function Panel(props: { readonly desk: IDesk }): JSX.Element {
  const { desk } = props;
  const { model, trans } = useSurroundings();
  const { store, feed } = model;
  useSignal(store.changed);
  useSignal(feed.linkChanged);
  useSignal(desk.changed);
  const { devices, lanes, sessions } = store;
  const live = feed.link.kind === 'live';
  const waiting = sessions.filter(session => session.state === 'waiting').length;
  const summary = [
    trans._n('%1 session', '%1 sessions', sessions.length),
    ...(waiting ? [trans._n('%1 waits', '%1 wait', waiting)] : [])
  ].join(', ');
  return (
    <>
      <Faults />
      {live && desk.unmanaged > 0 ? <Unmanaged count={desk.unmanaged} /> : null}
      {store.state === null ? (
        feed.link.kind === 'starting' ? (
          <p className="jp-Salus-empty">{trans.__('Asking who has the GPU …')}</p>
        ) : null
      ) : (
        <div className={live ? 'jp-Salus-content' : 'jp-Salus-content jp-mod-stale'}>
          {devices.length ? null : (
            <p className="jp-Salus-empty">{trans.__('The backend has found no device.')}</p>
          )}
          {devices.map((device, at) => (
            <Device
              key={device.id}
              device={device}
              named={devices.length > 1}
              lanes={lanes.filter(lane => lane.device === device.id)}
              sessions={sessions.filter(session => (session.device === null ? at === 0 : session.device === device.id))}
              currentKernel={desk.currentKernel}
            />
          ))}
          <Section id="sessions" title={trans.__('Sessions')} aside={summary}>
            {sessions.length ? (
              <Sessions sessions={sessions} currentKernel={desk.currentKernel} />
            ) : (
              <p className="jp-Salus-empty">{trans.__('No kernel runs. Open a notebook to see it here.')}</p>
            )}
          </Section>
          <Section id="timeline" title={trans.__('Timeline')} onFirstOpen={() => void model.loadHistory()}>
            <Timeline />
          </Section>
        </div>
      )}
    </>
  );
}
