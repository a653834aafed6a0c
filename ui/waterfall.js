// One request across threads and processes: a row for each, what it did and when, its events, and
// where work went from one to the other. From the whole request down to one event.

import { get } from "./api.js";
import { make, perFrame, sized } from "./dom.js";
import { duration, moment, niceStep } from "./format.js";
import { bundles, spansByPixel } from "./levels.js";

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
/** How near the pointer must come to an event, in CSS pixels. */
const REACH = 3;
/** Events that are listed at most. */
const SHOWN = 6;
/** The shortest part of a request that can be looked at, in nanoseconds. */
const NARROWEST_NS = 20;

/** How long the view of a part rests before the server is asked for what is in it, in milliseconds. */
const REST_MS = 150;

export class Waterfall {
  /**
   * @param {import("./state.js").State} state
   * @param {(error: unknown) => void} failed
   */
  constructor(state, failed) {
    this.state = state;
    this.failed = failed;
    /** The request as it is without zooming: the server sends what a screen can show. @type {RequestDetail|null} */
    this.whole = null;
    this.resting = 0;
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
    state.listen((view, before) => {
      if (view.part === before.part) return;
      this.draw();
      this.refine();
    });
    this.canvas.addEventListener("pointermove", (event) => {
      if (!event.buttons) this.point(event);
    });
    this.canvas.addEventListener("pointerleave", () => (this.tip.hidden = true));
    this.canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.canvas.addEventListener("pointerdown", (event) => this.press(event));
    this.canvas.addEventListener("dblclick", (event) => this.enter(event));
  }

  /** @param {Palette} palette */
  setPalette(palette) {
    this.palette = palette;
    this.draw();
  }

  /** @param {RequestDetail} detail @param {number} longest nanoseconds that the width stands for */
  show(detail, longest) {
    this.detail = detail;
    this.whole = detail;
    this.longest = longest;
    this.canvas.style.height = `${TOP + detail.actors.length * ROW + 8}px`;
    this.canvas.setAttribute("aria-label", `Waterfall of request ${detail.request.id}: ` +
      detail.actors.map(({ name, times_ns }) => `${name} ran ${duration(times_ns.running)}`).join(", "));
    this.draw();
    this.refine();
  }

  /** Asks for what is in the part that is seen, if there is more than was sent. */
  refine() {
    window.clearTimeout(this.resting);
    const { whole } = this;
    if (!whole?.thinned) return;
    this.resting = window.setTimeout(() => void this.ask(whole), REST_MS);
  }

  /** @param {RequestDetail} whole */
  async ask(whole) {
    const { part, schema: by } = this.state.view;
    const { begin_ns, schema, id } = whole.request;
    const [from, to] = this.part;
    try {
      /** @type {RequestDetail} */
      const found = part === null ? whole : await get("request", {
        schema, id, by, from: Math.max(0, Math.floor(begin_ns + from - (to - from) / 2)), to: Math.ceil(begin_ns + to + (to - from) / 2),
      });
      if (this.whole !== whole || this.state.view.part !== part) return;
      this.detail = found;
      this.draw();
    } catch (error) {
      this.failed(error);
    }
  }

  /** CSS pixels that time has. */
  get wide() {
    return Math.max(this.canvas.clientWidth - NAMES - 8, 1);
  }

  /** What is seen, nanoseconds from the request's beginning. @returns {[number, number]} */
  get part() {
    const [from, to] = this.state.view.part ?? [0, this.longest];
    return from < to && from < this.longest ? [from, to] : [0, this.longest];
  }

  /** CSS pixels of a moment. @param {number} ns */
  x(ns) {
    const [from, to] = this.part;
    return NAMES + ((ns - (this.detail?.request.begin_ns ?? 0) - from) / (to - from)) * this.wide;
  }

  // Moving. Two waterfalls show the same part, so that they can be compared.

  pointed() {
    return this.canvas.isConnected && this.canvas.matches(":hover");
  }

