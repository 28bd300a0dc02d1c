import { ask } from "../connection";
import type { Context, Panel, PanelSpec } from "../context";
import { canvas, color, empty, h } from "../dom";

/** Where the robot was on the earth: the track alone, nothing is fetched from elsewhere. */
export function mapPanel(context: Context, spec: PanelSpec): Panel {
  const topic = spec.topic ?? "";
  let rows: [number, number, number][] = [];
  let zoom = 1;
  let offset = [0, 0];
  const picture = canvas(`Track of ${topic}`, draw);
  const note = h("div", { class: "overlay" }, empty("Reading the track", topic));
  const element = h("div", { class: "body map" }, picture.element, note);

  function draw(context2d: CanvasRenderingContext2D, width: number, height: number): void {
    if (rows.length === 0) return;
    const latitudes = rows.map((row) => row[1]);
    const longitudes = rows.map((row) => row[2]);
    const [south, north] = [latitudes.reduce((a, b) => Math.min(a, b)), latitudes.reduce((a, b) => Math.max(a, b))];
    const [west, east] = [longitudes.reduce((a, b) => Math.min(a, b)), longitudes.reduce((a, b) => Math.max(a, b))];
    const middle = [(west + east) / 2, (south + north) / 2];
    const shrink = Math.cos((middle[1] * Math.PI) / 180);
    const METRES = 111_320;
    const wide = Math.max((east - west) * shrink * METRES, 5);
    const tall = Math.max((north - south) * METRES, 5);
    const scale = Math.min((width - 40) / wide, (height - 50) / tall) * zoom;
    const x = (longitude: number) => width / 2 + offset[0] + (longitude - middle[0]) * shrink * METRES * scale;
    const y = (latitude: number) => height / 2 + offset[1] - (latitude - middle[1]) * METRES * scale;
    // A grid of round metres.
    const step = 10 ** Math.ceil(Math.log10(60 / scale));
    context2d.strokeStyle = color("line");
    context2d.lineWidth = 1;
    context2d.beginPath();
    const origin = [width / 2 + offset[0], height / 2 + offset[1]];
    for (let at = origin[0] % (step * scale); at < width; at += step * scale) {
      context2d.moveTo(at, 0);
      context2d.lineTo(at, height);
    }
    for (let at = origin[1] % (step * scale); at < height; at += step * scale) {
      context2d.moveTo(0, at);
      context2d.lineTo(width, at);
    }
    context2d.stroke();
    context2d.strokeStyle = color("accent");
    context2d.lineWidth = 2;
    context2d.lineJoin = "round";
    context2d.beginPath();
    rows.forEach(([, latitude, longitude], index) => (index ? context2d.lineTo(x(longitude), y(latitude)) : context2d.moveTo(x(longitude), y(latitude))));
    context2d.stroke();
    const t = context.connection.position();
    let low = 0;
    let high = rows.length - 1;
    while (low < high) {
      const half = (low + high + 1) >> 1;
      if (rows[half][0] <= t) low = half;
      else high = half - 1;
    }
    const [, latitude, longitude] = rows[low];
    context2d.fillStyle = color("mark");
    context2d.beginPath();
    context2d.arc(x(longitude), y(latitude), 6, 0, Math.PI * 2);
    context2d.fill();
    context2d.fillStyle = color("text");
    context2d.font = "12px system-ui, sans-serif";
    context2d.fillText(`${latitude.toFixed(6)}°, ${longitude.toFixed(6)}°`, 10, height - 12);
    const bar = step * scale;
    context2d.fillRect(width - bar - 14, height - 12, bar, 2);
    context2d.textAlign = "right";
    context2d.fillText(step >= 1000 ? `${step / 1000} km` : `${step} m`, width - 14, height - 18);
    context2d.textAlign = "left";
  }

  const read = () => ask<{ rows: [number, number | null, number | null][] }>("rows", { topic, paths: "latitude,longitude" }).then(
    (answer) => {
      const isPlace = (row: [number, number | null, number | null]) =>
        typeof row[1] === "number" && typeof row[2] === "number" && (row[1] !== 0 || row[2] !== 0);
      rows = answer.rows.filter(isPlace) as [number, number, number][];
      note.replaceChildren(rows.length === 0 ? empty("No position", `${topic} never knew where it was.`) : "");
      picture.redraw();
    },
    (error: Error) => note.replaceChildren(empty("The track cannot be read", error.message)),
  );
  void read();
  const ticking = context.summary.live ? window.setInterval(() => document.hidden || void read(), 2000) : 0;
  element.addEventListener("wheel", (event) => {
    event.preventDefault();
    const factor = Math.exp(-event.deltaY * 0.0015);
    zoom = Math.max(0.2, Math.min(zoom * factor, 200));
    offset = offset.map((one) => one * factor);
    picture.redraw();
  }, { passive: false });
  element.addEventListener("pointermove", (event) => {
    if (!(event.buttons & 1)) return;
    offset = [offset[0] + event.movementX, offset[1] + event.movementY];
    picture.redraw();
  });
  element.addEventListener("dblclick", () => {
    zoom = 1;
    offset = [0, 0];
    picture.redraw();
  });
  const stop = context.connection.on("state", picture.redraw);
  return { element, title: topic, spec: () => ({ kind: "map", topic }), dispose: () => (stop(), clearInterval(ticking)) };
}
