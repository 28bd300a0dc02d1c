import type { Context } from "./context";
import { button, h } from "./dom";
import { MessageTree } from "./panels/raw";

/** A popover with the current message of a topic. */
export function peek(context: Context, topic: string, x: number, y: number): void {
  document.querySelector<HTMLElement>(".peek")?.hidePopover();
  const message = new MessageTree(context, topic);
  const whole = h("button", { class: "plain text", onclick: () => (box.hidePopover(), context.add({ kind: "raw", topic })) }, "Open as a panel");
  const bar = h("header", { class: "bar" }, h("strong", { class: "title" }, topic), h("span", { class: "space" }), whole, button("close", "Close", () => box.hidePopover()));
  const box = h("div", { class: "peek", popover: "auto", role: "dialog", "aria-label": `Message on ${topic}` }, bar, message.element);
  box.addEventListener("toggle", (event) => {
    if ((event as ToggleEvent).newState !== "closed") return;
    message.dispose();
    box.remove();
  });
  document.body.append(box);
  box.showPopover();
  box.style.left = `${Math.max(4, Math.min(x + 8, innerWidth - box.offsetWidth - 4))}px`;
  // It grows with the message: away from the nearer edge of the window.
  const isBelow = y < innerHeight / 2;
  box.style[isBelow ? "top" : "bottom"] = `${(isBelow ? y : innerHeight - y) + 8}px`;
  box.style.maxHeight = `${(isBelow ? innerHeight - y : y) - 16}px`;
}
