import { ask } from "../connection";
import type { Context, Panel, PanelSpec } from "../context";
import { empty, h } from "../dom";
import { exact, parseExact } from "../exact";
import { broken, openFieldMenu } from "../fields";
import { time } from "../format";
import { register } from "../registry";
import type { Json, Shown } from "../types";

/** The most messages and columns, and the shortest time between updates, in milliseconds. */
const ROWS = 100;
const COLUMNS = 40;
const PAUSE = 400;

/** The last messages of a topic up to the current time: a row each, a column for each field. */
class MessageTable {
  readonly element: HTMLElement;
  private head = h("thead");
  private rows = h("tbody");
  private table = h("table", {}, this.head, this.rows);
  private more = h("div");
  private read = NaN;
  private isReading = false;
  private timer = 0;
  private shown: Shown[] = [];
  private stops: (() => void)[];

  constructor(
    private context: Context,
    readonly topic: string,
  ) {
    this.element = h("div", { class: "body table", tabindex: 0, role: "region", "aria-label": `Messages on ${topic}` }, empty("Reading", `the messages on ${topic}`));
    const clock = () => this.draw();
    addEventListener("asof-clock", clock);
    this.stops = [context.connection.on("state", () => this.later()), () => removeEventListener("asof-clock", clock), () => clearTimeout(this.timer)];
    void this.renew();
  }

  dispose(): void {
    this.stops.forEach((stop) => stop());
  }

  private later(): void {
    if (this.timer) return;
    this.timer = window.setTimeout(() => {
      this.timer = 0;
      void this.renew();
    }, PAUSE);
  }

  private async renew(): Promise<void> {
    const t = Math.round(this.context.connection.position());
    if (this.isReading) return this.later();
    if (t === this.read) return;
    this.isReading = true;
    try {
      this.shown = await ask<Shown[]>("messages", { topic: this.topic, end: t, last: ROWS }, undefined, parseExact);
      this.read = t;
      this.draw();
    } catch (error) {
      this.element.replaceChildren(empty("The messages cannot be read", (error as Error).message));
    }
    this.isReading = false;
  }

  private draw(): void {
    const { context, shown, topic } = this;
    if (shown.length === 0) return this.element.replaceChildren(empty("Nothing yet", `${topic} has no message up to this time.`));
    const rows = shown.map((one) => flat(one.data ?? null)).reverse();
    const all = [...new Set(rows.flatMap((row) => [...row.keys()]))];
    const names = all.slice(0, COLUMNS);
    const when = (t: number) => time(t, context.clock(), context.summary.start, 6);
    const body = rows.map((row, index) => {
      const message = shown[shown.length - 1 - index];
      const go = h("button", { class: "plain text", title: "Go there", onclick: () => context.connection.seek(message.t) }, when(message.t));
      return h("tr", {}, h("th", { scope: "row" }, go), ...names.map((name) => h("td", {}, message.error && name === names[0] ? message.error : cell(row.get(name)))));
    });
    const isNumber = (name: string) => rows.some((row) => ["number", "bigint", "boolean"].includes(typeof row.get(name)));
    const title = (name: string) => {
      const open = (event: Event) => openFieldMenu(context, event.currentTarget as HTMLElement, { topic, path: name });
      return isNumber(name) && name !== "value" ? h("button", { class: "key", title: `Plot ${name}`, "aria-haspopup": "menu", onclick: open }, ...broken(name)) : h("span", {}, ...broken(name));
    };
    const key = names.map((name) => `${name} ${isNumber(name)}`).join("\n");
    // The head is not replaced: it may have the focus.
    if (this.head.dataset.key !== key) this.head.replaceChildren(h("tr", {}, h("th", { scope: "col" }, "time"), ...names.map((name) => h("th", { scope: "col" }, title(name)))));
    this.head.dataset.key = key;
    const more = all.length > names.length ? h("p", { class: "faint" }, `${all.length - names.length} more fields are not shown; the panel Message has all.`) : "";
    this.rows.replaceChildren(...body);
    this.more.replaceChildren(more);
    if (!this.table.isConnected) this.element.replaceChildren(this.table, this.more);
  }
}

/** The fields of a message by their paths; a list is one field. */
function flat(value: Json, path = "", into = new Map<string, Json>()): Map<string, Json> {
  if (value && typeof value === "object" && !Array.isArray(value)) for (const [name, one] of Object.entries(value)) flat(one, path ? `${path}.${name}` : name, into);
  else into.set(path || "value", value);
  return into;
}

function cell(value: Json | undefined): string {
  if (value === undefined || value === null) return "";
  if (Array.isArray(value)) return `[${value.length}] ${exact(value.slice(0, 4)).slice(1, 60)}`;
  return typeof value === "string" ? value.slice(0, 120) : exact(value);
}

function tablePanel(context: Context, spec: PanelSpec): Panel {
  const table = new MessageTable(context, spec.topic ?? "");
  return { element: table.element, title: table.topic, spec: () => ({ kind: "table", topic: table.topic }), dispose: () => table.dispose() };
}

register({ kind: "table", title: "Table", make: tablePanel, takes: () => true });
