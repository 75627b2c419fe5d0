/**
 * Which rows of a long list are near the part of the panel that is visible.
 *
 * Only those are worth drawing in full: each row has some twenty elements and durations that grow, and of some hundred
 * rows a dozen is seen.
 */
import * as React from 'react';

/** Pixels above and below the visible part that still count as near: scrolling is to find rows that are drawn. */
const MARGIN_PX = 500;

/** Calls back when the element comes near or goes far; the returned function ends it. */
export type Watch = (element: Element, onChange: (near: boolean) => void) => () => void;

/** One observer for all rows of a list. Null while the list is so short that all are near. */
export function useWatch(active: boolean): Watch | null {
  const watch = React.useMemo(() => (active ? watcher() : null), [active]);
  return watch;
}

function watcher(): Watch {
  const slots = new Map<Element, (near: boolean) => void>();
  let observer: IntersectionObserver | null = null;
  return (element, onChange) => {
    // The margin counts from the edge of the scrolled box, not of the page.
    observer ??= new IntersectionObserver(
      entries => entries.forEach(entry => slots.get(entry.target)?.(entry.isIntersecting)),
      { root: element.closest('.jp-Salus'), rootMargin: `${MARGIN_PX}px 0px` }
    );
    slots.set(element, onChange);
    observer.observe(element);
    return () => {
      slots.delete(element);
      observer?.unobserve(element);
    };
  };
}

/** For the element with this ref: whether it is near. */
export function useNear(watch: Watch | null): [React.RefObject<HTMLLIElement>, boolean] {
  const ref = React.useRef<HTMLLIElement>(null);
  const [near, setNear] = React.useState(false);
  React.useEffect(() => (watch && ref.current ? watch(ref.current, setNear) : undefined), [watch]);
  return [ref, near || watch === null];
}
