/**
 * A device: its memory as a bar that reads without colour, its policy, its lanes.
 */
import * as React from 'react';
import { compareNames, gib, withUnit } from '../format';
import { stateIcon } from '../icons';
import { occupancyOf } from '../lanes';
import { isOnDevice, laneName, Part, partsOf } from '../memory';
import { IDevice, ILane, ISession, POLICIES } from '../wire';
import { policyWord, sessionName } from '../words';
import { useSurroundings } from './context';
import { Select } from './select';

export function Device(props: {
  readonly device: IDevice;
  /** Its id is shown: there are several. */
  readonly named: boolean;
  readonly lanes: readonly ILane[];
  readonly sessions: readonly ISession[];
}): JSX.Element {
  const { device, named, lanes, sessions } = props;
  const { trans } = useSurroundings();
  const evicted = sessions.filter(session => session.state === 'evicted');
  const used = device.capacityBytes - device.freeBytes;
  return (
    <div className="jp-Salus-device" role="group" aria-label={device.name} data-device={device.id}>
      <div className="jp-Salus-deviceHead">
        <h3 title={device.name}>{device.name}</h3>
        {named ? <span className="jp-Salus-aside">{device.id}</span> : null}
        <span className="jp-Salus-figure">{trans.__('%1 of %2', gib(used), withUnit(device.capacityBytes))}</span>
      </div>
      <MemoryBar device={device} lanes={lanes} sessions={sessions.filter(isOnDevice)} />
      {evicted.length ? (
        <p className="jp-Salus-aside">
          {trans._n(
            '%1 session is evicted: %2 in host memory',
            '%1 sessions are evicted: %2 in host memory',
            evicted.length,
            withUnit(evicted.reduce((sum, session) => sum + session.persistentBytes, 0))
          )}
        </p>
      ) : null}
      <PolicySelect device={device} />
    </div>
  );
}

const KINDS: readonly Part['kind'][] = ['persistent', 'ephemeral', 'foreign', 'reserve', 'free'];

function MemoryBar(props: {
  readonly device: IDevice;
  readonly lanes: readonly ILane[];
  readonly sessions: readonly ISession[];
}): JSX.Element {
  const { trans } = useSurroundings();
  const { device } = props;
  const parts = partsOf(device, props.lanes, props.sessions);
  const words: { readonly [kind in Part['kind']]: string } = {
    persistent: trans.__('Persistent'),
    ephemeral: trans.__('Ephemeral'),
    foreign: trans.__('Other programs'),
    reserve: trans.__('Reserve'),
    free: trans.__('Free')
  };
  const whose = (part: Part): string => {
    switch (part.kind) {
      case 'persistent':
        return trans.__('%1: persistent %2', sessionName(part.session, trans), withUnit(part.bytes));
      case 'ephemeral':
        return trans.__('%1: ephemeral %2', laneName(part.lane.id, trans), withUnit(part.bytes));
      default:
        return trans.__('%1: %2', words[part.kind], withUnit(part.bytes));
    }
  };
  const sums = KINDS.map(kind => ({
    kind,
    bytes: parts.filter(part => part.kind === kind).reduce((sum, part) => sum + part.bytes, 0)
  })).filter(({ kind, bytes }) => bytes > 0 || kind === 'free');
  const spoken = sums.map(({ kind, bytes }) => `${words[kind]} ${withUnit(bytes)}`).join(', ');
  return (
    <>
      <div className="jp-Salus-bar" role="img" aria-label={trans.__('Memory of %1: %2', device.name, spoken)}>
        {parts.map(part => (
          <span
            key={part.key}
            className={`jp-Salus-part jp-mod-${part.kind}`}
            style={{ flexGrow: part.bytes / device.capacityBytes }}
            title={whose(part)}
          />
        ))}
      </div>
      <ul className="jp-Salus-legend" aria-hidden="true">
        {sums.map(({ kind, bytes }) => (
          <li key={kind}>
            <span className={`jp-Salus-swatch jp-mod-${kind}`} />
            {words[kind]} <span className="jp-Salus-figure">{gib(bytes)}</span>
          </li>
        ))}
      </ul>
    </>
  );
}

function PolicySelect(props: { readonly device: IDevice }): JSX.Element {
  const { model, commands, trans } = useSurroundings();
  const { device } = props;
  const offered = (device.policies ?? POLICIES).filter(() => model.mayChoosePolicy);
  if (!offered.length) {
    return (
      <p className="jp-Salus-policy">
        {trans.__('Policy')} <span>{policyWord(device.policy, trans)}</span>
      </p>
    );
  }
  const choices = offered.includes(device.policy) ? offered : [device.policy, ...offered];
  return (
    <div className="jp-Salus-policy">
      <span aria-hidden="true">{trans.__('Policy')}</span>
      <Select
        value={device.policy}
        choices={choices.map(policy => [policy, policyWord(policy, trans)] as const)}
        label={trans.__('Policy of %1', device.name)}
        onChoose={policy => void commands.execute('jupyter-salus:policy', { device: device.id, policy })}
      />
    </div>
  );
}

/** The lanes of all devices: who runs in each, and who is in line for it. */
export function Lanes(props: {
  readonly devices: readonly IDevice[];
  readonly lanes: readonly ILane[];
  readonly sessions: readonly ISession[];
}): JSX.Element {
  const { trans } = useSurroundings();
  const { devices, lanes, sessions } = props;
  const sorted = [...lanes].sort((a, b) => compareNames(a.id, b.id));
  const laneless = occupancyOf(null, sessions);
  const RunningIcon = stateIcon('running');
  const NobodyIcon = stateIcon('none');
  return (
    <ul className="jp-Salus-lanes">
      {sorted.map(lane => {
        const { running, waiting } = occupancyOf(lane, sessions);
        return (
          <li key={lane.id} className="jp-Salus-lane" data-lane={lane.id}>
            <div className="jp-Salus-laneHead">
              <h3>{laneName(lane.id, trans)}</h3>
              {devices.length > 1 ? <span className="jp-Salus-aside">{lane.device}</span> : null}
              <span className="jp-Salus-figure" title={trans.__('Ephemeral memory of the lane')}>
                E {withUnit(lane.ephemeralBytes)}
              </span>
            </div>
            {running.length ? (
              running.map(session => (
                <div key={session.id} className="jp-Salus-holder">
                  <RunningIcon.react tag="span" className="jp-Salus-icon" />
                  <span className="jp-Salus-ellipsis">{sessionName(session, trans)}</span>
                </div>
              ))
            ) : (
              <div className="jp-Salus-holder">
                <NobodyIcon.react tag="span" className="jp-Salus-icon" />
                <span className="jp-Salus-aside">{trans.__('Nobody has the turn')}</span>
              </div>
            )}
            <Queue waiting={waiting} />
          </li>
        );
      })}
      {laneless.waiting.length ? (
        <li className="jp-Salus-lane" data-lane="none">
          <div className="jp-Salus-laneHead">
            <h3>{trans.__('Waiting for room')}</h3>
          </div>
          <Queue waiting={laneless.waiting} />
        </li>
      ) : null}
    </ul>
  );
}

function Queue(props: { readonly waiting: readonly ISession[] }): JSX.Element | null {
  const { trans } = useSurroundings();
  const { waiting } = props;
  return waiting.length ? (
    <ol className="jp-Salus-queue" aria-label={trans._n('%1 session waits', '%1 sessions wait', waiting.length)}>
      {waiting.map(session => (
        <li key={session.id} data-session={session.id}>
          <span className="jp-Salus-ellipsis">{sessionName(session, trans)}</span>
        </li>
      ))}
    </ol>
  ) : null;
}
