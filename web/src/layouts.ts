import { home } from "./base";
import { h } from "./dom";
import type { Tree } from "./first";
import { fromForeign, isForeign, type Imported } from "./foreign";
import type { Layout } from "./layout";
import { stored, store } from "./stored";
import type { Topic } from "./types";

const KEY = "asof-layouts";
/** The longest layout in a link: browsers and mail programs have limits. */
const LONGEST_LINK = 8000;

/** A layout file. */
interface LayoutFile {
  asof_layout: 1;
  name: string;
  tree: Tree;
}

/** Parses a layout: this page's own, or one of another program. */
export function layoutOf(value: unknown, topics: Topic[]): Imported {
  if (value && typeof value === "object") {
    if (isForeign(value)) return fromForeign(value, topics);
    if ("tree" in value) return { tree: (value as LayoutFile).tree, left: [] };
  }
  return { tree: undefined, left: ["everything: this is not a layout"] };
}

/** The layout in the page's address, if there is one. */
export async function linkedLayout(): Promise<Tree | undefined> {
  const packed = new URLSearchParams(location.hash.slice(1)).get("layout");
  if (!packed) return undefined;
  try {
    const bytes = Uint8Array.from(atob(packed.replaceAll("-", "+").replaceAll("_", "/")), (one) => one.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    return JSON.parse(await new Response(stream).text()) as Tree;
  } catch {
    return undefined;
  }
}

async function packed(tree: Tree): Promise<string> {
  const stream = new Blob([JSON.stringify(tree)]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  return btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

function named(): Record<string, Tree> {
  try {
    return JSON.parse(stored(KEY) ?? "{}") as Record<string, Tree>;
  } catch {
    return {};
  }
}

/** The dialog of named layouts: load, save, share, delete. */
export class Layouts {
  private note = h("p", { class: "faint", role: "status" });
  private list = h("ul", { class: "layouts" });
  private place = h("select", { "aria-label": "Where the layout is saved" }, h("option", { value: "server" }, "on the server, for everyone"), h("option", { value: "browser" }, "in this browser"));
  private shared: Record<string, Tree> = {};

  constructor(
    private layout: Layout,
    private topics: () => Topic[],
    private moment: () => string,
    /** Whether the server stores layouts. */
    private isShared: boolean,
  ) {}

  open(): void {
    document.querySelector("dialog.layouts-dialog")?.remove();
    const name = h("input", { type: "text", placeholder: "Name", "aria-label": "Name of the layout", maxlength: 80 });
    const save = h("form", { class: "along" }, name, this.isShared ? this.place : null, h("button", { class: "text", type: "submit" }, "Save as"));
    save.addEventListener("submit", (event) => {
      event.preventDefault();
      if (name.value.trim()) void this.keep(name.value.trim());
    });
    const file = h("input", { type: "file", accept: ".json,application/json", "aria-label": "Layout file" });
    file.addEventListener("change", () => file.files?.[0] && void this.read(file.files[0]));
    const dialog = h(
      "dialog",
      { class: "keys layouts-dialog", "aria-label": "Layouts" },
      h("h2", {}, "Layouts"),
      this.list,
      save,
      h("label", { class: "along" }, "Open a file of asof, Foxglove or Lichtblick", file),
      this.note,
      h(
        "div",
        { class: "along" },
        h("button", { class: "text", onclick: () => this.download() }, "Save to a file"),
        h("button", { class: "text", onclick: () => void this.copyLink() }, "Copy a link"),
        h("button", { class: "text", onclick: () => this.layout.reset() }, "Reset"),
        h("button", { class: "text", onclick: () => dialog.close() }, "Close"),
      ),
    );
    dialog.addEventListener("close", () => dialog.remove());
    this.note.textContent = "";
    this.draw();
    void this.ask("", "GET");
    document.body.append(dialog);
    dialog.showModal();
  }

  /** Imports a layout, and lists what is not supported. */
  take(value: unknown): boolean {
    const { tree, left } = layoutOf(value, this.topics());
    const isShown = tree !== undefined && this.layout.apply(tree);
    const missing = left.length > 0 ? `Not supported: ${[...new Set(left)].join(", ")}.` : "";
    this.note.textContent = isShown ? `Shown. ${missing}` : `This file cannot be shown. ${missing}`;
    return isShown;
  }

  private draw(): void {
    const entries = (all: Record<string, Tree>, isShared: boolean) =>
      Object.entries(all)
        .sort(([a], [b]) => a.localeCompare(b))
        .map(([name, tree]) =>
          h(
            "li",
            { class: "along" },
            h("button", { class: "plain text", onclick: () => this.layout.apply(structuredClone(tree)) }, name),
            isShared ? h("span", { class: "faint" }, "on the server") : null,
            h("button", { class: "plain text", "aria-label": `Forget ${name}`, title: isShared ? "Remove for everyone" : "Forget", onclick: () => this.forget(name, isShared) }, "✕"),
          ),
        );
    const all = [...entries(this.shared, true), ...entries(named(), false)];
    this.list.replaceChildren(...(all.length > 0 ? all : [h("li", { class: "faint" }, "No saved layouts yet.")]));
  }

  private async keep(name: string): Promise<void> {
    const tree = this.layout.current();
    if (!tree) return;
    if (this.isShared && this.place.value === "server") {
      if (await this.ask(`?${new URLSearchParams({ name })}`, "POST", JSON.stringify(tree))) this.note.textContent = `Saved as ${name}, on the server.`;
      return;
    }
    store(KEY, JSON.stringify({ ...named(), [name]: tree }));
    this.note.textContent = `Saved as ${name}, in this browser.`;
    this.draw();
  }

  private forget(name: string, isShared: boolean): void {
    if (isShared) return void this.ask(`/remove?${new URLSearchParams({ name })}`, "POST");
    const { [name]: _gone, ...others } = named();
    store(KEY, JSON.stringify(others));
    this.draw();
  }

  /** Reads or changes the server's layouts. Returns whether that succeeded. */
  private async ask(path: string, method: string, body?: string): Promise<boolean> {
    if (!this.isShared) return false;
    try {
      const response = await fetch(`${home}api/layouts${path}`, { method, body });
      const answer = (await response.json()) as Record<string, Tree> & { error?: string };
      if (!response.ok) throw new Error(answer.error ?? response.statusText);
      this.shared = answer;
      this.draw();
      return true;
    } catch (error) {
      this.note.textContent = (error as Error).message;
      return false;
    }
  }

  private async read(file: File): Promise<void> {
    try {
      this.take(JSON.parse(await file.text()));
    } catch (error) {
      this.note.textContent = `${file.name} is not JSON: ${(error as Error).message}`;
    }
  }

  private download(): void {
    const tree = this.layout.current();
    if (!tree) return;
    const content: LayoutFile = { asof_layout: 1, name: "layout", tree };
    const address = URL.createObjectURL(new Blob([JSON.stringify(content, null, 2)], { type: "application/json" }));
    h("a", { href: address, download: "layout.json" }).click();
    URL.revokeObjectURL(address);
  }

  private async copyLink(): Promise<void> {
    const tree = this.layout.current();
    if (!tree) return;
    const part = await packed(tree);
    if (part.length > LONGEST_LINK) return void (this.note.textContent = "This layout is too long for a link; save it to a file.");
    const address = `${location.origin}${location.pathname}#${this.moment()}&layout=${part}`;
    this.note.textContent = "Link copied.";
    try {
      await navigator.clipboard.writeText(address);
    } catch {
      this.note.replaceChildren("Copy this link: ", h("a", { href: address }, "link"));
    }
    this.note.dataset.link = address;
  }
}
