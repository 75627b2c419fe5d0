/**
 * The last minutes, to hover, to zoom and to move in.
 *
 * The pointer or the arrow keys move a cursor; a tip beside the panel says what was so at its time. Ctrl and wheel zoom
 * about the pointer, dragging moves, the buttons do both. It stands still while it is out of sight.
 */
import { LabIcon } from '@jupyterlab/ui-components';
import * as React from 'react';
import { clockTime, duration } from '../format';
import { zoomInIcon, zoomOutIcon } from '../icons';
import { useNow, useSignal, useSurroundings } from '../panel/context';
import { stateWord } from '../words';
import { Plot, trackAt } from './plot';
import { INITIAL, IWindow, moved, zoomed } from './scale';
import { Tip } from './tip';
import { readAt, sceneOf, spoken } from './tracks';

/** Where the cursor stands: a share of the width, and by the pointer also how high, in the plot and on the page. */
interface ICursor {
  readonly share: number;
  readonly y: number | null;
  readonly top: number | null;
}

export const Timeline = React.memo(function Timeline(): JSX.Element {
  const [frame, width, seen] = useFrame();
  return (
    <div ref={frame} className="jp-Salus-timeline">
      <View width={width} seen={seen} />
    </div>
  );
});

function View(props: { readonly width: number; readonly seen: boolean }): JSX.Element {
  const { width, seen } = props;
  const { model, trans } = useSurroundings();
  useSignal(model.historyChanged);
  const [window, setWindow] = React.useState<IWindow>(INITIAL);
  const [cursor, setCursor] = React.useState<ICursor | null>(null);
  const plot = React.useRef<HTMLDivElement>(null);
  // Once a second: a change more or less within it isn't to be seen at this scale.
  const to = useNow(seen) - window.back;
  const scene = sceneOf(model.history, model.store, trans, to - window.span, to);
  const at = scene.from + (cursor?.share ?? 1) * window.span;
  const readings = readAt(scene, at, trans);
  const pointed = cursor?.y === null || cursor === null ? null : trackAt(scene, cursor.y);
  const pointedKey =
    pointed?.kind === 'lane'
      ? pointed.spans.find(span => span.from <= at && at <= span.to)?.session
      : pointed?.key;

  const zoom = (factor: number, share = 1) => setWindow(before => zoomed(before, factor, share));
  const svg = useWheel((delta, share) => zoom(delta > 0 ? 1.25 : 0.8, share));
  const drag = React.useRef<{ readonly x: number; readonly window: IWindow } | null>(null);
  const moveTo = (share: number) => setCursor({ share: Math.min(1, Math.max(0, share)), y: null, top: null });

  const onKey = (event: React.KeyboardEvent) => {
    const share = cursor?.share ?? 1;
    const by = { ArrowLeft: -0.02, ArrowRight: 0.02, PageUp: -0.1, PageDown: 0.1 }[event.key];
    if (by !== undefined) {
      moveTo(share + by);
    } else if (event.key === '+' || event.key === '=') {
      zoom(0.8, share);
    } else if (event.key === '-') {
      zoom(1.25, share);
    } else if (event.key === 'Home' || event.key === 'End') {
      moveTo(event.key === 'Home' ? 0 : 1);
    } else if (event.key === 'Escape') {
      setCursor(null);
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  };

  return (
    <>
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
        ref={plot}
        className="jp-Salus-plot"
        role="slider"
        tabIndex={0}
        aria-label={trans.__('Time in the timeline')}
        aria-valuemin={0}
        aria-valuemax={100}
        aria-valuenow={Math.round((cursor?.share ?? 1) * 100)}
        aria-valuetext={spoken(readings, at)}
        onKeyDown={onKey}
        onBlur={() => setCursor(null)}
        onPointerMove={event => {
          const box = event.currentTarget.getBoundingClientRect();
          const share = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
          setCursor({ share, y: event.clientY - box.top, top: event.clientY });
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
        <Plot ref={svg} scene={scene} window={window} width={width} cursor={cursor?.share ?? null} />
      </div>
      {scene.left ? (
        <p className="jp-Salus-aside">
          {trans._n('%1 more session isn’t drawn', '%1 more sessions aren’t drawn', scene.left)}
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
      {cursor === null ? null : (
        <Tip
          time={at}
          readings={readings}
          pointed={pointedKey ?? null}
          beside={plot.current}
          top={cursor.top ?? plot.current?.getBoundingClientRect().top ?? 0}
        />
      )}
    </>
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

/** An element, the width of its inside, and whether it is in sight; kept up to date. */
function useFrame(): [React.RefObject<HTMLDivElement>, number, boolean] {
  const ref = React.useRef<HTMLDivElement>(null);
  const [width, setWidth] = React.useState(240);
  const [seen, setSeen] = React.useState(false);
  React.useLayoutEffect(() => {
    const element = ref.current;
    if (!element) {
      return undefined;
    }
    const resized = new ResizeObserver(entries =>
      entries.forEach(entry => setWidth(Math.max(100, Math.floor(entry.contentRect.width))))
    );
    const shown = new IntersectionObserver(entries => entries.forEach(entry => setSeen(entry.isIntersecting)));
    resized.observe(element);
    shown.observe(element);
    return () => {
      resized.disconnect();
      shown.disconnect();
    };
  }, []);
  return [ref, width, seen];
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
