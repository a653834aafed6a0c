// The table of functions: exact totals of the whole recording, or what a selected time holds.

import { make } from "./dom.js";
import { count, durationParts, percent } from "./format.js";

/** @typedef {import("./types.js").ReportInfo} ReportInfo */
/** @typedef {import("./types.js").RangeInfo} RangeInfo */

/**
 * A function's figures, from either source.
 * @typedef {object} Line
 * @property {number|null} label of a function with recorded calls
 * @property {string} name
 * @property {string} module
 * @property {number|null} self
 * @property {number|null} total
 * @property {number} calls
 * @property {number|null} cpu
 * @property {number|null} p50
 * @property {number|null} p99
 * @property {number|null} max
 */
/** @typedef {"self"|"total"|"calls"|"cpu"|"p50"|"p99"|"max"|"name"|"module"} Key */

/** Rows shown before the user asks for more. */
const SHOWN = 200;

/** @type {{key: Key, title: string, what: string}[]} */
const COLUMNS = [
  { key: "self", title: "Self", what: "time outside of recorded callees" },
  { key: "total", title: "Total", what: "time with callees" },
  { key: "cpu", title: "CPU", what: "time outside of callees on a processor" },
  { key: "calls", title: "Calls", what: "calls that ended" },
  { key: "p50", title: "p50", what: "half of the calls took no longer" },
  { key: "p99", title: "p99", what: "99 of 100 calls took no longer" },
  { key: "max", title: "Max", what: "the longest call" },
  { key: "name", title: "Function", what: "name" },
  { key: "module", title: "Module", what: "executable or library" },
];

export class Functions {
  /**
   * @param {HTMLElement} panel
   * @param {import("./state.js").State} state
   */
  constructor(panel, state) {
    this.panel = panel;
    this.state = state;
    /** @type {Line[]} */
    this.lines = [];
    this.shown = SHOWN;
    this.all = 0;
    this.query = "";
    state.listen((view, before) => {
      if (view.functions !== before.functions && this.lines.length) this.show();
      if (view.label !== before.label) this.mark();
    });
  }

  /** @param {ReportInfo} report */
  setReport(report) {
    this.all = report.self_corrected_ns;
    const own = report.functions.some((row) => row.self_ns > 0);
    const times = report.functions.some((row) => row.total_ns > 0);
    this.lines = report.functions.map((row) => ({
      label: this.state.labels.get(String(row.id)) ?? null, name: row.name, module: row.module,
      self: own ? row.self_corrected_ns : null, total: times ? row.total_corrected_ns : null, calls: row.calls,
      cpu: row.cpu_self_ns, p50: row.latency?.p50_ns ?? null, p99: row.latency?.p99_ns ?? null,
      max: row.latency?.max_ns ?? null,
    }));
    this.show();
  }

  /** @param {RangeInfo} range */
  setRange(range) {
    this.all = range.functions.reduce((sum, row) => sum + row.self_ns, 0);
    this.lines = range.functions.map((row) => {
      const known = this.state.trace.labels[row.label];
      return {
        label: row.label, name: known?.name ?? "?", module: known?.module ?? "", self: row.self_ns,
        total: row.total_ns, calls: row.calls, cpu: null, p50: null, p99: null, max: null,
      };
    });
    this.show();
  }

  /** @param {string} query */
  setQuery(query) {
    this.query = query.toLowerCase();
    this.shown = SHOWN;
    if (this.lines.length) this.show();
  }

  /** @param {string} message */
  say(message) {
    this.panel.replaceChildren(make("p", { class: "empty" }, message));
  }

