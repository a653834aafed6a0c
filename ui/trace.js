// A trace: gets it, and lets the parts of the page know of each other.

import { Unanswered, get } from "./api.js";
import { palette } from "./colours.js";
import { Communication } from "./communication.js";
import { Details } from "./details.js";
import { byId, make } from "./dom.js";
import { Durations } from "./durations.js";
import { Flame } from "./flame.js";
import { count, duration, moment, plural } from "./format.js";
import { Functions } from "./functions.js";
import { listenToKeys } from "./keys.js";
import { Lanes } from "./lanes.js";
import { Locks } from "./locks.js";
import { failed, say } from "./notice.js";
import { Overview } from "./overview.js";
import { Search } from "./search.js";
import { Requests } from "./requests.js";
import { State, TABS } from "./state.js";
import { Timeline } from "./timeline.js";

/** @typedef {import("./types.js").TraceInfo} TraceInfo */
/** @typedef {import("./types.js").ReportInfo} ReportInfo */
/** @typedef {import("./types.js").RangeInfo} RangeInfo */
/** @typedef {import("./types.js").CallDetail} CallDetail */
/** @typedef {import("./types.js").Call} Call */

/** @param {TraceInfo} trace */
function head(trace) {
  const command = trace.command.join(" ") || "a recording";
  const run = byId("run", HTMLElement);
  run.textContent = command;
  run.title = `${command}\n${trace.start_time}\n${trace.cpu_model}`;
  byId("live", HTMLElement).hidden = !trace.live;
  document.title = `${trace.command[0]?.split("/").pop() ?? "Trace"} – Fettle`;
  byId("facts", HTMLElement).textContent = [
    duration(trace.end_ns), trace.calls ? plural(trace.calls, "call") : "",
    trace.events ? plural(trace.threads.reduce((sum, { events }) => sum + events, 0), "event") : "",
    trace.threads.length ? plural(trace.threads.length, "thread") : "",
  ].filter(Boolean).join("  ·  ");
  lacks(trace, null);
}

/** Always says whether something is missing. @param {TraceInfo} trace @param {ReportInfo|null} report */
function lacks(trace, report) {
  const chip = byId("losses", HTMLButtonElement);
  const lost = trace.lost + (report?.losses ?? []).reduce((sum, { what, count }) =>
    what.includes("ring full") ? sum : sum + count, 0);
  const warnings = [...new Set([...trace.warnings, ...(report?.warnings ?? [])])];
  const calm = !lost && !warnings.length && !trace.cut_off;
  chip.hidden = false;
  chip.className = calm ? "chip calm" : "chip";
  chip.textContent = calm ? "nothing lost" : [
    lost ? `${count(lost)} lost` : "", trace.cut_off ? "cut off" : "",
    warnings.length ? plural(warnings.length, "warning") : "",
  ].filter(Boolean).join("  ·  ");
  const list = byId("losses-list", HTMLElement);
  const losses = report?.losses ?? (trace.lost ? [{ what: "records that found their ring full", count: trace.lost }] : []);
  const items = [
    ...losses.map(({ what, count: n }) => `${count(n)} ${what}`),
    ...(trace.cut_off ? ["The recording did not end properly; what was stored is shown."] : []),
    ...warnings, ...(report?.notes ?? []),
    ...(report?.skipped ?? []).map(({ reason, functions }) => `${plural(functions, "function")} left unmodified: ${reason}`),
  ];
  const says = items.length ? make("ul", {}, ...items.map((item) => make("li", {}, item)))
    : make("p", {}, "Nothing that is known of: every call that ended has its record.");
  list.replaceChildren(says);
}

/** Lists the keys of what is there. @param {TraceInfo} trace @param {number} tabs */
function helpOn(trace, tabs) {
  const help = byId("help", HTMLDialogElement);
  for (const part of help.querySelectorAll("[data-needs]")) {
    if (part instanceof HTMLElement) part.hidden = part.dataset["needs"] === "events" ? !trace.events : !trace.calls;
  }
  byId("last-tab", HTMLElement).textContent = String(tabs);
}

