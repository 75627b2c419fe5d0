import { nullTranslator } from '@jupyterlab/translation';
import { roughly } from '../src/format';
import { readState } from '../src/wire';
import { modeWords, sessionName, shortLine, since, stateLine } from '../src/words';
import { example } from './examples';

const trans = nullTranslator.load('jupyter_salus');
const state = readState(example('state'));
const named = (name: string) => state.sessions.find(session => session.name === name)!;

describe('stateLine', () => {
  it.each([
    ['train.ipynb', 'Running for 3 min'],
    ['tune.ipynb', 'Waiting for 3 min, next in line'],
    ['notes.ipynb', 'Idle for 3 min, holds memory'],
    ['embed.ipynb', 'Evicted for 3 min, in host memory']
  ])('tells of %s what it does, for how long, and what that leaves open', (name, line) => {
    expect(stateLine(named(name), trans, 180)).toBe(line);
  });

  it('goes without a time', () => expect(stateLine(named('tune.ipynb'), trans)).toBe('Waiting, next in line'));
});

describe('since', () => {
  it('is the start of a wait, else of the state', () => {
    expect(since(named('tune.ipynb'))).toBe(state.asOf - 18);
    expect(since(named('embed.ipynb'))).toBe(state.asOf - 1260);
  });

  it('isn’t the start of the next turn’s wait for one that takes turns', () => {
    const train = { ...named('train.ipynb'), waitingSince: state.asOf - 0.1, sharingWith: ['other'] };
    expect(since(train)).toBe(train.stateSince);
    expect(shortLine(train, trans, state.asOf)).toBe('Running');
  });

  it('is unknown where nothing was ever used', () => expect(since(named('scratch.ipynb'))).toBeNull());
});

describe('shortLine', () => {
  it('says of a wait alone how long it lasts', () => {
    expect(shortLine(named('tune.ipynb'), trans, state.asOf)).toBe('Waiting for 18 s, next in line');
    expect(shortLine(named('notes.ipynb'), trans, state.asOf)).toBe('Idle');
    expect(shortLine(undefined, trans, state.asOf)).toBe('Not managed');
  });
});

describe('sessionName', () => {
  it('is the notebook’s, or the kernel’s where there is none', () => {
    const train = named('train.ipynb');
    expect(sessionName(train, trans)).toBe('train.ipynb');
    expect(sessionName({ ...train, name: train.id }, trans)).toBe('Kernel 003f1a01');
  });

  it('doesn’t make up what others keep back', () => {
    const bert = named('bert.ipynb');
    expect(sessionName({ ...bert, name: null }, trans)).toBe('A notebook of grace');
    expect(sessionName({ ...bert, name: null, user: null }, trans)).toBe('Somebody’s notebook');
  });
});

describe('modeWords', () => {
  it('speaks of what isn’t the usual way alone', () => {
    expect(modeWords('plain', trans)?.[0]).toBe('plain');
    expect(modeWords('regions', trans)?.[0]).toBe('regions');
    expect(modeWords('blocks', trans)).toBeNull();
    expect(modeWords('host', trans)).toBeNull();
  });
});

describe('roughly', () => {
  it.each([
    [12, '12 s'],
    [96, '1 min'],
    [3700, '61 min'],
    [9000, '2 h']
  ])('%d s has one unit: %s', (seconds, text) => expect(roughly(seconds, trans)).toBe(text));
});
