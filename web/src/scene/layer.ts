import * as three from "three";
import { Columns, posesAt } from "../columns";
import { ask } from "../connection";
import type { Shown, Topic } from "../types";
import { Batch } from "./batch";
import { clear } from "./dispose";
import { type Base, type FrameTree, type Placed, matrixOf } from "./frames";
import { type Palette, cellsOf, paletteOf, rangeOfCells } from "./grid";
import { type Marker, markersOf, plain, sceneOf } from "./markers";
import { type PointColor, cloudOf } from "./points";
import { arrowOf, lineOf, polygonOf, posesOf, rangeOf } from "./poses";

/** The settings of a layer. */
export interface LayerSettings {
  color?: string;
  size?: number;
  by?: PointColor;
  least?: number;
  most?: number;
  /** Seconds for which points are kept. */
  decay?: number;
  palette?: Palette;
}

/** The interface of a layer to its scene. */
export interface Host {
  frames: FrameTree;
  arrowSize: () => number;
  /** Requests a redraw. */
  changed: () => void;
  isLive: boolean;
  /** The frame prefix of this topic. */
  prefix: string;
  /** Removes a replaced object. */
  retire: (object: three.Object3D) => void;
  /** Resolves when the first frames have arrived. */
  first: () => Promise<void>;
}

/** An object in one frame. */
interface Part {
  object: three.Object3D;
  frame: string;
  /** The pose of the frame at the message's stamp. */
  placed?: Placed;
  t: number;
}

/** The layer of one topic. */
export class Layer {
  readonly object = new three.Group();
  error?: string;
  /** What is not drawn of the last message. */
  left = "";
  /** Whether its points are those of a scan. */
  isScan = false;
  /** The number of elements that are drawn. */
  drawn = 0;
  /** The value range of the colours, where they have one. */
  range = "";
  /** The frame, if no transform connects it to the fixed frame; then nothing is drawn. */
  lost?: string;
  /** The fields that points can be coloured by, and the layers of a map. */
  fields: string[] = [];
  private parts: Part[] = [];
  private markers = new Map<string, Marker & { born: number }>();
  private trail?: Part;
  /** When the last message was logged. */
  t = -Infinity;
  private last?: Shown;
  private timer = 0;

  constructor(
    readonly topic: Topic,
    readonly color: string,
    public settings: LayerSettings,
    private host: Host,
  ) {
    if (topic.role === "pose") void this.readTrail();
  }

  static form(role: string | null): "points" | "grid" | "columns" {
    return role === "points" || role === "grid" ? role : "columns";
  }

  /** Whether each message replaces the one before. */
  needsLast(): boolean {
    return this.topic.role !== "marker" && !this.settings.decay;
  }

  take(shown: Shown): void {
    if (shown.op === "nothing") return this.empty();
    this.error = shown.error;
    if (shown.error) return;
    // After a seek backwards, accumulated content is from the future.
    if (shown.t < this.t) this.empty();
    this.t = shown.t;
    this.last = shown;
    try {
      this.draw(shown);
    } catch (error) {
      this.error = (error as Error).message;
    }
  }

  /** Redraws the last message with other settings. */
  again(): void {
    if (this.last) this.draw(this.last);
    if (this.trail) (((this.trail.object as three.Line).material as three.LineBasicMaterial).color.set(this.tint()));
  }

  /** Places all parts by their frames' poses. Parts without a transform, and a replaced layer, are hidden. */
  put(base: Base, isReplaced = false): void {
    this.lost = undefined;
    for (const part of [...this.parts, ...(this.trail ? [this.trail] : [])]) {
      const { object } = part;
      const matrix = this.matrixIn(base, part);
      object.matrixAutoUpdate = false;
      object.visible = matrix !== undefined && !isReplaced;
      if (matrix) object.matrix.copy(base.inverse).multiply(matrix).multiply(object.userData.own as three.Matrix4);
      else if (part !== this.trail) this.lost = part.frame;
      object.matrixWorldNeedsUpdate = true;
    }
  }

