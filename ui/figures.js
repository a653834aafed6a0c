// What requests took: over time, and by class. It stands where a request is shown while none is chosen.

import { get } from "./api.js";
import { make, svg } from "./dom.js";
import { count, duration, moment, niceStep, percent, plural } from "./format.js";

/** @typedef {import("./types.js").RequestFigures} RequestFigures */
/** @typedef {import("./types.js").ClassFigures} ClassFigures */
/** @typedef {import("./types.js").Took} Took */

/** Lines of the plot: the figure of a stretch, and its part of the whole. */
const LINES = /** @type {const} */ ([["p50", "p50_ns"], ["p90", "p90_ns"], ["p99", "p99_ns"]]);
/** The plot's size, and the room for its numbers, in its own units. */
const [WIDE, HIGH, LEFT, BOTTOM] = [620, 150, 52, 18];

export class Figures {
  /**
   * @param {import("./state.js").State} state
   * @param {(error: unknown) => void} failed
   */
  constructor(state, failed) {
    this.state = state;
    this.failed = failed;
    this.place = make("section", { class: "figures-of-requests", "aria-label": "What requests took" });
    this.asked = "";
    this.asking = new AbortController();
  }

  /** The trace has grown, or is followed by another schema. */
  again() {
    this.asked = "";
  }

  /** Shows those that are listed. @param {string} said how they were found */
  async show(said) {
    const { schema, find, took } = this.state.view;
    const key = JSON.stringify([schema, find, took]);
    if (key === this.asked) return;
    this.asked = key;
    this.asking.abort();
    this.asking = new AbortController();
    const { signal } = this.asking;
    const [shortest, longest] = took ?? [];
    try {
      /** @type {RequestFigures} */
      const figures = await get("requests/figures", { schema, find, shortest, longest }, signal);
      if (!signal.aborted) this.draw(figures, said);
    } catch (error) {
      if (!signal.aborted) this.failed(error);
    }
  }

  /** @param {RequestFigures} figures @param {string} said */
  draw(figures, said) {
    const { classes, ways } = figures;
    const parts = [make("p", { class: "empty" },
      "Choose a request to see where its time went. Drag in the plot to list those that took as long. ", said)];
    // Nothing else tells what clients ask: its bytes have to be recorded.
    const bare = classes.length > 0 && classes.every(({ class: name }) => name === "message") && this.state.trace.events;
    if (bare) {
      parts.push(make("p", { class: "hint" }, "All requests are called ", make("code", {}, "message"),
        ": what clients ask was not recorded. ", make("code", {}, "fettle record --kernel --payload 512"),
        " tells them apart by method and path, statement or command."));
    }
    if (classes.length) {
      parts.push(make("h3", {}, "Over time"), plot(figures), make("h3", {}, "By class and path"), this.table(figures));
    }
    if (ways > classes.length) parts.push(make("p", { class: "soft" }, `${count(ways - classes.length)} more, which took less time`));
    this.place.replaceChildren(...parts);
  }

  /** @param {RequestFigures} figures */
  table({ classes }) {
    const all = classes.reduce((sum, { requests }) => sum + requests, 0) || 1;
    const head = ["Requests", "", "Mean", "p50", "p90", "p99", "Max"].map((title) => make("th", { scope: "col" }, title));
    const unsure = classes.some(({ chosen }) => chosen > 0);
    const rows = classes.map((one) => make("tr", {},
      make("td", {}, count(one.requests)), make("td", { class: "soft" }, percent(one.requests / all)),
      ...[one.mean_ns, one.p50_ns, one.p90_ns, one.p99_ns, one.max_ns].map((ns) => make("td", {}, duration(ns))),
      ...(unsure ? [make("td", { class: "soft", title: "requests that rest on a choice among several" }, one.chosen ? count(one.chosen) : "")] : []),
      make("td", { class: "text" }, make("button", {
        type: "button", class: "link", title: "List only these", click: () => this.state.set({ find: one.class }),
      }, one.class || "–")),
      make("td", { class: "text soft", title: one.path.join(" → ") }, one.path.join(" → "))));
    return make("table", { class: "classes", "aria-label": "Requests by class and path" },
      make("thead", {}, make("tr", {}, ...head, ...(unsure ? [make("th", { scope: "col" }, "Chosen")] : []),
        make("th", { scope: "col", class: "text" }, "Class"), make("th", { scope: "col", class: "text" }, "Path"))),
      make("tbody", {}, ...rows));
  }
}

