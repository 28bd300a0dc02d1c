import type { Shown } from "./types";

interface Head {
  path: string;
  kind: "f32" | "f64" | "list" | "text";
  at: number;
  len: number;
  width?: number;
  bytes?: number;
}

export type Numbers = Float32Array | Float64Array;

/** The columns of a message's archetype: typed arrays over the message's buffer, complete. */
export class Columns {
  readonly rows: number;
  /** Fields that were not sent, such as embedded files. */
  readonly leftOut: string[];
  private heads: Map<string, Head>;

  constructor(private shown: Shown) {
    const heads = (shown.columns as Head[] | undefined) ?? [];
    this.heads = new Map(heads.map((head) => [head.path, head]));
    this.rows = Number(shown.rows ?? 0);
    this.leftOut = (shown.left_out as string[] | undefined) ?? [];
  }

  has(path: string): boolean {
    return this.heads.has(path);
  }

  /** All numbers of a column; of a column of vectors, component by component. Empty if there is no such column. */
  numbers(path: string): Numbers {
    const head = this.heads.get(path);
    if (!head || !this.shown.body || (head.kind !== "f32" && head.kind !== "f64")) return new Float64Array(0);
    const count = head.len * (head.width ?? 1);
    const at = (this.shown.bodyOffset ?? 0) + head.at;
    return head.kind === "f32" ? new Float32Array(this.shown.body, at, count) : new Float64Array(this.shown.body, at, count);
  }

  /** The offsets of each row's list elements, and the end of the last one's. */
  offsets(path: string): Uint32Array {
    const head = this.heads.get(path);
    if (!head || !this.shown.body || head.kind !== "list") return new Uint32Array(1);
    return new Uint32Array(this.shown.body, (this.shown.bodyOffset ?? 0) + head.at, head.len + 1);
  }

  texts(path: string): string[] {
    const head = this.heads.get(path);
    if (!head || !this.shown.body || head.kind !== "text" || head.bytes === undefined) return [];
    const offset = this.shown.bodyOffset ?? 0;
    const ends = new Uint32Array(this.shown.body, offset + head.at, head.len + 1);
    const bytes = new Uint8Array(this.shown.body, offset + head.bytes, ends[head.len]);
    const decoder = new TextDecoder();
    return Array.from({ length: head.len }, (_, row) => decoder.decode(bytes.subarray(ends[row], ends[row + 1])));
  }

  /** A number, or a default where it is missing. */
  number(path: string, row: number, otherwise = 0): number {
    const value = this.numbers(path)[row];
    return value === undefined || Number.isNaN(value) ? otherwise : value;
  }
}

/** Reads one part of a struct of numbers for many rows: `part("x", row)`. The columns are looked up once. */
export function parts(columns: Columns, path: string, names: string[]): (row: number, part: number, otherwise: number) => number {
  // A vector of its archetype lies component by component; a struct within a list has a column for each.
  const vector = columns.numbers(path);
  if (vector.length > 0) {
    const width = names.length;
    return (row, part, otherwise) => finite(vector[row * width + part], otherwise);
  }
  const each = names.map((name) => columns.numbers(`${path}.${name}`));
  return (row, part, otherwise) => finite(each[part][row], otherwise);
}

function finite(value: number | undefined, otherwise: number): number {
  return value === undefined || Number.isNaN(value) ? otherwise : value;
}

/** Poses of rows or of list elements, as `[x, y, z, qx, qy, qz, qw]`. */
export function posesAt(columns: Columns, position: string, orientation: string): (row: number) => number[] {
  const place = parts(columns, position, ["x", "y", "z"]);
  const turn = parts(columns, orientation, ["x", "y", "z", "w"]);
  return (row) => {
    const pose = [place(row, 0, 0), place(row, 1, 0), place(row, 2, 0), turn(row, 0, 0), turn(row, 1, 0), turn(row, 2, 0), turn(row, 3, 1)];
    // All zeros: the publisher never set it.
    if (pose[3] === 0 && pose[4] === 0 && pose[5] === 0 && pose[6] === 0) pose[6] = 1;
    return pose;
  };
}
