/**
 * Bytes in GiB, durations and positions as short text. Numbers follow the browser's locale; words come translated.
 */
import type { TranslationBundle } from '@jupyterlab/translation';

const GIB = 2 ** 30;

// Made once: `toLocaleString` and `localeCompare` make one anew at each call, which takes longer than a row's drawing.
const coarse = new Intl.NumberFormat(undefined, { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const fine = new Intl.NumberFormat(undefined, { minimumFractionDigits: 2, maximumFractionDigits: 2 });
const time = new Intl.DateTimeFormat(undefined, { timeStyle: 'medium', hour12: false });
const collator = new Intl.Collator(undefined, { numeric: true });

/** The order of two names as people count: "note 9" before "note 10". */
export function compareNames(a: string, b: string): number {
  return collator.compare(a, b);
}

/** "5.5", without the unit: two digits below 0.1 GiB, so that a small session doesn't read as nothing. */
export function gib(bytes: number): string {
  const value = bytes / GIB;
  return (value !== 0 && Math.abs(value) < 0.1 ? fine : coarse).format(value);
}

/** "5.5 GiB". */
export function withUnit(bytes: number): string {
  return `${gib(bytes)} GiB`;
}

/** "3 s", "4 min 20 s", "2 h 5 min", "3 d 4 h": two units at most, never below a second. */
export function duration(seconds: number, trans: TranslationBundle): string {
  const total = Math.max(0, Math.floor(seconds));
  if (total < 60) {
    return trans.__('%1 s', total);
  }
  const minutes = Math.floor(total / 60);
  if (minutes < 60) {
    return total % 60 && minutes < 10 ? trans.__('%1 min %2 s', minutes, total % 60) : trans.__('%1 min', minutes);
  }
  const hours = Math.floor(minutes / 60);
  if (hours < 24) {
    return minutes % 60 ? trans.__('%1 h %2 min', hours, minutes % 60) : trans.__('%1 h', hours);
  }
  const days = Math.floor(hours / 24);
  return hours % 24 ? trans.__('%1 d %2 h', days, hours % 24) : trans.__('%1 d', days);
}

/** "3 s", "4 min", "2 h": one unit, for totals that nobody reads to the second. */
export function roughly(seconds: number, trans: TranslationBundle): string {
  const minutes = Math.floor(seconds / 60);
  if (minutes < 1) {
    return duration(seconds, trans);
  }
  return minutes < 120 ? trans.__('%1 min', minutes) : trans.__('%1 h', Math.floor(minutes / 60));
}

/** "next", "2nd in line", … for the position 1, 2, … in a queue. */
export function place(position: number, trans: TranslationBundle): string {
  switch (position) {
    case 1:
      return trans.__('next in line');
    case 2:
      return trans.__('2nd in line');
    case 3:
      return trans.__('3rd in line');
    default:
      return trans.__('number %1 in line', position);
  }
}

/** "14:02:31" in the browser's zone, for the timeline's axis and tips. */
export function clockTime(epochSeconds: number): string {
  return time.format(epochSeconds * 1000);
}
