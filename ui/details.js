// The selected call: its figures, who called it, and what it called. Or the selected event.

import { byId, make } from "./dom.js";
import { count, duration, moment, percent, plural } from "./format.js";
import { requestName } from "./timeline.js";

/** @typedef {import("./types.js").CallDetail} CallDetail */
/** @typedef {import("./types.js").ReportedDetail} ReportedDetail */
/** @typedef {import("./types.js").Call} Call */

export class Details {
  /**
   * @param {import("./state.js").State} state
   * @param {(call: Call) => void} go shows a call in the timelines
   * @param {import("./timeline.js").Timeline} timeline
   */
  constructor(state, go, timeline) {
    this.state = state;
    this.go = go;
    this.timeline = timeline;
    this.place = byId("details", HTMLElement);
  }

  hide() {
    this.place.hidden = true;
  }

  /** @param {CallDetail|ReportedDetail} detail */
  show(detail) {
    if ("fields" in detail) this.showReported(detail);
    else this.showCall(detail);
    this.place.hidden = false;
  }

  /** The name and number of a call's thread. @param {Call} call */
  thread(call) {
    const thread = this.state.trace.threads.find(({ index }) => index === call.thread);
    return thread?.name ? `${thread.name} (${thread.tid})` : String(thread?.tid ?? call.thread);
  }

  /** @param {string} name @param {[string, string][]} figures @param {HTMLElement} buttons */
  begin(name, figures, buttons) {
    const list = make("dl", { class: "figures" });
    for (const [what, value] of figures) list.append(make("dt", {}, what), make("dd", {}, value));
    const close = make("button", { type: "button", class: "tool close", "aria-label": "Close", click: () => this.state.set({ call: null }) }, "✕");
    this.place.replaceChildren(close, make("h2", { class: "name" }, name), list, buttons);
  }

  /** @param {string} says @param {() => void} click @param {boolean} [there] */
  button(says, click, there = true) {
    return make("button", { type: "button", class: "small", click, disabled: !there }, says);
  }

  /** What events say: one of them, or what a thread did until one. @param {ReportedDetail} reported */
  showReported(reported) {
    const known = this.state.trace.labels[reported.label];
    const end = reported.start_ns + reported.duration_ns;
    /** @type {[string, string][]} */
    const figures = [["Thread", this.thread(reported)]];
    if (known?.what === "event") figures.push(["At", moment(reported.start_ns, 1)]);
    else figures.push(["Duration", duration(reported.duration_ns)], ["Begins at", moment(reported.start_ns, 1)]);
    figures.push(...reported.fields);
    const { before, behind } = reported;
    const buttons = make("div", { class: "row" },
      this.button("Before", () => before && this.go(before), before !== null),
      this.button("Behind", () => behind && this.go(behind), behind !== null));
    buttons.append(this.pinner(reported.thread));
    if (reported.duration_ns) buttons.append(this.button("Zoom to it", () => this.state.show(reported.start_ns, end)));
    if (known?.what === "lasting") buttons.append(this.button("Durations", () => this.state.set({ label: reported.label, tab: "durations" })));
    this.begin(known?.name ?? "?", figures, buttons);
    const place = make("div", {});
    this.place.append(place);
    void this.belongs(reported, place);
  }

  /** Says which requests an event belongs to. @param {ReportedDetail} reported @param {HTMLElement} place */
  async belongs(reported, place) {
    try {
      const owners = await this.timeline.owners(reported);
      if (!owners.length || !place.isConnected) return;
      const list = owners.map((owner) => this.line(requestName(owner), duration(owner.response_ns), () =>
        this.state.set({ request: { schema: owner.schema, id: owner.id }, beside: null, tab: "requests" })));
      place.append(make("h3", {}, owners.length > 1 ? "Of the requests" : "Of the request"), make("ul", { class: "list" }, ...list));
    } catch {
      // There are no requests by this schema, which the list of them says.
    }
  }

  /** @param {number} thread its index */
  pinner(thread) {
    const pinned = this.state.view.pinned.includes(thread);
    return this.button(pinned ? "Unpin its thread" : "Pin its thread", () => this.timeline.pin(thread));
  }

  /** @param {CallDetail} call */
  showCall(call) {
    const { trace } = this.state;
    const known = trace.labels[call.label];
    /** @type {[string, string][]} */
    const figures = [["Duration", duration(call.duration_ns)]];
    if (trace.switches) {
      const cpu = Math.max(0, call.duration_ns - call.off_cpu_ns);
      figures.push(["On a processor", `${duration(cpu)} (${percent(cpu / call.duration_ns)})`]);
      figures.push(["Waited or preempted", duration(call.off_cpu_ns)]);
    }
    figures.push(["In itself", `${duration(call.self_ns)} (${percent(call.self_ns / call.duration_ns)})`]);
    figures.push(["Begins at", moment(call.start_ns, 1)]);
    figures.push(["Thread", this.thread(call)]);
    if (call.weight !== 1) figures.push(["Stands for", plural(call.weight, "call")]);
    if (known?.place) figures.push(["Source", known.place]);
    figures.push(["Module", known?.module || "–"]);
    // A call may have taken less than the clock's step.
    const end = call.start_ns + Math.max(call.duration_ns, 1);
    this.begin(known?.name ?? "?", figures, make("div", { class: "row" },
      this.button("Zoom to it", () => this.state.show(call.start_ns, end)),
      this.button("Select its time", () => this.state.set({ range: [call.start_ns, end] })),
      this.button("Durations", () => this.state.set({ label: call.label, tab: "durations" }))));
    if (call.callers.length) {
      const callers = [...call.callers].reverse().slice(0, 40).map((caller) => this.line(
        trace.labels[caller.label]?.name ?? "?", duration(caller.duration_ns), () => this.go(caller)));
      this.place.append(make("h3", {}, "Called by"), make("ul", { class: "list" }, ...callers));
    }
    if (call.callees.length) {
      const callees = call.callees.map((share) => this.line(trace.labels[share.label]?.name ?? "?",
        `${share.calls > 1 ? `${count(share.calls)} × ` : ""}${duration(share.total_ns)}`,
        () => this.state.set({ label: share.label })));
      this.place.append(make("h3", {}, `Called (${plural(call.callee_calls, "call")})`), make("ul", { class: "list" }, ...callees));
    }
  }

  /** @param {string} name @param {string} figure @param {() => void} click */
  line(name, figure, click) {
    return make("li", {}, make("button", { type: "button", title: name, click }, name), make("span", { class: "figure" }, figure));
  }
}