/** How long requests took that began in each stretch of time. @param {RequestFigures} figures */
function plot({ from_ns, step_ns, stretches }) {
  const some = stretches.filter(({ requests }) => requests > 0);
  const least = Math.log10(Math.max(Math.min(...some.map(({ p50_ns }) => p50_ns)), 1));
  const most = Math.log10(Math.max(...some.map(({ p99_ns }) => p99_ns), 1));
  const [low, high] = [Math.floor(least), Math.max(Math.ceil(most), Math.floor(least) + 1)];
  const wide = (WIDE - LEFT) / Math.max(stretches.length, 1);
  const x = (/** @type {number} */ at) => LEFT + at * wide;
  const y = (/** @type {number} */ ns) => HIGH - BOTTOM - ((Math.log10(Math.max(ns, 1)) - low) / (high - low)) * (HIGH - BOTTOM - 8);
  const drawn = [];
  for (let power = low; power <= high; power++) {
    drawn.push(svg("line", { x1: LEFT, x2: WIDE, y1: y(10 ** power), y2: y(10 ** power), class: "grid" }),
      svg("text", { x: LEFT - 6, y: y(10 ** power) + 4, "text-anchor": "end" }, duration(10 ** power).replace(/\.0+ /, " ")));
  }
  const all = stretches.length * step_ns;
  const step = niceStep(all / 6);
  for (let mark = Math.ceil(from_ns / step) * step; mark < from_ns + all; mark += step) {
    const at = LEFT + ((mark - from_ns) / all) * (WIDE - LEFT);
    drawn.push(svg("line", { x1: at, x2: at, y1: 4, y2: HIGH - BOTTOM, class: "grid" }),
      svg("text", { x: at, y: HIGH - 4, "text-anchor": "middle" }, moment(mark, step)));
  }
  for (const [name, key] of LINES) {
    // A step for each stretch; where none began, there is none.
    const path = stretches.map((took, at) => took.requests ? `M${x(at).toFixed(1)} ${y(took[key]).toFixed(1)}h${Math.max(wide, 1.5).toFixed(1)}` : "").join("");
    const joined = stretches.map((took, at) => {
      const before = stretches[at - 1];
      return took.requests && before?.requests ? `M${x(at).toFixed(1)} ${y(before[key]).toFixed(1)}V${y(took[key]).toFixed(1)}` : "";
    }).join("");
    drawn.push(svg("path", { d: path + joined, class: `line ${name}` }));
  }
  stretches.forEach((took, at) => {
    if (!took.requests) return;
    drawn.push(svg("rect", { x: x(at), y: 0, width: wide, height: HIGH - BOTTOM, class: "over" },
      svg("title", {}, `from ${moment(from_ns + at * step_ns, step_ns)}: ${plural(took.requests, "request")}, p50 ${duration(took.p50_ns)}, p90 ${duration(took.p90_ns)}, p99 ${duration(took.p99_ns)}, at most ${duration(took.max_ns)}`)));
  });
  const slowest = some.reduce((/** @type {Took|undefined} */ most, took) => took.p99_ns > (most?.p99_ns ?? 0) ? took : most, undefined);
  const says = `How long requests took that began within ${duration(all)}, in stretches of ${duration(step_ns)}: p99 is ${duration(slowest?.p99_ns ?? 0)} at most`;
  const legend = make("ul", { class: "legend" }, ...LINES.map(([name]) => make("li", {}, make("i", { class: `line-${name}` }), name)));
  return make("div", {}, svg("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, class: "over-time", role: "img", "aria-label": says }, ...drawn), legend);
}
