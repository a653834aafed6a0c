// What can be seen and what is selected. All of it stands in the address, so that a link leads
// back to it; functions by their number in the trace, which outlives the server. A view that was
// chosen is a step that the browser goes back to; moving, zooming and typing are none.

/** @typedef {import("./types.js").View} View */
/** @typedef {import("./types.js").TraceInfo} TraceInfo */

/** The shortest stretch of time that can be looked at, in nanoseconds. */
const NARROWEST_NS = 20;
/** Views of the lower part, in order. */
export const TABS = ["functions", "flame", "durations", "requests", "communication", "locks"];

/** What of the view chooses and sorts lists, by its form in the address. */
const LIMITS = /** @type {const} */ (["took", "lasted", "part"]);
const TEXTS = /** @type {const} */ (["find", "search", "lanes"]);
const ORDERS = /** @type {const} */ (["order", "functions"]);

/** What of the view is chosen. */
const CHOSEN = /** @type {const} */ ([
  "tab", "range", "label", "call", "cpu", "schema", "request", "beside", "took", "order", "lasted", "functions",
]);

/** @param {View} view */
function chosen(view) {
  return JSON.stringify(CHOSEN.map((name) => view[name]));
}

/** @param {TraceInfo} trace */
function tabsOf(trace) {
  const ofEvents = trace.events ? ["requests", "communication"] : [];
  const ofLocks = trace.locks ? ["locks"] : [];
  // What is asked for most is first.
  if (trace.calls) return ["functions", "flame", "durations", ...ofEvents, ...ofLocks];
  const ofTotals = trace.totals ? ["functions"] : [];
  return trace.events ? [...ofEvents, "durations", ...ofTotals, ...ofLocks] : [...ofTotals, ...ofLocks];
}

/** What a label is in the address, whatever its place. @param {import("./types.js").LabelInfo} label */
function keyOf({ what, name, id }) {
  return id === null ? `${what}.${name}` : String(id);
}

export class State {
  /** @param {TraceInfo} trace */
  constructor(trace) {
    this.trace = trace;
    this.end = Math.max(trace.end_ns, NARROWEST_NS);
    /** @type {View} */
    this.view = {
      from: 0, to: this.end, range: null, label: null, call: null, tab: "functions", scroll: 0,
      cpu: false, request: null, beside: null, schema: null, took: null, find: "", order: null,
      lasted: null, part: null, search: "", functions: null, lanes: "", busy: false, pinned: [],
    };
    this.tabs = tabsOf(trace);
    /** @type {Set<(view: View, before: View) => void>} */
    this.listeners = new Set();
    /** What to do when the trace has grown. @type {Set<() => void>} */
    this.growers = new Set();
    this.writing = 0;
    /** Whether the view that is to be written is a step. */
    this.stepped = false;
    /** Whether a pointer is down: what it drags is chosen when it is let go. */
    this.held = false;
    this.labels = new Map(trace.labels.map((known, label) => [keyOf(known), label]));
    this.read();
    // Menus of the browser's own swallow the end of a press, so a move without one shows it, too.
    for (const name of /** @type {const} */ (["pointerdown", "pointermove", "pointerup", "pointercancel"])) {
      window.addEventListener(name, ({ buttons }) => (this.held = buttons !== 0), true);
    }
    window.addEventListener("hashchange", () => {
      // A step back leads to where the user was, whatever was about to be written.
      window.clearTimeout(this.writing);
      this.writing = 0;
      this.stepped = false;
      const before = { ...this.view };
      this.read();
      this.tell(before);
    });
  }

  /** @param {(view: View, before: View) => void} listener */
  listen(listener) {
    this.listeners.add(listener);
  }

  /** @param {() => void} grower */
  whenGrown(grower) {
    this.growers.add(grower);
  }

