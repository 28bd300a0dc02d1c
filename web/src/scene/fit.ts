import * as three from "three";

/** A bounding box: its centre, and its half size along each axis. */
export interface Extent {
  center: three.Vector3;
  half: three.Vector3;
}

/** The initial direction of view: from behind and above. */
const FROM = new three.Vector3(-0.42, -0.58, 0.7).normalize();
/** The share of the picture that the content may fill. */
const SHARE = 0.92;
/** Objects this many times farther away than the extent of all others, or this many times larger, are outliers. */
const APART = 10;
/** Gaps up to this many metres are never outliers; with only two objects, larger gaps are not either. */
const NEAR = 0.5;
const NEAR_OF_TWO = 2;
/** More instances of a shape than this are sampled. */
const MOST_INSTANCES = 2000;

/** An object to fit the view to. */
interface Item {
  box: three.Box3;
  /** A solid shape, which may be as large as the world, such as a floor. */
  isShape: boolean;
}

/**
 * The bounding box of objects. Of points, the outermost tenth on each side does not count: a single far
 * reflection would make everything else small. For the same reason outliers do not count, nor does
 * a much larger shape.
 */
export function extentOf(objects: three.Object3D[], around?: three.Vector3): Extent | undefined {
  const box = new three.Box3();
  for (const item of together(objects.flatMap(itemsOf))) box.union(item.box);
  if (box.isEmpty()) return undefined;
  const center = around ?? box.getCenter(new three.Vector3());
  const far = new three.Vector3(
    Math.max(box.max.x - center.x, center.x - box.min.x),
    Math.max(box.max.y - center.y, center.y - box.min.y),
    Math.max(box.max.z - center.z, center.z - box.min.z),
  );
  return { center, half: far };
}

/** The bounding box of objects around a robot, without outliers such as a position in national coordinates. */
export function extentNear(objects: three.Object3D[], body: three.Vector3, least: number): Extent {
  const half = new three.Vector3();
  const found = objects.map((object) => extentOf([object], body)?.half).filter((one) => one !== undefined);
  for (const one of found.sort((a, b) => a.length() - b.length())) if (one.length() <= APART * Math.max(half.length(), least)) half.max(one);
  return { center: body, half };
}

/** The same with its size clamped. */
export function bounded({ center, half }: Extent, least: number, most: number): Extent {
  const reach = half.length();
  if (reach < least) return { center, half: half.clone().max(new three.Vector3().setScalar(least / Math.sqrt(3))) };
  return { center, half: half.clone().multiplyScalar(Math.min(1, most / reach)) };
}

/** The union of two boxes. */
export function union(one: Extent, other: Extent): Extent {
  const box = boxOf(one).union(boxOf(other));
  return { center: box.getCenter(new three.Vector3()), half: box.getSize(new three.Vector3()).multiplyScalar(0.5) };
}

/** Places the camera so that the box is visible. */
export function look(camera: three.PerspectiveCamera, target: three.Vector3, extent: Extent): void {
  const up = Math.tan(three.MathUtils.degToRad(camera.fov / 2)) * SHARE;
  const across = up * camera.aspect;
  // The camera's own axes, as it stands at `FROM`.
  const right = new three.Vector3().crossVectors(camera.up, FROM).normalize();
  const above = new three.Vector3().crossVectors(FROM, right);
  let distance = 0.2;
  for (const corner of cornersOf(extent)) {
    const away = corner.sub(extent.center);
    const nearer = away.dot(FROM);
    distance = Math.max(distance, nearer + Math.abs(away.dot(right)) / across, nearer + Math.abs(away.dot(above)) / up);
  }
  distance = Math.min(distance, 15_000);
  target.copy(extent.center);
  camera.position.copy(extent.center).addScaledVector(FROM, distance);
  camera.near = Math.max(distance / 2000, 0.002);
  camera.far = Math.max(distance * 50, 2000);
  camera.updateProjectionMatrix();
}

/** Whether the box is visible. */
export function isSeen(camera: three.PerspectiveCamera, extent: Extent): boolean {
  camera.updateMatrixWorld();
  return cornersOf(extent).every((corner) => {
    const { x, y, z } = corner.project(camera);
    return Math.abs(x) <= 1 && Math.abs(y) <= 1 && Math.abs(z) <= 1;
  });
}