  /** The pose of a part's frame in the root of the fixed frame: at its stamp, or else now. */
  private matrixIn(base: Base, part: Part): three.Matrix4 | undefined {
    const known = [part.placed, this.host.frames.poses.get(part.frame)].find((pose) => pose?.root === base.root);
    return known?.matrix ?? (part.frame === base.name ? new three.Matrix4() : undefined);
  }

  /** The frames of its parts. */
  frameNames(): string[] {
    return this.parts.map((part) => part.frame);
  }

  /** Removes what has expired. */
  expire(t: number): void {
    const decay = (this.settings.decay ?? 0) * 1e9;
    if (decay > 0) this.drop((part) => part.t < t - decay && part !== this.parts.at(-1));
    const gone = [...this.markers].filter(([, one]) => one.lifetime > 0 && t > one.born + one.lifetime * 1e9);
    if (gone.length === 0) return;
    for (const [key] of gone) this.markers.delete(key);
    this.drawMarkers();
    this.host.changed();
  }

  /** The frame of its last part. */
  frame(): string {
    return this.parts.at(-1)?.frame ?? "";
  }

  hasContent(): boolean {
    return this.parts.length > 0;
  }

  dispose(): void {
    clearTimeout(this.timer);
    this.timer = -1;
    clear(this.object);
  }

  private tint(): string {
    return this.settings.color ?? this.color;
  }

  private empty(): void {
    this.markers.clear();
    this.drop(() => true);
    this.t = -Infinity;
    this.host.changed();
  }

  private drop(isMeant: (part: Part) => boolean): void {
    for (const part of this.parts.filter(isMeant)) this.host.retire(part.object);
    this.parts = this.parts.filter((part) => !isMeant(part));
  }

  /** Replaces its content. */
  private show(object: three.Object3D | undefined, frame: string, placed?: Placed): void {
    this.drop(() => true);
    if (object) this.add(object, frame, placed);
  }

  private add(object: three.Object3D, frame: string, placed?: Placed): void {
    object.updateMatrix();
    object.userData.own = object.matrix.clone();
    this.object.add(object);
    this.parts.push({ object, frame, placed, t: this.t });
  }

  private draw(shown: Shown): void {
    const pose = shown.pose as number[] | undefined;
    const placed = pose ? { root: String(shown.root), matrix: matrixOf(pose) } : undefined;
    const frame = String(shown.frame ?? "");
    this.left = "";
    switch (this.topic.role) {
      case "points":
        return this.drawPoints(shown, frame, placed);
      case "grid":
        return this.drawCells(shown, frame, placed);
      case "pose":
        return this.drawPose(new Columns(shown), frame);
      case "path":
        return this.drawPoses(new Columns(shown), frame);
      case "polygon":
        return this.show(polygonOf(new Columns(shown), this.tint()), frame);
      case "range":
        return this.show(rangeOf(new Columns(shown), this.tint()), frame, placed);
      case "point": {
        const columns = new Columns(shown);
        const ball = new three.Mesh(new three.SphereGeometry(0.08 * this.host.arrowSize(), 16, 12), new three.MeshLambertMaterial({ color: this.tint() }));
        ball.position.set(...(posesAt(columns, "position", "")(0).slice(0, 3) as [number, number, number]));
        return this.show(ball, frame);
      }
      case "marker":
        return this.takeMarkers(new Columns(shown));
    }
  }

  private drawCells(shown: Shown, frame: string, placed?: Placed): void {
    this.show(cellsOf(shown, this.settings.palette ?? paletteOf(shown)), frame, placed);
    this.drawn = Number(shown.width ?? 0) * Number(shown.height ?? 0);
    this.fields = (shown.fields as string[] | undefined) ?? [];
    this.range = rangeOfCells(shown);
  }

  private drawPoints(shown: Shown, frame: string, placed?: Placed): void {
    this.isScan = shown.kind === "scan";
    const { by, size, least, most, decay } = this.settings;
    const cloud = cloudOf(shown, { by: by ?? "value", size: size ?? (this.isScan ? 5 : 2.5), color: this.tint(), least: least ?? NaN, most: most ?? NaN });
    if (!decay) this.drop(() => true);
    this.add(cloud, frame, placed);
    this.drawn = Number(shown.count ?? 0);
    this.fields = (shown.fields as string[] | undefined) ?? [];
    const [seen, thinned] = [Number(shown.seen ?? 0), Number(shown.thinned ?? 0)];
    if (thinned > 0) this.left = `${thinned.toLocaleString("en")} of ${seen.toLocaleString("en")} points`;
  }

