// Layouts of hot code: what `fettle tune --json` and `fettle layout --json` report. How hot code lies
// on the instruction cache before and after, the functions with their parts, and what was measured
// (the figures 4 to 7 of "Dynamic Kernel I-Cache Optimization").

import { get } from "./api.js";
import { byId, make, svg } from "./dom.js";
import { count, duration, percent, plural } from "./format.js";

/** @typedef {import("./types.js").LayoutsInfo} LayoutsInfo */
/** @typedef {import("./types.js").LaidOutModule} LaidOutModule */
/** @typedef {import("./types.js").CacheMap} CacheMap */
/** @typedef {import("./types.js").Modelled} Modelled */
/** @typedef {import("./types.js").Measurement} Measurement */

/** Cells of a map at most; each stands for several sets if there are more. */
const CELLS_MAX = 4096;
/** Functions shown before the user asks for more. */
const SHOWN = 30;

/** @param {string} path */
function lastOf(path) {
  return path.split("/").pop() ?? path;
}

/** Signed, as a change. @param {number} ratio 1 is none */
function change(ratio) {
  const by = (ratio - 1) * 100;
  return `${by < 0 ? "−" : "+"}${Math.abs(by).toFixed(1)} %`;
}

/** Each set as a cell: how many lines of hot code want it. @param {CacheMap} map @param {string} title */
function mapOf(map, title) {
  const together = Math.ceil(map.sets.length / CELLS_MAX);
  /** @type {number[]} */
  const cells = [];
  for (let at = 0; at < map.sets.length; at += together) {
    cells.push(Math.max(...map.sets.slice(at, at + together)));
  }
  const columns = cells.length <= 256 ? 16 : 64;
  const size = columns === 16 ? 24 : 8;
  const rows = Math.ceil(cells.length / columns);
  const crowded = map.sets.filter((lines) => lines > map.ways).length;
  const says = `${plural(map.lines, "line")} of hot code, ${percent(map.share)} of the cache; ` +
    (crowded ? `${plural(crowded, "set")} hold${crowded === 1 ? "s" : ""} less than that` : "every set holds what falls on it");
  const drawing = svg("svg", {
    viewBox: `0 0 ${columns * size} ${rows * size}`, class: "cache-map", role: "img", "aria-label": `${title}: ${says}`,
  });
  cells.forEach((lines, at) => {
    const [x, y] = [(at % columns) * size, Math.floor(at / columns) * size];
    const over = lines > map.ways;
    const sets = together > 1 ? `sets ${at * together} to ${Math.min((at + 1) * together, map.sets.length) - 1}` : `set ${at}`;
    const cell = svg("rect", {
      x: x + 0.5, y: y + 0.5, width: size - 1, height: size - 1, rx: size > 8 ? 2 : 0,
      class: over ? "set over" : lines ? "set held" : "set",
      "fill-opacity": over || !lines ? 1 : 0.15 + 0.75 * Math.min(1, lines / Math.max(1, map.ways)),
    }, svg("title", {}, `${sets}: ${plural(lines, "line")} for ${plural(map.ways, "place")}`));
    drawing.append(cell);
    if (size > 8 && lines) {
      drawing.append(svg("text", { x: x + size / 2, y: y + size / 2 + 3.5, class: over ? "in-set over" : "in-set" }, String(lines)));
    }
  });
  return make("figure", {}, make("figcaption", {}, make("b", {}, title), ` – ${says}`), drawing);
}

/** Every round as a point, the mean with its interval as a bar. @param {Measurement} measured */
function rounds(measured) {
  const { ratios, low, high, ratio } = measured;
  const [width, height, pad] = [520, 96, 14];
  const all = [...ratios, low, high, 1].filter(Number.isFinite);
  const [least, most] = [Math.min(...all), Math.max(...all)];
  const room = Math.max(most - least, 0.01);
  const x = (/** @type {number} */ value) => pad + ((value - least) / room) * (width - 2 * pad);
  const drawing = svg("svg", {
    viewBox: `0 0 ${width} ${height}`, class: "rounds", role: "img",
    "aria-label": `${plural(ratios.length, "round")}: ${change(ratio)}, 95 % interval ${change(low)} to ${change(high)}`,
  });
  drawing.append(
    svg("line", { x1: x(1), x2: x(1), y1: 6, y2: 74, class: "even" }),
    svg("text", { x: Math.min(Math.max(x(1), 28), width - 28), y: 90, class: "label" }, "as before"),
    svg("rect", { x: x(low), y: 30, width: Math.max(1, x(high) - x(low)), height: 20, class: "interval" }),
    svg("line", { x1: x(ratio), x2: x(ratio), y1: 26, y2: 54, class: "mean" }),
  );
  ratios.forEach((value, round) => {
    if (!Number.isFinite(value)) return;
    const dot = svg("circle", { cx: x(value), cy: 40 + (((round * 7) % 9) - 4) * 3, r: 3.5, class: "round" });
    dot.append(svg("title", {}, `round ${round + 1}: ${change(value)}`));
    drawing.append(dot);
  });
  return drawing;
}

