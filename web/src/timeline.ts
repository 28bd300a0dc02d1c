import { columns } from "./connection";
import type { Context } from "./context";
import { canvas, color, h } from "./dom";
import { ticks, time } from "./format";

/** The recording from end to end: density, what is in memory, where it stands; drag to scrub. */
export function timeline(context: Context) {
  const { connection, summary, view } = context;
  const duration = Math.max(summary.duration, 1);
  const COLUMNS = 400;
  const lanes = summary.topics.length;
  const density = new Float64Array(COLUMNS);
  let perTopic: Float64Array[] = [];
  let loaded: [number, number][] = [];
  let hover: number | undefined;

  const picture = canvas("Timeline of the recording", draw);
  const tip = h("div", { class: "tip", hidden: true });
  const element = h(
    "div",
    {
      class: "timeline",
      role: "slider",
      tabindex: 0,
      "aria-label": "Position in the recording",
      "aria-valuemin": 0,
      "aria-valuemax": (duration / 1e9).toFixed(3),
      "aria-valuenow": 0,
    },
    picture.element,
    tip,
  );

  function draw(context2d: CanvasRenderingContext2D, width: number, height: number): void {
    const bottom = height - 18;
    const most = density.reduce((a, b) => Math.max(a, b), 1);
    context2d.fillStyle = color("density");
    for (let column = 0; column < COLUMNS; column++) {
      const tall = Math.sqrt(density[column] / most) * (bottom - 10);
      context2d.fillRect((column * width) / COLUMNS, bottom - tall, width / COLUMNS + 0.5, tall);
    }
    context2d.fillStyle = color("track");
    context2d.fillRect(0, bottom, width, 4);
    context2d.fillStyle = color("loaded");
    for (const [from, to] of loaded) context2d.fillRect(from * width, bottom, Math.max((to - from) * width, 1), 4);
    if (!view.isWhole()) {
      context2d.fillStyle = color("window");
      const from = (view.start / duration) * width;
      context2d.fillRect(from, 0, Math.max(((view.end - view.start) / duration) * width, 2), bottom);
    }
    context2d.fillStyle = color("faint");
    context2d.font = "11px system-ui, sans-serif";
    context2d.textBaseline = "top";
    const marks = ticks(0, duration, width / 130);
    for (const at of marks.at) {
      const x = (at / duration) * width;
      context2d.fillRect(x, bottom + 4, 1, 3);
      const text = time(at, context.clock(), summary.start, context.clock() === "relative" ? marks.digits : 0);
      const label = context.clock() === "relative" ? text : text.slice(11);
      const wide = context2d.measureText(label).width;
      context2d.fillText(label, Math.max(0, Math.min(x + 3, width - wide)), bottom + 6);
    }
    if (hover !== undefined) {
      context2d.fillStyle = color("faint");
      context2d.fillRect((hover / duration) * width, 0, 1, bottom);
    }
    const x = (connection.position() / duration) * width;
    context2d.fillStyle = color("accent");
    context2d.fillRect(x - 1, 0, 2, bottom + 4);
    context2d.beginPath();
    context2d.arc(x, bottom + 2, 5, 0, Math.PI * 2);
    context2d.fill();
  }

  const at = (event: MouseEvent) => {
    const box = element.getBoundingClientRect();
    return Math.max(0, Math.min((event.clientX - box.left) / Math.max(box.width, 1), 1)) * duration;
  };
  let scrubbing = false;
  let resumes = false;
  element.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || summary.is_empty) return;
    scrubbing = true;
    resumes = connection.state.state === "playing";
    if (resumes) connection.send({ op: "pause" });
    element.setPointerCapture(event.pointerId);
    connection.seek(at(event));
  });
  element.addEventListener("pointermove", (event) => {
    hover = at(event);
    if (scrubbing) connection.seek(hover);
    const topics = mostOf(hover);
    tip.hidden = false;
    tip.textContent = time(hover, context.clock(), summary.start) + (topics ? ` · ${topics}` : "");
    const box = element.getBoundingClientRect();
    const left = event.clientX - box.left;
    tip.style.left = `${Math.max(0, Math.min(left + 10, box.width - tip.offsetWidth - 4))}px`;
    picture.redraw();
  });
  const release = () => {
    if (!scrubbing) return;
    scrubbing = false;
    // The seek goes out with the next frame; playing goes on behind it.
    if (resumes) requestAnimationFrame(() => requestAnimationFrame(() => connection.send({ op: "play" })));
  };
  element.addEventListener("pointerup", release);
  element.addEventListener("pointercancel", release);
  element.addEventListener("pointerleave", () => {
    hover = undefined;
    tip.hidden = true;
    picture.redraw();
  });

  /** The busiest topics around a time. */
  function mostOf(t: number): string {
    const column = Math.min(COLUMNS - 1, Math.floor((t / duration) * COLUMNS));
    const busy = perTopic
      .map((lane, index) => ({ count: lane[column], topic: summary.topics[index].topic }))
      .filter((one) => one.count > 0)
      .sort((a, b) => b.count - a.count);
    return busy
      .slice(0, 3)
      .map((one) => `${one.topic} ${one.count}`)
      .join(", ");
  }

  const rows = new Map<string, (lane: Float64Array) => void>();
  if (!summary.is_empty && lanes > 0) {
    perTopic = summary.topics.map(() => new Float64Array(COLUMNS));
    const take = (first: number, parts: Float64Array[]) => {
      parts.forEach((part, lane) => {
        perTopic[lane].set(part, first);
        part.forEach((value, index) => (density[first + index] += value));
      });
      summary.topics.forEach(({ topic }, lane) => rows.get(topic)?.(perTopic[lane]));
      picture.redraw();
    };
    columns("density", { columns: COLUMNS }, lanes, take, new AbortController().signal).catch(() => undefined);
  }
  connection.on("loaded", (ranges) => {
    loaded = ranges;
    picture.redraw();
  });
  connection.on("state", () => {
    element.setAttribute("aria-valuenow", (connection.state.t / 1e9).toFixed(3));
    element.setAttribute("aria-valuetext", time(connection.state.t, context.clock(), summary.start));
    picture.redraw();
  });
  view.on(picture.redraw);
  return {
    element,
    redraw: picture.redraw,
    /** Tells a topic's density to whoever draws it, as it comes in. */
    onDensity(topic: string, take: (lane: Float64Array) => void) {
      rows.set(topic, take);
      const lane = summary.topics.findIndex((one) => one.topic === topic);
      if (perTopic[lane]) take(perTopic[lane]);
    },
  };
}
