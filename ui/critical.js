// A critical path as it is listed: merged as in the terminal (crates/app/cli/src/requests/summary.rs).

/** @typedef {import("./types.js").RequestDetail} RequestDetail */
/** @typedef {RequestDetail["critical"][number]} Step */
/** @typedef {{state: import("./types.js").StateName, actor: string, until: string|null, from_ns: number, ns: number, steps: number}} Line */
/** @typedef {{actor: string|null, lines: Line[], short_ns: number, short: number}} StepGroup */

/** Steps that are listed by themselves; of a longer path, the longest. */
const STEPS_MAX = 24;

/**
 * Of a long path the longest steps; those of one thread that follow each other are one line for each of its
 * states, and what lies between is one line.
 * @param {Step[]} critical
 * @returns {StepGroup[]}
 */
export function merged(critical) {
  const length = (/** @type {Step} */ step) => Math.max(step.to_ns - step.from_ns, 0);
  const folds = critical.length > STEPS_MAX;
  const longest = new Set([...critical].sort((a, b) => length(b) - length(a)).slice(0, STEPS_MAX));
  /** @type {StepGroup[]} */
  const groups = [];
  for (const step of critical) {
    const ns = length(step);
    const long = !folds || longest.has(step);
    const last = groups[groups.length - 1];
    const same = folds && last?.actor === step.actor;
    const like = same ? last?.lines.find((line) => line.state === step.state && line.until === step.waited_for) : undefined;
    if (like) {
      like.ns += ns;
      like.steps += 1;
    } else if (last && !long) {
      last.short_ns += ns;
      last.short += 1;
    } else {
      const group = last && same ? last : { actor: long ? step.actor : null, lines: [], short_ns: 0, short: 0 };
      if (group !== last) groups.push(group);
      if (long) group.lines.push({ state: step.state, actor: step.actor, until: step.waited_for, from_ns: step.from_ns, ns, steps: 1 });
      else {
        group.short_ns += ns;
        group.short += 1;
      }
    }
  }
  return groups;
}
