import * as three from "three";
import type { Json } from "../types";
import { clear } from "./scene";

type Fields = { [key: string]: Json };

/**
 * The shapes of visualization_msgs and of Foxglove's scenes: boxes, balls, cylinders, arrows, lines, points, triangles, texts.
 * Returns what there is beside them and is not drawn: how many of each kind.
 */
export function markers(group: three.Object3D, data: Fields, frame: (name: string) => void): Map<string, number> {
  const left = new Map<string, number>();
  const leave = (kind: string, count = 1) => left.set(kind, (left.get(kind) ?? 0) + count);
  if ("entities" in data || "deletions" in data) {
    entities(group, data, frame, leave);
    return left;
  }
  clear(group);
  const all = (data.markers as Json[] | undefined) ?? [data];
  for (const one of all.slice(0, MOST) as Fields[]) {
    // 2 and 3 take markers away.
    if (Number(one.action ?? 0) >= 2) continue;
    if (!place(group, one)) leave(Number(one.type) === 10 ? "mesh files" : `markers of type ${one.type}`);
    frame(String(((one.header ?? {}) as Fields).frame_id ?? "").replace(/^\//, ""));
  }
  if (all.length > MOST) leave("further markers", all.length - MOST);
  return left;
}

/** More than this at once would be a cloud of points. */
const MOST = 2000;
const list = (of: Json | undefined): Fields[] => (Array.isArray(of) ? (of as Fields[]).slice(0, MOST) : []);
/** What there are of the same shapes in Foxglove's words, and their numbers in visualization_msgs. */
const SHAPES: Record<string, number> = { arrows: 0, cubes: 1, spheres: 2, cylinders: 3, texts: 9, triangles: 11 };
const LINES: Record<string, number> = { LINE_STRIP: 4, LINE_LOOP: 4, LINE_LIST: 5, "0": 4, "1": 4, "2": 5 };

/** Foxglove's scenes: what has the same name is replaced, what is deleted goes, all else stays. */
function entities(group: three.Object3D, data: Fields, frame: (name: string) => void, leave: (kind: string, count: number) => void): void {
  const drop = (isMeant: (name: string) => boolean) => {
    for (const child of [...group.children]) {
      if (!isMeant(child.name)) continue;
      clear(child);
      group.remove(child);
    }
  };
  for (const one of list(data.deletions)) drop((name) => [1, "1", "ALL"].includes(one.type as string | number) || name === `entity ${one.id}`);
  for (const one of list(data.entities)) {
    const name = `entity ${one.id ?? ""}`;
    drop((known) => known === name);
    const entity = new three.Group();
    entity.name = name;
    for (const [kind, type] of Object.entries(SHAPES))
      for (const shape of list(one[kind])) {
        const size = Number(shape.font_size ?? 0.2);
        const scale = kind === "arrows" ? { x: Number(shape.shaft_length ?? 0) + Number(shape.head_length ?? 0) || 1, y: Number(shape.head_diameter ?? 0.1), z: 1 } : kind === "texts" ? { x: 1, y: 1, z: shape.scale_invariant ? 0.3 : size } : shape.size;
        place(entity, { ...shape, type, scale: scale ?? null });
      }
    for (const line of list(one.lines)) place(entity, { ...line, type: LINES[String(line.type ?? 0)] ?? 4, scale: null });
    const models = list(one.models).length;
    if (models > 0) leave("3D models", models);
    group.add(entity);
    frame(String(one.frame_id ?? "").replace(/^\//, ""));
  }
}

/** Adds the shape of a marker where it says. Whether there is one for it. */
function place(group: three.Object3D, marker: Fields): boolean {
  const shape = shapeOf(marker);
  if (!shape) return false;
  const pose = (marker.pose ?? {}) as Fields;
  const number = (of: Json, name: string, otherwise = 0) => Number((of as Fields | undefined)?.[name] ?? otherwise);
  shape.position.set(number(pose.position, "x"), number(pose.position, "y"), number(pose.position, "z"));
  const turn = pose.orientation;
  shape.quaternion.set(number(turn, "x"), number(turn, "y"), number(turn, "z"), number(turn, "w", 1)).normalize();
  group.add(shape);
  return true;
}

/** Words that face whoever looks, so tall in metres. */
function words(text: string, color: three.Color, tall: number): three.Sprite {
  const picture = document.createElement("canvas");
  const context = picture.getContext("2d");
  const font = "48px system-ui, sans-serif";
  const lines = text.slice(0, 500).split("\n").slice(0, 20);
  if (context) context.font = font;
  picture.width = Math.max(8, Math.min(2048, ...[Math.max(...lines.map((line) => context?.measureText(line).width ?? 100)) + 12]));
  picture.height = lines.length * 58;
  if (context) {
    context.font = font;
    context.textBaseline = "middle";
    context.fillStyle = `#${color.getHexString()}`;
    lines.forEach((line, index) => context.fillText(line, 6, index * 58 + 29));
  }
  const texture = new three.CanvasTexture(picture);
  texture.colorSpace = three.SRGBColorSpace;
  const sprite = new three.Sprite(new three.SpriteMaterial({ map: texture, depthWrite: false }));
  const high = tall * lines.length * 1.2;
  sprite.scale.set((high * picture.width) / picture.height, high, 1);
  return sprite;
}

function shapeOf(marker: Fields): three.Object3D | undefined {
  const scale = marker.scale as Fields | undefined;
  const [x, y, z] = ["x", "y", "z"].map((axis) => Math.max(Number(scale?.[axis] ?? 1), 1e-4));
  const color = colorOf(marker.color);
  const opacity = Number((marker.color as Fields | undefined)?.a ?? 1) || 1;
  const solid = new three.MeshStandardMaterial({ color, transparent: opacity < 1, opacity });
  const spots = listOf(marker.points).map((one) => new three.Vector3(Number(one.x), Number(one.y), Number(one.z)));
  const geometry = new three.BufferGeometry().setFromPoints(spots);
  // One colour for each point, or for each triangle.
  const tints = listOf(marker.colors);
  const each = Number(marker.type) === 11 && tints.length * 3 === spots.length ? 3 : 1;
  const vertexColors = tints.length > 0 && tints.length * each === spots.length;
  if (vertexColors) geometry.setAttribute("color", new three.Float32BufferAttribute(spots.flatMap((_, index) => colorOf(tints[Math.floor(index / each)]).toArray()), 3));
  const indices = marker.indices as number[] | undefined;
  if (indices?.length) geometry.setIndex(indices.map(Number).filter((index) => index < spots.length));
  // Where points have colours of their own, the marker's would tint them.
  const paint = vertexColors ? { vertexColors } : { color };
  switch (Number(marker.type)) {
    case 0: {
      if (spots.length === 2) return arrow(spots[0], spots[1], y, solid);
      const cone = new three.ConeGeometry(y / 2, x, 16);
      cone.rotateZ(-Math.PI / 2);
      cone.translate(x / 2, 0, 0);
      return new three.Mesh(cone, solid);
    }
    case 1:
      return new three.Mesh(new three.BoxGeometry(x, y, z), solid);
    case 2: {
      const ball = new three.SphereGeometry(0.5, 24, 16);
      ball.scale(x, y, z);
      return new three.Mesh(ball, solid);
    }
    case 3: {
      const can = new three.CylinderGeometry(0.5, 0.5, 1, 24);
      can.rotateX(Math.PI / 2);
      can.scale(x, y, z);
      return new three.Mesh(can, solid);
    }
    case 4:
      return new three.Line(geometry, new three.LineBasicMaterial(paint));
    case 5:
      return new three.LineSegments(geometry, new three.LineBasicMaterial(paint));
    case 6:
    case 7: {
      const one = Number(marker.type) === 6 ? new three.BoxGeometry(x, y, z) : new three.SphereGeometry(0.5, 12, 8).scale(x, y, z);
      if (vertexColors) solid.color.set(0xffffff);
      const many = new three.InstancedMesh(one, solid, spots.length);
      spots.forEach((spot, index) => {
        many.setMatrixAt(index, new three.Matrix4().setPosition(spot));
        if (vertexColors) many.setColorAt(index, colorOf(tints[index]));
      });
      return many;
    }
    case 8:
      return new three.Points(geometry, new three.PointsMaterial({ ...paint, size: x }));
    case 9:
      return words(String(marker.text ?? ""), color, z);
    case 11:
      geometry.scale(Number(scale?.x) || 1, Number(scale?.y) || 1, Number(scale?.z) || 1);
      geometry.computeVertexNormals();
      return new three.Mesh(geometry, new three.MeshStandardMaterial({ ...paint, side: three.DoubleSide, transparent: opacity < 1, opacity }));
    default:
      return undefined;
  }
}

const listOf = (of: Json | undefined): Fields[] => (Array.isArray(of) ? (of as Fields[]).slice(0, 50_000) : []);

function colorOf(of: Json | undefined): three.Color {
  const part = (name: string) => Number((of as Fields | undefined)?.[name] ?? 1);
  return new three.Color().setRGB(part("r"), part("g"), part("b"), three.SRGBColorSpace);
}

/** From one point to another, so thick at its head. */
function arrow(from: three.Vector3, to: three.Vector3, thick: number, material: three.Material): three.Object3D {
  const way = to.clone().sub(from);
  const cone = new three.ConeGeometry(thick / 2, way.length(), 16).translate(0, way.length() / 2, 0);
  cone.applyQuaternion(new three.Quaternion().setFromUnitVectors(new three.Vector3(0, 1, 0), way.normalize()));
  return new three.Mesh(cone.translate(from.x, from.y, from.z), material);
}
