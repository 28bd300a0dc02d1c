import type { Context, Panel, PanelSpec } from "../context";
import { empty, h } from "../dom";
import { exact, jsonWithin } from "../exact";
import { openFieldMenu } from "../fields";
import { bytes, time } from "../format";
import { register } from "../registry";
import type { Json, Shown } from "../types";

/** The most entries of a list that are drawn. */
const MOST = 500;
const YEAR = 365 * 86_400e9;

/** One message as a tree, with all digits of its values. A click on a name offers to plot the field. */
export class MessageTree {
  readonly element: HTMLElement;
  private head = h("div", { class: "message-head" });
  private tree = h("div", { class: "tree", tabindex: 0, role: "region", "aria-label": "Fields of the message" });
  private closed = new Set<string>();
  private shown?: Shown;
  private drawn = 0;
  private timer = 0;
  private stops: (() => void)[];

  constructor(
    private context: Context,
    readonly topic: string,
  ) {
    this.element = h("div", { class: "body raw" }, this.head, this.tree);
    this.tree.append(empty("Waiting", `for a message on ${topic}`));
    const clock = () => this.draw();
    addEventListener("asof-clock", clock);
    this.stops = [
      context.connection.subscribe(topic, "json", (message) => {
        this.shown = message;
        // At most ten updates per second.
        if (!this.timer) this.timer = window.setTimeout(() => this.draw(), Math.max(0, 100 - (performance.now() - this.drawn)));
      }),
      () => removeEventListener("asof-clock", clock),
      () => clearTimeout(this.timer),
    ];
  }

  dispose(): void {
    this.stops.forEach((stop) => stop());
  }

  private draw(): void {
    const { shown, context, topic } = this;
    this.timer = 0;
    this.drawn = performance.now();
    if (!shown) return;
    if (shown.op === "nothing") {
      this.head.replaceChildren();
      return this.tree.replaceChildren(empty("Nothing yet", context.summary.live ? `${topic} has no message yet.` : `${topic} has no message up to this time; play on or seek further.`));
    }
    this.head.replaceChildren(
      h("span", {}, shown.type || "no type"),
      h("span", {}, time(shown.t, context.clock(), context.summary.start, 6)),
      h("span", {}, bytes(shown.size)),
    );
    if (shown.error) return this.tree.replaceChildren(empty("This message cannot be decoded", shown.error));
    this.take(this.entries(shown.data ?? null, ""));
  }

  /** Updates the entries. Where only values differ, the elements stay and keep their focus. */
  private take(entries: HTMLElement[]): void {
    const changing = (root: ParentNode) => [...root.querySelectorAll<HTMLElement>("[data-path]")];
    const fresh = h("div", {}, ...entries);
    const [before, after] = [changing(this.tree), changing(fresh)];
    const isSame = before.length > 0 && before.length === after.length && before.every((one, at) => one.dataset.path === after[at].dataset.path && one.className === after[at].className);
    if (!isSame) return this.tree.replaceChildren(...entries);
    before.forEach((one, at) => {
      if (one.textContent !== after[at].textContent) one.textContent = after[at].textContent;
    });
  }

  /** `path` is undefined within JSON in a text, whose fields cannot be plotted. */
  private entries(value: Json, path: string | undefined): HTMLElement[] {
    if (value === null || typeof value !== "object") return [this.leaf("value", path, value)];
    const all: [string, Json][] = Array.isArray(value) ? value.map((one, index) => [`[${index}]`, one]) : Object.entries(value);
    const shown = all.slice(0, MOST).map(([name, one]) => {
      const own = path === undefined ? undefined : name.startsWith("[") ? path + name : path ? `${path}.${name}` : name;
      const within = jsonWithin(one);
      if (within !== undefined) return this.folded(name, own, within, typeof one === "string" ? "JSON in a text" : "JSON in bytes");
      return one === null || typeof one !== "object" ? this.leaf(name, own, one) : this.branch(name, own, one);
    });
    if (all.length > MOST) shown.push(h("div", { class: "faint" }, `… ${all.length - MOST} more`));
    return shown;
  }

  /** JSON within a text or bytes. */
  private folded(name: string, path: string | undefined, value: Json, note: string): HTMLElement {
    const details = h("details", { open: !this.closed.has(`${path}`) });
    details.addEventListener("toggle", () => (details.open ? this.closed.delete(`${path}`) : this.closed.add(`${path}`)));
    details.append(h("summary", {}, this.label(name, path), h("span", { class: "faint" }, note)), h("div", { class: "inner" }, ...this.entries(value, undefined)));
    return details;
  }

  private branch(name: string, path: string | undefined, value: Json): HTMLElement {
    const size = Array.isArray(value) ? value.length : Object.keys(value as object).length;
    // Long lists of numbers are shown as one line.
    const flat = Array.isArray(value) && value.every((one) => one === null || typeof one !== "object");
    const key = `${path} ${name}`;
    const details = h("details", { open: !this.closed.has(key) && !(flat && size > 12) });
    details.addEventListener("toggle", () => (details.open ? this.closed.delete(key) : this.closed.add(key)));
    const note = this.asTime(value) ?? (Array.isArray(value) ? `[${size}]` : "");
    details.append(h("summary", {}, this.label(name, path), h("span", { class: "faint note", "data-path": key }, note)));
    if (flat && Array.isArray(value))
      details.append(h("div", { class: "numbers", "data-path": key }, value.slice(0, 400).map((one) => (typeof one === "string" ? one : exact(one))).join(", ") + (size > 400 ? " …" : "")));
    else details.append(h("div", { class: "inner" }, ...this.entries(value, path)));
    return details;
  }

  private leaf(name: string, path: string | undefined, value: Json): HTMLElement {
    const kind = typeof value === "bigint" ? "number" : typeof value;
    return h("div", { class: "leaf" }, this.label(name, path, kind), h("span", { class: `value ${kind}`, "data-path": `${path} ${name}` }, exact(value)));
  }

  private label(name: string, path: string | undefined, kind = ""): HTMLElement {
    if (!path || (kind !== "number" && kind !== "boolean")) return h("span", { class: "key", title: `${this.topic}.${path ?? name}` }, name);
    const open = (event: Event) => openFieldMenu(this.context, event.currentTarget as HTMLElement, { topic: this.topic, path });
    return h("button", { class: "key", title: `Plot ${path}`, "aria-haspopup": "menu", onclick: open }, name);
  }

  /** Stamps and durations of ROS and protobuf, formatted. */
  private asTime(value: Json): string | undefined {
    if (!value || typeof value !== "object" || Array.isArray(value) || Object.keys(value).length !== 2) return undefined;
    const seconds = value.sec ?? value.seconds;
    const nanos = value.nanosec ?? value.nsec ?? value.nanos;
    if (typeof seconds !== "number" || typeof nanos !== "number") return undefined;
    if (seconds < 1e8) return `${(seconds + nanos / 1e9).toFixed(6)} s`;
    const { summary, clock } = this.context;
    const at = Number(BigInt(seconds) * 1_000_000_000n + BigInt(nanos) - BigInt(summary.start));
    // A time of another clock means nothing since the start.
    const isNear = Math.abs(at) < summary.duration + YEAR;
    return time(at, isNear ? clock() : "utc", summary.start, 6);
  }
}

function rawPanel(context: Context, spec: PanelSpec): Panel {
  const message = new MessageTree(context, spec.topic ?? "");
  return { element: message.element, title: message.topic, spec: () => ({ kind: "raw", topic: message.topic }), dispose: () => message.dispose() };
}

register({ kind: "raw", title: "Message", make: rawPanel, takes: () => true });
