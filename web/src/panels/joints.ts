import { Columns } from "../columns";
import type { Context, Panel, PanelSpec } from "../context";
import { empty, h } from "../dom";
import { exact } from "../exact";
import { register } from "../registry";

/** Joint states: position, velocity, effort. */
function jointsPanel(context: Context, spec: PanelSpec): Panel {
  const topic = spec.topic ?? "";
  const element = h("div", { class: "body table", tabindex: 0, role: "region", "aria-label": `Joints ${topic}` }, empty("Waiting", `for joints on ${topic}`));
  const stop = context.connection.subscribe(topic, "columns", (shown) => {
    if (shown.op === "nothing") return element.replaceChildren(empty("Nothing yet", `${topic} has no message up to this time.`));
    if (shown.error) return element.replaceChildren(empty("This message cannot be decoded", shown.error));
    const columns = new Columns(shown);
    const names = columns.texts("name[]");
    const parts = ["position", "velocity", "effort"].map((path) => columns.numbers(`${path}[]`));
    const cell = (value: number | undefined) => h("td", {}, value === undefined || Number.isNaN(value) ? "" : exact(value));
    const rows = names.map((name, row) => h("tr", {}, h("th", { scope: "row" }, name), ...parts.map((part) => cell(part[row]))));
    element.replaceChildren(h("table", {}, h("thead", {}, h("tr", {}, ...["joint", "position", "velocity", "effort"].map((title) => h("th", { scope: "col" }, title)))), h("tbody", {}, ...rows)));
  });
  return { element, title: topic, spec: () => ({ kind: "joints", topic }), dispose: stop };
}

register({ kind: "joints", title: "Joints", make: jointsPanel, takes: (topic) => topic.role === "joints" });
