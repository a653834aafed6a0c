// What `fettle locks` has counted: pairs of lock class and place, who blocked whom, waits as a flame graph, and
// what may be wrong.

import { get } from "./api.js";
import { contentionOf, convoysOf, flamesOf, matrixOf, placeText, rowsOf } from "./contention.js";
import { make, svg } from "./dom.js";
import { count, duration, percent, plural } from "./format.js";

/** @typedef {import("./types.js").LocksInfo} LocksInfo */

/** Rows of the table at first. */
const ROWS = 60;
/** Places on each side of the matrix. */
const PLACES = 10;
const FLAME = 20;

export class Locks {
  /**
   * @param {HTMLElement} panel
   * @param {import("./state.js").State} state
   * @param {(error: unknown) => void} failed
   */
  constructor(panel, state, failed) {
    this.panel = panel;
    this.state = state;
    this.failed = failed;
    this.loading = false;
    /** @type {"holder"|"waiter"} */
    this.end = "holder";
    state.listen(() => this.refresh());
  }

  refresh() {
    if (this.state.view.tab !== "locks" || this.loading) return;
    this.loading = true;
    get("locks").then((/** @type {LocksInfo} */ report) => this.show(report)).catch(this.failed);
  }

  /** @param {LocksInfo} report */
  show(report) {
    const waited = report.classes.reduce((sum, lock) => sum + lock.blocking.reduce((all, pair) => all + pair.waited_ns, 0), 0);
    const flames = make("div", { class: "flames" });
    let drawn = 0;
    const drawFlames = () => {
      drawn = flames.clientWidth;
      if (drawn) flames.replaceChildren(flameGraph(report, this.end, drawn));
    };
    const choice = make("select", {
      "aria-label": "Who is charged with waits",
      change: () => {
        this.end = choice.value === "waiter" ? "waiter" : "holder";
        drawFlames();
      },
    }, make("option", { value: "holder" }, "charged to who held it"), make("option", { value: "waiter" }, "charged to who waited"));
    new ResizeObserver(() => flames.clientWidth !== drawn && drawFlames()).observe(flames);
    const waits = waited === 0 ? [make("p", { class: "empty" }, "No thread waited for a lock.")] : [
      make("header", {}, make("h2", {}, `Waits: ${duration(waited)}`), choice), flames,
      make("h2", {}, "Who blocked whom"), matrix(report)];
    this.panel.replaceChildren(make("div", { class: "locks" },
      make("div", { class: "locks-left" }, ...table(report)),
      make("div", { class: "locks-right" }, ...waits, ...convoys(report), ...heldOver(report), ...lines(report), ...deadlocks(report))));
  }
}

/** Classes and places. @param {LocksInfo} report */
function table(report) {
  const rows = rowsOf(report);
  const heads = ["Lock, and where it is taken", "Acquired", "Waits", "Waited", "Longest", "Held", "Queue"];
  const body = make("tbody");
  const fill = (/** @type {number} */ shown) => body.replaceChildren(...rows.slice(0, shown).map(({ name, of, sums }) => {
    const time = (/** @type {number} */ ns) => make("td", {}, ns ? duration(ns) : "");
    return make("tr", { class: of === null ? "class" : "site" },
      make("td", { class: "text", title: of === null ? name : `${of}: ${name}` }, name),
      make("td", {}, count(sums.acquired)),
      make("td", {}, sums.contended ? percent(contentionOf(sums)) : ""),
      time(sums.waited_ns), time(sums.waited_ns_max), time(sums.held_ns),
      make("td", {}, sums.queue_max ? count(sums.queue_max) : ""));
  }));
  fill(ROWS);
  const whole = make("table", { "aria-label": "Locks" },
    make("thead", {}, make("tr", {}, ...heads.map((title, at) => make("th", { scope: "col", class: at ? "" : "text" }, make("span", {}, title))))),
    body);
  if (rows.length <= ROWS) return [whole];
  const more = make("button", {
    type: "button", class: "small",
    click: () => {
      fill(rows.length);
      more.parentElement?.remove();
    },
  }, `All ${count(rows.length)} rows`);
  return [whole, make("p", { class: "more" }, more)];
}

