// Where the nodes and edges of a graph are, in columns from left to right. No drawing and no state:
// names and numbers in, places out.
//
// A node stands as many columns from the first one as it is steps away from it, so an edge leads to
// the next column or stays within one, and never passes a node.

/** @typedef {import("./types.js").GraphEdge} GraphEdge */
/** @typedef {import("./types.js").GraphNode} GraphNode */
/** @typedef {import("./types.js").PlacedEdge} PlacedEdge */

export const NODE_HEIGHT = 34;
const PAD = 16;
/** Room between columns: labels have to fit, and lines are not to become too long. */
const GAP = [84, 280];
/** Heights of rows. */
const ROW = [62, 96];
/** Room that an arrow's head takes. */
export const HEAD = 8;
/** How far apart lines begin at a node. */
const PORT = 9;
const LABEL_HEIGHT = 15;
/** Where along its edge a label may be: the first place at which it covers no other one. */
const ALONG = [0.5, 0.42, 0.58, 0.34, 0.66, 0.27, 0.73];

/**
 * @param {Map<string, number>} nodes how wide each is
 * @param {GraphEdge[]} edges
 * @param {string[]} first where it begins, best first, if that is known
 * @param {number} width that there is
 * @param {number} height
 * @returns {{nodes: GraphNode[], edges: PlacedEdge[], width: number, height: number}}
 */
export function arrange(nodes, edges, first, width, height) {
  const beside = neighbours(nodes, edges);
  const columns = order(columnsOf(nodes, beside, first), beside);
  const last = new Set(columns.at(-1));
  // Edges within the last column need room beside it.
  const loose = edges.some(({ a, b }) => a !== b && last.has(a) && last.has(b));
  const placed = place(columns, nodes, columns.length - (loose ? 0.5 : 1), width, height);
  const lines = route(edges.filter(({ a, b }) => a !== b), placed.nodes, placed.gap);
  label(lines);
  return { nodes: [...placed.nodes.values()], edges: lines, width: placed.width, height: placed.height };
}

/** @param {Map<string, number>} nodes @param {GraphEdge[]} edges */
function neighbours(nodes, edges) {
  /** @type {Map<string, string[]>} */
  const beside = new Map([...nodes.keys()].map((name) => [name, []]));
  for (const { a, b } of edges) {
    if (a === b) continue;
    beside.get(a)?.push(b);
    beside.get(b)?.push(a);
  }
  return beside;
}

/**
 * Nodes by their distance from where it begins.
 * @param {Map<string, number>} nodes @param {Map<string, string[]>} beside @param {string[]} first
 */
function columnsOf(nodes, beside, first) {
  /** @type {string[][]} */
  const columns = [];
  /** @type {Set<string>} */
  const seen = new Set();
  for (const root of [...first, ...nodes.keys()]) {
    if (seen.has(root)) continue;
    // Where nothing says where it begins, it does at an end: from the middle all would be near.
    const begin = first.includes(root) ? root : rings(root, beside).at(-1)?.at(-1) ?? root;
    rings(begin, beside).forEach((ring, at) => {
      for (const name of ring) seen.add(name);
      (columns[at] ??= []).push(...ring);
    });
  }
  return columns;
}

/** Nodes by how many steps they are away from one. @param {string} root @param {Map<string, string[]>} beside */
function rings(root, beside) {
  const seen = new Set([root]);
  /** @type {string[][]} */
  const found = [];
  for (let ring = [root]; ring.length;) {
    found.push(ring);
    ring = [...new Set(ring.flatMap((name) => beside.get(name) ?? []))].filter((name) => !seen.has(name));
    for (const name of ring) seen.add(name);
  }
  return found;
}

/**
 * Puts each node near the middle of those that it is connected with, so that fewer edges cross.
 * @param {string[][]} columns @param {Map<string, string[]>} beside
 */
function order(columns, beside) {
  /** @type {Map<string, number>} */
  const at = new Map();
  const note = (/** @type {string[]} */ column) => column.forEach((name, row) => at.set(name, (row + 0.5) / column.length));
  columns.forEach(note);
  for (const turn of [1, 0, 1, 0]) {
    for (const column of turn ? columns : [...columns].reverse()) {
      const own = new Set(column);
      const middle = (/** @type {string} */ name) => {
        const others = (beside.get(name) ?? []).filter((other) => !own.has(other));
        if (!others.length) return at.get(name) ?? 0;
        return others.reduce((sum, other) => sum + (at.get(other) ?? 0), 0) / others.length;
      };
      const middles = new Map(column.map((name) => [name, middle(name)]));
      column.sort((a, b) => (middles.get(a) ?? 0) - (middles.get(b) ?? 0));
      note(column);
    }
  }
  return columns;
}

/** @param {number} value @param {number[]} limits */
function within(value, [low = 0, high = 0]) {
  return Math.min(Math.max(value, low), high);
}

/**
 * @param {string[][]} columns @param {Map<string, number>} sizes how wide nodes are @param {number} gaps
 * @param {number} width @param {number} height
 */
