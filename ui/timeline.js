// The timelines: rows of what each thread called, and of what events say about it, from the whole
// recording down to one call and one event.
//
// What is drawn comes from the server as pieces for a window three screens wide, at the grain of
// the screen's pixels. Panning draws from it without asking; the next window is fetched when the
// view comes near its edge. Times are absolute, so an old window is drawn rightly, only coarser,
// until the new one is there.

import { OFF_CPU, get, trackKey, viewport } from "./api.js";
import { packed } from "./colours.js";
import { byId, make, perFrame, sized } from "./dom.js";
import { count, duration, moment, niceStep, plural } from "./format.js";
import { chosenLanes } from "./lanes.js";
import { HEAD, ROW, RULER, STRIP, firstAfter, layOut, pieceAt, tracksOf, visible } from "./layout.js";
import { Raster, mixed } from "./raster.js";

/** @typedef {import("./types.js").Row} Row */
/** @typedef {import("./types.js").Pieces} Pieces */
/** @typedef {import("./types.js").CallId} CallId */
/** @typedef {import("./types.js").CallDetail} CallDetail */
/** @typedef {import("./types.js").ReportedDetail} ReportedDetail */
/** @typedef {import("./colours.js").Palette} Palette */
/** @typedef {import("./state.js").State} State */
/** @typedef {{row: Row, pieces: Pieces, at: number}} Hit */

/** Pieces narrower than this have no name, in CSS pixels. */
const NAMED = 34;
/** How near the pointer must come to something narrow, in CSS pixels. */
const REACH = 3;
/** Of the view's width, how far the window reaches beyond it on each side. */
const MARGIN = 1;
const WAITED = 0;
/** Width of the place at the end of a thread's name's row that pins it, with that of the scroll bar, in CSS pixels. */
const PIN = 44;

/** What a request is called in one word or two. @param {{id: number, class: string}} request */
export function requestName({ id, class: name }) {
  return `#${id} ${name}`.trim();
}

export class Timeline {
  /**
   * @param {State} state
   * @param {(error: unknown) => void} failed
   */
  constructor(state, failed) {
    this.state = state;
    this.failed = failed;
    this.canvas = byId("timeline", HTMLCanvasElement);
    this.scroller = byId("scroll", HTMLElement);
    this.tip = byId("tip", HTMLElement);
    /** @type {Set<number>} */
    this.folded = new Set();
    /** Processes of which only the name is shown. @type {Set<string>} */
    this.closed = new Set();
    this.layout = this.laidOut();
    /** What is looked for in names. */
    this.query = "";
    /** What the chosen request did on each thread: from when until when. @type {Map<number, [number, number][]>} */
    this.ofRequest = new Map();
    this.requestName = "";
    /** @type {Map<string, Pieces>} */
    this.tracks = new Map();
    this.window = { from: 0, to: 0, bits: 0, tracks: "" };
    this.asking = false;
    /** @type {Palette|null} */
    this.palette = null;
    /** @type {Raster|null} */
    this.raster = null;
    /** @type {Set<number>|null} labels that are looked for */
    this.found = null;
    /** @type {Map<number, number>} widths of names in CSS pixels */
    this.widths = new Map();
    this.frames = 0;
    this.draw = perFrame(() => this.paint());
    state.whenGrown(() => {
      // What is drawn stays until the new window is there.
      this.window = { from: 0, to: 0, bits: -1, tracks: "" };
      this.widths.clear();
      this.refold();
    });
    this.listen();
    this.fit();
  }

  /** @param {Palette} palette */
  setPalette(palette) {
    this.palette = palette;
    this.widths.clear();
    this.draw();
  }

  /** @param {Set<number>|null} labels @param {string} query what is looked for in names of threads */
  setFound(labels, query) {
    this.found = labels;
    this.query = query;
    this.draw();
  }

  /**
   * Shows which threads worked for a request, and when.
   * @param {string} name @param {Map<number, [number, number][]>} stretches by index of the thread
   */
  setRequest(name, stretches) {
    this.requestName = name;
    this.ofRequest = stretches;
    this.draw();
  }

