// Numbers as people read them; the same forms as the terminal's reports.

/**
 * Nanoseconds with three significant digits: the number, and its unit.
 * @param {number} ns
 * @returns {[string, string]}
 */
export function durationParts(ns) {
  if (ns < 1000) return [String(Math.round(ns)), "ns"];
  if (ns < 999.5e3) return [threeDigits(ns / 1e3), "µs"];
  if (ns < 999.5e6) return [threeDigits(ns / 1e6), "ms"];
  return [threeDigits(ns / 1e9), "s"];
}

/** @param {number} ns */
export function duration(ns) {
  return durationParts(ns).join(" ");
}

/** @param {number} value */
function threeDigits(value) {
  if (value < 9.995) return value.toFixed(2);
  if (value < 99.95) return value.toFixed(1);
  return count(Math.round(value));
}

const GROUPED = new Intl.NumberFormat("en");

/** @param {number} n */
export function count(n) {
  return GROUPED.format(n);
}

/**
 * `1 call`, `2 calls`.
 * @param {number} n
 * @param {string} one
 * @param {string} [many]
 */
export function plural(n, one, many = `${one}s`) {
  return `${count(n)} ${n === 1 ? one : many}`;
}

/** @param {number} share 0 to 1 */
export function percent(share) {
  return Number.isFinite(share) ? `${(share * 100).toFixed(1)} %` : "–";
}

/**
 * A moment of trace time, as exactly as a step on the ruler needs.
 * @param {number} ns
 * @param {number} step nanoseconds
 */
export function moment(ns, step) {
  const [size, unit] =
    ns >= 1e9 || step >= 1e8 ? [1e9, "s"] : ns >= 1e6 || step >= 1e5 ? [1e6, "ms"]
    : ns >= 1e3 || step >= 100 ? [1e3, "µs"] : [1, "ns"];
  const digits = Math.max(0, Math.min(9, Math.ceil(Math.log10(Number(size) / step) - 1e-9)));
  return `${(ns / Number(size)).toFixed(digits)} ${unit}`;
}

/**
 * The step between marks so that they are at least `wanted` apart: 1, 2 or 5 times a power of ten.
 * @param {number} wanted
 */
export function niceStep(wanted) {
  const power = 10 ** Math.floor(Math.log10(Math.max(wanted, 1)));
  for (const times of [1, 2, 5]) if (power * times >= wanted) return power * times;
  return power * 10;
}
