import { Store } from '../src/model/store';
import { readChange, readState } from '../src/wire';
import { example, rowsOf } from './examples';

function filled(): Store {
  const store = new Store();
  store.replace(readState(example('state')));
  return store;
}

const TRAIN = rowsOf(example('state'), 'sessions')[0]!['id'] as string;
const TUNE = rowsOf(example('state'), 'sessions')[1]!['id'] as string;
const NOTES = rowsOf(example('state'), 'sessions')[2]!['id'] as string;

describe('a change', () => {
  it('is applied on top of the revision it was made from', () => {
    const store = filled();
    expect(store.apply(readChange(example('event')))).toBe('applied');
    expect(store.revision).toBe(813);
    expect(store.session(TRAIN)?.state).toBe('waiting');
    expect(store.session(TUNE)?.state).toBe('running');
    expect(store.lanes[0]?.holder).toBe(TUNE);
    expect(store.devices).toHaveLength(2);
  });

  it('keeps the identity and the place of rows that it does not touch', () => {
    const store = filled();
    const notes = store.session(NOTES);
    const order = store.sessions.map(session => session.id);
    store.apply(readChange(example('event')));
    expect(store.session(NOTES)).toBe(notes);
    expect(store.sessions.map(session => session.id)).toEqual(order);
  });

  it('is a gap when a revision between is missing, and changes nothing', () => {
    const store = filled();
    const change = readChange({ ...example('event'), revision: 815, previous_revision: 814 });
    expect(store.apply(change)).toBe('gap');
    expect(store.revision).toBe(812);
    expect(store.session(TRAIN)?.state).toBe('running');
  });

  it('is a gap before the first state', () => {
    expect(new Store().apply(readChange(example('event')))).toBe('gap');
  });

  it('that overlaps what is known is a gap', () => {
    const change = readChange({ ...example('event'), revision: 813, previous_revision: 811 });
    expect(filled().apply(change)).toBe('gap');
  });

  it('is old when its revision is known already', () => {
    const change = readChange({ ...example('event'), revision: 812, previous_revision: 811 });
    expect(filled().apply(change)).toBe('old');
  });

  it('takes away removed sessions and appends new ones', () => {
    const store = filled();
    const json = example('event');
    json['removed_sessions'] = [NOTES];
    rowsOf(json, 'sessions').push({ ...rowsOf(json, 'sessions')[0]!, id: 'new', kernel_id: 'new' });
    store.apply(readChange(json));
    expect(store.session(NOTES)).toBeUndefined();
    expect(store.sessions[store.sessions.length - 1]?.id).toBe('new');
  });

  it('that is whole is old when the same backend has told a newer state', () => {
    const store = filled();
    const whole = { ...example('state'), previous_revision: 0, removed_sessions: [] };
    expect(store.apply(readChange({ ...whole, revision: 811 }))).toBe('old');
    expect(store.apply(readChange({ ...whole, revision: 812 }))).toBe('old');
    expect(store.apply(readChange({ ...whole, revision: 820 }))).toBe('applied');
  });

  it('that is whole and of another backend replaces everything, whatever its revision', () => {
    const store = filled();
    const backend = { ...(example('state')['backend'] as object), pid: 4712 };
    const json = { ...example('state'), backend, revision: 2, previous_revision: 0, removed_sessions: [] };
    rowsOf(json, 'sessions').splice(1);
    expect(store.apply(readChange(json))).toBe('applied');
    expect(store.revision).toBe(2);
    expect(store.sessions.map(session => session.id)).toEqual([TRAIN]);
  });
});

describe('a whole state', () => {
  it('keeps the identity of rows that did not change', () => {
    const store = filled();
    const notes = store.session(NOTES);
    const later = example('state');
    later['as_of'] = (later['as_of'] as number) + 5;
    store.replace(readState(later));
    expect(store.session(NOTES)).toBe(notes);
  });

  it('takes the newer totals of a running session', () => {
    const store = filled();
    const later = example('state');
    later['as_of'] = (later['as_of'] as number) + 5;
    store.replace(readState(later));
    expect(store.session(TRAIN)?.asOf).toBe(later['as_of']);
  });
});

describe('an intent', () => {
  it('shows until it is settled', () => {
    const store = filled();
    store.intend(TUNE, { priority: 'high' });
    expect(store.session(TUNE)?.priority).toBe('high');
    store.settle(TUNE, ['priority']);
    expect(store.session(TUNE)?.priority).toBe('normal');
    expect(store.intent(TUNE)).toBeUndefined();
  });

  it('lies over rows that arrive meanwhile', () => {
    const store = filled();
    store.intend(TUNE, { priority: 'high' });
    store.apply(readChange(example('event')));
    expect(store.session(TUNE)).toMatchObject({ priority: 'high', state: 'running' });
    expect(store.state?.sessions.find(session => session.id === TUNE)?.priority).toBe('normal');
  });

  it('of one kind is settled without the other', () => {
    const store = filled();
    store.intend(TUNE, { priority: 'low' });
    store.intend(TUNE, { verb: 'evict' });
    store.settle(TUNE, ['priority']);
    expect(store.intent(TUNE)).toEqual({ verb: 'evict' });
  });

  it('for a policy shows until it is settled', () => {
    const store = filled();
    store.intendPolicy('gpu0', 'fifo');
    expect(store.devices[0]?.policy).toBe('fifo');
    store.settlePolicy('gpu0');
    expect(store.devices[0]?.policy).toBe('fair');
  });
});

describe('ofKernel', () => {
  it('finds the session of a kernel of this server only', () => {
    const store = filled();
    expect(store.ofKernel(TRAIN)?.name).toBe('train.ipynb');
    const elsewhere = store.sessions.find(session => session.name === 'eval.ipynb')!;
    expect(store.ofKernel(elsewhere.kernelId!)).toBeUndefined();
  });
});

describe('a notebook that the backend knows by an identifier alone', () => {
  const ID = '0b7e6a52-0d6b-4c3f-9f0e-3f2f4d0c9a11';

  function unnamed(): Store {
    const state = readState(example('state'));
    const store = new Store();
    const sessions = state.sessions.map(row =>
      row.id === TRAIN ? { ...row, name: ID, path: null, kernelId: ID, here: true } : row
    );
    store.replace({ ...state, sessions });
    return store;
  }

  it('has the name and path that this server’s own sessions tell', () => {
    const store = unnamed();
    store.notebooks = new Map([[ID, 'work/numpy_digits.ipynb']]);
    expect(store.session(TRAIN)).toMatchObject({ name: 'numpy_digits.ipynb', path: 'work/numpy_digits.ipynb' });
    const shown = store.session(TRAIN);
    store.notebooks = new Map([[ID, 'work/numpy_digits.ipynb']]);
    expect(store.session(TRAIN)).toBe(shown);
  });

  it('keeps what the backend tells of others', () => {
    const store = unnamed();
    store.notebooks = new Map([[store.session(TUNE)!.kernelId!, 'elsewhere.ipynb']]);
    expect(store.session(TUNE)?.name).toBe('tune.ipynb');
    expect(store.session(TRAIN)?.name).toBe(ID);
  });
});
