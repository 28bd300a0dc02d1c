import { colored, withoutCodes } from "../ansi";
import { ask } from "../connection";
import type { Context, Panel, PanelSpec } from "../context";
import { empty, h } from "../dom";
import { time } from "../format";
import { register } from "../registry";
import type { Json, Shown } from "../types";

const LEVELS = ["debug", "info", "warn", "error", "fatal"];
/** The lines that are loaded before and after the current time; at first, as many as a panel shows. */
const SOME = 2500;
const FEW = 200;
/** The interval that is loaded first, in nanoseconds: quick even where a large recording has few log messages. */
const SOON = 10e9;

interface Line {
  t: number;
  level: number;
  words: string;
  element: HTMLElement;
  when: HTMLElement;
}

/** The log, filtered by level and text; it follows the current time. */
class Log {
  readonly least = h("select", { "aria-label": "Lowest level shown", title: "Lowest level shown" }, ...LEVELS.map((level, index) => h("option", { value: index }, level)));
  readonly words = h("input", { type: "search", placeholder: "Filter", "aria-label": "Filter the log" });
  readonly element: HTMLElement;
  private list: HTMLElement;
  private lines: Line[] = [];
  private shown: Line[] = [];
  private current = -1;
  private isFirst = true;
  private isLast = true;
  private isReading = false;
  private stops: (() => void)[] = [];

  constructor(
    private context: Context,
    readonly topic: string,
    level: number,
  ) {
    this.least.value = String(level);
    this.list = h("div", { class: "lines", role: "log", "aria-label": `Log ${topic}`, tabindex: 0 }, empty("Reading the log", topic));
    this.element = h("div", { class: "body log" }, this.list);
    this.least.addEventListener("change", () => (this.filter(), context.save()));
    this.words.addEventListener("input", () => this.filter());
    const clock = () => this.tellTimes();
    addEventListener("asof-clock", clock);
    const ticking = context.summary.live ? window.setInterval(() => void this.readOn(), 500) : 0;
    this.stops = [context.connection.on("state", () => this.follow()), () => removeEventListener("asof-clock", clock), () => clearInterval(ticking)];
    void this.start();
  }

  dispose(): void {
    this.stops.forEach((stop) => stop());
  }

  /** Loads the lines at the current time, then those around it. */
  private async start(): Promise<void> {
    const t = this.context.connection.position();
    await this.read(t, FEW, SOON);
    if (!this.context.summary.live) await this.read(t, SOME);
  }

  private times(): [number, number] {
    return [this.lines[0]?.t ?? Infinity, this.lines.at(-1)?.t ?? -Infinity];
  }

  private filter(): void {
    const { summary } = this.context;
    const text = this.words.value.toLowerCase();
    this.shown = this.lines.filter((line) => line.level >= Number(this.least.value) && line.words.includes(text));
    this.list.replaceChildren(...this.shown.map((line) => line.element));
    if (this.shown.length === 0)
      this.list.replaceChildren(
        this.lines.length === 0 ? empty(summary.live ? "Nothing was logged yet" : "Nothing was logged", `on ${this.topic}`) : empty("Nothing matches", "Choose a lower level or other words."),
      );
    this.current = -1;
    this.follow();
  }

