import type { Context, Panel, PanelSpec } from "./context";
import type { Summary, Topic } from "./types";

/** A kind of panel: what it is called, how one is made, and which topics it shows. */
export interface PanelEntry {
  kind: string;
  title: string;
  make: (context: Context, spec: PanelSpec) => Panel;
  /** Whether a topic can be chosen in it; without this it shows no single topic. */
  takes?: (topic: Topic) => boolean;
  /** Whether the server has what it needs; without this it has. */
  isThere?: (summary: Summary) => boolean;
}

const kinds = new Map<string, PanelEntry>();

/** Makes a kind of panel known. A panel is one file with one registration; every file in panels/ is loaded. */
export function register(entry: PanelEntry): void {
  kinds.set(entry.kind, entry);
}

export function entryOf(kind: string): PanelEntry | undefined {
  return kinds.get(kind);
}

export function allKinds(summary: Summary): PanelEntry[] {
  return [...kinds.values()].filter((entry) => entry.isThere?.(summary) ?? true).sort((a, b) => a.title.localeCompare(b.title));
}
