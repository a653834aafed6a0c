// Requests: how long they took, the list of them, and one or two of them whole.

import { get } from "./api.js";
import { make } from "./dom.js";
import { count, duration, moment, percent, plural } from "./format.js";
import { merged } from "./critical.js";
import { Figures } from "./figures.js";
import { time } from "./functions.js";
import { Histogram } from "./histogram.js";
import { spansOf } from "./named.js";
import { requestName } from "./timeline.js";
import { STATES, Waterfall } from "./waterfall.js";

/** @typedef {import("./types.js").ListedRequest} ListedRequest */
/** @typedef {import("./types.js").RequestDetail} RequestDetail */
/** @typedef {import("./types.js").RequestId} RequestId */
/** @typedef {import("./colours.js").Palette} Palette */
/** @typedef {"wall"|"begin"|"class"|"path"} Key */

/** Requests that are listed at first, and with each step further. The server knows them all. */
const LISTED = 150;
const LISTED_MORE = 500;

/** @type {{key: Key, title: string, what: string}[]} */
const COLUMNS = [
  { key: "wall", title: "Took", what: "until it was answered; to its last event, where that is not known" },
  { key: "begin", title: "Began", what: "when its first event was" },
  { key: "class", title: "Class", what: "what its seed calls it" },
  { key: "path", title: "Path", what: "processes in the order in which it came to them" },
];

/**
 * How certain a request is, in words.
 * @param {{certainty: string, likely: number, candidates: number}} request
 */
function certainty({ certainty, likely, candidates }) {
  return certainty === "chosen" ? `${percent(likely / 1000)} likely, of ${count(candidates)}` : certainty;
}

export class Requests {
  /**
   * @param {HTMLElement} panel
   * @param {import("./state.js").State} state
   * @param {(error: unknown) => void} failed
   * @param {import("./timeline.js").Timeline} timeline
   */
  constructor(panel, state, failed, timeline) {
    this.panel = panel;
    this.state = state;
    this.failed = failed;
    this.timeline = timeline;
    this.figures = new Figures(state, failed);
    /** How many there are, once that is known. */
    this.all = 0;
    /** How many of them are asked for, and how many of these are listed. */
    this.found = 0;
    this.shown = 0;
    this.body = make("tbody");
    /** Ends when something else is listed. */
    this.asking = new AbortController();
    /** The next part of the list, on its way. @type {Promise<void>|null} */
    this.coming = null;
    /** What is listed, as text: it is made anew when that changes. */
    this.listed = "";
    this.said = "";
    this.left = make("div", { class: "requests-left" });
    this.right = make("div", { class: "requests-right" });
    this.note = make("p", { class: "more soft" });
    this.table = make("div", { class: "requests-table" });
    this.input = make("input", {
      type: "search", placeholder: "Class, process or number", "aria-label": "Find requests", spellcheck: "false",
      input: () => this.state.set({ find: this.input.value.trim() }),
      keydown: (event) => event instanceof KeyboardEvent && this.typed(event),
    });
    this.histogram = new Histogram("requests", (took) => this.state.set({ took }));
    this.picker = make("select", {
      "aria-label": "Schema", title: "What a request is",
      change: () => this.state.set({ schema: this.picker.value || null, request: null, beside: null, took: null }),
    });
    /** @type {string|null|undefined} the schema whose requests are shown */
    this.schema = undefined;
    this.waterfalls = [new Waterfall(state, failed), new Waterfall(state, failed)];
    this.shownKey = "";
    /** @type {Promise<void>|null} */
    this.loading = null;
    state.listen(() => this.refresh());
  }

  /** @param {Palette} palette */
  setPalette(palette) {
    this.histogram.setPalette(palette);
    for (const waterfall of this.waterfalls) waterfall.setPalette(palette);
  }

  refresh() {
    if (this.state.view.tab !== "requests") return;
    const { schema } = this.state.view;
    if (schema !== this.schema) {
      this.schema = schema;
      this.all = 0;
      this.loading = null;
    }
    this.loading ??= this.load();
    this.relist();
    void this.tell();
  }

