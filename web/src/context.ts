import type { Annotations } from "./annotations";
import type { Connection } from "./connection";
import type { Clock } from "./format";
import type { Summary } from "./types";

/** What all parts of the page share. */
export interface Context {
  connection: Connection;
  summary: Summary;
  view: View;
  clock: () => Clock;
  /** The annotations of the recording. */
  annotations?: Annotations;
  /** Adds a panel beside those that are there. */
  add: (panel: PanelSpec) => void;
  /** The fields of the first panel of a kind, if there is one. */
  fieldsOf: (kind: string) => { topic: string; path: string }[] | undefined;
  /** Keeps the layout, after a panel has changed its settings. */
  save: () => void;
}

/** The visible time range, which plots and states show and the timeline marks, within the limits `from` and `to`. */
export class View {
  start = 0;
  end = 0;
  from = 0;
  private listeners = new Set<() => void>();

  constructor(public to: number) {
    this.end = to;
  }

  isWhole(): boolean {
    return this.start <= this.from && this.end >= this.to;
  }

  set(start: number, end: number): void {
    const all = this.to - this.from;
    const span = Math.max(Math.min(1e6, all), Math.min(end - start, all));
    this.start = Math.max(this.from, Math.min(start, this.to - span));
    this.end = this.start + span;
    for (const listener of this.listeners) listener();
  }

  /** The ends have changed. A view of everything still shows everything. Any other moves with the newest message while the robot is
   * followed; otherwise it stays, unless its start has left the window. */
  move(from: number, to: number, follows: boolean): void {
    const [isWhole, by] = [this.isWhole(), to - this.to];
    this.from = from;
    this.to = to;
    if (isWhole) this.set(from, to);
    else if (follows) this.set(this.start + by, this.end + by);
    else this.set(this.start, this.end);
  }

  /** Sets the limits, and shows all of it. */
  limit(from: number, to: number): void {
    this.from = from;
    this.to = to;
    this.set(from, to);
  }

  /** Scales the range by `factor` around `at`. */
  zoom(at: number, factor: number): void {
    this.set(at - (at - this.start) * factor, at + (this.end - at) * factor);
  }

  pan(by: number): void {
    const span = this.end - this.start;
    const start = Math.max(this.from, Math.min(this.start + by, this.to - span));
    this.set(start, start + span);
  }

  on(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
}

/** A panel as it is stored in a layout: its kind, and what it shows. */
export interface PanelSpec {
  kind: string;
  topic?: string;
  fields?: { topic: string; path: string }[];
  options?: Record<string, string | number | boolean | string[]>;
}

/** A panel on the page. */
export interface Panel {
  element: HTMLElement;
  title: string;
  /** Shown in the panel's bar. */
  controls?: HTMLElement[];
  spec: () => PanelSpec;
  dispose: () => void;
}

/** Zooms with the wheel, pans by dragging, seeks with a click, shows all with a double click. */
export function navigate(element: HTMLElement, context: Context, area: () => { left: number; width: number }): void {
  const { view } = context;
  const at = (event: MouseEvent) => {
    const { left, width } = area();
    const part = (event.clientX - element.getBoundingClientRect().left - left) / Math.max(width, 1);
    return view.start + Math.max(0, Math.min(part, 1)) * (view.end - view.start);
  };
  element.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      const perPixel = (view.end - view.start) / Math.max(area().width, 1);
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY))
        view.pan((event.deltaX || event.deltaY) * perPixel);
      else view.zoom(at(event), Math.exp(event.deltaY * 0.0015));
    },
    { passive: false },
  );
  let from: { x: number; moved: boolean } | undefined;
  element.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    from = { x: event.clientX, moved: false };
    element.setPointerCapture(event.pointerId);
  });
  element.addEventListener("pointermove", (event) => {
    if (!from) return;
    const by = event.clientX - from.x;
    if (!from.moved && Math.abs(by) < 4) return;
    view.pan((-by * (view.end - view.start)) / Math.max(area().width, 1));
    from = { x: event.clientX, moved: true };
  });
  element.addEventListener("pointerup", (event) => {
    if (from && !from.moved) context.connection.seek(at(event));
    from = undefined;
  });
  element.addEventListener("dblclick", () => view.set(view.from, view.to));
}
