import { nullTranslator } from '@jupyterlab/translation';
import { duration, gib, place, withUnit } from '../src/format';

const trans = nullTranslator.load('jupyter_salus');

describe('gib', () => {
  it.each([
    [0, '0.0'],
    [2 ** 30, '1.0'],
    [5.55 * 2 ** 30, '5.6'],
    [50 * 2 ** 20, '0.05'],
    [1536 * 2 ** 30, '1,536.0']
  ])('writes %d bytes as %s', (bytes, text) => expect(gib(bytes)).toBe(text));

  it('names the unit', () => expect(withUnit(2 ** 31)).toBe('2.0 GiB'));
});

describe('duration', () => {
  it.each([
    [-3, '0 s'],
    [0.9, '0 s'],
    [59.99, '59 s'],
    [60, '1 min'],
    [61, '1 min 1 s'],
    [601, '10 min'],
    [3600, '1 h'],
    [3725, '1 h 2 min'],
    [86400, '1 d'],
    [100000, '1 d 3 h']
  ])('writes %d seconds as %s', (seconds, text) => expect(duration(seconds, trans)).toBe(text));
});

describe('place', () => {
  it.each([
    [1, 'next in line'],
    [2, '2nd in line'],
    [3, '3rd in line'],
    [21, 'number 21 in line']
  ])('says %d as %s', (position, text) => expect(place(position, trans)).toBe(text));
});
