import { Answer } from '../src/model/client';
import { CHECK_MS, Feed, Link, RETRY_MS } from '../src/model/feed';
import { Store } from '../src/model/store';
import { example, Json } from './examples';

const FALLBACK_MS = 5_000;

/** A feed over a server of which the test holds the answers. */
class Bench {
  readonly store = new Store();
  readonly links: Link['kind'][] = [];
  /** ETags that requests came with. */
  readonly asked: (string | null)[] = [];
  answer: () => Answer | Promise<Answer> = () => this.body(example('state'));

  readonly feed = new Feed(this.store, {
    fallbackMs: FALLBACK_MS,
    standby: 'never',
    now: () => Date.now() / 1000,
    fetchState: async etag => {
      this.asked.push(etag);
      return this.answer();
    }
  });

  constructor() {
    this.feed.linkChanged.connect((_, link) => this.links.push(link.kind));
  }

  body(state: Json): Answer {
    return { kind: 'body', body: state, etag: `"${String(state['revision'])}"`, date: null };
  }

  async started(): Promise<this> {
    this.feed.start();
    await this.after(0);
    return this;
  }

  async after(ms: number): Promise<void> {
    await jest.advanceTimersByTimeAsync(ms + 1);
  }
}

const revision = (number: number): Json => ({ ...example('state'), revision: number });
const event = (number: number, previous = number - 1): Json => ({
  ...example('event'),
  revision: number,
  previous_revision: previous
});

let bench: Bench;
beforeEach(() => {
  jest.useFakeTimers();
  bench = new Bench();
});
afterEach(() => {
  bench.feed.dispose();
  jest.useRealTimers();
});

describe('while events arrive', () => {
  it('is live after the first answer', async () => {
    await bench.started();
    expect(bench.feed.link).toEqual({ kind: 'live' });
    expect(bench.store.revision).toBe(812);
  });

  it('applies them without asking', async () => {
    await bench.started();
    bench.feed.receive(event(813));
    expect(bench.store.revision).toBe(813);
    expect(bench.asked).toHaveLength(1);
  });

  it('asks at once on a gap', async () => {
    await bench.started();
    bench.answer = () => bench.body(revision(815));
    bench.feed.receive(event(815));
    await bench.after(0);
    expect(bench.asked).toHaveLength(2);
    expect(bench.store.revision).toBe(815);
  });

  it('checks slowly with the last ETag, and takes "unchanged"', async () => {
    await bench.started();
    bench.answer = () => ({ kind: 'unchanged' });
    await bench.after(CHECK_MS);
    expect(bench.asked).toEqual([null, '"812"']);
    expect(bench.feed.link.kind).toBe('live');
    expect(bench.feed.polling).toBe(false);
  });

  it('holds what arrives during a request and applies it on top of the answer', async () => {
    let give: (answer: Answer) => void = () => undefined;
    bench.answer = () => new Promise(resolve => (give = resolve));
    await bench.started();
    bench.feed.receive(event(812));
    bench.feed.receive(event(813));
    expect(bench.store.state).toBeNull();
    give(bench.body(example('state')));
    await bench.after(0);
    expect(bench.store.revision).toBe(813);
  });

  it('asks again when what arrived during a request shows another gap', async () => {
    let give: (answer: Answer) => void = () => undefined;
    bench.answer = () => new Promise(resolve => (give = resolve));
    await bench.started();
    bench.feed.receive(event(820));
    bench.answer = () => bench.body(revision(820));
    give(bench.body(example('state')));
    await bench.after(RETRY_MS);
    expect(bench.store.revision).toBe(820);
  });

  it('asks when an event is older than the state: a new backend counts from the start', async () => {
    await bench.started();
    bench.answer = () => bench.body(revision(4));
    bench.feed.receive(event(4));
    await bench.after(0);
    expect(bench.store.revision).toBe(4);
  });
});