  laidOut() {
    const { trace, view } = this.state;
    return layOut(chosenLanes(trace.threads, view), this.folded, this.closed);
  }

  /** Nanoseconds of a CSS pixel. */
  get perPixel() {
    const { from, to } = this.state.view;
    return (to - from) / Math.max(this.canvas.clientWidth, 1);
  }

  /** @param {number} x CSS pixels from the left edge */
  timeAt(x) {
    return this.state.view.from + x * this.perPixel;
  }

  /** Lets the scroll bar have the height of all rows. */
  fit() {
    byId("extent", HTMLElement).style.height = `${this.layout.height + 12}px`;
  }

  /** Scrolls so that a call's row can be seen. @param {CallId} call */
  reveal({ thread, depth }) {
    this.uncover(thread, true);
    const row = this.layout.rows.find((row) => row.thread.index === thread && row.depth === depth);
    if (!row) return;
    const height = this.canvas.clientHeight - RULER;
    const { scroll } = this.state.view;
    if (row.top < scroll + HEAD || row.top + row.height > scroll + height) {
      this.state.set({ scroll: Math.max(0, row.top - height / 3) });
    }
  }

  /** Scrolls to a thread. @param {number} tid */
  revealThread(tid) {
    const known = this.state.trace.threads.find((thread) => thread.tid === tid);
    if (known) this.revealIndex(known.index);
  }

  /** Scrolls to a thread. @param {number} index */
  revealIndex(index) {
    this.uncover(index, false);
    const row = this.layout.rows.find(({ kind, thread }) => kind === "thread" && thread.index === index);
    if (row) this.state.set({ scroll: Math.min(row.top, this.mostScroll()) });
  }

  /** How far down one can scroll, in CSS pixels. */
  mostScroll() {
    return Math.max(0, this.layout.height + 12 - (this.canvas.clientHeight - RULER));
  }

  /** Lets a thread have a row, whatever hides it. @param {number} index @param {boolean} whole with all of its rows */
  uncover(index, whole) {
    const has = (/** @type {import("./types.js").Lane} */ lane) => lane.threads.some((thread) => thread.index === index);
    if (!chosenLanes(this.state.trace.threads, this.state.view).some(has)) this.state.set({ lanes: "", busy: false });
    const lane = chosenLanes(this.state.trace.threads, this.state.view).find(has);
    const opened = lane !== undefined && this.closed.delete(lane.key);
    if ((whole && this.folded.delete(index)) || opened) this.refold();
  }

  /** Pins a thread to the top, or lets it go. @param {number} index */
  pin(index) {
    const { pinned } = this.state.view;
    this.state.set({ pinned: pinned.includes(index) ? pinned.filter((other) => other !== index) : [...pinned, index] });
  }

  refold() {
    this.layout = this.laidOut();
    this.fit();
    this.draw();
  }

  // Data.

  /** Fetches what the view needs, one window at a time, the newest one last. */
  async fetch() {
    const { from, to, scroll } = this.state.view;
    const height = this.canvas.clientHeight;
    const wide = visible(this.layout.rows, scroll - height / 2, scroll + height * 1.5);
    const tracks = tracksOf(wide);
    const ratio = window.devicePixelRatio || 1;
    const bits = Math.max(0, Math.round(Math.log2(this.perPixel / ratio)));
    const known = this.window;
    const inside = from >= known.from && to <= known.to;
    const seen = visible(this.layout.rows, scroll, scroll + height);
    const all = seen.every((row) => this.tracks.has(trackKey(row.thread.index, row.depth < 0 ? OFF_CPU : row.depth)));
    if (this.asking || !tracks || (inside && all && known.bits === bits)) return;
    this.asking = true;
    try {
      const width = to - from;
      const start = Math.max(0, Math.floor(from - width * MARGIN));
      const end = Math.min(this.state.end, Math.ceil(to + width * MARGIN));
      this.tracks = await viewport(start, end, bits, tracks);
      this.window = {
        from: start <= 0 ? -Infinity : start, to: end >= this.state.end ? Infinity : end, bits, tracks,
      };
    } catch (error) {
      this.failed(error);
      return;
    } finally {
      this.asking = false;
    }
    this.draw();
  }

