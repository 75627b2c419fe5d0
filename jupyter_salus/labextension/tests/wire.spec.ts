import { readChange, readHistory, readRefusal, readState, SESSION_STATES, WireError } from '../src/wire';
import { example, rowsOf } from './examples';

describe('readState', () => {
  it('reads the example with all its rows', () => {
    const state = readState(example('state'));
    expect(state.revision).toBe(812);
    expect(state.devices.map(device => device.id)).toEqual(['gpu0', 'gpu1']);
    expect(state.sessions).toHaveLength(8);
    const waiting = state.sessions[1];
    expect(waiting).toMatchObject({ name: 'tune.ipynb', state: 'waiting', position: 1, own: true, here: true });
    expect(waiting?.reason?.behind).toBe(state.sessions[0]?.id);
    expect(state.lanes[0]?.waiting[0]).toBe(waiting?.id);
  });

  it('gives each row the time of its totals', () => {
    const state = readState(example('state'));
    expect(new Set(state.sessions.map(session => session.asOf))).toEqual(new Set([state.asOf]));
  });

  it('ignores fields that it does not know', () => {
    const json = example('state');
    json['moon'] = 'full';
    rowsOf(json, 'sessions')[0]!['moon'] = 'full';
    expect(readState(json)).toEqual(readState(example('state')));
  });

  it.each(['name', 'path', 'cell_id', 'user', 'kernel_id', 'iterations', 'frameworks', 'waited_s'])(
    'takes a row of somebody else without its %s',
    key => {
      const json = example('state');
      delete rowsOf(json, 'sessions')[5]![key];
      expect(readState(json).sessions[5]).toMatchObject({ own: false, state: 'running' });
    }
  );

  it.each(['id', 'own', 'here', 'state', 'priority'])('names a missing %s', key => {
    const json = example('state');
    delete rowsOf(json, 'sessions')[3]![key];
    expect(() => readState(json)).toThrow(`cannot read state.sessions[3].${key}`);
  });

  it('refuses a state that it does not know', () => {
    const json = example('state');
    rowsOf(json, 'sessions')[0]!['state'] = 'levitating';
    expect(() => readState(json)).toThrow(WireError);
  });

  it.each(SESSION_STATES.map(state => [state]))('reads the state %s', state => {
    const json = example('state');
    rowsOf(json, 'sessions')[0]!['state'] = state;
    expect(readState(json).sessions[0]?.state).toBe(state);
  });

  it.each([null, [], 'text', 7])('refuses %p in place of a state', json => {
    expect(() => readState(json)).toThrow('cannot read state: expected an object');
  });
});

describe('readChange', () => {
  it('reads the example: what is absent has not changed', () => {
    const change = readChange(example('event'));
    expect(change).toMatchObject({ revision: 813, previousRevision: 812, removedSessions: [] });
    expect(change.lanes).toHaveLength(3);
    expect(change.sessions).toHaveLength(3);
    expect('devices' in change).toBe(false);
    expect('backend' in change).toBe(false);
  });

  it('takes null for absent, as some encoders write it', () => {
    const json = { ...example('event'), devices: null, backend: null, removed_sessions: null };
    expect(readChange(json)).toEqual(readChange(example('event')));
  });
});

describe('readHistory', () => {
  it('reads the example', () => {
    const history = readHistory(example('history'));
    expect(history.revision).toBe(812);
    expect(history.moments.length).toBeGreaterThan(20);
    expect(history.moments[0]).toMatchObject({ state: 'running', lane: 'gpu0/1' });
  });
});

describe('readRefusal', () => {
  it('reads the example', () => {
    expect(readRefusal(example('error'))?.code).toBe('backend_gone');
  });

  it.each([null, 'Forbidden', { message: 'Forbidden', reason: null }, []])('knows that %p is not ours', json => {
    expect(readRefusal(json)).toBeNull();
  });
});
