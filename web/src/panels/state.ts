import { ask } from "../connection";
import type { Context, Panel, PanelSpec } from "../context";
import { navigate } from "../context";
import { SERIES, canvas, color, empty, h } from "../dom";
import { register } from "../registry";
import type { Json } from "../types";

interface Row {
  topic: string;
  path: string;
  changes: [number, Json][];
  error?: string;
}

/** Booleans and enums over time. */
function statePanel(context: Context, spec: PanelSpec): Panel {
  const { connection, view, summary } = context;
  let ticking = 0;
  const rows: Row[] = (spec.fields ?? []).map((field) => ({ ...field, changes: [] }));
  const ROW = 34;
  const colors = new Map<string, string>([
    ["false", ""],
    ["true", SERIES[2]],
  ]);
  const picture = canvas("States over time", draw);
  const note = h("div", { class: "overlay" });
  const element = h("div", { class: "body states" }, picture.element, note);
  picture.element.style.height = `${rows.length * ROW + 8}px`;
  if (rows.length === 0) note.append(empty("No states", "Open a topic on the left and click a boolean or an enum."));

  function draw(context2d: CanvasRenderingContext2D, width: number): void {
    context2d.font = "11px system-ui, sans-serif";
    context2d.textBaseline = "middle";
    const x = (t: number) => ((t - view.start) / (view.end - view.start)) * width;
    rows.forEach((row, index) => {
      const top = index * ROW + 4;
      context2d.fillStyle = color("faint");
      context2d.fillText(row.error ? `${row.topic}.${row.path}: ${row.error}` : `${row.topic}.${row.path}`, 6, top + 6);
      row.changes.forEach(([t, value], at) => {
        const from = Math.max(x(t), 0);
        const to = Math.min(x(row.changes[at + 1]?.[0] ?? view.to), width);
        if (to <= 0 || from >= width) return;
        const text = String(value);
        if (!colors.has(text)) colors.set(text, SERIES[colors.size % SERIES.length]);
        context2d.fillStyle = colors.get(text) || color("track");
        context2d.fillRect(from, top + 13, Math.max(to - from - 1, 1), 16);
        if (to - from > context2d.measureText(text).width + 8) {
          context2d.fillStyle = colors.get(text) ? "#fff" : color("text");
          context2d.fillText(text, from + 5, top + 21.5);
        }
      });
    });
    context2d.fillStyle = color("accent");
    context2d.fillRect(x(connection.position()) - 0.5, 0, 1.5, rows.length * ROW + 8);
  }

  const read = () => rows.forEach((row) =>
    ask<{ changes: [number, Json][] }>("states", { topic: row.topic, path: row.path }).then(
      (answer) => {
        row.changes = answer.changes;
        row.error = undefined;
        picture.redraw();
      },
      (error: Error) => {
        row.error = error.message;
        picture.redraw();
      },
    ));
  read();
  if (summary.live) ticking = window.setInterval(() => document.hidden || read(), 1000);
  navigate(picture.element, context, () => ({ left: 0, width: picture.element.clientWidth }));
  const stops = [connection.on("state", picture.redraw), view.on(picture.redraw)];
  return {
    element,
    title: [...new Set(rows.map((row) => row.topic))].join(", "),
    spec: () => ({ kind: "state", fields: rows.map(({ topic, path }) => ({ topic, path })) }),
    dispose: () => (stops.forEach((stop) => stop()), clearInterval(ticking)),
  };
}

register({ kind: "state", title: "States", make: statePanel });