  /** Marks the last line up to the current time. */
  private follow(): void {
    const t = this.context.connection.position();
    const [oldest, newest] = this.times();
    if (!this.isReading && ((t < oldest && !this.isFirst) || (t > newest && !this.isLast && !this.context.summary.live))) void this.read(t, SOME);
    let [low, high] = [0, this.shown.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.shown[middle].t <= t) low = middle + 1;
      else high = middle;
    }
    if (low - 1 === this.current) return;
    this.current = low - 1;
    this.shown.forEach((line, index) => {
      line.element.classList.toggle("later", index > this.current);
      line.element.classList.toggle("current", index === this.current);
    });
    const element = this.shown[this.current]?.element;
    if (!element) return void (this.list.scrollTop = 0);
    const top = element.offsetTop - this.list.offsetTop;
    if (top < this.list.scrollTop || top + element.offsetHeight > this.list.scrollTop + this.list.clientHeight)
      this.list.scrollTop = top - this.list.clientHeight + element.offsetHeight + 8;
  }

  /** Loads the lines around a time that is outside of the loaded ones. */
  private async read(t: number, some: number, within = Infinity): Promise<void> {
    this.isReading = true;
    try {
      const [topic, at] = [this.topic, Math.round(t)];
      const before = await ask<Shown[]>("messages", { topic, end: at, last: some });
      const after = await ask<Shown[]>("messages", { topic, start: at + 1, limit: some, ...(within < Infinity && { end: at + within }) });
      this.lines = [...before, ...after].map((one) => this.lineOf(one));
      this.isFirst = before.length < some;
      this.isLast = after.length < some && within === Infinity && !this.context.summary.live;
      // There may be lines further away.
      if (this.lines.length > 0 || within === Infinity) this.filter();
    } catch (error) {
      this.list.replaceChildren(empty("The log cannot be read", (error as Error).message));
    }
    this.isReading = false;
  }

  /** Adds a running robot's new lines, and removes those that have left the window. */
  private async readOn(): Promise<void> {
    if (this.isReading || document.hidden) return;
    this.isReading = true;
    try {
      const from = this.context.summary.window?.from ?? 0;
      const start = Math.max(this.times()[1] + 1, from);
      const more = (await ask<Shown[]>("messages", { topic: this.topic, start, limit: SOME })).map((one) => this.lineOf(one));
      const kept = [...this.lines, ...more].filter((line) => line.t >= from).slice(-2 * SOME);
      if (more.length > 0 || kept.length !== this.lines.length) {
        this.lines = kept;
        this.filter();
      }
    } catch {
      // The next poll tries again.
    }
    this.isReading = false;
  }

  private lineOf(message: Shown): Line {
    const data = (message.data ?? {}) as { [key: string]: Json };
    const level = levelOf(data.level ?? 1, message.type);
    const name = String(data.name ?? "");
    const text = message.error ?? String(data.msg ?? data.message ?? "");
    const when = h("span", { class: "when" });
    const element = h(
      "button",
      { class: `line ${LEVELS[level]}`, onclick: () => this.context.connection.seek(message.t) },
      when,
      h("span", { class: "level" }, LEVELS[level]),
      h("span", { class: "who" }, name),
      h("span", { class: "text" }, ...colored(text)),
    );
    const line = { t: message.t, level, words: `${name} ${withoutCodes(text)}`.toLowerCase(), element, when };
    this.tellTime(line);
    return line;
  }

  private tellTimes(): void {
    for (const line of this.lines) this.tellTime(line);
  }

  private tellTime({ t, element, when }: Line): void {
    const clock = this.context.clock();
    const text = time(t, clock, this.context.summary.start);
    when.textContent = clock === "relative" ? text.replace(" s", "") : text.slice(11);
    element.title = time(t, clock, this.context.summary.start, 6);
  }
}

/** The least number of each level, by package; all others count from one to five. */
const NUMBERS: Record<string, number[]> = { rcl_interfaces: [10, 20, 30, 40, 50], rosgraph_msgs: [1, 2, 4, 8, 16] };

/** The level of a message of this type; some use names. */
function levelOf(level: Json, type: string): number {
  if (typeof level === "string") return Math.max(0, LEVELS.findIndex((name) => level.toLowerCase().startsWith(name)));
  const least = NUMBERS[type.split(/[/.:]/)[0]] ?? [1, 2, 3, 4, 5];
  return Math.max(0, least.filter((one) => Number(level) >= one).length - 1);
}

function logPanel(context: Context, spec: PanelSpec): Panel {
  const log = new Log(context, spec.topic ?? "", Number(spec.options?.level ?? 0));
  return {
    element: log.element,
    title: log.topic,
    controls: [log.least, log.words],
    spec: () => ({ kind: "log", topic: log.topic, options: { level: Number(log.least.value) } }),
    dispose: () => log.dispose(),
  };
}

register({ kind: "log", title: "Log", make: logPanel, takes: (topic) => topic.role === "log" });
