// Finding a function, what events say, a process or a thread by its name: what is typed stands out everywhere,
// Enter goes from call to call, or from thread to thread.

import { byId, make } from "./dom.js";
import { plural } from "./format.js";
import { names } from "./lanes.js";

/** Names offered. */
const OFFERED = 14;

/** What a name is of, where it is of no function. */
const OF = { function: "", state: "a thread's state", lasting: "from its beginning to its end", event: "event" };

/** What was found: what is drawn under a label, or threads of one name. */
/** @typedef {{name: string, says: string, label: number|null, threads: number[]}} Match */

export class Search {
  /**
   * @param {import("./state.js").State} state
   * @param {(labels: Set<number>|null, query: string) => void} found
   * @param {(label: number, backwards: boolean) => void} next goes to the next call of a function
   * @param {(thread: number) => void} go goes to a thread
   */
  constructor(state, found, next, go) {
    this.state = state;
    this.found = found;
    this.next = next;
    this.go = go;
    /** How many threads of one name have been gone to, and of which. */
    this.gone = { name: "", threads: 0 };
    this.input = byId("search", HTMLInputElement);
    this.list = byId("matches", HTMLElement);
    /** @type {Match[]} */
    this.matches = [];
    this.chosen = 0;
    this.lower = state.trace.labels.map(({ name }) => name.toLowerCase());
    this.names = names(state.trace.threads);
    state.whenGrown(() => {
      this.lower = state.trace.labels.map(({ name }) => name.toLowerCase());
      this.names = names(state.trace.threads);
    });
    this.input.addEventListener("input", () => this.look());
    this.input.addEventListener("focus", () => this.look());
    state.listen(({ search }, before) => {
      if (search !== before.search && search !== this.input.value.trim()) this.restore();
    });
    this.input.addEventListener("blur", () => window.setTimeout(() => this.close(), 150));
    this.input.addEventListener("keydown", (event) => this.key(event));
  }

  /** What the address says stands out, without a list in the way. */
  restore() {
    this.input.value = this.state.view.search;
    this.match();
  }

  look() {
    const search = this.input.value.trim();
    this.match();
    if (search) this.show();
    else this.close();
    if (search !== this.state.view.search) this.state.set({ search });
  }

  match() {
    const query = this.input.value.trim().toLowerCase();
    if (!query) {
      this.matches = [];
      this.found(null, "");
      return;
    }
    /** @type {number[]} */
    const matching = [];
    this.lower.forEach((name, label) => {
      if (name.includes(query)) matching.push(label);
    });
    this.found(matching.length ? new Set(matching) : null, query);
    // Exact names first, then those that begin so, then short ones.
    const rank = (/** @type {Match} */ { name: whole }) => {
      const name = whole.toLowerCase();
      return (name === query ? 0 : name.startsWith(query) ? 1e4 : 2e4) + name.length;
    };
    /** @type {Match[]} */
    const all = matching.map((label) => {
      const known = this.state.trace.labels[label];
      return { name: known?.name ?? "?", says: known ? known.module || OF[known.what] : "", label, threads: [] };
    });
    for (const { name, what, threads } of this.names) {
      if (!name.toLowerCase().includes(query)) continue;
      all.push({ name, says: threads.length > 1 ? `${what}, ${plural(threads.length, "thread")}` : what, label: null, threads });
    }
    this.matches = all.sort((a, b) => rank(a) - rank(b)).slice(0, OFFERED);
    this.chosen = 0;
  }

  show() {
    const rows = this.matches.map(({ name, says }, at) => {
      return make("li", {
        role: "option", id: `match-${at}`, "aria-selected": String(at === this.chosen),
        pointerdown: (event) => {
          event.preventDefault();
          this.chosen = at;
          this.take(false);
        },
      }, make("span", { class: "name" }, name), make("span", { class: "module" }, says));
    });
    if (!rows.length) rows.push(make("li", { class: "none" }, "Nothing that was recorded has this in its name."));
    this.list.replaceChildren(...rows);
    this.list.hidden = false;
    this.input.setAttribute("aria-expanded", "true");
    this.input.setAttribute("aria-activedescendant", this.matches.length ? `match-${this.chosen}` : "");
  }

  close() {
    this.list.hidden = true;
    this.input.setAttribute("aria-expanded", "false");
  }

  /** @param {boolean} backwards */
  take(backwards) {
    const match = this.matches[this.chosen];
    if (match === undefined) return;
    const { label } = match;
    if (label === null) {
      // What is typed stays: each further Enter goes to the next thread.
      const same = this.gone.name === match.name;
      const next = same ? this.gone.threads + (backwards ? -1 : 1) : 0;
      const at = (next + match.threads.length) % match.threads.length;
      this.gone = { name: match.name, threads: at };
      const thread = match.threads[at];
      if (thread !== undefined) this.go(thread);
      this.close();
      return;
    }
    // What was chosen stands out from now on, and the keys are the page's again.
    this.input.value = "";
    this.look();
    this.input.blur();
    this.next(label, backwards);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const steps = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (steps && this.matches.length) {
      this.chosen = (this.chosen + steps + this.matches.length) % this.matches.length;
      this.show();
    } else if (event.key === "Enter") this.take(event.shiftKey);
    else if (event.key === "Escape") {
      this.input.value = "";
      this.look();
      this.input.blur();
    } else return;
    event.preventDefault();
  }
}