  // Drawing.

  paint() {
    const { palette } = this;
    if (!palette || !this.canvas.clientWidth) return;
    void this.fetch();
    const { context, width, height, ratio } = sized(this.canvas);
    if (!this.raster || this.raster.width !== width || this.raster.height !== height) {
      this.raster = new Raster(width, height);
    }
    const { view } = this.state;
    const rows = visible(this.layout.rows, view.scroll, view.scroll + this.canvas.clientHeight);
    this.fill(rows, this.raster, palette, ratio);
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.putImageData(this.raster.image, 0, 0);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.write(context, rows, palette);
    this.ruler(context, palette);
    this.mark(context, palette);
    this.frames++;
    this.canvas.dataset["frames"] = String(this.frames);
    window.clearTimeout(this.describing);
    this.describing = window.setTimeout(() => this.describe(), 300);
  }

  /**
   * @param {Row[]} rows @param {Raster} raster @param {Palette} palette @param {number} ratio
   */
  fill(rows, raster, palette, ratio) {
    const { view } = this.state;
    const back = packed(palette.back);
    const scale = ratio / this.perPixel;
    const colours = this.colours(palette);
    const strip = [palette.wait, palette.preempt].map(packed);
    const run = packed(palette.run);
    raster.clear(back);
    for (const row of rows) {
      const top = Math.round((RULER + row.top - view.scroll) * ratio);
      const off = this.tracks.get(trackKey(row.thread.index, OFF_CPU));
      if (row.kind === "process") continue;
      if (row.kind === "thread") {
        const bottom = top + Math.round((HEAD - 3) * ratio);
        if (!off || !row.thread.off_cpu) continue;
        raster.pieces(off, view.from, scale, run, (at) => strip[off.label[at] ?? 0] ?? back);
        this.unborn(row, raster, scale, back);
        raster.put(bottom - STRIP * ratio, bottom);
        continue;
      }
      const pieces = this.tracks.get(trackKey(row.thread.index, row.depth));
      if (!pieces) continue;
      raster.pieces(pieces, view.from, scale, back, (at) => colours[pieces.label[at] ?? 0] ?? back);
      if (off && row.kind === "calls") raster.fade(off, view.from, scale, back, 0.45);
      raster.put(top, top + Math.round((ROW - 1) * ratio));
    }
  }

  /**
   * Leaves the strip empty before a thread began and after it ended.
   * @param {Row} row @param {Raster} raster @param {number} scale @param {number} back
   */
  unborn({ thread }, raster, scale, back) {
    const { from } = this.state.view;
    const left = Math.round((thread.start_ns - from) * scale);
    const right = Math.round((Math.max(thread.end_ns, thread.start_ns) - from) * scale);
    if (left > 0) raster.line.fill(back, 0, Math.min(left, raster.width));
    if (right < raster.width) raster.line.fill(back, Math.max(right, 0));
  }

  /** Colours by label; what is not looked for is pale. @param {Palette} palette */
  colours(palette) {
    const wanted = this.wanted();
    if (!wanted) return palette.labels;
    const back = packed(palette.back);
    return palette.labels.map((colour, label) => wanted.has(label) ? colour : mixed(colour, back, 0.72));
  }

  /** Labels that stand out, if some do. */
  wanted() {
    const { label } = this.state.view;
    return this.found ?? (label === null ? null : new Set([label]));
  }

