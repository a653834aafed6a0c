// What is drawn of a large request at the grain of the screen. No drawing and no state: numbers in, numbers out.

/** @typedef {import("./types.js").RequestDetail} RequestDetail */
/** @typedef {import("./types.js").StateName} StateName */
/** @typedef {RequestDetail["spans"][number]} Span */
/** @typedef {RequestDetail["links"][number]} Link */
/** @typedef {{actor: number, state: StateName, left: number, width: number, shared: boolean}} DrawnSpan */
/** @typedef {{from_actor: number, to_actor: number, from: number, to: number, links: number}} Bundle */

/** Hand-offs from one row to another that end within so many pixels are drawn as one. */
const BUNDLE = 6;

/**
 * Spans as they are drawn: those narrower than a pixel give it the state that most of it was spent in.
 * @param {Span[]} spans in order of time, by actor
 * @param {(ns: number) => number} x pixels of a moment
 * @param {number} first pixels from which on something can be seen
 * @param {number} last
 * @returns {DrawnSpan[]}
 */
export function spansByPixel(spans, x, first, last) {
  /** @type {DrawnSpan[]} */
  const drawn = [];
  /** The pixel whose narrow spans are added up. */
  let [actor, pixel] = [-1, -1];
  /** @type {Map<StateName, number>} */
  const sums = new Map();
  let shared = true;
  const done = () => {
    let [most, state] = [-1, /** @type {StateName|null} */ (null)];
    for (const [name, sum] of sums) if (sum > most) [most, state] = [sum, name];
    if (state) drawn.push({ actor, state, left: pixel, width: 1, shared });
    sums.clear();
    shared = true;
  };
  for (const span of spans) {
    const [left, right] = [x(span.from_ns), x(span.to_ns)];
    if (right < first || left > last) continue;
    if (right - left >= 1) {
      drawn.push({ actor: span.actor, state: span.state, left, width: right - left, shared: span.shared });
      continue;
    }
    const at = Math.floor(left);
    if (at !== pixel || span.actor !== actor) done();
    [actor, pixel] = [span.actor, at];
    sums.set(span.state, (sums.get(span.state) ?? 0) + Math.max(right - left, 1e-6));
    shared &&= span.shared;
  }
  done();
  return drawn;
}

/**
 * Hand-offs between rows as they are drawn: of many at one place, one stands for all.
 * @param {Link[]} links
 * @param {(ns: number) => number} x pixels of a moment
 * @param {number} first pixels from which on something can be seen
 * @param {number} last
 * @returns {Bundle[]}
 */
export function bundles(links, x, first, last) {
  /** @type {Map<string, Bundle>} */
  const found = new Map();
  for (const { from_actor, from_ns, to_actor, to_ns } of links) {
    if (from_actor === null || from_actor === to_actor) continue;
    const [from, to] = [x(from_ns), x(to_ns)];
    if ((from < first && to < first) || (from > last && to > last)) continue;
    const key = `${from_actor} ${to_actor} ${Math.floor(to / BUNDLE)}`;
    const known = found.get(key);
    if (known) known.links += 1;
    else found.set(key, { from_actor, to_actor, from, to, links: 1 });
  }
  return [...found.values()];
}
