import { ask } from "../connection";
import type { Context, Panel, PanelSpec } from "../context";
import { canvas, color, empty, h } from "../dom";
import { counted } from "../format";
import { register } from "../registry";
import { Tiles } from "../tiles";

const METRES = 111_320;
/** A time, a latitude, a longitude. */
type Fix = [number, number, number];

/** The GPS track, over map tiles if a tile server is configured. */
class Track {
  readonly element: HTMLElement;
  private rows: Fix[] = [];
  private zoom = 1;
  private offset = [0, 0];
  private note: HTMLElement;
  private dead = h("p", { class: "faint dead", role: "status" });
  private picture: ReturnType<typeof canvas>;
  private stops: (() => void)[];
  private tiles?: Tiles;

  constructor(
    private context: Context,
    readonly topic: string,
  ) {
    this.picture = canvas(`Track of ${topic}`, (context2d, width, height) => this.draw(context2d, width, height));
    this.note = h("div", { class: "overlay" }, empty("Reading the track", topic));
    this.element = h("div", { class: "body map" }, this.picture.element, this.note, this.dead);
    if (context.summary.tiles) this.tiles = new Tiles(context.summary.tiles, () => this.picture.redraw());
    this.navigate();
    void this.read();
    const ticking = context.summary.live ? window.setInterval(() => document.hidden || void this.read(), 2000) : 0;
    this.stops = [context.connection.on("state", this.picture.redraw), () => clearInterval(ticking)];
  }

  dispose(): void {
    this.stops.forEach((stop) => stop());
  }

  private async read(): Promise<void> {
    try {
      await this.context.connection.first();
      const { rows } = await ask<{ rows: [number, number | null, number | null][] }>("rows", { topic: this.topic, paths: "latitude,longitude" });
      this.rows = rows.filter(([, latitude, longitude]) => typeof latitude === "number" && typeof longitude === "number" && (latitude !== 0 || longitude !== 0)) as Fix[];
      this.note.replaceChildren(this.rows.length === 0 ? empty("No position", `${this.topic} has no valid position.`) : "");
      this.picture.redraw();
    } catch (error) {
      this.note.replaceChildren(empty("The track cannot be read", (error as Error).message));
    }
  }

  private navigate(): void {
    const { element } = this;
    const wheel = (event: WheelEvent) => {
      event.preventDefault();
      const factor = Math.exp(-event.deltaY * 0.0015);
      this.zoom = Math.max(0.2, Math.min(this.zoom * factor, 200));
      this.offset = this.offset.map((one) => one * factor);
      this.picture.redraw();
    };
    element.addEventListener("wheel", wheel, { passive: false });
    element.addEventListener("pointermove", (event) => {
      if (!(event.buttons & 1)) return;
      this.offset = [this.offset[0] + event.movementX, this.offset[1] + event.movementY];
      this.picture.redraw();
    });
    element.addEventListener("dblclick", () => {
      this.zoom = 1;
      this.offset = [0, 0];
      this.picture.redraw();
    });
  }

  private draw(context2d: CanvasRenderingContext2D, width: number, height: number): void {
    if (this.rows.length === 0) return;
    const ends = (at: 1 | 2) => this.rows.reduce(([low, high], row) => [Math.min(low, row[at]), Math.max(high, row[at])], [Infinity, -Infinity]);
    const [[south, north], [west, east]] = [ends(1), ends(2)];
    const middle = [(west + east) / 2, (south + north) / 2];
    const shrink = Math.cos((middle[1] * Math.PI) / 180);
    const wide = Math.max((east - west) * shrink * METRES, 5);
    const tall = Math.max((north - south) * METRES, 5);
    const scale = Math.min((width - 40) / wide, (height - 50) / tall) * this.zoom;
    const x = (longitude: number) => width / 2 + this.offset[0] + (longitude - middle[0]) * shrink * METRES * scale;
    const y = (latitude: number) => height / 2 + this.offset[1] - (latitude - middle[1]) * METRES * scale;
    const power = 10 ** Math.floor(Math.log10(60 / scale));
    const step = power * ([1, 2, 5].find((factor) => factor * power * scale >= 60) ?? 10);
    if (this.tiles) {
      const seen = (at: number, up: number) => [middle[0] + (at - width / 2 - this.offset[0]) / (shrink * METRES * scale), middle[1] - (up - height / 2 - this.offset[1]) / (METRES * scale)];
      const [[west, north], [east, south]] = [seen(0, 0), seen(width, height)];
      this.tiles.draw(context2d, { west, east, south, north }, scale, x, y);
      const { dead, host } = this.tiles;
      const told = dead ? `${counted(dead, "tile")} of ${host} could not be loaded` : "";
      if (this.dead.textContent !== told) this.dead.textContent = told;
    } else this.drawGrid(context2d, width, height, step * scale);
    context2d.strokeStyle = color("accent");
    context2d.lineWidth = 2;
    context2d.lineJoin = "round";
    context2d.beginPath();
    this.rows.forEach(([, latitude, longitude], index) => (index ? context2d.lineTo(x(longitude), y(latitude)) : context2d.moveTo(x(longitude), y(latitude))));
    context2d.stroke();
    const [, latitude, longitude] = this.now();
    context2d.fillStyle = color("mark");
    context2d.beginPath();
    context2d.arc(x(longitude), y(latitude), 6, 0, Math.PI * 2);
    context2d.fill();
    context2d.fillStyle = color("text");
    context2d.font = "12px system-ui, sans-serif";
    context2d.fillText(`${latitude.toFixed(6)}°, ${longitude.toFixed(6)}°${this.tiles ? ` · map: ${this.tiles.host}` : ""}`, 10, height - 12);
    // Above the position where there is no room beside it.
    const bottom = width < 400 ? height - 30 : height - 12;
    context2d.fillRect(width - step * scale - 14, bottom, step * scale, 2);
    context2d.textAlign = "right";
    context2d.fillText(step >= 1000 ? `${step / 1000} km` : `${step} m`, width - 14, bottom - 6);
    context2d.textAlign = "left";
  }

  /** A grid with a round number of metres. */
  private drawGrid(context2d: CanvasRenderingContext2D, width: number, height: number, step: number): void {
    context2d.strokeStyle = color("line");
    context2d.lineWidth = 1;
    context2d.beginPath();
    for (let at = (width / 2 + this.offset[0]) % step; at < width; at += step) {
      context2d.moveTo(at, 0);
      context2d.lineTo(at, height);
    }
    for (let at = (height / 2 + this.offset[1]) % step; at < height; at += step) {
      context2d.moveTo(0, at);
      context2d.lineTo(width, at);
    }
    context2d.stroke();
  }

  /** The last fix up to the current time. */
  private now(): Fix {
    const t = this.context.connection.position();
    let [low, high] = [0, this.rows.length - 1];
    while (low < high) {
      const half = (low + high + 1) >> 1;
      if (this.rows[half][0] <= t) low = half;
      else high = half - 1;
    }
    return this.rows[low];
  }
}

function mapPanel(context: Context, spec: PanelSpec): Panel {
  const track = new Track(context, spec.topic ?? "");
  return { element: track.element, title: track.topic, spec: () => ({ kind: "map", topic: track.topic }), dispose: () => track.dispose() };
}

register({ kind: "map", title: "Map", make: mapPanel, takes: (topic) => topic.role === "gps" });
