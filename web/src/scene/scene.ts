import * as three from "three";
import { OrbitControls } from "three/examples/jsm/controls/OrbitControls.js";
import type { Context, Panel, PanelSpec } from "../context";
import { SERIES, color, drawAtMost, empty, h } from "../dom";
import { framePrefix } from "../first";
import { time } from "../format";
import { peek } from "../peek";
import type { Topic } from "../types";
import { Columns } from "../columns";
import { type Extent, bounded, extentNear, extentOf, isSeen, look, union } from "./fit";
import { Retired } from "./dispose";
import { type Base, FrameTree } from "./frames";
import { type Host, Layer, type LayerSettings } from "./layer";
import { layerList } from "./list";
import { Load } from "./load";
import { Robot } from "./robot";
import { Splats } from "./splats";
import { turnByKeys } from "./turn";
import { words } from "./words";

const ROLES = ["points", "grid", "pose", "path", "marker", "point", "polygon", "range"];
/** The most messages of a topic that wait for a frame of their own, so that jitter does not drop any. */
const MOST_WAITING = 3;
/** Where the light comes from. */
const SUN = new three.Vector3(4, -3, 10);
/** The interval of checks whether something has moved out of the picture. */
const KEEP_PAUSE = 500;

/** The 3D scene: robot, frames, points, maps, poses, paths and markers, in one fixed frame. */
export class SceneView {
  readonly frames = new FrameTree();
  readonly layers = new Map<string, Layer>();
  readonly hidden: Set<string>;
  readonly settings: Record<string, LayerSettings>;
  topics: Topic[] = [];
  robot?: Robot;
  robotError = "";
  /** Counts of messages, of messages that the server skipped, of frames, and of messages that were replaced before a frame. */
  readonly counts = { messages: 0, leftOut: 0, painted: 0, dropped: 0 };
  /** Messages per topic that were not rendered because later ones replaced them. */
  readonly skipped = new Map<string, number>();
  readonly load: Load;
  fixed: string;
  follow: string;
  /** Whether the list of layers is folded. */
  isFolded: boolean;
  private scene = new three.Scene();
  private camera = new three.PerspectiveCamera(50, 1, 0.02, 20000);
  private controls: OrbitControls;
  private grid = new three.GridHelper(40, 40);
  private axes = new Map<string, three.Object3D>();
  private chevron = chevron();
  private robots = new three.Group();
  private stops: (() => void)[] = [];
  private layerStops = new Map<string, () => void>();
  private fitted = new Set<string>();
  /** Messages since the last frame, by topic. */
  private waiting = new Map<string, (() => void)[]>();
  private retired = new Retired();
  private isTouched = false;
  private seen?: Extent;
  private keptAt = -Infinity;
  private keepTimer?: ReturnType<typeof setTimeout>;
  private isDirty = true;
  private paintedAt = -Infinity;
  private stopped = false;
  private reach = 10;
  private splats?: Splats;
  private isPartial = false;
  private list: ReturnType<typeof layerList>;
  private frameChoice = h("select", { "aria-label": "Fixed frame", title: "Fixed frame: what stands still in the picture" });
  private followChoice = h("select", { "aria-label": "Frame that the view follows", title: "What the view follows" });

  constructor(
    readonly context: Context,
    readonly spec: PanelSpec,
    private element: HTMLElement,
    private renderer: three.WebGLRenderer,
    isSoftware: boolean,
  ) {
    const options = spec.options ?? {};
    this.hidden = new Set((options.hidden as string[] | undefined) ?? []);
    this.settings = JSON.parse(String(options.layers ?? "{}")) as Record<string, LayerSettings>;
    this.fixed = String(options.fixed ?? "");
    this.follow = String(options.follow ?? "auto");
    this.isFolded = options.folded === true;
    this.controls = new OrbitControls(this.camera, renderer.domElement);
    const clouds = () => [...this.layers.values()].filter((layer) => layer.topic.role === "points").length;
    this.load = new Load(isSoftware, clouds, () => this.share());
    this.load.isPlaying = context.connection.state.state === "playing";
    if (isSoftware) this.splats = new Splats(this.scene, SUN.clone().normalize());
    this.list = layerList(this);
    this.furnish();
    this.listen();
    this.renew();
    this.tellFrames();
    this.loop();
  }

