// Which processes communicate: a graph of processes, and the connections as a table.

import { get } from "./api.js";
import { make, svg } from "./dom.js";
import { count, duration, percent, plural } from "./format.js";
import { NODE_HEIGHT, arrange } from "./graph.js";

/** @typedef {import("./types.js").Findings} Findings */
/** @typedef {import("./types.js").GraphEdge} GraphEdge */
/** @typedef {import("./types.js").GraphNode} GraphNode */
/** @typedef {import("./types.js").PlacedEdge} PlacedEdge */

/** `nginx/100 → python3/200  socket`, as the analysis names connections. */
const CONNECTION = /^(.*) → (.*?) {2}(\S+)$/;

/** Lines that are drawn: the most used ones. */
const EDGES = 40;
/** Processes that are drawn by themselves; of more, those of one program are one. */
const PROCESSES = 10;
const FONT = 12;
/** Letters of a name that are shown. */
const LETTERS = 30;
/** How small it may get before it is moved sideways instead. */
const SMALLEST = 0.7;

/** The width of a text of the graph, in pixels. @param {string} text @param {number} size */
function widthOf(text, size) {
  const context = make("canvas").getContext("2d");
  if (!context) return text.length * size * 0.6;
  context.font = `${size}px ${getComputedStyle(document.body).fontFamily}`;
  return Math.ceil(context.measureText(text).width);
}

/** A text with its middle left out if it is long: the ends tell names apart. @param {string} text */
function shortened(text) {
  const half = (LETTERS - 1) / 2;
  return text.length <= LETTERS ? text : `${text.slice(0, Math.ceil(half))}…${text.slice(-Math.floor(half))}`;
}

/** Whether it is the end of connections whose processes were not recorded. @param {string} name */
function isOutside(name) {
  return name.includes("(outside)");
}

/** @param {number} n @param {number} bytes */
function figures(n, bytes) {
  return `${plural(n, "message")}, ${plural(bytes, "byte")}`;
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
    this.drawn = 0;
    state.listen(() => this.refresh());
    new ResizeObserver(() => {
      const { clientWidth } = this.panel;
      if (this.found && clientWidth && clientWidth !== this.drawn) this.draw(this.found);
    }).observe(panel);
  }

  refresh() {
    if (this.state.view.tab !== "communication" || this.loading) return;
    this.loading = true;
    void this.load();
  }

  /** The trace has grown: an open view shows it now, others when they are opened. */
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
      this.panel.replaceChildren(this.graph, make("div", { class: "tables" }, ...tables));
      this.draw(found);
    } catch (error) {
      this.failed(error);
    }
  }

  /** @param {import("./types.js").FoundTable} table */
  table({ title, columns, rows }) {
    // What a row is about comes first: figures may be out of sight where there is little room.
    const order = columns.map((_, at) => at).sort((a, b) => Number(columns[b]?.unit === "text") - Number(columns[a]?.unit === "text"));
    const shown = order.map((at) => ({ at, name: columns[at]?.name ?? "", unit: columns[at]?.unit ?? "text" }));
    const head = shown.map(({ name, unit }) => make("th", { scope: "col", class: unit === "text" ? "text" : "" }, make("span", {}, name)));
    const body = rows.slice(0, 200).map((row) => make("tr", {}, ...shown.map(({ at, unit }) => {
      const cell = row[at] ?? null;
      if (unit === "text") return make("td", { class: "text", title: String(cell ?? "") }, String(cell ?? "–"));
      const value = Number(cell);
      const text = cell === null ? "–" : unit === "ns" ? duration(value) : unit === "share" ? percent(value)
        : unit === "mean" ? value.toFixed(1) : count(value);
      return make("td", {}, text);
    })));
    return make("section", { class: columns.length > 4 ? "wide" : "" }, make("h3", {}, title),
      make("table", { "aria-label": title }, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...body)));
  }

  /** Draws which process sends to which. @param {Findings} found */
  draw(found) {
    this.drawn = this.panel.clientWidth;
    const { edges: all, merged } = edgesOf(found);
    const edges = all.slice(0, EDGES);
    const names = [...new Set(edges.flatMap(({ a, b }) => [a, b]))];
    const placed = arrange(
      new Map(names.map((name) => [name, widthOf(shortened(name), FONT) + 22])), edges, beginnings(names, edges),
      this.drawn, this.panel.clientHeight * 0.55);
    const most = Math.max(...edges.map(({ there, back }) => there + back), 1);
    const own = new Map(edges.filter(({ a, b }) => a === b).map((edge) => [edge.a, edge]));
    const scale = Math.min(1, Math.max(SMALLEST, this.drawn / placed.width));
    const picture = svg("svg", {
      viewBox: `0 0 ${placed.width} ${placed.height}`, width: placed.width * scale, height: placed.height * scale,
    }, ...placed.edges.map((edge) => line(edge, most)), ...placed.edges.flatMap(labelOf), ...placed.nodes.map((one) => node(one, own.get(one.name))));
    this.graph.setAttribute("aria-label", `${plural(names.length, "process", "processes")} and ${plural(edges.length, "connection")}; the tables have their figures`);
    const rest = all.length - edges.length;
    const notes = [
      merged ? "processes of one program are drawn as one; the table has each" : "",
      rest ? `${plural(rest, "less used connection")} in the table only` : "",
    ].filter(Boolean);
    this.graph.replaceChildren(picture, ...(notes.length ? [make("p", { class: "more soft" }, notes.join(" · "))] : []));
  }
}

