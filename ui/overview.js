// The strip on top: the whole recording, and which part of it the timelines show.

import { packed } from "./colours.js";
import { viewport, trackKey } from "./api.js";
import { byId, perFrame, sized } from "./dom.js";
import { REPORTED } from "./layout.js";
import { Raster } from "./raster.js";

/** @typedef {import("./types.js").Pieces} Pieces */
/** @typedef {import("./colours.js").Palette} Palette */

/** Threads shown at most; those with most calls and events. */
const THREADS_MAX = 14;
/** Depth of the calls that are shown; what threads do lies below their start routines. */
const DEPTH = 4;

/**
 * The row that is shown of a thread: of calls one, or what it did.
 * @param {import("./types.js").ThreadInfo} thread
 */
function rowOf({ depths }) {
  return depths ? Math.min(DEPTH, depths - 1) : REPORTED;
}

export class Overview {
  /**
   * @param {import("./state.js").State} state
   * @param {(error: unknown) => void} failed
   */
  constructor(state, failed) {
    this.state = state;
    this.canvas = byId("overview", HTMLCanvasElement);
    /** @type {Palette|null} */
    this.palette = null;
    /** @type {Map<string, Pieces>} */
    this.tracks = new Map();
    /** @type {Raster|null} */
    this.raster = null;
    this.threads = this.busiest();
    this.draw = perFrame(() => this.paint());
    state.listen((view, before) => {
      if (view.from !== before.from || view.to !== before.to || view.range !== before.range) this.draw();
    });
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    this.canvas.addEventListener("pointerdown", (event) => this.press(event));
    this.load().catch(failed);
    state.whenGrown(() => {
      this.threads = this.busiest();
      this.load().catch(failed);
    });
  }

  busiest() {
    const busy = (/** @type {import("./types.js").ThreadInfo} */ { calls, events }) => calls + events;
    const busiest = [...this.state.trace.threads].sort((a, b) => busy(b) - busy(a)).slice(0, THREADS_MAX);
    return busiest.sort((a, b) => a.index - b.index);
  }

  /** @param {Palette} palette */
  setPalette(palette) {
    this.palette = palette;
    this.draw();
  }

  async load() {
    const bits = Math.max(0, Math.floor(Math.log2(this.state.end / 1500)));
    const wanted = this.threads.map((thread) => `${thread.index}:${rowOf(thread)}-${rowOf(thread) + 1}`);
    const tracks = await viewport(0, this.state.end, bits, wanted.join(","));
    for (const thread of this.threads) {
      const pieces = tracks.get(trackKey(thread.index, rowOf(thread)));
      if (pieces) this.tracks.set(String(thread.index), pieces);
    }
    this.draw();
  }

  paint() {
    const { palette, state } = this;
    if (!palette || !this.canvas.clientWidth) return;
    const { context, width, height, ratio } = sized(this.canvas);
    if (!this.raster || this.raster.width !== width || this.raster.height !== height) {
      this.raster = new Raster(width, height);
    }
    const back = packed(palette.back);
    this.raster.clear(back);
    const scale = width / state.end;
    const each = (height - 8 * ratio) / Math.max(this.threads.length, 1);
    this.threads.forEach((thread, at) => {
      const pieces = this.tracks.get(String(thread.index));
      if (!pieces || !this.raster) return;
      this.raster.pieces(pieces, 0, scale, back, (piece) => palette.labels[pieces.label[piece] ?? 0] ?? back);
      const top = Math.round(4 * ratio + at * each);
      this.raster.put(top, Math.round(4 * ratio + (at + 1) * each - Math.min(2, each / 4)));
    });
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.putImageData(this.raster.image, 0, 0);
    const { from, to, range } = state.view;
    context.fillStyle = palette.css("back");
    context.globalAlpha = 0.45;
    context.fillRect(0, 0, from * scale, height);
    context.fillRect(to * scale, 0, width - to * scale, height);
    context.globalAlpha = 1;
    context.fillStyle = palette.css("accent");
    const left = Math.min(from * scale, width - 3);
    const right = Math.max(to * scale, left + 3);
    if (from > 0 || to < state.end) {
      context.fillRect(left, 0, 1.5 * ratio, height);
      context.fillRect(right - 1.5 * ratio, 0, 1.5 * ratio, height);
      context.fillRect(left, 0, right - left, 2 * ratio);
    }
    if (range) {
      context.globalAlpha = 0.25;
      context.fillRect(range[0] * scale, 0, Math.max((range[1] - range[0]) * scale, 2), height);
      context.globalAlpha = 1;
    }
  }

  /** @param {PointerEvent} event */
  press(event) {
    const { canvas, state } = this;
    canvas.setPointerCapture(event.pointerId);
    const at = (/** @type {PointerEvent} */ { offsetX }) => (offsetX / canvas.clientWidth) * state.end;
    const begin = at(event);
    const { from, to } = state.view;
    const whole = to - from > state.end * 0.99;
    const moves = !whole && begin >= from && begin <= to;
    let moved = false;
    /** @param {PointerEvent} move */
    const drag = (move) => {
      const now = at(move);
      moved ||= Math.abs(move.offsetX - event.offsetX) > 3;
      if (!moved) return;
      if (moves) {
        const by = Math.max(Math.min(now - begin, state.end - to), -from);
        state.set({ from: from + by, to: to + by });
      } else state.set({ from: Math.min(begin, now), to: Math.max(begin, now) });
    };
    canvas.addEventListener("pointermove", drag);
    canvas.addEventListener("pointerup", () => {
      canvas.removeEventListener("pointermove", drag);
      if (!moved && !whole) state.set({ from: begin - (to - from) / 2, to: begin + (to - from) / 2 });
    }, { once: true });
  }
}
