/**
 * States, policies and priorities in words, in the language of the translation bundle.
 */
import type { TranslationBundle } from '@jupyterlab/translation';
import { duration, place } from './format';
import { ISession, Priority, SessionState } from './wire';

export function stateWord(state: SessionState, trans: TranslationBundle): string {
  switch (state) {
    case 'none':
      return trans.__('No use yet');
    case 'waiting':
      return trans.__('Waiting');
    case 'running':
      return trans.__('Running');
    case 'holding':
      return trans.__('Idle');
    case 'yielding':
      return trans.__('Yielding');
    case 'evicting':
      return trans.__('Being evicted');
    case 'evicted':
      return trans.__('Evicted');
    case 'restoring':
      return trans.__('Coming back');
    case 'leaving':
      return trans.__('Leaving');
    case 'broken':
      return trans.__('Broken');
    case 'closed':
      return trans.__('Closed');
  }
}

/** What a state's word alone leaves open: the place in line, or where the memory is. */
function stateDetail(session: ISession, trans: TranslationBundle): string {
  switch (session.state) {
    case 'waiting':
    case 'restoring':
      return session.position === null ? '' : place(session.position, trans);
    case 'holding':
      return session.persistentBytes > 0 ? trans.__('holds memory') : '';
    case 'evicted':
      return trans.__('in host memory');
    default:
      return '';
  }
}

/** Whether it waits as people see it: one that shares a lane wants a turn half of the time, and runs all the same. */
export function waits(session: ISession): boolean {
  return session.waitingSince !== null && session.state !== 'running' && session.state !== 'yielding';
}

/** Since when the session is as it is: a wait is counted from its own start, which its state may be younger than. */
export function since(session: ISession): number | null {
  return waits(session) ? session.waitingSince : session.state === 'none' ? null : session.stateSince;
}

/** "Waiting, next in line"; with the time it has lasted: "Waiting for 18 s, next in line", "Idle for 2 h, holds memory". */
export function stateLine(session: ISession, trans: TranslationBundle, lasted: number | null = null): string {
  const word = stateWord(session.state, trans);
  const detail = stateDetail(session, trans);
  if (lasted === null) {
    return detail ? trans.__('%1, %2', word, detail) : word;
  }
  const time = duration(lasted, trans);
  return detail ? trans.__('%1 for %2, %3', word, time, detail) : trans.__('%1 for %2', word, time);
}

/** A few words for the status bar and the toolbar; only of a wait how long it has lasted. */
export function shortLine(session: ISession | undefined, trans: TranslationBundle, now: number): string {
  if (!session) {
    return trans.__('Not managed');
  }
  if (session.state === 'holding' || session.state === 'evicted') {
    return stateWord(session.state, trans);
  }
  return stateLine(session, trans, waits(session) ? now - (session.waitingSince ?? now) : null);
}

/** How the session's memory is governed, where that isn't the usual way: a word, and what it means. */
export function modeWords(mode: string | null, trans: TranslationBundle): readonly [string, string] | null {
  switch (mode) {
    case 'plain':
      return [
        trans.__('plain'),
        trans.__('No guard is in this kernel: turns pass at boundaries only, and it doesn’t wait for room')
      ];
    case 'regions':
      return [
        trans.__('regions'),
        trans.__('Its framework keeps memory in regions of its own: all of it counts as persistent')
      ];
    default:
      return null;
  }
}

export function priorityWord(priority: Priority, trans: TranslationBundle): string {
  switch (priority) {
    case 'high':
      return trans.__('High');
    case 'normal':
      return trans.__('Normal');
    case 'low':
      return trans.__('Low');
  }
}

/** A policy of this version in a few words; another one by its own name. */
export function policyWord(policy: string, trans: TranslationBundle): string {
  switch (policy) {
    case 'fair':
      return trans.__('Fair shares');
    case 'fifo':
      return trans.__('First come, first served');
    case 'srtf':
      return trans.__('Shortest first');
    case 'pack':
      return trans.__('Pack');
    case 'priority':
      return trans.__('Priority');
    default:
      return policy;
  }
}

/** The notebook's name; for somebody else's session without one, whose it is. */
export function sessionName(session: ISession, trans: TranslationBundle): string {
  if (session.name && session.name !== session.id) {
    return session.name;
  }
  if (session.name) {
    // A kernel without a notebook, or one whose notebook isn't known yet.
    return trans.__('Kernel %1', session.id.slice(0, 8));
  }
  if (!session.own && session.user) {
    return trans.__('A notebook of %1', session.user);
  }
  return session.own ? trans.__('Unnamed notebook') : trans.__('Somebody’s notebook');
}
