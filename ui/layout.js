// Where the rows of the timelines are. No drawing and no state: numbers in, numbers out.

/** @typedef {import("./types.js").Lane} Lane */
/** @typedef {import("./types.js").Row} Row */

export const RULER = 26;
export const ROW = 18;
export const HEAD = 27;
/** Height of the strip that shows whether a thread ran, at the bottom of its head. */
export const STRIP = 5;
const GAP = 6;
/** How far threads' names stand in below that of their process. */
const INSET = 14;
/** Number of a thread's first row of what events say; rows before it are of calls. */
export const REPORTED = 0x10000;

/**
 * Rows of all threads from top to bottom, and their height together. Processes with several threads have a row,
 * where there is more than one lane.
 * @param {Lane[]} lanes
 * @param {Set<number>} folded threads of which only the head is shown
 * @param {Set<string>} closed lanes of which only the head is shown
 * @returns {{rows: Row[], height: number}}
 */
export function layOut(lanes, folded, closed) {
  /** @type {Row[]} */
  const rows = [];
  let top = 0;
  for (const lane of lanes) {
    const [first] = lane.threads;
    const headed = lanes.length > 1 && (lane.threads.length > 1 || lane.pid === 0);
    const inset = headed ? INSET : 0;
    if (first && headed) {
      rows.push({ kind: "process", lane, thread: first, depth: -1, top, height: HEAD, inset: 0 });
      top += HEAD;
      if (closed.has(lane.key)) continue;
    }
    for (const thread of lane.threads) {
      rows.push({ kind: "thread", lane, thread, depth: -1, top, height: HEAD, inset });
      top += HEAD;
      /** @param {Row["kind"]} kind @param {number} first @param {number} count */
      const add = (kind, first, count) => {
        for (let depth = first; depth < first + count; depth++) {
          rows.push({ kind, lane, thread, depth, top, height: ROW, inset });
          top += ROW;
        }
      };
      if (!folded.has(thread.index)) {
        add("calls", 0, thread.depths);
        add("reported", REPORTED, thread.reported);
      }
      top += GAP;
    }
  }
  return { rows, height: top };
}

/**
 * The rows that lie between two heights.
 * @param {Row[]} rows @param {number} top @param {number} bottom
 */
export function visible(rows, top, bottom) {
  let [low, high] = [0, rows.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    const row = /** @type {Row} */ (rows[middle]);
    if (row.top + row.height <= top) low = middle + 1;
    else high = middle;
  }
  let end = low;
  while (end < rows.length && /** @type {Row} */ (rows[end]).top < bottom) end++;
  return rows.slice(low, end);
}

/**
 * The tracks of some rows as the server takes them: `THREAD:FIRST-END,…`.
 * @param {Row[]} rows
 */
export function tracksOf(rows) {
  /** @type {Map<number, [number, number]>} */
  const depths = new Map();
  for (const { thread, depth } of rows) {
    const known = depths.get(thread.index) ?? [Infinity, 0];
    if (depth >= 0) known[0] = Math.min(known[0], depth);
    if (depth >= 0) known[1] = Math.max(known[1], depth + 1);
    depths.set(thread.index, known);
  }
  const parts = [...depths].map(([thread, [first, end]]) =>
    first < end ? `${thread}:${first}-${end}` : `${thread}:0-0`);
  return parts.join(",");
}

/**
 * Number of the first piece that ends after a moment.
 * @param {import("./types.js").Pieces} pieces @param {number} ns
 */
export function firstAfter(pieces, ns) {
  let [low, high] = [0, pieces.count];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (/** @type {number} */ (pieces.end[middle]) <= ns) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * The piece under a moment, or the nearest one that is no further than `reach`; -1 if none is.
 * @param {import("./types.js").Pieces} pieces @param {number} ns @param {number} reach
 */
export function pieceAt(pieces, ns, reach) {
  const after = firstAfter(pieces, ns);
  let best = -1;
  let distance = reach;
  for (const at of [after - 1, after]) {
    if (at < 0 || at >= pieces.count) continue;
    const start = /** @type {number} */ (pieces.start[at]);
    const end = /** @type {number} */ (pieces.end[at]);
    const away = ns < start ? start - ns : ns > end ? ns - end : 0;
    if (away <= distance) [best, distance] = [at, away];
  }
  return best;
}
