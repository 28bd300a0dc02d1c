import type { PanelSpec } from "./context";
import type { Summary, Topic } from "./types";

export type Tree = PanelSpec | Split;
export interface Split {
  split: "row" | "column";
  /** The share of the first part. */
  share: number;
  first: Tree;
  second: Tree;
}

/** The type of a field that is dragged onto a plot. */
export const FIELD_MIME = "application/x-asof-field";

/** Roles that the 3D view shows. */
const SPACE = ["points", "grid", "pose", "path", "marker", "frames", "polygon", "range", "point", "robot"];

/** The panel that a click on a topic adds. */
export function panelFor(topic: Topic): PanelSpec {
  switch (topic.role) {
    case "image":
    case "audio":
    case "log":
      return { kind: topic.role, topic: topic.topic };
    case "gps":
      return { kind: "map", topic: topic.topic };
    case "frames":
      return { kind: "frames" };
    case "points":
    case "grid":
    case "path":
    case "marker":
    case "polygon":
    case "range":
      return { kind: "scene" };
    case "diagnostics":
      return { kind: "diagnostics", topic: topic.topic };
    default:
      return { kind: "raw", topic: topic.topic };
  }
}

/** The prefix of the frames of a topic's recording, where there are several recordings: `before/`. */
export function framePrefix(summary: Summary, topic: string): string {
  const own = summary.prefixes?.find((prefix) => topic.startsWith(`${prefix}/`));
  return own ? `${own.slice(1)}/` : "";
}

/** The initial layout, chosen by the topics of the recording. */
export function first(summary: Summary): Tree | undefined {
  if ((summary.prefixes?.length ?? 0) > 1) return beside(summary, summary.prefixes as string[]);
  const has = (...roles: string[]) => summary.topics.filter((topic) => roles.includes(topic.role ?? "") && topic.messages !== 0);
  const space = has(...SPACE);
  const panels: PanelSpec[] = has("image").slice(0, 2).map((topic) => ({ kind: "image", topic: topic.topic }));
  const plots = plotsOf(summary);
  panels.push(...plots.slice(0, 1));
  const [gps, log, audio] = [has("gps")[0], has("log")[0], has("audio")[0]];
  if (gps) panels.push({ kind: "map", topic: gps.topic });
  if (audio) panels.push({ kind: "audio", topic: audio.topic });
  if (log) panels.push({ kind: "log", topic: log.topic });
  const states = has("state");
  if (states.length > 0 && panels.length < 4) panels.push({ kind: "state", fields: states.slice(0, 6).map(({ topic }) => ({ topic, path: "data" })) });
  // Panels of the first topics, where nothing else can be shown.
  const shown = new Set(panels.flatMap((panel) => [panel.topic, ...(panel.fields ?? []).map((field) => field.topic)]));
  const others = summary.topics.filter((topic) => topic.messages !== 0 && !shown.has(topic.topic));
  const enough = space.length > 0 ? 0 : 2;
  panels.push(...plots.slice(1, 1 + Math.max(0, enough - panels.length)));
  panels.push(...others.slice(0, Math.max(0, enough - panels.length)).map(panelFor));
  if (panels.length === 0 && space.length === 0) return undefined;
  return arranged(panels, space.length > 0);
}

/** For several recordings: one 3D view and one plot for all, other panels side by side. */
function beside(summary: Summary, prefixes: string[]): Tree | undefined {
  const parts = prefixes.map((prefix) => ({ ...summary, prefixes: [], topics: summary.topics.filter(({ topic }) => topic.startsWith(`${prefix}/`)) }));
  const fields = parts.flatMap((part) => (plotsOf(part)[0]?.fields ?? []).slice(0, 2));
  const hasSpace = summary.topics.some(({ role, messages }) => SPACE.includes(role ?? "") && messages !== 0);
  const together: PanelSpec[] = [...(hasSpace ? [{ kind: "scene" }] : []), ...(fields.length > 0 ? [{ kind: "plot", fields }] : [])];
  const each = parts.flatMap((part) => {
    const one = ["image", "map", "log"].map((kind) => part.topics.map(panelFor).find((panel) => panel.kind === kind)).find(Boolean);
    return one ? [one] : [];
  });
  const rows = [inRow(together), inRow(each)].filter((row) => row !== undefined);
  return rows.length === 2 ? { split: "column", share: 0.55, first: rows[0], second: rows[1] } : rows[0];
}

function inRow(panels: PanelSpec[]): Tree | undefined {
  if (panels.length <= 1) return panels[0];
  return { split: "row", share: 1 / panels.length, first: panels[0], second: inRow(panels.slice(1)) as Tree };
}

function arranged(panels: PanelSpec[], hasSpace: boolean): Tree | undefined {
  const stack = (all: PanelSpec[]): Tree | undefined =>
    all.length <= 1 ? all[0] : { split: "column", share: 1 / all.length, first: all[0], second: stack(all.slice(1)) as Tree };
  if (!hasSpace) {
    if (panels.length <= 2) return stack(panels);
    const half = Math.ceil(panels.length / 2);
    return { split: "row", share: 0.5, first: stack(panels.slice(0, half)) as Tree, second: stack(panels.slice(half)) as Tree };
  }
  const right = stack(panels.slice(0, 4));
  const scene: PanelSpec = { kind: "scene" };
  return right ? { split: "row", share: 0.58, first: scene, second: right } : scene;
}

/** Plots of fields that vary, once the server has found them; until then plots by type, odometry before commands. */
function plotsOf(summary: Summary): PanelSpec[] {
  const known = new Set(summary.topics.map(({ topic }) => topic));
  const plot = (topic: string, paths: string[]): PanelSpec => ({ kind: "plot", fields: paths.map((path) => ({ topic, path })) });
  if (summary.plots) return summary.plots.filter(({ topic }) => known.has(topic)).map(({ topic, fields }) => plot(topic, fields));
  const filled = summary.topics.filter((topic) => (topic.messages === null || topic.messages > 1) && topic.plot && topic.plot.length > 0);
  const rank = (topic: Topic) => (/linear|velocity/.test(topic.plot?.[0] ?? "") && topic.role === "pose" ? 0 : topic.role === "pose" ? 1 : topic.role === "velocity" ? 3 : 2);
  return filled.sort((a, b) => rank(a) - rank(b)).slice(0, 1).map((topic) => plot(topic.topic, topic.plot ?? []));
}
