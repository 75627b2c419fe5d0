import { History, KEPT_S } from '../src/model/history';
import { readHistory, readState } from '../src/wire';
import { example } from './examples';

const state = readState(example('state'));
const now = state.asOf;
const [train, tune, notes] = state.sessions.map(session => session.id) as [string, string, string];

function loaded(): History {
  const history = new History();
  history.load(readHistory(example('history')).moments);
  return history;
}

describe('spans', () => {
  it('tile the time from the first moment to the end asked for', () => {
    const spans = loaded().spans(train, now - 300, now);
    expect(spans[0]).toMatchObject({ state: 'waiting', from: now - 280 });
    spans.slice(1).forEach((span, at) => expect(span.from).toBe(spans[at]?.to));
    expect(spans[spans.length - 1]).toMatchObject({ state: 'running', to: now });
  });

  it('are cut to the window', () => {
    expect(loaded().spans(train, now - 10, now)).toEqual([
      { session: train, state: 'running', lane: 'gpu0/1', from: now - 10, to: now }
    ]);
  });

  it('of an unknown session are none', () => expect(loaded().spans('nobody', now - 10, now)).toEqual([]));
});

describe('lanes', () => {
  it('tell who ran in each, in order, without overlap', () => {
    const lanes = loaded().lanes(now - 300, now);
    expect([...lanes.keys()]).toEqual(['gpu0/1', 'gpu0/2', 'gpu1/1']);
    const first = lanes.get('gpu0/1') ?? [];
    expect(new Set(first.map(span => span.session)).size).toBe(4);
    first.slice(1).forEach((span, at) => expect(span.from).toBeGreaterThanOrEqual(first[at]?.from ?? Infinity));
  });
});

describe('memory', () => {
  it('falls when a session is evicted', () => {
    const steps = loaded().memory('gpu0', now - 300, now);
    const at = (ago: number) => [...steps].reverse().find(step => step.at <= now - ago)?.persistentBytes ?? NaN;
    expect(at(141) - at(137)).toBe(7 * 2 ** 30);
  });

  it('has what those of one lane need on top once: they take turns', () => {
    const history = new History();
    const sharing = state.sessions.filter(session => session.lane === 'gpu0/1');
    history.record(now, sharing.map(session => ({ ...session, state: 'running' as const })));
    const [step] = history.memory('gpu0', now, now + 1);
    expect(step?.ephemeralBytes).toBe(Math.max(...sharing.map(session => session.ephemeralBytes)));
  });

  it('begins with what was so at the start of the window', () => {
    const steps = loaded().memory('gpu0', now - 10, now);
    expect(steps[0]?.at).toBe(now - 10);
    expect(steps[0]?.persistentBytes).toBeGreaterThan(0);
  });

  it('is of one device', () => {
    const steps = loaded().memory('gpu1', now - 300, now);
    expect(Math.max(...steps.map(step => step.persistentBytes))).toBe(4 * 2 ** 30);
  });
});

describe('record', () => {
  it('adds nothing where nothing changed', () => {
    const history = new History();
    history.record(now, state.sessions);
    history.record(now + 1, state.sessions);
    expect(history.spans(tune, now - 5, now + 2)).toEqual([
      { session: tune, state: 'waiting', lane: 'gpu0/1', from: now, to: now + 2 }
    ]);
  });

  it('ends a session that is gone', () => {
    const history = new History();
    history.record(now, state.sessions);
    history.record(now + 1, state.sessions.filter(session => session.id !== notes));
    expect(history.spans(notes, now, now + 5)).toMatchObject([{ from: now, to: now + 1 }]);
    expect(history.sessions(now + 2)).not.toContain(notes);
  });

  it('continues what was loaded later', () => {
    const history = new History();
    history.record(now, state.sessions);
    history.load(readHistory(example('history')).moments);
    expect(history.spans(tune, now - 300, now + 1).length).toBeGreaterThan(4);
  });

  it('forgets what is too old, and keeps what still holds', () => {
    const history = loaded();
    history.record(now + KEPT_S, state.sessions);
    const spans = history.spans(train, 0, now + KEPT_S);
    expect(spans[0]?.to).toBeGreaterThan(now - 30);
  });
});
