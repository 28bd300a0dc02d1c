import type { Context, Panel, PanelSpec } from "./context";
import { ask } from "./connection";
import { button, empty, h } from "./dom";
import { type Split, type Tree, first } from "./first";
import { allKinds, entryOf } from "./registry";
import { store, stored } from "./stored";
import type { Summary } from "./types";

// Each file registers one kind of panel.
import.meta.glob("./panels/*.ts", { eager: true });

/** The most changes that can be undone. */
const MOST_UNDONE = 100;

/** How long the fields of a running robot are observed before plots are chosen, in milliseconds. */
const LOOK_EVERY = 3000;

type Plots = NonNullable<Summary["plots"]>;

/** The grid of panels: a tree of splits with adjustable shares. */
export class Layout {
  readonly element = h("main", { class: "grid", "aria-label": "Panels" });
  private tree: Tree | undefined;
  private panels = new Map<PanelSpec, Panel>();
  /** Whether the user has edited it: then it is not changed automatically. */
  private isOwn = false;
  /** The undo and redo stacks. */
  private past: string[] = [];
  private undone: string[] = [];
  private savedAt = -Infinity;
  /** On a narrow screen one panel is shown at a time. */
  private narrow = matchMedia("(max-width: 700px)");
  private chosen = 0;
  /** The number of topics of a running robot when plots were last chosen. */
  private lookedAt = 0;

  constructor(
    private context: Context,
    private key: string,
    given?: Tree,
  ) {
    context.add = (spec) => this.add(spec);
    context.save = () => this.save();
    context.fieldsOf = (kind) => {
      const spec = this.tree && panelsOf(this.tree).find((one) => one.kind === kind);
      return spec && (this.panels.get(spec)?.spec() ?? spec).fields;
    };
    const kept = given && isTree(given) ? given : this.load();
    this.isOwn = kept !== undefined;
    this.tree = kept ?? first(context.summary);
    this.draw();
    this.past = [this.text()];
    if (!this.isOwn) void (context.summary.live ? this.choosePlotsLive() : this.choosePlots());
    context.connection.on("topics", () => {
      this.suggest();
      void this.choosePlotsLive();
    });
    this.narrow.addEventListener("change", () => this.draw());
  }

  /** The current layout, with the settings of its panels. */
  current(): Tree | undefined {
    const kept = (tree: Tree): Tree =>
      "split" in tree
        ? { ...tree, first: kept(tree.first), second: kept(tree.second) }
        : (this.panels.get(tree)?.spec() ?? tree);
    return this.tree && kept(this.tree);
  }

  /** Shows another layout. Returns false if it is not valid. */
  apply(tree: Tree): boolean {
    if (!isTree(tree)) return false;
    this.tree = tree;
    this.draw();
    this.save();
    return true;
  }

  undo(): void {
    if (this.past.length < 2) return;
    this.undone.push(this.past.pop() as string);
    this.restore(this.past[this.past.length - 1]);
  }

  redo(): void {
    const next = this.undone.pop();
    if (next === undefined) return;
    this.past.push(next);
    this.restore(next);
  }

  private restore(text: string): void {
    this.tree = (JSON.parse(text) as Tree | null) ?? undefined;
    this.draw();
    store(this.key, text);
  }

  private text(): string {
    return JSON.stringify(this.current() ?? null);
  }

  reset(): void {
    this.tree = first(this.context.summary);
    this.draw();
    this.save();
    this.isOwn = false;
  }

  /** The same layout, with existing panels reused where they show the same. */
  private kept(tree: Tree): Tree {
    if ("split" in tree) return { ...tree, first: this.kept(tree.first), second: this.kept(tree.second) };
    return [...this.panels.keys()].find((one) => shapeOf(one) === shapeOf(tree)) ?? tree;
  }

  /** Updates a layout that was not edited when topics appear. */
  private suggest(): void {
    if (this.isOwn) return;
    const next = first(this.context.summary);
    if (shapeOf(next) === shapeOf(this.tree)) return;
    this.tree = next && this.kept(next);
    this.draw();
  }

  /** Plots fields that vary, unless the layout was edited. */
  async choosePlots(): Promise<void> {
    const { connection, summary } = this.context;
    if (summary.is_empty) return;
    await connection.first();
    summary.plots = await ask<Plots>("plots", {}).catch(() => undefined);
    this.suggest();
  }

