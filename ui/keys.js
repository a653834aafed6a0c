// Keys. Those that move are held down: the view moves with the screen's frames, not with the
// keyboard's repetition.

/** Part of the view's width that passes in a second. */
const PAN_PER_SECOND = 1.1;
/** Times that the view becomes wider in a second. */
const ZOOM_PER_SECOND = 7;
/** Seconds' worth that a key moves at once: it may be up again before the next frame. */
const TAP_SECONDS = 0.03;

/** What can be moved along and zoomed. @typedef {{move(share: number, times: number): void}} Movable */

/**
 * @param {import("./timeline.js").Timeline} timeline
 * @param {() => Movable} meant what the keys move now
 * @param {Record<string, () => unknown>} others by key; what gives `false` has nothing to do with it now
 */
export function listenToKeys(timeline, meant, others) {
  /** @type {Set<string>} */
  const held = new Set();
  let last = 0;
  /** @param {Set<string>} keys @param {number} seconds */
  const go = (keys, seconds) => {
    const pan = (keys.has("d") ? 1 : 0) - (keys.has("a") ? 1 : 0);
    const zoom = (keys.has("s") ? 1 : 0) - (keys.has("w") ? 1 : 0);
    meant().move(pan * PAN_PER_SECOND * seconds, ZOOM_PER_SECOND ** (zoom * seconds));
  };
  /** @param {number} now */
  const move = (now) => {
    if (!held.size) return;
    // After a pause it goes on as after a usual frame.
    const seconds = Math.min(Math.max(now - last, 0) / 1000, 0.05);
    last = now;
    go(held, seconds);
    requestAnimationFrame(move);
  };
  window.addEventListener("keydown", (event) => {
    const { target } = event;
    const typing = target instanceof HTMLInputElement || target instanceof HTMLSelectElement || document.querySelector("dialog[open]");
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (["w", "a", "s", "d"].includes(key)) {
      if (!held.size) {
        last = performance.now();
        requestAnimationFrame(move);
      }
      if (!held.has(key)) go(new Set([key]), TAP_SECONDS);
      held.add(key);
    } else if ((key === "ArrowUp" || key === "ArrowDown") && target === timeline.canvas) {
      timeline.scrollBy(key === "ArrowUp" ? -54 : 54);
    } else if ((key === "ArrowLeft" || key === "ArrowRight") && target === timeline.canvas) {
      timeline.pan(key === "ArrowLeft" ? -80 : 80);
    } else if (!others[key] || others[key]() === false) return;
    event.preventDefault();
  });
  window.addEventListener("keyup", (event) => held.delete(event.key.toLowerCase()));
  window.addEventListener("blur", () => held.clear());
}
