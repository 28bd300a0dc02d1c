import type { Context, Panel, PanelSpec } from "../context";
import { empty, h } from "../dom";
import { rate } from "../format";
import { register } from "../registry";
import type { Edge } from "../types";

/** The tree of frames, with each pose in its parent. */
function framesPanel(context: Context, _spec: PanelSpec): Panel {
  const element = h("div", { class: "body frames-tree" });
  let drawn = 0;
  let timer = 0;
  let edges: Edge[] = [];
  const draw = () => {
    timer = 0;
    drawn = performance.now();
    if (edges.length === 0)
      return element.replaceChildren(
        empty("No frames", context.summary.frame_topics.length > 0 ? "None is known at this time." : context.summary.live ? "The robot has not published any transforms yet." : "This recording has no transforms."),
      );
    const children = new Map<string, Edge[]>();
    for (const edge of edges) children.set(edge.parent, [...(children.get(edge.parent) ?? []), edge]);
    const isChild = new Set(edges.map((edge) => edge.child));
    const roots = [...new Set(edges.map((edge) => edge.parent))].filter((frame) => !isChild.has(frame));
    const below = (frame: string, depth: number): HTMLElement[] =>
      depth > 64
        ? []
        : (children.get(frame) ?? []).flatMap((edge) => [row(edge.child, edge, depth), ...below(edge.child, depth + 1)]);
    element.replaceChildren(
      h("div", { role: "tree", "aria-label": "Frames" }, ...roots.flatMap((root) => [row(root, undefined, 0), ...below(root, 1)])),
    );
  };
  const row = (name: string, edge: Edge | undefined, depth: number) => {
    const pose = edge?.pose;
    const text = pose ? `${pose.slice(0, 3).map((one) => one.toFixed(3)).join(", ")} m · ${(yaw(pose) * 57.29578).toFixed(1)}°` : edge ? "unknown now" : "";
    return h(
      "div",
      { class: "frame-row", role: "treeitem", "aria-level": depth + 1, style: `padding-left:${depth * 18 + 8}px` },
      h("strong", {}, name),
      h("span", { class: "faint" }, edge ? (edge.static ? "static" : rate(edge.hz)) : "root"),
      h("span", { class: "pose" }, text),
    );
  };
  const stop = context.connection.frames((frames) => {
    edges = frames.edges;
    if (!timer) timer = window.setTimeout(draw, Math.max(0, 150 - (performance.now() - drawn)));
  });
  draw();
  return { element, title: "", spec: () => ({ kind: "frames" }), dispose: () => (stop(), clearTimeout(timer)) };
}

function yaw([, , , x, y, z, w]: number[]): number {
  return Math.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z));
}

register({ kind: "frames", title: "Frames", make: framesPanel });