/** Lets the border between the two halves be moved. @param {number} share of the upper one, in percent */
function splitter(share) {
  const bar = byId("splitter", HTMLElement);
  const [upper, lower] = [byId("upper", HTMLElement), byId("lower", HTMLElement)];
  const set = (/** @type {number} */ wanted) => {
    share = Math.min(88, Math.max(15, wanted));
    upper.style.flex = `1 1 ${share}%`;
    lower.style.flex = `1 1 ${100 - share}%`;
    bar.setAttribute("aria-valuenow", String(Math.round(share)));
  };
  set(share);
  bar.addEventListener("pointerdown", (event) => {
    bar.setPointerCapture(event.pointerId);
    const top = upper.getBoundingClientRect().top;
    const whole = lower.getBoundingClientRect().bottom - top;
    const move = (/** @type {PointerEvent} */ move) => set(((move.clientY - top) / whole) * 100);
    bar.addEventListener("pointermove", move);
    bar.addEventListener("pointerup", () => bar.removeEventListener("pointermove", move), { once: true });
  });
  bar.addEventListener("keydown", (event) => {
    if (event.key === "ArrowUp") set(share - 4);
    else if (event.key === "ArrowDown") set(share + 4);
  });
}

/** How often it is asked whether a recording has grown. */
const LIVE_MS = 1000;