  /**
   * @param {CanvasRenderingContext2D} context @param {Row[]} rows @param {Palette} palette
   */
  write(context, rows, palette) {
    const { view, trace } = this.state;
    const wide = this.canvas.clientWidth;
    const scale = 1 / this.perPixel;
    const wanted = this.wanted();
    context.textBaseline = "alphabetic";
    for (const row of rows) {
      const top = RULER + row.top - view.scroll;
      if (row.kind === "process") {
        this.process(context, row, top, palette);
        continue;
      }
      if (row.kind === "thread") {
        this.head(context, row, top, palette);
        this.request(context, row, top, palette);
        continue;
      }
      const pieces = this.tracks.get(trackKey(row.thread.index, row.depth));
      if (!pieces) continue;
      context.font = "11px Inter, 'Segoe UI', system-ui, sans-serif";
      // What has no length has its name behind it.
      const event = trace.labels[pieces.label[0] ?? -1]?.what === "event";
      context.fillStyle = event ? palette.css("text") : palette.ink;
      const shortest = NAMED * this.perPixel;
      for (let at = firstAfter(pieces, view.from); at < pieces.count; at++) {
        const start = /** @type {number} */ (pieces.start[at]);
        if (start >= view.to) break;
        const end = event ? pieces.start[at + 1] ?? view.to : /** @type {number} */ (pieces.end[at]);
        if (end - start < shortest || pieces.spans[at] !== 1) continue;
        const left = Math.max((start - view.from) * scale, 0);
        const room = Math.min((end - view.from) * scale, wide) - left - 8;
        if (room < NAMED - 8) continue;
        const label = /** @type {number} */ (pieces.label[at]);
        const name = this.fitted(context, label, trace.labels[label]?.name ?? "?", room);
        if (!name) continue;
        context.globalAlpha = !wanted || wanted.has(label) ? 1 : 0.45;
        context.fillText(name, left + 4, top + 12.5);
      }
      context.globalAlpha = 1;
    }
  }

  /**
   * A name as far as there is room for it.
   * @param {CanvasRenderingContext2D} context @param {number} label @param {string} name
   * @param {number} room CSS pixels
   */
  fitted(context, label, name, room) {
    let width = this.widths.get(label);
    if (width === undefined) {
      width = context.measureText(name).width;
      this.widths.set(label, width);
    }
    if (width <= room) return name;
    const letters = Math.floor((room - 8) / (width / name.length));
    return letters < 2 ? "" : `${name.slice(0, letters)}…`;
  }

  /**
   * @param {CanvasRenderingContext2D} context @param {Row} row @param {number} top
   * @param {Palette} palette
   */
  head(context, { thread, inset }, top, palette) {
    context.fillStyle = palette.css("line");
    context.fillRect(0, top, this.canvas.clientWidth, 1);
    const name = thread.name || (thread.pid || thread.calls ? `thread ${thread.index}` : "not recorded");
    const after = this.title(context, name, this.folded.has(thread.index), inset, top, palette);
    const pinned = this.state.view.pinned.includes(thread.index);
    const pin = this.canvas.clientWidth - PIN / 2;
    context.beginPath();
    context.moveTo(pin, top + 6), context.lineTo(pin + 5, top + 11), context.lineTo(pin, top + 16), context.lineTo(pin - 5, top + 11);
    context.closePath();
    context.lineWidth = 1;
    context.strokeStyle = palette.css("soft");
    context.fillStyle = palette.css("accent");
    if (pinned) context.fill();
    else context.stroke();
    context.fillStyle = palette.css("soft");
    const parts = [thread.tid ? `tid ${thread.tid}` : ""];
    if (thread.calls) parts.push(plural(thread.calls, "call"));
    if (thread.events) parts.push(plural(thread.events, "event"));
    if (thread.cpu_ns !== null) parts.push(`${duration(thread.cpu_ns)} CPU`);
    if (thread.lost) parts.push(`${count(thread.lost)} lost`);
    if (!thread.calls && !thread.events) parts.push("nothing recorded");
    context.fillText(parts.filter(Boolean).join("  ·  "), after, top + 15);
  }