  panel(): Panel {
    return {
      element: this.element,
      title: "",
      controls: [this.frameChoice, this.followChoice],
      spec: () => ({ kind: "scene", options: { fixed: this.fixed, follow: this.follow, hidden: [...this.hidden], layers: JSON.stringify(this.settings), ...(this.isFolded ? { folded: true } : {}) } }),
      dispose: () => this.dispose(),
    };
  }

  /** Shows or hides a layer, frames, their names or the robot. */
  toggle(name: string, isShown: boolean): void {
    if (isShown) this.hidden.delete(name);
    else this.hidden.add(name);
    const topic = this.topics.find((one) => one.topic === name);
    if (topic && isShown) this.add(topic);
    else if (topic) this.remove(name);
    this.place();
    this.context.save();
  }

  /** Changes and stores the settings of a topic. */
  change(name: string, settings: LayerSettings): void {
    this.settings[name] = settings;
    this.wish(name);
    const layer = this.layers.get(name);
    if (layer) {
      layer.settings = settings;
      layer.again();
    }
    this.place();
    this.context.save();
  }

  /** Folds or unfolds the list of layers. */
  fold(isFolded: boolean): void {
    this.isFolded = isFolded;
    this.list.draw();
    this.context.save();
  }

  colorOf(name: string): string {
    const index = this.topics.findIndex((topic) => topic.topic === name);
    return SERIES[(Math.max(index, 0) + 1) % SERIES.length];
  }

  /** Fits the view to everything. */
  fit(rounds = 3): void {
    this.scene.updateMatrixWorld();
    const shown = [...this.layers.values()].filter((layer) => layer.object.visible);
    const maps = shown.filter((layer) => layer.object.getObjectByName("cells"));
    const body = this.bodyAt();
    let extent: Extent | undefined;
    // Fit to a map, or else to the robot and its surroundings.
    if (maps.length > 0 && this.follow !== "body") {
      extent = extentOf(maps.map((layer) => layer.object));
      if (this.follow === "auto") this.controls.target.copy(extent?.center ?? this.controls.target);
    } else if (body) {
      const least = Math.max((extentOf([this.robots], body)?.half.length() ?? 0) * 2, 3);
      const most = shown.some((layer) => layer.topic.role === "points") ? 40 : 200;
      extent = bounded(extentNear(shown.map((layer) => layer.object), body, least), least, most);
    } else extent = this.everything() ?? extentOf([...this.axes.values()]);
    if (!extent) return;
    extent = bounded(extent, 0.1, Infinity);
    const before = this.reach;
    this.reach = extent.half.length();
    look(this.camera, this.controls.target, extent);
    this.sizeAids();
    this.touch();
    // The size of arrows depends on the view, and the view includes them.
    const sized = shown.filter(({ topic }) => ["pose", "path", "point"].includes(topic.role ?? ""));
    if (sized.length === 0 || Math.abs(before / this.reach - 1) <= 0.2) return;
    for (const layer of sized) {
      layer.again();
      layer.put(this.base(), this.isReplaced(layer));
    }
    if (rounds === 0) return;
    this.seen = undefined;
    this.fit(rounds - 1);
  }

  private refit(): void {
    this.isTouched = false;
    this.seen = undefined;
    this.fit();
  }

  /** The bounding box of everything since the view was fitted. */
  private everything(): Extent | undefined {
    const now = extentOf([...this.layers.values()].map((layer) => layer.object).filter((object) => object.visible));
    this.seen = now && this.seen ? union(now, this.seen) : (now ?? this.seen);
    return this.seen && { center: this.seen.center.clone(), half: this.seen.half.clone() };
  }

  /** Without a followed frame, the view is enlarged when something moves out of it, unless the user has moved it. */
  private keepInView(): void {
    const now = performance.now();
    if (this.stopped || this.isTouched || this.follow !== "auto" || this.fitted.size === 0 || this.bodyAt()) return;
    const left = this.keptAt + KEEP_PAUSE - now;
    if (left > 0) {
      // There may be no further message that would trigger another check.
      this.keepTimer ??= setTimeout(() => {
        this.keepTimer = undefined;
        this.keepInView();
      }, left);
      return;
    }
    this.keptAt = now;
    this.scene.updateMatrixWorld();
    const shown = extentOf([...this.layers.values()].map((layer) => layer.object).filter((object) => object.visible));
    if (shown && !isSeen(this.camera, shown)) this.fit();
  }

