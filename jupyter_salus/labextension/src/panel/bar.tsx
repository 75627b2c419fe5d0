/**
 * A device's memory as a bar that reads without colour, and what its patterns mean.
 */
import * as React from 'react';
import { gib, withUnit } from '../format';
import { laneName, Part, partsOf } from '../memory';
import { IDevice, ILane, ISession } from '../wire';
import { sessionName } from '../words';
import { useSurroundings } from './context';

const KINDS: readonly Part['kind'][] = ['persistent', 'ephemeral', 'foreign', 'reserve', 'free'];

/** `lanes` and `sessions`: those of the device. */
export function MemoryBar(props: {
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
  const sums = KINDS.map(kind => ({
    kind,
    bytes: parts.filter(part => part.kind === kind).reduce((sum, part) => sum + part.bytes, 0)
  })).filter(({ kind, bytes }) => bytes > 0 || kind === 'free');
  const spoken = sums.map(({ kind, bytes }) => `${words[kind]} ${withUnit(bytes)}`).join(', ');
  return (
    <>
      <div className="jp-Salus-bar" role="img" aria-label={trans.__('Memory of %1: %2', device.name, spoken)}>
        {parts.map(part => (
          <Stretch
            key={part.key}
            kind={part.kind}
            word={words[part.kind]}
            bytes={part.bytes}
            share={part.bytes / device.capacityBytes}
            session={part.kind === 'persistent' ? part.session : undefined}
            lane={part.kind === 'ephemeral' ? part.lane.id : undefined}
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

interface IStretch {
  readonly kind: Part['kind'];
  readonly word: string;
  readonly bytes: number;
  readonly share: number;
  readonly session: ISession | undefined;
  readonly lane: string | undefined;
}

/** One part of the bar. Drawn anew only when it changes: there may be hundreds. */
const Stretch = React.memo(
  function Stretch(props: IStretch): JSX.Element {
    const { kind, word, bytes, share, session, lane } = props;
    const { trans } = useSurroundings();
    const moves = session?.state === 'evicting' || session?.state === 'restoring';
    const title = session
      ? trans.__('%1: persistent %2', sessionName(session, trans), withUnit(bytes))
      : lane !== undefined
        ? trans.__('%1: ephemeral %2', laneName(lane, trans), withUnit(bytes))
        : trans.__('%1: %2', word, withUnit(bytes));
    return (
      <span
        className={`jp-Salus-part jp-mod-${kind}${moves ? ' jp-mod-moving' : ''}`}
        style={{ flexGrow: share }}
        title={title}
        data-session={session?.id}
      />
    );
  },
  (before, after) =>
    before.bytes === after.bytes &&
    before.share === after.share &&
    before.word === after.word &&
    before.session?.state === after.session?.state &&
    before.session?.name === after.session?.name
);
