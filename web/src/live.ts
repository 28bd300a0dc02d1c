import type { Context } from "./context";

/** Moves the visible range with a running robot. */
export function followRobot({ connection, summary, view }: Context, badge: HTMLElement, tellFacts: () => void): void {
  const follow = () => {
    const held = summary.window;
    if (!held) return;
    const to = Math.max(held.to, connection.state.following ? connection.state.t : held.to, 1);
    // Its length doubles, so that what is drawn does not move all the time.
    let length = 1e10;
    const most = held.age ?? Infinity;
    while (length < Math.min(to - held.from, most)) length *= 2;
    view.move(to - Math.min(length, most), to, Boolean(connection.state.following));
  };
  follow();
  connection.on("window", (held) => {
    tellFacts();
    badge.classList.toggle("away", !held.connected);
    badge.textContent = held.connected ? "LIVE" : "NO ROBOT";
    badge.title = held.connected ? "Follow the robot (end)" : "No connection to the robot; retrying";
    follow();
  });
  let wasAt = 0;
  connection.on("state", () => {
    if (!connection.state.following || performance.now() - wasAt < 66) return;
    wasAt = performance.now();
    follow();
  });
}
