import type { Context, Panel, PanelKind, PanelSpec } from "./context";
import { button, empty, h } from "./dom";
import { imagePanel } from "./panels/image";
import { logPanel } from "./panels/log";
import { mapPanel } from "./panels/map";
import { plotPanel } from "./panels/plot";
import { rawPanel } from "./panels/raw";
import { framesPanel } from "./panels/frames";
import { statePanel } from "./panels/state";
import type { Summary, Topic } from "./types";

type Tree = PanelSpec | Split;
interface Split {
  split: "row" | "column";
  /** The share of the first. */
  share: number;
  first: Tree;
  second: Tree;
}

export const KINDS: Record<PanelKind, string> = {
  plot: "Plot",
  image: "Image",
  scene: "3D",
  raw: "Message",
  frames: "Frames",
  log: "Log",
  map: "Map",
  state: "States",
};

/** The grid of panels: splits of splits, each as large as a person wants it. */
export class Layout {
  readonly element = h("main", { class: "grid", "aria-label": "Panels" });
  private tree: Tree | undefined;
  private panels = new Map<PanelSpec, Panel>();
  /** Whether a person has made it what it is: then nothing else changes it. */
  private isOwn = false;

  constructor(
    private context: Context,
    private key: string,
  ) {
    context.add = (spec) => this.add(spec);
    context.save = () => this.save();
    const kept = this.load();
    this.isOwn = kept !== undefined;
    this.tree = kept ?? first(context.summary);
    this.draw();
    context.connection.on("topics", () => this.suggest());
  }

  reset(): void {
    this.tree = first(this.context.summary);
    this.draw();
    this.save();
    this.isOwn = false;
  }

  /** A running robot shows more and more of itself: so does a layout that nobody has changed. */
  private suggest(): void {
    if (this.isOwn) return;
    const next = first(this.context.summary);
    if (shapeOf(next) === shapeOf(this.tree)) return;
    this.tree = next;
    this.draw();
  }

  /** Adds to a panel of the same kind where that makes sense, else beside the largest. */
  add(spec: PanelSpec): void {
    const same = [...this.panels].find(([, panel]) => {
      const kind = panel.spec().kind;
      return kind === spec.kind && (spec.fields || kind === "scene" || kind === "frames");
    });
    if (same) {
      const known = same[1].spec();
      const fields = [...(known.fields ?? [])];
      for (const field of spec.fields ?? [])
        if (!fields.some((one) => one.topic === field.topic && one.path === field.path)) fields.push(field);
      if (spec.fields) this.replace(same[0], { ...known, fields });
      same[1].element.closest(".panel")?.animate([{ opacity: 0.4 }, { opacity: 1 }], 300);
      return this.save();
    }
    if (!this.tree) this.tree = spec;
    else {
      let largest: PanelSpec | undefined;
      let area = -1;
      for (const [known, panel] of this.panels) {
        const box = panel.element.getBoundingClientRect();
        if (box.width * box.height > area) {
          area = box.width * box.height;
          largest = known;
        }
      }
      if (largest) this.split(largest, undefined, spec);
    }
    this.draw();
    this.save();
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
      if (!("split" in tree)) {
        used.add(tree);
        return this.frame(tree);
      }
      const before = build(tree.first);
      const after = build(tree.second);
      const handle = h("div", {
        class: "handle",
        role: "separator",
        tabindex: 0,
        "aria-label": "Size of the panels",
        "aria-orientation": tree.split === "row" ? "vertical" : "horizontal",
      });
      const box = h("div", { class: `split ${tree.split}` }, before, handle, after);
      const size = () => {
        before.style.flex = `${tree.share} 1 0`;
        after.style.flex = `${1 - tree.share} 1 0`;
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
          set(tree.split === "row" ? (moved.clientX - area.left) / area.width : (moved.clientY - area.top) / area.height);
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
    };
    const content = this.tree
      ? build(this.tree)
      : this.context.summary.live && this.context.summary.topics.length === 0
        ? empty("Waiting for the robot", "Its topics appear on the left, and panels here, as soon as it says something.")
        : empty("No panels", "Click a topic on the left to add one, or reset the layout.");
    for (const [spec, panel] of this.panels)
      if (!used.has(spec)) {
        panel.dispose();
        this.panels.delete(spec);
      }
    this.element.replaceChildren(content);
  }

  private frame(spec: PanelSpec): HTMLElement {
    let panel = this.panels.get(spec);
    if (!panel) {
      panel = make(this.context, spec);
      this.panels.set(spec, panel);
    }
    const name = KINDS[spec.kind];
    const again = (direction: "row" | "column") => () => {
      this.split(spec, direction, { ...panel.spec() });
      this.draw();
      this.save();
    };
    const bar = h(
      "header",
      { class: "bar" },
      h("span", { class: "kind" }, name),
      h("span", { class: "title", title: panel.title }, panel.title),
      ...(panel.controls ?? []),
      button("columns", `Split ${name} to the right`, again("row")),
      button("rows", `Split ${name} downwards`, again("column")),
      button("close", `Close ${name}`, () => this.close(spec)),
    );
    return h("section", { class: "panel", "aria-label": `${name} ${panel.title}`, "data-kind": spec.kind }, bar, panel.element);
  }

  private save(): void {
    this.isOwn = true;
    const kept = (tree: Tree): Tree =>
      "split" in tree
        ? { ...tree, first: kept(tree.first), second: kept(tree.second) }
        : (this.panels.get(tree)?.spec() ?? tree);
    try {
      localStorage.setItem(this.key, JSON.stringify(this.tree ? kept(this.tree) : null));
    } catch {
      // A browser that keeps nothing shows the first layout next time.
    }
  }

