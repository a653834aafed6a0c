// Asking the server. The token comes behind the `#` of the URL that `fettle ui` printed, is kept
// for this origin, and goes with each question in a header.

/** @typedef {import("./types.js").Pieces} Pieces */

const TOKEN_KEY = "fettle-token";
/** Depth of the track that shows when a thread was off-CPU. */
export const OFF_CPU = 0xffffffff;
const WIRE_VERSION = 1;

/** Takes the token out of the address, if it is there. */
export function takeToken() {
  const parameters = new URLSearchParams(location.hash.slice(1));
  const token = parameters.get("token");
  if (token === null) return;
  localStorage.setItem(TOKEN_KEY, token);
  parameters.delete("token");
  history.replaceState(null, "", `#${parameters}`);
}

/** Why the server did not answer as it was asked. */
export class Unanswered extends Error {
  /**
   * @param {number} status 0 if it is not there
   * @param {string} message
   */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/**
 * @param {string} path
 * @param {Record<string, string|number|boolean|null|undefined>} query
 * @param {AbortSignal} [signal]
 */
async function ask(path, query, signal) {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined) parameters.set(name, String(value));
  }
  const headers = { "x-fettle-token": localStorage.getItem(TOKEN_KEY) ?? "" };
  /** @type {Response} */
  let response;
  try {
    response = await fetch(`/api/${path}?${parameters}`, { headers, signal: signal ?? null });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Unanswered(0, "The server does not answer: `fettle ui` may have ended.");
  }
  if (!response.ok) throw new Unanswered(response.status, await response.text());
  return response;
}

/**
 * An answer as JSON.
 * @template T
 * @param {string} path
 * @param {Record<string, string|number|boolean|null|undefined>} [query]
 * @param {AbortSignal} [signal]
 * @returns {Promise<T>}
 */
export async function get(path, query = {}, signal) {
  return /** @type {T} */ (await (await ask(path, query, signal)).json());
}

/**
 * What there is to draw of some tracks.
 * @param {number} from nanoseconds of trace time
 * @param {number} to
 * @param {number} bits what is shorter than two to this power, in nanoseconds, may be drawn as one
 * @param {string} tracks
 * @param {AbortSignal} [signal]
 */
export async function viewport(from, to, bits, tracks, signal) {
  const query = { from: Math.floor(from), to: Math.ceil(to), cell_bits: bits, tracks };
  return decode(await (await ask("viewport", query, signal)).arrayBuffer());
}

/** @param {number} thread @param {number} depth */
export function trackKey(thread, depth) {
  return depth === OFF_CPU ? `${thread}:off` : `${thread}:${depth}`;
}

/**
 * Reads the layout of crates/app/server/src/wire.rs; the columns stay where they lie.
 * @param {ArrayBuffer} buffer
 * @returns {Map<string, Pieces>}
 */
export function decode(buffer) {
  const head = new Uint32Array(buffer, 0, 4);
  if (head[0] !== WIRE_VERSION) throw new Error("the page is older than its server: reload it");
  const tracks = new Map();
  let at = 16;
  for (let track = 0; track < (head[1] ?? 0); track++) {
    const [thread = 0, depth = 0, count = 0] = new Uint32Array(buffer, at, 4);
    at += 16;
    const float = () => {
      const column = new Float64Array(buffer, at, count);
      at += 8 * count;
      return column;
    };
    const start = float();
    const end = float();
    const words = () => {
      const column = new Uint32Array(buffer, at, count);
      at += 4 * count;
      return column;
    };
    const label = words();
    const spans = words();
    const index = words();
    const filled = words();
    tracks.set(trackKey(thread, depth), { count, start, end, label, spans, index, filled });
  }
  return tracks;
}
