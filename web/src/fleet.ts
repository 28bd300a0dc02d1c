import { home } from "./base";
import type { Context } from "./context";
import { h } from "./dom";
import { bytes, count, counted, span } from "./format";

/** An entry of the list. */
interface Listed {
  recording: string;
  start: string | null;
  duration: number | null;
  messages: number | null;
  size: number;
  robot: string | null;
  site: string | null;
  tags: Record<string, string>;
  problems: number;
}

/** How many recordings were looked into. */
interface Reading {
  done: number;
  total: number;
}

interface Answer {
  total: number;
  recordings: Listed[];
  reading: Reading | null;
  error?: string;
}

const FIELDS: [string, string, string][] = [
  ["text", "Search", "words in path, robot, site, tags"],
  ["robot", "Robot", "r7, r*"],
  ["topic", "Topic", "/bumper"],
  ["since", "Since", "2024-05-01"],
  ["until", "Until", "2024-05-31"],
];

/** The recordings of a folder or bucket: search them, filter them, open one. */
export function fleetList({ connection, summary }: Context): HTMLElement {
  const told = h("span", { class: "faint", role: "status" });
  const rows = h("tbody");
  const heads = ["Recording", "Start (UTC)", "Duration", "Messages", "Size", "Robot", "Site", "Tags"];
  const table = h("table", {}, h("thead", {}, h("tr", {}, ...heads.map((head) => h("th", { scope: "col" }, head)))), rows);
  const more = h("button", { class: "plain text", hidden: true, onclick: () => void ask(shown) }, "Show more");
  const list = h("div", { class: "list", tabindex: 0, role: "region", "aria-label": "Recordings" }, table, more);
  let shown = 0;
  let timer = 0;
  // Responses to outdated requests are ignored.
  let asked = 0;
  const inputs = FIELDS.map(([name, label, hint]) => h("label", {}, label, h("input", { name, type: "search", placeholder: hint, "aria-label": label, spellcheck: "false", autocomplete: "off" })));
  const form = h("form", { class: "filters", role: "search", onsubmit: (event: Event) => event.preventDefault() }, ...inputs, told);

  async function ask(from: number): Promise<void> {
    const mine = ++asked;
    clearTimeout(timer);
    const said = [...new FormData(form)].filter(([, value]) => value !== "").map(([name, value]) => [name, String(value)]);
    const query = new URLSearchParams([...said, ["from", String(from)]]);
    try {
      const response = await fetch(`${home}api/recordings?${query}`);
      const answer = (await response.json()) as Answer;
      if (mine !== asked) return;
      if (!response.ok) throw new Error(answer.error ?? response.statusText);
      show(answer, from);
    } catch (error) {
      if (mine === asked) fail((error as Error).message);
    }
  }

  /** The list is outdated until the response arrives, and is marked as such. */
  function fail(text: string): void {
    told.textContent = text;
    told.classList.add("bad");
    list.classList.add("stale");
  }

  function show({ recordings, total, reading }: Answer, from: number): void {
    told.classList.remove("bad");
    list.classList.remove("stale");
    const focused = rows.contains(document.activeElement) ? document.activeElement?.textContent : undefined;
    if (from === 0) rows.replaceChildren();
    rows.append(...recordings.map((one) => row(one, () => void open(one.recording))));
    if (focused) [...rows.querySelectorAll<HTMLElement>(".open")].find((one) => one.textContent === focused)?.focus();
    shown = from + recordings.length;
    // While recordings are looked into, the list grows at any place.
    more.hidden = shown >= total || Boolean(reading);
    told.textContent = reading ? progress(reading, total) : total === 0 ? "No recording matches" : counted(total, "recording");
    if (reading) timer = setTimeout(() => void ask(0), 1000);
  }

  async function open(recording: string): Promise<void> {
    told.textContent = `Opening ${recording} …`;
    try {
      const response = await fetch(`${home}api/recordings/open?${new URLSearchParams({ recording })}`, { method: "POST" });
      const answer = (await response.json()) as { url?: string; error?: string };
      if (!response.ok || !answer.url) throw new Error(answer.error ?? response.statusText);
      location.href = answer.url;
    } catch (error) {
      told.textContent = "";
      connection.report((error as Error).message);
    }
  }

  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => void ask(0), 200);
  });
  void ask(0);
  return h("main", { class: "fleet" }, h("h1", {}, summary.fleet ?? ""), form, list);
}

function progress({ done, total }: Reading, shown: number): string {
  const of = total > 0 ? `${count(done)} of ${counted(total, "recording")}` : "the recordings";
  return `${shown > 0 ? `${count(shown)} so far; looking` : "Looking"} into ${of} …`;
}

function row(one: Listed, open: () => void): HTMLElement {
  const tags = Object.entries(one.tags).map(([key, value]) => `${key}=${value}`);
  const name = h("button", { class: "plain text open", title: `Open ${one.recording}`, onclick: open }, one.recording);
  const wrong = one.problems > 0 ? h("span", { class: "bad", role: "img", "aria-label": counted(one.problems, "problem"), title: `${counted(one.problems, "problem")}: see asof doctor` }, " ⚠") : null;
  const wide = [one.duration === null ? "–" : span(one.duration), one.messages === null ? "–" : count(one.messages), bytes(one.size)];
  return h(
    "tr",
    { ondblclick: open },
    h("td", {}, name, wrong),
    h("td", {}, one.start?.replace("T", " ").slice(0, 19) ?? "–"),
    ...wide.map((text) => h("td", { class: "number" }, text)),
    ...[one.robot, one.site].map((text) => h("td", {}, text ?? "")),
    h("td", { class: "faint", title: tags.join("\n") }, tags.join(" ")),
  );
}
