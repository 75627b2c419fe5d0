import { INITIAL, LONGEST_S, moved, SHORTEST_S, thinned, ticks, zoomed } from '../src/timeline/scale';

describe('zoomed', () => {
  it('follows the time as long as its end does', () => expect(zoomed(INITIAL, 0.5)).toEqual({ span: 150, back: 0 }));

  it('keeps the pointed time where it is', () => {
    const before = { span: 300, back: 600 };
    const after = zoomed(before, 0.5, 0.5);
    expect(-after.back - after.span / 2).toBeCloseTo(-before.back - before.span / 2);
  });

  it('ends at the shortest and the longest window', () => {
    expect(zoomed(INITIAL, 0.001).span).toBe(SHORTEST_S);
    expect(zoomed(INITIAL, 1000)).toEqual({ span: LONGEST_S, back: 0 });
  });
});

describe('moved', () => {
  it('goes to the past, not to the future', () => {
    expect(moved(INITIAL, 0.5)).toEqual({ span: 300, back: 150 });
    expect(moved(INITIAL, -1).back).toBe(0);
  });
});

describe('ticks', () => {
  it.each([10, 30, 60, 300, 900, 1800])('are few and at round times in %d s', span => {
    const times = ticks(1000.5, 1000.5 + span);
    expect(times.length).toBeGreaterThan(1);
    expect(times.length).toBeLessThanOrEqual(6);
  });
});

describe('thinned', () => {
  it('leaves out what is too short to be seen', () => {
    const spans = Array.from({ length: 1000 }, (_, at) => ({ from: at / 10, to: (at + 1) / 10 }));
    const kept = thinned(spans, 1);
    expect(kept.length).toBeLessThanOrEqual(101);
    expect(kept[0]).toBe(spans[0]);
  });

  it('keeps a short one that stands alone', () => {
    expect(thinned([{ from: 0, to: 1 }, { from: 50, to: 50.1 }], 1)).toHaveLength(2);
  });
});
