import * as three from "three";
import { matrixOf } from "./frames";
import type { Marker } from "./markers";
import { words } from "./words";

/** The most markers; the rest is left out and counted. */
const MOST_INSTANCES = 100_000;
const MOST_CORNERS = 1_500_000;
const MOST_TEXTS = 500;

interface Instance {
  matrix: three.Matrix4;
  color: three.Color;
}

/**
 * Batches markers: all boxes are one object, all lines are one. A thousand markers take a few draw calls.
 */
export class Batch {
  private instances = new Map<string, Instance[]>();
  private corners = new Map<string, { places: number[]; colors: number[] }>();
  private texts: three.Sprite[] = [];
  private count = 0;
  private corner = 0;
  readonly left = new Map<string, number>();
  readonly meshes: Marker[] = [];

  /** The origin of the batch: coordinates far from the frame's origin stay precise. */
  constructor(private origin: three.Vector3) {}

  leave(kind: string): void {
    this.left.set(kind, (this.left.get(kind) ?? 0) + 1);
  }

  add(marker: Marker): void {
    const place = matrixOf(marker.pose);
    place.premultiply(new three.Matrix4().makeTranslation(-this.origin.x, -this.origin.y, -this.origin.z));
    const scale = new three.Vector3(...(marker.scale.map((one) => Math.max(Math.abs(one), 1e-4)) as [number, number, number]));
    switch (marker.type) {
      case 0:
        return this.arrow(marker, place, scale);
      case 1:
      case 2:
      case 3:
        return this.instance(["", "box", "ball", "can"][marker.type], place.multiply(new three.Matrix4().makeScale(scale.x, scale.y, scale.z)), marker.color);
      case 4:
      case 5:
        return this.lines(marker, place);
      case 6:
      case 7:
        return this.many(marker, place, scale);
      case 8:
        return this.fill(`points ${marker.scale[0] || 0.05}`, marker, place, [...Array(marker.points.length / 3).keys()]);
      case 9:
        return this.text(marker, place);
      case 10:
        return void this.meshes.push(marker);
      case 11:
        return this.triangles(marker, place);
      case 12:
        return this.arrows(marker, place, scale);
      default:
        return this.leave(`markers of type ${marker.type}`);
    }
  }

  /** Builds the objects. */
  build(into: three.Object3D): void {
    for (const [key, all] of this.instances) into.add(instanced(key, all));
    for (const [key, { places, colors }] of this.corners) into.add(cornered(key, places, colors));
    for (const text of this.texts) into.add(text);
    into.position.copy(this.origin);
  }

  private instance(shape: string, matrix: three.Matrix4, [r, g, b, a]: number[]): void {
    if (++this.count > MOST_INSTANCES) return this.leave("further shapes");
    // Zero: the publisher never set it.
    const opacity = a > 0 && a < 1 ? Math.max(0.1, Math.round(a * 10) / 10) : 1;
    const key = `${shape} ${opacity}`;
    const all = this.instances.get(key) ?? [];
    this.instances.set(key, all);
    all.push({ matrix, color: new three.Color().setRGB(r, g, b, three.SRGBColorSpace) });
  }

  private arrow(marker: Marker, place: three.Matrix4, scale: three.Vector3): void {
    const [from, to] = [0, 1].map((at) => new three.Vector3().fromArray(marker.points as unknown as number[], at * 3));
    if (marker.points.length === 6) return this.between(from, to, scale.y, place, marker.color);
    this.instance("arrow", place.multiply(new three.Matrix4().makeScale(scale.x, scale.y, scale.y)), marker.color);
  }

  private between(from: three.Vector3, to: three.Vector3, thick: number, place: three.Matrix4, color: number[]): void {
    const way = to.clone().sub(from);
    const turn = new three.Quaternion().setFromUnitVectors(new three.Vector3(1, 0, 0), way.clone().normalize());
    const own = new three.Matrix4().compose(from, turn, new three.Vector3(Math.max(way.length(), 1e-4), thick, thick));
    this.instance("arrow", place.clone().multiply(own), color);
  }

  private arrows(marker: Marker, place: three.Matrix4, scale: three.Vector3): void {
    const at = (index: number) => new three.Vector3().fromArray(marker.points as unknown as number[], index * 3);
    for (let index = 0; index + 1 < marker.points.length / 3; index++) this.between(at(index), at(index + 1), scale.y, place, marker.color);
  }

