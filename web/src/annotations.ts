import { base } from "./base";
import type { Context } from "./context";
import { h } from "./dom";

/** An annotation: a text about an instant or an interval. */
export interface Note {
  id: number;
  start: number;
  end: number;
  text: string;
}

type Listener = (notes: Note[]) => void;

/** The annotations of the recording, which are stored in a file beside it. */
export class Annotations {
  notes: Note[] = [];
  readonly canChange: boolean;
  private listeners = new Set<Listener>();

  constructor(private context: Context) {
    this.canChange = Boolean(context.summary.changes?.annotations);
    if (this.canChange) void this.ask("", {}, "GET").catch(() => undefined);
  }

  on(listener: Listener): () => void {
    this.listeners.add(listener);
    listener(this.notes);
    return () => this.listeners.delete(listener);
  }

  add(start: number, end: number, text: string): Promise<void> {
    return this.ask("", { start: Math.round(start), end: Math.round(end), text }, "POST");
  }

  remove(id: number): Promise<void> {
    return this.ask("/remove", { id }, "POST");
  }

  /** Asks for the text of an annotation: about the current time, or about the visible range. */
  write(): void {
    const { connection, view } = this.context;
    document.querySelector("dialog.note-dialog")?.remove();
    const at = connection.position();
    const text = h("input", { type: "text", "aria-label": "Text of the annotation", placeholder: "What happened?", maxlength: 4000 });
    const stretch = h("input", { type: "checkbox" });
    const error = h("p", { class: "faint", role: "status" });
    const form = h(
      "form",
      { class: "along" },
      text,
      h("label", { class: "along" }, stretch, "for the whole visible range"),
      h("button", { class: "text", type: "submit" }, "Mark"),
    );
    if (view.isWhole()) stretch.disabled = true;
    const dialog = h("dialog", { class: "keys note-dialog", "aria-label": "Mark this moment" }, h("h2", {}, "Mark this moment"), form, error, h("button", { class: "text", onclick: () => dialog.close() }, "Close"));
    if (!this.canChange) error.textContent = this.context.summary.changes?.trouble ?? "Annotations need a recording that is one file on this machine; this one is not.";
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const [start, end] = stretch.checked ? [view.start, view.end] : [at, at];
      this.add(start, end, text.value).then(
        () => dialog.close(),
        (reason: Error) => (error.textContent = reason.message),
      );
    });
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
    text.focus();
  }

  private async ask(path: string, parameters: Record<string, string | number>, method: string): Promise<void> {
    const query = new URLSearchParams(Object.entries(parameters).map(([key, value]) => [key, String(value)]));
    const response = await fetch(`${base}api/annotations${path}?${query}`, { method });
    const answer = (await response.json()) as Note[] | { error: string };
    if (!Array.isArray(answer)) throw new Error(answer.error);
    this.notes = answer;
    for (const listener of this.listeners) listener(answer);
  }
}