describe('when events do not arrive', () => {
  it('polls from the first missed change on, and stops when one arrives', async () => {
    await bench.started();
    bench.answer = () => bench.body(revision(813));
    await bench.after(CHECK_MS);
    expect(bench.feed.polling).toBe(true);
    bench.answer = () => bench.body(revision(814));
    await bench.after(FALLBACK_MS);
    expect(bench.store.revision).toBe(814);
    bench.feed.receive(event(815));
    expect(bench.feed.polling).toBe(false);
  });
});

describe('a fault', () => {
  const refused = (status: number, code: string | null = null): Answer => ({
    kind: 'refused',
    status,
    code,
    message: 'cannot …'
  });

  it.each<[string, Answer, Link['kind']]>([
    ['no backend', refused(503, 'backend_gone'), 'no_backend'],
    ['403', refused(403), 'not_authorised'],
    ['401', refused(401), 'not_authorised'],
    ['404 that is not ours', refused(404), 'no_server_part'],
    ['a gateway without the server', refused(502), 'unreachable'],
    ['no connection', { kind: 'unreachable', message: 'Failed to fetch' }, 'unreachable'],
    ['a body that does not fit', { kind: 'body', body: { revision: 1 }, etag: null, date: null }, 'unfit'],
    ['any other error', refused(500, 'internal'), 'failed']
  ])('%s is told as such', async (_, answer, kind) => {
    bench.answer = () => answer;
    await bench.started();
    expect(bench.feed.link.kind).toBe(kind);
    expect(bench.store.state).toBeNull();
  });

  it('keeps the last state and the time at which it was true', async () => {
    await bench.started();
    const fresh = bench.feed.freshAt;
    bench.answer = () => refused(503, 'backend_gone');
    await bench.after(CHECK_MS);
    expect(bench.feed.link.kind).toBe('no_backend');
    expect(bench.store.revision).toBe(812);
    expect(bench.feed.freshAt).toBe(fresh);
  });

  it('is asked about again, ever more slowly', async () => {
    // The poll spreads its pauses at random between the shortest and three times the last one.
    const random = jest.spyOn(Math, 'random').mockReturnValue(0.9);
    bench.answer = () => refused(503, 'backend_gone');
    await bench.started();
    await bench.after(60_000);
    const minute = bench.asked.length;
    expect(minute).toBeGreaterThan(3);
    await bench.after(60_000);
    expect(bench.asked.length - minute).toBeLessThan(minute);
    random.mockRestore();
  });

  it('ends with the next good answer', async () => {
    bench.answer = () => refused(503, 'backend_gone');
    await bench.started();
    bench.answer = () => bench.body(example('state'));
    await bench.after(60_000);
    expect(bench.links).toEqual(['no_backend', 'live']);
  });

  it('ends at once with a whole state in an event', async () => {
    bench.answer = () => refused(503, 'backend_gone');
    await bench.started();
    bench.feed.receive({ ...example('state'), revision: 1, previous_revision: 0 });
    expect(bench.feed.link.kind).toBe('live');
    expect(bench.store.revision).toBe(1);
  });

  it('ends when the server finds the same backend at the same revision again', async () => {
    await bench.started();
    const backend = { ...(example('state')['backend'] as Json), healthy: false };
    bench.answer = () => refused(503, 'backend_gone');
    bench.feed.receive({ ...event(812, 812), sessions: [], backend });
    await bench.after(0);
    expect(bench.feed.link.kind).toBe('no_backend');
    bench.feed.receive({ ...example('state'), previous_revision: 0 });
    expect(bench.feed.link.kind).toBe('live');
  });

  it('is told at once by an event with an unhealthy backend', async () => {
    await bench.started();
    const backend = { ...(example('state')['backend'] as Json), healthy: false };
    bench.answer = () => refused(503, 'backend_gone');
    bench.feed.receive({ ...event(813), backend });
    expect(bench.feed.link.kind).toBe('no_backend');
    await bench.after(0);
    expect(bench.asked).toHaveLength(2);
  });

  it('is an event that does not fit', async () => {
    await bench.started();
    bench.feed.receive({ revision: 'many' });
    expect(bench.feed.link.kind).toBe('unfit');
  });
});
