/**
 * What a person may do with a session in its present state: the one table behind buttons, menus and palette.
 */
import { ISession } from './wire';

export type Action = 'yield' | 'evict' | 'restore' | 'pin' | 'shutdown' | 'open';

/** Whether the action makes sense now. Whether it is allowed is the server's to say. */
export function isPossible(action: Action, session: ISession): boolean {
  switch (action) {
    case 'yield':
      return session.state === 'running';
    case 'evict':
      return ['running', 'holding', 'waiting'].includes(session.state) && movesMemory(session);
    case 'restore':
      return session.state === 'evicted';
    case 'pin':
      return movesMemory(session) && !['leaving', 'broken', 'closed'].includes(session.state);
    case 'shutdown':
      return session.here && session.kernelId !== null;
    case 'open':
      return session.here && session.path !== null;
  }
}

/** Whether the session's memory can leave its device at all. The host device moves nothing. */
export function movesMemory(session: ISession): boolean {
  return session.memoryMode !== 'host';
}