  /** Shows everything. */
  all() {
    this.state.set({ part: null });
  }

  /** Shows a part, as far as there is one. @param {number} from @param {number} to */
  see(from, to) {
    const width = Math.min(Math.max(to - from, NARROWEST_NS), this.longest);
    const start = Math.min(Math.max((from + to - width) / 2, 0), this.longest - width);
    this.state.set({ part: width < this.longest ? [start, start + width] : null });
  }

  /**
   * Goes along and zooms.
   * @param {number} share of the width @param {number} times that the part becomes longer
   * @param {number} [x] CSS pixels of what stays where it is
   */
  move(share, times, x = NAMES + this.wide / 2) {
    const [from, to] = this.part;
    const by = share * (to - from);
    const around = from + ((x - NAMES) / this.wide) * (to - from);
    // At an end it stays as long as it is.
    const [first, last] = [around - (around - from) * times, around + (to - around) * times];
    const along = Math.min(Math.max(by, -first), this.longest - last);
    this.see(times === 1 ? first + along : first, times === 1 ? last + along : last);
  }

  /** @param {WheelEvent} event */
  wheel(event) {
    const unit = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
    const [dx, dy] = [event.deltaX * unit, event.deltaY * unit];
    const along = event.shiftKey ? dx || dy : Math.abs(dx) > Math.abs(dy) ? dx : 0;
    const zooms = event.ctrlKey || event.metaKey;
    // Without a key the wheel scrolls what is around.
    if (!zooms && !along) return;
    event.preventDefault();
    this.tip.hidden = true;
    if (zooms) this.move(0, Math.exp(Math.max(-120, Math.min(120, dy)) * 0.004), event.offsetX);
    else this.move(along / this.wide, 1);
  }

  /** @param {PointerEvent} event */
  press(event) {
    if (event.button !== 0) return;
    const { canvas } = this;
    canvas.setPointerCapture(event.pointerId);
    const [from, to] = this.part;
    this.tip.hidden = true;
    /** @param {PointerEvent} drag */
    const drag = (drag) => {
      const by = ((event.offsetX - drag.offsetX) / this.wide) * (to - from);
      const along = Math.min(Math.max(by, -from), this.longest - to);
      if (along) this.see(from + along, to + along);
    };
    canvas.addEventListener("pointermove", drag);
    canvas.addEventListener("pointerup", () => canvas.removeEventListener("pointermove", drag), { once: true });
  }

