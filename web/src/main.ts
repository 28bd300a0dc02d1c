import { Connection } from "./connection";
import { View, type Context } from "./context";
import { button, empty, h } from "./dom";
import { bytes, count, span, time, type Clock } from "./format";
import { Layout } from "./layout";
import "./style.css";
import { timeline } from "./timeline";
import { topicList } from "./topics";
import type { Problem, Summary } from "./types";

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

function build(summary: Summary): void {
  document.title = `${summary.name.split("/").pop()} · asof`;
  let clock = (stored("asof-clock") as Clock | undefined) ?? "relative";
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

  const now = h("output", { class: "now-time", "aria-label": "Time" });
  const play = button("play", "Play (space)", () => connection.toggle(), "play");
  const speed = h(
    "select",
    { "aria-label": "Speed", title: "Speed" },
    ...[0.1, 0.25, 0.5, 1, 2, 5, 10].map((one) => h("option", { value: one }, `${one}×`)),
    h("option", { value: "" }, "max"),
  );
  speed.value = "1";
  speed.addEventListener("change", () => connection.send({ op: "speed", times: speed.value === "" ? null : Number(speed.value) }));
  const loop = button("loop", "Start over at the end", () => connection.send({ op: "loop", on: !connection.state.loop }));
  const together = button("people", "Play together with other windows", () => connection.send({ op: "together", on: !connection.state.together }));
  const clocks = h(
    "select",
    { "aria-label": "How times are shown", title: "How times are shown" },
    h("option", { value: "relative" }, "since start"),
    h("option", { value: "utc" }, "UTC"),
    h("option", { value: "local" }, "local"),
  );
  clocks.value = clock;
  clocks.addEventListener("change", () => {
    clock = clocks.value as Clock;
    store("asof-clock", clock);
    tellTime();
    line.redraw();
    dispatchEvent(new Event("asof-theme"));
  });
  const step = (back: boolean) => () => connection.send({ op: "step", back });
  const dropped = h("span", { class: "dropped", hidden: true });
  const live = h("button", { class: "live", title: "Follow the robot (end)", "aria-pressed": "true", onclick: () => connection.toEnd() }, "LIVE");
  const gone = h("span", { class: "dropped", role: "status", hidden: true }, "This moment has left the window");
  const controls = h(
    "div",
    { class: "controls", role: "toolbar", "aria-label": "Playing" },
    button("first", "To the start (home)", () => connection.seek(context.view.from)),
    button("previous", "One message back (,)", step(true)),
    play,
    button("next", "One message on (.)", step(false)),
    button("last", summary.live ? "To the newest (end)" : "To the end (end)", () => connection.toEnd()),
    ...(summary.live ? [live] : []),
    speed,
    ...(summary.live ? [] : [loop, together]),
    now,
    clocks,
    gone,
    dropped,
  );
  const problems = h("button", { class: "problems", hidden: true, "aria-expanded": "false" });
  const drawer = h("div", { class: "drawer", hidden: true, role: "region", "aria-label": "Problems of this recording" });
  problems.addEventListener("click", () => {
    drawer.hidden = !drawer.hidden;
    problems.setAttribute("aria-expanded", String(!drawer.hidden));
  });
  const facts = h("span", { class: "facts" });
  const tellFacts = () => {
    const held = summary.window;
    const all = held
      ? [held.age === null ? "" : `the last ${span(held.age)}`, bytes(held.bytes), `${count(held.messages)} messages`, held.left > 0 ? `${count(held.left)} have left` : ""]
      : [summary.format, bytes(summary.size), `${count(summary.messages)} messages`, `${(summary.duration / 1e9).toFixed(1)} s`];
    facts.textContent = all.filter(Boolean).join(" · ");
    facts.title = held && held.crowded_out > 0 ? `${count(held.crowded_out)} of them left early: the memory for the window is full (--cache)` : "";
  };
  tellFacts();
  const share = button("link", "Copy a link to this moment", () => {
    setLink();
    void navigator.clipboard?.writeText(location.href);
    share.animate([{ color: "var(--accent)" }, { color: "inherit" }], 700);
  });
  const top = h(
    "header",
    { class: "top" },
    button("menu", "Show or hide the topics", () => document.body.classList.toggle("no-topics")),
    h("strong", { class: "brand" }, "asof"),
    h("span", { class: "name", title: summary.name }, summary.name.split("/").pop() ?? ""),
    facts,
    problems,
    h("span", { class: "space" }),
    h("button", { class: "plain text", onclick: () => layout.reset() }, "Reset layout"),
    share,
    button("theme", "Light or dark", () => {
      const dark = document.documentElement.dataset.theme === "dark";
      store("asof-theme", dark ? "light" : "dark");
      applyTheme(dark ? "light" : "dark");
    }),
  );
  const showProblems = (all: Problem[]) => {
    problems.hidden = all.length === 0;
    problems.textContent = `⚠ ${all.length} ${all.length === 1 ? "problem" : "problems"}`;
    drawer.replaceChildren(
      h("h2", {}, "Problems of this recording"),
      h("p", {}, "What could be read is shown; this could not, or not fully."),
      h(
        "ul",
        {},
        ...all.map((one) =>
          h("li", {}, h("b", {}, one.kind.replaceAll("_", " ")), " ", one.message, h("span", { class: "faint" }, [one.topic, one.offset === null ? "" : `byte ${one.offset}`].filter(Boolean).join(", "))),
        ),
      ),
    );
  };
  showProblems(summary.problems);
  connection.on("problems", showProblems);
  const errors = h("div", { class: "toast", role: "alert", hidden: true });
  let errorTimer = 0;
  connection.on("error", (text) => {
    errors.textContent = text;
    errors.hidden = false;
    clearTimeout(errorTimer);
    errorTimer = window.setTimeout(() => (errors.hidden = true), 6000);
  });

  const middle = summary.is_empty && !summary.live
    ? h("main", { class: "grid" }, empty("This recording has no messages", summary.problems.length > 0 ? "It is damaged; see the problems above. `asof recover` saves what can be saved." : "It was opened without trouble, but nothing was recorded into it."))
    : layout.element;
  app.replaceChildren(top, drawer, h("div", { class: "middle" }, sidebar, middle), h("footer", { class: "bottom" }, controls, line.element), errors);
  if (innerWidth < 900) document.body.classList.add("no-topics");

  const tellTime = () => {
    now.textContent = time(connection.position(), clock, summary.start);
  };
  let wasPlaying: boolean | undefined;
  connection.on("state", (state) => {
    const isPlaying = state.state === "playing" || state.state === "buffering";
    if (isPlaying !== wasPlaying) {
      if (wasPlaying && !isPlaying) setLink();
      wasPlaying = isPlaying;
      const next = button(isPlaying ? "pause" : "play", isPlaying ? "Pause (space)" : "Play (space)", () => undefined);
      play.replaceChildren(...next.childNodes);
      play.setAttribute("aria-label", next.getAttribute("aria-label") ?? "");
      play.title = play.getAttribute("aria-label") ?? "";
    }
    play.classList.toggle("waiting", state.state === "buffering");
    loop.classList.toggle("on", state.loop);
    loop.setAttribute("aria-pressed", String(state.loop));
    together.classList.toggle("on", state.together);
    together.setAttribute("aria-pressed", String(state.together));
    speed.value = state.speed === null ? "" : String(state.speed);
    const lostOnes = Object.values(state.dropped).reduce((a, b) => a + b, 0);
    dropped.hidden = lostOnes === 0;
    dropped.textContent = `${count(lostOnes)} left out`;
    dropped.title = "This window was too slow for them; the latest of each topic was shown instead.";
    document.documentElement.dataset.state = state.state;
    live.setAttribute("aria-pressed", String(Boolean(state.following)));
    gone.hidden = !state.gone;
  });
  if (summary.live) {
    const follow = () => {
      const held = summary.window;
      if (!held) return;
      const to = Math.max(held.to, connection.state.following ? connection.state.t : held.to, 1);
      // It grows by doubling, so that what has been drawn stays where it is for a while.
      let length = 1e10;
      const most = held.age ?? Infinity;
      while (length < Math.min(to - held.from, most)) length *= 2;
      context.view.move(to - Math.min(length, most), to, Boolean(connection.state.following));
    };
    follow();
    connection.on("window", (held) => {
      tellFacts();
      live.classList.toggle("away", !held.connected);
      live.textContent = held.connected ? "LIVE" : "NO ROBOT";
      live.title = held.connected ? "Follow the robot (end)" : "Nobody answers; trying again until somebody does";
      follow();
    });
    let wasAt = 0;
    connection.on("state", () => {
      if (!connection.state.following || performance.now() - wasAt < 66) return;
      wasAt = performance.now();
      follow();
    });
  }
  const draw = () => {
    tellTime();
    if (connection.state.state === "playing") line.redraw();
    requestAnimationFrame(draw);
  };
  draw();

  const setLink = () => history.replaceState(null, "", `#t=${(connection.position() / 1e9).toFixed(3)}`);
  const goToLink = () => {
    const t = new URLSearchParams(location.hash.slice(1)).get("t");
    if (t === null || !Number.isFinite(Number(t))) return false;
    connection.seek(Number(t) * 1e9);
    return true;
  };
  addEventListener("hashchange", goToLink);
  addEventListener("keydown", (event) => {
    const target = event.target as HTMLElement;
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName)) return;
    const second = event.shiftKey ? 1e10 : 1e9;
    const actions: Record<string, () => void> = {
      " ": () => connection.toggle(),
      ArrowLeft: () => connection.seek(connection.position() - second),
      ArrowRight: () => connection.seek(connection.position() + second),
      Home: () => connection.seek(context.view.from),
      End: () => connection.toEnd(),
      ",": step(true),
      ".": step(false),
    };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    if (event.key === " " && target instanceof HTMLButtonElement) target.blur();
    action();
  });
  if (summary.is_empty || (summary.live && !location.hash)) return;
  if (!goToLink()) connection.send({ op: "play" });
  else connection.send({ op: "pause" });
}

function applyTheme(theme: string): void {
  const dark = theme === "dark" || (theme === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  dispatchEvent(new Event("asof-theme"));
}

function stored(key: string): string | undefined {
  try {
    return localStorage.getItem(key) ?? undefined;
  } catch {
    return undefined;
  }
}

function store(key: string, value: string): void {
  try {
    localStorage.setItem(key, value);
  } catch {
    // It is forgotten with the window.
  }
}