  show() {
    const has = (/** @type {Key} */ key) => this.lines.some((line) => line[key] !== null);
    const columns = COLUMNS.filter(({ key }) => has(key));
    const { key: by, down } = this.order(columns);
    const lines = this.lines.filter(({ name, module }) =>
      !this.query || name.toLowerCase().includes(this.query) || module.toLowerCase().includes(this.query));
    const sign = down ? -1 : 1;
    lines.sort((a, b) => {
      const [x, y] = [a[by] ?? -1, b[by] ?? -1];
      const order = typeof x === "string" ? x.localeCompare(String(y)) : x - Number(y);
      return sign * order || b.calls - a.calls || a.name.localeCompare(b.name);
    });
    if (!lines.length) {
      const why = this.query ? `No function here has “${this.query}” in its name.`
        : this.lines.length ? "" : "No recorded call lies in this time. Select another one, or the whole recording.";
      return this.say(why);
    }
    const head = columns.map(({ key, title, what }) => {
      const text = key === "name" || key === "module";
      const sort = key === by ? (down ? "descending" : "ascending") : null;
      const button = make("button", { type: "button", title: what, click: () => this.sort(key, columns) }, title);
      return make("th", { scope: "col", class: text ? "text" : "", "aria-sort": sort }, button);
    });
    const body = make("tbody");
    for (const line of lines.slice(0, this.shown)) body.append(this.row(line, columns));
    const table = make("table", { "aria-label": "Functions" }, make("thead", {}, make("tr", {}, ...head)), body);
    this.panel.replaceChildren(table);
    if (lines.length > this.shown) {
      const more = make("button", { type: "button", class: "small", click: () => {
        this.shown *= 4;
        this.show();
      } }, `Show more of ${count(lines.length)} functions`);
      this.panel.append(make("div", { class: "more" }, more));
    }
    this.mark();
  }

  /** @param {Line} line @param {{key: Key}[]} columns */
  row(line, columns) {
    const cells = columns.map(({ key }) => {
      const value = line[key];
      if (key === "name") return make("td", { class: "text name", title: line.name }, line.name);
      if (key === "module") return make("td", { class: "text soft" }, line.module);
      if (value === null || typeof value === "string") return make("td", { class: "soft" }, "–");
      if (key === "calls") return make("td", {}, count(value));
      const cell = make("td", {}, ...time(value));
      if (key === "self") {
        const share = this.all ? value / this.all : 0;
        cell.prepend(make("meter", { value: share.toFixed(4), min: 0, max: 1, "aria-hidden": "true" }));
        cell.append(make("span", { class: "soft" }, ` ${percent(share).padStart(7, "\u2007")}`));
        cell.className = "share";
      }
      return cell;
    });
    const { label } = line;
    const pick = () => this.state.set({ label: this.state.view.label === label ? null : label });
    return make("tr", {
      tabindex: 0, "data-label": label === null ? null : String(label), click: pick,
      keydown: (event) => {
        if (event instanceof KeyboardEvent && event.key === "Enter") pick();
      },
      dblclick: () => this.state.set({ label, tab: "durations" }),
    }, ...cells);
  }

  /**
   * The order of the table, by one of the columns that it has.
   * @param {{key: Key}[]} columns
   * @returns {{key: Key, down: boolean}}
   */
  order(columns) {
    const order = this.state.view.functions;
    const column = columns.find(({ key }) => key === order?.key);
    if (column && order) return { key: column.key, down: order.down };
    const first = columns.find(({ key }) => key === "self" || key === "total" || key === "calls");
    return { key: first?.key ?? "calls", down: true };
  }

  /** @param {Key} key @param {{key: Key}[]} columns */
  sort(key, columns) {
    const order = this.order(columns);
    const down = key === order.key ? !order.down : key !== "name" && key !== "module";
    this.state.set({ functions: { key, down } });
    this.panel.scrollTop = 0;
  }

  mark() {
    const { label } = this.state.view;
    for (const row of this.panel.querySelectorAll("tbody tr")) {
      row.setAttribute("aria-selected", String(row.getAttribute("data-label") === String(label)));
    }
  }
}

/** A duration with its unit in a column of its own. @param {number} ns */
export function time(ns) {
  const [figure, unit] = durationParts(ns);
  return [figure, make("span", { class: "unit" }, unit)];
}
