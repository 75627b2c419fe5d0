/**
 * The extension's icons: one shape for each state, so that none is told by colour alone.
 */
import { LabIcon } from '@jupyterlab/ui-components';
import { SessionState } from './wire';

/** A 16 × 16 drawing in the theme's icon colour; `fill` for areas, `line` for strokes. */
function icon(name: string, drawing: { fill?: string; line?: string }): LabIcon {
  const fill = drawing.fill ? `<path class="jp-icon3" fill="#616161" d="${drawing.fill}"/>` : '';
  const line = drawing.line
    ? `<path class="jp-icon3-stroke jp-Salus-stroke" fill="none" stroke="#616161" stroke-width="1.5" stroke-linecap="round" stroke-linejoin="round" d="${drawing.line}"/>`
    : '';
  return new LabIcon({
    name: `jupyter-salus:${name}`,
    svgstr: `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 16 16">${fill}${line}</svg>`
  });
}

/** A chip with three lanes in it. */
export const lanesIcon = icon('lanes', {
  line: 'M4.5 3h7A1.5 1.5 0 0 1 13 4.5v7a1.5 1.5 0 0 1-1.5 1.5h-7A1.5 1.5 0 0 1 3 11.5v-7A1.5 1.5 0 0 1 4.5 3zM6 1v2M10 1v2M6 13v2M10 13v2M1 6h2M1 10h2M13 6h2M13 10h2M5.75 6h4.5M5.75 8h2.5M5.75 10h3.5'
});

export const yieldIcon = icon('yield', { line: 'M2.5 5.5h9M9 3l2.5 2.5L9 8M13.5 10.5h-9M7 8l-2.5 2.5L7 13' });
export const evictIcon = icon('evict', { line: 'M8 2v7M5 6.5 8 9.5l3-3M2.5 10v3.5h11V10' });
export const restoreIcon = icon('restore', { line: 'M8 9.5V2.5M5 5.5 8 2.5l3 3M2.5 10v3.5h11V10' });
export const pinIcon = icon('pin', { line: 'M5.5 2h5M6.5 2v4L4.5 8.5v1h7v-1L9.5 6V2M8 9.5V14' });
export const pinnedIcon = icon('pinned', {
  fill: 'M6.5 2h3v4l2 2.5v1h-7v-1l2-2.5z',
  line: 'M5.5 2h5M6.5 2v4L4.5 8.5v1h7v-1L9.5 6V2M8 9.5V14'
});
export const shutdownIcon = icon('shutdown', { line: 'M8 1.75v5.5M4.6 4a5.25 5.25 0 1 0 6.8 0' });
export const zoomInIcon = icon('zoom-in', { line: 'M3 8h10M8 3v10' });
export const zoomOutIcon = icon('zoom-out', { line: 'M3 8h10' });

const STATE_ICONS: { readonly [state in SessionState]: LabIcon } = {
  none: icon('none', { line: 'M8 3.5a4.5 4.5 0 1 1 0 9 4.5 4.5 0 0 1 0-9z' }),
  waiting: icon('waiting', { line: 'M4 2h8M4 14h8M5 2v2.5L8 8l3-3.5V2M5 14v-2.5L8 8l3 3.5V14' }),
  running: icon('running', { fill: 'M4 2.5v11l9-5.5z' }),
  holding: icon('holding', { fill: 'M4 3h3v10H4zM9 3h3v10H9z' }),
  yielding: yieldIcon,
  evicting: evictIcon,
  evicted: icon('evicted', { line: 'M2.5 8.5v5h11v-5M2.5 8.5l2-5h7l2 5h-3.5a2 2 0 0 1-4 0z' }),
  restoring: restoreIcon,
  leaving: icon('leaving', { line: 'M9.5 2h-6v12h6M7 8h7M11.5 5.5 14 8l-2.5 2.5' }),
  broken: icon('broken', { line: 'M8 2 1.5 13.5h13zM8 6.5v3.25M8 11.5v.1' }),
  closed: icon('closed', { line: 'M4 4l8 8M12 4l-8 8' })
};

export function stateIcon(state: SessionState): LabIcon {
  return STATE_ICONS[state];
}
