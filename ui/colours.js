// Colours of functions and events: by name, so that each has the same one in every trace and drawing.

/** @typedef {import("./types.js").LabelInfo} LabelInfo */
/** @typedef {[number, number, number]} Rgb */

/** Hues that can be told apart and do not shout, in degrees. */
const HUES = [212, 188, 168, 142, 96, 48, 32, 14, 346, 318, 282, 252, 228];

/**
 * @param {number} hue degrees @param {number} saturation 0 to 1 @param {number} light 0 to 1
 * @returns {Rgb}
 */
function rgb(hue, saturation, light) {
  const reach = saturation * Math.min(light, 1 - light);
  /** @param {number} n */
  const part = (n) => {
    const k = (n + hue / 30) % 12;
    return Math.round(255 * (light - reach * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
  };
  return [part(0), part(8), part(4)];
}

/** @param {string} text */
function hash(text) {
  let value = 0x811c9dc5;
  for (let at = 0; at < text.length; at++) {
    value = Math.imul(value ^ text.charCodeAt(at), 0x01000193);
  }
  value ^= value >>> 15;
  return Math.imul(value, 0x2c1b3c6d) >>> 0;
}

/**
 * A colour as the pixels of a canvas hold it.
 * @param {Rgb} colour
 */
export function packed([r, g, b]) {
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
}

/**
 * What a theme's drawings are made of.
 * @typedef {object} Palette
 * @property {Uint32Array} labels packed, by label
 * @property {string[]} styles the same for drawing, by label
 * @property {(name: string) => string} css the named property of the page's style
 * @property {Rgb} back
 * @property {Rgb} wait
 * @property {Rgb} preempt
 * @property {Rgb} run
 * @property {string} ink text on functions
 */

/** @param {string} css */
function parsed(css) {
  const digits = /^#([0-9a-f]{2})([0-9a-f]{2})([0-9a-f]{2})$/i.exec(css.trim());
  const [r = 0, g = 0, b = 0] = (digits?.slice(1) ?? []).map((part) => parseInt(part, 16));
  return /** @type {Rgb} */ ([r, g, b]);
}

/**
 * The palette of the theme that is on.
 * @param {LabelInfo[]} labels
 * @returns {Palette}
 */
export function palette(labels) {
  const style = getComputedStyle(document.documentElement);
  /** @param {string} name */
  const css = (name) => style.getPropertyValue(`--${name}`).trim();
  const back = parsed(css("back"));
  const dark = back[0] + back[1] + back[2] < 384;
  const colours = labels.map(({ name, what }) => {
    if (what === "state") return parsed(css(`state-${name}`));
    const value = hash(name);
    const hue = HUES[value % HUES.length] ?? 0;
    const step = (value >>> 8) % 3;
    return dark ? rgb(hue, 0.34, 0.33 + step * 0.045) : rgb(hue, 0.56, 0.74 + step * 0.05);
  });
  return {
    labels: Uint32Array.from(colours, packed),
    styles: colours.map(([r, g, b]) => `rgb(${r} ${g} ${b})`),
    css, back,
    wait: parsed(css("wait")), preempt: parsed(css("preempt")), run: parsed(css("run")),
    ink: dark ? "#e9edf2" : "#1a2430",
  };
}
