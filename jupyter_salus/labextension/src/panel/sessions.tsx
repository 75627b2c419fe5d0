/**
 * The sessions, by whose they are, in an order that no turn changes: by name, then path, then id.
 */
import * as React from 'react';
import { compareNames } from '../format';
import { ISession } from '../wire';
import { sessionName } from '../words';
import { useSurroundings } from './context';
import { Session } from './session';

/** From so many sessions on there is a field to filter them. */
const FILTER_FROM = 9;

export function Sessions(props: {
  readonly sessions: readonly ISession[];
  readonly currentKernel: string | null;
}): JSX.Element {
  const { sessions, currentKernel } = props;
  const { trans } = useSurroundings();
  const [filter, setFilter] = React.useState('');
  const byId = new Map(sessions.map(session => [session.id, session]));
  const wanted = filter.trim().toLowerCase();
  const shown = sessions.filter(session =>
    [session.name, session.path, session.user].some(text => text?.toLowerCase().includes(wanted) || !wanted)
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
  return (
    <>
      {sessions.length >= FILTER_FROM ? (
        <input
          type="search"
          className="jp-mod-styled jp-Salus-filter"
          placeholder={trans.__('Filter by name, path or person')}
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
            {[...group.rows].sort(byName).map(session => (
              <Row key={session.id} session={session} byId={byId} currentKernel={currentKernel} />
            ))}
          </ul>
        </div>
      ))}
    </>
  );
}

/** Looks up what the row needs of others, so that the row itself is drawn anew only when that changes. */
function Row(props: {
  readonly session: ISession;
  readonly byId: ReadonlyMap<string, ISession>;
  readonly currentKernel: string | null;
}): JSX.Element {
  const { session, byId, currentKernel } = props;
  const { model, trans } = useSurroundings();
  const sharing = session.sharingWith
    .map(id => byId.get(id))
    .map(other => (other ? sessionName(other, trans) : ''))
    .filter(name => name)
    .join(', ');
  return (
    <Session
      session={session}
      intent={model.store.intent(session.id)}
      sharing={sharing}
      current={session.here && session.kernelId === currentKernel}
      mayActOnOthers={model.mayActOnOthers}
    />
  );
}

function byName(a: ISession, b: ISession): number {
  return (
    compareNames(a.name ?? '', b.name ?? '') || compareNames(a.path ?? '', b.path ?? '') || (a.id < b.id ? -1 : 1)
  );
}