/** The rows of the connections. @param {Findings} found */
function connectionsOf(found) {
  const table = found.tables.find(({ columns }) => columns.at(-1)?.name === "connection");
  const names = table?.columns.map(({ name }) => name) ?? [];
  return (table?.rows ?? []).flatMap((row) => {
    const [, from, to] = CONNECTION.exec(String(row.at(-1))) ?? [];
    const figure = (/** @type {string} */ name) => Number(row[names.indexOf(name)] ?? 0);
    return from && to ? [{ from, to, messages: figure("messages"), bytes: figure("bytes") }] : [];
  });
}

/** What is drawn for each process: itself, or if there are many, its program. @param {Set<string>} names */
function nodesOf(names) {
  const programOf = (/** @type {string} */ name) => name.replace(/\/\d+$/, "");
  /** @type {Map<string, number>} */
  const processes = new Map();
  for (const name of names) processes.set(programOf(name), (processes.get(programOf(name)) ?? 0) + 1);
  return new Map([...names].map((name) => {
    const many = names.size > PROCESSES ? processes.get(programOf(name)) ?? 0 : 0;
    return [name, many > 1 ? `${programOf(name)} ×${many}` : name];
  }));
}

/** The connections between processes, both ways together, most messages first. @param {Findings} found */
function edgesOf(found) {
  /** @type {Map<string, GraphEdge>} */
  const edges = new Map();
  const connections = connectionsOf(found);
  const nodes = nodesOf(new Set(connections.flatMap(({ from, to }) => [from, to])));
  for (const connection of connections) {
    const { messages, bytes } = connection;
    const from = nodes.get(connection.from) ?? connection.from;
    const to = nodes.get(connection.to) ?? connection.to;
    const key = JSON.stringify([from, to].sort());
    const edge = edges.get(key) ?? { a: from, b: to, there: 0, back: 0, bytesThere: 0, bytesBack: 0, labelWidth: 0 };
    if (edge.a === from) [edge.there, edge.bytesThere] = [edge.there + messages, edge.bytesThere + bytes];
    else [edge.back, edge.bytesBack] = [edge.back + messages, edge.bytesBack + bytes];
    edge.labelWidth = widthOf(`→ ${count(Math.max(edge.there, edge.back))}`, 11) + 8;
    edges.set(key, edge);
  }
  const merged = [...nodes].some(([process, node]) => process !== node);
  return { edges: [...edges.values()].sort((a, b) => b.there + b.back - a.there - a.back), merged };
}

/**
 * Where reading begins: outside, from where requests come, with those that send most.
 * @param {string[]} names @param {GraphEdge[]} edges
 */
function beginnings(names, edges) {
  const all = (/** @type {string} */ name) => edges.reduce((sum, { a, b, there, back }) => sum + (a === name || b === name ? there + back : 0), 0);
  return names.filter(isOutside).sort((a, b) => all(b) - all(a));
}

/** @param {PlacedEdge} edge @param {number} most */
function line(edge, most) {
  const [[x1, y1] = [], ...rest] = edge.line;
  const wide = 1 + 4 * Math.sqrt((edge.there + edge.back) / most);
  const curve = svg("path", { d: `M${x1} ${y1}C${rest.map(([x, y]) => `${x} ${y}`).join(" ")}`, "stroke-width": wide.toFixed(1) });
  const [[x2 = 0, y2 = 0] = []] = edge.line.slice(-1);
  const heads = [];
  // Both ends of an edge within a column are at the right sides of nodes.
  if (edge.there) heads.push(arrow(x2, y2, edge.inColumn === null ? 1 : -1));
  if (edge.back) heads.push(arrow(x1 ?? 0, y1 ?? 0, -1));
  return svg("g", { class: "edge" }, curve, ...heads, svg("title", {}, described(edge)));
}

/** @param {number} x @param {number} y @param {number} way 1 to the right */
function arrow(x, y, way) {
  return svg("path", { class: "head", d: `M${x} ${y - 4.5}l${way * 8} 4.5l${-way * 8} 4.5z` });
}

/** @param {GraphEdge} edge */
function described({ a, b, there, back, bytesThere, bytesBack }) {
  return [there ? `${a} → ${b}: ${figures(there, bytesThere)}` : "", back ? `${b} → ${a}: ${figures(back, bytesBack)}` : ""].filter(Boolean).join("\n");
}

/** @param {PlacedEdge} edge */
function labelOf(edge) {
  if (!edge.label) return [];
  const [x, y] = edge.label;
  const [forth, to] = edge.inColumn === null ? ["→", "←"] : ["↓", "↑"];
  const lines = [edge.there ? `${forth} ${count(edge.there)}` : "", edge.back ? `${to} ${count(edge.back)}` : ""].filter(Boolean);
  const high = 15 * lines.length;
  return [svg("g", { class: "label" },
    svg("rect", { x: x - edge.labelWidth / 2, y: y - high / 2, width: edge.labelWidth, height: high, rx: 3 }),
    ...lines.map((text, at) => svg("text", { x, y: y - high / 2 + 15 * at + 11.5 }, text)),
    svg("title", {}, described(edge)))];
}

/** @param {GraphNode} node @param {GraphEdge|undefined} own what it says to itself */
function node({ name, x, y, width }, own) {
  const middle = x + width / 2;
  const itself = own ? [svg("text", { class: "itself", x: middle, y: y + 12 }, `↻ ${count(own.there)}`)] : [];
  return svg("g", { class: isOutside(name) ? "node outside" : "node" },
    svg("rect", { x, y: y - NODE_HEIGHT / 2, width, height: NODE_HEIGHT, rx: 6 }),
    svg("text", { x: middle, y: own ? y - 1.5 : y + 4.5 }, shortened(name)), ...itself,
    svg("title", {}, own ? `${name}\nto itself: ${figures(own.there, own.bytesThere)}` : name));
}
