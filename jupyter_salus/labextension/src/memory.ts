/**
 * A device's memory as parts that add up to its capacity, and the names of lanes.
 */
import type { TranslationBundle } from '@jupyterlab/translation';
import { IDevice, ILane, ISession } from './wire';

export type Part = { readonly key: string; readonly bytes: number } & (
  | { readonly kind: 'persistent'; readonly session: ISession }
  | { readonly kind: 'ephemeral'; readonly lane: ILane }
  | { readonly kind: 'foreign' }
  /** Kept back by the backend, or on its way: what no row accounts for. */
  | { readonly kind: 'reserve' }
  | { readonly kind: 'free' }
);

/** Whether the session's P is on its device: also while it moves, until it is out whole. */
export function isOnDevice(session: ISession): boolean {
  return !['evicted', 'closed'].includes(session.state) && session.persistentBytes > 0;
}

/** `lanes` and `sessions` may be those of several devices; sessions are those on the device. */
export function partsOf(device: IDevice, lanes: readonly ILane[], sessions: readonly ISession[]): Part[] {
  const parts: Part[] = [];
  for (const session of sessions) {
    if (session.device === device.id && session.persistentBytes > 0) {
      parts.push({ kind: 'persistent', key: `p-${session.id}`, bytes: session.persistentBytes, session });
    }
  }
  for (const lane of lanes) {
    if (lane.device === device.id && lane.ephemeralBytes > 0) {
      parts.push({ kind: 'ephemeral', key: `e-${lane.id}`, bytes: lane.ephemeralBytes, lane });
    }
  }
  if (device.foreignBytes > 0) {
    parts.push({ kind: 'foreign', key: 'foreign', bytes: device.foreignBytes });
  }
  const free = Math.max(0, device.freeBytes);
  const told = parts.reduce((sum, part) => sum + part.bytes, free);
  const rest = device.capacityBytes - told;
  // Below a hundredth it is rounding, or a row that came a moment before the device's.
  if (rest > device.capacityBytes / 100) {
    parts.push({ kind: 'reserve', key: 'reserve', bytes: rest });
  }
  parts.push({ kind: 'free', key: 'free', bytes: free });
  return parts;
}

/** "Lane 2" for an id that ends in its number. */
export function laneName(id: string, trans: TranslationBundle): string {
  const [number] = /\d+$/.exec(id) ?? [];
  return trans.__('Lane %1', number ?? id);
}
