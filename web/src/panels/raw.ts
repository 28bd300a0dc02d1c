import type { Context, Panel, PanelSpec } from "../context";
import { empty, h } from "../dom";
import { bytes, number, time } from "../format";
import type { Json, Shown } from "../types";

/** One message as a tree. A click on a name copies its path. */
export function rawPanel(context: Context, spec: PanelSpec): Panel {
  const topic = spec.topic ?? "";
  const head = h("div", { class: "message-head" });
  const tree = h("div", { class: "tree" });
  const element = h("div", { class: "body raw" }, head, tree);
  const closed = new Set<string>();
  let shown: Shown | undefined;
  let drawn = 0;
  let timer = 0;

  const draw = () => {
    timer = 0;
    drawn = performance.now();
    if (!shown) return;
    if (shown.op === "nothing") {
      head.replaceChildren();
      return tree.replaceChildren(empty("Nothing yet", context.summary.live ? `${topic} has said nothing yet.` : `${topic} has no message by this time; go on in the recording.`));
    }
    head.replaceChildren(
      h("span", {}, shown.type || "no type"),
      h("span", {}, time(shown.t, context.clock(), context.summary.start, 6)),
      h("span", {}, bytes(shown.size)),
    );
    if (shown.error) return tree.replaceChildren(empty("This message cannot be decoded", shown.error));
    tree.replaceChildren(...entries(shown.data ?? null, ""));
  };

  const entries = (value: Json, path: string): HTMLElement[] => {
    if (value === null || typeof value !== "object") return [leaf("value", path, value)];
    const all: [string, Json][] = Array.isArray(value)
      ? value.map((one, index) => [`[${index}]`, one])
      : Object.entries(value);
    const shownOnes = all.slice(0, 500).map(([name, one]) => {
      const own = name.startsWith("[") ? path + name : path ? `${path}.${name}` : name;
      if (one === null || typeof one !== "object") return leaf(name, own, one);
      return branch(name, own, one);
    });
    if (all.length > 500) shownOnes.push(h("div", { class: "faint" }, `… ${all.length - 500} more`));
    return shownOnes;
  };

  const branch = (name: string, path: string, value: Json): HTMLElement => {
    const size = Array.isArray(value) ? value.length : Object.keys(value as object).length;
    // Long lists of numbers are read as one line.
    const flat = Array.isArray(value) && value.every((one) => one === null || typeof one !== "object");
    const details = h("details", { open: !closed.has(path) && !(flat && size > 12) });
    details.addEventListener("toggle", () => (details.open ? closed.delete(path) : closed.add(path)));
    const stamp = asTime(value);
    const note = stamp ?? (Array.isArray(value) ? `[${size}]` : "");
    details.append(h("summary", {}, label(name, path), h("span", { class: "faint" }, note)));
    if (flat && Array.isArray(value))
      details.append(h("div", { class: "numbers" }, value.slice(0, 400).map((one) => (typeof one === "number" ? number(one) : String(one))).join(", ") + (size > 400 ? " …" : "")));
    else details.append(h("div", { class: "inner" }, ...entries(value, path)));
    return details;
  };

  const leaf = (name: string, path: string, value: Json): HTMLElement => {
    const text = typeof value === "number" ? number(value) : typeof value === "string" ? JSON.stringify(value) : String(value);
    return h("div", { class: "leaf" }, label(name, path), h("span", { class: `value ${typeof value}` }, text));
  };

  const label = (name: string, path: string): HTMLElement =>
    h(
      "button",
      {
        class: "key",
        title: `Copy ${topic}.${path}`,
        "aria-label": `Copy the path ${path}`,
        onclick: (event: Event) => {
          event.preventDefault();
          void navigator.clipboard?.writeText(`${topic}.${path}`);
          (event.target as HTMLElement).animate([{ background: "var(--accent)" }, { background: "transparent" }], 500);
        },
      },
      name,
    );

  /** Stamps and durations in the words of ROS and protobuf, as a person reads them. */
  const asTime = (value: Json): string | undefined => {
    if (!value || typeof value !== "object" || Array.isArray(value)) return undefined;
    const keys = Object.keys(value);
    if (keys.length !== 2) return undefined;
    const seconds = value.sec ?? value.seconds;
    const nanos = value.nanosec ?? value.nsec ?? value.nanos;
    if (typeof seconds !== "number" || typeof nanos !== "number") return undefined;
    if (seconds < 1e8) return `${(seconds + nanos / 1e9).toFixed(6)} s`;
    const at = BigInt(seconds) * 1_000_000_000n + BigInt(nanos) - BigInt(context.summary.start);
    return time(Number(at), context.clock(), context.summary.start, 6);
  };

  const stop = context.connection.subscribe(topic, "json", (message) => {
    shown = message;
    // Nobody reads faster than this.
    if (!timer) timer = window.setTimeout(draw, Math.max(0, 100 - (performance.now() - drawn)));
  });
  tree.append(empty("Waiting", `for a message on ${topic}`));
  return { element, title: topic, spec: () => ({ kind: "raw", topic }), dispose: () => (stop(), clearTimeout(timer)) };
}
