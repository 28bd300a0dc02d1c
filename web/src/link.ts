import type { Context } from "./context";

export interface Link {
  /** Goes to the moment that the address names, if it names one. */
  go: () => boolean;
  /** Puts the moment into the address. */
  set: () => void;
}

/** The moment in the address bar: where a reload, or another person, comes back to. It is kept whenever the picture stands. */
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
    // A running robot that is followed has no moment to come back to.
    if (following && location.hash) history.replaceState(null, "", location.pathname + location.search);
    if (isRunning || (summary.is_empty && !summary.live)) return;
    timer = window.setTimeout(set, 150);
  });
  // The address of the event: the moment may have been put into the bar since.
  addEventListener("hashchange", (event) => go(event.newURL));
  addEventListener("pagehide", () => {
    if (!connection.state.following && !summary.is_empty && connection.state.t > 0) set();
  });
  return { go, set };
}
