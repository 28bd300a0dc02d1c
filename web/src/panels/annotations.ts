import type { Context, Panel } from "../context";
import { button, empty, h } from "../dom";
import { span, time } from "../format";
import { register } from "../registry";

/** The annotations of the recording; a click seeks to one. */
function annotationsPanel(context: Context): Panel {
  const { annotations, connection, summary, view } = context;
  const element = h("div", { class: "body table", tabindex: 0, role: "region", "aria-label": "Annotations" });
  const draw = () => {
    if (!annotations || annotations.notes.length === 0) return element.replaceChildren(empty("Nothing is marked", annotations?.canChange ? "Press m to mark a moment with a text." : (summary.changes?.trouble ?? "Annotations need a recording that is one file on this machine.")));
    const rows = annotations.notes.map((note) => {
      const go = () => {
        if (note.end > note.start) view.set(note.start, note.end);
        connection.seek(note.start);
      };
      const when = h("button", { class: "plain text", title: "Go there", onclick: go }, time(note.start, context.clock(), summary.start) + (note.end > note.start ? ` for ${span(note.end - note.start)}` : ""));
      const forget = button("close", `Forget ${note.text.slice(0, 40)}`, () => void annotations.remove(note.id).catch((error: Error) => connection.report(error.message)));
      return h("tr", {}, h("th", { scope: "row" }, when), h("td", { class: "wraps" }, note.text), h("td", {}, forget));
    });
    element.replaceChildren(h("table", {}, h("tbody", {}, ...rows)));
  };
  addEventListener("asof-clock", draw);
  const stop = annotations?.on(draw) ?? draw();
  const mark = h("button", { class: "plain text", title: "Mark this moment (m)", onclick: () => annotations?.write() }, "Mark");
  return {
    element,
    title: "",
    controls: [mark],
    spec: () => ({ kind: "annotations" }),
    dispose: () => {
      stop?.();
      removeEventListener("asof-clock", draw);
    },
  };
}

register({ kind: "annotations", title: "Annotations", make: annotationsPanel });