  private load(): Tree | undefined {
    try {
      const text = localStorage.getItem(this.key);
      const tree = text ? (JSON.parse(text) as Tree | null) : undefined;
      return tree && isTree(tree) ? tree : undefined;
    } catch {
      return undefined;
    }
  }
}

/** What a layout shows and where, without sizes and settings. */
function shapeOf(tree: Tree | undefined): string {
  return JSON.stringify(tree ?? null, (key, value) => (key === "options" || key === "share" ? undefined : value));
}

function isTree(tree: Tree, depth = 0): boolean {
  if (!tree || typeof tree !== "object" || depth > 12) return false;
  if ("split" in tree)
    return typeof tree.share === "number" && isTree(tree.first, depth + 1) && isTree(tree.second, depth + 1);
  return tree.kind in KINDS;
}

function make(context: Context, spec: PanelSpec): Panel {
  switch (spec.kind) {
    case "plot":
      return plotPanel(context, spec);
    case "image":
      return imagePanel(context, spec);
    case "raw":
      return rawPanel(context, spec);
    case "frames":
      return framesPanel(context, spec);
    case "log":
      return logPanel(context, spec);
    case "map":
      return mapPanel(context, spec);
    case "state":
      return statePanel(context, spec);
    case "scene":
      return scenePanel(context, spec);
  }
}

/** three.js is most of the page: it is loaded when there is something to see in space. */
function scenePanel(context: Context, spec: PanelSpec): Panel {
  const element = h("div", { class: "body scene" }, h("div", { class: "empty" }, "Loading 3D …"));
  const extra = h("span", { class: "extra" });
  let inner: Panel | undefined;
  let gone = false;
  import("./panels/scene").then(
    ({ sceneContents }) => {
      if (gone) return;
      inner = sceneContents(context, spec, element);
      extra.replaceChildren(...(inner.controls ?? []));
    },
    () => element.replaceChildren(empty("No 3D", "The 3D view could not be loaded; reload the page.")),
  );
  return {
    element,
    title: "",
    controls: [extra],
    spec: () => inner?.spec() ?? spec,
    dispose: () => {
      gone = true;
      inner?.dispose();
    },
  };
}

/** A first layout, by what the recording holds. */
function first(summary: Summary): Tree | undefined {
  const has = (...roles: string[]) =>
    summary.topics.filter((topic) => roles.includes(topic.role ?? "") && topic.messages !== 0);
  const space = has("points", "grid", "pose", "path", "marker", "frames");
  const images = has("image");
  const panels: PanelSpec[] = [];
  for (const topic of images.slice(0, 2)) panels.push({ kind: "image", topic: topic.topic });
  const plot = firstPlot(summary);
  if (plot) panels.push(plot);
  const gps = has("gps")[0];
  if (gps) panels.push({ kind: "map", topic: gps.topic });
  const states = has("state");
  const log = has("log")[0];
  if (log) panels.push({ kind: "log", topic: log.topic });
  if (states.length > 0 && panels.length < 4)
    panels.push({ kind: "state", fields: states.slice(0, 6).map(({ topic }) => ({ topic, path: "data" })) });
  const other = summary.topics.find((topic) => topic.messages !== 0);
  if (panels.length === 0 && space.length === 0 && other) panels.push({ kind: "raw", topic: other.topic });
  if (panels.length === 1 && space.length === 0 && other) panels.push({ kind: "raw", topic: other.topic });
  const stack = (all: PanelSpec[]): Tree | undefined =>
    all.length <= 1
      ? all[0]
      : { split: "column", share: 1 / all.length, first: all[0], second: stack(all.slice(1)) as Tree };
  if (space.length === 0) {
    if (panels.length <= 2) return stack(panels);
    const half = Math.ceil(panels.length / 2);
    return { split: "row", share: 0.5, first: stack(panels.slice(0, half)) as Tree, second: stack(panels.slice(half)) as Tree };
  }
  const right = stack(panels.slice(0, 4));
  const scene: PanelSpec = { kind: "scene" };
  return right ? { split: "row", share: 0.58, first: scene, second: right } : scene;
}

/** Velocity, if the robot says how fast it wants to go or goes; else the first numbers that are known to be some. */
function firstPlot(summary: Summary): PanelSpec | undefined {
  const filled = summary.topics.filter((topic) => topic.messages !== 0);
  const find = (test: (topic: Topic) => boolean) => filled.find(test)?.topic;
  const twist = find((topic) => /(Twist|VelocityCommand)$/.test(topic.type));
  if (twist) return plot(twist, ["linear.x", "angular.z"]);
  const stamped = find((topic) => /TwistStamped$/.test(topic.type));
  if (stamped) return plot(stamped, ["twist.linear.x", "twist.angular.z"]);
  const foxglove = find((topic) => topic.type === "foxglove.Odometry");
  if (foxglove) return plot(foxglove, ["linear_velocity.x", "angular_velocity.z"]);
  const odometry = find((topic) => /Odometry$/.test(topic.type));
  if (odometry) return plot(odometry, ["twist.twist.linear.x", "twist.twist.angular.z"]);
  const imu = find((topic) => /\/Imu$/.test(topic.type));
  if (imu) return plot(imu, ["linear_acceleration.x", "linear_acceleration.y", "linear_acceleration.z"]);
  const pose = find((topic) => /PoseStamped$/.test(topic.type));
  if (pose) return plot(pose, ["pose.position.x", "pose.position.y", "pose.position.z"]);
  return undefined;

  function plot(topic: string, paths: string[]): PanelSpec {
    return { kind: "plot", fields: paths.map((path) => ({ topic, path })) };
  }
}
