import * as three from "three";
import type { Json } from "../types";
import { clear } from "./scene";

type Fields = { [key: string]: Json };

/** The shapes of visualization_msgs: boxes, balls, cylinders, arrows, lines and points. Text and meshes are left out. */
export function markers(group: three.Object3D, data: Fields, frame: (name: string) => void): void {
  clear(group);
  const all = (data.markers as Json[] | undefined) ?? [data];
  for (const one of all.slice(0, 2000) as Fields[]) {
    // 2 and 3 take markers away.
    if (Number(one.action ?? 0) >= 2) continue;
    const shape = shapeOf(one);
    if (!shape) continue;
    const pose = (one.pose ?? {}) as Fields;
    const number = (of: Json, name: string, otherwise = 0) => Number((of as Fields | undefined)?.[name] ?? otherwise);
    shape.position.set(number(pose.position, "x"), number(pose.position, "y"), number(pose.position, "z"));
    const turn = pose.orientation;
    shape.quaternion.set(number(turn, "x"), number(turn, "y"), number(turn, "z"), number(turn, "w", 1)).normalize();
    group.add(shape);
    frame(String(((one.header ?? {}) as Fields).frame_id ?? "").replace(/^\//, ""));
  }
}

function shapeOf(marker: Fields): three.Object3D | undefined {
  const scale = marker.scale as Fields | undefined;
  const [x, y, z] = ["x", "y", "z"].map((axis) => Math.max(Number(scale?.[axis] ?? 1), 1e-4));
  const tint = marker.color as Fields | undefined;
  const part = (name: string) => Number(tint?.[name] ?? 1);
  const color = new three.Color().setRGB(part("r"), part("g"), part("b"), three.SRGBColorSpace);
  const opacity = part("a") || 1;
  const solid = new three.MeshStandardMaterial({ color, transparent: opacity < 1, opacity });
  const places = ((marker.points as Json[]) ?? []).slice(0, 50_000).flatMap((one) => {
    const point = one as Fields;
    return [Number(point.x), Number(point.y), Number(point.z)];
  });
  const geometry = new three.BufferGeometry();
  geometry.setAttribute("position", new three.Float32BufferAttribute(places, 3));
  switch (Number(marker.type)) {
    case 0: {
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
      return new three.Line(geometry, new three.LineBasicMaterial({ color }));
    case 5:
      return new three.LineSegments(geometry, new three.LineBasicMaterial({ color }));
    case 6:
    case 7:
    case 8:
      return new three.Points(geometry, new three.PointsMaterial({ color, size: x }));
    case 11:
      geometry.computeVertexNormals();
      return new three.Mesh(geometry, new three.MeshStandardMaterial({ color, side: three.DoubleSide }));
    default:
      return undefined;
  }
}
