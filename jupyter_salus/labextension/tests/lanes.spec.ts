import { occupancyOf } from '../src/lanes';
import { partsOf, isOnDevice } from '../src/memory';
import { readState } from '../src/wire';
import { example } from './examples';

const state = readState(example('state'));
const [first] = state.lanes;
const names = (sessions: readonly { readonly name: string | null }[]) => sessions.map(session => session.name);

describe('occupancyOf', () => {
  it('tells who runs in a lane and who waits for it, in order', () => {
    const { running, waiting } = occupancyOf(first!, [...state.sessions].reverse());
    expect(names(running)).toEqual(['train.ipynb']);
    expect(names(waiting)).toEqual(['tune.ipynb', 'sweep.ipynb']);
  });

  it('tells all who share a lane as running, whoever the lane names as holder', () => {
    const shared = state.sessions.map(session =>
      session.name === 'tune.ipynb' ? { ...session, state: 'running' as const } : session
    );
    expect(names(occupancyOf(first!, shared).running)).toEqual(['train.ipynb', 'tune.ipynb']);
  });

  it('tells who waits without a lane', () => {
    const waits = state.sessions.map(session => ({ ...session, lane: null }));
    expect(names(occupancyOf(null, waits).waiting)).toContain('tune.ipynb');
  });
});

describe('partsOf', () => {
  it.each(state.devices.map(device => [device.id, device] as const))('adds up to the capacity of %s', (_, device) => {
    const parts = partsOf(device, state.lanes, state.sessions.filter(isOnDevice));
    expect(parts.reduce((sum, part) => sum + part.bytes, 0)).toBe(device.capacityBytes);
  });

  it('leaves out evicted sessions, and counts what no row accounts for as reserve', () => {
    const [device] = state.devices;
    const parts = partsOf({ ...device!, freeBytes: 2 ** 30 }, state.lanes, state.sessions.filter(isOnDevice));
    expect(parts.filter(part => part.kind === 'persistent')).toHaveLength(5);
    expect(parts.find(part => part.kind === 'reserve')?.bytes).toBe(2.75 * 2 ** 30);
  });
});
