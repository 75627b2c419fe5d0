/**
 * One session: what it is, what it does, what it holds, what it waits for, and what can be done with it.
 */
import { LabIcon } from '@jupyterlab/ui-components';
import * as React from 'react';
import { Action, isPossible, movesMemory } from '../actions';
import { gib, roughly } from '../format';
import { evictIcon, pinIcon, pinnedIcon, restoreIcon, shutdownIcon, stateIcon, yieldIcon } from '../icons';
import { laneName } from '../memory';
import { IIntent } from '../model/store';
import { ISession, PRIORITIES } from '../wire';
import { modeWords, priorityWord, sessionName, since, stateLine, stateWord, waits } from '../words';
import { ISurroundings, useNow, useSurroundings } from './context';
import { Select } from './select';

interface ISessionProps {
  readonly session: ISession;
  readonly intent: IIntent | undefined;
  /** With whom it takes turns, in words. */
  readonly sharing: string;
  readonly mayActOnOthers: boolean;
}

/** The inside of a row. */
export const Session = React.memo(function Session(props: ISessionProps): JSX.Element {
  const { session, intent, sharing, mayActOnOthers } = props;
  const mayAct = session.own || mayActOnOthers;
  const { commands, trans } = useSurroundings();
  const StateIcon = stateIcon(session.state);
  const name = sessionName(session, trans);
  const folder = session.path?.includes('/') ? session.path.slice(0, session.path.lastIndexOf('/')) : '';
  const aside = session.own ? folder : session.name ? (session.user ?? '') : '';
  const title = facts(session, trans);
  const where = session.lane !== null ? laneName(session.lane, trans) : '';
  return (
    <>
      <StateIcon.react tag="span" className="jp-Salus-icon jp-Salus-state" title={stateWord(session.state, trans)} />
      <div className="jp-Salus-title">
        {isPossible('open', session) ? (
          <button
            type="button"
            className="jp-Salus-name"
            title={title}
            onClick={() => void commands.execute('jupyter-salus:open', { session: session.id })}
          >
            {name}
          </button>
        ) : (
          <span className="jp-Salus-name" title={title}>
            {name}
          </span>
        )}
        {session.pinned ? <pinnedIcon.react tag="span" className="jp-Salus-pin" title={trans.__('Pinned')} /> : null}
        <span className="jp-Salus-aside jp-Salus-ellipsis">{aside}</span>
      </div>
      <div className="jp-Salus-controls">
        {mayAct ? <Actions session={session} intent={intent} name={name} /> : null}
        <PrioritySelect session={session} name={name} mayAct={mayAct} />
      </div>
      <div className="jp-Salus-what">
        <StateLine session={session} />
        {where ? <span>{where}</span> : null}
        {sharing ? <span>{sharing}</span> : null}
      </div>
      {session.state === 'none' ? null : <Figures session={session} />}
      {session.reason ? <p className="jp-Salus-reason">{session.reason.text}</p> : null}
      {session.managed ? null : (
        <p className="jp-Salus-reason">
          {trans.__('Not managed: %1', session.unmanagedReason ?? trans.__('its kernel runs without a guest'))}
        </p>
      )}
      {session.unguardedReason === null ? null : (
        <p className="jp-Salus-reason">{trans.__('No guard: %1', session.unguardedReason)}</p>
      )}
    </>
  );
});

/** What few people ask for: shown when the name is pointed at. */
function facts(session: ISession, trans: ISurroundings['trans']): string {
  const counted = [
    ...(session.iterations ? [trans._n('%1 iteration', '%1 iterations', session.iterations)] : []),
    ...(session.turns ? [trans._n('%1 turn', '%1 turns', session.turns)] : []),
    ...(session.evictions ? [trans._n('%1 eviction', '%1 evictions', session.evictions)] : [])
  ];
  const lines = [session.path ?? sessionName(session, trans), session.frameworks.join(', '), counted.join(', ')];
  return lines.filter(line => line).join('\n');
}

/** The state with its place in line, and for how long it has been so. */
function StateLine(props: { readonly session: ISession }): JSX.Element {
  const { session } = props;
  const { trans } = useSurroundings();
  const from = since(session);
  const now = useNow(from !== null);
  return <span className="jp-Salus-word">{stateLine(session, trans, from === null ? null : now - from)}</span>;
}

