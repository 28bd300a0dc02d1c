import * as three from "three";

/** Linear to sRGB, as the GPU converts colours. */
const DISPLAYED = Uint8Array.from({ length: 256 }, (_, at) => {
  const value = at / 255;
  return Math.round(255 * (value <= 0.0031308 ? value * 12.92 : 1.055 * value ** (1 / 2.4) - 0.055));
});
/** The depth of the background. */
export const FAR = 1;

/** A colour and depth buffer for software rendering, bottom up. */
export interface Raster {
  width: number;
  height: number;
  /** Four bytes each, as they are displayed. */
  colors: Uint32Array;
  depths: Float32Array;
}

/** Corners on the screen: across, up, depth and light for each; behind the camera, the depth is not a number. */
let corners = new Float32Array(0);

/** A linear colour from 0 to 1 as it is displayed. */
export function displayed(red: number, green: number, blue: number): number {
  const part = (value: number) => DISPLAYED[value >= 1 ? 255 : (value * 255) | 0];
  return ((0xff << 24) | (part(blue) << 16) | (part(green) << 8) | part(red)) >>> 0;
}

/** Draws many solid shapes, each triangle in one colour. The light is that of the scene: more from above, and a sun. */
export function drawInstances(mesh: three.InstancedMesh, seen: three.Matrix4, sun: three.Vector3, into: Raster): void {
  const { geometry } = mesh;
  const [places, normals, order] = [geometry.getAttribute("position").array, geometry.getAttribute("normal").array, geometry.index];
  const count = places.length / 3;
  if (corners.length < count * 4) corners = new Float32Array(count * 4);
  const [own, turn] = [new three.Matrix4(), new three.Matrix3()];
  const tint = new three.Color();
  for (let instance = 0; instance < mesh.count; instance++) {
    mesh.getMatrixAt(instance, own);
    own.premultiply(mesh.matrixWorld);
    turn.getNormalMatrix(own);
    own.premultiply(seen);
    project(places, count, own.elements, into);
    light(normals, count, turn.elements, sun);
    mesh.getColorAt(instance, tint);
    const last = order ? order.count : count;
    for (let at = 0; at < last; at += 3) triangle(order ? order.array[at] : at, order ? order.array[at + 1] : at + 1, order ? order.array[at + 2] : at + 2, tint, into);
  }
}

/** Draws lines between places, one after the other or in pairs. */
export function drawLines(line: three.Line, seen: three.Matrix4, into: Raster): void {
  const places = line.geometry.getAttribute("position");
  const material = line.material as three.LineBasicMaterial;
  const tints = material.vertexColors ? line.geometry.getAttribute("color") : undefined;
  if (corners.length < places.count * 4) corners = new Float32Array(places.count * 4);
  project(places.array, places.count, new three.Matrix4().multiplyMatrices(seen, line.matrixWorld).elements, into);
  const { r, g, b } = material.color;
  const flat = displayed(r, g, b);
  const step = (line as three.LineSegments).isLineSegments ? 2 : 1;
  for (let from = 0; from + 1 < places.count; from += step)
    segment(from * 4, from * 4 + 4, tints ? displayed(tints.getX(from), tints.getY(from), tints.getZ(from)) : flat, into);
}

function project(places: ArrayLike<number>, count: number, e: number[], { width, height }: Raster): void {
  for (let at = 0, from = 0, to = 0; at < count; at++, from += 3, to += 4) {
    const x = places[from];
    const y = places[from + 1];
    const z = places[from + 2];
    const w = e[3] * x + e[7] * y + e[11] * z + e[15];
    const depth = ((e[2] * x + e[6] * y + e[10] * z + e[14]) / w) * 0.5 + 0.5;
    corners[to] = ((e[0] * x + e[4] * y + e[8] * z + e[12]) / w + 1) * 0.5 * width;
    corners[to + 1] = ((e[1] * x + e[5] * y + e[9] * z + e[13]) / w + 1) * 0.5 * height;
    corners[to + 2] = w > 0 && depth >= 0 ? depth : NaN;
  }
}