  private furnish(): void {
    const { scene, camera, controls, grid, element, renderer } = this;
    camera.up.set(0, 0, 1);
    camera.position.set(-6, -6, 7);
    controls.enableDamping = true;
    controls.dampingFactor = 0.15;
    const sun = new three.DirectionalLight(0xffffff, 1.4);
    sun.position.copy(SUN);
    grid.rotation.x = Math.PI / 2;
    // Far enough below a map that it does not show through.
    grid.position.z = -0.03;
    scene.add(new three.HemisphereLight(0xffffff, 0x667788, 2.2), sun, grid, this.chevron, this.robots);
    const whole = h("button", { class: "fit plain text", title: "Look at everything", onclick: () => this.refit() }, "fit");
    element.replaceChildren(renderer.domElement, this.list.element, whole);
    this.paint();
  }

  private listen(): void {
    const { connection } = this.context;
    this.controls.addEventListener("change", () => this.touch());
    this.controls.addEventListener("start", () => (this.isTouched = true));
    this.frameChoice.addEventListener("change", () => this.choose(() => (this.fixed = this.frameChoice.value)));
    this.followChoice.addEventListener("change", () => this.choose(() => (this.follow = this.followChoice.value)));
    const paint = () => this.paint();
    addEventListener("asof-theme", paint);
    const sized = new ResizeObserver(() => this.resize());
    sized.observe(this.element);
    const moved = () => {
      this.isTouched = true;
      this.touch();
    };
    turnByKeys(this.renderer.domElement, { camera: this.camera, target: this.controls.target, moved, fit: () => this.refit() });
    pick(this.renderer.domElement, (x, y, event) => this.pickAt(x, y, event));
    this.stops.push(
      () => removeEventListener("asof-theme", paint),
      () => sized.disconnect(),
      connection.on("topics", () => this.renew()),
      connection.on("state", ({ t, state }) => {
        this.layers.forEach((layer) => layer.expire(t));
        this.load.isPlaying = state === "playing";
      }),
      connection.frames(({ edges, partial }) => {
        this.frames.set(edges);
        // All poses are set before the view is fitted.
        this.place();
        if (this.isPartial && !partial) this.fitted.delete("frames");
        this.isPartial = Boolean(partial);
        this.arrive("frames");
      }),
    );
  }

  private choose(change: () => void): void {
    change();
    this.place();
    this.refit();
    this.context.save();
  }

  /** Adds layers for the topics; a running robot may have more later. */
  private renew(): void {
    const { summary, connection } = this.context;
    const found = summary.topics.filter((topic) => ROLES.includes(topic.role ?? "") && topic.messages !== 0);
    const fresh = found.filter((topic) => !this.topics.some((one) => one.topic === topic.topic));
    this.topics = found;
    // With very many of them, a few are shown at first.
    if (!this.spec.options) for (const topic of fresh) if (found.indexOf(topic) >= 16) this.hidden.add(topic.topic);
    fresh.forEach((topic) => this.add(topic));
    const descriptions = summary.topics.filter((topic) => topic.role === "robot" && topic.messages !== 0);
    // The command line takes precedence over the recording.
    const description = descriptions.find((topic) => topic.topic.startsWith("/urdf/")) ?? descriptions[0];
    if (description && !this.layerStops.has("the robot"))
      this.layerStops.set("the robot", connection.subscribe(description.topic, "columns", (shown) => this.describe(new Columns(shown).texts("value")[0], framePrefix(summary, description.topic), shown.error)));
    this.list.draw();
  }

  private describe(text: string | undefined, prefix: string, error?: string): void {
    if (error) this.robotError = error;
    if (!text || this.robots.userData.text === text) return;
    this.robots.userData.text = text;
    this.robots.clear();
    this.robotError = "";
    try {
      this.robot = new Robot(text, prefix, () => {
        this.list.draw();
        this.place();
      });
      this.robots.add(this.robot.object);
    } catch (error) {
      this.robotError = (error as Error).message;
    }
    this.list.draw();
    this.place();
    this.arrive("the robot");
  }

