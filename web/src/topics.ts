import type { Context, PanelSpec } from "./context";
import { ask } from "./connection";
import { canvas, color, empty, h } from "./dom";
import { count, rate } from "./format";
import type { Field, Topic } from "./types";

/** The panel that a click on a topic adds. */
export function panelFor(topic: Topic): PanelSpec {
  switch (topic.role) {
    case "image":
      return { kind: "image", topic: topic.topic };
    case "points":
    case "grid":
    case "path":
    case "marker":
      return { kind: "scene" };
    case "frames":
      return { kind: "frames" };
    case "log":
      return { kind: "log", topic: topic.topic };
    case "gps":
      return { kind: "map", topic: topic.topic };
    default:
      return { kind: "raw", topic: topic.topic };
  }
}

/** All topics, with what they hold; a click adds a panel, a field a line in a plot. */
export function topicList(
  context: Context,
  onDensity: (topic: string, take: (lane: Float64Array) => void) => void,
): HTMLElement {
  const { summary } = context;
  const list = h("ul", { class: "topics", "aria-label": "Topics" });
  const search = h("input", { type: "search", "aria-label": "Search topics and types" });
  const known = new Map<string, ReturnType<typeof entry>>();
  let entries: ReturnType<typeof entry>[] = [];
  /** Takes over what is known of the topics now; those of a running robot come and grow. */
  const renew = () => {
    search.placeholder = `Search ${summary.topics.length} topics`;
    // Those that have nothing come last.
    const sorted = [...summary.topics].sort((a, b) => Number(a.messages === 0) - Number(b.messages === 0));
    entries = sorted.map((topic) => {
      const found = known.get(topic.topic) ?? entry(context, topic, onDensity);
      known.set(topic.topic, found);
      found.tell(topic);
      return found;
    });
  };
  const none = empty("No topic matches", "Try another word, or clear the search.");
  const show = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = entries.filter(({ topic }) => {
      const text = `${topic().topic} ${topic().type}`.toLowerCase();
      return words.every((word) => text.includes(word));
    });
    const elements: HTMLElement[] = found.map((one) => one.element);
    if (found.length === 0 && entries.length > 0) elements.push(none);
    if (entries.length === 0)
      elements.push(summary.live ? empty("No topics yet", "They appear here as soon as the robot has some.") : empty("No topics", "This recording has no channels."));
    // Nothing is taken out and put back for nothing: it would lose its place and the pointer.
    if (elements.some((one, index) => list.children[index] !== one) || list.children.length !== elements.length) list.replaceChildren(...elements);
  };
  search.addEventListener("input", show);
  renew();
  show();
  context.connection.on("topics", () => {
    renew();
    show();
  });
  return h("aside", { class: "sidebar", "aria-label": "Topics" }, search, list);
}

function entry(context: Context, first: Topic, onDensity: (topic: string, take: (lane: Float64Array) => void) => void) {
  let topic = first;
  let lane: Float64Array | undefined;
  const strip = canvas(`Messages on ${topic.topic} over time`, (context2d, width, height) => {
    if (!lane) return;
    const most = lane.reduce((a, b) => Math.max(a, b), 1);
    context2d.fillStyle = color("accent");
    lane.forEach((value, index) => {
      if (value === 0 || !lane) return;
      context2d.globalAlpha = 0.3 + 0.7 * (value / most);
      context2d.fillRect((index * width) / lane.length, 0, Math.max(width / lane.length, 1), height);
    });
  });
  strip.element.className = "strip";
  onDensity(topic.topic, (values) => {
    lane = values;
    strip.redraw();
  });
  const fields = h("ul", { class: "fields", hidden: true });
  const open = h(
    "button",
    { class: "fold", "aria-expanded": "false", "aria-label": `Fields of ${topic.topic}`, title: "Fields to plot" },
    "▸",
  );
  open.addEventListener("click", async () => {
    fields.hidden = !fields.hidden;
    open.textContent = fields.hidden ? "▸" : "▾";
    open.setAttribute("aria-expanded", String(!fields.hidden));
    if (fields.childElementCount > 0) return;
    try {
      const all = await ask<Field[]>("fields", { topic: topic.topic });
      fields.replaceChildren(...all.filter((field) => field.kind !== "text").map((field) => fieldEntry(context, topic, field)));
      if (fields.childElementCount === 0) fields.append(h("li", { class: "faint" }, "no numbers to plot"));
    } catch (error) {
      fields.replaceChildren(h("li", { class: "faint" }, String((error as Error).message)));
    }
  });
  const type = h("span", { class: "type" });
  const amount = h("span", { class: "amount" });
  const add = h("button", { class: "topic", onclick: () => context.add(panelFor(topic)) }, h("span", { class: "name" }, topic.topic), type, amount);
  const element = h("li", {}, h("div", { class: "topic-row" }, open, add), strip.element, fields);
  /** Shows what is known of it now. */
  const tell = (now: Topic) => {
    topic = now;
    element.className = topic.messages === 0 ? "silent" : "";
    type.textContent = topic.type || "no type";
    amount.textContent = `${count(topic.messages)} · ${rate(topic.hz) || "–"}`;
    amount.title = topic.left ? `${count(topic.left)} more have left the window` : "";
    add.title = `${topic.type || "no type"}, ${topic.encoding || "unknown encoding"}: click to add a panel`;
  };
  return { element, tell, topic: () => topic };
}

function fieldEntry(context: Context, topic: Topic, field: Field): HTMLElement {
  const kind = field.kind === "number" ? "plot" : "state";
  return h(
    "li",
    {},
    h(
      "button",
      {
        class: "field",
        title: kind === "plot" ? "Add to a plot" : "Add to the states",
        onclick: () => context.add({ kind, fields: [{ topic: topic.topic, path: field.path }] }),
      },
      field.path,
    ),
  );
}