  /**
   * A name that folds what is below it. Returns where it ends.
   * @param {CanvasRenderingContext2D} context @param {string} name @param {boolean} folded @param {number} inset
   * @param {number} top @param {Palette} palette
   */
  title(context, name, folded, inset, top, palette) {
    context.fillStyle = palette.css("soft");
    context.beginPath();
    const [x, y] = [inset + 9, top + 11];
    if (folded) context.moveTo(x - 2, y - 4), context.lineTo(x + 3, y), context.lineTo(x - 2, y + 4);
    else context.moveTo(x - 4, y - 2), context.lineTo(x, y + 3), context.lineTo(x + 4, y - 2);
    context.fill();
    context.font = "600 11.5px Inter, 'Segoe UI', system-ui, sans-serif";
    const found = this.query !== "" && name.toLowerCase().includes(this.query);
    context.fillStyle = palette.css(found ? "accent" : "text");
    context.fillText(name, inset + 19, top + 15);
    const after = inset + 19 + context.measureText(name).width + 10;
    context.font = "11px Inter, 'Segoe UI', system-ui, sans-serif";
    return after;
  }

  /**
   * A process above its threads.
   * @param {CanvasRenderingContext2D} context @param {Row} row @param {number} top @param {Palette} palette
   */
  process(context, { lane }, top, palette) {
    context.fillStyle = palette.css("raised");
    context.fillRect(0, top, this.canvas.clientWidth, HEAD - 3);
    context.fillStyle = palette.css("line");
    context.fillRect(0, top, this.canvas.clientWidth, 1);
    const after = this.title(context, lane.name, this.closed.has(lane.key), 0, top, palette);
    const sum = (/** @type {"calls"|"events"} */ what) => lane.threads.reduce((sum, thread) => sum + thread[what], 0);
    context.fillStyle = palette.css("soft");
    context.fillText([
      lane.pid ? `pid ${lane.pid}` : "", plural(lane.threads.length, "thread"),
      sum("calls") ? plural(sum("calls"), "call") : "", sum("events") ? plural(sum("events"), "event") : "",
    ].filter(Boolean).join("  ·  "), after, top + 15);
  }

  /**
   * When a thread worked for the chosen request.
   * @param {CanvasRenderingContext2D} context @param {Row} row @param {number} top @param {Palette} palette
   */
  request(context, { thread }, top, palette) {
    const stretches = this.ofRequest.get(thread.index);
    if (!stretches) return;
    const { from } = this.state.view;
    const wide = this.canvas.clientWidth;
    context.fillStyle = palette.css("accent");
    let named = false;
    for (const [begin, end] of stretches) {
      const left = Math.max((begin - from) / this.perPixel, 0);
      const right = Math.min((end - from) / this.perPixel, wide);
      if (right < 0 || left > wide || right < left) continue;
      context.fillRect(left, top + HEAD - 5, Math.max(right - left, 2), 4);
      if (named || left < 260) continue;
      context.fillText(this.requestName, left, top + HEAD - 8);
      named = true;
    }
  }

  /** @param {CanvasRenderingContext2D} context @param {Palette} palette */
  ruler(context, palette) {
    const { from, to, range } = this.state.view;
    const wide = this.canvas.clientWidth;
    const scale = 1 / this.perPixel;
    context.fillStyle = palette.css("raised");
    context.fillRect(0, 0, wide, RULER - 1);
    context.fillStyle = palette.css("line");
    context.fillRect(0, RULER - 1, wide, 1);
    const step = niceStep((to - from) / (wide / 110));
    context.font = "11px Inter, 'Segoe UI', system-ui, sans-serif";
    for (let mark = Math.ceil(from / step) * step; mark < to; mark += step) {
      const x = Math.round((mark - from) * scale);
      context.fillStyle = palette.css("line");
      context.fillRect(x, RULER - 8, 1, 7);
      context.fillStyle = palette.css("soft");
      const text = moment(mark, step);
      if (x + context.measureText(text).width + 8 < wide) context.fillText(text, x + 4, 16);
    }
    if (range) {
      const left = (range[0] - from) * scale;
      const right = (range[1] - from) * scale;
      context.fillStyle = palette.css("accent");
      context.globalAlpha = 0.14;
      context.fillRect(left, 0, right - left, this.canvas.clientHeight);
      context.globalAlpha = 1;
      context.fillRect(left, 0, 1, this.canvas.clientHeight);
      context.fillRect(right, 0, 1, this.canvas.clientHeight);
      const text = duration(range[1] - range[0]);
      const width = context.measureText(text).width + 12;
      const middle = Math.min(Math.max((left + right) / 2, width / 2), wide - width / 2);
      if (right > 0 && left < wide) {
        context.fillRect(middle - width / 2, 4, width, 17);
        context.fillStyle = palette.css("back");
        context.fillText(text, middle - width / 2 + 6, 16.5);
      }
    }
  }

