/**
 * The lanes of a device: who runs in each and for how long, who is in line and since when.
 */
import * as React from 'react';
import { compareNames, duration, withUnit } from '../format';
import { stateIcon } from '../icons';
import { occupancyOf } from '../lanes';
import { laneName } from '../memory';
import { ILane, ISession } from '../wire';
import { sessionName, since } from '../words';
import { useNow, useSurroundings } from './context';

/** So many of a lane are shown before the person asks for more. */
const SHOWN = 5;

interface ILanesProps {
  readonly lanes: readonly ILane[];
  readonly sessions: readonly ISession[];
  readonly currentKernel: string | null;
}

export function Lanes(props: ILanesProps): JSX.Element {
  const { trans } = useSurroundings();
  const { lanes, sessions, currentKernel } = props;
  const laneless = occupancyOf(null, sessions).waiting;
  if (!lanes.length && !laneless.length) {
    return (
      <p className="jp-Salus-empty">
        {trans.__('No lane is open. A notebook gets one when its code first uses the device.')}
      </p>
    );
  }
  return (
    <ul className="jp-Salus-lanes">
      {[...lanes]
        .sort((a, b) => compareNames(a.id, b.id))
        .map(lane => (
          <Lane key={lane.id} lane={lane} sessions={sessions} currentKernel={currentKernel} />
        ))}
      {laneless.length ? (
        <li className="jp-Salus-lane" data-lane="none">
          <div className="jp-Salus-laneHead">
            <h3>{trans.__('Waiting for room')}</h3>
          </div>
          <Queue waiting={laneless} currentKernel={currentKernel} />
        </li>
      ) : null}
    </ul>
  );
}

function Lane(props: {
  readonly lane: ILane;
  readonly sessions: readonly ISession[];
  readonly currentKernel: string | null;
}): JSX.Element {
  const { trans } = useSurroundings();
  const { lane, sessions, currentKernel } = props;
  const { running, waiting } = occupancyOf(lane, sessions);
  const [shown, more, toggle] = useSome(running, currentKernel);
  const RunningIcon = stateIcon('running');
  const NobodyIcon = stateIcon('none');
  return (
    <li className="jp-Salus-lane" data-lane={lane.id}>
      <div className="jp-Salus-laneHead">
        <h3>{laneName(lane.id, trans)}</h3>
        {running.length > 1 ? (
          <span className="jp-Salus-aside">{trans._n('%1 takes turns', '%1 take turns', running.length)}</span>
        ) : null}
        {lane.ephemeralBytes > 0 ? (
          <span className="jp-Salus-figure" title={trans.__('Ephemeral memory of the lane')}>
            E {withUnit(lane.ephemeralBytes)}
          </span>
        ) : null}
      </div>
      {running.length ? null : (
        <div className="jp-Salus-holder">
          <NobodyIcon.react tag="span" className="jp-Salus-icon" />
          <span className="jp-Salus-aside">{trans.__('Nobody has the turn')}</span>
        </div>
      )}
      {shown.map(({ session }) => (
        <div key={session.id} className="jp-Salus-holder" data-session={session.id}>
          <RunningIcon.react tag="span" className="jp-Salus-icon jp-mod-running" />
          <Who session={session} />
        </div>
      ))}
      <More count={more} onToggle={toggle} />
      <Queue waiting={waiting} currentKernel={currentKernel} />
    </li>
  );
}

function Queue(props: {
  readonly waiting: readonly ISession[];
  readonly currentKernel: string | null;
}): JSX.Element | null {
  const { trans } = useSurroundings();
  const { waiting } = props;
  const [shown, more, toggle] = useSome(waiting, props.currentKernel);
  return waiting.length ? (
    <>
      <ol className="jp-Salus-queue" aria-label={trans._n('%1 session waits', '%1 sessions wait', waiting.length)}>
        {shown.map(({ session, place }) => (
          <li key={session.id} value={place} data-session={session.id}>
            <span className="jp-Salus-place" aria-hidden="true">
              {place}.
            </span>
            <Who session={session} />
          </li>
        ))}
      </ol>
      <More count={more} onToggle={toggle} />
    </>
  ) : null;
}

/** A session's name, and how long it has run or waited. */
function Who(props: { readonly session: ISession }): JSX.Element {
  const { session } = props;
  const { trans } = useSurroundings();
  const from = since(session);
  const now = useNow(from !== null);
  const name = sessionName(session, trans);
  return (
    <>
      <span className="jp-Salus-who jp-Salus-ellipsis" title={name}>
        {name}
      </span>
      {session.own || !session.user || !session.name ? null : <span className="jp-Salus-aside">{session.user}</span>}
      {from === null ? null : <span className="jp-Salus-figure jp-Salus-aside">{duration(now - from, trans)}</span>}
    </>
  );
}

interface IPlaced {
  readonly session: ISession;
  /** 1 for the first one. */
  readonly place: number;
}

/** The first few and the notebook in front; how many are left out (negative: could be left out); what shows or hides those. */
function useSome(sessions: readonly ISession[], currentKernel: string | null): [IPlaced[], number, () => void] {
  const [all, setAll] = React.useState(false);
  const placed = sessions.map((session, at) => ({ session, place: at + 1 }));
  const few = placed.filter(
    ({ session, place }) => place <= SHOWN || (session.here && session.kernelId !== null && session.kernelId === currentKernel)
  );
  const rest = placed.length - few.length;
  return [all ? placed : few, all ? -rest : rest, () => setAll(!all)];
}

function More(props: { readonly count: number; readonly onToggle: () => void }): JSX.Element | null {
  const { trans } = useSurroundings();
  const { count, onToggle } = props;
  return count ? (
    <button type="button" className="jp-Salus-textButton jp-Salus-more" aria-expanded={count < 0} onClick={onToggle}>
      {count > 0 ? trans._n('%1 more', '%1 more', count) : trans.__('Show fewer')}
    </button>
  ) : null;
}
