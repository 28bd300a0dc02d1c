import { Tail, columns } from "./connection";
import type { Context } from "./context";
import { canvas, color, h } from "./dom";
import { ticks, time } from "./format";

const COLUMNS = 400;

/** The timeline of the recording, or of a robot's window: density, cached ranges, the current time; drag to scrub. */
class Timeline {
  readonly element: HTMLElement;
  readonly picture: ReturnType<typeof canvas>;
  private tip = h("div", { class: "tip", hidden: true });
  private density = new Float64Array(COLUMNS);
  /** The topics of the lanes. */
  private topics: string[];
  private perTopic: Float64Array[] = [];
  private rows = new Map<string, (lane: Float64Array) => void>();
  /** When the first column starts, and how long each is. */
  private origin = 0;
  private wide: number;
  private loaded: [number, number][] = [];
  /** The pointer as a fraction of the width: the time below it moves with a robot. */
  private hover?: number;
  private reading = new AbortController();

  constructor(private context: Context) {
    const { summary } = context;
    this.topics = summary.topics.map((one) => one.topic);
    this.wide = Math.max(summary.duration, 1) / COLUMNS;
    this.picture = canvas("Timeline of the recording", (context2d, width, height) => this.draw(context2d, width, height));
    this.element = h(
      "div",
      {
        class: "timeline", role: "slider", tabindex: 0, "aria-label": "Position in the recording",
        "aria-valuemin": 0, "aria-valuemax": (summary.duration / 1e9).toFixed(3), "aria-valuenow": 0,
      },
      this.picture.element,
      this.tip,
    );
    this.scrub();
    this.listen();
    if (summary.live) this.followDensity();
    else this.readDensity();
  }

  /** Called with a topic's density as it arrives. */
  onDensity(topic: string, take: (lane: Float64Array) => void): void {
    this.rows.set(topic, take);
    const lane = this.perTopic[this.topics.indexOf(topic)];
    if (lane) take(lane);
  }

  private span(): number {
    return Math.max(this.context.view.to - this.context.view.from, 1);
  }

  private listen(): void {
    const { connection, summary, view } = this.context;
    connection.on("loaded", (ranges) => {
      this.loaded = ranges;
      this.picture.redraw();
    });
    connection.on("state", () => {
      this.element.setAttribute("aria-valuenow", (connection.state.t / 1e9).toFixed(3));
      this.element.setAttribute("aria-valuetext", time(connection.state.t, this.context.clock(), summary.start));
      this.picture.redraw();
    });
    this.context.annotations?.on(() => this.picture.redraw());
    let shown = view.from;
    view.on(() => {
      this.element.setAttribute("aria-valuemin", (view.from / 1e9).toFixed(3));
      this.element.setAttribute("aria-valuemax", (view.to / 1e9).toFixed(3));
      this.tellTip();
      this.picture.redraw();
      if (view.from === shown || summary.live) return;
      shown = view.from;
      this.readDensity();
    });
  }

  private draw(context2d: CanvasRenderingContext2D, width: number, height: number): void {
    const { connection, view } = this.context;
    const bottom = height - 18;
    const x = (t: number) => ((t - view.from) / this.span()) * width;
    const most = this.density.reduce((a, b) => Math.max(a, b), 1);
    context2d.fillStyle = color("density");
    for (let column = 0; column < COLUMNS; column++) {
      const tall = Math.sqrt(this.density[column] / most) * (bottom - 10);
      if (tall > 0) context2d.fillRect(x(this.origin + column * this.wide), bottom - tall, (this.wide / this.span()) * width + 0.5, tall);
    }
    this.drawLoaded(context2d, width, bottom, x);
    if (!view.isWhole()) {
      context2d.fillStyle = color("window");
      context2d.fillRect(x(view.start), 0, Math.max(x(view.end) - x(view.start), 2), bottom);
    }
    this.drawNotes(context2d, bottom, x);
    this.drawTicks(context2d, width, bottom, x);
    if (this.hover !== undefined) {
      context2d.fillStyle = color("faint");
      context2d.fillRect(this.hover * width, 0, 1, bottom);
    }
    const head = Math.max(0, Math.min(x(connection.position()), width));
    context2d.fillStyle = color(connection.state.following ? "mark" : "accent");
    context2d.fillRect(head - 1, 0, 2, bottom + 4);
    context2d.beginPath();
    context2d.arc(head, bottom + 2, 5, 0, Math.PI * 2);
    context2d.fill();
  }

