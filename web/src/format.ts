export type Clock = "relative" | "utc" | "local";

/** Whether the recording is so long that its times are minutes and seconds. */
let isLong = false;
export function setDuration(nanos: number): void {
  isLong = nanos >= 120e9;
}

/** Seconds as minutes and seconds, and hours where there are some: 20:00, 1:05:00. */
function minutes(seconds: number, digits: number): string {
  const all = Math.abs(seconds).toFixed(digits);
  const [whole, fraction] = all.split(".");
  const two = (value: number) => String(value).padStart(2, "0");
  const [hour, minute, second] = [Math.floor(Number(whole) / 3600), Math.floor(Number(whole) / 60) % 60, Number(whole) % 60];
  const text = hour > 0 ? `${hour}:${two(minute)}:${two(second)}` : `${minute}:${two(second)}`;
  return `${seconds < 0 && Number(all) > 0 ? "−" : ""}${text}${fraction ? `.${fraction}` : ""}`;
}

/** Formats a time for the chosen clock. */
export function time(t: number, clock: Clock, start: string, digits = 3): string {
  if (clock === "relative") return isLong ? minutes(t / 1e9, digits) : `${(t / 1e9).toFixed(digits)} s`;
  const nanos = BigInt(start) + BigInt(Math.round(t));
  const millis = Number(nanos / 1_000_000n);
  const date = new Date(millis);
  const fraction = digits > 0 ? "." + String(((millis % 1000) + 1000) % 1000).padStart(3, "0").slice(0, digits) : "";
  if (clock === "utc") return date.toISOString().slice(0, 19).replace("T", " ") + fraction + "Z";
  const two = (value: number) => String(value).padStart(2, "0");
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}${fraction}`;
}

export function count(value: number | null): string {
  return value === null ? "?" : value.toLocaleString("en");
}

/** A number of things: "1 message", "2 messages". */
export function counted(value: number | null, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}

export function bytes(value: number): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit++;
  }
  return `${value >= 100 || unit === 0 ? value.toFixed(0) : value.toFixed(1)} ${units[unit]}`;
}

export function rate(hz: number | null): string {
  if (hz === null) return "";
  return hz >= 100 ? `${hz.toFixed(0)} Hz` : hz >= 1 ? `${hz.toFixed(1)} Hz` : `${hz.toFixed(2)} Hz`;
}

export function number(value: number): string {
  if (!Number.isFinite(value)) return String(value);
  if (Number.isInteger(value)) return String(value);
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e9)) return value.toExponential(4);
  return String(Number(value.toPrecision(7)));
}

/** Numbers beside an axis: with as many digits as tell neighbours apart. */
export function numbers(splits: number[]): string[] {
  const step = Math.abs(splits[1] - splits[0]);
  const most = Math.max(...splits.map(Math.abs));
  // An exact zero would need any number of digits.
  const digits = step > 0 ? Math.min(17, Math.max(1, Math.ceil(Math.log10(most / step)) + 2)) : 7;
  return splits.map((value) => {
    const short = Number(value.toPrecision(digits));
    const size = Math.abs(short);
    if (size < step / 1e3) return "0";
    return size < 1e-4 || size >= 1e12 ? short.toExponential() : String(short);
  });
}

/** Round steps of time, about `count` of them from `start` to `end`, and three at least where they fit. */
export function ticks(start: number, end: number, count: number): { at: number[]; digits: number } {
  const step = (end - start) / 1e9 / Math.max(count, 3);
  const power = 10 ** Math.floor(Math.log10(Math.max(step, 1e-9)));
  let nice = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((one) => one >= step * 0.8) ?? step;
  if (nice > 10) nice = [15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400].find((one) => one >= step * 0.8) ?? nice;
  const at = [];
  for (let index = Math.ceil(start / 1e9 / nice); index * nice * 1e9 <= end; index++) at.push(index * nice * 1e9);
  const digits = [0, 1, 2, 3, 4, 5, 6].find((one) => Math.abs(nice * 10 ** one - Math.round(nice * 10 ** one)) < 1e-6) ?? 6;
  return { at, digits };
}

/** Formats a duration in nanoseconds. */
export function span(nanos: number): string {
  const seconds = nanos / 1e9;
  if (seconds < 120) return `${Number(seconds.toFixed(1))} s`;
  return seconds < 7200 ? `${Number((seconds / 60).toFixed(1))} min` : `${Number((seconds / 3600).toFixed(1))} h`;
}
