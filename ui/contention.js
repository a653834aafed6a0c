// What the report of `fettle locks` says of waits, as figures to draw: who blocked whom, and flames.

/** @typedef {import("./types.js").LocksInfo} LocksInfo */
/** @typedef {import("./types.js").LockPlace} LockPlace */

/** Where no thread held the lock: one had let it go, and the next did not have it yet. */
export const PASSED_ON = "on its way to the next";
/** Of a lock that is seen only where threads wait for it. */
export const UNSEEN = "a holder that is not seen";
export const OTHERS = "other places";

/** @param {LockPlace|null} place */
export function placeText(place) {
  if (!place) return PASSED_ON;
  if (place.line) return `${place.function} (${place.line})`;
  return place.module ? `${place.function} [${place.module}]` : place.function;
}

/** Whether a thread that waits for it waits for one that holds it. @param {{kind: string}} lock */
export function isLock({ kind }) {
  return kind !== "condition" && kind !== "barrier";
}

/** Each wait that is charged to someone. @param {LocksInfo} report */
function waitsOf(report) {
  return report.classes.filter(isLock).flatMap((lock) => lock.blocking.map((pair) => ({
    lock: `${lock.name} (${lock.kind})`, waiter: placeText(pair.waiter),
    holder: !pair.holder && lock.kind === "slow-path" ? UNSEEN : placeText(pair.holder), ns: pair.waited_ns,
  }))).filter(({ ns }) => ns > 0);
}

/**
 * Names by their sums, the largest first; where there are more than `most`, the last stands for all others.
 * @param {[string, number][]} parts @param {number} most
 */
function largest(parts, most) {
  /** @type {Map<string, number>} */
  const sums = new Map();
  for (const [name, ns] of parts) sums.set(name, (sums.get(name) ?? 0) + ns);
  const names = [...sums].sort(([, a], [, b]) => b - a).map(([name]) => name);
  return names.length > most ? [...names.slice(0, most - 1), OTHERS] : names;
}

/**
 * Time waited, by the places that waited and those that held the lock meanwhile.
 * @param {LocksInfo} report @param {number} most places on each side
 */
export function matrixOf(report, most) {
  const waits = waitsOf(report);
  const waiters = largest(waits.map(({ waiter, ns }) => [waiter, ns]), most);
  const holders = largest(waits.map(({ holder, ns }) => [holder, ns]), most);
  const cells = waiters.map(() => holders.map(() => 0));
  /** @param {string[]} names @param {string} name */
  const place = (names, name) => (names.includes(name) ? names.indexOf(name) : names.length - 1);
  for (const { waiter, holder, ns } of waits) {
    const row = cells[place(waiters, waiter)];
    const column = place(holders, holder);
    if (row) row[column] = (row[column] ?? 0) + ns;
  }
  return { waiters, holders, cells };
}

/**
 * A box of the flame graph: the root is all waiting.
 * @typedef {object} Flame
 * @property {string} name
 * @property {number} ns
 * @property {number} left 0 to 1
 * @property {number} right
 * @property {number} depth
 */

/**
 * Waits as a flame graph: charged to the places that held the locks, or to those that waited.
 * @param {LocksInfo} report @param {"holder"|"waiter"} end which one is next to the root
 * @returns {Flame[]} callers before callees
 */
export function flamesOf(report, end) {
  /** @typedef {{name: string, ns: number, children: Map<string, Node>}} Node */
  /** @param {string} name @returns {Node} */
  const node = (name) => ({ name, ns: 0, children: new Map() });
  const root = node("all waiting");
  for (const { lock, waiter, holder, ns } of waitsOf(report)) {
    const [held, waited] = [`held in ${holder}`, `waited in ${waiter}`];
    let at = root;
    at.ns += ns;
    for (const name of end === "holder" ? [held, lock, waited] : [waited, lock, held]) {
      const child = at.children.get(name) ?? node(name);
      at.children.set(name, child);
      child.ns += ns;
      at = child;
    }
  }
  /** @type {Flame[]} */
  const flames = [];
  /** @param {Node} at @param {number} left @param {number} depth */
  const lay = (at, left, depth) => {
    flames.push({ name: at.name, ns: at.ns, left, right: left + at.ns / root.ns, depth });
    for (const child of [...at.children.values()].sort((a, b) => b.ns - a.ns)) {
      lay(child, left, depth + 1);
      left += child.ns / root.ns;
    }
  };
  if (root.ns) lay(root, 0, 0);
  return flames;
}

/**
 * Rows of the table: each class, and below it the places that take it.
 * @param {LocksInfo} report
 */
export function rowsOf(report) {
  return report.classes.flatMap((lock) => {
    const many = lock.locks === 1 ? "" : lock.locks === 0 ? ", many of them" : `, ${lock.locks} of them`;
    const sites = lock.sites.map((site) => ({ name: `${site.operation} in ${placeText(site.place)}`, of: lock.name, sums: site }));
    return [{ name: `${lock.name} (${lock.kind}${many})`, of: null, sums: lock }, ...sites];
  });
}

/** Convoys with their locks, those that lasted longest first. @param {LocksInfo} report */
export function convoysOf(report) {
  const found = report.classes.flatMap(({ name, convoy }) => (convoy ? [{ name, convoy }] : []));
  return found.sort((a, b) => b.convoy.lasted_ns - a.convoy.lasted_ns);
}

/** Share of acquisitions that had to wait. @param {import("./types.js").LockSums} sums */
export function contentionOf({ acquired, contended }) {
  const asked = Math.max(acquired, contended);
  return asked ? contended / asked : 0;
}
