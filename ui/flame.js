// The flame graph of what is selected: callers above callees, width is time.

import { make, perFrame, sized } from "./dom.js";
import { duration, percent, plural } from "./format.js";

/** @typedef {import("./types.js").RangeInfo} RangeInfo */
/** @typedef {import("./colours.js").Palette} Palette */
/** @typedef {{at: number, left: number, right: number, depth: number}} Box left and right from 0 to 1 */

const ROW = 18;

export class Flame {
  /**
   * @param {HTMLElement} panel
   * @param {import("./state.js").State} state
   */
  constructor(panel, state) {
    this.panel = panel;
    this.state = state;
    this.canvas = make("canvas", { role: "img", tabindex: 0, "aria-label": "Flame graph" });
    this.tip = make("div", { class: "tip", hidden: true });
    /** @type {RangeInfo|null} */
    this.range = null;
    /** @type {Box[]} */
    this.boxes = [];
    this.root = 0;
    /** @type {Palette|null} */
    this.palette = null;
    /** @type {Set<number>|null} */
    this.found = null;
    this.draw = perFrame(() => this.paint());
    new ResizeObserver(() => this.draw()).observe(panel);
    state.listen((view, before) => {
      if (view.label !== before.label || view.tab !== before.tab) this.draw();
    });
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => (this.tip.hidden = true));
    this.canvas.addEventListener("click", (event) => {
      const box = this.hit(event);
      if (!box) return;
      this.zoom(box.at === this.root ? this.parent(box.at) : box.at);
    });
    this.canvas.addEventListener("dblclick", (event) => {
      const label = this.range?.frames.label[this.hit(event)?.at ?? 0];
      if (label !== undefined) state.set({ label });
    });
    this.canvas.addEventListener("keydown", (event) => {
      if (event.key === "Backspace") this.zoom(0);
    });
  }

  /** @param {Palette} palette */
  setPalette(palette) {
    this.palette = palette;
    this.draw();
  }

  /** @param {Set<number>|null} labels */
  setFound(labels) {
    this.found = labels;
    this.draw();
  }

  /** @param {string} message */
  say(message) {
    this.panel.replaceChildren(make("p", { class: "empty" }, message));
  }

  /** @param {RangeInfo} range */
  setRange(range) {
    this.range = range;
    if (range.frames.parent.length < 2) {
      this.say(this.state.view.cpu
        ? "No recorded call was on a processor in this time. Select another one, or count waiting, too."
        : "No recorded call lies in this time. Select another one, or the whole recording.");
      return;
    }
    this.panel.replaceChildren(this.canvas, this.tip);
    this.zoom(0);
  }

  /** @param {number} at */
  parent(at) {
    return this.range?.frames.parent[at] ?? 0;
  }

  /** Shows a frame in full width, with its callers above it. @param {number} root */
  zoom(root) {
    const frames = this.range?.frames;
    if (!frames) return;
    this.root = root;
    /** @type {number[][]} */
    const children = frames.parent.map(() => []);
    for (let at = 1; at < frames.parent.length; at++) children[this.parent(at)]?.push(at);
    const total = (/** @type {number} */ at) => frames.total_ns[at] ?? 0;
    for (const list of children) list.sort((a, b) => total(b) - total(a));
    this.boxes = [];
    const above = [];
    for (let at = root; at > 0; at = this.parent(at)) above.unshift(at);
    above.unshift(0);
    above.forEach((at, depth) => this.boxes.push({ at, left: 0, right: 1, depth }));
    const whole = Math.max(total(root), 1);
    /** @type {[number, number, number][]} */
    const open = [[root, 0, above.length]];
    for (let next = open.pop(); next; next = open.pop()) {
      let [at, left, depth] = next;
      for (const child of children[at] ?? []) {
        const right = left + total(child) / whole;
        this.boxes.push({ at: child, left, right: Math.min(right, 1), depth });
        open.push([child, left, depth + 1]);
        left = right;
      }
    }
    const deepest = this.boxes.reduce((most, { depth }) => Math.max(most, depth), 0);
    this.canvas.style.height = `${(deepest + 1) * ROW + 10}px`;
    this.canvas.setAttribute("aria-label",
      `Flame graph of ${this.name(root)}: ${duration(total(root))}, ${plural(this.boxes.length, "frame")}`);
    this.draw();
  }

  /** @param {number} at */
  name(at) {
    const label = this.range?.frames.label[at] ?? 0;
    return at === 0 ? "everything" : this.state.trace.labels[label]?.name ?? "?";
  }

  paint() {
    const { palette, range } = this;
    if (!palette || !range || !this.canvas.clientWidth) return;
    const { context, ratio } = sized(this.canvas);
    const wide = this.canvas.clientWidth;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = palette.css("back");
    context.fillRect(0, 0, wide, this.canvas.clientHeight);
    context.font = "11px Inter, 'Segoe UI', system-ui, sans-serif";
    const { label } = this.state.view;
    const wanted = this.found ?? (label === null ? null : new Set([label]));
    for (const { at, left, right, depth } of this.boxes) {
      const x = left * wide;
      const width = right * wide - x;
      if (width < 0.3) continue;
      const of = range.frames.label[at] ?? 0;
      context.globalAlpha = wanted && at !== 0 && !wanted.has(of) ? 0.3 : 1;
      context.fillStyle = at === 0 ? palette.css("sunk") : palette.styles[of] ?? palette.css("sunk");
      context.fillRect(x, 5 + depth * ROW, Math.max(width - (width > 3 ? 1 : 0), 0.5), ROW - 1);
      if (width < 36) continue;
      context.fillStyle = palette.ink;
      const name = this.name(at);
      const letters = Math.floor((width - 8) / 6);
      context.fillText(name.length > letters ? `${name.slice(0, Math.max(letters - 1, 1))}…` : name, x + 4, 5 + depth * ROW + 12.5);
    }
    context.globalAlpha = 1;
  }

  /** @param {MouseEvent} event */
  hit({ offsetX, offsetY }) {
    const depth = Math.floor((offsetY - 5) / ROW);
    const x = offsetX / this.canvas.clientWidth;
    return this.boxes.find((box) => box.depth === depth && box.left <= x && x < box.right) ?? null;
  }

  /** @param {PointerEvent} event */
  point(event) {
    const box = this.hit(event);
    this.tip.hidden = !box;
    if (!box || !this.range) return;
    const { frames, total_ns } = this.range;
    const total = frames.total_ns[box.at] ?? 0;
    const own = frames.self_ns[box.at] ?? 0;
    const figures = box.at === 0 ? `${duration(total)} in all threads` :
      `${duration(total)}, ${percent(total / total_ns)} · ${duration(own)} in itself · ${plural(frames.calls[box.at] ?? 0, "call")}`;
    this.tip.replaceChildren(make("div", { class: "name" }, this.name(box.at)), make("div", { class: "rest" }, figures));
    const left = Math.min(event.offsetX + 14, this.canvas.clientWidth - this.tip.offsetWidth - 6);
    this.tip.style.left = `${Math.max(left, 4)}px`;
    this.tip.style.top = `${event.offsetY + 18}px`;
  }
}
