/**
 * Who ran in each lane, who waited, who was evicted, and the memory over time; as plain SVG.
 *
 * The pointer or the arrow keys move a cursor; what was so at its time stands below the plot, since in a sidebar a
 * tip would cover half of it. Ctrl and wheel zoom about the pointer, dragging moves, the buttons do both.
 */
import { LabIcon } from '@jupyterlab/ui-components';
import * as React from 'react';
import { clockTime, compareNames, duration, withUnit } from '../format';
import { zoomInIcon, zoomOutIcon } from '../icons';
import { laneName } from '../memory';
import { IMemoryStep, ISpan } from '../model/history';
import { IDevice } from '../wire';
import { sessionName, stateWord } from '../words';
import { useNow, useSignal, useSurroundings } from '../panel/context';
import { INITIAL, IWindow, moved, ticks, zoomed } from './scale';

const ROW = 24;
const BAR = 9;
const LABEL = 12;
const MEMORY = 32;
const AXIS = 14;
/** Sessions drawn at most: more would be a carpet, and slow. */
const TRACKS = 30;

interface ITrack {
  readonly key: string;
  readonly label: string;
  readonly spans: readonly ISpan[];
}

export function Timeline(): JSX.Element {
  const { model, trans } = useSurroundings();
  useSignal(model.historyChanged);
  const [window, setWindow] = React.useState<IWindow>(INITIAL);
  const [cursor, setCursor] = React.useState<number | null>(null);
  const [frame, width] = useWidth();
  // Once a second: a change more or less within it isn't to be seen at this scale.
  const now = useNow(true);
  const to = now - window.back;
  const from = to - window.span;
  const { history, store } = model;

  /** Undefined for a session that closed before this page was loaded: nobody could say which it was. */
  const nameOf = (id: string): string | undefined => {
    const session = store.session(id);
    return session ? sessionName(session, trans) : history.nameOf(id);
  };
  const titleOf = (device: IDevice): string =>
    store.devices.length > 1 ? `${device.name} (${device.id})` : device.name;
  const deviceOf = (lane: string): string => lane.slice(0, lane.lastIndexOf('/'));
  const lanes: ITrack[] = [...history.lanes(from, to)].map(([lane, spans]) => ({
    key: lane,
    label: store.devices.length > 1 ? `${laneName(lane, trans)} (${deviceOf(lane)})` : laneName(lane, trans),
    spans
  }));
  const known = history
    .sessions(from)
    .map(id => ({ id, label: nameOf(id) ?? '' }))
    .filter(({ id, label }) => label && history.spans(id, from, to).some(span => span.state !== 'none'))
    .sort((a, b) => compareNames(a.label, b.label));
  const sessions: ITrack[] = known.slice(0, TRACKS).map(({ id, label }) => ({
    key: id,
    label,
    spans: history.spans(id, from, to).filter(span => span.state !== 'none')
  }));
  const devices = store.devices.map(device => ({ device, steps: history.memory(device.id, from, to) }));

  const at = cursor === null ? null : from + cursor * window.span;
  const readout = at === null ? [] : readAt(at);

  function readAt(time: number): string[] {
    const lines = devices.map(({ device, steps }) => {
      const step = [...steps].reverse().find(one => one.at <= time);
      return step
        ? trans.__('%1: P %2, E %3', titleOf(device), withUnit(step.persistentBytes), withUnit(step.ephemeralBytes))
        : '';
    });
    for (const { label, spans } of sessions) {
      const span = [...spans].reverse().find(one => one.from <= time && time <= one.to);
      if (span) {
        const lane = span.lane === null ? '' : `, ${laneName(span.lane, trans)}`;
        lines.push(
          trans.__('%1: %2 for %3', label, `${stateWord(span.state, trans)}${lane}`, duration(time - span.from, trans))
        );
      }
    }
    return lines.filter(line => line);
  }

  const memoryTop = LABEL;
  const memoryHeight = devices.length * (MEMORY + LABEL + 4);
  const tracks = [...lanes, ...sessions];
  const height = memoryHeight + tracks.length * ROW + AXIS + 4;
  const x = (time: number) => ((time - from) / window.span) * width;

  const zoom = (factor: number, share = 1) => setWindow(before => zoomed(before, factor, share));
  const plot = useWheel((delta, share) => zoom(delta > 0 ? 1.25 : 0.8, share));
  const drag = React.useRef<{ readonly x: number; readonly window: IWindow } | null>(null);

  const onKey = (event: React.KeyboardEvent) => {
    const by = { ArrowLeft: -0.02, ArrowRight: 0.02, PageUp: -0.1, PageDown: 0.1 }[event.key];
    if (by !== undefined) {
      setCursor(Math.min(1, Math.max(0, (cursor ?? 1) + by)));
    } else if (event.key === '+' || event.key === '=') {
      zoom(0.8, cursor ?? 1);
    } else if (event.key === '-') {
      zoom(1.25, cursor ?? 1);
    } else if (event.key === 'Home' || event.key === 'End') {
      setCursor(event.key === 'Home' ? 0 : 1);
    } else if (event.key === 'Escape') {
      setCursor(null);
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  };

  return (
    <div className="jp-Salus-timeline">
      <div className="jp-Salus-zoom" role="group" aria-label={trans.__('Zoom of the timeline')}>
        <span className="jp-Salus-aside">
          {window.back === 0
            ? trans.__('Last %1', duration(window.span, trans))
            : trans.__('%1, until %2', duration(window.span, trans), clockTime(to))}
        </span>
        {window.back === 0 ? null : (
          <button type="button" className="jp-Salus-textButton" onClick={() => setWindow({ ...window, back: 0 })}>
            {trans.__('Now')}
          </button>
        )}
        <Zoom icon={zoomOutIcon} label={trans.__('Show more time')} onClick={() => zoom(2)} />
        <Zoom icon={zoomInIcon} label={trans.__('Show less time')} onClick={() => zoom(0.5)} />
      </div>
      <div
        ref={frame}
        className="jp-Salus-plot"
        role="slider"
        tabIndex={0}
        aria-label={trans.__('Time in the timeline')}
        aria-valuemin={0}
        aria-valuemax={100}
        aria-valuenow={Math.round((cursor ?? 1) * 100)}
        aria-valuetext={[clockTime(at ?? to), ...(at === null ? readAt(to) : readout)].join('. ')}
        onKeyDown={onKey}
        onPointerMove={event => {
          const box = event.currentTarget.getBoundingClientRect();
          setCursor(Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)));
          if (drag.current && event.buttons) {
            setWindow(moved(drag.current.window, (event.clientX - drag.current.x) / box.width));
          }
        }}
        onPointerDown={event => (drag.current = { x: event.clientX, window })}
        onPointerUp={() => (drag.current = null)}
        onPointerLeave={() => {
          setCursor(null);
          drag.current = null;
        }}
      >
        <svg ref={plot} width={width} height={height} aria-hidden="true">
          <defs>
            <pattern id="jp-Salus-waits" width="4" height="4" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
              <rect width="1.5" height="4" className="jp-Salus-hatch" />
            </pattern>
          </defs>
          {ticks(from, to).map(time => (
            <line key={time} className="jp-Salus-grid" x1={x(time)} x2={x(time)} y1={0} y2={height - AXIS} />
          ))}
          {devices.map(({ device, steps }, index) => (
            <g key={device.id} transform={`translate(0 ${index * (MEMORY + LABEL + 4)})`}>
              <text className="jp-Salus-label" x={0} y={LABEL - 3}>
                {devices.length > 1 ? titleOf(device) : trans.__('Memory in use')}
              </text>
              <g transform={`translate(0 ${memoryTop})`}>
                <Area steps={steps} to={to} x={x} top={step => step.persistentBytes + step.ephemeralBytes} capacity={device.capacityBytes} kind="ephemeral" />
                <Area steps={steps} to={to} x={x} top={step => step.persistentBytes} capacity={device.capacityBytes} kind="persistent" />
                <line className="jp-Salus-grid" x1={0} x2={width} y1={MEMORY} y2={MEMORY} />
              </g>
            </g>
          ))}
          {tracks.map((track, index) => (
            <g key={track.key} transform={`translate(0 ${memoryHeight + index * ROW})`}>
              <text className="jp-Salus-label" x={0} y={LABEL - 3}>
                {track.label}
              </text>
              {track.spans.map(span => (
                <rect
                  key={`${span.session}-${span.from}`}
                  className={`jp-Salus-span jp-mod-${span.state}`}
                  x={x(span.from)}
                  y={LABEL}
                  width={Math.max(1, x(span.to) - x(span.from) - 0.5)}
                  height={BAR - 1}
                />
              ))}
            </g>
          ))}
          {ticks(from, to).map(time => (
            <text
              key={time}
              className="jp-Salus-label"
              x={x(time)}
              y={height - 3}
              textAnchor={x(time) < 22 ? 'start' : x(time) > width - 22 ? 'end' : 'middle'}
            >
              {clockTime(time).slice(0, window.span < 120 ? 8 : 5)}
            </text>
          ))}
          {cursor === null ? null : (
            <line className="jp-Salus-cursor" x1={cursor * width} x2={cursor * width} y1={0} y2={height - AXIS} />
          )}
        </svg>
      </div>
      {known.length > TRACKS ? (
        <p className="jp-Salus-aside">
          {trans._n('%1 more session isn’t drawn', '%1 more sessions aren’t drawn', known.length - TRACKS)}
        </p>
      ) : null}
      <ul className="jp-Salus-legend" aria-hidden="true">
        {(['running', 'waiting', 'holding', 'evicted'] as const).map(state => (
          <li key={state}>
            <svg width="14" height="8">
              <rect className={`jp-Salus-span jp-mod-${state}`} width="13" height="7" x="0.5" y="0.5" />
            </svg>
            {stateWord(state, trans)}
          </li>
        ))}
      </ul>
      {at === null ? null : (
        <div className="jp-Salus-readout">
          <strong>{clockTime(at)}</strong>
          {readout.map(line => (
            <div key={line}>{line}</div>
          ))}
        </div>
      )}
    </div>
  );
}

