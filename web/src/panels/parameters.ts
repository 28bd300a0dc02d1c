import { ask } from "../connection";
import type { Context, Panel } from "../context";
import { empty, h } from "../dom";
import { exact, parseExact } from "../exact";
import { register } from "../registry";
import type { Json } from "../types";

/** The parameters at the current time, where they were logged. Read-only. */
function parametersPanel(context: Context): Panel {
  const words = h("input", { type: "search", placeholder: "Filter", "aria-label": "Filter the parameters" });
  const element = h("div", { class: "body table", tabindex: 0, role: "region", "aria-label": "Parameters" }, empty("Reading the parameters", ""));
  let known: [string, Json][] = [];
  let read = -1;
  let isReading = false;
  const draw = () => {
    const text = words.value.toLowerCase();
    const rows = known.filter(([name]) => name.toLowerCase().includes(text)).map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, typeof value === "string" ? value : exact(value))));
    if (known.length === 0) return element.replaceChildren(empty("No parameters", "None were logged up to this time. They come from PX4 logs and ROS 2 parameter events."));
    if (rows.length === 0) return element.replaceChildren(empty("Nothing matches", "Try other words."));
    element.replaceChildren(h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "parameter"), h("th", { scope: "col" }, "value"))), h("tbody", {}, ...rows)));
  };
  const renew = async () => {
    const t = Math.round(context.connection.position());
    if (isReading || t === read) return;
    isReading = true;
    read = t;
    try {
      known = Object.entries(await ask<Record<string, Json>>("parameters", { t }, undefined, parseExact));
      draw();
    } catch (error) {
      element.replaceChildren(empty("The parameters cannot be read", (error as Error).message));
    }
    isReading = false;
  };
  words.addEventListener("input", draw);
  // They change rarely, and reading them is not free.
  const ticking = window.setInterval(() => document.hidden || void renew(), 1000);
  void renew();
  return { element, title: "", controls: [words], spec: () => ({ kind: "parameters" }), dispose: () => clearInterval(ticking) };
}

register({ kind: "parameters", title: "Parameters", make: parametersPanel });