  /** Outlines the selected call. @param {CanvasRenderingContext2D} context @param {Palette} palette */
  mark(context, palette) {
    const { call, from, scroll } = this.state.view;
    const span = this.marked;
    if (!call || !span) return;
    const row = this.layout.rows.find((row) => row.thread.index === call.thread && row.depth === call.depth);
    if (!row) return;
    const scale = 1 / this.perPixel;
    const left = Math.max((span.start_ns - from) * scale, -4);
    // What has no length is drawn two pixels wide.
    const length = Math.max(span.duration_ns, 2 * this.perPixel);
    const right = Math.min((span.start_ns + length - from) * scale, this.canvas.clientWidth + 4);
    const top = RULER + row.top - scroll;
    if (top < RULER || right < 0 || left > this.canvas.clientWidth) return;
    context.strokeStyle = palette.css("text");
    context.lineWidth = 1.5;
    context.strokeRect(left, top - 0.5, Math.max(right - left, 2), ROW - 0.5);
  }

  /** @type {{label: number, start_ns: number, duration_ns: number}|null} function and times of the selected call */
  marked = null;

  // Pointing.

  /** @param {number} x @param {number} y @returns {Hit|null} */
  hit(x, y) {
    const at = y - RULER + this.state.view.scroll;
    const row = y < RULER ? undefined : visible(this.layout.rows, at, at + 1)[0];
    if (!row || at < row.top || at >= row.top + row.height) return null;
    if (row.kind === "process") return null;
    const depth = row.kind === "thread" ? OFF_CPU : row.depth;
    if (depth === OFF_CPU && (at < row.top + HEAD - STRIP - 5 || !row.thread.off_cpu)) return null;
    const pieces = this.tracks.get(trackKey(row.thread.index, depth));
    if (!pieces) return null;
    const piece = pieceAt(pieces, this.timeAt(x), REACH * this.perPixel);
    return piece < 0 ? null : { row, pieces, at: piece };
  }

