import { ask } from "../connection";
import type { Context, Panel, PanelSpec } from "../context";
import { SERIES, button, canvas, color, empty, h } from "../dom";
import { FIELD_MIME } from "../first";
import { number } from "../format";
import { register } from "../registry";

interface Field {
  topic: string;
  path: string;
}
/** A time and two values. */
type Place = [number, number, number];

/** XY plot: the first field is the horizontal axis, the others the vertical one. */
class Curve {
  readonly element: HTMLElement;
  private curves: Place[][] = [];
  private errors: string[] = [];
  private zoom = 1;
  private offset = [0, 0];
  private legend = h("div", { class: "legend" });
  private note = h("div", { class: "overlay" });
  private picture: ReturnType<typeof canvas>;
  private stops: (() => void)[];

  constructor(
    private context: Context,
    public fields: Field[],
    public isEqual: boolean,
  ) {
    this.picture = canvas("One field over another", (context2d, width, height) => this.draw(context2d, width, height));
    this.picture.element.classList.add("fill");
    this.element = h("div", { class: "body xy" }, this.legend, this.picture.element, this.note);
    this.navigate();
    const ticking = context.summary.live ? window.setInterval(() => document.hidden || void this.read(), 2000) : 0;
    this.stops = [context.connection.on("state", this.picture.redraw), () => clearInterval(ticking)];
    this.change(fields);
  }

  dispose(): void {
    this.stops.forEach((stop) => stop());
  }

  toggleEqual(): void {
    this.isEqual = !this.isEqual;
    this.picture.redraw();
    this.context.save();
  }

  private change(fields: Field[]): void {
    this.fields = fields;
    const entry = (field: Field, index: number) =>
      h(
        "span",
        { class: "legend-entry", title: `${field.topic}.${field.path}` },
        h("i", { class: "swatch", style: `background:${index === 0 ? "transparent" : SERIES[(index - 1) % SERIES.length]}` }),
        h("span", { class: "path" }, `${index === 0 ? "→" : "↑"} ${field.topic}.${field.path}`),
        button("close", `Remove ${field.path}`, () => {
          this.change(this.fields.filter((one) => one !== field));
          this.context.save();
        }),
      );
    this.legend.replaceChildren(...fields.map(entry));
    this.curves = [];
    const advice = fields.length === 0 ? "Click a field's name in a Message, a Table or the topic list and choose XY: the first is the horizontal axis." : "Choose XY for another field: it is the vertical axis.";
    this.note.replaceChildren(fields.length < 2 ? empty("Nothing to draw", advice) : "");
    void this.read();
  }

  private async read(): Promise<void> {
    const [x, ...others] = this.fields;
    if (!x || others.length === 0) return this.picture.redraw();
    this.errors = [];
    const own = this.fields;
    const curves = await Promise.all(
      others.map(async (y) => {
        try {
          return await places(x, y);
        } catch (error) {
          this.errors.push(`${y.topic}.${y.path}: ${(error as Error).message}`);
          return [];
        }
      }),
    );
    if (own !== this.fields) return;
    this.curves = curves;
    this.note.replaceChildren(this.errors.length > 0 ? empty("This cannot be drawn", this.errors.join("; ")) : "");
    this.picture.redraw();
  }

  private navigate(): void {
    const { element } = this.picture;
    element.addEventListener(
      "wheel",
      (event) => {
        event.preventDefault();
        const factor = Math.exp(-event.deltaY * 0.0015);
        this.zoom = Math.max(0.2, Math.min(this.zoom * factor, 1000));
        this.offset = this.offset.map((one) => one * factor);
        this.picture.redraw();
      },
      { passive: false },
    );
    element.addEventListener("pointermove", (event) => {
      if (!(event.buttons & 1)) return;
      this.offset = [this.offset[0] + event.movementX, this.offset[1] + event.movementY];
      this.picture.redraw();
    });
    element.addEventListener("dblclick", () => {
      [this.zoom, this.offset] = [1, [0, 0]];
      this.picture.redraw();
    });
    this.element.addEventListener("dragover", (event) => event.dataTransfer?.types.includes(FIELD_MIME) && event.preventDefault());
    this.element.addEventListener("drop", (event) => {
      const dropped = event.dataTransfer?.getData(FIELD_MIME);
      if (!dropped) return;
      event.preventDefault();
      this.change([...this.fields, JSON.parse(dropped) as Field]);
      this.context.save();
    });
  }

