import { Connection } from "./connection";
import { View, type Context } from "./context";
import { controls } from "./controls";
import { empty, h } from "./dom";
import type { Clock } from "./format";
import { listenToKeys } from "./keys";
import { Layout } from "./layout";
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
const lost = h("div", { class: "lost", role: "alert", hidden: true }, "The server has gone. Trying again …");
document.body.append(lost);
applyTheme(stored("asof-theme") ?? "auto");
app.append(h("div", { class: "boot" }, empty("Opening", "the recording …")));

connection.on("connected", (isThere) => (lost.hidden = isThere));
let isBuilt: string | undefined;
connection.on("hello", (summary) => {
  // The server may have come back with another recording.
  const key = `${summary.name} ${summary.start}`;
  if (isBuilt === undefined) build(summary);
  else if (isBuilt !== key) location.reload();
  isBuilt = key;
});
connection.connect();

/** Puts the page together, once it is known what there is to show. */
function build(summary: Summary): void {
  document.title = `${summary.name.split("/").pop()} · asof`;
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
    save: () => undefined,
  };
  const line = timeline(context);
  const sidebar = topicList(context, line.onDensity);
  const layout = new Layout(context, `asof-layout ${summary.name} ${summary.live ? "live" : summary.start}`);
  const address = link(context);
  const playing = controls(context, setClock);
  const top = topBar(context, layout, address);
  const damaged = "It is damaged; see the problems above. `asof recover` saves what can be saved.";
  const middle =
    summary.is_empty && !summary.live
      ? h("main", { class: "grid" }, empty("This recording has no messages", summary.problems.length > 0 ? damaged : "It was opened without trouble, but nothing was recorded into it."))
      : layout.element;
  app.replaceChildren(...top.elements, h("div", { class: "middle" }, sidebar, middle), h("footer", { class: "bottom" }, playing.element, line.element), top.errors);
  if (innerWidth < 900) document.body.classList.add("no-topics");
  addEventListener("asof-clock", line.redraw);
  if (summary.live) followRobot(context, playing.live, top.tellFacts);
  const draw = () => {
    playing.tellTime();
    if (connection.state.state === "playing") line.redraw();
    requestAnimationFrame(draw);
  };
  draw();
  listenToKeys(context);
  if (summary.is_empty || (summary.live && !location.hash)) return;
  const isLinked = address.go();
  connection.send({ op: isLinked ? "pause" : "play" });
}
