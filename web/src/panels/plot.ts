import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { Tail, ask, columns } from "../connection";
import type { Context, Panel, PanelSpec } from "../context";
import { navigate } from "../context";
import { SERIES, button, color, empty, h } from "../dom";
import { type Expression, parse } from "../expression";
import { FIELD_MIME } from "../first";
import { number, numbers, ticks, time } from "../format";
import { type Line, computed, ends, figuresOf, middles, slope, svgOf, zigzag } from "../lines";
import { register } from "../registry";

interface PlotField {
  topic: string;
  path: string;
  /** The chosen colour. */
  color?: string;
  /** Whether its derivative is drawn. */
  derivative?: boolean;
  /** Whether it uses the right axis. */
  right?: boolean;
  /** Whether the path is a formula over the other lines, named a, b, c, … */
  formula?: boolean;
}

/** Fields over time: the whole recording at first, in more detail when zoomed. */
class Plot {
  readonly element: HTMLElement;
  fields: PlotField[];
  private area = h("div", { class: "plot-area" });
  private legend = h("div", { class: "legend" });
  private note = h("div", { class: "overlay" });
  /** The current time as a line over the plot: moving it redraws nothing. */
  private head = h("div", { class: "playhead" });
  private lines: Line[] = [];
  /** The time range of `lines`. */
  private span: { start: number; end: number; count: number };
  private plot?: uPlot;
  private abort = new AbortController();
  private timer = 0;
  private queued = false;
  /** The newest columns of a running robot's lines are polled. */
  private tails: Tail[] = [];
  /** The zoom of the value axis: wheel with shift. */
  private stretch = { factor: 1, middle: 0.5 };
  private stops: (() => void)[] = [];
  /** Statistics of the visible range, on request. */
  private figures = h("table", { class: "figures", hidden: true });
  /** Their values by topic and path; `every` where they are thinned out. */
  private values = new Map<string, { rows: [number, number][]; every: number }>();
  /** The moment that differences are measured from. */
  private pin?: number;
  private pinLine = h("div", { class: "playhead pin", hidden: true });

  constructor(
    private context: Context,
    spec: PanelSpec,
  ) {
    this.fields = [...((spec.fields as PlotField[] | undefined) ?? [])];
    this.span = { start: 0, end: context.summary.duration, count: 0 };
    this.element = h("div", { class: "body plot" }, this.legend, this.figures, this.area, this.note);
    this.listen();
    this.fetchAll();
  }

  dispose(): void {
    this.stops.forEach((stop) => stop());
    this.abort.abort();
    clearTimeout(this.timer);
    this.plot?.destroy();
  }

  /** The plot as PNG. */
  savePicture(): void {
    const canvas = this.plot?.root.querySelector("canvas");
    if (canvas) save(canvas.toDataURL("image/png"), "plot.png");
  }

  /** The plot as SVG. */
  saveVector(): void {
    const { plot } = this;
    if (!plot) return;
    const [x, ...all] = plot.data;
    const drawn = all.map((y, index) => ({ name: this.nameOf(this.fields[index]), color: this.colorOf(index), x: x as number[], y: y as (number | null)[] }));
    const { view } = this.context;
    const text = svgOf(drawn, [view.start / 1e9, view.end / 1e9], [plot.scales.y.min ?? 0, plot.scales.y.max ?? 1]);
    save(URL.createObjectURL(new Blob([text], { type: "image/svg+xml" })), "plot.svg");
  }

  /** Shows or hides the statistics. */
  toggleFigures(): void {
    this.figures.hidden = !this.figures.hidden;
    this.showFigures();
    void this.readValues();
  }

  /** Pins or removes a cursor at the current time: the legend shows differences to it. */
  togglePin(): boolean {
    this.pin = this.pin === undefined ? this.context.connection.position() : undefined;
    this.placeHead();
    this.showValues();
    return this.pin !== undefined;
  }

