import * as three from "three";
import { type FrameTree, type Placed, matrixOf } from "./frames";

interface Joint {
  parent: string;
  origin: three.Matrix4;
}

/** A robot as its URDF describes it: its links' shapes, each where the transforms put its frame. */
export class Robot {
  readonly object = new three.Group();
  /** Meshes that are not there, with why. */
  readonly missing = new Map<string, string>();
  readonly name: string;
  private links = new Map<string, three.Group>();
  private joints = new Map<string, Joint>();

  /** `prefix` is what its frames start with, where there are several robots. */
  constructor(
    text: string,
    private prefix: string,
    private changed: () => void,
  ) {
    const document = new DOMParser().parseFromString(text, "text/xml");
    const robot = document.querySelector("robot");
    if (!robot || document.querySelector("parsererror")) throw new Error("the robot's description is not a URDF");
    this.name = robot.getAttribute("name") ?? "robot";
    const colors = new Map([...robot.children].filter(({ tagName }) => tagName === "material").map((one) => [one.getAttribute("name") ?? "", colorOf(one)]));
    for (const link of robot.querySelectorAll(":scope > link")) this.link(link, colors);
    for (const joint of robot.querySelectorAll(":scope > joint")) {
      const child = joint.querySelector("child")?.getAttribute("link");
      const parent = joint.querySelector("parent")?.getAttribute("link");
      if (child && parent) this.joints.set(child, { parent, origin: originOf(joint.querySelector(":scope > origin")) });
    }
  }

  /** Puts every link where its frame is. A link whose frame no transform places stands as it was built. */
  place(frames: FrameTree, base: { root: string; inverse: three.Matrix4 }): void {
    const known = new Map<string, Placed | undefined>();
    const find = (link: string, depth: number): Placed | undefined => {
      if (known.has(link)) return known.get(link);
      let found = frames.poses.get(this.prefix + link);
      const joint = this.joints.get(link);
      if (!found && joint && depth < 200) {
        const above = find(joint.parent, depth + 1);
        found = above && { root: above.root, matrix: above.matrix.clone().multiply(joint.origin) };
      }
      known.set(link, found);
      return found;
    };
    for (const [name, group] of this.links) {
      const pose = find(name, 0);
      group.visible = pose?.root === base.root;
      if (pose && group.visible) group.matrix.copy(base.inverse).multiply(pose.matrix);
      group.matrixWorldNeedsUpdate = true;
    }
  }

  isPlaced(): boolean {
    return [...this.links.values()].some((link) => link.visible);
  }

  private link(link: Element, colors: Map<string, three.Color | undefined>): void {
    const group = new three.Group();
    group.matrixAutoUpdate = false;
    group.visible = false;
    for (const visual of link.querySelectorAll(":scope > visual")) {
      const shape = new three.Group();
      shape.applyMatrix4(originOf(visual.querySelector(":scope > origin")));
      const material = visual.querySelector(":scope > material");
      const color = (material && colorOf(material)) ?? colors.get(material?.getAttribute("name") ?? "");
      this.shape(visual.querySelector(":scope > geometry"), shape, color ?? undefined);
      group.add(shape);
    }
    this.links.set(link.getAttribute("name") ?? "", group);
    this.object.add(group);
  }

  private shape(geometry: Element | null, into: three.Group, color: three.Color | undefined): void {
    const shape = geometry?.firstElementChild;
    if (!shape) return;
    const material = new three.MeshLambertMaterial({ color: color ?? new three.Color(0x9aa4b2) });
    const number = (name: string) => Number(shape.getAttribute(name) ?? 0) || 1e-3;
    const add = (geometry: three.BufferGeometry) => into.add(new three.Mesh(geometry, material));
    if (shape.tagName === "box") add(new three.BoxGeometry(...(numbersOf(shape.getAttribute("size"), [0.1, 0.1, 0.1]) as [number, number, number])));
    else if (shape.tagName === "cylinder") add(new three.CylinderGeometry(number("radius"), number("radius"), number("length"), 32).rotateX(Math.PI / 2));
    else if (shape.tagName === "sphere") add(new three.SphereGeometry(number("radius"), 24, 16));
    else if (shape.tagName === "mesh") void this.mesh(shape, into, color ? material : undefined);
  }

  private async mesh(shape: Element, into: three.Group, material: three.Material | undefined): Promise<void> {
    const uri = shape.getAttribute("filename") ?? "";
    try {
      const { loadMesh } = await import("./meshes");
      const mesh = await loadMesh(uri, material);
      const [x, y, z] = numbersOf(shape.getAttribute("scale"), [1, 1, 1]);
      const scaled = new three.Group();
      scaled.scale.set(x, y, z);
      scaled.add(mesh);
      into.add(scaled);
    } catch (error) {
      this.missing.set(uri, (error as Error).message);
    }
    this.changed();
  }
}

function numbersOf(text: string | null, otherwise: number[]): number[] {
  const all = (text ?? "").trim().split(/\s+/).map(Number);
  return all.length === otherwise.length && all.every(Number.isFinite) ? all : otherwise;
}

function originOf(origin: Element | null): three.Matrix4 {
  const [x, y, z] = numbersOf(origin?.getAttribute("xyz") ?? null, [0, 0, 0]);
  const [roll, pitch, yaw] = numbersOf(origin?.getAttribute("rpy") ?? null, [0, 0, 0]);
  const turn = new three.Quaternion().setFromEuler(new three.Euler(roll, pitch, yaw, "ZYX"));
  return matrixOf([x, y, z, turn.x, turn.y, turn.z, turn.w]);
}

function colorOf(material: Element): three.Color | undefined {
  const rgba = material.querySelector("color")?.getAttribute("rgba");
  if (!rgba) return undefined;
  const [r, g, b] = numbersOf(rgba, [0.6, 0.64, 0.7, 1]);
  return new three.Color().setRGB(r, g, b, three.SRGBColorSpace);
}
