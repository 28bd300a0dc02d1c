import * as three from "three";
import type { Edge } from "../types";

export interface Placed {
  root: string;
  matrix: three.Matrix4;
}

/** The fixed frame: its name, the root of its tree, and its inverse pose in the root. */
export interface Base {
  name: string;
  root: string;
  inverse: three.Matrix4;
}

export function matrixOf([x, y, z, qx, qy, qz, qw]: number[]): three.Matrix4 {
  const turn = new three.Quaternion(qx, qy, qz, qw).normalize();
  return new three.Matrix4().compose(new three.Vector3(x, y, z), turn, new three.Vector3(1, 1, 1));
}

const WORLDS = ["map", "world", "earth", "utm", "odom"];
const BODIES = ["base_link", "base_footprint", "base", "body", "chassis"];

/** The poses of all frames in the roots of their trees. */
export class FrameTree {
  poses = new Map<string, Placed>();
  readonly roots = new Set<string>();
  private edges: Edge[] = [];
  /** Poses from messages, such as odometry, for frames without a transform. */
  private said = new Map<string, Edge>();

  set(edges: Edge[]): void {
    this.edges = edges;
    this.place();
  }

  /** Sets the pose of a frame from a message; transforms take precedence. */
  say(parent: string, child: string, pose: number[]): void {
    if (!parent || !child || parent === child) return;
    this.said.set(child, { parent, child, pose, static: false, hz: 0 });
    this.place();
  }

  /** The frame of the robot itself. */
  body(): string | undefined {
    const named = BODIES.find((name) => this.poses.has(name)) ?? [...this.poses.keys()].find((name) => BODIES.some((body) => name.endsWith(`/${body}`)));
    return named ?? [...this.said.keys()][0];
  }

  /** The default fixed frame, in which the robot moves. */
  preferred(otherwise: string): string {
    for (const name of WORLDS) {
      const found = this.poses.get(name) ?? [...this.poses].find(([known]) => known.endsWith(`/${name}`))?.[1];
      if (found) return found.root;
    }
    // The tree of the robot; of several trees, the one with the most frames.
    const body = this.body();
    if (body) return this.poses.get(body)?.root ?? body;
    const sizes = new Map<string, number>();
    for (const { root } of this.poses.values()) sizes.set(root, (sizes.get(root) ?? 0) + 1);
    return [...sizes].sort((a, b) => b[1] - a[1])[0]?.[0] ?? otherwise;
  }

  private place(): void {
    const parents = new Map(this.edges.map((edge) => [edge.child, edge]));
    for (const [child, edge] of this.said) if (!parents.has(child) && !this.leadsTo(parents, edge.parent, child)) parents.set(child, edge);
    this.poses = new Map();
    const find = (name: string, depth: number): Placed => {
      const known = this.poses.get(name);
      if (known) return known;
      const edge = parents.get(name);
      let found: Placed = { root: name, matrix: new three.Matrix4() };
      if (edge?.pose && depth < 200) {
        const above = find(edge.parent, depth + 1);
        found = { root: above.root, matrix: above.matrix.clone().multiply(matrixOf(edge.pose)) };
      }
      this.poses.set(name, found);
      return found;
    };
    for (const edge of parents.values()) {
      find(edge.child, 0);
      find(edge.parent, 0);
    }
    this.roots.clear();
    for (const { root } of this.poses.values()) this.roots.add(root);
  }

  /** Whether a frame lies below another. */
  private leadsTo(parents: Map<string, Edge>, frame: string, above: string): boolean {
    let at: string | undefined = frame;
    for (let depth = 0; depth < 200 && at; depth++) {
      if (at === above) return true;
      at = parents.get(at)?.parent;
    }
    return false;
  }
}