  /** Zooms to what is there, or shows everything. @param {MouseEvent} event */
  enter({ offsetX, offsetY }) {
    const span = this.spanAt(offsetX, offsetY);
    if (!span || !this.detail) return this.all();
    const { begin_ns } = this.detail.request;
    const room = (span.to_ns - span.from_ns) * 0.15;
    this.see(span.from_ns - begin_ns - room, span.to_ns - begin_ns + room);
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
    const [first, last] = this.part;
    const step = niceStep((last - first) / Math.max((wide - NAMES) / 100, 1));
    for (let mark = Math.ceil(first / step) * step; mark <= last; mark += step) {
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
    context.save();
    context.beginPath();
    context.rect(NAMES, 0, wide - NAMES, high);
    context.clip();
    const at = (/** @type {number} */ ns) => this.x(ns);
    for (const { actor, state, left, width, shared } of spansByPixel(detail.spans, at, NAMES, wide)) {
      context.fillStyle = palette.css(`state-${state}`);
      context.globalAlpha = shared ? 0.55 : 1;
      const thin = state === "running" ? 0 : 4;
      context.fillRect(left, TOP + actor * ROW + 2 + thin, width, ROW - 6 - 2 * thin);
    }
    context.strokeStyle = palette.css("soft");
    context.fillStyle = palette.css("soft");
    context.lineWidth = 1;
    for (const { from_actor, to_actor, from, to, links } of bundles(detail.links, at, NAMES, wide)) {
      const down = to_actor > from_actor;
      const [top, bottom] = [TOP + from_actor * ROW + (down ? ROW - 4 : 2), TOP + to_actor * ROW + (down ? 2 : ROW - 4)];
      // What stands for many is paler: how many there are, the rows below and the ticks say.
      context.globalAlpha = links > 1 ? 0.4 : 1;
      context.beginPath();
      context.moveTo(from, top);
      context.lineTo(to, bottom);
      context.stroke();
      context.beginPath();
      context.arc(to, bottom, 2, 0, 7);
      context.fill();
    }
    context.globalAlpha = 1;
    // The critical path as a line along the rows.
    context.fillStyle = palette.css("text");
    const rows = new Map(detail.actors.map(({ name }, at) => [name, at]));
    for (const step of detail.critical) {
      const at = rows.get(step.actor);
      if (at === undefined) continue;
      const left = this.x(step.from_ns);
      context.fillRect(left, TOP + at * ROW + ROW - 3, Math.max(this.x(step.to_ns) - left, 1), 1.5);
    }
    this.ticks(context, detail);
    context.restore();
  }

  /** A tick for each event that has a pixel to itself. @param {CanvasRenderingContext2D} context @param {RequestDetail} detail */
  ticks(context, detail) {
    /** @type {Map<number, number>} */
    const drawn = new Map();
    for (const { actor, time_ns } of detail.events) {
      if (actor === null) continue;
      const x = Math.round(this.x(time_ns));
      if (drawn.get(actor) === x) continue;
      drawn.set(actor, x);
      context.fillRect(x, TOP + actor * ROW + 1, 1, 4);
    }
  }

  /** @param {number} x @param {number} y */
  spanAt(x, y) {
    const row = Math.floor((y - TOP) / ROW);
    if (x < NAMES) return undefined;
    const near = this.detail?.spans.filter(({ actor }) => actor === row) ?? [];
    return near.find((span) => this.x(span.from_ns) - 1 <= x && x <= Math.max(this.x(span.to_ns), this.x(span.from_ns) + 1) + 1);
  }

  /** The events that the pointer is on, of one row. @param {number} x @param {number} y */
  eventsAt(x, y) {
    const row = Math.floor((y - TOP) / ROW);
    return this.detail?.events.filter(({ actor, time_ns }) => actor === row && Math.abs(this.x(time_ns) - x) <= REACH) ?? [];
  }

  /** @param {PointerEvent} event */
  point({ offsetX, offsetY }) {
    const { detail } = this;
    if (!detail) return;
    const under = this.spanAt(offsetX, offsetY);
    const events = this.eventsAt(offsetX, offsetY);
    this.tip.hidden = !under && !events.length;
    if (this.tip.hidden) return;
    const row = Math.floor((offsetY - TOP) / ROW);
    const begin = detail.request.begin_ns;
    const says = STATES.find(({ name }) => name === under?.state)?.says ?? "";
    const of = make("div", { class: "name" }, `${detail.actors[row]?.name ?? ""}${under ? `: ${under.state}` : ""}`);
    this.tip.replaceChildren(of, ...(under ? [
      make("div", { class: "rest" }, make("span", { class: "figure" }, duration(under.to_ns - under.from_ns)),
        ` after ${duration(under.from_ns - begin)} · ${says}${under.shared ? " · for other requests too" : ""}`)] : []),
      ...events.slice(0, SHOWN).map(({ name, time_ns, fields }) => make("div", { class: "rest" },
        `${duration(time_ns - begin)}  ${name} ${fields.map(([field, value]) => `${field}=${value}`).join(" ")}`)));
    if (events.length > SHOWN) this.tip.append(make("div", { class: "rest" }, `${events.length - SHOWN} more; zoom in to tell them apart`));
    this.tip.style.left = `${Math.max(4, Math.min(offsetX + 14, this.canvas.clientWidth - this.tip.offsetWidth - 6))}px`;
    this.tip.style.top = `${offsetY + 16}px`;
  }
}