function Figures(props: { readonly session: ISession }): JSX.Element {
  const { session } = props;
  const { trans } = useSurroundings();
  const uses = session.state === 'running' || session.state === 'yielding';
  const queues = waits(session);
  const now = useNow(uses || queues);
  const later = Math.max(0, now - session.asOf);
  // Those who take turns get about the same of the time until the next row says how much it was.
  const share = uses ? 1 / (1 + session.sharingWith.length) : 0;
  const used = session.usedS + share * later;
  const waited = session.waitedS + (uses || queues ? (1 - share) * later : 0);
  // The first wait's own length stands in the line above.
  const before = waited - (queues ? now - (session.waitingSince ?? now) : 0);
  const ephemeral = session.ephemeralBytes > 0;
  const mode = modeWords(session.memoryMode, trans);
  return (
    <div className="jp-Salus-figures">
      <span title={trans.__('Persistent: what it holds between two turns')}>
        P {gib(session.persistentBytes)}
        {ephemeral ? '' : ' GiB'}
      </span>
      {ephemeral ? (
        <span title={trans.__('Ephemeral: what it needs on top in a turn')}>E {gib(session.ephemeralBytes)} GiB</span>
      ) : null}
      <span title={trans.__('Time with the device')}>{trans.__('used %1', roughly(used, trans))}</span>
      {before >= 1 ? (
        <span title={trans.__('Time spent waiting, all in all')}>{trans.__('waited %1', roughly(waited, trans))}</span>
      ) : null}
      {mode ? (
        <span className="jp-Salus-mode" title={mode[1]}>
          {mode[0]}
        </span>
      ) : null}
    </div>
  );
}
function PrioritySelect(props: {
  readonly session: ISession;
  readonly name: string;
  readonly mayAct: boolean;
}): JSX.Element {
  const { session, name, mayAct } = props;
  const { commands, trans } = useSurroundings();
  if (!mayAct) {
    return <span className="jp-Salus-priority">{priorityWord(session.priority, trans)}</span>;
  }
  return (
    <Select
      className="jp-Salus-priority"
      value={session.priority}
      choices={PRIORITIES.map(priority => [priority, priorityWord(priority, trans)] as const)}
      label={trans.__('Priority of %1', name)}
      onChoose={priority => void commands.execute('jupyter-salus:priority', { session: session.id, priority })}
    />
  );
}

/** The buttons keep their places: one that isn't possible now is disabled, so that none moves under the pointer. */
function Actions(props: {
  readonly session: ISession;
  readonly intent: IIntent | undefined;
  readonly name: string;
}): JSX.Element {
  const { session, intent, name } = props;
  const { commands, trans } = useSurroundings();
  const button = (action: Action, icon: LabIcon, label: string, pressed?: boolean) => (
    <button
      type="button"
      className={`jp-Salus-action${pressed ? ' jp-mod-pressed' : ''}`}
      aria-label={`${label}: ${name}`}
      {...(pressed === undefined ? {} : { 'aria-pressed': pressed })}
      title={label}
      disabled={!isPossible(action, session) || intent?.verb !== undefined}
      data-action={action}
      onClick={() => void commands.execute(`jupyter-salus:${action}`, { session: session.id })}
    >
      <icon.react tag="span" />
    </button>
  );
  const out = session.state === 'evicted' || session.state === 'restoring';
  return (
    <div className="jp-Salus-actions" role="group" aria-label={trans.__('Actions for %1', name)}>
      {button('yield', yieldIcon, trans.__('Yield: pass the turn on'))}
      {!movesMemory(session)
        ? null
        : out
          ? button('restore', restoreIcon, trans.__('Restore: bring it back to the device'))
          : button('evict', evictIcon, trans.__('Evict: move it to host memory'))}
      {movesMemory(session)
        ? button(
            'pin',
            session.pinned ? pinnedIcon : pinIcon,
            session.pinned ? trans.__('Unpin') : trans.__('Pin: evict it last'),
            session.pinned
          )
        : null}
      {session.here ? button('shutdown', shutdownIcon, trans.__('Shut down the kernel')) : null}
    </div>
  );
}