  /** The same for a running robot: repeated until fields vary, and when topics appear. */
  private async choosePlotsLive(): Promise<void> {
    const { summary } = this.context;
    const count = summary.topics.length;
    if (!summary.live || count <= this.lookedAt) return;
    this.lookedAt = count;
    while (!this.isOwn && this.lookedAt === count) {
      await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY));
      const found = await ask<Plots>("plots", {}).catch(() => []);
      if (found.length === 0 || this.lookedAt !== count) continue;
      summary.plots = found;
      return this.suggest();
    }
  }

  /** Adds to a panel of the same kind if possible, otherwise splits the largest panel. */
  add(spec: PanelSpec): void {
    const all = this.tree ? panelsOf(this.tree) : [];
    const same = all.find(({ kind }) => kind === spec.kind && (spec.fields || kind === "scene" || kind === "frames"));
    if (same) {
      const known = this.panels.get(same)?.spec() ?? same;
      const fields = [...(known.fields ?? [])];
      for (const field of spec.fields ?? [])
        if (!fields.some((one) => one.topic === field.topic && one.path === field.path)) fields.push(field);
      this.chosen = all.indexOf(same);
      if (spec.fields) this.replace(same, { ...known, fields });
      else this.draw();
      this.element.querySelectorAll(".panel")[this.narrow.matches ? 0 : this.chosen]?.animate([{ opacity: 0.4 }, { opacity: 1 }], 300);
      return this.save();
    }
    this.chosen = all.length;
    if (!this.tree) this.tree = spec;
    else this.split(this.largest() ?? all[all.length - 1], undefined, spec);
    this.draw();
    this.save();
  }

  private largest(): PanelSpec | undefined {
    let [found, area]: [PanelSpec | undefined, number] = [undefined, -1];
    for (const [known, panel] of this.panels) {
      const box = panel.element.getBoundingClientRect();
      if (box.width * box.height > area) [found, area] = [known, box.width * box.height];
    }
    return found;
  }

  private split(at: PanelSpec, direction: "row" | "column" | undefined, added: PanelSpec): void {
    const box = this.panels.get(at)?.element.getBoundingClientRect();
    const wide = !box || box.width > box.height * 1.2;
    this.change(at, { split: direction ?? (wide ? "row" : "column"), share: 0.5, first: at, second: added });
  }

  private replace(at: PanelSpec, by: PanelSpec): void {
    this.panels.get(at)?.dispose();
    this.panels.delete(at);
    this.change(at, by);
    this.draw();
    this.save();
  }

  private close(at: PanelSpec): void {
    this.panels.get(at)?.dispose();
    this.panels.delete(at);
    const without = (tree: Tree): Tree | undefined => {
      if (tree === at) return undefined;
      if (!("split" in tree)) return tree;
      const first = without(tree.first);
      const second = without(tree.second);
      if (!first || !second) return first ?? second;
      return { ...tree, first, second };
    };
    this.tree = this.tree && without(this.tree);
    this.draw();
    this.save();
  }

  private change(at: PanelSpec, by: Tree): void {
    const walk = (tree: Tree): Tree => {
      if (tree === at) return by;
      if (!("split" in tree)) return tree;
      return { ...tree, first: walk(tree.first), second: walk(tree.second) };
    };
    if (this.tree) this.tree = walk(this.tree);
  }

  private draw(): void {
    const used = new Set<PanelSpec>();
    const build = (tree: Tree): HTMLElement => {
      if ("split" in tree) return this.divided(tree, build(tree.first), build(tree.second));
      used.add(tree);
      return this.frame(tree);
    };
    const isWaiting = this.context.summary.live && this.context.summary.topics.length === 0;
    const content = this.tree
      ? this.narrow.matches
        ? this.oneOf(panelsOf(this.tree), build)
        : build(this.tree)
      : isWaiting
        ? empty("Waiting for the robot", "Its topics appear on the left, and panels here, as soon as it publishes something.")
        : empty("No panels", "Click a topic on the left to add one, or reset the layout.");
    for (const [spec, panel] of this.panels)
      if (!used.has(spec)) {
        panel.dispose();
        this.panels.delete(spec);
      }
    this.element.replaceChildren(content);
  }

  /** One panel, and tabs for the others. */
  private oneOf(specs: PanelSpec[], build: (tree: Tree) => HTMLElement): HTMLElement {
    this.chosen = Math.min(this.chosen, specs.length - 1);
    const tab = (spec: PanelSpec, index: number) => {
      const choose = () => {
        this.chosen = index;
        this.draw();
      };
      return h("button", { class: "plain text", role: "tab", "aria-selected": String(index === this.chosen), onclick: choose }, entryOf(spec.kind)?.title ?? spec.kind);
    };
    return h("div", { class: "narrow" }, h("div", { class: "tabs", role: "tablist", "aria-label": "Panels" }, ...specs.map(tab)), build(specs[this.chosen]));
  }

  /** Two parts with a handle between them. */
  private divided(tree: Split, before: HTMLElement, after: HTMLElement): HTMLElement {
    const isRow = tree.split === "row";
    const handle = h("div", { class: "handle", role: "separator", tabindex: 0, "aria-label": "Size of the panels", "aria-orientation": isRow ? "vertical" : "horizontal" });
    const box = h("div", { class: `split ${tree.split}` }, before, handle, after);
    const size = () => {
      before.style.flex = `${tree.share} 1 0`;
      after.style.flex = `${1 - tree.share} 1 0`;
      handle.setAttribute("aria-valuenow", String(Math.round(tree.share * 100)));
    };
    size();
    const set = (share: number) => {
      tree.share = Math.max(0.08, Math.min(share, 0.92));
      size();
      this.save();
    };
    handle.addEventListener("pointerdown", (event) => {
      handle.setPointerCapture(event.pointerId);
      const move = (moved: PointerEvent) => {
        const area = box.getBoundingClientRect();
        set(isRow ? (moved.clientX - area.left) / area.width : (moved.clientY - area.top) / area.height);
      };
      handle.addEventListener("pointermove", move);
      handle.addEventListener("pointerup", () => handle.removeEventListener("pointermove", move), { once: true });
    });
    handle.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -0.03, ArrowUp: -0.03, ArrowRight: 0.03, ArrowDown: 0.03 }[event.key];
      if (!by) return;
      event.preventDefault();
      event.stopPropagation();
      set(tree.share + by);
    });
    return box;
  }

  private frame(spec: PanelSpec): HTMLElement {
    let panel = this.panels.get(spec);
    if (!panel) {
      panel = make(this.context, spec);
      this.panels.set(spec, panel);
    }
    const own = panel;
    const name = entryOf(spec.kind)?.title ?? spec.kind;
    const again = (direction: "row" | "column") => () => {
      this.split(spec, direction, { ...own.spec() });
      this.draw();
      this.save();
    };
    const topics = this.topicChoice(spec);
    const bar = h(
      "header",
      { class: "bar" },
      this.kindChoice(spec),
      topics ?? h("span", { class: "title", title: own.title }, own.title),
      h("span", { class: "space" }),
      ...(own.controls ?? []),
      button("columns", `Split ${name} to the right`, again("row"), "divide"),
      button("rows", `Split ${name} downwards`, again("column"), "divide"),
      button("close", `Close ${name}`, () => this.close(spec)),
    );
    return h("section", { class: "panel", "aria-label": `${name} ${own.title}`, "data-kind": spec.kind }, bar, own.element);
  }

  /** The selection of the panel's kind. */
  private kindChoice(spec: PanelSpec): HTMLElement {
    const select = h("select", { class: "kind", "aria-label": "Kind of panel", title: "Kind of panel" }, ...allKinds(this.context.summary).map(({ kind, title }) => h("option", { value: kind }, title)));
    select.value = spec.kind;
    select.addEventListener("change", () => {
      const entry = entryOf(select.value);
      const { topics } = this.context.summary;
      const known = topics.find((topic) => topic.topic === spec.topic && entry?.takes?.(topic));
      const topic = known ?? topics.find((one) => one.messages !== 0 && entry?.takes?.(one));
      this.replace(spec, { kind: select.value, topic: entry?.takes ? topic?.topic : undefined, fields: spec.fields });
    });
    return select;
  }

  /** The topics that a panel of this kind can show. */
  private topicChoice(spec: PanelSpec): HTMLElement | undefined {
    const takes = entryOf(spec.kind)?.takes;
    if (!takes) return undefined;
    const found = this.context.summary.topics.filter((topic) => takes(topic) || topic.topic === spec.topic);
    const select = h("select", { class: "title", "aria-label": "Topic", title: spec.topic ?? "No topic" }, ...found.map(({ topic }) => h("option", { value: topic }, topic)));
    if (found.length === 0) select.append(h("option", {}, "no such topic"));
    select.value = spec.topic ?? "";
    select.addEventListener("change", () => this.replace(spec, { ...(this.panels.get(spec)?.spec() ?? spec), topic: select.value }));
    return select;
  }

  private save(): void {
    this.isOwn = true;
    const text = this.text();
    const last = this.past[this.past.length - 1];
    if (text === last) return;
    // A drag is one change.
    const isSame = performance.now() - this.savedAt < 700 && shapeOf(JSON.parse(text)) === shapeOf(JSON.parse(last ?? "null"));
    if (isSame && this.past.length > 1) this.past.pop();
    this.savedAt = performance.now();
    this.past.push(text);
    if (this.past.length > MOST_UNDONE) this.past.shift();
    this.undone = [];
    store(this.key, text);
  }

  private load(): Tree | undefined {
    try {
      const text = stored(this.key);
      const tree = text ? (JSON.parse(text) as Tree | null) : undefined;
      return tree && isTree(tree) ? tree : undefined;
    } catch {
      return undefined;
    }
  }
}

/** All panels of a layout, in reading order. */
function panelsOf(tree: Tree): PanelSpec[] {
  return "split" in tree ? [...panelsOf(tree.first), ...panelsOf(tree.second)] : [tree];
}

/** The structure of a layout, without sizes and settings. */
function shapeOf(tree: Tree | undefined): string {
  return JSON.stringify(tree ?? null, (key, value) => (key === "options" || key === "share" ? undefined : value));
}

function isTree(tree: Tree, depth = 0): boolean {
  if (!tree || typeof tree !== "object" || depth > 12) return false;
  if ("split" in tree)
    return typeof tree.share === "number" && isTree(tree.first, depth + 1) && isTree(tree.second, depth + 1);
  return entryOf(tree.kind) !== undefined;
}

function make(context: Context, spec: PanelSpec): Panel {
  const entry = entryOf(spec.kind);
  if (entry) return entry.make(context, spec);
  const element = h("div", { class: "body" }, empty("No such panel", `This page has no panel of the kind ${spec.kind}.`));
  return { element, title: "", spec: () => spec, dispose: () => undefined };
}
