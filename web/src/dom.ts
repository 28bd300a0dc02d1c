type Child = Node | string | null | undefined;

/** An element with attributes and children. Handlers are given as `onclick` and the like. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Record<string, unknown> = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value as EventListener);
    else if (name === "class") element.className = String(value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children) if (child !== null && child !== undefined) element.append(child);
  return element;
}

const PATHS: Record<string, string> = {
  play: "M4 2.5v11l9-5.5z",
  pause: "M4 2.5h3v11H4zM9 2.5h3v11H9z",
  next: "M3 2.5v11l7-5.5zM11 2.5h2v11h-2z",
  previous: "M13 2.5v11L6 8zM3 2.5h2v11H3z",
  first: "M13 2.5v11L8 8zM8 2.5v11L3 8zM1.500 2.5h1.500v11h-1.500z",
  last: "M3 2.500v11l5-5.500zM8 2.500v11l5-5.500zM13 2.500h1.500v11h-1.500z",
  loop: "M11 2l3 2.500-3 2.500V5.300H5a2 2 0 0 0-2 2V8H1.400v-.700A3.600 3.600 0 0 1 5 3.700h6zM5 14l-3-2.500L5 9v1.700h6a2 2 0 0 0 2-2V8h1.600v.700a3.600 3.600 0 0 1-3.600 3.600H5z",
  close: "M3.500 4.600l1.100-1.100L8 6.900l3.400-3.400 1.100 1.100L9.100 8l3.400 3.400-1.100 1.100L8 9.100l-3.400 3.400-1.100-1.100L6.900 8z",
  columns: "M1.500 2.500h13v11h-13zM3 4v8h4.200V4zM8.800 4v8H13V4z",
  rows: "M1.500 2.500h13v11h-13zM3 4v3.200h10V4zM3 8.800V12h10V8.800z",
  theme: "M8 1.500a6.500 6.500 0 1 0 0 13zM8 3v10a5 5 0 0 0 0-10z",
  menu: "M2 3.500h12V5H2zM2 7.250h12v1.500H2zM2 11h12v1.500H2z",
  plus: "M7.200 3h1.600v4.200H13v1.600H8.800V13H7.200V8.800H3V7.200h4.200z",
  undo: "M6.500 2.500L2.500 6.500l4 4V8H10a2.250 2.250 0 0 1 0 4.500H7V14h3a3.750 3.750 0 0 0 0-7.500H6.500z",
  link: "M9 2h5v5h-1.600V4.700L7.600 9.500 6.500 8.400l4.800-4.800H9zM2 4h5v1.600H3.600v6.800h6.800V9H12v5H2z",
  people: "M5.500 8a2.500 2.500 0 1 0 0-5 2.500 2.500 0 0 0 0 5zM1 13c0-2.500 2-4 4.500-4S10 10.500 10 13zM11 8a2 2 0 1 0 0-4zM11 9c2.500 0 4 1.500 4 4h-4z",
};

export function icon(name: string): SVGSVGElement {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("aria-hidden", "true");
  svg.classList.add("icon");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", PATHS[name]);
  path.setAttribute("fill-rule", "evenodd");
  svg.append(path);
  return svg;
}

export function button(name: string, label: string, click: () => void, extra = ""): HTMLButtonElement {
  return h("button", { class: `plain ${extra}`, "aria-label": label, title: label, onclick: click }, icon(name));
}

/** A placeholder where there is no data, with advice. */
export function empty(title: string, advice: string): HTMLElement {
  return h("div", { class: "empty" }, h("strong", {}, title), h("span", {}, advice));
}

/** The shortest time between two redraws during playback, in milliseconds. */
let pause = 0;
/** Without a GPU each redraw costs CPU time, even for a line that moves by one pixel. */
export function drawAtMost(rate: number): void {
  pause = 1000 / rate;
}
/** Whether a redraw is due. */
export function isDue(drawnAt: number): boolean {
  return performance.now() - drawnAt >= pause - 8;
}

/** A canvas in device pixels, redrawn when it is resized. */
export function canvas(label: string, draw: (context: CanvasRenderingContext2D, width: number, height: number) => void) {
  const element = h("canvas", { "aria-label": label, role: "img" });
  let queued = false;
  let drawnAt = -Infinity;
  const redraw = () => {
    if (queued) return;
    queued = true;
    const next = () => {
      if (!isDue(drawnAt)) return void requestAnimationFrame(next);
      queued = false;
      drawnAt = performance.now();
      const { clientWidth: width, clientHeight: height } = element;
      if (width === 0 || height === 0) return;
      const scale = devicePixelRatio;
      if (element.width !== Math.round(width * scale) || element.height !== Math.round(height * scale)) {
        element.width = Math.round(width * scale);
        element.height = Math.round(height * scale);
      }
      const context = element.getContext("2d");
      if (!context) return;
      context.setTransform(scale, 0, 0, scale, 0, 0);
      context.clearRect(0, 0, width, height);
      draw(context, width, height);
    };
    requestAnimationFrame(next);
  };
  new ResizeObserver(redraw).observe(element);
  return { element, redraw };
}

const colors = new Map<string, string>();
addEventListener("asof-theme", () => colors.clear());

/** A colour of the style sheet. */
export function color(name: string): string {
  let found = colors.get(name);
  if (found === undefined) {
    found = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
    if (found) colors.set(name, found);
  }
  return found;
}

export const SERIES = ["#3b82f6", "#f59e0b", "#10b981", "#ef4444", "#8b5cf6", "#06b6d4", "#ec4899", "#84cc16"];
