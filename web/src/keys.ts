import type { Context } from "./context";
import { h } from "./dom";
import type { Layout } from "./layout";

/** The factor of one zoom step. */
const ZOOM = 1.6;

interface Key {
  keys: string[];
  shown: string;
  does: string;
  act: (event: KeyboardEvent) => void;
}

/** The keys of the page; `?` shows them. */
export function listenToKeys(context: Context, layout: Layout): void {
  const { connection } = context;
  const by = (event: KeyboardEvent) => (event.shiftKey ? 1e10 : 1e9);
  const keys: Key[] = [
    { keys: [" "], shown: "space", does: "Play or pause", act: () => connection.toggle() },
    { keys: ["ArrowLeft"], shown: "←", does: "A second back; with shift, ten", act: (event) => connection.seek(connection.position() - by(event)) },
    { keys: ["ArrowRight"], shown: "→", does: "A second on; with shift, ten", act: (event) => connection.seek(connection.position() + by(event)) },
    { keys: [","], shown: ",", does: "One message back", act: () => connection.send({ op: "step", back: true }) },
    { keys: ["."], shown: ".", does: "One message on", act: () => connection.send({ op: "step", back: false }) },
    { keys: ["Home"], shown: "home", does: "To the start", act: () => connection.seek(context.view.from) },
    { keys: ["End"], shown: "end", does: context.summary.live ? "To the newest" : "To the end", act: () => connection.toEnd() },
    { keys: ["+", "="], shown: "+", does: "Zoom into the time, around this moment", act: () => context.view.zoom(connection.position(), 1 / ZOOM) },
    { keys: ["-"], shown: "−", does: "Zoom out of the time", act: () => context.view.zoom(connection.position(), ZOOM) },
    { keys: ["0"], shown: "0", does: "Show all of the time", act: () => context.view.set(context.view.from, context.view.to) },
    { keys: ["t"], shown: "t", does: "Show or hide the topics", act: () => document.body.classList.toggle("no-topics") },
    { keys: ["/"], shown: "/", does: "Search the topics", act: () => search() },
    { keys: ["m"], shown: "m", does: "Mark this moment with a text", act: () => context.annotations?.write() },
    { keys: ["?"], shown: "?", does: "Show these keys", act: () => showKeys(keys) },
    { keys: [], shown: "ctrl z", does: "Undo a change of the layout; with shift, redo it", act: () => undefined },
  ];
  addEventListener("keydown", (event) => {
    const target = event.target as HTMLElement;
    const isText = /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName);
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z" && !isText) {
      event.preventDefault();
      return event.shiftKey ? layout.redo() : layout.undo();
    }
    if (event.ctrlKey || event.metaKey || event.altKey || isText) return;
    const found = keys.find((one) => one.keys.includes(event.key));
    if (!found) return;
    // The space bar presses a button that has the focus by keyboard, but not one that was clicked.
    if (event.key === " " && target instanceof HTMLButtonElement && target.matches(":focus-visible")) return;
    event.preventDefault();
    if (event.key === " " && target instanceof HTMLButtonElement) target.blur();
    found.act(event);
  });
}

function search(): void {
  document.body.classList.remove("no-topics");
  document.querySelector<HTMLInputElement>(".sidebar input[type=search]")?.focus();
}

const MOUSE = [
  ["click on a field's name", "Plot the field, alone or over another"],
  ["wheel on a plot", "Zoom into the time; with shift, into the values"],
  ["drag on a plot", "Move along the time"],
  ["click on a plot", "Go to that time"],
  ["double click", "Show all of it"],
  ["click in 3D", "Show the message of the object"],
  ["arrows in 3D", "Turn the view; with shift, move it; + and − go nearer and away, f looks at everything"],
];

function showKeys(keys: Key[]): void {
  document.querySelector("dialog.keys")?.remove();
  const row = ([key, does]: string[]) => h("tr", {}, h("th", { scope: "row" }, h("kbd", {}, key)), h("td", {}, does));
  const close = h("button", { class: "text", onclick: () => dialog.close() }, "Close");
  const dialog = h(
    "dialog",
    { class: "keys", "aria-label": "Keys" },
    h("h2", {}, "Keys"),
    h("table", {}, h("tbody", {}, ...keys.map(({ shown, does }) => row([shown, does])), ...MOUSE.map(row))),
    close,
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
