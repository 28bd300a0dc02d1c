import { base } from "./base";

/** The bytes of one message within a response's body. */
export interface Packet {
  t: number;
  at: number;
  size: number;
}

/** A binary response: a head in JSON, and a body. */
export async function packetsOf<T>(path: string, parameters: Record<string, string>): Promise<{ head: T; body: Uint8Array }> {
  const response = await fetch(`${base}api/${path}?${new URLSearchParams(parameters)}`);
  if (!response.ok) throw new Error(((await response.json()) as { error: string }).error);
  const bytes = await response.arrayBuffer();
  const length = new DataView(bytes).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, 4, length))) as T;
  return { head, body: new Uint8Array(bytes, 4 + length) };
}
