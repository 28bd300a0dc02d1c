import type { Context, Panel, PanelSpec } from "../context";
import { empty, h } from "../dom";
import { register } from "../registry";
import type { Shown } from "../types";

/** A camera: pictures as they were compressed, or raw. */
function imagePanel(context: Context, spec: PanelSpec): Panel {
  const topic = spec.topic ?? "";
  const picture = h("canvas", { class: "picture", role: "img", "aria-label": `Picture on ${topic}` });
  const note = h("div", { class: "overlay" });
  const element = h("div", { class: "body image" }, picture, note);
  let busy = false;
  let next: Shown | undefined;
  let gone = false;

  const show = async (shown: Shown) => {
    if (busy) {
      next = shown;
      return;
    }
    busy = true;
    try {
      await paint(shown);
      note.replaceChildren();
    } catch (error) {
      note.replaceChildren(empty("This picture cannot be shown", (error as Error).message));
    }
    if (shown.op === "nothing") note.replaceChildren(empty("No picture yet", context.summary.live ? `${topic} has sent none yet.` : `The first one on ${topic} comes later; go on in the recording.`));
    busy = false;
    if (next && !gone) {
      const later = next;
      next = undefined;
      void show(later);
    }
  };

  const paint = async (shown: Shown) => {
    if (shown.op === "nothing") {
      picture.width = 0;
      return;
    }
    if (shown.error) throw new Error(shown.error);
    if (!shown.body) return;
    const bytes = new Uint8Array(shown.body, shown.bodyOffset);
    const context2d = picture.getContext("2d");
    if (shown.encoding === "rgba") {
      const [width, height] = [shown.width as number, shown.height as number];
      picture.width = width;
      picture.height = height;
      const pixels = new Uint8ClampedArray(shown.body, shown.bodyOffset, width * height * 4);
      context2d?.putImageData(new ImageData(pixels, width, height), 0, 0);
      return;
    }
    const bitmap = await createImageBitmap(new Blob([bytes], { type: String(shown.encoding) }));
    if (picture.width !== bitmap.width || picture.height !== bitmap.height) {
      picture.width = bitmap.width;
      picture.height = bitmap.height;
    }
    context2d?.drawImage(bitmap, 0, 0);
    bitmap.close();
    picture.dataset.t = String(shown.t);
  };

  const stop = context.connection.subscribe(topic, "image", (shown) => void show(shown));
  return {
    element,
    title: topic,
    spec: () => ({ kind: "image", topic }),
    dispose: () => {
      gone = true;
      stop();
    },
  };
}

register({ kind: "image", title: "Image", make: imagePanel, takes: (topic) => topic.role === "image" });
