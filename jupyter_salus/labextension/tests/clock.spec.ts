import { Clock } from '../src/clock';

describe('the clock', () => {
  it('corrects a wrong clock, and leaves the delay of the transport alone', () => {
    let local = 1000;
    const clock = new Clock(() => local);
    clock.observe(999.5);
    expect(clock.now()).toBe(1000);
    clock.observe(4600);
    local = 1001;
    expect(clock.now()).toBe(4601);
  });

  it('ticks each second for who listens, and stops with the last', () => {
    jest.useFakeTimers();
    const clock = new Clock();
    const [first, second] = [jest.fn(), jest.fn()];
    const endFirst = clock.listen(first);
    const endSecond = clock.listen(second);
    jest.advanceTimersByTime(2000);
    endFirst();
    jest.advanceTimersByTime(1000);
    endSecond();
    expect(jest.getTimerCount()).toBe(0);
    expect([first.mock.calls.length, second.mock.calls.length]).toEqual([2, 3]);
    jest.useRealTimers();
  });
});
