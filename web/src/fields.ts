import type { Context, PanelSpec } from "./context";
import { h } from "./dom";

export interface FieldName {
  topic: string;
  path: string;
}

/** Opens a menu below an element: what can be done with a field, by the mouse and by the keyboard. */
export function openFieldMenu(context: Context, anchor: HTMLElement, field: FieldName): void {
  const add = (kind: string) => () => context.add({ kind, fields: [field] } satisfies PanelSpec);
  const hasAxis = (context.fieldsOf("xy") ?? []).length > 0;
  const items: [string, () => void][] = [
    ["Plot this field", add("plot")],
    [hasAxis ? "XY: vertical axis" : "XY: horizontal axis", add("xy")],
    ["States over time", add("state")],
    ["Copy the name", () => void navigator.clipboard?.writeText(`${field.topic}.${field.path}`)],
  ];
  openMenu(anchor, `${field.topic}.${field.path}`, items);
}

/** A menu below an element. Arrow keys move in it, Escape closes it. */
export function openMenu(anchor: HTMLElement, label: string, items: [string, () => void][]): void {
  document.querySelector(".menu")?.remove();
  const menu = h("div", { class: "menu", role: "menu", "aria-label": label, popover: "auto" });
  const entries = items.map(([text, act]) => h("button", { class: "plain text", role: "menuitem", tabindex: -1, onclick: () => (menu.hidePopover(), act()) }, text));
  menu.append(h("div", { class: "faint menu-title" }, ...broken(label)), ...entries);
  menu.addEventListener("toggle", (event) => (event as ToggleEvent).newState === "closed" && menu.remove());
  menu.addEventListener("keydown", (event) => {
    event.stopPropagation();
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") return (menu.hidePopover(), anchor.focus());
    if (!by) return;
    event.preventDefault();
    const at = entries.indexOf(document.activeElement as HTMLButtonElement);
    entries[(at + by + entries.length) % entries.length].focus();
  });
  document.body.append(menu);
  menu.showPopover();
  const [box, own] = [anchor.getBoundingClientRect(), menu.getBoundingClientRect()];
  menu.style.left = `${Math.max(4, Math.min(box.left, innerWidth - own.width - 4))}px`;
  menu.style.top = `${box.bottom + own.height + 4 > innerHeight ? Math.max(4, box.top - own.height) : box.bottom}px`;
  entries[0]?.focus();
}

/** A name that may be broken into lines after each `/`, `_` and `.`. */
export function broken(name: string): (Node | string)[] {
  return name.split(/(?<=[/_.])/).flatMap((part, index) => (index === 0 ? [part] : [h("wbr"), part]));
}