  /** Lists others if others are asked for, or in another order. */
  relist() {
    const { took, find, order } = this.state.view;
    const listed = JSON.stringify([took, find, order]);
    if (listed === this.listed) return;
    this.listed = listed;
    if (this.input.value.trim() !== find) this.input.value = find;
    this.histogram.setBrushed(took);
    if (this.all) this.list();
    if (this.all) this.hint();
  }

  /** The order of the list; a link may name a column that there is none of. @returns {{key: Key, down: boolean}} */
  order() {
    const { order } = this.state.view;
    const column = COLUMNS.find(({ key }) => key === order?.key);
    return column && order ? { key: column.key, down: order.down } : { key: "wall", down: true };
  }

  /** The trace has grown: an open view shows it now, others when they are opened. */
  again() {
    this.loading = null;
    this.figures.again();
    this.refresh();
  }

  /** Offers the schemas that do something with what was recorded. */
  async pick() {
    /** @type {{schemas: string[]}} */
    const { schemas } = await get("schemas");
    const { schema } = this.state.view;
    const option = (/** @type {string} */ value, /** @type {string} */ says) => {
      const one = make("option", { value }, says);
      one.selected = value === (schema ?? "");
      return one;
    };
    this.picker.replaceChildren(option("", "what suits"), ...schemas.map((name) => option(name, name)));
  }

  async load() {
    const { schema } = this.state.view;
    if (!this.all) {
      this.panel.replaceChildren(make("p", { class: "empty" }, "Following requests through all events…"));
    }
    try {
      /** @type {[import("./types.js").RequestsInfo, void]} */
      const [answer] = await Promise.all([get("requests", { schema }), this.pick()]);
      if (schema !== this.state.view.schema) return;
      this.all = answer.requests;
      this.said = `Schema ${answer.schemas.join(", ")}, because ${answer.reason}.`;
      if (!this.all) {
        this.panel.replaceChildren(make("div", { class: "find" }, this.picker), make("p", { class: "empty" },
          `No request was found. ${this.said} Choose another one above; \`fettle requests --schema FILE\` takes one of your own.`));
        return;
      }
      const find = make("div", { class: "find" }, this.input, this.picker, this.note);
      this.left.replaceChildren(this.histogram.place, find, this.table);
      this.panel.replaceChildren(make("div", { class: "requests" }, this.left, this.right));
      this.histogram.show(new Map(answer.bars), answer.per_doubling, `How long ${plural(this.all, "request")} took${answer.chosen ? `; ${count(answer.chosen)} rest on a choice among several` : ""}`);
      // A list that grows under the user's eyes shows no less of it than before.
      this.list(Math.max(this.shown, LISTED));
      this.hint();
    } catch (error) {
      this.failed(error);
    }
  }

  /** Says what to do while nothing is chosen. */
  hint() {
    if (this.state.view.request || !this.all) return;
    if (!this.figures.place.isConnected) this.right.replaceChildren(this.figures.place);
    void this.figures.show(this.said);
  }

  /** Lists what is asked for from its beginning. What stands there stays until the first of it come. */
  list(limit = LISTED) {
    this.asking.abort();
    this.asking = new AbortController();
    this.coming = null;
    this.shown = 0;
    void this.more(limit);
  }

  /** Lists some more. @param {number} [limit] */
  more(limit = LISTED_MORE) {
    const { signal } = this.asking;
    this.coming ??= this.append(limit, signal).catch((error) => {
      if (!signal.aborted) this.failed(error);
    }).finally(() => {
      if (!signal.aborted) this.coming = null;
    });
    return this.coming;
  }