function place(columns, sizes, gaps, width, height) {
  const widths = columns.map((column) => Math.max(...column.map((name) => sizes.get(name) ?? 0)));
  const taken = widths.reduce((sum, one) => sum + one, 2 * PAD);
  const gap = within((width - taken) / Math.max(gaps, 1), GAP);
  const rows = Math.max(...columns.map((column) => column.length), 1);
  const row = within((height - 2 * PAD) / rows, ROW);
  const all = taken + gap * gaps;
  /** @type {Map<string, GraphNode>} */
  const nodes = new Map();
  // What does not need all the room stands in the middle.
  let left = PAD + Math.max(0, (width - all) / 2);
  columns.forEach((column, at) => {
    const wide = widths[at] ?? 0;
    const top = PAD + ((rows - column.length) * row) / 2;
    column.forEach((name, n) => {
      nodes.set(name, { name, column: at, x: left, y: top + (n + 0.5) * row, width: wide });
    });
    left += wide + gap;
  });
  return { nodes, gap, width: Math.max(all, width), height: rows * row + 2 * PAD };
}

/** @param {GraphEdge[]} edges @param {Map<string, GraphNode>} nodes @param {number} gap */
function route(edges, nodes, gap) {
  /** @type {PlacedEdge[]} */
  const lines = [];
  for (const edge of edges) {
    const [a, b] = [nodes.get(edge.a), nodes.get(edge.b)];
    if (!a || !b) continue;
    // From left to right, or from top to bottom.
    const turned = a.column > b.column || (a.column === b.column && a.y > b.y);
    const [from, to] = turned ? [b, a] : [a, b];
    const [there, back] = turned ? [edge.back, edge.there] : [edge.there, edge.back];
    const inColumn = from.column === to.column ? from.column : null;
    lines.push({ ...edge, a: from.name, b: to.name, there, back, inColumn, line: [], label: null });
  }
  const ports = portsOf(lines, nodes);
  for (const line of lines) {
    const [from, to] = [nodes.get(line.a), nodes.get(line.b)];
    const [y1, y2] = ports.get(line) ?? [0, 0];
    if (!from || !to) continue;
    const x1 = from.x + from.width + (line.back ? HEAD : 0);
    const x2 = line.inColumn === null ? to.x - (line.there ? HEAD : 0) : to.x + to.width + (line.there ? HEAD : 0);
    const bend = line.inColumn === null ? (x2 - x1) / 2 : gap / 2;
    line.line = [[x1, y1], [x1 + bend, y1], [line.inColumn === null ? x2 - bend : x2 + bend, y2], [x2, y2]];
  }
  return lines;
}

/**
 * Where lines begin and end: one below the other at the side of a node, in the order in which the
 * other ends stand.
 * @param {PlacedEdge[]} lines @param {Map<string, GraphNode>} nodes
 */
function portsOf(lines, nodes) {
  /** @type {Map<PlacedEdge, [number, number]>} */
  const ports = new Map(lines.map((line) => [line, [0, 0]]));
  /** @type {Map<string, {line: PlacedEdge, end: 0|1, other: number}[]>} */
  const sides = new Map();
  for (const line of lines) {
    for (const end of /** @type {const} */ ([0, 1])) {
      const [own, other] = end ? [line.b, line.a] : [line.a, line.b];
      const side = `${end && line.inColumn === null ? "left" : "right"} ${own}`;
      const list = sides.get(side) ?? [];
      list.push({ line, end, other: nodes.get(other)?.y ?? 0 });
      sides.set(side, list);
    }
  }
  for (const list of sides.values()) {
    list.sort((a, b) => a.other - b.other);
    const step = Math.min(PORT, (NODE_HEIGHT - 8) / Math.max(list.length - 1, 1));
    list.forEach(({ line, end }, n) => {
      const y = nodes.get(end ? line.b : line.a)?.y ?? 0;
      const port = ports.get(line);
      if (port) port[end] = y + (n - (list.length - 1) / 2) * step;
    });
  }
  return ports;
}

/** The point of a curve. @param {number[][]} line @param {number} part @returns {[number, number]} */
export function along(line, part) {
  const rest = 1 - part;
  const weights = [rest ** 3, 3 * rest ** 2 * part, 3 * rest * part ** 2, part ** 3];
  const sum = (/** @type {number} */ axis) => weights.reduce((all, weight, at) => all + weight * (line[at]?.[axis] ?? 0), 0);
  return [sum(0), sum(1)];
}

/** Puts labels where they cover no other label; those of less used edges may find no room. @param {PlacedEdge[]} lines */
function label(lines) {
  /** @type {[number, number, number, number][]} */
  const taken = [];
  for (const edge of lines) {
    const size = [edge.labelWidth, LABEL_HEIGHT * (edge.there && edge.back ? 2 : 1)];
    const box = (/** @type {number} */ part) => {
      const [x, y] = along(edge.line, part);
      return /** @type {[number, number, number, number]} */ ([x, y, size[0], size[1]]);
    };
    const free = ALONG.find((part) => {
      const [x, y, wide, high] = box(part);
      return taken.every(([x2, y2, wide2, high2]) =>
        Math.abs(x - x2) > (wide + wide2) / 2 + 2 || Math.abs(y - y2) > (high + high2) / 2 + 2);
    });
    if (free === undefined) continue;
    const found = box(free);
    taken.push(found);
    edge.label = [found[0], found[1]];
  }
}
