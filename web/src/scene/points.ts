import * as three from "three";
import type { Shown } from "../types";
import { matrixOf } from "./frames";

/** How points are coloured: by their values, by position, or uniformly. */
export type PointColor = "value" | "x" | "y" | "z" | "flat" | `field ${string}`;

const STEPS = 256;
/** From blue for the minimum to red for the maximum. */
const RAINBOW = (() => {
  const table = new Uint8Array(STEPS * 3);
  const tint = new three.Color();
  for (let step = 0; step < STEPS; step++) {
    tint.setHSL(0.66 * (1 - step / (STEPS - 1)), 0.9, 0.52);
    table.set([tint.r * 255, tint.g * 255, tint.b * 255], step * 3);
  }
  return table;
})();
/** The colour of a value from 0 to 1, in bytes. */
export function rainbowAt(part: number): number[] {
  const tint = new three.Color().setHSL(0.66 * (1 - Math.max(0, Math.min(1, part))), 0.9, 0.52);
  return [tint.r, tint.g, tint.b].map((value) => Math.round(255 * three.MathUtils.clamp(value, 0, 1) ** (1 / 2.2)));
}

const LINEAR = Uint8Array.from({ length: 256 }, (_, at) => Math.round((at / 255) ** 2.2 * 255));

export interface PointOptions {
  by: PointColor;
  size: number;
  color: string;
  /** The range of values from blue to red; what is not a number is taken from the points. */
  least: number;
  most: number;
}

export function cloudOf(shown: Shown, options: PointOptions): three.Points {
  const count = Number(shown.count ?? 0);
  const places = shown.body ? new Float32Array(shown.body, shown.bodyOffset, count * 3) : new Float32Array(0);
  const geometry = new three.BufferGeometry();
  geometry.setAttribute("position", new three.BufferAttribute(places, 3));
  geometry.setAttribute("color", new three.BufferAttribute(colorsOf(shown, places, count, options), 3, true));
  const cloud = new three.Points(geometry, new three.PointsMaterial({ size: options.size, sizeAttenuation: false, vertexColors: true }));
  cloud.frustumCulled = false;
  const local = shown.local_pose as number[] | null;
  if (local) cloud.applyMatrix4(matrixOf(local));
  return cloud;
}

function colorsOf(shown: Shown, places: Float32Array, count: number, options: PointOptions): Uint8Array {
  const colors = new Uint8Array(count * 3);
  if (!shown.body || count === 0) return colors;
  const after = (shown.bodyOffset as number) + count * 12;
  if (options.by === "flat") {
    const flat = new three.Color(options.color);
    const one = [flat.r * 255, flat.g * 255, flat.b * 255];
    for (let at = 0; at < count * 3; at++) colors[at] = one[at % 3];
    return colors;
  }
  if (options.by === "value" && shown.color === "rgba") {
    const bytes = new Uint8Array(shown.body, after, count * 4);
    for (let point = 0; point < count; point++) for (let part = 0; part < 3; part++) colors[point * 3 + part] = LINEAR[bytes[point * 4 + part]];
    return colors;
  }
  const axis = ["x", "y", "z"].indexOf(options.by);
  const isAxis = axis >= 0 || shown.color === "rgba";
  const values = isAxis ? places.subarray(Math.max(axis, 0)) : new Float32Array(shown.body, after, count);
  rainbow(values, isAxis ? 3 : 1, count, options, colors);
  return colors;
}

function rainbow(values: Float32Array, stride: number, count: number, { least, most }: PointOptions, colors: Uint8Array): void {
  let [low, high] = [least, most];
  if (Number.isNaN(low) || Number.isNaN(high)) {
    let [smallest, largest] = [Infinity, -Infinity];
    for (let point = 0; point < count; point++) {
      const value = values[point * stride];
      if (value < smallest) smallest = value;
      if (value > largest) largest = value;
    }
    if (Number.isNaN(low)) low = smallest;
    if (Number.isNaN(high)) high = largest;
  }
  const factor = high > low ? (STEPS - 1) / (high - low) : 0;
  for (let point = 0; point < count; point++) {
    const step = factor === 0 ? 80 : Math.max(0, Math.min(STEPS - 1, Math.round((values[point * stride] - low) * factor)));
    colors[point * 3] = RAINBOW[step * 3];
    colors[point * 3 + 1] = RAINBOW[step * 3 + 1];
    colors[point * 3 + 2] = RAINBOW[step * 3 + 2];
  }
}