function light(normals: ArrayLike<number>, count: number, e: number[], sun: three.Vector3): void {
  for (let at = 0, from = 0; at < count; at++, from += 3) {
    const a = normals[from];
    const b = normals[from + 1];
    const c = normals[from + 2];
    const x = e[0] * a + e[3] * b + e[6] * c;
    const y = e[1] * a + e[4] * b + e[7] * c;
    const z = e[2] * a + e[5] * b + e[8] * c;
    const length = Math.sqrt(x * x + y * y + z * z) || 1;
    const facing = (x * sun.x + y * sun.y + z * sun.z) / length;
    corners[at * 4 + 3] = 0.52 + 0.18 * (y / length) + (facing > 0 ? 0.45 * facing : 0);
  }
}

function triangle(one: number, two: number, three: number, tint: three.Color, { width, height, colors, depths }: Raster): void {
  const a = one * 4;
  const b = two * 4;
  const c = three * 4;
  const ax = corners[a];
  const ay = corners[a + 1];
  const bx = corners[b];
  const by = corners[b + 1];
  const cx = corners[c];
  const cy = corners[c + 1];
  const area = (bx - ax) * (cy - ay) - (cx - ax) * (by - ay);
  // Back faces, and triangles with a corner behind the camera.
  if (!(area > 0) || !(corners[a + 2] + corners[b + 2] + corners[c + 2] >= 0)) return;
  const shade = (corners[a + 3] + corners[b + 3] + corners[c + 3]) / 3;
  const color = displayed(tint.r * shade, tint.g * shade, tint.b * shade);
  const first = Math.max(0, Math.ceil(Math.min(ax, bx, cx) - 0.5));
  const last = Math.min(width - 1, Math.floor(Math.max(ax, bx, cx) - 0.5));
  const low = Math.max(0, Math.ceil(Math.min(ay, by, cy) - 0.5));
  const top = Math.min(height - 1, Math.floor(Math.max(ay, by, cy) - 0.5));
  for (let row = low; row <= top; row++)
    for (let column = first; column <= last; column++) {
      const x = column + 0.5;
      const y = row + 0.5;
      const u = ((bx - x) * (cy - y) - (cx - x) * (by - y)) / area;
      const v = ((cx - x) * (ay - y) - (ax - x) * (cy - y)) / area;
      if (u < 0 || v < 0 || u + v > 1) continue;
      const depth = u * corners[a + 2] + v * corners[b + 2] + (1 - u - v) * corners[c + 2];
      const cell = row * width + column;
      if (depth < depths[cell]) {
        depths[cell] = depth;
        colors[cell] = color;
      }
    }
}

function segment(a: number, b: number, color: number, { width, height, colors, depths }: Raster): void {
  const x = corners[a];
  const y = corners[a + 1];
  const z = corners[a + 2];
  const dx = corners[b] - x;
  const dy = corners[b + 1] - y;
  const dz = corners[b + 2] - z;
  if (!(dz * 0 === 0)) return;
  // The part within the picture.
  let from = 0;
  let to = 1;
  for (let axis = 0; axis < 2; axis++) {
    const way = axis === 0 ? dx : dy;
    const before = axis === 0 ? x : y;
    const after = (axis === 0 ? width : height) - 1 - before;
    if (way === 0 && (before < 0 || after < 0)) return;
    if (way === 0) continue;
    from = Math.max(from, way > 0 ? -before / way : after / way);
    to = Math.min(to, way > 0 ? after / way : -before / way);
  }
  if (from > to) return;
  const steps = Math.max(1, Math.ceil(Math.max(Math.abs(dx), Math.abs(dy)) * (to - from)));
  for (let step = 0; step <= steps; step++) {
    const at = from + ((to - from) * step) / steps;
    const cell = Math.round(y + dy * at) * width + Math.round(x + dx * at);
    const depth = z + dz * at;
    if (depth < depths[cell]) {
      depths[cell] = depth;
      colors[cell] = color;
    }
  }
}
