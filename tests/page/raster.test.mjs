// Pixels of a line.

import assert from "node:assert/strict";
import { test } from "node:test";

globalThis.ImageData = class {
  constructor(width, height) {
    this.data = new Uint8ClampedArray(4 * width * height);
  }
};
const { Raster, mixed } = await import("../../ui/raster.js");

const BACK = 0xff000000;
const INK = 0xffffffff;

function pieces(...spans) {
  return {
    count: spans.length,
    start: Float64Array.from(spans, ([start]) => start),
    end: Float64Array.from(spans, ([, end]) => end),
    spans: Uint32Array.from(spans, ([, , spans = 1]) => spans),
    filled: Uint8Array.from(spans, () => 255),
  };
}

test("colours mix from one end to the other, and stay opaque", () => {
  assert.equal(mixed(BACK, INK, 0), BACK);
  assert.equal(mixed(BACK, INK, 1), INK);
  for (let share = 0; share <= 1; share += 0.05) assert.equal(mixed(BACK, INK, share) >>> 24, 255);
});

test("a piece fills the pixels that it covers and no others", () => {
  const raster = new Raster(100, 1);
  raster.pieces(pieces([20, 50]), 0, 1, BACK, () => INK);
  const inked = [...raster.line.keys()].filter((x) => raster.line[x] !== BACK);
  assert.deepEqual([inked[0], inked.at(-1), inked.length], [20, 49, 30]);
});

test("what has no length, and what is smaller than a pixel, can be seen", () => {
  for (const span of [[50, 50], [50, 50.01], [50, 50.2, 7]]) {
    const raster = new Raster(100, 1);
    raster.pieces(pieces(span), 0, 1, BACK, () => INK);
    assert.notEqual(raster.line[50], BACK, String(span));
  }
});

test("pieces beyond either edge are cut there", () => {
  const raster = new Raster(10, 1);
  raster.pieces(pieces([-100, 1000]), 0, 1, BACK, () => INK);
  assert.ok(raster.line.every((pixel) => pixel !== BACK));
  raster.pieces(pieces([-100, -1], [10, 20]), 0, 1, BACK, () => INK);
  assert.ok(raster.line.every((pixel) => pixel === BACK));
});

test("a line is repeated within the picture only", () => {
  const raster = new Raster(4, 4);
  raster.clear(BACK);
  raster.line.fill(INK);
  raster.put(-3, 2);
  assert.deepEqual([...raster.pixels].map((pixel) => pixel === INK), [...Array(8).fill(true), ...Array(8).fill(false)]);
  raster.put(3, 99);
  assert.equal(raster.pixels.filter((pixel) => pixel === INK).length, 12);
});