/** @param {Modelled} model */
function figures({ cost, ways, stall_share }) {
  const jumps = ways.branches + ways.jumps;
  return [
    cost.insns ? ((cost.misses / cost.insns) * 1000).toFixed(2) : "–",
    percent(jumps / (jumps + ways.straight)),
    stall_share === null ? "–" : percent(stall_share),
  ];
}

/** @type {Record<string, string>} */
const METHODS = { ExtTsp: "ext-TSP", PettisHansen: "Pettis and Hansen" };
/** @type {Record<string, string>} */
const UNITS = { Function: "functions whole", Chain: "chains across functions" };

/** What the model says of each order. @param {LaidOutModule} module */
function modelTable(module) {
  const name = (/** @type {{method: string, unit: string}} */ choice) =>
    `${METHODS[choice.method] ?? choice.method}, ${UNITS[choice.unit] ?? choice.unit}`;
  const row = (/** @type {string} */ title, /** @type {Modelled} */ model, /** @type {boolean} */ chosen) =>
    make("tr", chosen ? { class: "chosen" } : {}, make("td", {}, title),
      ...figures(model).map((text) => make("td", { class: "number" }, text)));
  const chosen = module.choice ? name(module.choice) : "";
  const others = module.choices.filter(([choice]) => name(choice) !== chosen);
  return make("table", { class: "model" },
    make("thead", {}, make("tr", {}, ...["By the model", "Misses per 1000 instructions", "Jumps taken", "Time for fetching"].map(
      (title, at) => make("th", at ? { class: "number" } : {}, title)))),
    make("tbody", {}, row("as it is", module.model_before, false), row(chosen, module.model_after, true),
      ...others.map(([choice, model]) => row(name(choice), model, false))));
}

/** The functions in the order of their hot parts. @param {LaidOutModule} module */
function functionTable(module) {
  const body = make("tbody");
  const fill = (/** @type {number} */ shown) => body.replaceChildren(...module.functions.slice(0, shown).map((row) =>
    make("tr", {},
      make("td", { class: "text", title: row.name }, row.demangled ?? row.name),
      ...[row.hot_bytes, row.chains, row.cold_bytes, row.table_bytes].map((n) => make("td", { class: "number" }, count(n))))));
  fill(SHOWN);
  const sum = (/** @type {"hot_bytes"|"chains"|"cold_bytes"|"table_bytes"} */ key) =>
    count(module.functions.reduce((all, row) => all + row[key], 0));
  const table = make("table", { class: "group" },
    make("thead", {}, make("tr", {}, ...["Function, in order", "Hot bytes", "Chains", "Cold bytes", "Jump tables"].map(
      (title, at) => make("th", at ? { class: "number" } : {}, title)))),
    body,
    make("tfoot", {}, make("tr", {}, make("td", {}, `${plural(module.functions.length, "function")} in all`),
      ...[sum("hot_bytes"), sum("chains"), sum("cold_bytes"), sum("table_bytes")].map((text) => make("td", { class: "number" }, text)))));
  if (module.functions.length <= SHOWN) return [table];
  const more = make("button", {
    type: "button", class: "small",
    click: () => {
      fill(module.functions.length);
      more.remove();
    },
  }, `All ${count(module.functions.length)} functions`);
  return [table, more];
}

