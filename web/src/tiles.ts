/** The circumference of the earth in metres. */
const AROUND = 40_075_016.7;
const TILE = 256;
/** The most tiles in memory. */
const MOST = 256;

/** Map tiles of the configured server. */
export class Tiles {
  readonly host: string;
  /** How many tiles could not be loaded. */
  dead = 0;
  private known = new Map<string, HTMLImageElement>();

  constructor(
    private address: string,
    private changed: () => void,
  ) {
    this.host = new URL(address.replace(/[{}]/g, "")).host;
  }

  /** Draws the visible tiles. `scale` is in pixels per metre at the latitude. */
  draw(
    context2d: CanvasRenderingContext2D,
    seen: { west: number; east: number; south: number; north: number },
    scale: number,
    x: (longitude: number) => number,
    y: (latitude: number) => number,
  ): void {
    const latitude = (seen.south + seen.north) / 2;
    const metres = AROUND * Math.cos((latitude * Math.PI) / 180);
    const zoom = Math.max(0, Math.min(19, Math.round(Math.log2((metres * scale) / TILE))));
    const count = 2 ** zoom;
    const column = (longitude: number) => ((longitude + 180) / 360) * count;
    const row = (one: number) => ((1 - Math.asinh(Math.tan((one * Math.PI) / 180)) / Math.PI) / 2) * count;
    const [left, right] = [Math.floor(column(seen.west)), Math.floor(column(seen.east))];
    const [top, bottom] = [Math.max(0, Math.floor(row(seen.north))), Math.min(count - 1, Math.floor(row(seen.south)))];
    if ((right - left + 1) * (bottom - top + 1) > MOST / 2) return;
    const longitude = (at: number) => (at / count) * 360 - 180;
    const latitudeOf = (at: number) => (Math.atan(Math.sinh(Math.PI * (1 - (2 * at) / count))) * 180) / Math.PI;
    for (let across = left; across <= right; across++)
      for (let down = top; down <= bottom; down++) {
        const image = this.get(zoom, ((across % count) + count) % count, down);
        if (!image.complete || image.naturalWidth === 0) continue;
        const [x0, y0, x1, y1] = [x(longitude(across)), y(latitudeOf(down)), x(longitude(across + 1)), y(latitudeOf(down + 1))];
        context2d.drawImage(image, x0, y0, x1 - x0 + 0.5, y1 - y0 + 0.5);
      }
  }

  private get(zoom: number, across: number, down: number): HTMLImageElement {
    const address = this.address.replace("{z}", String(zoom)).replace("{x}", String(across)).replace("{y}", String(down));
    const known = this.known.get(address);
    if (known) return known;
    const image = new Image();
    image.referrerPolicy = "no-referrer";
    image.onload = this.changed;
    image.onerror = () => {
      this.dead++;
      this.changed();
    };
    image.src = address;
    this.known.set(address, image);
    const [oldest] = this.known.keys();
    if (this.known.size > MOST) this.known.delete(oldest);
    return image;
  }
}
