import type { Json } from "./types";

type Reviver = (this: unknown, key: string, value: unknown, context?: { source?: string }) => unknown;

/** Parses JSON; integers beyond 2^53 become a bigint. */
export function parseExact<T>(text: string): T {
  if (!/\d{16}/.test(text)) return JSON.parse(text) as T;
  const reviver: Reviver = (_key, value, context) => {
    if (typeof value !== "number" || Number.isSafeInteger(value)) return value;
    return /^-?\d+$/.test(context?.source ?? "") ? BigInt(context?.source as string) : value;
  };
  return JSON.parse(text, reviver as (key: string, value: unknown) => unknown) as T;
}

/** A value with all of its digits. */
export function exact(value: Json): string {
  if (Array.isArray(value)) return `[${value.map(exact).join(", ")}]`;
  if (value !== null && typeof value === "object") return `{${Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}: ${exact(one)}`).join(", ")}}`;
  if (typeof value === "string") return JSON.stringify(value);
  return Object.is(value, -0) ? "-0" : String(value);
}

/** The JSON object or list in a text or in bytes, if there is one. */
export function jsonWithin(value: Json): Json | undefined {
  const text = typeof value === "string" ? value : textOf(value);
  if (text === undefined || !/^\s*[{[]/.test(text) || text.length > 1_000_000) return undefined;
  try {
    const found = parseExact<Json>(text);
    return found !== null && typeof found === "object" ? found : undefined;
  } catch {
    return undefined;
  }
}

/** The text of a list of bytes that begins like JSON. */
function textOf(value: Json): string | undefined {
  if (!Array.isArray(value) || value.length < 2 || (value[0] !== 0x7b && value[0] !== 0x5b)) return undefined;
  const bytes = value.filter((one): one is number => typeof one === "number" && Number.isInteger(one) && one >= 0 && one <= 255);
  return bytes.length === value.length ? new TextDecoder().decode(Uint8Array.from(bytes)).replace(/\0+$/, "") : undefined;
}