  private add(topic: Topic): void {
    if (this.layers.has(topic.topic) || this.hidden.has(topic.topic)) return;
    let said = "";
    /** Reports problems when they change. */
    const tell = () => {
      if (said === `${layer.error} ${layer.left}`) return;
      said = `${layer.error} ${layer.left}`;
      this.list.draw();
    };
    const host: Host = {
      frames: this.frames,
      arrowSize: () => Math.max(0.05, this.reach / 12),
      changed: () => {
        this.place();
        tell();
      },
      isLive: this.context.summary.live,
      prefix: framePrefix(this.context.summary, topic.topic),
      retire: (object) => this.retired.push(object),
      first: () => this.context.connection.first(),
    };
    const layer = new Layer(topic, this.colorOf(topic.topic), this.settings[topic.topic] ?? {}, host);
    layer.object.userData.topic = topic.topic;
    this.layers.set(topic.topic, layer);
    this.scene.add(layer.object);
    const stop = this.context.connection.subscribe(topic.topic, Layer.form(topic.role), (shown) => {
      this.counts.messages++;
      this.counts.leftOut += Number(shown.left_out ?? 0);
      this.skip(topic.topic, Number(shown.left_out ?? 0));
      const take = () => {
        layer.take(shown);
        tell();
      };
      // A message that is replaced before the next frame is not drawn.
      if (!layer.needsLast()) take();
      this.wait(topic.topic, layer.needsLast() ? take : () => undefined);
    });
    this.layerStops.set(topic.topic, stop);
    this.share();
  }

  /** Queues a message for the next frame; the oldest is dropped where there are too many. */
  private wait(name: string, take: () => void): void {
    const queue = this.waiting.get(name) ?? [];
    this.waiting.set(name, queue);
    if (queue.push(take) > MOST_WAITING) {
      queue.shift();
      this.counts.dropped++;
      this.skip(name, 1);
      this.load.late();
    }
    this.touch();
  }

  private skip(topic: string, messages: number): void {
    if (messages > 0) this.skipped.set(topic, (this.skipped.get(topic) ?? 0) + messages);
  }

  /** Why a layer is not drawn, if no transform places it. */
  lostText(name: string): string {
    const { connection, clock, summary } = this.context;
    // Transforms may still be on their way.
    if (!this.fitted.has("frames") && summary.frame_topics.length > 0) return "";
    const asOf = (t: number) => `(as of ${time(t, clock(), summary.start)})`;
    const to = this.base().name;
    if (name === "robot") {
      const isLost = this.robot !== undefined && !this.robot.isPlaced();
      return isLost ? `no transform from ${this.robot?.root} to ${to} ${asOf(connection.state.t)}` : "";
    }
    const layer = this.layers.get(name);
    if (layer?.lost === undefined) return "";
    return layer.lost === "" ? "no frame_id: it cannot be placed" : `no transform from ${layer.lost} to ${to} ${asOf(layer.t)}`;
  }

  /** Updates all subscriptions' limits. */
  private share(): void {
    this.layers.forEach((_, name) => this.wish(name));
    this.element.dataset.rate = String(this.load.rate ?? "");
  }

  /** Updates a subscription: its colour field, and the current limits. */
  private wish(name: string): void {
    const role = this.layers.get(name)?.topic.role ?? null;
    const most = role === "points" ? this.load.most : undefined;
    const rate = this.load.most === undefined ? undefined : this.load.rate;
    this.context.connection.wish(name, Layer.form(role), { color: fieldOf(this.settings[name]), most, rate });
  }

  private remove(name: string): void {
    const layer = this.layers.get(name);
    if (!layer) return;
    this.layerStops.get(name)?.();
    this.layerStops.delete(name);
    this.waiting.delete(name);
    layer.dispose();
    this.scene.remove(layer.object);
    this.layers.delete(name);
    this.touch();
  }

  /** On the first content of a layer the view is fitted, unless the user has moved it. */
  private arrive(what: string): void {
    if (this.fitted.has(what)) return;
    this.fitted.add(what);
    if (!this.isTouched) this.fit();
  }