function boxOf({ center, half }: Extent): three.Box3 {
  return new three.Box3(center.clone().sub(half), center.clone().add(half));
}

function cornersOf({ center, half }: Extent): three.Vector3[] {
  const signs = [-1, 1];
  return signs.flatMap((x) => signs.flatMap((y) => signs.map((z) => new three.Vector3(x, y, z).multiply(half).add(center))));
}

function itemsOf(object: three.Object3D): Item[] {
  const items: Item[] = [];
  const samples: three.Vector3[] = [];
  object.traverseVisible((child) => {
    if ((child as three.Points).isPoints) return void samples.push(...sampled(child as three.Points));
    if ((child as three.InstancedMesh).isInstancedMesh) return void items.push(...instancesOf(child as three.InstancedMesh));
    const isShape = (child as three.Mesh).isMesh && child.name !== "cells" && child.name !== "costs";
    if ((child as three.Mesh).geometry) items.push({ box: new three.Box3().expandByObject(child), isShape });
  });
  const cloud = new three.Box3().setFromPoints(trimmed(samples));
  return [...items, { box: cloud, isShape: false }].filter(({ box }) => !box.isEmpty());
}

/** Each instance by itself: one of a thousand may be far away. */
function instancesOf(mesh: three.InstancedMesh): Item[] {
  mesh.geometry.computeBoundingBox();
  const own = mesh.geometry.boundingBox ?? new three.Box3();
  const step = Math.max(1, Math.ceil(mesh.count / MOST_INSTANCES));
  const matrix = new three.Matrix4();
  const items: Item[] = [];
  for (let at = 0; at < mesh.count; at += step) {
    mesh.getMatrixAt(at, matrix);
    items.push({ box: own.clone().applyMatrix4(matrix.premultiply(mesh.matrixWorld)), isShape: true });
  }
  return items;
}

/** All items from the innermost outwards, up to the first outlier; the inner half always counts. */
function together(items: Item[]): Item[] {
  if (items.length < 2) return items;
  const middleOf = (axis: "x" | "y" | "z") => {
    const sorted = items.map(({ box }) => (box.min[axis] + box.max[axis]) / 2).sort((a, b) => a - b);
    return sorted[(sorted.length - 1) >> 1];
  };
  const middle = new three.Vector3(middleOf("x"), middleOf("y"), middleOf("z"));
  const sizeOf = (box: three.Box3) => box.getSize(new three.Vector3()).length();
  const reach = ({ box }: Item) => box.getCenter(new three.Vector3()).distanceTo(middle) + sizeOf(box) / 2;
  const sorted = items.map((item) => ({ item, reach: reach(item) })).sort((a, b) => a.reach - b.reach);
  const near = items.length > 2 ? NEAR : NEAR_OF_TWO;
  const union = new three.Box3();
  const kept: Item[] = [];
  for (const { item } of sorted) {
    const most = APART * Math.max(sizeOf(union), near);
    const gap = union.isEmpty() ? 0 : gapBetween(union, item.box);
    if (kept.length >= items.length / 2 && (gap > most || (item.isShape && sizeOf(item.box) > most))) continue;
    union.union(item.box);
    kept.push(item);
  }
  return kept;
}

function gapBetween(one: three.Box3, other: three.Box3): number {
  const along = (axis: "x" | "y" | "z") => Math.max(0, one.min[axis] - other.max[axis], other.min[axis] - one.max[axis]);
  return Math.hypot(along("x"), along("y"), along("z"));
}

function sampled(cloud: three.Points): three.Vector3[] {
  const places = cloud.geometry.getAttribute("position");
  const step = Math.max(1, Math.floor(places.count / 400));
  const found = [];
  for (let at = 0; at < places.count; at += step) found.push(new three.Vector3().fromBufferAttribute(places, at).applyMatrix4(cloud.matrixWorld));
  return found;
}

function trimmed(points: three.Vector3[]): three.Vector3[] {
  if (points.length < 20) return points;
  const bound = (axis: "x" | "y" | "z", part: number) => {
    const sorted = points.map((point) => point[axis]).sort((a, b) => a - b);
    return sorted[Math.floor(part * (sorted.length - 1))];
  };
  return [0.1, 0.9].map((part) => new three.Vector3(bound("x", part), bound("y", part), bound("z", part)));
}
