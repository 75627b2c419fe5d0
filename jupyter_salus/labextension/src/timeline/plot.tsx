/**
 * The timeline's drawing, as plain SVG: memory as areas, lanes as bars with who ran, sessions as bars of states.
 */
import * as React from 'react';
import { clockTime } from '../format';
import { ISpan } from '../model/history';
import { IMemoryStep } from '../model/usage';
import { IWindow, thinned, ticks } from './scale';
import { IMemoryTrack, IScene, ITrack } from './tracks';

/** In pixels. */
const LABEL = 12;
const MEMORY = 32;
/** The least height of memory that is in use. */
const LEAST = 3;
const AXIS = 14;
const GAP = 4;
const BARS = { lane: 14, session: 8 } as const;
/** A bar as wide as this has room for a name. */
const NAMED = 36;

export interface IPlot {
  readonly scene: IScene;
  readonly window: IWindow;
  readonly width: number;
  /** The share of the width at which the cursor stands. */
  readonly cursor: number | null;
}

interface IPlaced<T> {
  readonly track: T;
  readonly y: number;
}

interface ILayout {
  readonly memory: readonly IPlaced<IMemoryTrack>[];
  readonly tracks: readonly IPlaced<ITrack>[];
  readonly height: number;
}

/** Where each track lies, from above. */
function layoutOf(scene: IScene): ILayout {
  let height = 0;
  const memory = scene.memory.map(track => {
    const y = height;
    height += LABEL + MEMORY + GAP;
    return { track, y };
  });
  const tracks = scene.tracks.map(track => {
    const y = height;
    height += LABEL + BARS[track.kind] + GAP;
    return { track, y };
  });
  return { memory, tracks, height: height + AXIS };
}

/** The track at a height in the drawing. */
export function trackAt(scene: IScene, y: number): ITrack | null {
  const placed = layoutOf(scene).tracks.find(one => y >= one.y && y < one.y + LABEL + BARS[one.track.kind] + GAP);
  return placed?.track ?? null;
}

export const Plot = React.forwardRef<SVGSVGElement, IPlot>(function Plot(props, ref): JSX.Element {
  const { scene, window, width, cursor } = props;
  const { from, to } = scene;
  const { memory, tracks, height } = layoutOf(scene);
  const x = (time: number) => ((time - from) / window.span) * width;
  const axis = ticks(from, to);
  return (
    <svg ref={ref} width={width} height={height} aria-hidden="true">
      <defs>
        <pattern id="jp-Salus-waits" width="4" height="4" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
          <rect width="1.5" height="4" className="jp-Salus-hatch" />
        </pattern>
      </defs>
      {axis.map(time => (
        <line key={time} className="jp-Salus-grid" x1={x(time)} x2={x(time)} y1={0} y2={height - AXIS} />
      ))}
      {memory.map(({ track: { device, label, steps }, y }) => (
        <g key={device.id} transform={`translate(0 ${y})`}>
          <Label text={label} />
          <g transform={`translate(0 ${LABEL})`}>
            <Area
              steps={steps}
              to={to}
              x={x}
              top={step => step.persistentBytes + step.ephemeralBytes}
              capacity={device.capacityBytes}
              kind="ephemeral"
            />
            <Area
              steps={steps}
              to={to}
              x={x}
              top={step => step.persistentBytes}
              capacity={device.capacityBytes}
              kind="persistent"
            />
            <rect className="jp-Salus-frame" x={0.5} y={0.5} width={Math.max(0, width - 1)} height={MEMORY - 1} />
          </g>
        </g>
      ))}
      {tracks.map(({ track, y }) => (
        <g key={track.key} transform={`translate(0 ${y})`}>
          <Label text={track.label} />
          {thinned(track.spans, window.span / width).map(span => (
            <Bar key={`${span.session}-${span.from}`} span={span} kind={track.kind} x={x} nameOf={scene.nameOf} />
          ))}
        </g>
      ))}
      {axis.map(time => (
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
  );
});

function Label(props: { readonly text: string }): JSX.Element {
  return (
    <text className="jp-Salus-label" x={0} y={LABEL - 3}>
      {props.text}
    </text>
  );
}

function Bar(props: {
  readonly span: ISpan;
  readonly kind: ITrack['kind'];
  readonly x: (time: number) => number;
  readonly nameOf: (session: string) => string;
}): JSX.Element {
  const { span, kind, x, nameOf } = props;
  const left = x(span.from);
  const width = Math.max(1, x(span.to) - left - 0.5);
  const height = BARS[kind];
  return (
    <>
      <rect
        className={`jp-Salus-span jp-mod-${span.state}`}
        data-session={span.session}
        x={left}
        y={LABEL}
        width={width}
        height={height}
      />
      {kind === 'lane' && width >= NAMED ? (
        <svg x={left} y={LABEL} width={width - 2} height={height}>
          <text className="jp-Salus-spanName" x={3} y={height - 4}>
            {nameOf(span.session)}
          </text>
        </svg>
      ) : null}
    </>
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
  // Little is still something: without a least height the use of a small notebook on a large device isn't seen.
  const rise = (bytes: number) =>
    bytes > 0 ? Math.max(LEAST, (MEMORY - 1) * Math.min(1, bytes / capacity)) : 0;
  const y = (step: IMemoryStep) => MEMORY - rise(top(step));
  const path = steps.map((step, index) => `H${x(step.at)}V${y(step)}${index === steps.length - 1 ? `H${x(to)}` : ''}`);
  return <path className={`jp-Salus-area jp-mod-${kind}`} d={`M${x(first.at)} ${MEMORY}${path.join('')}V${MEMORY}Z`} />;
}
