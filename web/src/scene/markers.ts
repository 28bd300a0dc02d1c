import { type Columns, parts, posesAt } from "../columns";

/** One shape: of a marker, or of a primitive of a scene. */
export interface Marker {
  /** Replaced by a later one with the same key. */
  key: string;
  frame: string;
  /** The type number of visualization_msgs. */
  type: number;
  pose: number[];
  scale: number[];
  color: number[];
  /** x, y, z of each point. */
  points: Float64Array;
  /** r, g, b, a of each point, or nothing. */
  colors: Float32Array;
  indices?: number[];
  text: string;
  mesh: string;
  /** Seconds; zero for ever. */
  lifetime: number;
}

/** The changes of one message. */
export interface Change {
  /** Removed markers, or "all". */
  removed: "all" | ((key: string) => boolean);
  added: Marker[];
}

const DELETE = 2;
const DELETE_ALL = 3;
const NONE = () => false;

/** The markers of visualization_msgs, one per row. */
export function markersOf(columns: Columns): Change[] {
  const changes: Change[] = [];
  const [frames, namespaces, texts, meshes] = ["frame_id", "ns", "text", "mesh_resource"].map((path) => columns.texts(path));
  const pose = posesAt(columns, "position", "orientation");
  const scale = parts(columns, "scale", ["x", "y", "z"]);
  const color = parts(columns, "color", ["r", "g", "b", "a"]);
  const spots = lists(columns, "points", ["x", "y", "z"], 0);
  const tints = lists(columns, "colors", ["r", "g", "b", "a"], 1);
  let added: Marker[] = [];
  const hold = (removed: Change["removed"]) => {
    if (added.length > 0) changes.push({ removed: NONE, added });
    added = [];
    changes.push({ removed, added: [] });
  };
  // In an encoding without types, an empty list does not tell the type of its elements.
  const rows = columns.has("id") || columns.has("type") ? columns.rows : 0;
  for (let row = 0; row < rows; row++) {
    const key = `${namespaces[row] ?? ""}\n${columns.number("id", row)}`;
    const action = columns.number("action", row);
    if (action === DELETE_ALL) hold(namespaces[row] ? (known) => known.startsWith(`${namespaces[row]}\n`) : "all");
    else if (action === DELETE) hold((known) => known === key);
    else
      added.push({
        key,
        frame: plain(frames[row]),
        type: columns.number("type", row),
        pose: pose(row),
        scale: [scale(row, 0, 1), scale(row, 1, 1), scale(row, 2, 1)],
        color: [color(row, 0, 1), color(row, 1, 1), color(row, 2, 1), color(row, 3, 1)],
        points: Float64Array.from(spots(row)),
        colors: Float32Array.from(tints(row)),
        text: texts[row] ?? "",
        mesh: meshes[row] ?? "",
        lifetime: seconds(columns, "lifetime", row),
      });
  }
  if (added.length > 0 || changes.length === 0) changes.push({ removed: NONE, added });
  return changes;
}

/** Foxglove's primitives, and their type numbers in visualization_msgs. */
const SHAPES: Record<string, number> = { arrows: 0, cubes: 1, spheres: 2, cylinders: 3, texts: 9, triangles: 11, models: 10, lines: 4 };
const LINE_LIST = 2;

/** A scene update of Foxglove: entities are replaced by id, or deleted. */
export function sceneOf(columns: Columns): Change[] {
  const changes: Change[] = [];
  const gone = columns.texts("deletions[].id");
  const types = columns.numbers("deletions[].type");
  const names = columns.texts("deletions[].type");
  const deletions = columns.offsets("deletions").at(-1) ?? 0;
  for (let row = 0; row < deletions; row++) {
    const isAll = types[row] === 1 || names[row] === "ALL";
    const start = `${gone[row] ?? ""}\n`;
    changes.push({ removed: isAll ? "all" : (key) => key.startsWith(start), added: [] });
  }
  const ids = columns.texts("entities[].id");
  const frames = columns.texts("entities[].frame_id");
  const count = columns.offsets("entities").at(-1) ?? 0;
  const all = Array.from({ length: count }, (): Marker[] => []);
  for (const kind of Object.keys(SHAPES)) primitives(columns, kind, all, (entity) => [`${ids[entity] ?? ""}\n`, plain(frames[entity])]);
  all.forEach((added, entity) => {
    const start = `${ids[entity] ?? ""}\n`;
    changes.push({ removed: (key) => key.startsWith(start), added });
  });
  return changes;
}

