import type { Context } from "./context";
import { h } from "./dom";
import { span, time } from "./format";

/**
 * Recordings of different years are shown one at a time: on a common axis they would be invisible. Playback continues
 * with the next at the end of one.
 */
export function stretchChoice({ connection, summary, view }: Context): HTMLElement | undefined {
  const stretches = summary.stretches ?? [];
  if (stretches.length < 2) return undefined;
  const text = ([start, end]: [number, number]) => `${time(start, "utc", summary.start, 0)} · ${span(end - start)}`;
  const select = h(
    "select",
    { "aria-label": "Recording", title: "These recordings are far apart in time; one is shown at a time" },
    ...stretches.map((one, index) => h("option", { value: index }, `${index + 1} of ${stretches.length}: ${text(one)}`)),
  );
  let shown = -1;
  const show = (index: number) => {
    if (index === shown) return;
    shown = index;
    select.value = String(index);
    const [start, end] = stretches[index];
    view.limit(start, Math.max(end, start + 1));
  };
  select.addEventListener("change", () => connection.seek(stretches[Number(select.value)][0]));
  connection.on("state", ({ t, state }) => {
    const at = stretches.findLastIndex(([start]) => start <= t);
    const [, end] = stretches[Math.max(at, 0)];
    // A gap of years: continue with the next.
    if (state === "playing" && t > end + 1e9 && at + 1 < stretches.length) return connection.seek(stretches[at + 1][0]);
    show(Math.max(at, 0));
  });
  show(0);
  return select;
}