/** @param {LaidOutModule} module */
function moduleSection(module) {
  const title = make("h3", { title: module.path }, lastOf(module.path), make("small", {}, module.path));
  if (module.why !== null) return make("section", {}, title, make("p", {}, `There is no layout: ${module.why}`));
  const exact = module.edges ? `${percent(module.exact_edges / module.edges)} of ${plural(module.edges, "edge")} have exact counts.` : "";
  return make("section", {}, title,
    make("div", { class: "maps" },
      mapOf(module.cache_before, "Hot code on the instruction cache, before"), mapOf(module.cache_after, "After")),
    modelTable(module), make("p", { class: "soft" }, exact), ...functionTable(module));
}

/**
 * What stays is shown by its figure; what was reverted is no gain, whatever its figure.
 * @param {Measurement} measured @param {boolean|null} kept
 */
function headline(measured, kept) {
  if (kept !== false) return change(measured.ratio);
  return measured.verdict ? `reverted: ${measured.verdict}` : "reverted";
}

/** What was done and measured. @param {LayoutsInfo} layouts */
function summary(layouts) {
  const { measured, installed, counted, kept, processes } = layouts;
  const longest = Math.max(0, ...[counted, installed, measured].flatMap((part) => part?.stops_ms ?? []));
  const looks = counted?.looks;
  const facts = [
    looks ? `Seen ${plural(looks.all, "time")} at work, ${plural(looks.in_functions, "time")} in functions that can be laid out.` : "",
    counted?.passages && !looks ? `Counted ${plural(counted.passages, "passage")} in ${plural(counted.processes, "process", "processes")}.` : "",
    installed ? `${plural(installed.jumps, "jump")}, ${plural(installed.calls, "call")}, ${plural(installed.slots, "slot")} and ` +
      `${plural(installed.midway ?? 0, "place")} in the middle of functions ` +
      `led to ${count(Math.round(installed.bytes / 1000))} kB of rewritten text in ${plural(processes ?? 1, "process", "processes")}.` : "",
    longest ? `No thread stood still for more than ${longest.toFixed(2)} ms.` : "",
    kept === null ? "" : kept ? "The rewritten text stays." : "The process runs its original text again.",
  ].filter(Boolean).join(" ");
  const parts = [make("p", { class: "soft" }, facts)];
  if (measured) {
    parts.unshift(make("div", { class: "measured" },
      make("div", {},
        make("p", { class: "big" }, headline(measured, kept)),
        make("p", {}, `processor time for a unit of work: ${duration(measured.old_ns)}, with rewritten text ${duration(measured.new_ns)} (${change(measured.ratio)})`),
        make("p", { class: "soft" }, `95 % interval ${change(measured.low)} to ${change(measured.high)}, ${plural(measured.ratios.length, "round")}`)),
      rounds(measured)));
  }
  for (const { path, why } of layouts.refused) parts.push(make("p", { class: "soft" }, `${path} stays as it is: ${why}`));
  return parts;
}

/**
 * Shows the layouts that are served, the newest on top.
 * @param {() => void} switchTheme
 */
export async function showLayouts(switchTheme) {
  /** @type {LayoutsInfo[]} */
  const all = await get("layouts");
  document.documentElement.classList.add("of-layouts");
  const of = all.find((layouts) => layouts.pid !== null);
  const title = of ? `fettle tune -p ${of.pid}` : "fettle layout";
  byId("run", HTMLElement).textContent = title;
  document.title = `${lastOf(all[0]?.modules[0]?.path ?? "Layout")} – Fettle`;
  byId("facts", HTMLElement).textContent = plural(all[0]?.modules.length ?? 0, "module");
  const page = byId("layouts", HTMLElement);
  page.replaceChildren(...all.map((layouts, at) => [layouts, at]).reverse().map(([layouts, at]) =>
    oneOf(/** @type {LayoutsInfo} */ (layouts), all.length > 1 ? Number(at) + 1 : null)));
  page.hidden = false;
  byId("theme", HTMLButtonElement).addEventListener("click", switchTheme);
  window.addEventListener("keydown", (event) => {
    if (event.key === "t" && !event.ctrlKey && !event.metaKey && !event.altKey) switchTheme();
  });
  document.documentElement.dataset["ready"] = "true";
}

/** @param {LayoutsInfo} layouts @param {number|null} number if there are several */
function oneOf(layouts, number) {
  return make("article", {}, ...(number ? [make("h2", {}, `Run ${number}`)] : []),
    ...summary(layouts), ...layouts.modules.map(moduleSection));
}
