import type { Context } from "./context";
import { button, h } from "./dom";
import { type Clock, count, counted, time } from "./format";
import { stretchChoice } from "./stretches";
import type { PlayState } from "./types";

/** Play, pause, step, speed and the time. */
export function controls(context: Context, setClock: (clock: Clock) => void) {
  const { connection, summary } = context;
  const now = h("output", { class: "now-time", "aria-label": "Time" });
  const play = button("play", "Play (space)", () => connection.toggle(), "play");
  const speed = speeds(context);
  const loop = button("loop", "Start over at the end", () => connection.send({ op: "loop", on: !connection.state.loop }));
  const together = button("people", "Play together with other windows", () => connection.send({ op: "together", on: !connection.state.together }));
  const dropped = h("span", { class: "dropped", hidden: true });
  const live = h("button", { class: "live", title: "Follow the robot (end)", "aria-pressed": "true", onclick: () => connection.toEnd() }, "LIVE");
  const gone = h("span", { class: "dropped", role: "status", hidden: true }, "This moment has left the window");
  const step = (back: boolean) => () => connection.send({ op: "step", back });
  const element = h(
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
    clocks(context, setClock),
    ...[stretchChoice(context) ?? []].flat(),
    gone,
    dropped,
  );
  const tellTime = () => {
    now.textContent = time(connection.position(), context.clock(), summary.start);
  };
  addEventListener("asof-clock", tellTime);
  const tellPlay = playing(play);
  connection.on("state", (state) => {
    tellPlay(state);
    for (const [toggle, isOn] of [[loop, state.loop], [together, state.together]] as const) {
      toggle.classList.toggle("on", isOn);
      toggle.setAttribute("aria-pressed", String(isOn));
    }
    speed.value = state.speed === null ? "" : String(state.speed);
    const lost = Object.entries(state.dropped).filter(([, times]) => times > 0).sort((a, b) => b[1] - a[1]);
    dropped.hidden = lost.length === 0;
    const all = lost.map(([topic, times]) => `${count(times)} of ${topic}`);
    dropped.textContent = `skipped ${all[0] ?? ""}${all.length > 1 ? ` and of ${counted(all.length - 1, "other topic")}` : ""}`;
    dropped.title = ["This page was too slow for them; the latest message of each topic was shown instead.", ...all].join("\n");
    document.documentElement.dataset.state = state.state;
    live.setAttribute("aria-pressed", String(Boolean(state.following)));
    gone.hidden = !state.gone;
  });
  return { element, live, tellTime };
}

/** Updates the play button. */
function playing(play: HTMLElement): (state: PlayState) => void {
  let was: boolean | undefined;
  return ({ state }) => {
    const is = state === "playing" || state === "buffering";
    play.classList.toggle("waiting", state === "buffering");
    if (is === was) return;
    was = is;
    const next = button(is ? "pause" : "play", is ? "Pause (space)" : "Play (space)", () => undefined);
    play.replaceChildren(...next.childNodes);
    play.setAttribute("aria-label", next.getAttribute("aria-label") ?? "");
    play.title = next.title;
  };
}

function speeds({ connection }: Context): HTMLSelectElement {
  const speed = h(
    "select",
    { "aria-label": "Speed", title: "Speed" },
    ...[0.1, 0.25, 0.5, 1, 2, 5, 10].map((one) => h("option", { value: one }, `${one}×`)),
    h("option", { value: "" }, "max"),
  );
  speed.value = "1";
  speed.addEventListener("change", () => connection.send({ op: "speed", times: speed.value === "" ? null : Number(speed.value) }));
  return speed;
}

function clocks(context: Context, setClock: (clock: Clock) => void): HTMLSelectElement {
  const select = h(
    "select",
    { "aria-label": "How times are shown", title: "How times are shown" },
    h("option", { value: "relative" }, "since start"),
    h("option", { value: "utc" }, "UTC"),
    h("option", { value: "local" }, "local"),
  );
  select.value = context.clock();
  select.addEventListener("change", () => setClock(select.value as Clock));
  return select;
}
