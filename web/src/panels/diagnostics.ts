import { Columns } from "../columns";
import type { Context, Panel, PanelSpec } from "../context";
import { empty, h } from "../dom";
import { register } from "../registry";

const LEVELS = ["ok", "warn", "error", "stale"];

/** Diagnostics of the robot's components, the worst first. */
function diagnosticsPanel(context: Context, spec: PanelSpec): Panel {
  const topic = spec.topic ?? "";
  const element = h("div", { class: "body diagnostics", tabindex: 0, role: "region", "aria-label": `Diagnostics ${topic}` }, empty("Waiting", `for diagnostics on ${topic}`));
  const known = new Map<string, { level: number; message: string; values: [string, string][] }>();
  let t = -Infinity;
  const draw = () => {
    const sorted = [...known].sort(([a, one], [b, other]) => other.level - one.level || a.localeCompare(b));
    element.replaceChildren(
      ...sorted.map(([name, { level, message, values }]) =>
        h(
          "details",
          { class: `diagnostic ${LEVELS[level] ?? "stale"}` },
          h("summary", {}, h("b", {}, LEVELS[level] ?? String(level)), ` ${name} `, h("span", { class: "faint" }, message)),
          h("dl", {}, ...values.flatMap(([key, value]) => [h("dt", {}, key), h("dd", {}, value)])),
        ),
      ),
    );
  };
  const stop = context.connection.subscribe(topic, "columns", (shown) => {
    if (shown.error) return element.replaceChildren(empty("This message cannot be decoded", shown.error));
    if (shown.op === "nothing" || shown.t < t) known.clear();
    t = shown.t;
    const columns = new Columns(shown);
    const [names, messages, keys, texts] = ["name", "message", "values[].key", "values[].value"].map((path) => columns.texts(`status[].${path}`));
    const ends = columns.offsets("status[].values");
    names.forEach((name, row) => {
      const values = Array.from({ length: (ends[row + 1] ?? 0) - (ends[row] ?? 0) }, (_, at): [string, string] => [keys[ends[row] + at] ?? "", texts[ends[row] + at] ?? ""]);
      known.set(name, { level: columns.number("status[].level", row), message: messages[row] ?? "", values });
    });
    draw();
  });
  return { element, title: topic, spec: () => ({ kind: "diagnostics", topic }), dispose: stop };
}

register({ kind: "diagnostics", title: "Diagnostics", make: diagnosticsPanel, takes: (topic) => topic.role === "diagnostics" });
