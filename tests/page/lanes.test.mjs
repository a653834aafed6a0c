// Which threads have rows, and in which order.

import assert from "node:assert/strict";
import { test } from "node:test";

import { PINNED, chosenLanes, names, processes } from "../../ui/lanes.js";

const thread = (index, pid, tid, name, events = 1) =>
  ({ index, pid, tid, name, calls: 0, events, off_cpu: false });
const THREADS = [
  thread(0, 7, 7, "mariadbd"), thread(1, 9, 9, "nginx"), thread(2, 7, 8, "signals", 0), thread(3, 0, 44, "ksoftirqd"),
];
const shown = (view) =>
  chosenLanes(THREADS, { lanes: "", busy: false, pinned: [], ...view })
    .map(({ key, threads }) => [key, ...threads.map(({ index }) => index)]);

test("threads stand by their process", () => {
  const found = processes(THREADS).map(({ key, name }) => [key, name]);
  assert.deepEqual(found, [["7", "mariadbd"], ["9", "nginx"], ["others", "not recorded"]]);
  assert.deepEqual(shown({}), [["7", 0, 2], ["9", 1], ["others", 3]]);
});

test("a filter takes whole processes, or threads by name or number", () => {
  assert.deepEqual(shown({ lanes: "MARIA" }), [["7", 0, 2]]);
  assert.deepEqual(shown({ lanes: "sign 9" }), [["7", 2], ["9", 1]]);
  assert.deepEqual(shown({ lanes: "nothing" }), []);
  assert.deepEqual(shown({ busy: true }), [["7", 0], ["9", 1], ["others", 3]]);
});

test("what is pinned stands above, once", () => {
  assert.deepEqual(shown({ pinned: [2, 99] }), [[PINNED, 2], ["7", 0], ["9", 1], ["others", 3]]);
});

test("processes are found by name, with all their threads", () => {
  const found = names(THREADS).find(({ name }) => name === "mariadbd");
  assert.deepEqual(found, { name: "mariadbd", what: "process", threads: [0, 2] });
});