  /** Reads the values for statistics. Formulas and running robots use the drawn columns. */
  private async readValues(): Promise<void> {
    if (this.figures.hidden || this.context.summary.live) return;
    const missing = this.fields.filter((field) => !field.formula && !this.values.has(this.nameOf(field)));
    await Promise.all(
      missing.map(async ({ topic, path }) => {
        type Rows = { rows: [number, number | boolean | null][]; every: number };
        const { rows, every } = await ask<Rows>("rows", { topic, paths: path }).catch(() => ({ rows: [], every: 1 }));
        const known = rows.filter(([, value]) => value !== null).map(([t, value]): [number, number] => [t, Number(value)]);
        this.values.set(`${topic}.${path}`, { rows: known, every });
      }),
    );
    this.showFigures();
  }

  /** Asks for a formula, and adds its line. */
  addFormula(): void {
    const input = h("input", { type: "text", placeholder: "sqrt(a^2 + b^2)", "aria-label": "Formula over the lines a, b, c …" });
    const error = h("span", { class: "faint", role: "status" });
    const form = h("form", { class: "along formula" }, input, h("button", { class: "plain text", type: "submit" }, "Add"), error);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      try {
        const missing = parse(input.value).names.filter((name) => !(name in this.letters()));
        if (missing.length > 0) throw new Error(`there is no line ${missing.join(", ")}`);
        form.remove();
        this.change([...this.fields, { topic: "", path: input.value, formula: true }]);
      } catch (reason) {
        error.textContent = (reason as Error).message;
      }
    });
    this.element.querySelector(".formula")?.remove();
    this.legend.after(form);
    input.focus();
  }

  /** The lines that formulas can use, by letter. */
  private letters(): Record<string, number> {
    const own = this.fields.flatMap((field, index) => (field.formula ? [] : [index]));
    return Object.fromEntries(own.slice(0, 26).map((index, at) => [String.fromCharCode(97 + at), index]));
  }

  /** Evaluates the formulas. */
  private compute(): void {
    // Nothing has been read yet.
    if (this.lines.length === 0) return;
    const letters = this.letters();
    this.fields.forEach((field, index) => {
      if (!field.formula) return;
      const none = () => new Float64Array(this.span.count).fill(NaN);
      try {
        const formula: Expression = parse(field.path);
        const lines = Object.fromEntries(formula.names.map((name) => [name, this.lines[letters[name]] ?? { least: none(), most: none() }]));
        this.lines[index] = computed(formula.of, lines, this.span.count);
      } catch (error) {
        this.lines[index] = { least: none(), most: none(), error: (error as Error).message };
      }
    });
  }

  private nameOf(field: PlotField): string {
    return field.formula ? field.path : `${field.topic}.${field.path}`;
  }

  /** The plot as CSV: the time, then minimum and maximum of each field. */
  saveTable(): void {
    const { start, end, count } = this.span;
    const names = this.fields.map((field) => this.nameOf(field).replaceAll('"', "'")).flatMap((name) => [`"${name} min"`, `"${name} max"`]);
    const rows = Array.from({ length: count }, (_, column) => {
      const t = (start + ((column + 0.5) * (end - start + 1)) / count) / 1e9;
      return [t, ...this.lines.flatMap((line) => [line.least[column], line.most[column]])].map((value) => (Number.isNaN(value) ? "" : String(value))).join(",");
    });
    const text = [["time", ...names].join(","), ...rows].join("\n");
    save(URL.createObjectURL(new Blob([text], { type: "text/csv" })), "plot.csv");
  }

  private listen(): void {
    const { context } = this;
    const sized = new ResizeObserver(() => this.resize());
    sized.observe(this.area);
    const build = () => this.build();
    addEventListener("asof-theme", build);
    addEventListener("asof-clock", build);
    const ticking = context.summary.live ? window.setInterval(() => document.hidden || void this.followAll(), 250) : 0;
    this.stops = [
      context.connection.on("state", () => {
        this.placeHead();
        this.showValues();
      }),
      context.view.on(() => {
        this.plot?.setData(this.data());
        if (context.summary.live) return;
        clearTimeout(this.timer);
        this.timer = window.setTimeout(() => this.fetchAll(), 120);
      }),
      () => sized.disconnect(),
      () => removeEventListener("asof-theme", build),
      () => removeEventListener("asof-clock", build),
      () => clearInterval(ticking),
    ];
    this.element.addEventListener("dragover", (event) => event.dataTransfer?.types.includes(FIELD_MIME) && event.preventDefault());
    this.element.addEventListener("drop", (event) => {
      const dropped = event.dataTransfer?.getData(FIELD_MIME);
      if (!dropped) return;
      event.preventDefault();
      this.change([...this.fields, JSON.parse(dropped) as PlotField]);
    });
    this.element.addEventListener("wheel", (event) => event.shiftKey && this.stretchBy(event), { capture: true, passive: false });
    this.element.addEventListener("dblclick", () => (this.stretch = { factor: 1, middle: 0.5 }));
  }

  /** The wheel with shift zooms the value axis. */
  private stretchBy(event: WheelEvent): void {
    event.preventDefault();
    event.stopPropagation();
    const box = this.plot?.over.getBoundingClientRect();
    if (!box) return;
    const at = 1 - Math.max(0, Math.min(1, (event.clientY - box.top) / box.height));
    const factor = Math.min(1, Math.max(0.001, this.stretch.factor * Math.exp((event.deltaY || event.deltaX) * 0.0015)));
    const value = this.stretch.middle + (at - 0.5) * this.stretch.factor;
    this.stretch = { factor, middle: factor === 1 ? 0.5 : value - (at - 0.5) * factor };
    this.plot?.setData(this.data());
  }

  private change(fields: PlotField[]): void {
    this.fields = fields.filter((field, index) => fields.findIndex((one) => one.topic === field.topic && one.path === field.path) === index);
    this.lines = [];
    this.build();
    this.fetchAll();
    this.context.save();
  }

  private colorOf(index: number): string {
    return this.fields[index].color ?? SERIES[index % SERIES.length];
  }

  private data(): uPlot.AlignedData {
    const { start, end, count } = this.span;
    const width = (end - start + 1) / Math.max(count, 1);
    this.compute();
    const x = new Float64Array(count * 2);
    for (let column = 0; column < count; column++) x[2 * column] = x[2 * column + 1] = (start + (column + 0.5) * width) / 1e9;
    const y = this.fields.map(({ derivative }, index) => {
      const line = this.lines[index];
      // Not loaded yet: no values over the whole axis.
      if (!line) return new Array<null>(count * 2).fill(null);
      return derivative ? slope(line, width / 1e9, count) : zigzag(line, count);
    });
    return [x, ...y] as unknown as uPlot.AlignedData;
  }

  private build(): void {
    this.plot?.destroy();
    this.plot = undefined;
    this.legend.replaceChildren(...this.fields.map((field, index) => this.legendEntry(field, index)), h("b", { class: "stretch" }));
    void this.readValues();
    this.note.replaceChildren(this.fields.length === 0 ? empty("Nothing to plot", "Open a topic on the left and click a number, or click a field's name in a Message or Table.") : "");
    if (this.fields.length === 0) return;
    this.plot = new uPlot(this.options(), this.data(), this.area);
    this.plot.over.append(this.head, this.pinLine);
    this.placeHead();
    navigate(this.plot.over, this.context, () => ({ left: 0, width: this.plot?.over.clientWidth ?? 1 }));
  }

  private options(): uPlot.Options {
    const { view } = this.context;
    const axis = { stroke: color("faint"), grid: { stroke: color("line"), width: 1 }, ticks: { stroke: color("line") }, font: "11px system-ui, sans-serif" };
    const values = (_self: uPlot, splits: number[]) => numbers(splits);
    const size = (_self: uPlot, texts: string[] | null) => Math.max(56, ...(texts ?? []).map((text) => 6.5 * text.length + 18));
    // At least three ticks, even in a low plot.
    const space = (_self: uPlot, _axis: number, _min: number, _max: number, tall: number) => Math.max(12, Math.min(36, tall / 5));
    const range = (_self: uPlot, least: number | null, most: number | null) => this.rangeOf(least, most);
    const hasRight = this.fields.some((field) => field.right);
    return {
      width: Math.max(this.area.clientWidth, 60),
      height: Math.max(this.area.clientHeight, 40),
      legend: { show: false },
      cursor: { drag: { x: false, y: false, setScale: false }, points: { show: false }, y: false },
      scales: { x: { time: false, range: () => [view.start / 1e9, view.end / 1e9] }, y: { range }, right: { range } },
      axes: [
        { ...axis, show: this.hasTimes(), size: 28, splits: (self) => ticks(view.start, view.end, self.width / 80).at.map((at) => at / 1e9), values: (self, splits) => this.times(self.width, splits) },
        { ...axis, size, space, values },
        ...(hasRight ? [{ ...axis, size, space, values, scale: "right", side: 1 as const, grid: { show: false } }] : []),
      ],
      series: [
        {},
        ...this.fields.map((field, index) => ({ label: field.path, stroke: this.colorOf(index), width: 1.5, spanGaps: true, points: { show: false }, scale: field.right ? "right" : "y" })),
      ],
      hooks: {
        draw: [() => this.placeHead()],
        setCursor: [(self) => this.showValues(self.cursor.left !== undefined && self.cursor.left >= 0 ? self.posToVal(self.cursor.left, "x") * 1e9 : undefined)],
      },
    };
  }

  /** The value range with a margin; for a constant, wide enough that a change would be visible. */
  private rangeOf(least: number | null, most: number | null): [number, number] {
    if (least === null || most === null) return [-1, 1];
    let [low, high] = [least, most];
    const margin = high > low ? (high - low) * 0.06 : Math.max(Math.abs(low) * 0.1, 0.1);
    [low, high] = [low - margin, high + margin];
    const { factor, middle } = this.stretch;
    const at = low + (high - low) * middle;
    return [at - ((high - low) * factor) / 2, at + ((high - low) * factor) / 2];
  }

  private times(width: number, splits: number[]): string[] {
    const { view, clock, summary } = this.context;
    const { digits } = ticks(view.start, view.end, width / 80);
    return splits.map((at) => {
      const text = time(at * 1e9, clock(), summary.start, digits);
      return clock() === "relative" ? text : text.slice(11);
    });
  }

  private legendEntry(field: PlotField, index: number): HTMLElement {
    const isAlone = this.fields.every((one) => one.formula || one.topic === this.fields[0].topic);
    const name = isAlone ? field.path : this.nameOf(field);
    const hasFormula = this.fields.some((one) => one.formula);
    const letter = hasFormula ? Object.entries(this.letters()).find(([, at]) => at === index)?.[0] : undefined;
    const tint = h("input", { type: "color", value: this.colorOf(index), "aria-label": `Colour of ${field.path}`, title: "Colour" });
    tint.addEventListener("change", () => this.change(this.fields.map((one) => (one === field ? { ...one, color: tint.value } : one))));
    const flag = (key: "derivative" | "right", text: string, label: string) => {
      const toggle = () => this.change(this.fields.map((one) => (one === field ? { ...one, [key]: !one[key] } : one)));
      return h("button", { class: "plain text flag", "aria-pressed": String(Boolean(field[key])), "aria-label": `${label} of ${field.path}`, title: label, onclick: toggle }, text);
    };
    return h(
      "span",
      { class: "legend-entry", title: this.nameOf(field) },
      tint,
      h("span", { class: "path" }, `${letter ? `${letter} = ` : ""}${field.derivative ? "d/dt " : ""}${name}`),
      h("b", { class: "now" }),
      flag("derivative", "d/dt", "d/dt, the rate of change"),
      flag("right", "⇥", "On the axis to the right"),
      button("close", `Remove ${field.path}`, () => this.change(this.fields.filter((one) => one !== field))),
    );
  }

  private placeHead(): void {
    if (!this.plot) return;
    const { connection, view } = this.context;
    const wide = this.plot.over.clientWidth;
    const put = (line: HTMLElement, t: number | undefined, most: number) => {
      const x = t === undefined ? -1 : Math.min(((t - view.start) / (view.end - view.start)) * wide, most);
      line.style.transform = `translateX(${x}px)`;
      line.hidden = x < 0 || x > wide;
    };
    put(this.head, connection.position(), connection.state.following ? wide - 1.5 : Infinity);
    put(this.pinLine, this.pin, Infinity);
  }

  /** The value of a line at a time: of the last column with one. */
  private valueAt(line: Line | undefined, t: number): number | undefined {
    const { start, end, count } = this.span;
    const column = Math.floor(((t - start) / (end - start + 1)) * count);
    for (let at = Math.min(column, count - 1); at >= Math.max(0, column - 400) && line; at--)
      if (!Number.isNaN(line.most[at])) return (line.most[at] + line.least[at]) / 2;
    return undefined;
  }

  /** Updates the legend: values under the pointer or at the current time, and statistics. */
  private showValues(t = this.context.connection.position()): void {
    const shown = (value: number) => number(Number(value.toPrecision(6)));
    const { pin } = this;
    this.legend.querySelectorAll<HTMLElement>(".now").forEach((element, index) => {
      const line = this.lines[index];
      const [value, before] = [this.valueAt(line, t), pin === undefined ? undefined : this.valueAt(line, pin)];
      const difference = value !== undefined && before !== undefined ? ` Δ ${shown(value - before)}` : "";
      element.textContent = line?.error ?? (value === undefined ? "" : `${shown(value)}${difference}`);
      element.title = line?.error ?? "";
      element.classList.toggle("bad", line?.error !== undefined);
    });
    const stretch = this.legend.querySelector<HTMLElement>(".stretch");
    if (stretch) stretch.textContent = pin === undefined ? "" : `Δt ${((t - pin) / 1e9).toFixed(3)} s`;
    this.legend.classList.toggle("pinned", pin !== undefined);
    this.showFigures();
  }

  private showFigures(): void {
    if (this.figures.hidden) return;
    const cell = (value: number) => h("td", {}, number(Number(value.toPrecision(6))));
    const rows = this.fields.flatMap((field, index) => {
      const line = this.lines[index];
      const { view } = this.context;
      const found = line && ends(line, this.span, view);
      const known = this.values.get(this.nameOf(field));
      const more = line && figuresOf(known?.rows ?? middles(line, this.span), view);
      if (!found || !more) return [];
      const note = known && known.every > 1 ? `mean, deviation and percentiles of every ${known.every}th message` : known ? "" : "mean, deviation and percentiles of what is drawn";
      return [h("tr", { title: note }, h("th", { scope: "row" }, field.path, note ? " ≈" : ""), ...[found.least, found.most, more.mean, more.deviation, ...more.percentiles].map(cell))];
    });
    const heads = ["in view", "min", "max", "mean", "std", "5 %", "50 %", "95 %"];
    this.figures.replaceChildren(h("thead", {}, h("tr", {}, ...heads.map((text) => h("th", { scope: "col" }, text)))), h("tbody", {}, ...rows));
  }

  private columnCount(): number {
    return Math.max(200, Math.min(1200, Math.round(this.area.clientWidth) || 800));
  }

  private async followAll(): Promise<void> {
    const { view, summary } = this.context;
    if (this.fields.length === 0 || summary.is_empty) return;
    if (this.tails.length === 0) this.tails = this.fields.filter((field) => !field.formula).map(({ topic, path }) => new Tail("series", { topic, path }, 2));
    const own = this.tails;
    const width = Math.max(Math.ceil((view.end - view.start) / this.columnCount()), 1);
    const [first, last] = [Math.floor(view.start / width), Math.floor(view.end / width)];
    const came = await Promise.all(own.map((tail) => tail.refresh(view.start, view.end, width, this.abort.signal)));
    if (own !== this.tails || !came.some(Boolean)) return;
    const read = own.map((tail) => {
      const of = (lane: number) => Float64Array.from({ length: last - first + 1 }, (_, column) => tail.at(first + column)?.[lane] ?? NaN);
      return { least: of(0), most: of(1), error: tail.error };
    });
    this.lines = this.fields.map((field) => (field.formula ? { least: new Float64Array(0), most: new Float64Array(0) } : (read.shift() as Line)));
    this.span = { start: first * width, end: (last + 1) * width - 1, count: last - first + 1 };
    this.redraw();
  }

  /** Reads all lines for the visible range; the old ones stay until the first new part arrives. */
  private fetchAll(): void {
    this.abort.abort();
    this.abort = new AbortController();
    const { signal } = this.abort;
    const { view, summary } = this.context;
    if (summary.live) {
      this.tails = [];
      return void this.followAll();
    }
    if (this.fields.length === 0 || summary.is_empty) return;
    const count = this.columnCount();
    const margin = view.isWhole() ? 0 : (view.end - view.start) * 0.25;
    const next = { start: Math.max(0, Math.round(view.start - margin)), end: Math.min(summary.duration, Math.round(view.end + margin)), count };
    const fresh: Line[] = this.fields.map(() => ({ least: new Float64Array(count).fill(NaN), most: new Float64Array(count).fill(NaN) }));
    this.fields.forEach(({ topic, path, formula }, index) => {
      if (formula) return;
      const line = fresh[index];
      const take = (first: number, [least, most]: Float64Array[]) => {
        if (signal.aborted) return;
        line.least.set(least, first);
        line.most.set(most, first);
        [this.lines, this.span] = [fresh, next];
        this.redraw();
      };
      const read = async () => {
        await this.context.connection.first();
        if (signal.aborted) return;
        line.error = await columns("series", { topic, path, start: next.start, end: next.end, columns: count }, 2, take, signal);
        if (line.error && !signal.aborted) {
          [this.lines, this.span] = [fresh, next];
          this.showValues();
        }
      };
      read().catch(() => undefined);
    });
  }

  /** A very low plot has no room for the time axis. */
  private hasTimes(): boolean {
    return this.area.clientHeight >= 72;
  }

  private redraw(): void {
    if (this.queued) return;
    this.queued = true;
    requestAnimationFrame(() => {
      this.queued = false;
      this.plot?.setData(this.data());
      this.showValues();
    });
  }

  private resize(): void {
    if (!this.plot || this.plot.axes[0].show !== this.hasTimes()) this.build();
    else this.plot.setSize({ width: Math.max(this.area.clientWidth, 60), height: Math.max(this.area.clientHeight, 40) });
  }
}