  /**
   * The trace has grown. A view of everything stays one, and a view of the end follows the end;
   * any other one stays where it is.
   * @param {TraceInfo} trace
   */
  grow(trace) {
    const { from, to, label } = this.view;
    const follows = to >= this.end - (to - from) * 0.01;
    const known = label === null ? undefined : this.trace.labels[label];
    this.trace = trace;
    this.end = Math.max(trace.end_ns, NARROWEST_NS);
    this.tabs = tabsOf(trace);
    this.labels = new Map(trace.labels.map((known, label) => [keyOf(known), label]));
    for (const grower of this.growers) grower();
    const width = from <= 0 && follows ? this.end : to - from;
    const change = follows ? { from: this.end - width, to: this.end } : {};
    const { lasted } = this.view;
    this.set({ ...change, lasted, label: known ? this.labels.get(keyOf(known)) ?? null : null }, false);
  }

  /**
   * @param {Partial<View>} change
   * @param {boolean} [step] whether the browser goes back to the view before; if it is not said, where
   *   something else is chosen
   */
  set(change, step) {
    const before = { ...this.view };
    Object.assign(this.view, change);
    // What was chosen of one function's durations, or of one time's, is no part of another's.
    const other = this.view.label !== before.label || this.view.range !== before.range;
    if (other && change.lasted === undefined) this.view.lasted = null;
    // Nor is a part of one request one of another's.
    if (this.view.request !== before.request && change.part === undefined) this.view.part = null;
    this.clamp();
    if (!this.stepped && (step ?? chosen(this.view) !== chosen(before))) {
      // One goes back to where one was last, not to where that was written down.
      if (this.writing) history.replaceState(null, "", this.address(before));
      this.stepped = true;
    }
    this.tell(before);
    if (!this.writing) this.writing = window.setTimeout(() => this.write(), 250);
  }

  /** @param {View} before */
  tell(before) {
    for (const listener of this.listeners) listener(this.view, before);
  }

  clamp() {
    const view = this.view;
    const width = Math.min(Math.max(view.to - view.from, NARROWEST_NS), this.end);
    const middle = (view.from + view.to) / 2;
    view.from = Math.min(Math.max(middle - width / 2, 0), this.end - width);
    view.to = view.from + width;
    view.scroll = Math.max(0, view.scroll);
  }

  /**
   * Makes the view wider or narrower around a moment that stays where it is.
   * @param {number} times @param {number} around
   */
  zoom(times, around) {
    const { from, to } = this.view;
    const width = Math.min(Math.max((to - from) * times, NARROWEST_NS), this.end);
    const start = around - ((around - from) / (to - from)) * width;
    this.set({ from: start, to: start + width });
  }

  /**
   * Shows a stretch of time with some room around it; of a moment, what is around it.
   * @param {number} start @param {number} end
   */
  show(start, end) {
    const { from, to } = this.view;
    if (start === end) return this.set({ from: start - (to - from) / 2, to: start + (to - from) / 2 }, true);
    const room = Math.max((end - start) * 0.15, NARROWEST_NS / 4);
    this.set({ from: start - room, to: end + room }, true);
  }

  write() {
    if (this.held) {
      this.writing = window.setTimeout(() => this.write(), 250);
      return;
    }
    this.writing = 0;
    const address = this.address(this.view);
    const there = location.hash || "#";
    if (this.stepped && address !== there) history.pushState(null, "", address);
    else history.replaceState(null, "", address);
    this.stepped = false;
  }