  private drawLoaded(context2d: CanvasRenderingContext2D, width: number, bottom: number, x: (t: number) => number): void {
    const { summary } = this.context;
    context2d.fillStyle = color("track");
    context2d.fillRect(0, bottom, width, 4);
    context2d.fillStyle = color("loaded");
    // Cached ranges are fractions of the whole recording.
    const held = summary.window ? [[x(summary.window.from), width]] : this.loaded.map(([from, to]) => [x(from * summary.duration), x(to * summary.duration)]);
    for (const [from, to] of held) context2d.fillRect(from, bottom, Math.max(to - from, 1), 4);
  }

  /** Annotations: a flag for each instant, a bar for each interval. */
  private drawNotes(context2d: CanvasRenderingContext2D, bottom: number, x: (t: number) => number): void {
    context2d.fillStyle = color("note");
    for (const { start, end } of this.context.annotations?.notes ?? []) {
      context2d.globalAlpha = 0.35;
      context2d.fillRect(x(start), 0, Math.max(x(end) - x(start), 1.5), bottom);
      context2d.globalAlpha = 1;
      context2d.fillRect(x(start), 0, Math.max(x(end) - x(start), 6), 4);
    }
  }

  private drawTicks(context2d: CanvasRenderingContext2D, width: number, bottom: number, x: (t: number) => number): void {
    const { view, clock, summary } = this.context;
    context2d.fillStyle = color("faint");
    context2d.font = "11px system-ui, sans-serif";
    context2d.textBaseline = "top";
    const marks = ticks(view.from, view.to, width / 130);
    let free = -Infinity;
    for (const at of marks.at) {
      context2d.fillRect(x(at), bottom + 4, 1, 3);
      const text = time(at, clock(), summary.start, clock() === "relative" ? marks.digits : 0);
      const label = clock() === "relative" ? text : text.slice(11);
      const long = context2d.measureText(label).width;
      const left = Math.max(0, Math.min(x(at) + 3, width - long));
      if (left < free) continue;
      free = left + long + 6;
      context2d.fillText(label, left, bottom + 6);
    }
  }

  private part(event: MouseEvent): number {
    const box = this.element.getBoundingClientRect();
    return Math.max(0, Math.min((event.clientX - box.left) / Math.max(box.width, 1), 1));
  }

  private tellTip(): void {
    if (this.hover === undefined) return;
    const t = this.context.view.from + this.hover * this.span();
    const topics = this.mostOf(t);
    const near = this.span() * 0.004;
    const notes = (this.context.annotations?.notes ?? []).filter(({ start, end }) => t >= start - near && t <= end + near).map(({ text }) => text);
    const texts = [time(t, this.context.clock(), this.context.summary.start), ...notes.slice(0, 2).map((text) => `“${text.slice(0, 60)}”`), topics];
    this.tip.textContent = texts.filter(Boolean).join(" · ");
  }

