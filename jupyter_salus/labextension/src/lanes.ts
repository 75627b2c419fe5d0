/**
 * Who runs in a lane and who is in line for it, from the sessions' own rows.
 *
 * Not from the lane's `holder` and `waiting`: sessions that share a lane alternate without any change being told, so
 * there these name whoever happened to have the turn. The rows say that both run, which is what a person sees.
 */
import { ILane, ISession } from './wire';

export interface IOccupancy {
  /** Those who run: one, or several that take turns quickly. */
  readonly running: readonly ISession[];
  /** The next one first. */
  readonly waiting: readonly ISession[];
}

/** `lane` null: those who wait for a place in any lane. */
export function occupancyOf(lane: ILane | null, sessions: readonly ISession[]): IOccupancy {
  const members = sessions.filter(session => session.lane === (lane?.id ?? null));
  return {
    running: members.filter(session => session.state === 'running' || session.state === 'yielding'),
    waiting: members
      .filter(session => session.state === 'waiting' || (session.state === 'restoring' && session.position !== null))
      .sort((a, b) => (a.position ?? Infinity) - (b.position ?? Infinity) || (a.id < b.id ? -1 : 1))
  };
}
