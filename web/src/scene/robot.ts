import * as three from "three";
import { type Base, type FrameTree, type Placed, matrixOf } from "./frames";

interface Joint {
  parent: string;
  origin: three.Matrix4;
}

/**
 * A robot as its URDF describes it: the shapes of its links, each at the pose of its frame. Collision shapes replace a missing
 * mesh; a robot with neither is drawn as lines between its frames.
 */
export class Robot {
  readonly object = new three.Group();
  /** Missing meshes, each with the reason. */
  readonly missing = new Map<string, string>();
  readonly name: string;
  /** The frame of the root link. */
  readonly root: string;
  private links = new Map<string, three.Group>();
  private joints = new Map<string, Joint>();
  private bones = new three.LineSegments(new three.BufferGeometry(), new three.LineBasicMaterial({ color: 0xf04a00 }));

  /** `prefix` is the prefix of its frames where there are several robots. */
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
    this.bones.frustumCulled = false;
    this.object.add(this.bones);
    this.root = prefix + ([...this.links.keys()].find((name) => !this.joints.has(name)) ?? "");
  }

  /** Places all links by their frames' poses; links without a transform by the URDF's. */
  place(frames: FrameTree, base: Base): void {
    const known = new Map<string, Placed | undefined>();
    // The fixed frame needs no transform.
    if (base.name === this.root && !frames.poses.has(base.name)) known.set(this.root.slice(this.prefix.length), { root: base.root, matrix: new three.Matrix4() });
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
    this.placeBones();
  }

  /** Lines to the links without a shape, if all links that should have one lack it. */
  private placeBones(): void {
    this.bones.visible = this.missing.size > 0 && ![...this.links.values()].some(hasShape);
    if (!this.bones.visible) return;
    const at = (link: string) => {
      const group = this.links.get(link);
      return group?.visible ? new three.Vector3().setFromMatrixPosition(group.matrix) : undefined;
    };
    const ends = [...this.joints].flatMap(([child, { parent }]) => {
      const [from, to] = [at(parent), at(child)];
      return from && to ? [from, to] : [];
    });
    this.bones.geometry.dispose();
    this.bones.geometry = new three.BufferGeometry().setFromPoints(ends);
  }

  isPlaced(): boolean {
    return [...this.links.values()].some((link) => link.visible);
  }

  private link(link: Element, colors: Map<string, three.Color | undefined>): void {
    const group = new three.Group();
    group.matrixAutoUpdate = false;
    group.visible = false;
    const shape = (element: Element, missing?: () => void) => {
      const holder = new three.Group();
      holder.applyMatrix4(originOf(element.querySelector(":scope > origin")));
      const material = element.querySelector(":scope > material");
      const color = (material && colorOf(material)) ?? colors.get(material?.getAttribute("name") ?? "");
      this.shape(element.querySelector(":scope > geometry"), holder, color ?? undefined, missing);
      group.add(holder);
    };
    let isReplaced = false;
    const replace = () => {
      if (isReplaced) return;
      isReplaced = true;
      for (const collision of link.querySelectorAll(":scope > collision")) shape(collision);
    };
    for (const visual of link.querySelectorAll(":scope > visual")) shape(visual, replace);
    this.links.set(link.getAttribute("name") ?? "", group);
    this.object.add(group);
  }

  private shape(geometry: Element | null, into: three.Group, color: three.Color | undefined, missing?: () => void): void {
    const shape = geometry?.firstElementChild;
    if (!shape) return;
    const material = new three.MeshLambertMaterial({ color: color ?? new three.Color(0x9aa4b2) });
    const number = (name: string) => Number(shape.getAttribute(name) ?? 0) || 1e-3;
    const add = (geometry: three.BufferGeometry) => into.add(new three.Mesh(geometry, material));
    if (shape.tagName === "box") add(new three.BoxGeometry(...(numbersOf(shape.getAttribute("size"), [0.1, 0.1, 0.1]) as [number, number, number])));
    else if (shape.tagName === "cylinder") add(new three.CylinderGeometry(number("radius"), number("radius"), number("length"), 32).rotateX(Math.PI / 2));
    else if (shape.tagName === "sphere") add(new three.SphereGeometry(number("radius"), 24, 16));
    else if (shape.tagName === "mesh") void this.mesh(shape, into, color ? material : undefined, missing);
  }

  private async mesh(shape: Element, into: three.Group, material: three.Material | undefined, missing?: () => void): Promise<void> {
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
      missing?.();
    }
    this.changed();
  }
}

function hasShape(link: three.Object3D): boolean {
  let found = false;
  link.traverse((child) => (found ||= (child as three.Mesh).isMesh === true));
  return found;
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
