// How long the calls of one function took, and the calls behind a part of that.

import { get } from "./api.js";
import { make } from "./dom.js";
import { count, duration, moment, plural } from "./format.js";
import { time } from "./functions.js";
import { Histogram } from "./histogram.js";

/** @typedef {import("./types.js").DurationsInfo} DurationsInfo */
/** @typedef {import("./types.js").Call} Call */
/** @typedef {import("./colours.js").Palette} Palette */

/** Bars for each doubling of the duration. */
const PER_DOUBLING = 8;

export class Durations {
  /**
   * @param {HTMLElement} panel
   * @param {import("./state.js").State} state
   * @param {(error: unknown) => void} failed
   * @param {(call: Call) => void} go shows a call in the timelines
   */
  constructor(panel, state, failed, go) {
    this.panel = panel;
    this.state = state;
    this.failed = failed;
    this.go = go;
    this.asked = "";
    /** @type {DurationsInfo|null} */
    this.info = null;
    this.list = make("div", { class: "listed" });
    this.histogram = new Histogram("calls", (lasted) => state.set({ lasted }));
    /** The durations whose calls are listed. @type {[number, number]|null} */
    this.chosen = null;
    this.place = make("div", { class: "plot" });
    state.listen(() => this.refresh());
  }

  /** @param {Palette} palette */
  setPalette(palette) {
    this.histogram.setPalette(palette);
  }

  /** The function and time that are meant. */
  query() {
    const { label, range } = this.state.view;
    return { function: label, from: range ? Math.floor(range[0]) : null, to: range ? Math.ceil(range[1]) : null };
  }

  refresh() {
    const { tab, label } = this.state.view;
    if (tab !== "durations" || this.state.view.range === this.asking) return;
    const query = this.query();
    const asked = JSON.stringify(query);
    if (asked === this.asked) return this.rechoose();
    this.asked = asked;
    if (label === null) {
      this.info = null;
      this.panel.replaceChildren(make("p", { class: "empty" },
        "Choose a function, or what has a beginning and an end: in the search, or by a click on it."));
      return;
    }
    window.clearTimeout(this.waiting);
    this.waiting = window.setTimeout(() => void this.load(query, asked), 60);
  }

  /** The trace has grown: the same is asked again. */
  again() {
    this.asked = "";
    this.refresh();
  }

  /** @type {number|undefined} */
  waiting = undefined;
  /** @type {unknown} */
  asking = undefined;

  /** @param {Record<string, number|null>} query @param {string} asked */
  async load(query, asked) {
    try {
      /** @type {DurationsInfo} */
      const info = await get("durations", query);
      if (asked !== this.asked) return;
      this.info = info;
      this.draw(info);
      await this.choose(this.state.view.lasted);
    } catch (error) {
      this.failed(error);
    }
  }

  /** @param {DurationsInfo} info */
  draw(info) {
    const name = this.state.trace.labels[this.state.view.label ?? -1]?.name ?? "?";
    if (!info.calls) {
      this.panel.replaceChildren(make("p", { class: "empty" },
        `No finished call of ${name} lies in this time. Select another one, or the whole recording.`));
      return;
    }
    const figures = `${plural(info.calls, "call")} · p50 ${duration(info.p50_ns)} · p90 ${duration(info.p90_ns)}` +
      ` · p99 ${duration(info.p99_ns)} · longest ${duration(info.max_ns)}`;
    const head = make("header", {}, make("h2", { title: name }, name), make("span", { class: "soft" }, figures));
    this.place.replaceChildren(head, this.histogram.place);
    this.panel.replaceChildren(make("div", { class: "two" }, this.place, this.list));
    this.histogram.show(bars(info.buckets), PER_DOUBLING, `Durations of ${name}: ${figures}`);
  }

  /** Lists others if another part of the durations is chosen. */
  rechoose() {
    const { lasted } = this.state.view;
    if (this.info && String(lasted) !== String(this.chosen)) void this.choose(lasted);
  }

  /** Lists the longest calls of a part of the durations. @param {[number, number]|null} brushed */
  async choose(brushed) {
    this.chosen = brushed;
    this.histogram.setBrushed(brushed);
    const limits = brushed ? { shortest: brushed[0], longest: brushed[1] } : {};
    try {
      /** @type {{count: number, calls: Call[]}} */
      const found = await get("calls", { ...this.query(), ...limits, limit: 200 });
      if (this.chosen === brushed) this.table(found.calls, found.count, brushed);
    } catch (error) {
      this.failed(error);
    }
  }

  /** @param {Call[]} calls @param {number} all @param {[number, number]|null} brushed */
  table(calls, all, brushed) {
    const cpu = this.state.trace.switches;
    const threads = new Map(this.state.trace.threads.map((thread) => [thread.index, thread.name || String(thread.tid || thread.index)]));
    const titles = ["Duration", ...(cpu ? ["CPU"] : []), "Start", "Thread"];
    const head = titles.map((title) => make("th", { scope: "col", class: title === "Thread" ? "text" : "" }, make("span", {}, title)));
    const body = make("tbody");
    for (const call of calls) {
      const cells = [make("td", {}, ...time(call.duration_ns))];
      if (cpu) cells.push(make("td", {}, ...time(call.duration_ns - call.off_cpu_ns)));
      cells.push(make("td", { class: "soft" }, moment(call.start_ns, 1000)));
      cells.push(make("td", { class: "text soft" }, threads.get(call.thread) ?? String(call.thread)));
      const go = () => this.go(call);
      body.append(make("tr", { tabindex: 0, click: go, keydown: (event) => {
        if (event instanceof KeyboardEvent && event.key === "Enter") go();
      } }, ...cells));
    }
    const what = brushed ? `between ${duration(brushed[0])} and ${duration(brushed[1])}` : "longest first; drag in the plot to choose";
    const note = make("p", { class: "more soft" }, `${calls.length < all ? `${count(calls.length)} of ` : ""}${plural(all, "call")}, ${what}`);
    this.list.replaceChildren(note, make("table", { "aria-label": "Calls" }, make("thead", {}, make("tr", {}, ...head)), body));
  }
}

/**
 * Calls by bar.
 * @param {[number, number, number][]} buckets
 */
function bars(buckets) {
  /** @type {Map<number, number>} */
  const sums = new Map();
  for (const [low, high, calls] of buckets) {
    const bar = Math.floor(Math.log2(Math.max((low + high) / 2, 1)) * PER_DOUBLING);
    sums.set(bar, (sums.get(bar) ?? 0) + calls);
  }
  return sums;
}