  private drawPose(columns: Columns, frame: string): void {
    const pose = posesAt(columns, "position", "orientation")(0);
    this.show(arrowOf(pose, this.host.arrowSize() * (this.settings.size ?? 1), this.tint()), frame);
    const child = plain(columns.texts("child_frame")[0]);
    if (child) this.host.frames.say(frame, this.host.prefix + child, pose);
    if (this.trail) this.trail.frame ||= frame;
  }

  private drawPoses(columns: Columns, frame: string): void {
    const { object, count, left } = posesOf(columns, this.tint(), this.host.arrowSize() * (this.settings.size ?? 1));
    this.left = left;
    this.drawn = count;
    this.show(object, frame);
  }

  private takeMarkers(columns: Columns): void {
    const isScene = columns.has("entities") || columns.has("deletions");
    for (const { removed, added } of isScene ? sceneOf(columns) : markersOf(columns)) {
      if (removed === "all") this.markers.clear();
      else for (const key of [...this.markers.keys()]) if (removed(key)) this.markers.delete(key);
      for (const one of added) this.markers.set(one.key, { ...one, frame: one.frame && this.host.prefix + one.frame, born: this.t });
    }
    this.drawMarkers();
  }

  private drawMarkers(): void {
    this.drop(() => true);
    const frames = Map.groupBy(this.markers.values(), ({ frame }) => frame);
    const left = new Map<string, number>();
    for (const [frame, all] of frames) {
      const [x, y, z] = all[0].pose;
      const batch = new Batch(new three.Vector3(x, y, z));
      for (const one of all) batch.add(one);
      const group = new three.Group();
      batch.build(group);
      this.add(group, frame);
      for (const [kind, count] of batch.left) left.set(kind, (left.get(kind) ?? 0) + count);
      for (const one of batch.meshes) void this.loadMarkerMesh(one, group, new three.Vector3(x, y, z));
    }
    this.drawn = this.markers.size;
    this.left = [...left].map(([kind, count]) => `${count} ${kind}`).join(", ");
  }

  private async loadMarkerMesh(marker: Marker, group: three.Group, origin: three.Vector3): Promise<void> {
    try {
      const { loadMesh } = await import("./meshes");
      const mesh = await loadMesh(marker.mesh);
      const holder = new three.Group();
      holder.applyMatrix4(matrixOf(marker.pose));
      holder.position.sub(origin);
      holder.scale.set(marker.scale[0], marker.scale[1], marker.scale[2]);
      holder.add(mesh);
      group.add(holder);
    } catch {
      this.left = [this.left, marker.mesh ? `mesh ${marker.mesh}` : "3D models"].filter(Boolean).join(", ");
    }
    this.host.changed();
  }

  /** Reads the path of a pose over the whole recording; of a running robot, repeatedly. */
  private async readTrail(): Promise<void> {
    const { type, topic } = this.topic;
    const inner = /Odometry$|WithCovarianceStamped$/.test(type) && !/foxglove/i.test(type) ? "pose.pose" : "pose";
    const paths = ["x", "y", "z"].map((axis) => `${inner}.position.${axis}`).join(",");
    try {
      await this.host.first();
      const { rows } = await ask<{ rows: (number | null)[][] }>("rows", { topic, paths });
      if (this.timer === -1) return;
      const places = rows.flatMap(([, x, y, z]) => (typeof x === "number" && typeof y === "number" ? [x, y, (z ?? 0) + 0.01] : []));
      if (this.trail) this.object.remove(this.trail.object);
      const object = lineOf(places, this.tint());
      object.updateMatrix();
      object.userData.own = object.matrix.clone();
      object.name = "trail";
      this.object.add(object);
      this.trail = { object, frame: this.frame(), t: 0 };
      this.host.changed();
    } catch {
      // Without a trail there is still the pose.
    }
    if (this.host.isLive && this.timer !== -1) this.timer = window.setTimeout(() => void this.readTrail(), 3000);
  }
}
