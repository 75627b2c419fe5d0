/**
 * The memory in use on each device over time, as steps.
 *
 * Kept as it is seen, not worked out when it is drawn: in full contention minutes have thousands of moments.
 */
import { IMoment, SessionState } from '../wire';

/** Bytes on a device from `at` on. */
export interface IMemoryStep {
  readonly at: number;
  readonly persistentBytes: number;
  readonly ephemeralBytes: number;
}

/** States in which P isn't on the device. */
const OFF_DEVICE: ReadonlySet<SessionState> = new Set<SessionState>(['none', 'evicted', 'closed']);

export class Usage {
  /** A moment, not older than any one before. */
  note(moment: IMoment): void {
    const before = this._last.get(moment.session);
    this._last.set(moment.session, moment);
    for (const device of new Set([before?.device, moment.device])) {
      if (device !== undefined && device !== null) {
        this._step(device, moment.at);
      }
    }
    if (moment.state === 'closed') {
      this._last.delete(moment.session);
    }
  }

  /** The steps of a device in a time; the first one is what was so at its start. */
  between(device: string, from: number, to: number): IMemoryStep[] {
    const own = this._steps.get(device) ?? [];
    const first = own.findIndex((_, at) => (own[at + 1]?.at ?? Infinity) > from);
    return own
      .slice(Math.max(0, first))
      .filter(step => step.at <= to)
      .map(step => (step.at < from ? { ...step, at: from } : step));
  }

  /** Drops what no longer holds at this time. */
  forget(before: number): void {
    for (const own of this._steps.values()) {
      own.splice(0, Math.max(0, own.findIndex((_, at) => (own[at + 1]?.at ?? Infinity) > before)));
    }
  }

  private _step(device: string, at: number): void {
    let persistentBytes = 0;
    // Sessions of one lane take turns: what they need on top is there once, as large as the largest of them needs it.
    const lanes = new Map<string, number>();
    for (const moment of this._last.values()) {
      if (moment.device === device) {
        persistentBytes += OFF_DEVICE.has(moment.state) ? 0 : moment.persistentBytes;
        if (moment.lane !== null && (moment.state === 'running' || moment.state === 'yielding')) {
          lanes.set(moment.lane, Math.max(lanes.get(moment.lane) ?? 0, moment.ephemeralBytes));
        }
      }
    }
    const ephemeralBytes = [...lanes.values()].reduce((sum, bytes) => sum + bytes, 0);
    const own = this._steps.get(device) ?? [];
    const last = own[own.length - 1];
    if (last?.at === at) {
      own.pop();
    } else if (last?.persistentBytes === persistentBytes && last.ephemeralBytes === ephemeralBytes) {
      return;
    }
    own.push({ at, persistentBytes, ephemeralBytes });
    this._steps.set(device, own);
  }

  private readonly _last = new Map<string, IMoment>();
  private readonly _steps = new Map<string, IMemoryStep[]>();
}
