/**
 * The window of time that the timeline shows, and how it is moved and zoomed.
 */

export interface IWindow {
  /** Seconds shown. */
  readonly span: number;
  /** Seconds between the window's end and now; 0 follows the time. */
  readonly back: number;
}

export const SHORTEST_S = 10;
export const LONGEST_S = 1800;
export const INITIAL: IWindow = { span: 300, back: 0 };

/** Spans that have an end at a round number of seconds or minutes. */
const STEPS = [1, 2, 5, 10, 30, 60, 120, 300, 600];

/** Zooms by `factor` (below 1: nearer) about the point at `share` of the width; a window that follows goes on to. */
export function zoomed(window: IWindow, factor: number, share = 1): IWindow {
  const span = clamp(window.span * factor, SHORTEST_S, LONGEST_S);
  if (window.back === 0 && share > 0.98) {
    return { span, back: 0 };
  }
  const after = (1 - share) * (window.span - span);
  return settled({ span, back: window.back + after });
}

/** Moves by a share of the width; to the past for positive ones. */
export function moved(window: IWindow, share: number): IWindow {
  return settled({ span: window.span, back: window.back + share * window.span });
}

function settled(window: IWindow): IWindow {
  const back = clamp(window.back, 0, LONGEST_S - window.span);
  return { span: window.span, back: back < window.span / 50 ? 0 : back };
}

/** Times for the axis, at most about five, at round distances. */
export function ticks(from: number, to: number): number[] {
  const step = STEPS.find(seconds => (to - from) / seconds <= 5) ?? 600;
  const first = Math.ceil(from / step) * step;
  const times: number[] = [];
  for (let at = first; at <= to; at += step) {
    times.push(at);
  }
  return times;
}

/** The spans without those too short to be seen: that end within `resolution` seconds of where the one before did. */
export function thinned<T extends { readonly from: number; readonly to: number }>(
  spans: readonly T[],
  resolution: number
): T[] {
  const kept: T[] = [];
  for (const span of spans) {
    const last = kept[kept.length - 1];
    if (!last || span.to - last.to >= resolution) {
      kept.push(span);
    }
  }
  return kept;
}

function clamp(value: number, low: number, high: number): number {
  return Math.min(high, Math.max(low, value));
}
