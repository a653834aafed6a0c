// What stands on the page instead of what it should show.

import { Unanswered } from "./api.js";
import { byId, make } from "./dom.js";

/** @param {string} title @param {string} text */
export function say(title, text) {
  const notice = byId("notice", HTMLElement);
  notice.replaceChildren(make("h2", {}, title), make("p", {}, text));
  notice.hidden = false;
}

/** Says what is wrong and what to do. @param {unknown} error */
export function failed(error) {
  if (error instanceof DOMException && error.name === "AbortError") return;
  const message = error instanceof Error ? error.message : String(error);
  const gone = error instanceof Unanswered && error.status === 0;
  const closed = error instanceof Unanswered && error.status === 401;
  const [title, advice] = closed
    ? ["This page needs its token", "Open the whole URL that `fettle ui` printed in the terminal. Each start of it makes a new one."]
    : gone ? ["The server is gone", "Start `fettle ui` again and open the URL that it prints."]
    : ["This did not work", "Reload the page. If it happens again, `fettle trace check` says whether the trace is damaged."];
  say(title, closed || gone ? advice : `${message}\n${advice}`);
  byId("main", HTMLElement).hidden = true;
}