  listen() {
    const { canvas, state, scroller } = this;
    new ResizeObserver(() => this.draw()).observe(canvas);
    state.listen((view, before) => {
      if (view.lanes !== before.lanes || view.busy !== before.busy || view.pinned !== before.pinned) this.refold();
      if (view.scroll !== before.scroll && Math.abs(scroller.scrollTop - view.scroll) > 1) {
        scroller.scrollTop = view.scroll;
      }
      this.draw();
    });
    scroller.addEventListener("scroll", () => {
      if (Math.abs(scroller.scrollTop - state.view.scroll) > 1) state.set({ scroll: scroller.scrollTop });
    });
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.press(event));
    canvas.addEventListener("pointermove", (event) => {
      if (!event.buttons) this.point(event.offsetX, event.offsetY);
    });
    canvas.addEventListener("pointerleave", () => this.untip());
    canvas.addEventListener("dblclick", (event) => {
      const hit = this.hit(event.offsetX, event.offsetY);
      if (hit) state.show(Number(hit.pieces.start[hit.at]), Number(hit.pieces.end[hit.at]));
    });
  }

  /** @param {WheelEvent} event */
  wheel(event) {
    event.preventDefault();
    const { state } = this;
    const unit = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
    const [dx, dy] = [event.deltaX * unit, event.deltaY * unit];
    if (event.ctrlKey || event.metaKey) {
      state.zoom(Math.exp(Math.max(-120, Math.min(120, dy)) * 0.004), this.timeAt(event.offsetX));
    } else if (event.shiftKey || Math.abs(dx) > Math.abs(dy)) {
      this.pan(event.shiftKey ? dx || dy : dx);
    } else {
      this.scrollBy(dy);
    }
    this.untip();
  }

  /** Goes along and zooms. @param {number} share of the view's width @param {number} times that it becomes wider */
  move(share, times) {
    const { from, to } = this.state.view;
    if (share) this.pan((share * (to - from)) / this.perPixel);
    if (times !== 1) this.state.zoom(times, (from + to) / 2);
  }

  /** @param {number} pixels */
  pan(pixels) {
    const { from, to } = this.state.view;
    const ns = Math.max(Math.min(pixels * this.perPixel, this.state.end - to), -from);
    this.state.set({ from: from + ns, to: to + ns });
  }

  /** @param {number} pixels */
  scrollBy(pixels) {
    const { scroll } = this.state.view;
    this.state.set({ scroll: Math.max(0, Math.min(scroll + pixels, this.mostScroll())) });
  }

  /** @param {PointerEvent} event */
  press(event) {
    if (event.button !== 0) return;
    const { canvas, state } = this;
    canvas.focus({ preventScroll: true });
    canvas.setPointerCapture(event.pointerId);
    const selects = event.shiftKey || event.offsetY < RULER;
    const begin = this.timeAt(event.offsetX);
    let [x, y] = [event.offsetX, event.offsetY];
    let moved = 0;
    this.untip();
    /** @param {PointerEvent} move */
    const drag = (move) => {
      moved += Math.abs(move.offsetX - x) + Math.abs(move.offsetY - y);
      if (moved < 4) return;
      if (selects) {
        const now = Math.max(0, Math.min(this.timeAt(move.offsetX), state.end));
        this.selecting = /** @type {[number, number]} */ ([Math.min(begin, now), Math.max(begin, now)]);
        state.set({ range: this.selecting });
      } else {
        this.pan(x - move.offsetX);
        this.scrollBy(y - move.offsetY);
      }
      [x, y] = [move.offsetX, move.offsetY];
    };
    const end = () => {
      canvas.removeEventListener("pointermove", drag);
      this.selecting = null;
      if (moved < 4) this.click(x, y, selects);
      else state.set({});
    };
    canvas.addEventListener("pointermove", drag);
    canvas.addEventListener("pointerup", end, { once: true });
  }

  /** @type {[number, number]|null} the range while it is being drawn */
  selecting = null;

  /** @param {number} x @param {number} y @param {boolean} selects */
  click(x, y, selects) {
    const { state } = this;
    if (selects) return state.set({ range: null });
    const above = y - RULER + state.view.scroll;
    const head = y < RULER ? undefined : visible(this.layout.rows, above, above + 1)[0];
    if (head?.kind === "process") {
      if (!this.closed.delete(head.lane.key)) this.closed.add(head.lane.key);
      return this.refold();
    }
    if (head?.kind === "thread" && x > this.canvas.clientWidth - PIN && above < head.top + HEAD) return this.pin(head.thread.index);
    const hit = this.hit(x, y);
    if (head?.kind === "thread" && !hit) {
      const { index } = head.thread;
      if (!this.folded.delete(index)) this.folded.add(index);
      return this.refold();
    }
    if (!hit || hit.row.kind === "thread") return state.set({ call: null });
    const { pieces, at, row } = hit;
    // Those of one time have one place; each leads to the next.
    if (pieces.spans[at] !== 1 && pieces.start[at] !== pieces.end[at]) {
      return state.zoom(0.25, (Number(pieces.start[at]) + Number(pieces.end[at])) / 2);
    }
    state.set({ call: { thread: row.thread.index, depth: row.depth, index: Number(pieces.index[at]) } });
  }

  /** @param {number} x @param {number} y */
  point(x, y) {
    const hit = this.hit(x, y);
    if (!hit) return this.untip();
    const { row, pieces, at } = hit;
    const label = Number(pieces.label[at]);
    const [start, end] = [Number(pieces.start[at]), Number(pieces.end[at])];
    const spans = Number(pieces.spans[at]);
    const name = row.kind !== "thread" ? this.state.trace.labels[label]?.name ?? "?"
      : label === WAITED ? "Waited" : "Preempted: could have run";
    const figure = make("span", { class: "figure" }, duration(end - start));
    const rest = make("div", { class: "rest" });
    if (spans === 1) rest.append(...(start === end ? [`at ${moment(start, 1)}`] : [figure, ` from ${moment(start, 1000)}`]));
    else {
      const what = row.kind === "calls" ? "calls" : row.kind === "thread" ? "times" : start === end ? "events" : "pieces";
      rest.append(`and others: ${count(spans)} ${what} within `, figure, "; zoom in to tell them apart");
    }
    this.tip.replaceChildren(make("div", { class: "name" }, name), rest);
    this.tip.hidden = false;
    const wide = this.tip.offsetWidth;
    const high = this.tip.offsetHeight;
    const left = Math.min(x + 14, this.canvas.clientWidth - wide - 6);
    const below = y + 20 + high < this.canvas.clientHeight;
    this.tip.style.left = `${Math.max(4, left)}px`;
    this.tip.style.top = `${below ? y + 18 : Math.max(2, y - high - 12)}px`;
    window.clearTimeout(this.tipping);
    if (row.kind !== "thread" && spans === 1) {
      const id = { thread: row.thread.index, depth: row.depth, index: Number(pieces.index[at]) };
      this.tipping = window.setTimeout(() => void this.tell(id, rest), 90);
    }
  }

  /** @type {number|undefined} */
  tipping = undefined;
  /** @type {number|undefined} */
  describing = undefined;

  /** Adds to the tip what only the server knows. @param {CallId} id @param {HTMLElement} rest */
  async tell(id, rest) {
    try {
      /** @type {CallDetail|ReportedDetail} */
      const call = await get("call", { ...id });
      if (!rest.isConnected) return;
      if ("fields" in call) {
        const fields = call.fields.map(([field, value]) => `${field}=${value}`).join(" ");
        if (fields) rest.append(make("div", {}, fields));
        const owners = await this.owners(call);
        if (owners.length && rest.isConnected) rest.append(make("div", {}, `of request ${owners.map(requestName).join(", ")}`));
        return;
      }
      const parts = [`${duration(call.self_ns)} in itself`];
      if (this.state.trace.switches) parts.push(`${duration(call.duration_ns - call.off_cpu_ns)} on a processor`);
      if (call.callee_calls) parts.push(plural(call.callee_calls, "call"));
      rest.append(make("div", {}, parts.join(" · ")));
    } catch {
      // A tip that says less; whatever is wrong shows when something is selected.
    }
  }

  /** The requests that an event belongs to. @param {ReportedDetail} event */
  async owners(event) {
    const { trace, view } = this.state;
    const tid = trace.threads.find(({ index }) => index === event.thread)?.tid ?? 0;
    /** @type {import("./types.js").RequestsPage} */
    const page = await get("requests/at", { tid, at: event.start_ns + event.duration_ns, schema: view.schema });
    return page.rows;
  }

  untip() {
    window.clearTimeout(this.tipping);
    this.tip.hidden = true;
  }

  /** Says in words what can be seen, for those who do not see it. */
  describe() {
    const { from, to } = this.state.view;
    const rows = visible(this.layout.rows, this.state.view.scroll, this.state.view.scroll + this.canvas.clientHeight);
    let calls = 0;
    let single = 0;
    for (const row of rows) {
      const pieces = row.kind !== "thread" && this.tracks.get(trackKey(row.thread.index, row.depth));
      if (!pieces) continue;
      for (let at = firstAfter(pieces, from); at < pieces.count; at++) {
        if (Number(pieces.start[at]) >= to) break;
        calls += Number(pieces.spans[at]);
        single += Number(pieces.spans[at] === 1);
      }
    }
    const label = `Timelines from ${moment(from, (to - from) / 100)} to ${moment(to, (to - from) / 100)}: ` +
      `${plural(calls, this.state.trace.calls ? "call" : "piece")}, ${count(single)} drawn by themselves`;
    this.canvas.setAttribute("aria-label", label);
  }
}