  /** @param {number} limit @param {AbortSignal} signal */
  async append(limit, signal) {
    const { took, find, schema } = this.state.view;
    const { key: order, down } = this.order();
    const [shortest, longest] = took ?? [];
    /** @type {import("./types.js").RequestsPage} */
    const page = await get("requests/listed", { schema, find, shortest, longest, order, down, first: this.shown, limit }, signal);
    if (signal.aborted) return;
    this.found = page.found;
    const at = this.shown ? undefined : this.current()?.dataset["id"];
    if (!this.shown) this.head();
    this.body.append(...page.rows.map((row) => this.row(row)));
    const again = at && this.body.querySelector(`[data-id="${at}"]`);
    if (again instanceof HTMLElement) again.focus({ preventScroll: true });
    this.shown += page.rows.length;
    this.table.querySelector(".more")?.remove();
    if (page.rows.length && this.shown < this.found) {
      this.table.append(make("div", { class: "more" },
        make("button", { type: "button", class: "small", click: () => void this.more() }, "Show more"),
        ` ${count(this.found - this.shown)} more`));
    }
    this.mark();
  }

  /** An empty list, and what it will be of. */
  head() {
    const { took: brushed } = this.state.view;
    const { key: by, down } = this.order();
    this.note.textContent = `${plural(this.found, "request")}` +
      (brushed ? ` between ${duration(brushed[0])} and ${duration(brushed[1])}` : this.found < this.all ? ` of ${count(this.all)}` : "");
    const head = COLUMNS.map(({ key, title, what }) => make("th", {
      scope: "col", class: key === "wall" || key === "begin" ? "" : "text",
      "aria-sort": key === by ? (down ? "descending" : "ascending") : null,
    }, make("button", { type: "button", title: what, click: () => this.sort(key) }, title)));
    head.splice(1, 0, make("th", { scope: "col", class: "text" }, make("span", {}, "Where")));
    this.body = make("tbody");
    this.table.replaceChildren(make("table", { "aria-label": "Requests" }, make("thead", {}, make("tr", {}, ...head)), this.body));
  }

  /** @param {Key} key */
  sort(key) {
    const order = this.order();
    this.state.set({ order: { key, down: key === order.key ? !order.down : key === "wall" } });
  }

  /** Shows a request whole, or beside the one that is. @param {RequestId} row @param {boolean} beside */
  choose(row, beside) {
    const id = { schema: row.schema, id: row.id };
    this.state.set(beside && this.state.view.request ? { beside: id } : { request: id, beside: null });
  }

  /** The row that has the keys. @returns {HTMLElement|null} */
  current() {
    const focused = document.activeElement;
    return focused instanceof HTMLElement && this.body.contains(focused) ? focused.closest("tr") : null;
  }

  /** Goes up or down the list: from where one is, or from the chosen request. @param {boolean} down */
  async step(down) {
    const at = this.current();
    if (!at) {
      const first = this.body.querySelector("tr[aria-selected=true]") ?? this.body.firstElementChild;
      if (first instanceof HTMLElement) first.focus();
      return;
    }
    if (down && !at.nextElementSibling && this.shown < this.found) await this.more();
    const next = down ? at.nextElementSibling : at.previousElementSibling;
    if (next instanceof HTMLElement && this.current() === at) next.focus();
  }

  /** The waterfall that the pointer is on. */
  underPointer() {
    return this.waterfalls.find((waterfall) => waterfall.pointed()) ?? null;
  }

  /** Sets the request that has the keys beside the chosen one. */
  compare() {
    const [schema, id] = this.current()?.dataset["id"]?.split(".").map(Number) ?? [];
    if (schema !== undefined && id !== undefined) this.choose({ schema, id }, true);
  }

  /** Lets go of what is chosen, the second first; whether there was any. */
  letGo() {
    const { request, beside } = this.state.view;
    if (request) this.state.set(beside ? { beside: null } : { request: null });
    return request !== null;
  }

  /** Keys in the search. @param {KeyboardEvent} event */
  typed(event) {
    if (event.key === "ArrowDown" || event.key === "Enter") {
      this.input.blur();
      void (this.coming ?? Promise.resolve()).then(() => this.step(true));
    } else if (event.key === "Escape") {
      this.state.set({ find: "" });
      this.input.blur();
    } else return;
    event.preventDefault();
  }

