import type { Context, Panel, PanelSpec } from "./context";
import type { Summary, Topic } from "./types";

/** A kind of panel: its name, its constructor, and the topics that it shows. */
export interface PanelEntry {
  kind: string;
  title: string;
  make: (context: Context, spec: PanelSpec) => Panel;
  /** Whether it can show a topic; undefined for kinds without a topic. */
  takes?: (topic: Topic) => boolean;
  /** Whether the server supports it; by default it does. */
  isThere?: (summary: Summary) => boolean;
}

const kinds = new Map<string, PanelEntry>();

/** Registers a kind of panel. Each file in panels/ registers one. */
export function register(entry: PanelEntry): void {
  kinds.set(entry.kind, entry);
}

export function entryOf(kind: string): PanelEntry | undefined {
  return kinds.get(kind);
}

export function allKinds(summary: Summary): PanelEntry[] {
  return [...kinds.values()].filter((entry) => entry.isThere?.(summary) ?? true).sort((a, b) => a.title.localeCompare(b.title));
}
