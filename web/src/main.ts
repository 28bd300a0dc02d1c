import { Annotations } from "./annotations";
import { home } from "./base";
import { Connection } from "./connection";
import { View, type Context } from "./context";
import { controls } from "./controls";
import { empty, h, isDue } from "./dom";
import { Files } from "./files";
import { fleetList } from "./fleet";
import { type Clock, setDuration } from "./format";
import { listenToKeys } from "./keys";
import type { Tree } from "./first";
import { Layout } from "./layout";
import { Layouts, layoutOf, linkedLayout } from "./layouts";
import { followRobot } from "./live";
import { link } from "./link";
import { applyTheme, stored, store } from "./stored";
import "./style.css";
import { timeline } from "./timeline";
import { topBar } from "./top";
import { topicList } from "./topics";
import type { Summary } from "./types";

const app = document.getElementById("app") as HTMLElement;
const connection = new Connection();
const lost = h("div", { class: "lost", role: "alert", hidden: true }, "The connection to the server is lost. Retrying …");
document.body.append(lost);
applyTheme(stored("asof-theme") ?? "auto");
app.append(h("div", { class: "boot" }, empty("Opening", "the recording …")));

connection.on("connected", (isThere) => {
  lost.hidden = isThere;
  if (isThere) lost.textContent = "The connection to the server is lost. Retrying …";
});
let isBuilt: string | undefined;
connection.on("hello", (summary) => {
  // The server may have restarted with another recording.
  const key = `${summary.name} ${summary.start}`;
  if (isBuilt === undefined) void linkedLayout().then((linked) => build(summary, linked));
  else if (isBuilt !== key) location.reload();
  isBuilt = key;
});
connection.on("refused", (reason) => {
  lost.replaceChildren(`${reason[0].toUpperCase()}${reason.slice(1)}. `, h("a", { href: home }, "Back"), " ", h("a", { href: location.href, onclick: () => location.reload() }, "Reload"));
  if (isBuilt === undefined) app.replaceChildren(h("div", { class: "boot" }, empty("This recording is not open", reason)));
});
connection.connect();

/** Builds the page from the summary. */
function build(summary: Summary, linked: Tree | undefined): void {
  const isList = summary.name === "" && Boolean(summary.fleet);
  document.title = `${(isList ? summary.fleet : summary.name)?.split("/").filter(Boolean).pop() ?? ""} · asof`;
  setDuration(summary.live ? 0 : summary.duration);
  let clock = (stored("asof-clock") as Clock | undefined) ?? "relative";
  const setClock = (next: Clock) => {
    clock = next;
    store("asof-clock", next);
    dispatchEvent(new Event("asof-clock"));
  };
  const context: Context = {
    connection,
    summary,
    view: new View(Math.max(summary.duration, 1)),
    clock: () => clock,
    add: () => undefined,
    fieldsOf: () => undefined,
    save: () => undefined,
  };
  context.annotations = new Annotations(context);
  const files = new Files(context);
  const line = timeline(context);
  const sidebar = topicList(context, line.onDensity);
  const layout = layoutFor(context);
  // The previous layout can be restored by undo.
  if (linked && !layout.apply(linked)) connection.report("The layout in this link is not valid.");
  const address = link(context);
  const playing = controls(context, setClock);
  const layouts = new Layouts(layout, () => summary.topics, () => `t=${(connection.position() / 1e9).toFixed(3)}`, summary.layouts === true);
  const top = topBar(context, { layout, layouts, link: address, files });
  const damaged = "It is damaged; see the problems above. `asof recover` saves what can be saved.";
  const none =
    summary.name === ""
      ? empty("No recording is open", "Drop one onto this page, or press Open.")
      : empty("This recording has no messages", summary.problems.length > 0 ? damaged : "It is intact, but nothing was recorded.");
  const middle = summary.is_empty && !summary.live ? h("main", { class: "grid" }, none) : layout.element;
  if (isList) {
    // Nothing is open yet: no topics, no playback.
    app.replaceChildren(...top.elements, fleetList(context), top.errors);
    return;
  }
  app.replaceChildren(...top.elements, h("div", { class: "middle" }, sidebar, middle), h("footer", { class: "bottom" }, playing.element, line.element), top.errors);
  if (innerWidth < 900) document.body.classList.add("no-topics");
  addEventListener("asof-clock", line.redraw);
  if (summary.live) followRobot(context, playing.live, top.tellFacts);
  let drawnAt = -Infinity;
  const draw = () => {
    requestAnimationFrame(draw);
    if (!isDue(drawnAt)) return;
    drawnAt = performance.now();
    playing.tellTime();
    if (connection.state.state === "playing") line.redraw();
  };
  draw();
  listenToKeys(context, layout);
  if (summary.is_empty || (summary.live && !location.hash)) return;
  const isLinked = address.go();
  connection.send({ op: isLinked ? "pause" : "play" });
}

/** The layout: the server's file, or the one stored in this browser, or the initial one. */
function layoutFor(context: Context): Layout {
  const { summary } = context;
  const key = `asof-layout ${summary.name} ${summary.live ? "live" : summary.start}`;
  if (!summary.layout) return new Layout(context, key);
  // Changes of a file's layout are stored until the file changes.
  const own = `${key} ${hash(JSON.stringify(summary.layout))}`;
  const { tree, left } = layoutOf(summary.layout, summary.topics);
  const told = left.length > 0 ? `Not supported in this layout: ${[...new Set(left)].join(", ")}.` : "";
  if (told) queueMicrotask(() => connection.report(told));
  return new Layout(context, own, stored(own) === undefined ? tree : undefined);
}

/** A hash of a text. */
function hash(text: string): number {
  let value = 0;
  for (let at = 0; at < text.length; at++) value = (Math.imul(value, 31) + text.charCodeAt(at)) | 0;
  return value;
}
