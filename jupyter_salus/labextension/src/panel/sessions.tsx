/**
 * The sessions, by whose they are, in an order that no turn changes: by name, then path, then id.
 */
import * as React from 'react';
import { compareNames } from '../format';
import { IIntent } from '../model/store';
import { ISession } from '../wire';
import { sessionName, stateWord } from '../words';
import { useSurroundings } from './context';
import { useNear, useWatch, Watch } from './nearness';
import { Session } from './session';

/** From so many sessions on there is a field to filter them. */
const FILTER_FROM = 9;
/** From so many on those far from the visible part are drawn as their name alone. */
const WATCH_FROM = 30;

export function Sessions(props: {
  readonly sessions: readonly ISession[];
  readonly currentKernel: string | null;
}): JSX.Element {
  const { sessions, currentKernel } = props;
  const { model, trans } = useSurroundings();
  const [filter, setFilter] = React.useState('');
  const watch = useWatch(sessions.length >= WATCH_FROM);
  const byId = new Map(sessions.map(session => [session.id, session]));
  const order = useOrder(sessions);
  const wanted = filter.trim().toLowerCase();
  const shown = order
    .map(id => byId.get(id))
    .filter((session): session is ISession => session !== undefined)
    .filter(
      session =>
        !wanted ||
        [session.name, session.path, session.user, stateWord(session.state, trans)].some(text =>
          text?.toLowerCase().includes(wanted)
        )
    );
  const groups = [
    { key: 'here', title: trans.__('This server'), rows: shown.filter(session => session.here) },
    {
      key: 'own',
      title: trans.__('Your other servers'),
      rows: shown.filter(session => session.own && !session.here)
    },
    { key: 'others', title: trans.__('Other people'), rows: shown.filter(session => !session.own) }
  ].filter(group => group.rows.length);
  const nameOf = (id: string): string => {
    const session = byId.get(id);
    return session ? sessionName(session, trans) : '';
  };
  /** With whom it takes turns: the first one's name, and how many more there are. */
  const sharing = (session: ISession): string => {
    const [first, ...rest] = session.state === 'waiting' ? [] : session.sharingWith.map(nameOf).filter(name => name);
    return first === undefined
      ? ''
      : rest.length
        ? trans._n('taking turns with %2 and %1 more', 'taking turns with %2 and %1 more', rest.length, first)
        : trans.__('taking turns with %1', first);
  };
  return (
    <>
      {sessions.length >= FILTER_FROM ? (
        <input
          type="search"
          className="jp-mod-styled jp-Salus-filter"
          placeholder={trans.__('Filter by name, path, person or state')}
          aria-label={trans.__('Filter sessions')}
          value={filter}
          onChange={event => setFilter(event.target.value)}
        />
      ) : null}
      {groups.length ? null : <p className="jp-Salus-empty">{trans.__('No session matches.')}</p>}
      {groups.map(group => (
        <div key={group.key} data-group={group.key}>
          {groups.length > 1 || group.key !== 'here' ? <h3 className="jp-Salus-group">{group.title}</h3> : null}
          <ul className="jp-Salus-sessions" aria-label={group.title}>
            {group.rows.map(session => (
              <Row
                key={session.id}
                session={session}
                intent={model.store.intent(session.id)}
                sharing={sharing(session)}
                current={session.here && session.kernelId !== null && session.kernelId === currentKernel}
                mayActOnOthers={model.mayActOnOthers}
                watch={watch}
              />
            ))}
          </ul>
        </div>
      ))}
    </>
  );
}

/** The row of a session; far from the visible part it stands there with its name alone. */
const Row = React.memo(function Row(props: {
  readonly session: ISession;
  readonly intent: IIntent | undefined;
  readonly sharing: string;
  readonly current: boolean;
  readonly mayActOnOthers: boolean;
  readonly watch: Watch | null;
}): JSX.Element {
  const { session, intent, sharing, current, mayActOnOthers, watch } = props;
  const { trans } = useSurroundings();
  const [ref, near] = useNear(watch);
  const name = sessionName(session, trans);
  return (
    <li
      ref={ref}
      className={`jp-Salus-session${current ? ' jp-mod-current' : ''}`}
      data-session={session.id}
      data-state={session.state}
      data-name={name}
    >
      {near ? (
        <Session session={session} intent={intent} sharing={sharing} mayActOnOthers={mayActOnOthers} />
      ) : (
        <span className="jp-Salus-name">{name}</span>
      )}
    </li>
  );
});

/** The ids in the order of the rows. Sorted anew only when a name changes or a session comes or goes. */
function useOrder(sessions: readonly ISession[]): readonly string[] {
  const signature = sessions.map(({ id, name, path }) => `${id}\n${name}\n${path}`).join('\n');
  const sorted = () => [...sessions].sort(byName).map(session => session.id);
  // The signature stands for the sessions, of which everything else changes all the time.
  return React.useMemo(sorted, [signature]);
}

function byName(a: ISession, b: ISession): number {
  return (
    compareNames(a.name ?? '', b.name ?? '') || compareNames(a.path ?? '', b.path ?? '') || (a.id < b.id ? -1 : 1)
  );
}
