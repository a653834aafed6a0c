// Where rows and pieces lie.

import assert from "node:assert/strict";
import { test } from "node:test";

import { HEAD, REPORTED, firstAfter, layOut, pieceAt, tracksOf, visible } from "../../ui/layout.js";

/** Threads with so many rows of calls, and of what events say. */
const threads = (...rows) => rows.map(([depths, reported], index) => ({ index, depths, reported }));
/** Rows of one process, which has no row of its own. */
const rowsOf = (threads, folded = new Set()) => layOut([{ key: "1", pid: 1, threads }], folded, new Set());

/** Pieces from one moment to another. */
function pieces(...spans) {
  return {
    count: spans.length,
    start: Float64Array.from(spans, ([start]) => start),
    end: Float64Array.from(spans, ([, end]) => end),
  };
}

test("rows lie below each other without gaps within a thread", () => {
  const { rows, height } = rowsOf(threads([3, 1], [0, 2]));
  assert.deepEqual(rows.map(({ depth }) => depth), [-1, 0, 1, 2, REPORTED, -1, REPORTED, REPORTED + 1]);
  for (let at = 1; at < rows.length; at++) {
    const [above, row] = [rows[at - 1], rows[at]];
    const gap = row.top - above.top - above.height;
    assert.equal(gap > 0, row.kind === "thread");
  }
  assert.ok(height > rows.at(-1).top);
});

test("of a folded thread only the head is left", () => {
  const { rows } = rowsOf(threads([3, 1], [2, 0]), new Set([0]));
  assert.deepEqual(rows.map(({ thread, depth }) => [thread.index, depth]), [[0, -1], [1, -1], [1, 0], [1, 1]]);
});

test("processes of several threads have a row, and only that if they are closed", () => {
  const [a, b, c] = threads([1, 0], [0, 1], [2, 0]);
  const lanes = [{ key: "7", pid: 7, threads: [a, b] }, { key: "8", pid: 8, threads: [c] }];
  const shown = (closed) =>
    layOut(lanes, new Set(), new Set(closed)).rows.map(({ kind, thread }) => [kind, thread.index]);
  const alone = [["thread", 2], ["calls", 2], ["calls", 2]];
  const both = [["process", 0], ["thread", 0], ["calls", 0], ["thread", 1], ["reported", 1]];
  assert.deepEqual(shown([]), [...both, ...alone]);
  assert.deepEqual(shown(["7"]), [["process", 0], ...alone]);
});

test("what is visible is what overlaps the window", () => {
  const { rows, height } = rowsOf(threads([5, 0], [5, 0]));
  for (let top = -10; top < height; top += 7) {
    const bottom = top + 40;
    const expected = rows.filter((row) => row.top < bottom && row.top + row.height > top);
    assert.deepEqual(visible(rows, top, bottom), expected);
  }
  assert.deepEqual(visible([], 0, 100), []);
  assert.equal(visible(rows, 0, HEAD).length, 1);
});

test("tracks are asked for by their least and greatest depth", () => {
  const { rows } = rowsOf(threads([3, 0], [2, 0]));
  assert.equal(tracksOf(rows), "0:0-3,1:0-2");
  assert.equal(tracksOf(rows.filter(({ depth }) => depth < 0)), "0:0-0,1:0-0");
});

test("a piece is found under a moment, or near it", () => {
  const some = pieces([10, 20], [20, 30], [50, 60]);
  assert.deepEqual([0, 10, 20, 35, 59, 60].map((ns) => firstAfter(some, ns)), [0, 0, 1, 2, 2, 3]);
  assert.deepEqual([15, 25, 40, 48, 200].map((ns) => pieceAt(some, ns, 5)), [0, 1, -1, 2, -1]);
  assert.equal(pieceAt(pieces(), 5, 100), -1);
});
