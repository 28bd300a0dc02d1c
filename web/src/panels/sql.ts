import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { ask } from "../connection";
import type { Context, Panel, PanelSpec } from "../context";
import { SERIES, color, empty, h } from "../dom";
import { exact, parseExact } from "../exact";
import { count, counted, numbers, time } from "../format";
import { register } from "../registry";

type Cell = number | bigint | string | null;

interface Answer {
  columns: { name: string; kind: "time" | "number" | "text" }[];
  rows: Cell[][];
  /** Why rows are missing. */
  cut: string | null;
}

/** The most rows of the table; a plot has all. */
const MOST_SHOWN = 1000;
const FIRST = "SELECT topic, type, messages FROM topics ORDER BY messages DESC";

/** A query, its answer as a table, and a plot of it. */
class SqlPanel {
  readonly element: HTMLElement;
  private text = h("textarea", { class: "query", rows: 3, spellcheck: "false", "aria-label": "Query in SQL", title: "Ctrl-Enter runs it" });
  private run = h("button", { class: "plain text run", onclick: () => this.toggle() }, "Run");
  private form = h("button", { class: "plain text", "aria-pressed": "false", onclick: () => this.setPlotted(!this.isPlotted) }, "Plot");
  private note = h("span", { class: "faint", role: "status" });
  private area = h("div", { class: "answer table", tabindex: 0, role: "region", "aria-label": "Answer" });
  private running?: AbortController;
  private answer?: Answer;
  private plot?: uPlot;
  private isPlotted: boolean;
  private resized = new ResizeObserver(() => this.plot?.setSize(this.size()));
  private redraw = () => this.draw();

