import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { Tail, columns } from "../connection";
import type { Context, Panel, PanelSpec } from "../context";
import { navigate } from "../context";
import { SERIES, button, color, empty, h } from "../dom";
import { number, ticks, time } from "../format";

/** What is known of one field: least and greatest per column, over a stretch of time. */
interface Line {
  topic: string;
  path: string;
  least: Float64Array;
  most: Float64Array;
  error?: string;
}

/** Fields over time: all of the recording at first sight, finer when one looks closer. */
export function plotPanel(context: Context, spec: PanelSpec): Panel {
  const { connection, view, summary } = context;
  let fields = [...(spec.fields ?? [])];
  const area = h("div", { class: "plot-area" });
  const legend = h("div", { class: "legend" });
  const note = h("div", { class: "overlay" });
  const element = h("div", { class: "body plot" }, legend, area, note);
  let lines: Line[] = [];
  /** What `lines` cover. */
  let span = { start: 0, end: summary.duration, count: 0 };
  let plot: uPlot | undefined;
  let abort = new AbortController();
  let timer = 0;

  const data = (): uPlot.AlignedData => {
    const { start, end, count } = span;
    const width = (end - start + 1) / Math.max(count, 1);
    const x = new Float64Array(count * 2);
    for (let column = 0; column < count; column++) x[2 * column] = x[2 * column + 1] = (start + (column + 0.5) * width) / 1e9;
    const y = lines.map((line) => {
      const values: (number | null)[] = new Array(count * 2);
      let last = 0;
      for (let column = 0; column < count; column++) {
        const [low, high] = [line.least[column], line.most[column]];
        const isThere = !Number.isNaN(low);
        // The nearer end first, so that a line does not go to and fro where it rises.
        const up = Math.abs(low - last) <= Math.abs(high - last);
        values[2 * column] = isThere ? (up ? low : high) : null;
        values[2 * column + 1] = isThere ? (up ? high : low) : null;
        if (isThere) last = up ? high : low;
      }
      return values;
    });
    return [x, ...y] as unknown as uPlot.AlignedData;
  };

  /** The position, as a line over the plot: moving it draws nothing anew. */
  const head = h("div", { class: "playhead" });
  const placeHead = () => {
    if (!plot) return;
    const wide = plot.over.clientWidth;
    let x = ((connection.position() - view.start) / (view.end - view.start)) * wide;
    if (connection.state.following) x = Math.min(x, wide - 1.5);
    head.style.transform = `translateX(${x}px)`;
    head.hidden = x < 0 || x > wide;
  };

  const build = () => {
    plot?.destroy();
    plot = undefined;
    legend.replaceChildren(...fields.map(legendEntry));
    note.replaceChildren(fields.length === 0 ? empty("Nothing to plot", "Open a topic on the left and click a number.") : "");
    if (fields.length === 0) return;
    const axis = { stroke: color("faint"), grid: { stroke: color("line"), width: 1 }, ticks: { stroke: color("line") }, font: "11px system-ui, sans-serif" };
    plot = new uPlot(
      {
        width: Math.max(area.clientWidth, 60),
        height: Math.max(area.clientHeight, 60),
        legend: { show: false },
        cursor: { drag: { x: false, y: false, setScale: false }, points: { show: false }, y: false },
        scales: { x: { time: false, range: () => [view.start / 1e9, view.end / 1e9] } },
        axes: [
          {
            ...axis,
            size: 28,
            splits: (self) => ticks(view.start, view.end, self.width / 110).at.map((at) => at / 1e9),
            values: (_self, splits) => {
              const { digits } = ticks(view.start, view.end, (plot?.width ?? 500) / 110);
              return splits.map((at) => {
                const text = time(at * 1e9, context.clock(), summary.start, digits);
                return context.clock() === "relative" ? text : text.slice(11);
              });
            },
          },
          { ...axis, size: 56, values: (_self, splits) => splits.map(number) },
        ],
        series: [{}, ...fields.map((field, index) => ({ label: field.path, stroke: SERIES[index % SERIES.length], width: 1.5, spanGaps: true, points: { show: false } }))],
        hooks: {
          draw: [placeHead],
          setCursor: [(self) => showValues(self.cursor.left !== undefined && self.cursor.left >= 0 ? self.posToVal(self.cursor.left, "x") * 1e9 : undefined)],
        },
      },
      data(),
      area,
    );
    plot.over.append(head);
    placeHead();
    navigate(plot.over, context, () => ({ left: 0, width: plot?.over.clientWidth ?? 1 }));
  };

  const legendEntry = (field: { topic: string; path: string }, index: number) =>
    h(
      "span",
      { class: "legend-entry", title: `${field.topic}.${field.path}` },
      h("i", { style: `background:${SERIES[index % SERIES.length]}` }),
      h("span", {}, fields.every((one) => one.topic === fields[0].topic) ? field.path : `${field.topic}.${field.path}`),
      h("b", { class: "now" }),
      button("close", `Remove ${field.path}`, () => {
        fields = fields.filter((one) => one !== field);
        lines = [];
        build();
        fetchAll();
        context.save();
      }),
    );

  /** The values under the pointer, or else at the position. */
  const showValues = (t = connection.position()) => {
    const column = Math.floor(((t - span.start) / (span.end - span.start + 1)) * span.count);
    legend.querySelectorAll(".now").forEach((element, index) => {
      const line = lines[index];
      if (line?.error) return void (element.textContent = line.error);
      for (let at = Math.min(column, span.count - 1); at >= Math.max(0, column - 400) && line; at--)
        if (!Number.isNaN(line.most[at])) return void (element.textContent = number((line.most[at] + line.least[at]) / 2));
      element.textContent = "";
    });
  };

  /** Of a running robot, the newest columns of each line are read again and again. */
  let tails: Tail[] = [];
  const followAll = async () => {
    if (fields.length === 0 || summary.is_empty) return;
    if (tails.length === 0) tails = fields.map((field) => new Tail("series", { ...field }, 2));
    const own = tails;
    const count = Math.max(200, Math.min(1200, Math.round(area.clientWidth) || 800));
    const width = Math.max(Math.ceil((view.end - view.start) / count), 1);
    const [first, last] = [Math.floor(view.start / width), Math.floor(view.end / width)];
    const came = await Promise.all(own.map((tail) => tail.refresh(view.start, view.end, width, abort.signal)));
    if (own !== tails || !came.some(Boolean)) return;
    lines = fields.map((field, index) => {
      const of = (lane: number) => Float64Array.from({ length: last - first + 1 }, (_, column) => own[index].at(first + column)?.[lane] ?? NaN);
      return { ...field, least: of(0), most: of(1), error: own[index].error };
    });
    span = { start: first * width, end: (last + 1) * width - 1, count: last - first + 1 };
    redraw();
  };

  /** Reads all lines for the view; what is there stays until the first part of the new comes. */
  const fetchAll = () => {
    abort.abort();
    abort = new AbortController();
    const { signal } = abort;
    if (summary.live) {
      tails = [];
      return void followAll();
    }
    if (fields.length === 0 || summary.is_empty) return;
    const count = Math.max(200, Math.min(1200, Math.round(area.clientWidth) || 800));
    const margin = view.isWhole() ? 0 : (view.end - view.start) * 0.25;
    const next = { start: Math.max(0, Math.round(view.start - margin)), end: Math.min(summary.duration, Math.round(view.end + margin)), count };
    const fresh = fields.map((field) => ({ ...field, least: new Float64Array(count).fill(NaN), most: new Float64Array(count).fill(NaN) }) as Line);
    fresh.forEach((line) => {
      const take = (first: number, [least, most]: Float64Array[]) => {
        if (signal.aborted) return;
        line.least.set(least, first);
        line.most.set(most, first);
        if (lines !== fresh) {
          lines = fresh;
          span = next;
        }
        redraw();
      };
      columns("series", { topic: line.topic, path: line.path, start: next.start, end: next.end, columns: count }, 2, take, signal).then(
        (error) => {
          line.error = error;
          if (error) showValues();
        },
        () => undefined,
      );
    });
  };

  let queued = false;
  const redraw = () => {
    if (queued) return;
    queued = true;
    requestAnimationFrame(() => {
      queued = false;
      plot?.setData(data());
      showValues();
    });
  };

  const stops = [
    connection.on("state", () => {
      placeHead();
      showValues();
    }),
    view.on(() => {
      plot?.setData(data());
      if (summary.live) return;
      clearTimeout(timer);
      timer = window.setTimeout(fetchAll, 120);
    }),
  ];
  const sized = new ResizeObserver(() => {
    if (!plot) build();
    else plot.setSize({ width: Math.max(area.clientWidth, 60), height: Math.max(area.clientHeight, 60) });
  });
  sized.observe(area);
  const themed = () => build();
  addEventListener("asof-theme", themed);
  fetchAll();
  const ticking = summary.live ? window.setInterval(() => document.hidden || void followAll(), 250) : 0;
  return {
    element,
    title: [...new Set(fields.map((field) => field.topic))].join(", "),
    spec: () => ({ kind: "plot", fields }),
    dispose: () => {
      stops.forEach((stop) => stop());
      sized.disconnect();
      removeEventListener("asof-theme", themed);
      abort.abort();
      clearTimeout(timer);
      clearInterval(ticking);
      plot?.destroy();
    },
  };
}
