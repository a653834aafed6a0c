// A histogram of durations on a logarithmic scale, on which one brushes.

import { make } from "./dom.js";
import { count, duration } from "./format.js";

/** @typedef {import("./vendor/uplot/uPlot.d.ts")} UPlot */
/** @typedef {import("./colours.js").Palette} Palette */

/**
 * The library, which is a script of its own.
 * @type {typeof import("./vendor/uplot/uPlot.d.ts")}
 */
const Plot = Reflect.get(globalThis, "uPlot");

export class Histogram {
  /**
   * @param {string} what what is counted
   * @param {(brushed: [number, number]|null) => void} chosen gets the durations that are brushed
   */
  constructor(what, chosen) {
    this.what = what;
    this.chosen = chosen;
    this.place = make("div", { class: "histogram", role: "img" });
    /** @type {UPlot|null} */
    this.plot = null;
    /** @type {Palette|null} */
    this.palette = null;
    /** @type {[Map<number, number>, number, string]|null} */
    this.shown = null;
    /** @type {[number, number]|null} durations that are brushed */
    this.brushed = null;
    new ResizeObserver(() => this.resize()).observe(this.place);
  }

  /** @param {Palette} palette */
  setPalette(palette) {
    this.palette = palette;
    if (this.shown) this.show(...this.shown);
  }

  size() {
    return { width: Math.max(this.place.clientWidth, 120), height: Math.max(this.place.clientHeight, 90) };
  }

  resize() {
    if (this.plot && this.place.isConnected) this.plot.setSize(this.size());
  }

  /** @param {[number, number]|null} brushed */
  setBrushed(brushed) {
    this.brushed = brushed;
    this.mark();
  }

  /** Marks what is brushed. */
  mark() {
    const { plot, brushed } = this;
    if (!plot) return;
    const [left, right] = (brushed ?? [1, 1]).map((ns) => plot.valToPos(Math.log2(Math.max(ns, 1)), "x"));
    const select = { left: left ?? 0, width: (right ?? 0) - (left ?? 0), top: 0, height: plot.over.clientHeight };
    plot.setSelect(brushed ? select : { ...select, left: 0, width: 0 }, false);
  }

  /**
   * @param {Map<number, number>} sums by bar: the logarithm of the duration times `perDoubling`
   * @param {number} perDoubling bars for each doubling
   * @param {string} label
   */
  show(sums, perDoubling, label) {
    this.shown = [sums, perDoubling, label];
    const { palette } = this;
    if (!palette || !sums.size) return;
    const first = Math.min(...sums.keys()) - 1;
    const last = Math.max(...sums.keys()) + 1;
    const x = [];
    const y = [];
    for (let bar = first; bar <= last; bar++) {
      x.push(bar / perDoubling);
      y.push(sums.get(bar) ?? null);
    }
    const most = Math.max(...sums.values(), 1);
    const axis = { stroke: palette.css("soft"), font: "11px Inter, system-ui, sans-serif", ticks: { stroke: palette.css("line"), size: 4 } };
    const paths = Plot.paths.bars?.({ size: [0.86, 200], align: 1 });
    this.plot?.destroy();
    this.plot = new Plot({
      ...this.size(), padding: [8, 12, 0, 0], legend: { show: false },
      cursor: { y: false, points: { show: false }, drag: { x: true, y: false, setScale: false } },
      scales: { x: { time: false, range: [x[0] ?? 0, (x[x.length - 1] ?? 0) + 1 / perDoubling] }, y: { distr: 3, range: [0.6, most * 1.6] } },
      axes: [
        { ...axis, grid: { show: false }, size: 28, splits: (_, __, low, high) => decades(low, high),
          values: (_, marks) => marks.map((mark) => duration(Math.round(2 ** mark)).replace(/\.0+ /, " ")) },
        { ...axis, grid: { stroke: palette.css("line"), width: 1 }, size: 56,
          splits: () => tens(most * 1.6), filter: (_, marks) => marks,
          values: (_, marks) => marks.map((mark) => count(mark)) },
      ],
      series: [{}, { stroke: palette.css("accent"), fill: palette.css("accent"), width: 0, points: { show: false }, ...(paths ? { paths } : {}) }],
      // Where a duration lies is known when it is drawn, and changes with the plot's width.
      hooks: { draw: [() => this.mark()], setSelect: [(plot) => {
        const { left, width } = plot.select;
        const at = (/** @type {number} */ pixels) => 2 ** plot.posToVal(pixels, "x");
        this.chosen(width < 2 ? null : [Math.floor(at(left)), Math.ceil(at(left + width))]);
      }] },
    }, [x, y], this.place);
    this.place.setAttribute("aria-label", `${label}. Drag to list the ${this.what} of a part.`);
  }
}

/** Powers of ten up to a number. @param {number} most */
function tens(most) {
  const marks = [];
  for (let mark = 1; mark <= most; mark *= 10) marks.push(mark);
  return marks;
}

/** Powers of ten, and steps between them where few fit. @param {number} low @param {number} high */
function decades(low, high) {
  const marks = [];
  const steps = high - low < 4 ? [1, 1.5, 2, 3, 5, 7] : high - low < 8 ? [1, 2, 5] : [1];
  for (let power = Math.floor(low / Math.log2(10)); power <= high / Math.log2(10); power++) {
    for (const step of steps) {
      const mark = Math.log2(10 ** power * step);
      if (mark >= low && mark <= high) marks.push(mark);
    }
  }
  return marks;
}
