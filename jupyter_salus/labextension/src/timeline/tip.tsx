/**
 * What was so at the cursor's time, beside the panel: in the panel it would cover the plot, or lie below the fold.
 */
import * as React from 'react';
import { clockTime } from '../format';
import { useSurroundings } from '../panel/context';
import { IReading } from './tracks';

/** Lines shown at most. */
const LINES = 14;
/** Pixels between the tip and what it speaks of, and the page's edge. */
const GAP = 10;

export function Tip(props: {
  readonly time: number;
  readonly readings: readonly IReading[];
  /** The key of the reading that is pointed at. */
  readonly pointed: string | null;
  /** What it stands beside, and how high, by the page. */
  readonly beside: Element | null;
  readonly top: number;
}): JSX.Element {
  const { time, readings, pointed, beside, top } = props;
  const { trans } = useSurroundings();
  const ref = React.useRef<HTMLDivElement>(null);
  React.useLayoutEffect(() => {
    const tip = ref.current;
    // The browser's top layer, where nothing cuts it off.
    if (tip?.isConnected && 'showPopover' in tip && !tip.matches(':popover-open')) {
      tip.showPopover();
    }
  }, []);
  React.useLayoutEffect(() => {
    const tip = ref.current;
    const box = beside?.getBoundingClientRect();
    if (tip && box) {
      const { width, height } = tip.getBoundingClientRect();
      const right = box.right + GAP;
      const left = right + width <= window.innerWidth ? right : box.left - width - GAP;
      tip.style.left = `${Math.max(0, left)}px`;
      tip.style.top = `${Math.max(GAP, Math.min(top - height / 2, window.innerHeight - height - GAP))}px`;
    }
  });
  const first = readings.find(reading => reading.key === pointed);
  const shown = readings.slice(0, LINES);
  if (first && !shown.includes(first)) {
    shown.pop();
    shown.unshift(first);
  }
  return (
    <div ref={ref} className="jp-Salus-tip" aria-hidden="true" {...{ popover: 'manual' }}>
      <strong>{clockTime(time)}</strong>
      {shown.map(({ key, label, text }) => (
        <div key={key} className={key === pointed ? 'jp-mod-pointed' : ''}>
          <span className="jp-Salus-tipLabel">{label}</span> {text}
        </div>
      ))}
      {readings.length > shown.length ? (
        <div>{trans._n('and %1 more', 'and %1 more', readings.length - shown.length)}</div>
      ) : null}
    </div>
  );
}
