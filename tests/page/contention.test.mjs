// Waits as a matrix, as flames, and as rows.

import assert from "node:assert/strict";
import { test } from "node:test";

import { OTHERS, PASSED_ON, contentionOf, convoysOf, flamesOf, matrixOf, placeText, rowsOf } from "../../ui/contention.js";

const place = (name, line) => ({ function: name, module: "prog", ...(line ? { line } : {}) });
const sums = (acquired, contended) => ({ acquired, contended, failed: 0, waited_ns: 0, waited_ns_max: 0, held_ns: 0, held_ns_max: 0, queue_max: 0 });
const waits = (waiter, holder, ns) => ({ waiter: place(waiter), holder: holder && place(holder), waited_ns: ns, waits: 1 });

/** Two locks and a condition variable, waits for which are no contention. */
const report = {
  classes: [
    {
      name: "accounts", kind: "mutex", locks: 1, ...sums(10, 4), held_over: [],
      sites: [{ place: place("transfer", "two.c:9"), operation: "lock", ...sums(10, 4) }],
      blocking: [waits("audit", "transfer", 60), waits("audit", null, 10), waits("transfer", "audit", 5)],
    },
    { name: "journal", kind: "rwlock", locks: 3, ...sums(0, 2), sites: [], blocking: [waits("audit", "transfer", 25)], held_over: [] },
    { name: "ready", kind: "condition", locks: 0, ...sums(0, 0), sites: [], blocking: [waits("audit", "transfer", 1000)], held_over: [] },
  ],
  shared_lines: [], deadlocks: [],
};

test("the matrix adds up the waits of all locks", () => {
  const { waiters, holders, cells } = matrixOf(report, 10);
  assert.deepEqual(waiters, ["audit [prog]", "transfer [prog]"]);
  assert.deepEqual(holders, ["transfer [prog]", PASSED_ON, "audit [prog]"]);
  assert.deepEqual(cells, [[85, 10, 0], [0, 0, 5]]);
});

test("places without room are one", () => {
  const { holders, cells } = matrixOf(report, 2);
  assert.deepEqual(holders, ["transfer [prog]", OTHERS]);
  assert.deepEqual(cells, [[85, 10], [0, 5]]);
  assert.equal(cells.flat().reduce((a, b) => a + b), 100);
});

test("flames of either end are as wide as what they stand for", () => {
  for (const end of ["holder", "waiter"]) {
    const flames = flamesOf(report, end);
    for (const depth of [0, 1, 2, 3]) {
      const row = flames.filter((flame) => flame.depth === depth);
      assert.equal(row.reduce((sum, { ns }) => sum + ns, 0), 100, `${end} ${depth}`);
      for (const { left, right, ns } of row) assert.ok(Math.abs(right - left - ns / 100) < 1e-9);
    }
  }
  const first = (end) => flamesOf(report, end).find(({ depth }) => depth === 1);
  assert.deepEqual([first("holder").name, first("holder").ns], ["held in transfer [prog]", 85]);
  assert.deepEqual([first("waiter").name, first("waiter").ns], ["waited in audit [prog]", 95]);
  assert.deepEqual(flamesOf({ ...report, classes: [] }, "holder"), []);
});

test("rows are classes, each with its places", () => {
  assert.deepEqual(rowsOf(report).map(({ name, of }) => [name, of]), [
    ["accounts (mutex)", null], ["lock in transfer (two.c:9)", "accounts"], ["journal (rwlock, 3 of them)", null],
    ["ready (condition, many of them)", null]]);
  assert.deepEqual(report.classes.map(contentionOf), [0.4, 1, 0]);
  assert.equal(placeText(place("f", "a.c:1")), "f (a.c:1)");
});

test("convoys stand by how long they lasted", () => {
  const lock = (name, lasted_ns) => ({ name, kind: "mutex", convoy: { lasted_ns, releases: 3, hand_overs: 2 } });
  const classes = [...report.classes, lock("short", 5), lock("long", 50)];
  assert.deepEqual(convoysOf({ ...report, classes }).map(({ name }) => name), ["long", "short"]);
  assert.deepEqual(convoysOf(report), []);
});