  /** Dragging seeks to the time below the pointer; playback continues on release. */
  private scrub(): void {
    const { element, tip } = this;
    const { connection, summary, view } = this.context;
    const at = (event: MouseEvent) => view.from + this.part(event) * this.span();
    let [scrubbing, resumes] = [false, false];
    element.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || summary.is_empty) return;
      scrubbing = true;
      resumes = connection.state.state === "playing";
      if (resumes) connection.send({ op: "pause" });
      element.setPointerCapture(event.pointerId);
      connection.seek(at(event));
    });
    element.addEventListener("pointermove", (event) => {
      this.hover = this.part(event);
      if (scrubbing) connection.seek(at(event));
      tip.hidden = false;
      this.tellTip();
      const box = element.getBoundingClientRect();
      tip.style.left = `${Math.max(0, Math.min(event.clientX - box.left + 10, box.width - tip.offsetWidth - 4))}px`;
      this.picture.redraw();
    });
    const release = () => {
      if (!scrubbing) return;
      scrubbing = false;
      // Released at the newest end: follow again.
      if (summary.live && connection.position() > view.to - this.span() * 0.01) return connection.toEnd();
      // The seek is sent with the next frame; playback continues after it.
      if (resumes) requestAnimationFrame(() => requestAnimationFrame(() => connection.send({ op: "play" })));
    };
    element.addEventListener("pointerup", release);
    element.addEventListener("pointercancel", release);
    element.addEventListener("pointerleave", () => {
      this.hover = undefined;
      tip.hidden = true;
      this.picture.redraw();
    });
  }

  /** The busiest topics around a time. */
  private mostOf(t: number): string {
    const column = Math.max(0, Math.min(COLUMNS - 1, Math.floor((t - this.origin) / this.wide)));
    const busy = this.perTopic
      .map((lane, index) => ({ count: Math.round(lane[column]), topic: this.topics[index] }))
      .filter((one) => one.count > 0)
      .sort((a, b) => b.count - a.count);
    return busy.slice(0, 3).map((one) => `${one.topic} ${one.count}`).join(", ");
  }

  private tellRows(): void {
    this.topics.forEach((topic, lane) => this.rows.get(topic)?.(this.perTopic[lane]));
    this.picture.redraw();
  }

  /** Reads the density of the visible range. */
  private readDensity(): void {
    const { summary, view } = this.context;
    if (summary.is_empty || this.topics.length === 0) return;
    this.reading.abort();
    this.reading = new AbortController();
    const { signal } = this.reading;
    [this.origin, this.wide] = [view.from, this.span() / COLUMNS];
    this.density.fill(0);
    this.perTopic = this.topics.map(() => new Float64Array(COLUMNS));
    const take = (first: number, parts: Float64Array[]) => {
      if (signal.aborted) return;
      parts.forEach((part, lane) => {
        this.perTopic[lane].set(part, first);
        part.forEach((value, index) => (this.density[first + index] += value));
      });
      this.tellRows();
    };
    const where = { start: Math.round(view.from), end: Math.round(view.to), columns: COLUMNS };
    columns("density", where, this.topics.length, take, signal).catch(() => undefined);
  }

  /** Polls the density of the newest columns. */
  private followDensity(): void {
    const { summary, view } = this.context;
    const signal = new AbortController().signal;
    let tail: Tail | undefined;
    const ask = async () => {
      const names = summary.topics.map((one) => one.topic);
      if (!tail || names.join() !== this.topics.join() || this.perTopic.length !== names.length) {
        this.topics = names;
        this.perTopic = names.map(() => new Float64Array(COLUMNS));
        tail = new Tail("density", { topics: names.join() }, names.length);
      }
      const width = Math.ceil(this.span() / COLUMNS);
      if (names.length > 0 && (await tail.refresh(view.from, view.to, width, signal))) {
        const first = Math.floor(view.to / width) - COLUMNS + 1;
        [this.origin, this.wide] = [first * width, width];
        for (let column = 0; column < COLUMNS; column++) {
          const counts = tail.at(first + column);
          this.perTopic.forEach((lane, index) => (lane[column] = counts?.[index] || 0));
          this.density[column] = counts?.reduce((a, b) => a + (b || 0), 0) ?? 0;
        }
        this.tellRows();
      }
      setTimeout(ask, document.hidden ? 3000 : 600);
    };
    void ask();
  }
}

export function timeline(context: Context) {
  const line = new Timeline(context);
  return { element: line.element, redraw: line.picture.redraw, onDensity: line.onDensity.bind(line) };
}