function primitives(columns: Columns, kind: string, into: Marker[][], of: (entity: number) => [string, string]): void {
  const path = `entities[].${kind}`;
  const offsets = columns.offsets(path);
  const pose = posesAt(columns, `${path}[].pose.position`, `${path}[].pose.orientation`);
  const size = parts(columns, `${path}[].size`, ["x", "y", "z"]);
  const scale = parts(columns, `${path}[].scale`, ["x", "y", "z"]);
  const color = parts(columns, `${path}[].color`, ["r", "g", "b", "a"]);
  const spots = lists(columns, `${path}[].points`, ["x", "y", "z"], 0);
  const tints = lists(columns, `${path}[].colors`, ["r", "g", "b", "a"], 1);
  const indices = numbersOf(columns, `${path}[].indices`);
  const texts = columns.texts(`${path}[].text`);
  const urls = columns.texts(`${path}[].url`);
  const lineTypes = columns.texts(`${path}[].type`);
  const at = (name: string, row: number, otherwise: number) => columns.number(`${path}[].${name}`, row, otherwise);
  for (let entity = 0; entity + 1 < offsets.length && entity < into.length; entity++)
    for (let row = offsets[entity]; row < offsets[entity + 1]; row++) {
      const [start, frame] = of(entity);
      let points = Float64Array.from(spots(row));
      const isList = kind === "lines" && (at("type", row, 0) === LINE_LIST || lineTypes[row] === "LINE_LIST");
      const isLoop = kind === "lines" && (at("type", row, 0) === 1 || lineTypes[row] === "LINE_LOOP");
      if (isLoop && points.length > 0) points = Float64Array.from([...points, ...points.subarray(0, 3)]);
      into[entity].push({
        key: `${start}${kind} ${row - offsets[entity]}`,
        frame,
        type: isList ? 5 : SHAPES[kind],
        pose: pose(row),
        scale: sizeOf(kind, row, at, kind === "models" ? scale : size),
        color: [color(row, 0, 1), color(row, 1, 1), color(row, 2, 1), color(row, 3, 1)],
        points,
        colors: Float32Array.from(tints(row)),
        indices: indices(row),
        text: texts[row] ?? "",
        mesh: urls[row] ?? "",
        lifetime: 0,
      });
    }
}

type At = (name: string, row: number, otherwise: number) => number;

/** The three sizes of a primitive, as a marker has them. */
function sizeOf(kind: string, row: number, at: At, size: (row: number, part: number, otherwise: number) => number): number[] {
  if (kind === "arrows") return [at("shaft_length", row, 0) + at("head_length", row, 0) || 1, at("head_diameter", row, 0.1), 1];
  if (kind === "texts") return [1, 1, at("scale_invariant", row, 0) ? 0.3 : at("font_size", row, 0.2)];
  return [size(row, 0, 1), size(row, 1, 1), size(row, 2, 1)];
}

/** The elements of each row's list, part after part. */
function lists(columns: Columns, path: string, names: string[], otherwise: number): (row: number) => number[] {
  const offsets = columns.offsets(path);
  const part = parts(columns, `${path}[]`, names);
  return (row) => {
    const all = [];
    for (let at = offsets[row] ?? 0; at < (offsets[row + 1] ?? 0); at++) for (let index = 0; index < names.length; index++) all.push(part(at, index, otherwise));
    return all;
  };
}

function numbersOf(columns: Columns, path: string): (row: number) => number[] {
  const offsets = columns.offsets(path);
  const values = columns.numbers(`${path}[]`);
  return (row) => Array.from(values.subarray(offsets[row] ?? 0, offsets[row + 1] ?? 0));
}

function seconds(columns: Columns, path: string, row: number): number {
  const whole = columns.number(`${path}.sec`, row) || columns.number(`${path}.secs`, row) || columns.number(path, row);
  return whole + (columns.number(`${path}.nanosec`, row) || columns.number(`${path}.nsec`, row) || columns.number(`${path}.nsecs`, row)) * 1e-9;
}

export const plain = (frame: string | undefined): string => (frame ?? "").replace(/^\//, "");