function Zoom(props: { readonly icon: LabIcon; readonly label: string; readonly onClick: () => void }): JSX.Element {
  return (
    <button
      type="button"
      className="jp-Salus-action"
      aria-label={props.label}
      title={props.label}
      onClick={props.onClick}
    >
      <props.icon.react tag="span" />
    </button>
  );
}

/** A stepped area from the bottom to `top` of each step. */
function Area(props: {
  readonly steps: readonly IMemoryStep[];
  readonly to: number;
  readonly x: (time: number) => number;
  readonly top: (step: IMemoryStep) => number;
  readonly capacity: number;
  readonly kind: 'persistent' | 'ephemeral';
}): JSX.Element | null {
  const { steps, to, x, top, capacity, kind } = props;
  const [first] = steps;
  if (!first) {
    return null;
  }
  const y = (step: IMemoryStep) => MEMORY - (MEMORY - 1) * Math.min(1, top(step) / capacity);
  const path = steps.map((step, index) => `H${x(step.at)}V${y(step)}${index === steps.length - 1 ? `H${x(to)}` : ''}`);
  return <path className={`jp-Salus-area jp-mod-${kind}`} d={`M${x(first.at)} ${MEMORY}${path.join('')}V${MEMORY}Z`} />;
}

/** The width of an element, kept up to date. */
function useWidth(): [React.RefObject<HTMLDivElement>, number] {
  const ref = React.useRef<HTMLDivElement>(null);
  const [width, setWidth] = React.useState(240);
  React.useLayoutEffect(() => {
    const element = ref.current;
    if (!element) {
      return undefined;
    }
    const observer = new ResizeObserver(() => setWidth(Math.max(100, Math.floor(element.clientWidth))));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return [ref, width];
}

/** Ctrl and wheel over an element. React's own handler is passive, and couldn't keep the page from zooming. */
function useWheel(onWheel: (delta: number, share: number) => void): React.RefObject<SVGSVGElement> {
  const ref = React.useRef<SVGSVGElement>(null);
  const handler = React.useRef(onWheel);
  handler.current = onWheel;
  React.useEffect(() => {
    const element = ref.current;
    const listener = (event: WheelEvent) => {
      if (event.ctrlKey || event.metaKey) {
        event.preventDefault();
        const box = (event.currentTarget as Element).getBoundingClientRect();
        handler.current(event.deltaY, (event.clientX - box.left) / box.width);
      }
    };
    element?.addEventListener('wheel', listener, { passive: false });
    return () => element?.removeEventListener('wheel', listener);
  }, []);
  return ref;
}
