import { h } from "./dom";

const COLORS = ["inherit", "#dc2626", "#16a34a", "#ca8a04", "#2563eb", "#c026d3", "#0891b2", "inherit"];
const CODE = /\u001b\[([0-9;]*)m/g;
/** Escape sequences that move the cursor or clear the screen have no meaning in a log line. */
const OTHERS = /\u001b(?:\[[0-9;?]*[A-Za-ln-z]|\][^\u0007]*\u0007|[()][AB0])/g;

/** Text without ANSI escape sequences. */
export function withoutCodes(text: string): string {
  return text.replace(OTHERS, "").replace(CODE, "");
}

/** Text with its ANSI colours, as elements. */
export function colored(text: string): (Node | string)[] {
  if (!text.includes("\u001b")) return [text];
  const found: (Node | string)[] = [];
  const clean = text.replace(OTHERS, "");
  let [at, style] = [0, ""];
  const add = (part: string) => {
    if (part) found.push(style ? h("span", { style }, part) : part);
  };
  for (const match of clean.matchAll(CODE)) {
    add(clean.slice(at, match.index));
    at = match.index + match[0].length;
    style = styled(style, match[1].split(";").map(Number));
  }
  add(clean.slice(at));
  return found;
}

function styled(before: string, codes: number[]): string {
  let style = before;
  for (const code of codes) {
    if (code === 0) style = "";
    else if (code === 1) style += ";font-weight:600";
    else if (code >= 30 && code <= 37) style += `;color:${COLORS[code - 30]}`;
    else if (code >= 90 && code <= 97) style += `;color:${COLORS[code - 90]}`;
    else if (code === 39) style += ";color:inherit";
  }
  return style;
}
