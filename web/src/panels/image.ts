import type { Context, Panel, PanelSpec } from "../context";
import { empty, h } from "../dom";
import { register } from "../registry";
import type { Shown } from "../types";
import { Video } from "../video";

/** A camera: compressed and raw images, and video. */
class Camera {
  readonly picture: HTMLCanvasElement;
  readonly element: HTMLElement;
  private note = h("div", { class: "overlay" });
  private busy = false;
  private next?: Shown;
  private gone = false;
  private video?: Video;
  private stop: () => void;

  constructor(
    private context: Context,
    readonly topic: string,
  ) {
    this.picture = h("canvas", { class: "picture", role: "img", "aria-label": `Picture on ${topic}` });
    this.element = h("div", { class: "body image" }, this.picture, this.note);
    this.stop = context.connection.subscribe(topic, "image", (shown) => void this.show(shown));
  }

  dispose(): void {
    this.gone = true;
    this.stop();
    this.video?.dispose();
  }

  /** One at a time; of messages that arrive meanwhile only the last is shown. */
  private async show(shown: Shown): Promise<void> {
    if (this.busy) return void (this.next = shown);
    this.busy = true;
    try {
      await this.paint(shown);
      this.note.replaceChildren();
    } catch (error) {
      this.note.replaceChildren(empty("This picture cannot be shown", (error as Error).message));
    }
    if (shown.op === "nothing") this.note.replaceChildren(this.none());
    this.busy = false;
    if (!this.next || this.gone) return;
    const later = this.next;
    this.next = undefined;
    void this.show(later);
  }

  private none(): HTMLElement {
    const isLive = this.context.summary.live;
    return empty("No picture yet", isLive ? `${this.topic} has sent none yet.` : `The first one on ${this.topic} comes later; play on or seek further.`);
  }

  private async paint(shown: Shown): Promise<void> {
    if (shown.op === "nothing") return void (this.picture.width = 0);
    if (shown.error) throw new Error(shown.error);
    if (shown.encoding === "video") {
      this.video ??= new Video(this.topic, (frame, t) => this.draw(frame, frame.displayWidth, frame.displayHeight, t));
      return this.video.show(shown, this.context.connection.state.state === "playing");
    }
    if (!shown.body) return;
    if (shown.encoding === "rgba") {
      const [width, height] = [shown.width as number, shown.height as number];
      const pixels = new Uint8ClampedArray(shown.body, shown.bodyOffset, width * height * 4);
      this.size(width, height);
      this.picture.getContext("2d")?.putImageData(new ImageData(pixels, width, height), 0, 0);
      this.picture.dataset.t = String(shown.t);
      return;
    }
    const bytes = new Uint8Array(shown.body, shown.bodyOffset);
    const bitmap = await createImageBitmap(new Blob([bytes], { type: String(shown.encoding) }));
    this.draw(bitmap, bitmap.width, bitmap.height, shown.t);
    bitmap.close();
  }

  private size(width: number, height: number): void {
    if (this.picture.width === width && this.picture.height === height) return;
    this.picture.width = width;
    this.picture.height = height;
  }

  private draw(image: CanvasImageSource, width: number, height: number, t: number): void {
    this.size(width, height);
    this.picture.getContext("2d")?.drawImage(image, 0, 0);
    this.picture.dataset.t = String(t);
  }
}

function imagePanel(context: Context, spec: PanelSpec): Panel {
  const camera = new Camera(context, spec.topic ?? "");
  return { element: camera.element, title: camera.topic, spec: () => ({ kind: "image", topic: camera.topic }), dispose: () => camera.dispose() };
}

register({ kind: "image", title: "Image", make: imagePanel, takes: (topic) => topic.role === "image" });
