import * as three from "three";
import { type Columns, parts, posesAt } from "../columns";
import { instanced } from "./batch";
import { matrixOf } from "./frames";

/** More arrows than this are thinned out. */
const MOST_ARROWS = 20_000;

/** A line through points, relative to the first one for precision. */
export function lineOf(places: ArrayLike<number>, color: string): three.Line {
  const count = Math.floor(places.length / 3);
  const origin = [places[0] ?? 0, places[1] ?? 0, places[2] ?? 0];
  const near = new Float32Array(count * 3);
  for (let at = 0; at < near.length; at++) near[at] = places[at] - origin[at % 3];
  const geometry = new three.BufferGeometry();
  geometry.setAttribute("position", new three.BufferAttribute(near, 3));
  const line = new three.Line(geometry, new three.LineBasicMaterial({ color }));
  line.position.set(origin[0], origin[1], origin[2]);
  return line;
}

/** A pose as an arrow along x. */
export function arrowOf(pose: number[], size: number, color: string): three.Mesh {
  const shape = new three.Mesh(
    new three.ConeGeometry(0.09 * size, 0.42 * size, 16).rotateZ(-Math.PI / 2).translate(0.21 * size, 0, 0),
    new three.MeshLambertMaterial({ color }),
  );
  shape.applyMatrix4(matrixOf(pose));
  return shape;
}

export interface DrawnPoses {
  object: three.Object3D;
  count: number;
  /** What is not drawn. */
  left: string;
}

/**
 * The poses of a message. Those that come one after the other, each with a header of its own, are a path, and a line;
 * those that are there at once are arrows.
 */
export function posesOf(columns: Columns, color: string, size: number): DrawnPoses {
  const isPath = columns.has("poses[].pose.position.x") || columns.has("poses[].pose.position");
  const inner = isPath ? "poses[].pose" : "poses[]";
  const count = columns.offsets("poses").at(-1) ?? 0;
  if (isPath) {
    const place = parts(columns, `${inner}.position`, ["x", "y", "z"]);
    const places = new Float64Array(count * 3);
    for (let at = 0; at < places.length; at++) places[at] = place(Math.floor(at / 3), at % 3, 0);
    return { object: lineOf(places, color), count, left: "" };
  }
  const pose = posesAt(columns, `${inner}.position`, `${inner}.orientation`);
  const every = Math.max(1, Math.ceil(count / MOST_ARROWS));
  const tint = new three.Color(color);
  const origin = count > 0 ? pose(0) : [0, 0, 0];
  const all = [];
  for (let at = 0; at < count; at += every) {
    const own = pose(at);
    for (const axis of [0, 1, 2]) own[axis] -= origin[axis];
    all.push({ matrix: matrixOf(own).scale(new three.Vector3(0.42 * size, 0.14 * size, 0.14 * size)), color: tint });
  }
  const object = instanced("arrow 1", all);
  object.position.set(origin[0], origin[1], origin[2]);
  return { object, count: all.length, left: every > 1 ? `${count - all.length} arrows` : "" };
}

/** A polygon's outline, closed. */
export function polygonOf(columns: Columns, color: string): three.Line {
  const place = parts(columns, "points[]", ["x", "y", "z"]);
  const count = columns.offsets("points").at(-1) ?? 0;
  const places = [];
  for (let at = 0; at <= count && count > 0; at++) for (const axis of [0, 1, 2]) places.push(place(at % count, axis, 0));
  return lineOf(places, color);
}

/** A range measurement as a cone. */
export function rangeOf(columns: Columns, color: string): three.Mesh | undefined {
  const range = columns.number("range", 0, NaN);
  if (!Number.isFinite(range) || range <= 0) return undefined;
  const wide = Math.tan(Math.min(Math.max(columns.number("field_of_view", 0, 0.1), 0.01), 3) / 2) * range;
  const cone = new three.ConeGeometry(wide, range, 24, 1, true).rotateZ(Math.PI / 2).translate(range / 2, 0, 0);
  return new three.Mesh(cone, new three.MeshLambertMaterial({ color, transparent: true, opacity: 0.45, side: three.DoubleSide }));
}
