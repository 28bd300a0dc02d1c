import { Tail, columns } from "./connection";
import type { Context } from "./context";
import { canvas, color, h } from "./dom";
import { ticks, time } from "./format";

const COLUMNS = 400;

/** The recording from end to end, or a robot's last minutes: density, what is in memory, where it stands; drag to scrub. */
export function timeline(context: Context) {
  const { connection, summary, view } = context;
  const density = new Float64Array(COLUMNS);
  /** The topics of the lanes. */
  let topics = summary.topics.map((one) => one.topic);
  let perTopic: Float64Array[] = [];
  /** When the first column starts, and how long each is. */
  let origin = 0;
  let wide = Math.max(summary.duration, 1) / COLUMNS;
  let loaded: [number, number][] = [];
  /** Where the pointer is, as a part of the width: the time below it moves on with a robot. */
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
      "aria-valuemax": (summary.duration / 1e9).toFixed(3),
      "aria-valuenow": 0,
    },
    picture.element,
    tip,
  );

  const span = () => Math.max(view.to - view.from, 1);

  function draw(context2d: CanvasRenderingContext2D, width: number, height: number): void {
    const bottom = height - 18;
    const x = (t: number) => ((t - view.from) / span()) * width;
    const most = density.reduce((a, b) => Math.max(a, b), 1);
    context2d.fillStyle = color("density");
    for (let column = 0; column < COLUMNS; column++) {
      const tall = Math.sqrt(density[column] / most) * (bottom - 10);
      if (tall > 0) context2d.fillRect(x(origin + column * wide), bottom - tall, (wide / span()) * width + 0.5, tall);
    }
    context2d.fillStyle = color("track");
    context2d.fillRect(0, bottom, width, 4);
    context2d.fillStyle = color("loaded");
    const held = summary.window ? [[x(summary.window.from) / width, 1]] : loaded;
    for (const [from, to] of held) context2d.fillRect(from * width, bottom, Math.max((to - from) * width, 1), 4);
    if (!view.isWhole()) {
      context2d.fillStyle = color("window");
      context2d.fillRect(x(view.start), 0, Math.max(x(view.end) - x(view.start), 2), bottom);
    }
    context2d.fillStyle = color("faint");
    context2d.font = "11px system-ui, sans-serif";
    context2d.textBaseline = "top";
    const marks = ticks(view.from, view.to, width / 130);
    for (const at of marks.at) {
      context2d.fillRect(x(at), bottom + 4, 1, 3);
      const text = time(at, context.clock(), summary.start, context.clock() === "relative" ? marks.digits : 0);
      const label = context.clock() === "relative" ? text : text.slice(11);
      const long = context2d.measureText(label).width;
      context2d.fillText(label, Math.max(0, Math.min(x(at) + 3, width - long)), bottom + 6);
    }
    if (hover !== undefined) {
      context2d.fillStyle = color("faint");
      context2d.fillRect(hover * width, 0, 1, bottom);
    }
    const head = Math.max(0, Math.min(x(connection.position()), width));
    context2d.fillStyle = color(connection.state.following ? "mark" : "accent");
    context2d.fillRect(head - 1, 0, 2, bottom + 4);
    context2d.beginPath();
    context2d.arc(head, bottom + 2, 5, 0, Math.PI * 2);
    context2d.fill();
  }

  const part = (event: MouseEvent) => {
    const box = element.getBoundingClientRect();
    return Math.max(0, Math.min((event.clientX - box.left) / Math.max(box.width, 1), 1));
  };
  const at = (event: MouseEvent) => view.from + part(event) * span();
  const tellTip = () => {
    if (hover === undefined) return;
    const t = view.from + hover * span();
    const topics = mostOf(t);
    tip.textContent = time(t, context.clock(), summary.start) + (topics ? ` · ${topics}` : "");
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
    hover = part(event);
    if (scrubbing) connection.seek(at(event));
    tip.hidden = false;
    tellTip();
    const box = element.getBoundingClientRect();
    const left = event.clientX - box.left;
    tip.style.left = `${Math.max(0, Math.min(left + 10, box.width - tip.offsetWidth - 4))}px`;
    picture.redraw();
  });
  const release = () => {
    if (!scrubbing) return;
    scrubbing = false;
    // Let go at the newest end, it is followed again.
    if (summary.live && connection.position() > view.to - span() * 0.01) return connection.toEnd();
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
    const column = Math.max(0, Math.min(COLUMNS - 1, Math.floor((t - origin) / wide)));
    const busy = perTopic
      .map((lane, index) => ({ count: lane[column], topic: topics[index] }))
      .filter((one) => one.count > 0)
      .sort((a, b) => b.count - a.count);
    return busy
      .slice(0, 3)
      .map((one) => `${one.topic} ${one.count}`)
      .join(", ");
  }

  const rows = new Map<string, (lane: Float64Array) => void>();
  const tellRows = () => topics.forEach((topic, lane) => rows.get(topic)?.(perTopic[lane]));
  if (!summary.live && !summary.is_empty && topics.length > 0) {
    perTopic = topics.map(() => new Float64Array(COLUMNS));
    const take = (first: number, parts: Float64Array[]) => {
      parts.forEach((part, lane) => {
        perTopic[lane].set(part, first);
        part.forEach((value, index) => (density[first + index] += value));
      });
      tellRows();
      picture.redraw();
    };
    columns("density", { columns: COLUMNS }, topics.length, take, new AbortController().signal).catch(() => undefined);
  }
  if (summary.live) followDensity();

  /** Asks again and again how many messages have come, of the newest columns alone. */
  function followDensity(): void {
    let tail: Tail | undefined;
    const signal = new AbortController().signal;
    const ask = async () => {
      const names = summary.topics.map((one) => one.topic);
      if (!tail || names.join() !== topics.join() || perTopic.length !== names.length) {
        topics = names;
        perTopic = names.map(() => new Float64Array(COLUMNS));
        tail = new Tail("density", { topics: names.join() }, names.length);
      }
      const width = Math.ceil(span() / COLUMNS);
      if (names.length > 0 && (await tail.refresh(view.from, view.to, width, signal))) {
        const first = Math.floor(view.to / width) - COLUMNS + 1;
        [origin, wide] = [first * width, width];
        for (let column = 0; column < COLUMNS; column++) {
          const counts = tail.at(first + column);
          perTopic.forEach((lane, index) => (lane[column] = counts?.[index] || 0));
          density[column] = counts?.reduce((a, b) => a + (b || 0), 0) ?? 0;
        }
        tellRows();
        picture.redraw();
      }
      setTimeout(ask, document.hidden ? 3000 : 600);
    };
    void ask();
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
  view.on(() => {
    element.setAttribute("aria-valuemin", (view.from / 1e9).toFixed(3));
    element.setAttribute("aria-valuemax", (view.to / 1e9).toFixed(3));
    tellTip();
    picture.redraw();
  });
  return {
    element,
    redraw: picture.redraw,
    /** Tells a topic's density to whoever draws it, as it comes in. */
    onDensity(topic: string, take: (lane: Float64Array) => void) {
      rows.set(topic, take);
      const lane = topics.indexOf(topic);
      if (perTopic[lane]) take(perTopic[lane]);
    },
  };
}
