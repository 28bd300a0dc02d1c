import { home } from "./base";
import type { Context } from "./context";
import { button, h } from "./dom";
import type { Files } from "./files";
import { bytes, count, counted, span } from "./format";
import type { Layout } from "./layout";
import type { Layouts } from "./layouts";
import type { Link } from "./link";
import { applyTheme, store } from "./stored";
import type { Problem } from "./types";

/** The bar at the top: the recording, its problems, and commands of the page. */
export function topBar(context: Context, { layout, layouts, link, files }: { layout: Layout; layouts: Layouts; link: Link; files: Files }) {
  const { connection, summary } = context;
  const facts = h("span", { class: "facts" });
  const isOpen = summary.name !== "";
  const tellFacts = () => {
    // Without a recording there are no facts to show.
    if (!isOpen) return;
    const held = summary.window;
    const all = held
      ? [held.age === null ? "" : `the last ${span(held.age)}`, bytes(held.bytes), counted(held.messages, "message"), held.left > 0 ? `${count(held.left)} have left` : ""]
      : [summary.format, bytes(summary.size), counted(summary.messages, "message"), span(summary.duration)];
    facts.textContent = all.filter(Boolean).join(" · ");
    facts.title = held && held.crowded_out > 0 ? `${count(held.crowded_out)} of them left early, because the memory for the window is full (--cache)` : "";
  };
  tellFacts();
  const share = button("link", "Copy a link to this moment", () => {
    link.set();
    void navigator.clipboard?.writeText(location.href);
    share.animate([{ color: "var(--accent)" }, { color: "inherit" }], 700);
  });
  const { chip, drawer } = problemDrawer(context);
  const header = h(
    "header",
    { class: "top" },
    isOpen ? button("menu", "Show or hide the topics (t)", () => document.body.classList.toggle("no-topics")) : null,
    summary.home ? h("a", { class: "back", href: home, title: `Back to ${summary.home}` }, "← ", summary.home.split("/").filter(Boolean).pop() ?? "Back") : null,
    h("strong", { class: "brand" }, "asof"),
    h("span", { class: "name", title: summary.name }, summary.name.split("/").pop() ?? ""),
    facts,
    chip,
    h("span", { class: "space" }),
    files.canOpen ? h("button", { class: "plain text", title: "Open recordings from this computer", onclick: () => files.choose() }, "Open") : null,
    ...(isOpen ? arranging(layout, layouts) : []),
    isOpen ? share : null,
    button("theme", "Light or dark", () => {
      const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
      store("asof-theme", next);
      applyTheme(next);
    }),
  );
  return { elements: [header, drawer], tellFacts, errors: errorToast(connection) };
}

/** Commands for panels; none without a recording. */
function arranging(layout: Layout, layouts: Layouts): HTMLElement[] {
  return [
    button("undo", "Undo a change of the layout (ctrl z)", () => layout.undo()),
    h("button", { class: "plain text", onclick: () => layouts.open() }, "Layouts"),
    h("button", { class: "plain text", onclick: () => layout.reset() }, "Reset layout"),
    h("button", { class: "plain text", "aria-label": "Keys (?)", title: "Keys (?)", onclick: () => dispatchEvent(new KeyboardEvent("keydown", { key: "?" })) }, "?"),
  ];
}

function problemDrawer({ connection, summary }: Context) {
  const chip = h("button", { class: "problems", hidden: true, "aria-expanded": "false" });
  const drawer = h("div", { class: "drawer", hidden: true, role: "region", "aria-label": "Problems of this recording", tabindex: 0 });
  chip.addEventListener("click", () => {
    drawer.hidden = !drawer.hidden;
    chip.setAttribute("aria-expanded", String(!drawer.hidden));
  });
  const entry = (one: Problem) => {
    const place = [one.topic, one.offset === null ? "" : `byte ${one.offset}`].filter(Boolean).join(", ");
    return h("li", {}, h("b", {}, one.kind.replaceAll("_", " ")), ` ${one.message} `, h("span", { class: "faint" }, place ? `(${place})` : ""));
  };
  const show = (all: Problem[]) => {
    chip.hidden = all.length === 0;
    chip.textContent = `⚠ ${counted(all.length, "problem")}`;
    drawer.replaceChildren(h("h2", {}, "Problems of this recording"), h("p", {}, "Everything that could be read is shown. The following could not be read, or only in part."), h("ul", {}, ...all.map(entry)));
  };
  show(summary.problems);
  connection.on("problems", show);
  return { chip, drawer };
}

/** Shows errors for a few seconds. */
function errorToast(connection: Context["connection"]): HTMLElement {
  const errors = h("div", { class: "toast", role: "alert", hidden: true });
  let timer = 0;
  connection.on("error", (text) => {
    errors.textContent = text;
    errors.hidden = false;
    clearTimeout(timer);
    timer = window.setTimeout(() => (errors.hidden = true), 6000);
  });
  return errors;
}