/** @param {TraceInfo} trace @param {() => void} switchTheme */
function start(trace, switchTheme) {
  const state = new State(trace);
  new Lanes(state);
  const timeline = new Timeline(state, failed);
  const overview = new Overview(state, failed);
  const functions = new Functions(byId("functions", HTMLElement), state);
  const flame = new Flame(byId("flame", HTMLElement), state);
  /** @param {Call} call */
  const go = (call) => {
    const { from, to } = state.view;
    // A call may have taken less than the clock's step.
    const length = Math.max(call.duration_ns, 1);
    const end = call.start_ns + length;
    const seen = call.start_ns >= from && end <= to && length > (to - from) / 400;
    state.set({ call: { thread: call.thread, depth: call.depth, index: call.index }, label: call.label });
    if (!seen) state.show(call.start_ns - length * 2, end + length * 2);
    timeline.reveal(call);
  };
  const details = new Details(state, go, timeline);
  const durations = new Durations(byId("durations", HTMLElement), state, failed, go);

  const requests = new Requests(byId("requests", HTMLElement), state, failed, timeline);
  const communication = new Communication(byId("communication", HTMLElement), state, failed);
  const locks = new Locks(byId("locks", HTMLElement), state, failed);

  // Theme.
  const paint = () => {
    const colours = palette(trace.labels);
    for (const part of [timeline, overview, flame, durations, requests]) part.setPalette(colours);
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  const turn = () => {
    switchTheme();
    paint();
  };
  byId("theme", HTMLButtonElement).addEventListener("click", turn);

  // Selected time: the table and the flame graph are of it.
  /** @type {ReportInfo|null} */
  let report = null;
  let asked = "";
  let waiting = 0;
  const scope = () => {
    const { range } = state.view;
    byId("scope", HTMLElement).textContent = !trace.calls ? (trace.totals ? `Calls were counted (mode ${trace.probe_mode})` : "") : range
      ? `${duration(range[1] - range[0])} from ${moment(range[0], (range[1] - range[0]) / 20)}` : "Whole recording";
    byId("scope-clear", HTMLElement).hidden = !range;
  };
  const analyse = async () => {
    const { range } = state.view;
    const [from, to] = range ?? [0, state.end + 1];
    const key = `${from}-${to}-${state.view.cpu}`;
    if (key === asked) return;
    asked = key;
    try {
      const query = { from: Math.floor(from), to: Math.ceil(to) };
      /** @type {RangeInfo} */
      const info = await get("range", { ...query, cpu: state.view.cpu });
      if (asked !== key) return;
      flame.setRange(info);
      if (range) functions.setRange(info);
      else if (report) functions.setReport(report);
    } catch (error) {
      failed(error);
    }
  };
  const soon = () => {
    window.clearTimeout(waiting);
    waiting = window.setTimeout(() => void analyse(), 120);
  };
  byId("scope-clear", HTMLElement).addEventListener("click", () => state.set({ range: null }));

  // The selected call.
  let shown = "";
  const showCall = async () => {
    const { call } = state.view;
    const key = JSON.stringify(call);
    if (key === shown) return;
    shown = key;
    if (!call) {
      timeline.marked = null;
      details.hide();
      return;
    }
    try {
      /** @type {CallDetail|import("./types.js").ReportedDetail} */
      const found = await get("call", { ...call });
      if (shown !== key) return;
      timeline.marked = found;
      details.show(found);
      timeline.draw();
    } catch (error) {
      // A link to a call of another trace.
      if (error instanceof Unanswered && error.status === 404) state.set({ call: null }, false);
      else failed(error);
    }
  };

  // Tabs.
  const cpu = byId("cpu", HTMLInputElement);
  cpu.addEventListener("change", () => state.set({ cpu: cpu.checked }));
  const tab = () => {
    const { tab, range } = state.view;
    byId("tabs", HTMLElement).append(...state.tabs.map((name) => byId(`tab-${name}`, HTMLButtonElement)));
    cpu.checked = state.view.cpu;
    // The table of the whole recording has a column for each.
    const chooses = tab === "flame" || (tab === "functions" && range !== null);
    byId("cpu-choice", HTMLElement).hidden = !trace.switches || !chooses;
    for (const name of TABS) {
      const on = tab === name;
      const button = byId(`tab-${name}`, HTMLButtonElement);
      button.setAttribute("aria-selected", String(on));
      button.tabIndex = on ? 0 : -1;
      button.hidden = !state.tabs.includes(name);
      byId(name, HTMLElement).hidden = !on;
    }
  };
  TABS.forEach((name) => {
    const button = byId(`tab-${name}`, HTMLButtonElement);
    button.addEventListener("click", () => state.set({ tab: name }));
    button.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      const at = state.tabs.indexOf(name);
      const next = step && state.tabs[(at + step + state.tabs.length) % state.tabs.length];
      if (!next) return;
      state.set({ tab: next });
      byId(`tab-${next}`, HTMLButtonElement).focus();
    });
  });

  // Search.
  const next = async (/** @type {number} */ label, /** @type {boolean} */ backwards) => {
    const here = timeline.marked;
    const { from, to } = state.view;
    const within = here && here.start_ns >= from && here.start_ns < to && state.view.label === label;
    const at = within ? here.start_ns : Math.max(0, backwards ? to : from - 1);
    try {
      /** @type {{calls: Call[]}} */
      const found = await get("next", { function: label, from: Math.floor(at), backwards });
      const [call] = found.calls;
      if (call) go(call);
      else state.set({ label });
    } catch (error) {
      failed(error);
    }
  };
  const search = new Search(state, (labels, query) => {
    timeline.setFound(labels, query);
    flame.setFound(labels);
    functions.setQuery(query);
  }, (label, backwards) => void next(label, backwards), (thread) => timeline.revealIndex(thread));
  const step = (/** @type {boolean} */ backwards) => {
    if (state.view.label !== null) void next(state.view.label, backwards);
  };

  state.listen((view, before) => {
    if (view.range !== before.range) scope(), soon();
    if (view.cpu !== before.cpu) soon();
    if (view.tab !== before.tab || view.range !== before.range || view.cpu !== before.cpu) tab();
    if (JSON.stringify(view.call) !== shown) void showCall();
  });

  const ofRequests = () => state.view.tab === "requests";
  const help = byId("help", HTMLDialogElement);
  const ask = () => {
    helpOn(trace, state.tabs.length);
    help.showModal();
  };
  byId("help-button", HTMLButtonElement).addEventListener("click", ask);
  byId("losses", HTMLButtonElement).addEventListener("click", () => byId("losses-dialog", HTMLDialogElement).showModal());
  listenToKeys(timeline, () => requests.underPointer() ?? timeline, {
    "/": () => (ofRequests() ? requests.input : search.input).select(),
    "?": () => ask(),
    "0": () => {
      const waterfall = requests.underPointer();
      if (waterfall) waterfall.all();
      else state.set({ from: 0, to: state.end }, true);
    },
    f: () => {
      const { range } = state.view;
      if (timeline.marked) state.show(timeline.marked.start_ns, timeline.marked.start_ns + timeline.marked.duration_ns);
      else if (range) state.show(range[0], range[1]);
    },
    i: () => {
      const { call } = state.view;
      if (call) timeline.pin(call.thread);
    },
    n: () => step(false),
    p: () => step(true),
    ...Object.fromEntries(state.tabs.map((tab, at) => [String(at + 1), () => state.set({ tab })])),
    t: turn,
    j: () => ofRequests() && void requests.step(true),
    k: () => ofRequests() && void requests.step(false),
    // Elsewhere they scroll what is under the pointer.
    ArrowDown: () => requests.current() !== null && void requests.step(true),
    ArrowUp: () => requests.current() !== null && void requests.step(false),
    c: () => ofRequests() && requests.compare(),
    Escape: () => {
      if (ofRequests() && requests.letGo()) return;
      if (state.view.call) state.set({ call: null });
      else state.set({ range: null, label: null });
    },
  });

  byId("main", HTMLElement).hidden = false;
  byId("notice", HTMLElement).hidden = true;
  timeline.scroller.scrollTop = state.view.scroll;
  functions.say("Adding up all calls…");
  flame.say("Adding up all calls…");
  paint();
  scope();
  tab();
  // In a recording of events alone, requests are looked for first; in one of locks, there is nothing else.
  splitter(trace.calls ? 58 : trace.events ? 42 : 15);
  // Totals have no time in which they could be drawn.
  const drawn = trace.calls > 0 || trace.events || trace.locks;
  for (const part of ["overview", "upper", "splitter"]) byId(part, HTMLElement).hidden = !drawn;
  if (!drawn) byId("lanes", HTMLElement).hidden = true;

  // A recording that goes on.
  const grow = async () => {
    try {
      /** @type {{live: boolean, generation: number}} */
      const now = await get("live");
      if (now.generation !== trace.generation) {
        trace = await get("trace");
        head(trace);
        const marked = timeline.marked;
        shown = "";
        asked = "";
        state.grow(trace);
        paint();
        scope();
        tab();
        for (const part of [durations, requests, communication]) part.again();
        report = await get("report");
        lacks(trace, report);
        await analyse();
        await showCall();
        // A call that ended since may have moved others by a row: another one is not shown for it.
        const same = timeline.marked?.label === marked?.label && Math.abs((timeline.marked?.start_ns ?? 0) - (marked?.start_ns ?? 0)) < 1e5;
        if (marked && !same) state.set({ call: null }, false);
        document.documentElement.dataset["generation"] = String(trace.generation);
      }
      if (trace.live) window.setTimeout(() => void grow(), LIVE_MS);
    } catch (error) {
      failed(error);
    }
  };
  if (trace.live) window.setTimeout(() => void grow(), LIVE_MS);

  void showCall();
  search.restore();
  for (const part of [durations, requests, communication, locks]) part.refresh();
  void analyse();
  get("report").then((/** @type {ReportInfo} */ answer) => {
    report = answer;
    lacks(trace, report);
    if (!state.view.range) functions.setReport(report);
  }).catch(failed);
}

/**
 * Shows the trace that is served.
 * @param {() => void} switchTheme
 */
export async function showTrace(switchTheme) {
  const patience = window.setTimeout(() => say("Reading the trace…", "Ten million calls take about a second."), 300);
  /** @type {TraceInfo} */
  const trace = await get("trace").finally(() => window.clearTimeout(patience));
  head(trace);
  if (!trace.calls && !trace.events && !trace.locks && !trace.totals) {
    say("There is nothing to draw",
      `This trace was recorded in the mode ${trace.probe_mode}, and no function was called. ` +
      "`fettle report` shows what it has.");
    return;
  }
  start(trace, switchTheme);
  document.documentElement.dataset["ready"] = "true";
}
