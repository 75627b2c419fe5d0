/**
 * What every component of the panel needs, and the two ways in which it follows the model.
 */
import { ITranslator, TranslationBundle } from '@jupyterlab/translation';
import { CommandRegistry } from '@lumino/commands';
import { ISignal } from '@lumino/signaling';
import * as React from 'react';
import { Model } from '../model/model';

export interface ISurroundings {
  readonly model: Model;
  readonly commands: CommandRegistry;
  readonly translator: ITranslator;
  readonly trans: TranslationBundle;
}

const Surroundings = React.createContext<ISurroundings | null>(null);

export const SurroundingsProvider = Surroundings.Provider;

export function useSurroundings(): ISurroundings {
  const surroundings = React.useContext(Surroundings);
  if (!surroundings) {
    throw new Error('cannot draw the panel: no SurroundingsProvider around it');
  }
  return surroundings;
}

/** Draws the component anew on each signal. */
export function useSignal(signal: ISignal<unknown, unknown>): void {
  const [, draw] = React.useReducer((count: number) => count + 1, 0);
  React.useEffect(() => {
    const slot = () => draw();
    signal.connect(slot);
    // What changed between the drawing and this effect would be missed otherwise.
    draw();
    return () => {
      signal.disconnect(slot);
    };
  }, [signal]);
}

/** The server's time in seconds; while `ticking` the component is drawn anew each second. */
export function useNow(ticking: boolean): number {
  const { clock } = useSurroundings().model;
  const [, draw] = React.useReducer((count: number) => count + 1, 0);
  React.useEffect(() => (ticking ? clock.listen(draw) : undefined), [clock, ticking]);
  return clock.now();
}