  constructor(
    private context: Context,
    spec: PanelSpec,
  ) {
    this.text.value = String(spec.options?.query ?? FIRST);
    this.isPlotted = spec.options?.plot === true;
    this.element = h("div", { class: "body sql" }, this.text, h("div", { class: "sql-bar" }, this.run, this.form, this.note), this.area);
    this.text.addEventListener("keydown", (event) => {
      // The page's keys do not apply while typing.
      event.stopPropagation();
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) void this.start();
      if (event.key === "Escape") this.running?.abort();
    });
    this.area.append(empty("A query in SQL", "Every topic is a table: SELECT log_time, pose.pose.position.x FROM \"/odom\"."));
    this.resized.observe(this.area);
    addEventListener("asof-clock", this.redraw);
    addEventListener("asof-theme", this.redraw);
  }

  spec(): PanelSpec {
    return { kind: "sql", options: { query: this.text.value, plot: this.isPlotted } };
  }

  dispose(): void {
    this.running?.abort();
    this.resized.disconnect();
    this.plot?.destroy();
    removeEventListener("asof-clock", this.redraw);
    removeEventListener("asof-theme", this.redraw);
  }

  private toggle(): void {
    if (this.running) this.running.abort();
    else void this.start();
  }

  private async start(): Promise<void> {
    this.running?.abort();
    const own = new AbortController();
    this.running = own;
    this.run.textContent = "Cancel";
    this.note.textContent = "running …";
    this.context.save();
    const since = performance.now();
    let said: string;
    try {
      const answer = await ask<Answer>("sql", { query: this.text.value }, own.signal, parseExact);
      this.answer = answer;
      const seconds = ((performance.now() - since) / 1000).toFixed(2);
      said = `${counted(answer.rows.length, "row")} in ${seconds} s${answer.cut ? `; ${answer.cut}` : ""}`;
      this.draw();
    } catch (error) {
      said = own.signal.aborted ? "cancelled" : "";
      if (!own.signal.aborted) this.show(empty("No answer", error instanceof Error ? error.message : String(error)));
    }
    if (this.running !== own) return;
    this.running = undefined;
    this.run.textContent = "Run";
    this.note.textContent = said;
  }

  private setPlotted(isPlotted: boolean): void {
    this.isPlotted = isPlotted;
    this.context.save();
    this.draw();
  }

  private show(...content: HTMLElement[]): void {
    this.plot?.destroy();
    this.plot = undefined;
    this.area.replaceChildren(...content);
    this.area.scrollTop = 0;
  }

  private draw(): void {
    this.form.setAttribute("aria-pressed", String(this.isPlotted));
    const { answer } = this;
    if (!answer) return;
    if (this.isPlotted) this.drawPlot(answer);
    else this.drawTable(answer);
  }

  private drawTable({ columns, rows }: Answer): void {
    const cell = (value: Cell, index: number) => {
      if (value === null) return h("td", { class: "faint" }, "NULL");
      const { kind } = columns[index];
      if (kind === "time") return this.timeCell(Number(value));
      return h("td", { class: kind }, typeof value === "string" ? value : exact(value));
    };
    const body = rows.slice(0, MOST_SHOWN).map((row) => h("tr", {}, ...row.map(cell)));
    const head = h("tr", {}, ...columns.map(({ name, kind }) => h("th", { class: kind, scope: "col" }, name)));
    const more = rows.length > MOST_SHOWN ? [h("div", { class: "faint" }, `… ${count(rows.length - MOST_SHOWN)} rows more; a plot has them all`)] : [];
    this.show(h("table", {}, h("thead", {}, head), h("tbody", {}, ...body)), ...more);
  }

  /** A time as a link. */
  private timeCell(t: number): HTMLElement {
    const { connection, clock, summary } = this.context;
    const go = h("button", { class: "plain text", title: "Go there", onclick: () => connection.seek(t) }, time(t, clock(), summary.start, 6));
    return h("td", { class: "time" }, go);
  }

  /** Plots numbers over the first time column, or over the first number. */
  private drawPlot({ columns, rows }: Answer): void {
    const places = columns.map((_, index) => index);
    const numeric = places.filter((index) => columns[index].kind === "number");
    const at = places.find((index) => columns[index].kind === "time") ?? numeric[0];
    const shown = numeric.filter((index) => index !== at);
    if (at === undefined || shown.length === 0 || rows.length === 0)
      return this.show(empty("Nothing to plot", "A plot needs rows with a time, or a number, and another number beside it."));
    const isTime = columns[at].kind === "time";
    const value = (row: Cell[], index: number) => (typeof row[index] === "number" ? (row[index] as number) : null);
    const sorted = rows.filter((row) => value(row, at) !== null).sort((a, b) => (a[at] as number) - (b[at] as number));
    const x = sorted.map((row) => (row[at] as number) / (isTime ? 1e9 : 1));
    const lines = shown.map((index) => sorted.map((row) => value(row, index)));
    const axis = { stroke: color("faint"), grid: { stroke: color("line"), width: 1 }, ticks: { stroke: color("line") }, font: "11px system-ui, sans-serif" };
    const values = (_: uPlot, splits: number[]) => numbers(splits);
    const series = shown.map((index, place) => ({ label: columns[index].name, stroke: SERIES[place % SERIES.length], width: 1.5, spanGaps: true, points: { show: sorted.length < 200 } }));
    this.show();
    this.plot = new uPlot(
      {
        ...this.size(),
        scales: { x: { time: false } },
        axes: [{ ...axis, size: 28, values }, { ...axis, size: 56, values }],
        series: [{ label: columns[at].name }, ...series],
      },
      [x, ...lines] as uPlot.AlignedData,
      this.area,
    );
  }

  /** The room for a plot, without its legend. */
  private size(): { width: number; height: number } {
    return { width: Math.max(this.area.clientWidth - 8, 60), height: Math.max(this.area.clientHeight - 40, 60) };
  }
}

function sqlPanel(context: Context, spec: PanelSpec): Panel {
  const panel = new SqlPanel(context, spec);
  return { element: panel.element, title: "", spec: () => panel.spec(), dispose: () => panel.dispose() };
}

register({ kind: "sql", title: "SQL", make: sqlPanel, isThere: (summary) => summary.sql === true });