function save(address: string, name: string): void {
  h("a", { href: address, download: name }).click();
}

/** One control for all export formats. */
function saveChoice(ways: Record<string, () => void>): HTMLElement {
  const select = h("select", { "aria-label": "Save the plot as", title: "Save the plot as a picture, a drawing or a table" }, h("option", { value: "" }, "save"), ...Object.keys(ways).map((name) => h("option", {}, name)));
  select.addEventListener("change", () => {
    ways[select.value]?.();
    select.value = "";
  });
  return select;
}

function plotPanel(context: Context, spec: PanelSpec): Panel {
  const plot = new Plot(context, spec);
  const pin = h("button", { class: "plain text", title: "Pin a cursor here, and show differences to it", "aria-label": "Differences to this moment", "aria-pressed": "false" }, "Δ");
  pin.addEventListener("click", () => pin.setAttribute("aria-pressed", String(plot.togglePin())));
  return {
    element: plot.element,
    title: [...new Set(plot.fields.map((field) => field.topic))].filter(Boolean).join(", "),
    controls: [
      h("button", { class: "plain text", title: "Add a formula over the lines", "aria-label": "Add a formula", onclick: () => plot.addFormula() }, "ƒ"),
      pin,
      h("button", { class: "plain text", title: "Minimum, maximum, mean, standard deviation and percentiles of the visible range", "aria-label": "Statistics of the visible range", onclick: () => plot.toggleFigures() }, "Σ"),
      saveChoice({ "PNG picture": () => plot.savePicture(), "SVG drawing": () => plot.saveVector(), "CSV table": () => plot.saveTable() }),
    ],
    spec: () => ({ kind: "plot", fields: plot.fields }),
    dispose: () => plot.dispose(),
  };
}

register({ kind: "plot", title: "Plot", make: plotPanel });
