import { h } from "../dom";
import { broken } from "../fields";
import type { LayerSettings } from "./layer";
import type { SceneView } from "./scene";

/** The list of layers, each with a checkbox and settings. It can be folded. */
export function layerList(view: SceneView) {
  const fold = h("button", { class: "plain text fold-layers", title: "Show or hide the list of layers", onclick: () => view.fold(!view.isFolded) });
  const rows = h("div", { class: "layer-list" });
  const element = h("div", { class: "layers", role: "group", "aria-label": "What is shown" }, fold, rows);
  const counts = h("div", { class: "faint counts" });
  let opened = "";

  const entry = (name: string, text: string, error?: string, left?: string) => {
    const box = h("input", { type: "checkbox" });
    box.checked = !view.hidden.has(name);
    box.addEventListener("change", () => view.toggle(name, box.checked));
    const swatch = view.topics.some(({ topic }) => topic === name) ? h("i", { class: "swatch", style: `background:${view.settings[name]?.color ?? view.colorOf(name)}` }) : null;
    const label = h("label", { title: error ?? name }, box, swatch, h("span", { class: "name" }, ...broken(text)), h("span", { class: "range faint" }), error ? h("em", {}, " !") : null, left ? h("em", { class: "left" }, ` (not drawn: ${left})`) : null);
    const more = h("button", { class: "plain text", "aria-label": `Settings of ${name}`, title: `Settings of ${name}`, "aria-expanded": String(opened === name) }, "…");
    more.addEventListener("click", () => {
      opened = opened === name ? "" : name;
      draw();
    });
    return h("div", { class: "layer", "data-name": name }, h("div", { class: "layer-row" }, label, more), h("div", { class: "unplaced" }), opened === name ? settingsOf(view, name) : null);
  };

  const draw = () => {
    const reasons = [...(view.robot?.missing.values() ?? [])];
    // A missing mesh needs a folder; a file that was found and is not a mesh has to be inspected.
    const advice = reasons.find((reason) => !reason.includes("--package")) ?? "name their folder with --package";
    const missing = reasons.length > 0 ? `${reasons.length} ${reasons.length === 1 ? "mesh" : "meshes"}; ${advice}` : "";
    fold.setAttribute("aria-expanded", String(!view.isFolded));
    rows.hidden = view.isFolded;
    rows.replaceChildren(
      entry("frames", "frames"),
      entry("robot", view.robot ? `robot ${view.robot.name}` : "robot", view.robotError || undefined, missing),
      ...view.topics.map(({ topic }) => entry(topic, topic, view.layers.get(topic)?.error, view.layers.get(topic)?.left)),
      counts,
    );
    count();
    element.title = reasons.slice(0, 3).join("\n");
  };
  const count = () => {
    for (const row of element.querySelectorAll<HTMLElement>(".layer")) {
      const layer = view.layers.get(row.dataset.name ?? "");
      if (!layer) continue;
      row.dataset.drawn = String(layer.drawn);
      const range = row.querySelector<HTMLElement>(".range");
      if (range && range.textContent !== layer.range) range.textContent = layer.range;
    }
    let missing = 0;
    for (const row of element.querySelectorAll<HTMLElement>(".layer")) {
      const name = row.dataset.name ?? "";
      const error = name === "robot" ? view.robotError : view.layers.get(name)?.error;
      const [lost, text] = [row.querySelector<HTMLElement>(".unplaced"), view.lostText(name) || (error ?? "")];
      if (lost && lost.textContent !== text) lost.textContent = text;
      if (text !== "") missing++;
    }
    const title = `${view.isFolded ? "▸" : "▾"} Layers${view.isFolded && missing > 0 ? ` (${missing} not drawn)` : ""}`;
    if (fold.textContent !== title) fold.textContent = title;
    const rate = view.load.rate === undefined ? "" : `at most ${view.load.rate} ${view.load.rate === 1 ? "frame" : "frames"} per second`;
    const skipped = [...view.skipped].sort((a, b) => b[1] - a[1]).map(([topic, times]) => `${times.toLocaleString("en")} of ${topic}`);
    const few = [...skipped.slice(0, 2), ...(skipped.length > 2 ? [`${skipped.length - 2} other topics`] : [])];
    const text = [rate, few.length > 0 ? `skipped ${few.join(", ")}` : ""].filter(Boolean).join("; ");
    if (counts.textContent === text) return;
    counts.textContent = text;
    const reason = rate ? "Without a graphics card fewer frames are drawn; the messages in between are skipped." : "A newer message of the same topic replaced them before the next frame was drawn.";
    counts.title = [reason, ...skipped].join("\n");
  };
  return { element, draw, count };
}

/** The settings that a topic of its kind has. */
function settingsOf(view: SceneView, name: string): HTMLElement {
  const now = view.settings[name] ?? {};
  const role = view.topics.find((topic) => topic.topic === name)?.role;
  const set = (change: Partial<LayerSettings>) => view.change(name, { ...view.settings[name], ...change });
  /** A number input with its default as a placeholder. */
  const number = (label: string, key: "size" | "least" | "most" | "decay", step: number, otherwise: string) => {
    const input = h("input", { type: "number", step, min: key === "size" || key === "decay" ? 0 : null, value: now[key] ?? "", placeholder: otherwise, "aria-label": `${label.replace(/ \(.*/, "")} of ${name}`, title: `Default: ${otherwise}` });
    input.addEventListener("change", () => set({ [key]: input.value === "" ? undefined : Number(input.value) }));
    return h("label", {}, label, input);
  };
  const choice = (label: string, key: "by" | "palette", options: [string, string][]) => {
    const select = h("select", { "aria-label": `${label} of ${name}` }, ...options.map(([value, text]) => h("option", { value }, text)));
    select.value = now[key] ?? options[0][0];
    select.addEventListener("change", () => set({ [key]: select.value || undefined } as Partial<LayerSettings>));
    return h("label", {}, label, select);
  };
  const others = (view.layers.get(name)?.fields ?? []).filter((field) => !["x", "y", "z"].includes(field)).map((field): [string, string] => [`field ${field}`, field]);
  const tint = h("input", { type: "color", value: now.color ?? view.colorOf(name), "aria-label": `Colour of ${name}` });
  tint.addEventListener("input", () => set({ color: tint.value }));
  const fields: Record<string, HTMLElement[]> = {
    frames: [choice("names", "by", [["flat", "hidden"], ["value", "shown"]])],
    points: [
      choice("colour by", "by", [["value", "intensity or rgb"], ["x", "x"], ["y", "y"], ["z", "z"], ...others, ["flat", "one colour"]]),
      h("label", {}, "colour", tint), number("size (px)", "size", 0.5, view.layers.get(name)?.isScan ? "5" : "2.5"), number("from", "least", 0.1, "minimum"), number("to", "most", 0.1, "maximum"), number("decay (s)", "decay", 0.5, "0"),
    ],
    grid: [
      ...(others.length > 0 ? [choice("layer", "by", others)] : []),
      choice("colours", "palette", [["", "automatic"], ["map", "map"], ["costmap", "costmap"], ["range", "blue to red"]]),
    ],
  };
  const own = fields[role ?? name] ?? (name === "robot" ? [] : [h("label", {}, "colour", tint), number("size (×)", "size", 0.1, "1")]);
  return h("div", { class: "layer-settings" }, ...(own.length > 0 ? own : [h("span", { class: "faint" }, "It is drawn as its URDF describes it.")]));
}
