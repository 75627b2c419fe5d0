/**
 * States, policies and priorities in words, in the language of the translation bundle.
 */
import type { TranslationBundle } from '@jupyterlab/translation';
import { place } from './format';
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
      return trans.__('Idle, holds memory');
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

/** The state with its place in line: "Waiting, 2nd in line". */
export function stateLine(session: ISession, trans: TranslationBundle): string {
  const word = stateWord(session.state, trans);
  return session.state === 'waiting' && session.position !== null
    ? trans.__('%1, %2', word, place(session.position, trans))
    : word;
}

/** A few words for the status bar and the toolbar: "Waiting, 2nd in line", "Evicted". */
export function shortLine(session: ISession | undefined, trans: TranslationBundle): string {
  if (!session) {
    return trans.__('Not managed');
  }
  if (session.state === 'holding') {
    return trans.__('Idle');
  }
  return stateLine(session, trans);
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
  if (session.name) {
    return session.name;
  }
  if (!session.own && session.user) {
    return trans.__('A notebook of %1', session.user);
  }
  return session.own ? trans.__('Unnamed notebook') : trans.__('Somebody’s notebook');
}