  private place(): void {
    this.tellFrames();
    const base = this.base();
    const { poses } = this.frames;
    for (const [name, { root, matrix }] of poses) {
      const object = this.axes.get(name) ?? this.newAxes(name);
      object.visible = root === base.root && !this.hidden.has("frames");
      object.getObjectByName("label")!.visible = this.settings.frames?.by === "value";
      object.matrix.copy(base.inverse).multiply(matrix);
    }
    for (const [name, object] of this.axes)
      if (!poses.has(name)) {
        this.scene.remove(object);
        this.axes.delete(name);
      }
    this.robot?.place(this.frames, base);
    this.robots.visible = !this.hidden.has("robot");
    const body = this.bodyAt();
    this.chevron.visible = Boolean(body) && !this.hidden.has("robot") && !this.robot?.isPlaced();
    const pose = poses.get(this.frames.body() ?? "");
    if (pose && body) this.chevron.matrix.copy(base.inverse).multiply(pose.matrix).scale(new three.Vector3().setScalar(Math.max(1, this.reach / 40)));
    for (const layer of this.layers.values()) layer.put(base, this.isReplaced(layer));
    this.goAlong(base);
    this.keepInView();
    this.touch();
  }

  /** Whether a map is shown by another layer: with its updates, or without them since it came later. */
  private isReplaced(layer: Layer): boolean {
    const updates = ["_updates", "_update"];
    const name = layer.topic.topic;
    const newer = updates.map((end) => this.layers.get(name + end)).some((other) => other?.hasContent() && !other.error && other.t >= layer.t);
    const base = this.layers.get(name.replace(/_updates?$/, ""));
    return newer || (base !== undefined && base !== layer && base.hasContent() && base.t > layer.t);
  }

  /** Moves the view with the followed frame. */
  private goAlong(base: Base): void {
    const hasMap = [...this.layers.values()].some((layer) => layer.object.getObjectByName("cells"));
    if (this.follow === "none" || (this.follow === "auto" && hasMap)) return;
    const name = this.follow === "auto" || this.follow === "body" ? this.frames.body() : this.follow;
    const target = name ? this.frames.poses.get(name) : undefined;
    if (!target || target.root !== base.root) return;
    const by = new three.Vector3().setFromMatrixPosition(base.inverse.clone().multiply(target.matrix)).sub(this.controls.target);
    this.controls.target.add(by);
    this.camera.position.add(by);
    this.placeGrid();
  }

  private newAxes(name: string): three.Object3D {
    const object = new three.AxesHelper(1);
    object.matrixAutoUpdate = false;
    const label = words(name, new three.Color(color("text")), 0.35);
    label.name = "label";
    object.add(label);
    this.axes.set(name, object);
    this.scene.add(object);
    this.sizeAids();
    return object;
  }

  /** Scales axes and grid to the view. */
  private sizeAids(): void {
    const size = Math.min(Math.max(this.reach / 25, 0.01), 5);
    for (const object of this.axes.values()) {
      const geometry = (object as three.AxesHelper).geometry;
      const before = Number(object.userData.size ?? 1);
      geometry.scale(size / before, size / before, size / before);
      object.getObjectByName("label")?.scale.multiplyScalar(size / before);
      object.userData.size = size;
    }
    // Forty squares reach well beyond the target of the view.
    const least = Math.max(this.reach, 0.02) / 8;
    const power = 10 ** Math.floor(Math.log10(least));
    const step = power * ([1, 2, 5].find((factor) => factor * power >= least) ?? 10);
    this.grid.scale.setScalar(step);
    this.placeGrid();
  }

  /** The grid lies below the target of the view. */
  private placeGrid(): void {
    const { x, y, z } = this.controls.target;
    const step = this.grid.scale.x;
    // Near the ground of the fixed frame, the grid is that ground.
    const ground = Math.abs(z) < this.reach / 2 ? 0 : Math.round((z - this.reach / 2) / step) * step;
    this.grid.position.set(Math.round(x / step) * step, Math.round(y / step) * step, ground - 0.003 * this.reach);
  }

  /** The fixed frame. */
  private base(): Base {
    const first = [...this.layers.values()].map((layer) => layer.frame()).find(Boolean) ?? this.robot?.root ?? "";
    const name = this.fixed || this.frames.preferred(first);
    const pose = this.frames.poses.get(name) ?? { root: name, matrix: new three.Matrix4() };
    return { name, root: pose.root, inverse: pose.matrix.clone().invert() };
  }

