// The selected call: its figures, who called it, and what it called.

import { byId, make } from "./dom.js";
import { count, duration, moment, percent, plural } from "./format.js";

/** @typedef {import("./types.js").CallDetail} CallDetail */
/** @typedef {import("./types.js").Call} Call */

export class Details {
  /**
   * @param {import("./state.js").State} state
   * @param {(call: Call) => void} go shows a call in the timelines
   */
  constructor(state, go) {
    this.state = state;
    this.go = go;
    this.place = byId("details", HTMLElement);
  }

  hide() {
    this.place.hidden = true;
  }

  /** @param {CallDetail} call */
  show(call) {
    const { trace } = this.state;
    const known = trace.functions[call.label];
    const thread = trace.threads.find(({ index }) => index === call.thread);
    /** @type {[string, string][]} */
    const figures = [["Duration", duration(call.duration_ns)]];
    if (trace.switches) {
      const cpu = Math.max(0, call.duration_ns - call.off_cpu_ns);
      figures.push(["On a processor", `${duration(cpu)} (${percent(cpu / call.duration_ns)})`]);
      figures.push(["Waited or preempted", duration(call.off_cpu_ns)]);
    }
    figures.push(["In itself", `${duration(call.self_ns)} (${percent(call.self_ns / call.duration_ns)})`]);
    figures.push(["Begins at", moment(call.start_ns, 1)]);
    figures.push(["Thread", thread?.name ? `${thread.name} (${thread.tid})` : String(thread?.tid ?? call.thread)]);
    if (call.weight !== 1) figures.push(["Stands for", plural(call.weight, "call")]);
    if (known?.place) figures.push(["Source", known.place]);
    figures.push(["Module", known?.module || "–"]);
    const list = make("dl", { class: "figures" });
    for (const [what, value] of figures) list.append(make("dt", {}, what), make("dd", {}, value));
    const buttons = make("div", { class: "row" },
      make("button", { type: "button", class: "small", click: () => this.state.show(call.start_ns, call.start_ns + call.duration_ns) }, "Zoom to it"),
      make("button", { type: "button", class: "small", click: () => this.state.set({ range: [call.start_ns, call.start_ns + call.duration_ns] }) }, "Select its time"),
      make("button", { type: "button", class: "small", click: () => this.state.set({ label: call.label, tab: "durations" }) }, "Durations"));
    const close = make("button", { type: "button", class: "tool close", "aria-label": "Close", click: () => this.state.set({ call: null }) }, "✕");
    this.place.replaceChildren(close, make("h2", { class: "name" }, known?.name ?? "?"), list, buttons);
    if (call.callers.length) {
      const callers = [...call.callers].reverse().slice(0, 40).map((caller) => this.line(
        trace.functions[caller.label]?.name ?? "?", duration(caller.duration_ns), () => this.go(caller)));
      this.place.append(make("h3", {}, "Called by"), make("ul", { class: "list" }, ...callers));
    }
    if (call.callees.length) {
      const callees = call.callees.map((share) => this.line(trace.functions[share.label]?.name ?? "?",
        `${share.calls > 1 ? `${count(share.calls)} × ` : ""}${duration(share.total_ns)}`,
        () => this.state.set({ label: share.label })));
      this.place.append(make("h3", {}, `Called (${plural(call.callee_calls, "call")})`), make("ul", { class: "list" }, ...callees));
    }
    this.place.hidden = false;
  }

  /** @param {string} name @param {string} figure @param {() => void} click */
  line(name, figure, click) {
    return make("li", {}, make("button", { type: "button", title: name, click }, name), make("span", { class: "figure" }, figure));
  }
}
