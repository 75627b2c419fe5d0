/**
 * A device in a section of its own: its memory, its policy, its lanes.
 */
import * as React from 'react';
import { gib, withUnit } from '../format';
import { isOnDevice } from '../memory';
import { IDevice, ILane, ISession, POLICIES } from '../wire';
import { policyWord } from '../words';
import { MemoryBar } from './bar';
import { useSurroundings } from './context';
import { Lanes } from './lanes';
import { Section } from './section';
import { Select } from './select';

export function Device(props: {
  readonly device: IDevice;
  /** Its id is shown first: there are several. */
  readonly named: boolean;
  /** Those of the device. */
  readonly lanes: readonly ILane[];
  readonly sessions: readonly ISession[];
  readonly currentKernel: string | null;
}): JSX.Element {
  const { device, named, lanes, sessions, currentKernel } = props;
  const { trans } = useSurroundings();
  const evicted = sessions.filter(session => session.state === 'evicted');
  const used = device.capacityBytes - device.freeBytes;
  return (
    <Section
      id={`device-${device.id}`}
      title={named ? device.id : device.name}
      {...(named ? { detail: device.name } : {})}
      aside={trans.__('%1 of %2', gib(used), withUnit(device.capacityBytes))}
    >
      <div className="jp-Salus-device" role="group" aria-label={device.name} data-device={device.id}>
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
        <Draining device={device} />
        <PolicySelect device={device} />
      </div>
      <Lanes lanes={lanes} sessions={sessions} currentKernel={currentKernel} />
    </Section>
  );
}

/** Said while an admin keeps everybody off the device. */
function Draining(props: { readonly device: IDevice }): JSX.Element | null {
  const { trans } = useSurroundings();
  const { draining, empty } = props.device;
  if (draining === null) {
    return null;
  }
  const why = draining
    ? trans.__('An admin lets nobody on to this device: %1', draining)
    : trans.__('An admin lets nobody on to this device.');
  return (
    <p className="jp-Salus-draining" role="status">
      {why} {empty ? trans.__('It is empty now.') : trans.__('What runs there ends its turn first.')}
    </p>
  );
}

function PolicySelect(props: { readonly device: IDevice }): JSX.Element {
  const { model, commands, trans } = useSurroundings();
  const { device } = props;
  const offered = (device.policies ?? POLICIES).filter(() => model.mayChoosePolicy);
  const choices = offered.includes(device.policy) ? offered : [device.policy, ...offered];
  return (
    <div className="jp-Salus-policy">
      <span aria-hidden="true">{trans.__('Policy')}</span>
      {choices.length > 1 ? (
        <Select
          value={device.policy}
          choices={choices.map(policy => [policy, policyWord(policy, trans)] as const)}
          label={trans.__('Policy of %1', device.name)}
          onChoose={policy => void commands.execute('jupyter-salus:policy', { device: device.id, policy })}
        />
      ) : (
        <span className="jp-Salus-word">{policyWord(device.policy, trans)}</span>
      )}
    </div>
  );
}