  /** Where the robot is in the picture, if it is known. */
  private bodyAt(): three.Vector3 | undefined {
    const base = this.base();
    const pose = this.frames.poses.get(this.frames.body() ?? "");
    return pose && pose.root === base.root ? new three.Vector3().setFromMatrixPosition(base.inverse.clone().multiply(pose.matrix)) : undefined;
  }

  private tellFrames(): void {
    const { poses } = this.frames;
    const preferred = this.base().name;
    // A frame without any transform can be viewed by itself.
    const alone = [...new Set([...this.layers.values()].flatMap((layer) => layer.frameNames()))].filter((name) => name !== "" && !poses.has(name));
    const names = [...poses.keys(), ...alone].sort();
    const key = `${this.fixed ? "" : preferred}\n${alone.length}\n${names.join("\n")}`;
    if (this.frameChoice.dataset.key === key) return;
    this.frameChoice.dataset.key = key;
    this.frameChoice.hidden = this.followChoice.hidden = names.length === 0;
    this.frameChoice.replaceChildren(h("option", { value: "" }, `in ${(this.fixed ? this.frames.preferred("") : preferred) || "its own frame"}`), ...names.map((name) => h("option", { value: name }, `in ${name}${alone.includes(name) ? " (not connected)" : ""}`)));
    this.frameChoice.value = this.fixed;
    this.followChoice.replaceChildren(
      h("option", { value: "auto" }, "follow"),
      h("option", { value: "none" }, "still"),
      ...[...poses.keys()].sort().map((name) => h("option", { value: name }, `follow ${name}`)),
    );
    this.followChoice.value = this.follow;
  }

  /** A click on something shows its message. */
  private pickAt(x: number, y: number, { clientX, clientY }: PointerEvent): void {
    const ray = new three.Raycaster();
    ray.params.Points.threshold = this.reach / 150;
    ray.params.Line.threshold = this.reach / 150;
    ray.setFromCamera(new three.Vector2(x, y), this.camera);
    const [hit] = ray.intersectObjects([...this.layers.values()].map((layer) => layer.object).filter((one) => one.visible));
    let object = hit?.object as three.Object3D | null | undefined;
    while (object && !object.userData.topic) object = object.parent;
    if (!object) return;
    const topic = String(object.userData.topic);
    // The browser closes popovers that open while the pointer is still down.
    setTimeout(() => peek(this.context, topic, clientX, clientY));
  }

  private paint(): void {
    this.scene.background = new three.Color(color("scene"));
    const material = this.grid.material as three.LineBasicMaterial;
    material.vertexColors = false;
    material.color.set(color("scene-grid"));
    material.needsUpdate = true;
    this.touch();
  }

  private resize(): void {
    const { clientWidth: width, clientHeight: height } = this.element;
    if (width === 0 || height === 0) return;
    this.renderer.setSize(width, height, false);
    this.camera.aspect = width / height;
    this.camera.updateProjectionMatrix();
    if (!this.isTouched && this.fitted.size > 0) this.fit();
    this.touch();
  }

  private touch(): void {
    this.isDirty = true;
  }

  private loop = (): void => {
    if (this.stopped) return;
    requestAnimationFrame(this.loop);
    this.controls.update();
    const now = performance.now();
    // A little early counts as on time: frames follow the screen's refresh rate, and must not lag behind the messages.
    if (!this.isDirty || now - this.paintedAt < this.load.pause * 0.9) return;
    this.isDirty = false;
    this.takeWaiting();
    this.paintedAt = now;
    this.counts.painted++;
    const programs = this.renderer.info.programs?.length;
    this.splats?.draw(this.renderer, this.camera);
    this.renderer.render(this.scene, this.camera);
    this.retired.free();
    if (this.fitted.has("frames")) this.element.dataset.framed = "";
    const { painted, dropped, messages, leftOut } = this.counts;
    Object.assign(this.element.dataset, { painted, dropped, messages, leftOut });
    this.list.count();
    // The first frame compiles shaders, so its time says nothing about the next ones.
    if (this.renderer.info.programs?.length === programs) requestAnimationFrame(() => this.load.painted(performance.now() - now));
  };

