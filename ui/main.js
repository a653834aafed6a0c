// The page: shows what `fettle ui` was given, a trace or layouts of hot code.

import { get, takeToken } from "./api.js";
import { showLayouts } from "./layouts.js";
import { failed } from "./notice.js";
import { showTrace } from "./trace.js";

const THEME_KEY = "fettle-theme";

/** Dark, light, or what the system says. */
function themes() {
  const root = document.documentElement;
  const kept = localStorage.getItem(THEME_KEY);
  if (kept === "dark" || kept === "light") root.dataset["theme"] = kept;
  return () => {
    const dark = root.dataset["theme"] ? root.dataset["theme"] === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset["theme"] = dark ? "light" : "dark";
    localStorage.setItem(THEME_KEY, root.dataset["theme"]);
  };
}

async function main() {
  const switchTheme = themes();
  takeToken();
  try {
    /** @type {"trace"|"layouts"} */
    const subject = await get("subject");
    await (subject === "layouts" ? showLayouts(switchTheme) : showTrace(switchTheme));
  } catch (error) {
    failed(error);
  }
}

void main();
