// Filling pixels. A screen of timelines has some hundred thousand pieces, more than a canvas fills
// rectangles in a frame; but each row is one line of pixels that is repeated, and filling lines
// of a buffer takes a millisecond or two, with or without a graphics processor.

import { firstAfter } from "./layout.js";

/** @typedef {import("./types.js").Pieces} Pieces */

/** A picture, as a canvas takes it. */
export class Raster {
  /** @param {number} width @param {number} height */
  constructor(width, height) {
    this.width = width;
    this.height = height;
    this.image = new ImageData(width, height);
    this.pixels = new Uint32Array(this.image.data.buffer);
    this.line = new Uint32Array(width);
  }

  /** @param {number} colour packed */
  clear(colour) {
    this.pixels.fill(colour);
  }

  /**
   * Repeats the line from one height to another.
   * @param {number} top @param {number} bottom
   */
  put(top, bottom) {
    const end = Math.min(bottom, this.height);
    for (let y = Math.max(top, 0); y < end; y++) this.pixels.set(this.line, y * this.width);
  }

  /**
   * Fills the line with a track's pieces.
   * @param {Pieces} pieces
   * @param {number} from nanoseconds at the left edge
   * @param {number} scale pixels per nanosecond
   * @param {number} back packed
   * @param {(piece: number) => number} colour of a piece, packed
   */
  pieces(pieces, from, scale, back, colour) {
    const { line, width } = this;
    line.fill(back);
    const { start, end, spans, filled, count } = pieces;
    const to = from + width / scale;
    for (let at = firstAfter(pieces, from); at < count; at++) {
      const begin = /** @type {number} */ (start[at]);
      if (begin >= to) break;
      const left = Math.max((begin - from) * scale, 0);
      const right = Math.min((/** @type {number} */ (end[at]) - from) * scale, width);
      const first = Math.floor(left);
      const last = Math.max(Math.ceil(right - 0.5), first + 1);
      const ink = colour(at);
      if (spans[at] === 1 && end[at] === begin) {
        // What has no length can be seen all the same.
        line.fill(ink, first, Math.min(first + 2, width));
        continue;
      }
      if (spans[at] !== 1 || right - left < 1) {
        // Several pieces may share a pixel: each shows through as far as it fills it.
        const share = Math.min(1, Math.max(right - left, 0.35)) *
          (0.4 + 0.6 * (/** @type {number} */ (filled[at]) / 255));
        for (let x = first; x < last && x < width; x++) {
          line[x] = mixed(/** @type {number} */ (line[x]), ink, share);
        }
        continue;
      }
      line.fill(ink, first, Math.min(last, width));
      // A seam tells calls apart that follow each other.
      if (last - first > 3 && last <= width) line[last - 1] = mixed(ink, back, 0.75);
    }
  }

  /**
   * Lets what is on the line fade where pieces are.
   * @param {Pieces} pieces @param {number} from @param {number} scale @param {number} back packed
   * @param {number} share 0 to 1
   */
  fade(pieces, from, scale, back, share) {
    const { line, width } = this;
    const to = from + width / scale;
    for (let at = firstAfter(pieces, from); at < pieces.count; at++) {
      const begin = /** @type {number} */ (pieces.start[at]);
      if (begin >= to) break;
      const first = Math.max(Math.ceil((begin - from) * scale), 0);
      const last = Math.min(Math.floor((/** @type {number} */ (pieces.end[at]) - from) * scale), width);
      if (pieces.spans[at] !== 1) continue;
      for (let x = first; x < last; x++) {
        const ink = /** @type {number} */ (line[x]);
        if (ink !== back) line[x] = mixed(ink, back, share);
      }
    }
  }
}

/**
 * A packed colour on its way to another.
 * @param {number} a @param {number} b @param {number} share 0 gives `a`, 1 gives `b`
 */
export function mixed(a, b, share) {
  const part = Math.round(share * 256);
  const rest = 256 - part;
  const even = (((a & 0xff00ff) * rest + (b & 0xff00ff) * part) >>> 8) & 0xff00ff;
  const odd = (((a >>> 8) & 0xff) * rest + ((b >>> 8) & 0xff) * part) & 0xff00;
  return (0xff000000 | even | odd) >>> 0;
}
