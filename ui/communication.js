// Who communicates with whom: a graph of processes, and the connections as a table.

import { get } from "./api.js";
import { make } from "./dom.js";
import { count, duration, percent } from "./format.js";

/** @typedef {import("./types.js").Findings} Findings */
/** @typedef {import("./colours.js").Palette} Palette */

/** `nginx/100 → python3/200  socket`, as the analysis names connections. */
const CONNECTION = /^(.*) → (.*?) {2}(\S+)$/;

/** The library is half a megabyte: it is loaded when it is needed. */
async function library() {
  if (!Reflect.has(globalThis, "cytoscape")) {
    await new Promise((done, failed) => {
      const script = make("script", { src: "vendor/cytoscape/cytoscape.min.js", load: done, error: failed });
      document.head.append(script);
    });
  }
  return Reflect.get(globalThis, "cytoscape");
}

export class Communication {
  /**
   * @param {HTMLElement} panel
   * @param {import("./state.js").State} state
   * @param {(error: unknown) => void} failed
   */
  constructor(panel, state, failed) {
    this.panel = panel;
    this.state = state;
    this.failed = failed;
    this.graph = make("div", { class: "graph", role: "img" });
    /** @type {Findings|null} */
    this.found = null;
    this.loading = false;
    /** @type {Palette|null} */
    this.palette = null;
    state.listen(() => this.refresh());
  }

  /** @param {Palette} palette */
  setPalette(palette) {
    this.palette = palette;
    if (this.found) void this.draw(this.found);
  }

  refresh() {
    if (this.state.view.tab !== "communication" || this.loading) return;
    this.loading = true;
    void this.load();
  }

  /** The trace has grown: who looks is shown it now, others when they do. */
  again() {
    this.loading = false;
    this.refresh();
  }

  async load() {
    if (!this.found) this.panel.replaceChildren(make("p", { class: "empty" }, "Reading all messages…"));
    try {
      /** @type {Findings|null} */
      const found = await get("communication");
      if (!found?.tables.length) {
        this.panel.replaceChildren(make("p", { class: "empty" }, "No process was seen to send anything to another."));
        return;
      }
      this.found = found;
      const tables = found.tables.map((table) => this.table(table));
      this.panel.replaceChildren(make("div", { class: "two" }, this.graph, make("div", { class: "listed wide" }, ...tables)));
      await this.draw(found);
    } catch (error) {
      this.failed(error);
    }
  }

  /** @param {import("./types.js").FoundTable} table */
  table({ title, columns, rows }) {
    const head = columns.map(({ name, unit }) => make("th", { scope: "col", class: unit === "text" ? "text" : "" }, make("span", {}, name)));
    const body = rows.slice(0, 200).map((row) => make("tr", {}, ...row.map((cell, at) => {
      const unit = columns[at]?.unit ?? "text";
      if (unit === "text") return make("td", { class: "text" }, String(cell ?? "–"));
      const value = Number(cell);
      const text = cell === null ? "–" : unit === "ns" ? duration(value) : unit === "share" ? percent(value)
        : unit === "mean" ? value.toFixed(1) : count(value);
      return make("td", {}, text);
    })));
    return make("section", {}, make("h3", {}, title),
      make("table", { "aria-label": title }, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...body)));
  }

  /** @param {Findings} found */
  async draw(found) {
    const { palette } = this;
    if (!palette || !this.graph.isConnected) return;
    /** @type {Map<string, {from: string, to: string, messages: number, bytes: number}>} */
    const edges = new Map();
    const connections = found.tables.find(({ columns }) => columns.at(-1)?.name === "connection");
    const names = connections?.columns.map(({ name }) => name) ?? [];
    for (const row of connections?.rows ?? []) {
      const [, from, to] = CONNECTION.exec(String(row.at(-1))) ?? [];
      if (!from || !to) continue;
      const key = JSON.stringify([from, to]);
      const edge = edges.get(key) ?? { from, to, messages: 0, bytes: 0 };
      edge.messages += Number(row[names.indexOf("messages")] ?? 0);
      edge.bytes += Number(row[names.indexOf("bytes")] ?? 0);
      edges.set(key, edge);
    }
    const nodes = new Set([...edges.values()].flatMap(({ from, to }) => [from, to]));
    const most = Math.max(...[...edges.values()].map(({ messages }) => messages), 1);
    this.graph.setAttribute("aria-label", `${nodes.size} processes and ${edges.size} connections; the tables have their figures`);
    const cytoscape = await library();
    this.graph.replaceChildren();
    cytoscape({
      container: this.graph, maxZoom: 1.5,
      elements: [
        ...[...nodes].map((id) => ({ data: { id, width: id.length * 6.6 + 6, outside: id.includes("(outside)") ? 1 : 0 } })),
        ...[...edges.values()].map(({ from, to, messages }) => ({
          data: { source: from, target: to, width: 1 + 5 * Math.sqrt(messages / most), says: count(messages) },
        })),
      ],
      style: [
        { selector: "node", style: {
          label: "data(id)", shape: "round-rectangle", width: "data(width)", height: 22, padding: "9px",
          "text-valign": "center", "font-size": 12, "font-family": "Inter, system-ui, sans-serif",
          "background-color": palette.css("accent-soft"), color: palette.css("text"),
          "border-width": 1, "border-color": palette.css("accent") } },
        { selector: "node[outside = 1]", style: { "background-color": palette.css("sunk"), "border-color": palette.css("line"), "border-style": "dashed" } },
        { selector: "edge", style: {
          width: "data(width)", label: "data(says)", "curve-style": "bezier", "control-point-step-size": 46,
          "target-arrow-shape": "triangle", "font-size": 10, "font-family": "Inter, system-ui, sans-serif",
          color: palette.css("soft"), "line-color": palette.css("wait"), "target-arrow-color": palette.css("wait"),
          "text-background-color": palette.css("back"), "text-background-opacity": 1, "text-background-padding": "2px" } },
      ],
      layout: { name: "breadthfirst", directed: true, padding: 24, spacingFactor: 1.15, animate: false,
        transform: (/** @type {unknown} */ _, /** @type {{x: number, y: number}} */ { x, y }) => ({ x: y * 1.9, y: x }) },
    });
  }
}
