// Which threads have rows, and in which order: what is pinned first, then process by process. And the bar above the
// timelines that chooses them.

import { byId, make } from "./dom.js";
import { count, plural } from "./format.js";

/** @typedef {import("./types.js").ThreadInfo} ThreadInfo */
/** @typedef {import("./types.js").Lane} Lane */
/** @typedef {import("./types.js").View} View */
/** @typedef {import("./state.js").State} State */

/** What the pinned threads' lane is called by. */
export const PINNED = "pinned";

/** Whether anything is drawn of a thread. @param {ThreadInfo} thread */
export function says({ calls, events, off_cpu }) {
  return calls > 0 || events > 0 || off_cpu;
}

/**
 * Threads by their processes, each named after its first thread, in the order in which they came.
 * @param {ThreadInfo[]} threads
 * @returns {Lane[]}
 */
export function processes(threads) {
  /** @type {Map<string, Lane>} */
  const lanes = new Map();
  for (const thread of threads) {
    // Of what is not recorded, the process is not known.
    const key = thread.pid ? String(thread.pid) : thread.tid ? "others" : `thread ${thread.index}`;
    const lane = lanes.get(key) ?? { key, pid: thread.pid, name: "", threads: [] };
    lanes.set(key, lane);
    lane.threads.push(thread);
  }
  for (const lane of lanes.values()) {
    const main = lane.threads.find(({ pid, tid }) => pid !== 0 && pid === tid);
    lane.name = lane.key === "others" ? "not recorded" : (main ?? lane.threads[0])?.name || "no name";
  }
  return [...lanes.values()];
}

/**
 * The lanes that are shown.
 * @param {ThreadInfo[]} threads
 * @param {Pick<View, "lanes"|"busy"|"pinned">} view
 * @returns {Lane[]}
 */
export function chosenLanes(threads, { lanes, busy, pinned }) {
  const words = lanes.toLowerCase().split(/\s+/).filter(Boolean);
  /** @param {string} name @param {number} number */
  const is = (name, number) => words.some((word) => name.toLowerCase().includes(word) || String(number) === word);
  /** @type {Lane[]} */
  const shown = [];
  const above = pinned.map((index) => threads.find((thread) => thread.index === index)).filter((thread) => thread !== undefined);
  if (above.length) shown.push({ key: PINNED, pid: 0, name: "Pinned", threads: above });
  for (const lane of processes(threads)) {
    const whole = !words.length || is(lane.name, lane.pid);
    const left = lane.threads.filter((thread) =>
      (whole || is(thread.name, thread.tid)) && (!busy || says(thread)) && !pinned.includes(thread.index));
    if (left.length) shown.push({ ...lane, threads: left });
  }
  return shown;
}

/** Names of threads and processes, each with its threads. @param {ThreadInfo[]} threads */
export function names(threads) {
  /** @type {Map<string, {name: string, what: string, threads: number[]}>} */
  const found = new Map();
  for (const lane of processes(threads)) {
    const known = found.get(lane.name) ?? { name: lane.name, what: "process", threads: [] };
    found.set(lane.name, known);
    if (lane.pid) known.threads.push(...lane.threads.map(({ index }) => index));
    for (const { name, index } of lane.threads) {
      if (!name || (lane.pid && name === lane.name)) continue;
      const other = found.get(name) ?? { name, what: "thread", threads: [] };
      found.set(name, other);
      other.threads.push(index);
    }
  }
  return [...found.values()].filter(({ threads }) => threads.length > 0);
}

/** The bar above the timelines. */
export class Lanes {
  /** @param {State} state */
  constructor(state) {
    this.state = state;
    this.place = byId("lanes", HTMLElement);
    this.input = make("input", {
      type: "search", placeholder: "Only processes or threads named…", spellcheck: "false", autocomplete: "off",
      "aria-label": "Show only processes and threads with this in their name, or with this number",
      input: () => state.set({ lanes: this.input.value.trim(), scroll: 0 }),
      keydown: (event) => {
        if (!(event instanceof KeyboardEvent) || (event.key !== "Escape" && event.key !== "Enter")) return;
        if (event.key === "Escape") state.set({ lanes: "" });
        this.input.blur();
        event.preventDefault();
      },
    });
    this.busy = make("input", { type: "checkbox", id: "busy", change: () => state.set({ busy: this.busy.checked }) });
    this.note = make("span", { class: "soft", role: "status" });
    this.unpin = make("button", { type: "button", class: "small", click: () => state.set({ pinned: [] }) }, "Unpin all");
    this.place.replaceChildren(this.input, make("label", { class: "choice" }, this.busy, " hide empty"), this.note, this.unpin);
    state.listen((view, before) => {
      if (view.lanes !== before.lanes || view.busy !== before.busy || view.pinned !== before.pinned) this.tell();
    });
    state.whenGrown(() => this.tell());
    this.tell();
  }

  tell() {
    const { trace: { threads }, view } = this.state;
    this.place.hidden = threads.length < 2;
    if (this.input.value.trim() !== view.lanes) this.input.value = view.lanes;
    this.busy.checked = view.busy;
    this.unpin.hidden = !view.pinned.length;
    const shown = chosenLanes(threads, view).reduce((sum, lane) => sum + lane.threads.length, 0);
    const all = processes(threads).filter(({ pid }) => pid).length;
    this.note.textContent = shown < threads.length ? `${count(shown)} of ${plural(threads.length, "thread")}`
      : all > 1 ? `${plural(threads.length, "thread")} of ${count(all)} processes` : plural(threads.length, "thread");
  }
}
