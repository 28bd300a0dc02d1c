import { number, ticks } from "./format";

/** Minimum and maximum of a field per column, over a time range. */
export interface Line {
  least: Float64Array;
  most: Float64Array;
  error?: string;
}

export interface Stretch {
  start: number;
  end: number;
  count: number;
}

/** The minimum and maximum of each column, ordered so that the line does not zigzag. */
export function zigzag(line: Line, count: number): (number | null)[] {
  const values: (number | null)[] = new Array(count * 2);
  let last = 0;
  for (let column = 0; column < count; column++) {
    const [low, high] = [line.least[column], line.most[column]];
    const isThere = !Number.isNaN(low);
    const up = Math.abs(low - last) <= Math.abs(high - last);
    values[2 * column] = isThere ? (up ? low : high) : null;
    values[2 * column + 1] = isThere ? (up ? high : low) : null;
    if (isThere) last = up ? high : low;
  }
  return values;
}

/** The rate of change from column to column, per second. */
export function slope(line: Line, width: number, count: number): (number | null)[] {
  const values: (number | null)[] = new Array(count * 2).fill(null);
  let before: [number, number] | undefined;
  for (let column = 0; column < count; column++) {
    const middle = (line.least[column] + line.most[column]) / 2;
    if (Number.isNaN(middle)) continue;
    if (before) values[2 * column] = values[2 * column + 1] = (middle - before[1]) / ((column - before[0]) * width);
    before = [column, middle];
  }
  return values;
}

/** Evaluates a formula over other lines, column by column; missing values are filled with the last one. */
export function computed(of: (values: Record<string, number>) => number, lines: Record<string, Line>, count: number): Line {
  const least = new Float64Array(count).fill(NaN);
  const last: Record<string, number> = {};
  const entries = Object.entries(lines);
  for (let column = 0; column < count; column++) {
    let isNew = false;
    for (const [name, line] of entries) {
      const middle = (line.least[column] + line.most[column]) / 2;
      if (Number.isNaN(middle)) continue;
      last[name] = middle;
      isNew = true;
    }
    if (isNew && entries.every(([name]) => name in last)) least[column] = of(last);
  }
  return { least, most: least };
}

/** The minimum and maximum in the visible range. */
export function ends(line: Line, span: Stretch, view: { start: number; end: number }): { least: number; most: number } | undefined {
  const width = (span.end - span.start + 1) / Math.max(span.count, 1);
  let [least, most, columns] = [Infinity, -Infinity, 0];
  for (let column = 0; column < span.count; column++) {
    const t = span.start + column * width;
    if (t + width < view.start || t > view.end || Number.isNaN(line.least[column])) continue;
    least = Math.min(least, line.least[column]);
    most = Math.max(most, line.most[column]);
    columns++;
  }
  return columns === 0 ? undefined : { least, most };
}

/** Statistics of a field over a time range. */
export interface Figures {
  mean: number;
  deviation: number;
  /** The 5th, 50th and 95th percentile. */
  percentiles: [number, number, number];
}

/** The statistics of values within a time range; undefined without values. */
export function figuresOf(values: Iterable<[number, number]>, view: { start: number; end: number }): Figures | undefined {
  const seen = [...values].filter(([t, value]) => t >= view.start && t <= view.end && Number.isFinite(value)).map(([, value]) => value);
  if (seen.length === 0) return undefined;
  const mean = seen.reduce((sum, value) => sum + value, 0) / seen.length;
  const square = seen.reduce((sum, value) => sum + (value - mean) ** 2, 0) / seen.length;
  const sorted = seen.sort((a, b) => a - b);
  const at = (part: number) => {
    const place = part * (sorted.length - 1);
    const [low, high] = [sorted[Math.floor(place)], sorted[Math.ceil(place)]];
    return low + (high - low) * (place % 1);
  };
  return { mean, deviation: Math.sqrt(square), percentiles: [at(0.05), at(0.5), at(0.95)] };
}

/** The mean of minimum and maximum of each column. */
export function middles(line: Line, span: Stretch): [number, number][] {
  const width = (span.end - span.start + 1) / Math.max(span.count, 1);
  return Array.from({ length: span.count }, (_, column): [number, number] => [span.start + (column + 0.5) * width, (line.least[column] + line.most[column]) / 2]);
}

export interface Drawn {
  name: string;
  color: string;
  x: ArrayLike<number>;
  y: ArrayLike<number | null>;
}

/** Lines as SVG. */
export function svgOf(drawn: Drawn[], x: [number, number], y: [number, number]): string {
  const [width, height, left, bottom] = [960, 480, 64, 32];
  const at = (value: number) => left + ((value - x[0]) / (x[1] - x[0])) * (width - left - 10);
  const up = (value: number) => height - bottom - ((value - y[0]) / (y[1] - y[0])) * (height - bottom - 10 - 18 * drawn.length);
  const path = ({ x: xs, y: ys, color }: Drawn) => {
    let d = "";
    let isDown = false;
    for (let index = 0; index < xs.length; index++) {
      const value = ys[index];
      if (value === null || !Number.isFinite(value) || xs[index] < x[0] || xs[index] > x[1]) continue;
      d += `${isDown ? "L" : "M"}${at(xs[index]).toFixed(1)} ${up(value).toFixed(1)}`;
      isDown = true;
    }
    return `<path d="${d}" fill="none" stroke="${escaped(color)}" stroke-width="1.5"/>`;
  };
  const marks = ticks(x[0] * 1e9, x[1] * 1e9, 8).at.map((t) => t / 1e9);
  const axis = marks.map((t) => `<text x="${at(t).toFixed(1)}" y="${height - 12}" text-anchor="middle">${number(Number(t.toPrecision(6)))}</text>`);
  const values = Array.from({ length: 6 }, (_, index) => y[0] + ((y[1] - y[0]) * index) / 5);
  const rows = values.map((one) => `<path d="M${left} ${up(one).toFixed(1)}H${width - 10}" stroke="#ccc"/><text x="${left - 6}" y="${(up(one) + 4).toFixed(1)}" text-anchor="end">${number(Number(one.toPrecision(4)))}</text>`);
  const legend = drawn.map(({ name, color }, index) => `<text x="${left}" y="${16 + 18 * index}" fill="${escaped(color)}">${escaped(name)}</text>`);
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="#fff"/>${[...rows, ...axis, ...drawn.map(path), ...legend].join("")}</svg>`;
}

function escaped(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll('"', "&quot;");
}