  /** @param {View} view */
  address(view) {
    const { from, to, range, label, call, tab, scroll, cpu, request, beside, schema } = view;
    /** @type {string[]} */
    const parts = [];
    if (from > 0 || to < this.end) parts.push(`t=${Math.round(from)}-${Math.round(to)}`);
    if (range) parts.push(`range=${Math.round(range[0])}-${Math.round(range[1])}`);
    const known = label === null ? undefined : this.trace.labels[label];
    if (known) parts.push(`function=${keyOf(known)}`);
    if (call) parts.push(`call=${call.thread}.${call.depth}.${call.index}`);
    if (schema) parts.push(`schema=${schema}`);
    if (request) parts.push(`request=${request.schema}.${request.id}`);
    if (beside) parts.push(`beside=${beside.schema}.${beside.id}`);
    if (tab !== this.tabs[0]) parts.push(`tab=${tab}`);
    if (cpu) parts.push("cpu=1");
    if (view.busy) parts.push("busy=1");
    if (view.pinned.length) parts.push(`pinned=${view.pinned.join(".")}`);
    if (scroll > 0) parts.push(`scroll=${Math.round(scroll)}`);
    return `#${[...parts, ...lists(view)].join("&")}`;
  }

  /** @param {URLSearchParams} parameters */
  readLists(parameters) {
    for (const name of LIMITS) {
      const [shortest, longest] = /^(\d+)-(\d+)$/.exec(parameters.get(name) ?? "")?.slice(1).map(Number) ?? [];
      this.view[name] = shortest === undefined || longest === undefined ? null : [shortest, longest];
    }
    for (const name of TEXTS) this.view[name] = parameters.get(name) ?? "";
    for (const name of ORDERS) {
      const [key, way] = /^([a-z0-9]+)\.(up|down)$/.exec(parameters.get(name) ?? "")?.slice(1) ?? [];
      this.view[name] = key === undefined ? null : { key, down: way === "down" };
    }
  }

  read() {
    const parameters = new URLSearchParams(location.hash.slice(1));
    /** @param {string} name @param {RegExp} form */
    const numbers = (name, form) => form.exec(parameters.get(name) ?? "")?.slice(1).map(Number);
    const view = this.view;
    const [from = 0, to = this.end] = numbers("t", /^(\d+)-(\d+)$/) ?? [];
    [view.from, view.to] = from < to ? [from, to] : [0, this.end];
    const [start = 0, end = 0] = numbers("range", /^(\d+)-(\d+)$/) ?? [];
    view.range = start < end ? [start, Math.min(end, this.end)] : null;
    view.label = this.labels.get(parameters.get("function") ?? "") ?? null;
    const [thread, depth = 0, index = 0] = numbers("call", /^(\d+)\.(\d+)\.(\d+)$/) ?? [];
    view.call = thread === undefined ? null : { thread, depth, index };
    for (const name of /** @type {const} */ (["request", "beside"])) {
      const [schema, id = 0] = numbers(name, /^(\d+)\.(\d+)$/) ?? [];
      view[name] = schema === undefined ? null : { schema, id };
    }
    view.schema = /^[a-z0-9]+$/.exec(parameters.get("schema") ?? "")?.[0] ?? null;
    const tab = parameters.get("tab") ?? "";
    view.tab = this.tabs.includes(tab) ? tab : this.tabs[0] ?? "functions";
    view.cpu = parameters.get("cpu") === "1" && this.trace.switches;
    view.busy = parameters.get("busy") === "1";
    const pinned = /^\d+(\.\d+)*$/.exec(parameters.get("pinned") ?? "")?.[0].split(".").map(Number) ?? [];
    view.pinned = pinned.filter((index) => this.trace.threads.some((thread) => thread.index === index));
    view.scroll = numbers("scroll", /^(\d+)$/)?.[0] ?? 0;
    this.readLists(parameters);
    this.clamp();
  }
}

/** What is listed, and in which order. @param {View} view */
function lists(view) {
  const parts = [];
  for (const name of LIMITS) {
    const limits = view[name];
    if (limits) parts.push(`${name}=${limits.map(Math.round).join("-")}`);
  }
  for (const name of TEXTS) {
    if (view[name]) parts.push(`${name}=${encodeURIComponent(view[name])}`);
  }
  for (const name of ORDERS) {
    const order = view[name];
    if (order) parts.push(`${name}=${order.key}.${order.down ? "down" : "up"}`);
  }
  return parts;
}