  private many(marker: Marker, place: three.Matrix4, scale: three.Vector3): void {
    const shape = marker.type === 6 ? "box" : "ball";
    const has = marker.colors.length / 4 === marker.points.length / 3;
    for (let at = 0; at < marker.points.length / 3; at++) {
      const own = new three.Matrix4().makeTranslation(marker.points[at * 3], marker.points[at * 3 + 1], marker.points[at * 3 + 2]);
      own.scale(scale);
      this.instance(shape, place.clone().multiply(own), has ? [...marker.colors.subarray(at * 4, at * 4 + 4)] : marker.color);
    }
  }

  private lines(marker: Marker, place: three.Matrix4): void {
    const count = marker.points.length / 3;
    let order: number[] = marker.indices?.length ? marker.indices.filter((one) => one < count) : [...Array(count).keys()];
    if (marker.type === 4) order = order.slice(1).flatMap((to, index) => [order[index], to]);
    else order = order.slice(0, order.length - (order.length % 2));
    this.fill("lines", marker, place, order);
  }

  private triangles(marker: Marker, place: three.Matrix4): void {
    const count = marker.points.length / 3;
    const order = marker.indices?.length ? marker.indices.filter((one) => one < count) : [...Array(count).keys()];
    const [x, y, z] = marker.scale.map((one) => one || 1);
    this.fill("triangles", marker, place.multiply(new three.Matrix4().makeScale(x, y, z)), order.slice(0, order.length - (order.length % 3)));
  }

  /** Corners in sequence, each with its colour. */
  private fill(key: string, marker: Marker, place: three.Matrix4, order: number[]): void {
    if ((this.corner += order.length) > MOST_CORNERS) return this.leave("further lines");
    const into = this.corners.get(key) ?? { places: [], colors: [] };
    this.corners.set(key, into);
    const count = marker.points.length / 3;
    const tints = marker.colors.length / 4;
    // One colour for each point, or for each triangle.
    const each = tints === count ? 1 : tints * 3 === count ? 3 : 0;
    const spot = new three.Vector3();
    const color = new three.Color();
    for (const at of order) {
      spot.set(marker.points[at * 3], marker.points[at * 3 + 1], marker.points[at * 3 + 2]).applyMatrix4(place);
      const [r, g, b] = each > 0 ? marker.colors.subarray(Math.floor(at / each) * 4) : marker.color;
      color.setRGB(r, g, b, three.SRGBColorSpace);
      into.places.push(spot.x, spot.y, spot.z);
      into.colors.push(color.r, color.g, color.b);
    }
  }

  private text(marker: Marker, place: three.Matrix4): void {
    if (this.texts.length >= MOST_TEXTS) return this.leave("further texts");
    const [r, g, b] = marker.color;
    const sprite = words(marker.text, new three.Color().setRGB(r, g, b, three.SRGBColorSpace), marker.scale[2]);
    sprite.position.setFromMatrixPosition(place);
    this.texts.push(sprite);
  }
}

const GEOMETRY: Record<string, () => three.BufferGeometry> = {
  box: () => new three.BoxGeometry(1, 1, 1),
  ball: () => new three.SphereGeometry(0.5, 16, 10),
  can: () => new three.CylinderGeometry(0.5, 0.5, 1, 20).rotateX(Math.PI / 2),
  // From the origin along x, one long.
  arrow: () => new three.ConeGeometry(0.5, 1, 12).rotateZ(-Math.PI / 2).translate(0.5, 0, 0),
};

export function instanced(key: string, all: Instance[]): three.InstancedMesh {
  const [shape, opacity] = key.split(" ");
  const material = new three.MeshLambertMaterial({ transparent: Number(opacity) < 1, opacity: Number(opacity) });
  const mesh = new three.InstancedMesh(GEOMETRY[shape](), material, all.length);
  all.forEach(({ matrix, color }, index) => {
    mesh.setMatrixAt(index, matrix);
    mesh.setColorAt(index, color);
  });
  mesh.frustumCulled = false;
  mesh.computeBoundingBox();
  return mesh;
}

function cornered(key: string, places: number[], colors: number[]): three.Object3D {
  const geometry = new three.BufferGeometry();
  geometry.setAttribute("position", new three.Float32BufferAttribute(places, 3));
  geometry.setAttribute("color", new three.Float32BufferAttribute(colors, 3));
  if (key === "lines") return new three.LineSegments(geometry, new three.LineBasicMaterial({ vertexColors: true }));
  if (key.startsWith("points")) return new three.Points(geometry, new three.PointsMaterial({ vertexColors: true, size: Number(key.slice(7)) }));
  geometry.computeVertexNormals();
  return new three.Mesh(geometry, new three.MeshLambertMaterial({ vertexColors: true, side: three.DoubleSide }));
}
