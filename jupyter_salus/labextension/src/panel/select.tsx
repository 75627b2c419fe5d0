/**
 * A select that is as quiet as text until it is pointed at.
 */
import { caretDownEmptyIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

interface ISelectProps {
  readonly value: string;
  /** Each value with its word. */
  readonly choices: readonly (readonly [string, string])[];
  readonly label: string;
  readonly className?: string;
  readonly onChoose: (value: string) => void;
}

export function Select(props: ISelectProps): JSX.Element {
  return (
    <span className={`jp-Salus-select ${props.className ?? ''}`}>
      <select
        value={props.value}
        aria-label={props.label}
        title={props.label}
        onChange={event => props.onChoose(event.target.value)}
      >
        {props.choices.map(([value, word]) => (
          <option key={value} value={value}>
            {word}
          </option>
        ))}
      </select>
      <caretDownEmptyIcon.react tag="span" className="jp-Salus-selectCaret" />
    </span>
  );
}
