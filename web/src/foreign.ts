import type { PanelSpec } from "./context";
import type { Tree } from "./first";
import type { Topic } from "./types";

/** An imported layout, and the names of what is not supported. */
export interface Imported {
  tree: Tree | undefined;
  left: string[];
}

type Config = Record<string, unknown>;
type Node = string | { first?: Node; second?: Node; direction?: string; splitPercentage?: number } | null | undefined;

interface ForeignLayout {
  configById?: Record<string, Config>;
  savedProps?: Record<string, Config>;
  layout?: Node;
}

/** The most panels of an imported layout. */
const MOST = 60;

export function isForeign(layout: object): boolean {
  return "configById" in layout || "savedProps" in layout;
}

/** Converts a layout of Foxglove or Lichtblick, as far as there are such panels here. */
export function fromForeign(layout: object, topics: Topic[]): Imported {
  const { configById, savedProps, layout: root } = layout as ForeignLayout;
  const configs = configById ?? savedProps ?? {};
  const left: string[] = [];
  let count = 0;
  const walk = (node: Node, depth: number): Tree | undefined => {
    if (!node || depth > 12 || count > MOST) return undefined;
    if (typeof node === "string") {
      count++;
      return panel(node, configs[node] ?? {}, depth);
    }
    const [first, second] = [walk(node.first, depth + 1), walk(node.second, depth + 1)];
    if (!first || !second) return first ?? second;
    const share = Math.max(0.08, Math.min((node.splitPercentage ?? 50) / 100, 0.92));
    return { split: node.direction === "column" ? "column" : "row", share, first, second };
  };
  const panel = (id: string, config: Config, depth: number): Tree | undefined => {
    const kind = id.split("!")[0];
    if (kind === "Tab") return tab(config, depth);
    const make = PANELS[kind];
    if (!make) {
      left.push(`the panel ${kind}`);
      return undefined;
    }
    return make(config, topics, (what) => left.push(`${what} of ${kind}`));
  };
  const tab = (config: Config, depth: number): Tree | undefined => {
    const tabs = (config.tabs as { title?: string; layout?: Node }[] | undefined) ?? [];
    const active = Number(config.activeTabIdx ?? 0);
    tabs.forEach((one, index) => index !== active && left.push(`the tab ${one.title ?? index + 1}`));
    return walk(tabs[active]?.layout, depth + 1);
  };
  const tree = walk(root, 0);
  if (count > MOST) left.push(`panels after the first ${MOST}`);
  return { tree, left };
}

type Make = (config: Config, topics: Topic[], leave: (what: string) => void) => PanelSpec | undefined;

const text = (value: unknown) => (typeof value === "string" ? value : "");
/** A panel that shows one topic, which the first of these settings names. */
const of = (kind: string, ...keys: string[]): Make => (config, topics) => {
  const path = keys.map((key) => text(config[key])).find(Boolean) ?? "";
  return { kind, topic: path ? split(path, topics).topic : undefined };
};

const PANELS: Record<string, Make> = {
  "3D": scene,
  "3D Panel": scene,
  ThreeDeeRender: scene,
  Image: (config, topics) => {
    const mode = (config.imageMode ?? {}) as Config;
    return { kind: "image", topic: text(mode.imageTopic) || text(config.cameraTopic) || topics.find(({ role }) => role === "image")?.topic };
  },
  ImageViewPanel: of("image", "cameraTopic"),
  Plot: plot,
  RawMessages: of("raw", "topicPath"),
  StateTransitions: (config, topics) => ({ kind: "state", fields: pathsOf(config).map((one) => split(text(one.value), topics)) }),
  RosOut: (config, topics) => ({ kind: "log", topic: text(config.topicToRender) || topics.find(({ role }) => role === "log")?.topic }),
  map: (_config, topics) => ({ kind: "map", topic: topics.find(({ role }) => role === "gps")?.topic }),
  Table: of("table", "topicPath"),
  Parameters: () => ({ kind: "parameters" }),
  DiagnosticSummary: of("diagnostics", "topicToRender"),
  DiagnosticStatusPanel: of("diagnostics", "topicToRender"),
  FrameTransforms: () => ({ kind: "frames" }),
  TransformTree: () => ({ kind: "frames" }),
};

function scene(config: Config): PanelSpec {
  const shown = Object.entries((config.topics ?? {}) as Record<string, Config>);
  const hidden = shown.filter(([, one]) => one.visible === false).map(([topic]) => topic);
  const layers = Object.fromEntries(
    shown.flatMap(([topic, one]) => {
      const size = typeof one.pointSize === "number" ? one.pointSize : undefined;
      const decay = typeof one.decayTime === "number" && one.decayTime > 0 ? one.decayTime : undefined;
      return size === undefined && decay === undefined ? [] : [[topic, { size, decay }]];
    }),
  );
  const fixed = text(config.fixedFrame);
  return { kind: "scene", options: { fixed, follow: text(config.followTf) || "auto", hidden, layers: JSON.stringify(layers) } };
}

function plot(config: Config, topics: Topic[], leave: (what: string) => void): PanelSpec | undefined {
  const x = text((config.xAxisPath as Config | undefined)?.value);
  const isXy = /custom/i.test(text(config.xAxisVal)) && x !== "";
  const fields = pathsOf(config).flatMap((one) => {
    const [path, ...modifiers] = text(one.value).split(".@");
    const others = modifiers.filter((name) => name !== "derivative");
    if (others.length > 0) leave(`@${others.join(", @")} in ${text(one.value)}`);
    if (!path) return [];
    const derivative = modifiers.includes("derivative") || undefined;
    return [{ ...split(path, topics), ...(derivative && { derivative }), ...(text(one.color) && { color: text(one.color) }) }];
  });
  return isXy ? { kind: "xy", fields: [split(x, topics), ...fields] } : { kind: "plot", fields };
}

function pathsOf(config: Config): Config[] {
  const paths = Array.isArray(config.paths) ? (config.paths as Config[]) : [];
  return paths.filter((one) => one && one.enabled !== false && text(one.value) !== "");
}

/** Splits `/odom.twist.linear.x` into topic and field. The topic's name may contain dots. */
function split(path: string, topics: Topic[]): { topic: string; path: string } {
  const plain = path.replace(/\{[^}]*\}/g, "");
  const known = topics
    .map(({ topic }) => topic)
    .filter((topic) => plain === topic || plain.startsWith(`${topic}.`) || plain.startsWith(`${topic}[`))
    .sort((a, b) => b.length - a.length)[0];
  const end = known ? known.length : plain.search(/[.[]/);
  const topic = end < 0 ? plain : plain.slice(0, end);
  return { topic, path: end < 0 ? "" : plain.slice(end).replace(/^\./, "").replace(/\[:\]/g, "[0]") };
}