  /** @param {ListedRequest} row */
  row(row) {
    const all = STATES.reduce((sum, { name }) => sum + row.times_ns[name], 0) || 1;
    const bar = make("span", { class: "states" });
    const parts = [];
    for (const { name } of STATES) {
      const share = row.times_ns[name] / all;
      if (share < 0.005) continue;
      const part = make("i", { class: `state-${name}` });
      part.style.width = `${share * 100}%`;
      bar.append(part);
      parts.push(`${name} ${percent(share)}`);
    }
    bar.title = parts.join(", ");
    return make("tr", {
      tabindex: 0, "data-id": `${row.schema}.${row.id}`, title: "Shift-click or c sets it beside the chosen one",
      // With Shift the browser would select text, from wherever it was clicked before.
      mousedown: (event) => {
        if (!(event instanceof MouseEvent && event.shiftKey)) return;
        event.preventDefault();
        if (event.currentTarget instanceof HTMLElement) event.currentTarget.focus();
      },
      click: (event) => this.choose(row, event instanceof MouseEvent && event.shiftKey),
      keydown: (event) => {
        if (event instanceof KeyboardEvent && event.key === "Enter") this.choose(row, event.shiftKey);
      },
    },
      make("td", {}, ...time(row.response_ns)), make("td", { class: "text" }, bar),
      make("td", { class: "soft" }, moment(row.begin_ns, 1e4)),
      make("td", { class: "text" }, row.class || "–", ...(row.certainty === "seen" ? [] : [make("span", { class: `sure ${row.certainty.replace(" ", "-")}` }, certainty(row))])),
      make("td", { class: "text soft", title: row.path.join(" → ") }, row.path.join(" → ")));
  }

  mark() {
    const { request, beside } = this.state.view;
    const chosen = [request, beside].filter((id) => id !== null).map(({ schema, id }) => `${schema}.${id}`);
    for (const row of this.table.querySelectorAll("tbody tr")) {
      row.setAttribute("aria-selected", String(chosen.includes(row.getAttribute("data-id") ?? "")));
    }
  }

  /** Shows the chosen requests whole. */
  async tell() {
    const { request, beside } = this.state.view;
    const key = JSON.stringify([request, beside, this.state.view.schema]);
    if (key === this.shownKey) return;
    this.shownKey = key;
    this.mark();
    if (!request) {
      this.timeline.setRequest("", new Map());
      return this.hint();
    }
    try {
      const ids = beside ? [request, beside] : [request];
      const details = await Promise.all(ids.map((id) =>
        /** @type {Promise<RequestDetail>} */ (get("request", { schema: id.schema, id: id.id, by: this.state.view.schema }))));
      await this.loading;
      if (this.shownKey !== key) return;
      // Two are drawn to one scale, so that lengths can be compared.
      const longest = Math.max(...details.map(({ request }) => request.wall_ns), 1);
      const parts = details.map((detail, at) => this.whole(detail, at, longest, details.length === 2));
      this.right.replaceChildren(...parts);
      this.right.scrollTop = 0;
      const [first] = details;
      if (first) this.timeline.setRequest(requestName(first.request), this.stretches(first));
    } catch (error) {
      if (error instanceof Error && "status" in error && error.status === 404) this.state.set({ request: null, beside: null }, false);
      else this.failed(error);
    }
  }