/** @param {LocksInfo} report */
function matrix(report) {
  const { waiters, holders, cells } = matrixOf(report, PLACES);
  const most = Math.max(1, ...cells.flat());
  const cell = (/** @type {number} */ ns, /** @type {string} */ says) => {
    const shade = Math.sqrt(ns / most);
    return make("td", { class: shade > 0.6 ? "deep" : "", title: says, "data-shade": shade.toFixed(2) }, ns ? duration(ns) : "");
  };
  const whole = make("table", { class: "matrix", "aria-label": "Who blocked whom" },
    make("thead", {}, make("tr", {}, make("th", { scope: "col", class: "text" }, make("span", {}, "Waited, for who held it")),
      ...holders.map((holder) => make("th", { scope: "col", title: holder }, make("span", {}, holder))))),
    make("tbody", {}, ...waiters.map((waiter, row) => make("tr", {},
      make("th", { scope: "row", class: "text", title: waiter }, make("span", {}, waiter)),
      ...holders.map((holder, column) => {
        const ns = cells[row]?.[column] ?? 0;
        return cell(ns, `${waiter} waited ${duration(ns)} for ${holder}`);
      })))));
  // The page's policy allows no style in a text; one that is set is none.
  for (const td of whole.querySelectorAll("td")) td.style.setProperty("--shade", `${Math.round(Number(td.dataset["shade"]) * 100)}%`);
  return whole;
}

/** @param {LocksInfo} report @param {"holder"|"waiter"} end @param {number} wide pixels */
function flameGraph(report, end, wide) {
  const flames = flamesOf(report, end);
  const height = (Math.max(0, ...flames.map(({ depth }) => depth)) + 1) * FLAME;
  const whole = flames[0]?.ns ?? 1;
  const drawing = svg("svg", {
    viewBox: `0 0 ${wide} ${height}`, class: "flame-graph", role: "img",
    "aria-label": `Waits as a flame graph, charged to who ${end === "holder" ? "held the lock" : "waited"}: ${plural(flames.length, "frame")}`,
  });
  for (const { name, ns, left, right, depth } of flames) {
    const width = (right - left) * wide;
    if (width < 0.5) continue;
    const [x, y] = [left * wide, depth * FLAME];
    const kind = depth === 0 ? "all" : depth === 2 ? "lock" : "place";
    drawing.append(svg("rect", { x, y, width: Math.max(width - 1, 0.5), height: FLAME - 1, class: `flame ${kind}` },
      svg("title", {}, `${name}: ${duration(ns)}, ${percent(ns / whole)}`)));
    const letters = Math.floor((width - 8) / 6.4);
    if (letters < 3) continue;
    drawing.append(svg("text", { x: x + 4, y: y + 14 }, name.length > letters ? `${name.slice(0, letters - 1)}…` : name));
  }
  return drawing;
}

/** Locks that threads queue for all the time, for short sections. @param {LocksInfo} report */
function convoys(report) {
  const found = convoysOf(report);
  if (!found.length) return [];
  return [make("h2", {}, "Convoys"),
    make("ul", {}, ...found.map(({ name, convoy }) => make("li", {},
      make("b", {}, duration(convoy.lasted_ns)), ` ${name}: at ${plural(convoy.releases, "release")} in a row a thread waited, ` +
      `${percent(convoy.hand_overs / convoy.releases)} went to one that had; ${convoy.queue_median} in the queue as a rule; ` +
      `a section takes ${duration(convoy.section_ns)}, the way to the next ${duration(convoy.passing_ns)}`)))];
}

/** Locks that were held while their holder waited in the kernel. @param {LocksInfo} report */
function heldOver(report) {
  const all = report.classes.flatMap((lock) => lock.held_over.map((over) => ({ lock, over })));
  if (!all.length) return [];
  all.sort((a, b) => b.over.held_ns - a.over.held_ns);
  return [make("h2", {}, "Held while waiting in a system call, estimated"),
    make("ul", {}, ...all.slice(0, 12).map(({ lock, over }) => make("li", {},
      make("b", {}, duration(over.held_ns)), ` ${over.call}, with ${lock.name} taken in ${placeText(over.place)}`)))];
}

/** @param {LocksInfo} report */
function lines(report) {
  if (!report.shared_lines.length) return [];
  return [make("h2", {}, "Locks in one cache line"),
    make("ul", {}, ...report.shared_lines.slice(0, 12).map((line) => make("li", {},
      `${line.locks.map(({ name, acquired }) => `${name} (${plural(acquired, "time")})`).join(", ")}: ` +
      `0x${line.address.toString(16)}, taken by ${plural(line.threads, "thread")}`)))];
}

/** @param {LocksInfo} report */
function deadlocks(report) {
  if (!report.deadlocks.length) return [make("p", { class: "soft" }, "No deadlock is possible in the orders that were seen.")];
  return [make("h2", {}, plural(report.deadlocks.length, "possible deadlock")), ...report.deadlocks.map(({ steps }) =>
    make("ol", {}, ...steps.map((step) => make("li", {},
      `Thread ${step.tid}${step.thread ? ` (${step.thread})` : ""} has ${step.holds}, taken in ${placeText(step.taken)}, ` +
      `and asks for ${step.wants} in ${placeText(step.asked)}`))))];
}
