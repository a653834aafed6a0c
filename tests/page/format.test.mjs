// Numbers as people read them.

import assert from "node:assert/strict";
import { test } from "node:test";

import { count, duration, moment, niceStep, percent, plural } from "../../ui/format.js";

test("durations have three significant digits and the unit that fits", () => {
  const expected = [
    [0, "0 ns"], [999, "999 ns"], [1000, "1.00 µs"], [9996, "10.0 µs"], [99_960, "100 µs"],
    [999_499, "999 µs"], [999_500, "1.00 ms"], [1_234_567_890, "1.23 s"], [4_321e9, "4,321 s"],
  ];
  for (const [ns, text] of expected) assert.equal(duration(ns), text);
});

test("counts are grouped, and one is one", () => {
  assert.equal(count(1_234_567), "1,234,567");
  assert.deepEqual([plural(1, "call"), plural(0, "call"), plural(2, "entry", "entries")],
    ["1 call", "0 calls", "2 entries"]);
});

test("a share that is none is a dash", () => {
  assert.deepEqual([percent(0.1234), percent(NaN), percent(1 / 0)], ["12.3 %", "–", "–"]);
});

test("marks are 1, 2 or 5 times a power of ten apart, never less than wanted", () => {
  for (let wanted = 0.3; wanted < 1e12; wanted *= 1.37) {
    const step = niceStep(wanted);
    assert.ok(step >= wanted && step <= Math.max(wanted, 1) * 2.5 + 1, `${wanted} gives ${step}`);
    assert.match(String(step / 10 ** Math.floor(Math.log10(step) + 1e-9)), /^[125]/);
  }
});

test("neighbouring marks of a ruler never read the same", () => {
  for (const step of [1, 20, 500, 1e4, 2e5, 5e6, 1e8, 2e9]) {
    const marks = Array.from({ length: 50 }, (_, n) => moment(3e9 + n * step, step));
    assert.equal(new Set(marks).size, marks.length, `${step}: ${marks[0]}, ${marks[1]}`);
  }
});
