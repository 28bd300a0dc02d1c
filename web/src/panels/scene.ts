import type { Context, Panel, PanelSpec } from "../context";
import { empty, h } from "../dom";
import { register } from "../registry";

/** three.js is most of the page's size: it is loaded with the first 3D panel. */
function scenePanel(context: Context, spec: PanelSpec): Panel {
  const element = h("div", { class: "body scene" }, h("div", { class: "empty" }, "Loading 3D …"));
  const extra = h("span", { class: "extra" });
  let inner: Panel | undefined;
  let gone = false;
  // Subscribed at once: read while three.js is loaded.
  const stop = context.summary.frame_topics.length > 0 ? context.connection.frames(() => undefined) : () => undefined;
  import("../scene/scene").then(
    ({ sceneContents }) => {
      if (gone) return;
      inner = sceneContents(context, spec, element);
      extra.replaceChildren(...(inner.controls ?? []));
      if (context.summary.frame_topics.length > 0) hint(context, element);
      // The view has its own subscription now.
      stop();
    },
    () => element.replaceChildren(empty("No 3D", "The 3D view could not be loaded; reload the page.")),
  );
  return {
    element,
    title: "",
    controls: [extra],
    spec: () => inner?.spec() ?? spec,
    dispose: () => {
      gone = true;
      if (!inner) stop();
      inner?.dispose();
    },
  };
}

/** Shows that transforms are still being read. */
function hint(context: Context, element: HTMLElement): void {
  const note = h("div", { class: "hint", role: "status" }, "Reading the transforms around this time …");
  element.append(note);
  const stop = context.connection.frames(() => {
    note.remove();
    queueMicrotask(() => stop());
  });
}

register({ kind: "scene", title: "3D", make: scenePanel });
