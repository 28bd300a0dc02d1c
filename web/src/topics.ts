import type { Context } from "./context";
import { ask } from "./connection";
import { canvas, color, empty, h } from "./dom";
import { broken, openFieldMenu } from "./fields";
import { FIELD_MIME, panelFor } from "./first";
import { count, counted, rate } from "./format";
import { store, stored } from "./stored";
import type { Field, Topic } from "./types";

type OnDensity = (topic: string, take: (lane: Float64Array) => void) => void;
type Entry = ReturnType<typeof entry>;

/** With more topics than this they are shown by namespace. */
const MANY = 24;

/** The list of topics; a click on a topic adds a panel, on a field a line in a plot. */
export function topicList(context: Context, onDensity: OnDensity): HTMLElement {
  const { summary } = context;
  const list = h("ul", { class: "topics", "aria-label": "Topics" });
  const search = h("input", { type: "search", "aria-label": "Search topics and types", title: "Names, types and fields" });
  const known = new Map<string, Entry>();
  const fields = fieldNames(() => summary.topics.map((topic) => topic.topic));
  let entries: Entry[] = [];
  let isHiding = stored("asof-hide-empty") === "true";
  let isTree = summary.topics.length > MANY;
  /** Updates the list: a running robot's topics appear and grow. */
  const renew = () => {
    search.placeholder = `Search ${summary.topics.length} ${summary.topics.length === 1 ? "topic" : "topics"}`;
    // Empty topics come last.
    const sorted = [...summary.topics].sort((a, b) => Number(a.messages === 0) - Number(b.messages === 0));
    entries = sorted.map((topic) => {
      const found = known.get(topic.topic) ?? entry(context, topic, onDensity);
      known.set(topic.topic, found);
      found.tell(topic);
      return found;
    });
  };
  const none = empty("No topic matches", "Try another word, or clear the search.");
  const hide = h("button", { class: "plain text hide-empty", "aria-pressed": String(isHiding) });
  hide.addEventListener("click", () => {
    isHiding = !isHiding;
    store("asof-hide-empty", String(isHiding));
    show();
  });
  const show = () => {
    const silent = summary.topics.filter((topic) => topic.messages === 0).length;
    hide.hidden = silent === 0;
    hide.textContent = `${isHiding ? "Show" : "Hide"} ${counted(silent, "empty topic")}`;
    hide.setAttribute("aria-pressed", String(isHiding));
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = entries.filter(({ topic }) => {
      if (isHiding && topic().messages === 0) return false;
      const text = `${topic().topic} ${topic().type} ${fields.of(topic().topic)}`.toLowerCase();
      return words.every((word) => text.includes(word));
    });
    const elements = isTree && words.length === 0 ? byNamespace(found) : found.map((one) => one.element as HTMLElement);
    if (found.length === 0 && entries.length > 0) elements.push(none);
    if (entries.length === 0)
      elements.push(summary.live ? empty("No topics yet", "They appear here as soon as the robot has some.") : empty("No topics", "This recording has no channels."));
    // Rows that stay are not re-inserted: they would lose focus and scroll position.
    if (elements.some((one, index) => list.children[index] !== one) || list.children.length !== elements.length) list.replaceChildren(...elements);
  };
  const tree = h("button", { class: "plain text", "aria-pressed": String(isTree), title: "By namespace", "aria-label": "Topics by namespace" }, "⊞");
  tree.addEventListener("click", () => {
    isTree = !isTree;
    tree.setAttribute("aria-pressed", String(isTree));
    show();
  });
  search.addEventListener("input", () => {
    show();
    if (search.value.length > 1) void fields.read().then(show);
  });
  renew();
  show();
  context.connection.on("topics", () => {
    renew();
    show();
  });
  return h("aside", { class: "sidebar", "aria-label": "Topics" }, h("div", { class: "search" }, search, tree), hide, list);
}

/** Groups topics by the first part of their names. */
function byNamespace(entries: Entry[]): HTMLElement[] {
  const groups = Map.groupBy(entries, ({ topic }) => topic().topic.split("/").slice(0, 2).join("/"));
  return [...groups].map(([name, all]) => {
    if (all.length === 1) return all[0].element;
    const details = h("details", { class: "namespace", open: true }, h("summary", {}, `${name} (${all.length})`), h("ul", {}, ...all.map((one) => one.element)));
    return h("li", {}, details);
  });
}

/** The field names of all topics, loaded with the first search. */
function fieldNames(topics: () => string[]) {
  const known = new Map<string, string>();
  const read = async () => {
    for (const topic of topics()) {
      if (known.has(topic)) continue;
      known.set(topic, "");
      const all = await ask<Field[]>("fields", { topic }).catch(() => []);
      known.set(topic, all.map((field) => field.path).join(" "));
    }
  };
  return { read, of: (topic: string) => known.get(topic) ?? "" };
}

function entry(context: Context, first: Topic, onDensity: OnDensity) {
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
  const add = h("button", { class: "topic", onclick: () => context.add(panelFor(topic)) }, h("span", { class: "name" }, ...broken(topic.topic)), type, amount);
  const element = h("li", {}, h("div", { class: "topic-row" }, open, add), strip.element, fields);
  /** Updates the row. */
  const tell = (now: Topic) => {
    topic = now;
    element.className = topic.messages === 0 ? "silent" : "";
    type.textContent = topic.type || "no type";
    amount.textContent = topic.messages === 0 ? "empty" : `${count(topic.messages)} · ${rate(topic.hz) || "–"}`;
    amount.title = topic.left ? `${count(topic.left)} more have left the window` : "";
    add.title = `${topic.type || "no type"}, ${topic.encoding || "unknown encoding"}: click to add a panel`;
  };
  return { element, tell, topic: () => topic };
}

function fieldEntry(context: Context, topic: Topic, field: Field): HTMLElement {
  const kind = field.kind === "number" ? "plot" : "state";
  const own = { topic: topic.topic, path: field.path };
  const add = h(
    "button",
    { class: "field", draggable: "true", title: kind === "plot" ? "Add to a plot, or drag onto one" : "Add to the states", onclick: () => context.add({ kind, fields: [own] }) },
    ...broken(field.path),
  );
  const more = h("button", { class: "plain text more", "aria-haspopup": "menu", "aria-label": `More for ${field.path}`, title: "Plot, XY, states, copy" }, "⋯");
  more.addEventListener("click", () => openFieldMenu(context, more, own));
  add.addEventListener("dragstart", (event) => event.dataTransfer?.setData(FIELD_MIME, JSON.stringify(own)));
  return h("li", { class: "field-row" }, add, more);
}
