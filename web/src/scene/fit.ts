import * as three from "three";

/** What there is to see: where its middle is, and how far it reaches. */
export interface Extent {
  center: three.Vector3;
  radius: number;
}

/**
 * The middle and the reach of some objects. Of points, the outermost tenth on each side does not count: a single far
 * reflection would make everything else small.
 */
export function extentOf(objects: three.Object3D[], around?: three.Vector3): Extent | undefined {
  const samples: three.Vector3[] = [];
  const box = new three.Box3();
  for (const object of objects)
    object.traverseVisible((child) => {
      const cloud = child as three.Points;
      if (cloud.isPoints) return void samples.push(...sampled(cloud));
      const mesh = child as three.Mesh;
      if (mesh.geometry) box.expandByObject(mesh);
    });
  for (const point of trimmed(samples)) box.expandByPoint(point);
  if (box.isEmpty()) return undefined;
  const center = around ?? box.getCenter(new three.Vector3());
  const far = new three.Vector3(
    Math.max(box.max.x - center.x, center.x - box.min.x),
    Math.max(box.max.y - center.y, center.y - box.min.y),
    Math.max(box.max.z - center.z, center.z - box.min.z),
  );
  return { center, radius: far.length() };
}

/** Puts the camera so that all of it is in the picture, from behind and above. */
export function look(camera: three.PerspectiveCamera, target: three.Vector3, { center, radius }: Extent): void {
  const half = three.MathUtils.degToRad(camera.fov / 2);
  const narrow = Math.min(half, Math.atan(Math.tan(half) * Math.min(camera.aspect, 3)));
  const distance = Math.min(Math.max((radius / Math.sin(narrow)) * 0.85, 0.2), 15_000);
  target.copy(center);
  camera.position.copy(center).add(new three.Vector3(-0.42, -0.58, 0.7).normalize().multiplyScalar(distance));
  camera.near = Math.max(distance / 2000, 0.002);
  camera.far = Math.max(distance * 50, 2000);
  camera.updateProjectionMatrix();
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
