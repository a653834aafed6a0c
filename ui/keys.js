// Keys. Those that move are held down: the view moves with the screen's frames, not with the
// keyboard's repetition.

/** Part of the view's width that passes in a second. */
const PAN_PER_SECOND = 1.1;
/** Times that the view becomes wider in a second. */
const ZOOM_PER_SECOND = 7;

/**
 * @param {import("./state.js").State} state
 * @param {import("./timeline.js").Timeline} timeline
 * @param {Record<string, () => void>} others by key
 */
export function listenToKeys(state, timeline, others) {
  /** @type {Set<string>} */
  const held = new Set();
  let last = 0;
  /** @param {number} now */
  const move = (now) => {
    if (!held.size) return;
    // The first frame, and one after a pause, moves as far as a usual one.
    const seconds = Math.min((now - last) / 1000, 0.05);
    last = now;
    const { from, to } = state.view;
    const pan = (held.has("d") ? 1 : 0) - (held.has("a") ? 1 : 0);
    const zoom = (held.has("s") ? 1 : 0) - (held.has("w") ? 1 : 0);
    if (pan) timeline.pan((pan * PAN_PER_SECOND * seconds * (to - from)) / timeline.perPixel);
    if (zoom) state.zoom(ZOOM_PER_SECOND ** (zoom * seconds), (from + to) / 2);
    requestAnimationFrame(move);
  };
  window.addEventListener("keydown", (event) => {
    const { target } = event;
    const typing = target instanceof HTMLInputElement || document.querySelector("dialog[open]");
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (["w", "a", "s", "d"].includes(key)) {
      if (!held.size) {
        last = performance.now() - 16;
        requestAnimationFrame(move);
      }
      held.add(key);
    } else if ((key === "ArrowUp" || key === "ArrowDown") && target === timeline.canvas) {
      timeline.scrollBy(key === "ArrowUp" ? -54 : 54);
    } else if ((key === "ArrowLeft" || key === "ArrowRight") && target === timeline.canvas) {
      timeline.pan(key === "ArrowLeft" ? -80 : 80);
    } else if (others[key]) others[key]();
    else return;
    event.preventDefault();
  });
  window.addEventListener("keyup", (event) => held.delete(event.key.toLowerCase()));
  window.addEventListener("blur", () => held.clear());
}
