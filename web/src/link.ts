import type { Context } from "./context";

export interface Link {
  /** Seeks to the time in the address, if there is one. */
  go: () => boolean;
  /** Writes the time into the address. */
  set: () => void;
}

/** The current time in the address bar, for reloads and links. Updated while paused. */
export function link({ connection, summary }: Context): Link {
  let timer = 0;
  const set = () => history.replaceState(null, "", `#t=${(connection.position() / 1e9).toFixed(3)}`);
  const go = (address = location.href) => {
    const t = new URLSearchParams(new URL(address).hash.slice(1)).get("t");
    if (t === null || !Number.isFinite(Number(t))) return false;
    connection.seek(Number(t) * 1e9);
    return true;
  };
  connection.on("state", ({ state, following }) => {
    const isRunning = state === "playing" || state === "buffering" || following;
    clearTimeout(timer);
    // A followed robot has no fixed time.
    if (following && location.hash) history.replaceState(null, "", location.pathname + location.search);
    if (isRunning || (summary.is_empty && !summary.live)) return;
    timer = window.setTimeout(set, 150);
  });
  // The event's own address: the bar may have changed since.
  addEventListener("hashchange", (event) => go(event.newURL));
  addEventListener("pagehide", () => {
    if (!connection.state.following && !summary.is_empty && connection.state.t > 0) set();
  });
  return { go, set };
}
