import { ask } from "../connection";
import type { Context, Panel, PanelSpec } from "../context";
import { empty, h } from "../dom";
import { time } from "../format";
import type { Json, Shown } from "../types";

const LEVELS = ["debug", "info", "warn", "error", "fatal"];

interface Line {
  t: number;
  level: number;
  name: string;
  text: string;
  element: HTMLElement;
}

/** What the robot's programs said, by level and words; it follows the position. */
export function logPanel(context: Context, spec: PanelSpec): Panel {
  const { connection, summary } = context;
  const topic = spec.topic ?? "";
  const least = h("select", { "aria-label": "Least level shown" }, ...LEVELS.map((level, index) => h("option", { value: index }, level)));
  least.value = String(spec.options?.level ?? 0);
  const words = h("input", { type: "search", placeholder: "Filter", "aria-label": "Filter the log" });
  const list = h("div", { class: "lines", role: "log", "aria-label": `Log ${topic}` });
  const element = h("div", { class: "body log" }, list);
  let lines: Line[] = [];
  let shown: Line[] = [];
  let current = -1;

  const filter = () => {
    const text = words.value.toLowerCase();
    shown = lines.filter((line) => line.level >= Number(least.value) && `${line.name} ${line.text}`.toLowerCase().includes(text));
    list.replaceChildren(...shown.map((line) => line.element));
    if (shown.length === 0)
      list.replaceChildren(lines.length === 0 ? empty(summary.live ? "Nothing was logged yet" : "Nothing was logged", `on ${topic}`) : empty("Nothing matches", "Choose a lower level or other words."));
    current = -1;
    follow();
  };

  /** Marks the last line that was there by now. */
  const follow = () => {
    const t = connection.position();
    const [oldest, newest] = times();
    if (!isReading && ((t < oldest && !isFirst) || (t > newest && !isLast && !summary.live))) void read(t);
    let low = 0;
    let high = shown.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (shown[middle].t <= t) low = middle + 1;
      else high = middle;
    }
    const at = low - 1;
    if (at === current) return;
    current = at;
    shown.forEach((line, index) => {
      line.element.classList.toggle("later", index > at);
      line.element.classList.toggle("current", index === at);
    });
    const element = shown[at]?.element;
    if (!element) return void (list.scrollTop = 0);
    const top = element.offsetTop - list.offsetTop;
    if (top < list.scrollTop || top + element.offsetHeight > list.scrollTop + list.clientHeight)
      list.scrollTop = top - list.clientHeight + element.offsetHeight + 8;
  };

  /** So many lines are held before the position, and as many behind it. */
  const SOME = 2500;
  let isFirst = true;
  let isLast = true;
  let isReading = false;
  const times = () => [lines[0]?.t ?? Infinity, lines[lines.length - 1]?.t ?? -Infinity];

  /** Reads the lines around a time, where those that are held end before it or start behind it. */
  const read = async (t: number) => {
    isReading = true;
    try {
      const at = Math.round(t);
      const before = await ask<Shown[]>("messages", { topic, end: at, last: SOME });
      const after = await ask<Shown[]>("messages", { topic, start: at + 1, limit: SOME });
      lines = [...before, ...after].map(lineOf);
      isFirst = before.length < SOME;
      isLast = after.length < SOME && !summary.live;
      filter();
    } catch (error) {
      list.replaceChildren(empty("The log cannot be read", (error as Error).message));
    }
    isReading = false;
  };

  /** Lines that have come since, of a running robot; those that have left the window go. */
  const readOn = async () => {
    if (isReading || document.hidden) return;
    isReading = true;
    try {
      const [, newest] = times();
      const start = Math.max(newest + 1, summary.window?.from ?? 0);
      const more = (await ask<Shown[]>("messages", { topic, start, limit: SOME })).map(lineOf);
      const from = summary.window?.from ?? 0;
      const kept = [...lines, ...more].filter((line) => line.t >= from).slice(-2 * SOME);
      if (more.length > 0 || kept.length !== lines.length) {
        lines = kept;
        filter();
      }
    } catch {
      // It is asked again.
    }
    isReading = false;
  };
  const ticking = summary.live ? window.setInterval(() => void readOn(), 500) : 0;

  const lineOf = (message: Shown): Line => {
    const data = (message.data ?? {}) as { [key: string]: Json };
    const level = levelOf(data.level ?? 1);
    const name = String(data.name ?? "");
    const text = message.error ?? String(data.msg ?? data.message ?? "");
    const element = h(
      "button",
      { class: `line ${LEVELS[level]}`, onclick: () => connection.seek(message.t) },
      h("span", { class: "when" }, (message.t / 1e9).toFixed(3)),
      h("span", { class: "level" }, LEVELS[level]),
      h("span", { class: "who" }, name),
      h("span", { class: "text" }, text),
    );
    element.title = time(message.t, context.clock(), summary.start, 6);
    return { t: message.t, level, name, text, element };
  };

  least.addEventListener("change", () => (filter(), context.save()));
  words.addEventListener("input", filter);
  const stop = connection.on("state", follow);
  list.append(empty("Reading the log", topic));
  void read(connection.position());
  return {
    element,
    title: topic,
    controls: [least, words],
    spec: () => ({ kind: "log", topic, options: { level: Number(least.value) } }),
    dispose: () => (stop(), clearInterval(ticking)),
  };
}

/** ROS 2 counts in tens, ROS 1 in powers of two, Foxglove from one; names are names. */
function levelOf(level: Json): number {
  if (typeof level === "string") return Math.max(0, LEVELS.findIndex((name) => level.toLowerCase().startsWith(name)));
  const value = Number(level);
  if (value >= 10 && value % 10 === 0) return Math.min(value / 10 - 1, 4);
  const ros1 = [1, 2, 4, 8, 16].indexOf(value);
  return ros1 >= 0 ? ros1 : Math.max(0, Math.min(value - 1, 4));
}