  /** When which threads worked for a request, by their index. @param {RequestDetail} detail */
  stretches(detail) {
    /** @type {Map<number, [number, number][]>} */
    const stretches = new Map();
    const add = (/** @type {number} */ thread, /** @type {number} */ from, /** @type {number} */ to) => {
      const known = stretches.get(thread) ?? [];
      stretches.set(thread, known);
      const last = known[known.length - 1];
      if (last && from <= last[1]) last[1] = Math.max(last[1], to);
      else known.push([from, to]);
    };
    const { threads } = this.state.trace;
    const of = detail.actors.map(({ tid }) => threads.findLast((thread) => thread.tid === tid && thread.start_ns <= detail.request.end_ns));
    for (const span of detail.spans) {
      const thread = of[span.actor];
      if (thread) add(thread.index, span.from_ns, span.to_ns);
    }
    for (const span of detail.named) {
      const thread = threads.find(({ name }) => name === span.service);
      if (thread) add(thread.index, span.from_ns, span.to_ns);
    }
    return stretches;
  }

  /** @param {RequestDetail} detail @param {number} at @param {number} longest @param {boolean} two */
  whole(detail, at, longest, two) {
    const { request } = detail;
    const waterfall = /** @type {Waterfall} */ (this.waterfalls[at]);
    const shared = detail.shared_with.length ? ` · shares work with ${plural(detail.shared_with.length, "other")}` : "";
    const beyond = request.wall_ns > request.response_ns ? ` · goes on for ${duration(request.wall_ns - request.response_ns)} behind its answer` : "";
    const head = make("header", {},
      make("h2", {}, `#${request.id} ${request.class}`),
      make("span", { class: "soft" }, `${duration(request.response_ns)} from ${moment(request.begin_ns, 1e4)} · ${plural(request.events, "event")} · ${detail.named.length ? plural(detail.named.length, "span") : plural(request.actors, "thread")}${beyond}${shared}`),
      make("span", { class: `sure ${request.certainty.replace(" ", "-")}`, title: "how certain the least certain of its links is" }, certainty(request)));
    const buttons = make("span", { class: "buttons" });
    buttons.append(make("button", { type: "button", class: "small", click: () => {
      this.state.show(request.begin_ns, request.end_ns);
      const first = detail.actors[0]?.tid;
      if (first) this.timeline.revealThread(first);
    } }, "In the timelines"));
    if (two) {
      buttons.append(make("button", { type: "button", class: "small", click: () => {
        const { request, beside } = this.state.view;
        this.state.set(at === 1 ? { beside: null } : { request: beside, beside: null, ...(beside ? {} : { request }) });
      } }, "Close"));
    }
    head.append(buttons);
    const all = STATES.reduce((sum, { name }) => sum + request.times_ns[name], 0) || 1;
    const legend = make("ul", { class: "legend" });
    for (const { name, says } of STATES) {
      const ns = request.times_ns[name];
      if (!ns) continue;
      legend.append(make("li", { title: says }, make("i", { class: `state-${name}` }), `${name} `, make("span", { class: "soft" }, `${duration(ns)}, ${percent(ns / all)}`)));
    }
    if (detail.named.length) {
      const { place, path } = spansOf(detail, longest);
      return make("section", { class: "whole", "aria-label": `Request ${request.id}` }, head, place,
        ...(two ? [] : [make("h3", {}, "Critical path"), path]));
    }
    waterfall.show(detail, longest);
    const path = make("ol", { class: "critical" });
    for (const { lines, short, short_ns } of merged(detail.critical)) {
      for (const { state, actor, until, ns, steps } of lines) {
        path.append(make("li", {}, make("i", { class: `state-${state}` }),
          make("span", { class: "figure" }, duration(ns)), make("span", { class: "state" }, state), make("span", { class: "who" }, actor),
          make("span", { class: "soft" }, [until ? `until ${until}` : "", steps > 1 ? `${count(steps)} times` : ""].filter(Boolean).join(", "))));
      }
      if (short) {
        path.append(make("li", { class: "soft" }, make("i", {}), make("span", { class: "figure" }, duration(short_ns)),
          make("span", {}, plural(short, "short step"))));
      }
    }
    return make("section", { class: "whole", "aria-label": `Request ${request.id}` }, head, legend, waterfall.place,
      ...(detail.critical.length && !two ? [make("h3", {}, "Critical path"), path] : []));
  }
}
