// One request across threads and processes: a row for each, what it did and when, and where work
// went from one to the other.

import { make, perFrame, sized } from "./dom.js";
import { duration, moment, niceStep } from "./format.js";

/** @typedef {import("./types.js").RequestDetail} RequestDetail */
/** @typedef {import("./types.js").StateName} StateName */
/** @typedef {import("./colours.js").Palette} Palette */

/** @type {{name: StateName, says: string}[]} */
export const STATES = [
  { name: "running", says: "on a processor" },
  { name: "runnable", says: "could have run, but others did" },
  { name: "queued", says: "lies there and nobody has taken it yet" },
  { name: "lock", says: "waiting for whoever holds a lock" },
  { name: "disk", says: "waiting for a disk" },
  { name: "network", says: "waiting for a peer" },
  { name: "sleeping", says: "waiting for something else, or time" },
];

const ROW = 22;
const TOP = 22;
const NAMES = 150;

export class Waterfall {
  constructor() {
    this.canvas = make("canvas", { role: "img", tabindex: 0 });
    this.tip = make("div", { class: "tip", hidden: true });
    this.place = make("div", { class: "waterfall" }, this.canvas, this.tip);
    /** @type {RequestDetail|null} */
    this.detail = null;
    this.longest = 1;
    /** @type {Palette|null} */
    this.palette = null;
    this.draw = perFrame(() => this.paint());
    new ResizeObserver(() => this.draw()).observe(this.place);
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => (this.tip.hidden = true));
  }

  /** @param {Palette} palette */
  setPalette(palette) {
    this.palette = palette;
    this.draw();
  }

  /** @param {RequestDetail} detail @param {number} longest nanoseconds that the width stands for */
  show(detail, longest) {
    this.detail = detail;
    this.longest = longest;
    this.canvas.style.height = `${TOP + detail.actors.length * ROW + 8}px`;
    this.canvas.setAttribute("aria-label", `Waterfall of request ${detail.request.id}: ` +
      detail.actors.map(({ name, times_ns }) => `${name} ran ${duration(times_ns.running)}`).join(", "));
    this.draw();
  }

  /** CSS pixels of a moment. @param {number} ns */
  x(ns) {
    const begin = this.detail?.request.begin_ns ?? 0;
    return NAMES + ((ns - begin) / this.longest) * (this.canvas.clientWidth - NAMES - 8);
  }

  paint() {
    const { detail, palette } = this;
    if (!detail || !palette || !this.canvas.clientWidth) return;
    const { context, ratio } = sized(this.canvas);
    const wide = this.canvas.clientWidth;
    const high = this.canvas.clientHeight;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = palette.css("back");
    context.fillRect(0, 0, wide, high);
    context.font = "11px Inter, 'Segoe UI', system-ui, sans-serif";
    const { begin_ns } = detail.request;
    const step = niceStep(this.longest / Math.max((wide - NAMES) / 100, 1));
    for (let mark = 0; mark <= this.longest; mark += step) {
      const x = Math.round(this.x(begin_ns + mark));
      context.fillStyle = palette.css("line");
      context.fillRect(x, TOP - 6, 1, high - TOP + 6);
      context.fillStyle = palette.css("soft");
      const text = mark === 0 ? "0" : moment(mark, step);
      if (x + context.measureText(text).width + 8 < wide) context.fillText(text, x + 4, 13);
    }
    detail.actors.forEach(({ name }, at) => {
      context.fillStyle = palette.css("text");
      let shown = name;
      while (shown.length > 3 && context.measureText(shown).width > NAMES - 14) shown = `${shown.slice(0, -2)}…`;
      context.fillText(shown, 4, TOP + at * ROW + 14);
    });
    for (const span of detail.spans) {
      const left = this.x(span.from_ns);
      const width = Math.max(this.x(span.to_ns) - left, 1);
      context.fillStyle = palette.css(`state-${span.state}`);
      context.globalAlpha = span.shared ? 0.55 : 1;
      const thin = span.state === "running" ? 0 : 4;
      context.fillRect(left, TOP + span.actor * ROW + 2 + thin, width, ROW - 6 - 2 * thin);
    }
    context.globalAlpha = 1;
    context.strokeStyle = palette.css("soft");
    context.lineWidth = 1;
    for (const link of detail.links) {
      if (link.from_actor === null || link.from_actor === link.to_actor) continue;
      const down = link.to_actor > link.from_actor;
      const from = [this.x(link.from_ns), TOP + link.from_actor * ROW + (down ? ROW - 4 : 2)];
      const to = [this.x(link.to_ns), TOP + link.to_actor * ROW + (down ? 2 : ROW - 4)];
      context.beginPath();
      context.moveTo(from[0] ?? 0, from[1] ?? 0);
      context.lineTo(to[0] ?? 0, to[1] ?? 0);
      context.stroke();
      context.fillStyle = palette.css("soft");
      context.beginPath();
      context.arc(to[0] ?? 0, to[1] ?? 0, 2, 0, 7);
      context.fill();
    }
    // The critical path as a line along the rows.
    context.fillStyle = palette.css("text");
    const rows = new Map(detail.actors.map(({ name }, at) => [name, at]));
    for (const step of detail.critical) {
      const at = rows.get(step.actor);
      if (at === undefined) continue;
      const left = this.x(step.from_ns);
      context.fillRect(left, TOP + at * ROW + ROW - 3, Math.max(this.x(step.to_ns) - left, 1), 1.5);
    }
  }

  /** @param {PointerEvent} event */
  point({ offsetX, offsetY }) {
    const { detail } = this;
    if (!detail) return;
    const row = Math.floor((offsetY - TOP) / ROW);
    const near = detail.spans.filter(({ actor }) => actor === row);
    const under = near.find((span) => this.x(span.from_ns) - 1 <= offsetX && offsetX <= Math.max(this.x(span.to_ns), this.x(span.from_ns) + 1) + 1);
    this.tip.hidden = !under;
    if (!under) return;
    const begin = detail.request.begin_ns;
    const events = detail.events.filter(({ actor, time_ns }) => actor === row && time_ns >= under.from_ns && time_ns <= under.to_ns);
    const says = STATES.find(({ name }) => name === under.state)?.says ?? "";
    this.tip.replaceChildren(
      make("div", { class: "name" }, `${detail.actors[row]?.name ?? ""}: ${under.state}`),
      make("div", { class: "rest" }, make("span", { class: "figure" }, duration(under.to_ns - under.from_ns)),
        ` after ${duration(under.from_ns - begin)} · ${says}${under.shared ? " · for other requests too" : ""}`),
      ...events.slice(0, 6).map(({ name, fields }) => make("div", { class: "rest" },
        `${name} ${fields.slice(0, 5).map(([field, value]) => `${field}=${value}`).join(" ")}`)));
    this.tip.style.left = `${Math.max(4, Math.min(offsetX + 14, this.canvas.clientWidth - this.tip.offsetWidth - 6))}px`;
    this.tip.style.top = `${offsetY + 16}px`;
  }
}
