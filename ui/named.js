// A request that is made of a tracing library's spans: a row for each, below the one that called it, and which of
// them would have had to be faster.

import { make } from "./dom.js";
import { count, duration, percent } from "./format.js";

/** @typedef {import("./types.js").RequestDetail} RequestDetail */
/** @typedef {import("./types.js").NamedSpan} NamedSpan */

/** Rows that are drawn: of more spans, those that lasted longest, with what is around them. */
const ROWS_MAX = 400;
/** Hues of services, one after the other. */
const SERVICES = 8;

/**
 * Places of the spans that are shown.
 * @param {NamedSpan[]} spans
 * @param {Set<number>} critical places that are shown in any case
 */
export function shownSpans(spans, critical) {
  if (spans.length <= ROWS_MAX) return spans.map((_, at) => at);
  /** @type {Set<number>} */
  const kept = new Set();
  const keep = (/** @type {number|null} */ at) => {
    for (let up = at; up !== null && !kept.has(up); up = spans[up]?.parent ?? null) kept.add(up);
  };
  const long = (/** @type {number} */ at) => (spans[at]?.to_ns ?? 0) - (spans[at]?.from_ns ?? 0);
  const order = spans.map((_, at) => at).sort((a, b) => Number(critical.has(b)) - Number(critical.has(a)) || long(b) - long(a));
  for (const at of order) {
    if (kept.size >= ROWS_MAX) break;
    keep(at);
  }
  return [...kept].sort((a, b) => a - b);
}

/** How certain it is what called a span. @param {NamedSpan} span */
function certain({ candidates, likely }) {
  return candidates > 1 ? `${percent(likely / 1000)} likely, of ${count(candidates)}` : candidates === 1 ? "only candidate" : "";
}

/**
 * The spans of a request.
 * @param {RequestDetail} detail
 * @param {number} longest nanoseconds that the width stands for
 */
export function spansOf({ request, named, named_critical }, longest) {
  /** @type {Map<number, number>} */
  const counted = new Map();
  for (const { span, from_ns, to_ns } of named_critical) counted.set(span, (counted.get(span) ?? 0) + to_ns - from_ns);
  const services = [...new Set(named.map(({ service }) => service))];
  const hue = (/** @type {string} */ service) => `service-${services.indexOf(service) % SERVICES}`;
  const shown = shownSpans(named, new Set(counted.keys()));
  const share = (/** @type {number} */ ns) => `${((ns / longest) * 100).toFixed(3)}%`;
  const rows = shown.flatMap((at) => {
    const span = named[at];
    if (!span) return [];
    const ns = span.to_ns - span.from_ns;
    const bar = make("i", { class: `${hue(span.service)}${span.status === "error" ? " wrong" : ""}` });
    bar.style.left = share(span.from_ns - request.begin_ns);
    bar.style.width = `max(${share(ns)}, 2px)`;
    const line = make("span", { class: "line" }, bar);
    for (const step of named_critical) {
      if (step.span !== at) continue;
      const part = make("b");
      part.style.left = share(step.from_ns - request.begin_ns);
      part.style.width = `max(${share(step.to_ns - step.from_ns)}, 1px)`;
      line.append(part);
    }
    const name = make("span", { class: "name" }, make("span", { class: "soft" }, span.service ? `${span.service}  ` : ""), span.name);
    name.style.paddingLeft = `${Math.min(span.depth, 12) * 12}px`;
    const says = certain(span);
    const own = counted.get(at);
    const title = `${span.service} ${span.name}: ${duration(ns)}, after ${duration(span.from_ns - request.begin_ns)}` +
      (span.status ? `, ${span.status}` : "") + (says ? `; its cause: ${says}` : "") + (own ? `; ${duration(own)} on the critical path` : "");
    return [make("li", { title }, name, line, make("span", { class: "figure" }, duration(ns)),
      make("span", { class: "soft sure" }, [span.status === "error" ? "error" : "", says].filter(Boolean).join(" · ")))];
  });
  const legend = make("ul", { class: "legend" }, ...services.map((service) => make("li", {}, make("i", { class: hue(service) }), service || "no service")),
    make("li", { class: "soft" }, make("i", { class: "counted" }), "critical path"));
  const left = named.length - shown.length;
  const place = make("div", { class: "spans" }, legend, make("ol", { "aria-label": "Spans" }, ...rows),
    ...(left ? [make("p", { class: "soft" }, `${count(left)} spans that lasted less are not shown`)] : []));
  const path = make("ol", { class: "critical" });
  const all = named_critical.reduce((sum, { from_ns, to_ns }) => sum + to_ns - from_ns, 0) || 1;
  for (const { span: at, from_ns, to_ns } of named_critical.slice(0, ROWS_MAX)) {
    const span = named[at];
    if (!span) continue;
    path.append(make("li", {}, make("i", { class: hue(span.service) }), make("span", { class: "figure" }, duration(to_ns - from_ns)),
      make("span", { class: "state" }, percent((to_ns - from_ns) / all)), make("span", { class: "who" }, [span.service, span.name].filter(Boolean).join(": "))));
  }
  return { place, path };
}