  /** Renders one queued message of each topic. */
  private takeWaiting(): void {
    if (this.waiting.size === 0) return;
    const names = [...this.waiting.keys()];
    const isMore = [...this.waiting.values()].some((queue) => queue.length > 1);
    for (const [name, queue] of [...this.waiting]) {
      queue.shift()?.();
      if (queue.length === 0) this.waiting.delete(name);
    }
    this.place();
    this.isDirty = isMore;
    for (const name of names) if (this.layers.get(name)?.hasContent()) this.arrive(name);
  }

  private dispose(): void {
    this.stopped = true;
    this.splats?.dispose();
    this.retired.free();
    this.stops.forEach((stop) => stop());
    this.layerStops.get("the robot")?.();
    for (const name of [...this.layers.keys()]) this.remove(name);
    this.controls.dispose();
    this.renderer.dispose();
    this.renderer.forceContextLoss();
  }
}

/** Called by the panel once three.js is loaded. */
export function sceneContents(context: Context, spec: PanelSpec, element: HTMLElement): Panel {
  try {
    const { renderer, isSoftware } = rendererFor();
    renderer.setPixelRatio(isSoftware ? 0.6 : Math.min(devicePixelRatio, 2));
    renderer.domElement.setAttribute("aria-label", "3D view: arrow keys turn it, with shift they move it, plus and minus go nearer and away");
    // An image that accepts keyboard input.
    renderer.domElement.setAttribute("role", "application");
    if (isSoftware) drawAtMost(10);
    return new SceneView(context, spec, element, renderer, isSoftware).panel();
  } catch {
    element.replaceChildren(empty("No 3D here", "This browser has no WebGL; turn on hardware acceleration, or use another one."));
    return { element, title: "", spec: () => spec, dispose: () => undefined };
  }
}

/** The chosen colour field. */
function fieldOf(settings: LayerSettings | undefined): string | undefined {
  return settings?.by?.startsWith("field ") ? settings.by.slice(6) : undefined;
}

/**
 * The renderer, and whether it runs in software: then without antialiasing. A context is expensive without a GPU, so the first
 * one is used to detect that, and a second one is only made with a GPU.
 */
function rendererFor(): { renderer: three.WebGLRenderer; isSoftware: boolean } {
  const make = (antialias: boolean) => new three.WebGLRenderer({ antialias, preserveDrawingBuffer: true, powerPreference: "high-performance" });
  const renderer = make(false);
  const context = renderer.getContext();
  const names = context.getExtension("WEBGL_debug_renderer_info");
  const name = names ? String(context.getParameter(names.UNMASKED_RENDERER_WEBGL)) : "";
  if (/swiftshader|llvmpipe|software|basic render/i.test(name)) return { renderer, isSoftware: true };
  renderer.dispose();
  renderer.forceContextLoss();
  return { renderer: make(true), isSoftware: false };
}

/** A click without a drag, in normalized device coordinates from -1 to 1. */
function pick(element: HTMLElement, take: (x: number, y: number, event: PointerEvent) => void): void {
  let from: [number, number] | undefined;
  element.addEventListener("pointerdown", (event) => (from = event.button === 0 ? [event.clientX, event.clientY] : undefined));
  element.addEventListener("pointerup", (event) => {
    if (!from || Math.hypot(event.clientX - from[0], event.clientY - from[1]) > 3) return;
    const box = element.getBoundingClientRect();
    take(((event.clientX - box.left) / box.width) * 2 - 1, 1 - ((event.clientY - box.top) / box.height) * 2, event);
  });
}

/** The position and heading of a robot without a description, as an arrow head. */
function chevron(): three.Mesh {
  const shape = new three.Shape([new three.Vector2(0.42, 0), new three.Vector2(-0.28, 0.26), new three.Vector2(-0.14, 0), new three.Vector2(-0.28, -0.26)]);
  const mesh = new three.Mesh(
    new three.ExtrudeGeometry(shape, { depth: 0.08, bevelEnabled: false }),
    new three.MeshLambertMaterial({ color: 0x2f7de1 }),
  );
  mesh.matrixAutoUpdate = false;
  mesh.visible = false;
  return mesh;
}
