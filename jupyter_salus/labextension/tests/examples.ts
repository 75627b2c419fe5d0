/** The wire examples that the Python tests read too. */
import { readFileSync } from 'fs';
import { join } from 'path';

export type Json = { [key: string]: unknown };

const FOLDER = join(__dirname, '../../../tests/wire');

/** A fresh copy of an example. */
export function example(name: 'state' | 'event' | 'history' | 'error'): Json {
  return JSON.parse(readFileSync(join(FOLDER, `${name}.json`), 'utf8')) as Json;
}

/** The example's rows under `key`. */
export function rowsOf(json: Json, key: string): Json[] {
  return json[key] as Json[];
}