  private draw(context2d: CanvasRenderingContext2D, width: number, height: number): void {
    const all = this.curves.flat();
    if (all.length === 0) return;
    const ends = (at: 1 | 2) => all.reduce(([low, high], one) => [Math.min(low, one[at]), Math.max(high, one[at])], [Infinity, -Infinity]);
    const [[west, east], [south, north]] = [ends(1), ends(2)];
    const [wide, tall] = [east - west || 1, north - south || 1];
    let [scaleX, scaleY] = [((width - 90) / wide) * this.zoom, ((height - 50) / tall) * this.zoom];
    if (this.isEqual) scaleX = scaleY = Math.min(scaleX, scaleY);
    const x = (value: number) => width / 2 + this.offset[0] + (value - (west + east) / 2) * scaleX;
    const y = (value: number) => height / 2 + this.offset[1] - (value - (south + north) / 2) * scaleY;
    this.drawAxes(context2d, width, height, x, y, [scaleX, scaleY]);
    const t = this.context.connection.position();
    this.curves.forEach((curve, index) => {
      context2d.strokeStyle = context2d.fillStyle = SERIES[index % SERIES.length];
      context2d.lineWidth = 1.5;
      context2d.beginPath();
      curve.forEach(([, a, b], at) => (at ? context2d.lineTo(x(a), y(b)) : context2d.moveTo(x(a), y(b))));
      context2d.stroke();
      const now = curve.findLast(([at]) => at <= t) ?? curve[0];
      if (!now) return;
      context2d.beginPath();
      context2d.arc(x(now[1]), y(now[2]), 5, 0, Math.PI * 2);
      context2d.fill();
    });
  }

  private drawAxes(context2d: CanvasRenderingContext2D, width: number, height: number, x: (value: number) => number, y: (value: number) => number, scales: number[]): void {
    context2d.font = "11px system-ui, sans-serif";
    context2d.lineWidth = 1;
    context2d.strokeStyle = color("line");
    context2d.fillStyle = color("faint");
    // About 80 pixels apart, at round numbers.
    const steps = scales.map((scale) => {
      const power = 10 ** Math.floor(Math.log10(80 / scale));
      return ([1, 2, 5].find((factor) => factor * power * scale >= 80) ?? 10) * power;
    });
    const marks = (step: number, at: (value: number) => number, end: number) => {
      const perPixel = 1 / Math.abs(at(1) - at(0));
      const zero = -at(0) * perPixel;
      const [low, high] = at(1) > at(0) ? [zero, zero + end * perPixel] : [-(end - at(0)) * perPixel, at(0) * perPixel];
      return Array.from({ length: Math.min(200, Math.floor((high - low) / step) + 2) }, (_, index) => (Math.ceil(low / step) + index) * step).filter((value) => value <= high);
    };
    context2d.beginPath();
    for (const value of marks(steps[0], x, width)) {
      context2d.moveTo(x(value), 0);
      context2d.lineTo(x(value), height - 18);
      context2d.fillText(number(Number(value.toPrecision(6))), x(value) + 3, height - 6);
    }
    for (const value of marks(steps[1], y, height)) {
      context2d.moveTo(0, y(value));
      context2d.lineTo(width, y(value));
      context2d.fillText(number(Number(value.toPrecision(6))), 4, y(value) - 3);
    }
    context2d.stroke();
  }
}

/** Both values of each message; where they come on two topics, each with the last that was known of the other. */
async function places(x: Field, y: Field): Promise<Place[]> {
  type Value = number | boolean | null;
  type Rows = { rows: Value[][] };
  /** A boolean is drawn as 0 or 1. */
  const plain = (one: Value[]) => one.map((value) => (typeof value === "boolean" ? Number(value) : value));
  const isPlace = (one: Value[]): one is Place => one.every((value) => typeof value === "number");
  if (x.topic === y.topic) {
    const { rows } = await ask<Rows>("rows", { topic: x.topic, paths: `${x.path},${y.path}` });
    return rows.map(plain).filter(isPlace);
  }
  const [first, second] = await Promise.all([x, y].map(({ topic, path }) => ask<Rows>("rows", { topic, paths: path })));
  let at = -1;
  return second.rows
    .map(([t, value]) => {
      while (at + 1 < first.rows.length && Number(first.rows[at + 1][0]) <= Number(t)) at++;
      return plain([t, first.rows[at]?.[1] ?? null, value]);
    })
    .filter(isPlace);
}

function xyPanel(context: Context, spec: PanelSpec): Panel {
  const curve = new Curve(context, [...(spec.fields ?? [])], spec.options?.equal !== false);
  return {
    element: curve.element,
    title: "",
    controls: [h("button", { class: "plain text", title: "The same scale both ways, or each as wide as it fits", "aria-label": "1:1, the same scale both ways", onclick: () => curve.toggleEqual() }, "1:1")],
    spec: () => ({ kind: "xy", fields: curve.fields, options: { equal: curve.isEqual } }),
    dispose: () => curve.dispose(),
  };
}

register({ kind: "xy", title: "XY", make: xyPanel });
