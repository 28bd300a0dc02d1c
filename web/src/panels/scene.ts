import * as three from "three";
import { OrbitControls } from "three/examples/jsm/controls/OrbitControls.js";
import { ask } from "../connection";
import type { Context, Panel, PanelSpec } from "../context";
import { color, empty, h } from "../dom";
import type { Edge, Json, Shown, Topic } from "../types";
import { markers } from "./markers";

/** Things in space: frames, points, maps, poses, paths and markers, in one fixed frame. */
export function sceneContents(context: Context, spec: PanelSpec, element: HTMLElement): Panel {
  const { connection, summary } = context;
  element.replaceChildren();
  const isSoftware = drawsInSoftware();
  // Without a graphics card, fewer pixels and fewer pictures leave time for everything else.
  const leastPause = isSoftware ? 100 : 0;
  let renderer: three.WebGLRenderer;
  try {
    renderer = new three.WebGLRenderer({ antialias: !isSoftware, preserveDrawingBuffer: true, powerPreference: "high-performance" });
  } catch {
    element.replaceChildren(empty("No 3D here", "This browser has no WebGL; turn on hardware acceleration, or use another one."));
    return { element, title: "", spec: () => spec, dispose: () => undefined };
  }
  renderer.setPixelRatio(isSoftware ? 0.6 : Math.min(devicePixelRatio, 2));
  renderer.domElement.setAttribute("aria-label", "3D view");
  renderer.domElement.setAttribute("role", "img");
  element.append(renderer.domElement);

  const scene = new three.Scene();
  const camera = new three.PerspectiveCamera(50, 1, 0.02, 20000);
  camera.up.set(0, 0, 1);
  camera.position.set(-6, -6, 7);
  const controls = new OrbitControls(camera, renderer.domElement);
  controls.enableDamping = true;
  controls.dampingFactor = 0.15;
  scene.add(new three.HemisphereLight(0xffffff, 0x667788, 2.2));
  const sun = new three.DirectionalLight(0xffffff, 1.4);
  sun.position.set(4, -3, 10);
  scene.add(sun);
  const grid = new three.GridHelper(40, 40);
  grid.rotation.x = Math.PI / 2;
  // Far enough below a map that it does not show through.
  grid.position.z = -0.03;
  scene.add(grid);

  /** Frames by name, each with where it is in the root of its tree. */
  let edges: Edge[] = [];
  let poses = new Map<string, { root: string; matrix: three.Matrix4 }>();
  const roots = new Set<string>();
  const axes = new Map<string, three.Object3D>();
  const layers = new Map<string, Layer>();
  const hidden = new Set<string>((spec.options?.hidden as string[] | undefined) ?? []);
  let fixed = String(spec.options?.fixed ?? "");
  let follow = String(spec.options?.follow ?? "auto");
  /** The view is fitted to what comes in the first moments. */
  let fittedSince = 0;
  let isTouched = false;
  let arrowSize = 1;
  let isDirty = true;
  let painted = -Infinity;
  let stopped = false;
  const touch = () => (isDirty = true);
  controls.addEventListener("change", touch);
  controls.addEventListener("start", () => (isTouched = true));

  interface Layer {
    object: three.Object3D;
    frame: string;
    /** Where the message said that its frame was, when it was measured. */
    placed?: { root: string; matrix: three.Matrix4 };
    stop: () => void;
    error?: string;
    /** What the last message held that is not drawn. */
    missing?: string;
    /** When the last message came. */
    t?: number;
  }

  const frameChoice = h("select", { "aria-label": "Fixed frame", title: "Fixed frame" });
  const followChoice = h("select", { "aria-label": "Frame that the view follows", title: "Follow" });
  const layerBox = h("div", { class: "layers", role: "group", "aria-label": "What is shown" });
  element.append(layerBox);

  const robot = robotShape();
  scene.add(robot);

  /** Where everything is, from the edges of the tree. */
  const place = () => {
    const parents = new Map(edges.map((edge) => [edge.child, edge]));
    poses = new Map();
    const find = (name: string, depth = 0): { root: string; matrix: three.Matrix4 } => {
      const known = poses.get(name);
      if (known) return known;
      const edge = parents.get(name);
      let found = { root: name, matrix: new three.Matrix4() };
      if (edge?.pose && depth < 200) {
        const above = find(edge.parent, depth + 1);
        found = { root: above.root, matrix: above.matrix.clone().multiply(matrixOf(edge.pose)) };
      }
      poses.set(name, found);
      return found;
    };
    for (const edge of edges) {
      find(edge.child);
      find(edge.parent);
    }
    roots.clear();
    for (const { root } of poses.values()) roots.add(root);
    choose();
    const base = fixedPose();
    for (const [name, { root, matrix }] of poses) {
      let object = axes.get(name);
      if (!object) {
        object = new three.AxesHelper(0.35);
        object.matrixAutoUpdate = false;
        axes.set(name, object);
        scene.add(object);
      }
      object.visible = root === base.root && !hidden.has("frames");
      object.matrix.copy(base.inverse).multiply(matrix);
    }
    for (const [name, object] of axes)
      if (!poses.has(name)) {
        scene.remove(object);
        axes.delete(name);
      }
    const body = baseFrame();
    const pose = body ? poses.get(body) : undefined;
    robot.visible = Boolean(pose && pose.root === base.root) && !hidden.has("robot");
    if (pose) robot.matrix.copy(base.inverse).multiply(pose.matrix);
    for (const layer of layers.values()) put(layer);
    if (follow !== "none") {
      const name = follow === "auto" ? body : follow;
      const target = name ? poses.get(name) : undefined;
      if (target && target.root === base.root) {
        const at = new three.Vector3().setFromMatrixPosition(base.inverse.clone().multiply(target.matrix));
        const by = at.clone().sub(controls.target);
        controls.target.add(by);
        camera.position.add(by);
      }
    }
    touch();
  };

  /** The frame that the picture stands still in. */
  const fixedPose = () => {
    const name = fixed || preferred();
    const pose = poses.get(name) ?? { root: name, matrix: new three.Matrix4() };
    return { root: pose.root, inverse: pose.matrix.clone().invert() };
  };
  const preferred = () => {
    for (const name of ["map", "world", "odom"]) if (poses.has(name)) return poses.get(name)?.root ?? name;
    return [...roots][0] ?? [...layers.values()].find((layer) => layer.frame)?.frame ?? "";
  };
  const baseFrame = () => ["base_link", "base_footprint", "base"].find((name) => poses.has(name));

  let told = "none yet";
  const choose = () => {
    const names = [...poses.keys()].sort();
    const key = names.join("\n");
    if (key === told) return;
    told = key;
    frameChoice.hidden = followChoice.hidden = names.length === 0;
    const options = names.map((name) => h("option", { value: name }, name));
    frameChoice.replaceChildren(h("option", { value: "" }, `in ${preferred() || "its own frame"}`), ...options);
    frameChoice.value = fixed;
    followChoice.replaceChildren(
      h("option", { value: "auto" }, "follow the robot"),
      h("option", { value: "none" }, "stand still"),
      ...names.map((name) => h("option", { value: name }, `follow ${name}`)),
    );
    followChoice.value = follow;
  };
  frameChoice.addEventListener("change", () => {
    fixed = frameChoice.value;
    place();
    context.save();
  });
  followChoice.addEventListener("change", () => {
    follow = followChoice.value;
    place();
    context.save();
  });

  const put = (layer: Layer) => {
    const base = fixedPose();
    const pose = layer.placed ?? poses.get(layer.frame);
    layer.object.matrixAutoUpdate = false;
    if (pose && pose.root === base.root) layer.object.matrix.copy(base.inverse).multiply(pose.matrix);
    else layer.object.matrix.identity();
    layer.object.visible = !pose || pose.root === base.root || roots.size <= 1;
    layer.object.matrixWorldNeedsUpdate = true;
  };

  const add = (topic: Topic) => {
    if (layers.has(topic.topic) || hidden.has(topic.topic)) return;
    const object = new three.Group();
    scene.add(object);
    const layer: Layer = { object, frame: "", stop: () => undefined };
    layers.set(topic.topic, layer);
    const form = topic.role === "grid" ? "grid" : topic.role === "points" ? "points" : "json";
    layer.stop = connection.subscribe(topic.topic, form, (shown) => {
      if (shown.op === "nothing") {
        clear(object);
        return touch();
      }
      if (shown.error) {
        layer.error = shown.error;
        return drawLayers();
      }
      try {
        fill(topic, layer, shown);
      } catch (error) {
        layer.error = (error as Error).message;
        drawLayers();
      }
      put(layer);
      if (!isTouched && (fittedSince === 0 || performance.now() - fittedSince < 2500)) fit();
      touch();
    });
    if (topic.role === "pose") trail(topic, layer);
  };

  const remove = (name: string) => {
    const layer = layers.get(name);
    if (!layer) return;
    layer.stop();
    clear(layer.object);
    scene.remove(layer.object);
    layers.delete(name);
    touch();
  };

  const fill = (topic: Topic, layer: Layer, shown: Shown) => {
    if (topic.role === "points" || topic.role === "grid") {
      layer.frame = String(shown.frame ?? "");
      const pose = shown.pose as number[] | undefined;
      layer.placed = pose ? { root: String(shown.root), matrix: matrixOf(pose) } : undefined;
      if (topic.role === "points") points(layer.object, shown);
      else cells(layer.object, shown);
      return;
    }
    const data = shown.data as { [key: string]: Json };
    layer.frame = frameOf(data);
    // What was built up until now is not what was known then.
    if (shown.t < (layer.t ?? -Infinity)) clear(layer.object);
    layer.t = shown.t;
    if (topic.role === "pose") arrow(layer.object, poseOf(data), arrowSize);
    else if (topic.role === "path") path(layer.object, data);
    else if (topic.role === "marker") {
      const left = markers(layer.object, data, (frame) => (layer.frame = frame));
      const missing = [...left].map(([kind, count]) => `${count} ${kind}`).join(", ");
      if (missing === (layer.missing ?? "")) return;
      layer.missing = missing;
      drawLayers();
    }
  };

  /** Where a pose went over the whole recording, as a line. */
  const trail = (topic: Topic, layer: Layer): void => {
    if (stopped || layers.get(topic.topic) !== layer) return;
    // Where a running robot went is asked for again.
    if (summary.live) setTimeout(() => trail(topic, layer), 3000);
    const inner = /\/Odometry|Covariance/.test(topic.type) ? "pose.pose" : "pose";
    const paths = ["x", "y", "z"].map((axis) => `${inner}.position.${axis}`).join(",");
    ask<{ rows: number[][] }>("rows", { topic: topic.topic, paths }).then(({ rows }) => {
      if (stopped) return;
      const geometry = new three.BufferGeometry();
      const places = rows.flatMap(([, x, y, z]) => (Number.isFinite(x) ? [x, y, (z ?? 0) + 0.01] : []));
      geometry.setAttribute("position", new three.Float32BufferAttribute(places, 3));
      const line = new three.Line(geometry, new three.LineBasicMaterial({ color: 0xf59e0b, transparent: true, opacity: 0.8 }));
      line.name = "kept";
      const before = layer.object.getObjectByName("kept");
      if (before) layer.object.remove(before);
      layer.object.add(line);
      if (!isTouched && performance.now() - fittedSince < 2500) fit();
      touch();
    }, () => undefined);
  };

  const fit = () => {
    const box = new three.Box3();
    scene.updateMatrixWorld();
    for (const layer of layers.values()) if (layer.object.visible) box.expandByObject(layer.object);
    if (box.isEmpty()) return;
    fittedSince ||= performance.now();
    const center = box.getCenter(new three.Vector3());
    const size = Math.min(Math.max(box.getSize(new three.Vector3()).length(), 2), 2000);
    // A pose far away is still to be seen.
    arrowSize = Math.max(1, size / 25);
    controls.target.copy(center);
    camera.position.copy(center).add(new three.Vector3(-0.34, -0.48, 0.6).multiplyScalar(size));
    // A map is looked at as a whole; without one, the robot is what there is to see.
    const hasMap = [...layers.values()].some((layer) => layer.object.getObjectByName("cells"));
    if (follow === "auto" && hasMap) followChoice.value = follow = "none";
  };

  const drawLayers = () => {
    const entry = (name: string, text: string) => {
      const box = h("input", { type: "checkbox" });
      box.checked = !hidden.has(name);
      box.addEventListener("change", () => {
        if (box.checked) hidden.delete(name);
        else hidden.add(name);
        const topic = topics.find((one) => one.topic === name);
        if (topic) box.checked ? add(topic) : remove(name);
        place();
        context.save();
      });
      const error = layers.get(name)?.error;
      const missing = layers.get(name)?.missing;
      return h("label", { title: error ?? name }, box, text, error ? h("em", {}, " !") : null, missing ? h("em", {}, ` (not drawn: ${missing})`) : null);
    };
    layerBox.replaceChildren(
      entry("frames", "frames"),
      entry("robot", "robot"),
      ...topics.map((topic) => entry(topic.topic, topic.topic)),
    );
  };

  let topics: Topic[] = [];
  /** Shows what there is to see; a running robot may have more of it later. */
  const renew = () => {
    const found = summary.topics.filter((topic) => ["points", "grid", "pose", "path", "marker"].includes(topic.role ?? "") && topic.messages !== 0);
    const isSame = found.length === topics.length && found.every((topic, index) => topic.topic === topics[index].topic);
    if (isSame && topics.length > 0) return;
    const fresh = found.filter((topic) => !topics.some((one) => one.topic === topic.topic));
    topics = found;
    // With very many of them, a few are shown at first.
    fresh.forEach((topic) => !spec.options && found.indexOf(topic) >= 12 && hidden.add(topic.topic));
    fresh.forEach(add);
    drawLayers();
  };
  renew();
  const stopTopics = connection.on("topics", renew);
  const stopFrames = connection.frames((frames) => {
    edges = frames.edges;
    place();
  });
  choose();

  const paint = () => {
    scene.background = new three.Color(color("scene"));
    const material = grid.material as three.LineBasicMaterial;
    material.vertexColors = false;
    material.color.set(color("scene-grid"));
    material.needsUpdate = true;
    touch();
  };
  paint();
  addEventListener("asof-theme", paint);

  const sized = new ResizeObserver(() => {
    const { clientWidth: width, clientHeight: height } = element;
    if (width === 0 || height === 0) return;
    renderer.setSize(width, height, false);
    camera.aspect = width / height;
    camera.updateProjectionMatrix();
    touch();
  });
  sized.observe(element);
  const loop = () => {
    if (stopped) return;
    requestAnimationFrame(loop);
    controls.update();
    const now = performance.now();
    if (!isDirty || now - painted < leastPause) return;
    painted = now;
    isDirty = false;
    renderer.render(scene, camera);
  };
  loop();

  return {
    element,
    title: "",
    controls: [frameChoice, followChoice],
    spec: () => ({ kind: "scene", options: { fixed, follow, hidden: [...hidden] } }),
    dispose: () => {
      stopped = true;
      stopFrames();
      stopTopics();
      removeEventListener("asof-theme", paint);
      sized.disconnect();
      for (const name of [...layers.keys()]) remove(name);
      controls.dispose();
      renderer.dispose();
      renderer.forceContextLoss();
    },
  };
}

function matrixOf([x, y, z, qx, qy, qz, qw]: number[]): three.Matrix4 {
  const turn = new three.Quaternion(qx, qy, qz, qw).normalize();
  return new three.Matrix4().compose(new three.Vector3(x, y, z), turn, new three.Vector3(1, 1, 1));
}

/** Whether the processor stands in for a graphics card. */
function drawsInSoftware(): boolean {
  const context = document.createElement("canvas").getContext("webgl2");
  const names = context?.getExtension("WEBGL_debug_renderer_info");
  const name = context && names ? String(context.getParameter(names.UNMASKED_RENDERER_WEBGL)) : "";
  context?.getExtension("WEBGL_lose_context")?.loseContext();
  return /swiftshader|llvmpipe|software|basic render/i.test(name);
}

function robotShape(): three.Group {
  const group = new three.Group();
  const material = new three.MeshStandardMaterial({ color: 0x2f7de1, roughness: 0.6 });
  const body = new three.Mesh(new three.CylinderGeometry(0.18, 0.2, 0.16, 32), material);
  body.rotation.x = Math.PI / 2;
  body.position.z = 0.09;
  const nose = new three.Mesh(new three.ConeGeometry(0.08, 0.2, 24), new three.MeshStandardMaterial({ color: 0xf8fafc }));
  nose.rotation.z = -Math.PI / 2;
  nose.position.set(0.14, 0, 0.17);
  group.add(body, nose);
  group.matrixAutoUpdate = false;
  group.visible = false;
  return group;
}

/** Empties a layer, except for what stays over the whole recording. */
export function clear(group: three.Object3D): void {
  for (const child of [...group.children]) {
    if (child.name === "kept") continue;
    if (child.children.length > 0) clear(child);
    group.remove(child);
    const mesh = child as three.Mesh;
    mesh.geometry?.dispose();
    const material = mesh.material as three.Material | undefined;
    if (material) {
      (material as three.MeshBasicMaterial).map?.dispose();
      material.dispose();
    }
  }
}

function points(group: three.Object3D, shown: Shown): void {
  const count = shown.count as number;
  const places = new Float32Array(shown.body as ArrayBuffer, shown.bodyOffset, count * 3);
  const after = (shown.bodyOffset as number) + count * 12;
  const colors = new Float32Array(count * 3);
  if (shown.color === "rgba") {
    const bytes = new Uint8Array(shown.body as ArrayBuffer, after, count * 4);
    for (let point = 0; point < count; point++) for (let part = 0; part < 3; part++) colors[point * 3 + part] = (bytes[point * 4 + part] / 255) ** 2.2;
  } else {
    const values = new Float32Array(shown.body as ArrayBuffer, after, count);
    let [low, high] = [Infinity, -Infinity];
    for (const value of values) {
      if (value < low) low = value;
      if (value > high) high = value;
    }
    const tint = new three.Color();
    for (let point = 0; point < count; point++) {
      const part = high > low ? (values[point] - low) / (high - low) : 0.3;
      tint.setHSL(0.66 * (1 - part), 0.9, 0.52).toArray(colors, point * 3);
    }
  }
  clear(group);
  const geometry = new three.BufferGeometry();
  geometry.setAttribute("position", new three.BufferAttribute(places.slice(), 3));
  geometry.setAttribute("color", new three.BufferAttribute(colors, 3));
  const size = shown.kind === "scan" ? 5 : 2.5;
  const cloud = new three.Points(geometry, new three.PointsMaterial({ size, sizeAttenuation: false, vertexColors: true }));
  cloud.frustumCulled = false;
  const local = shown.local_pose as number[] | null;
  if (local) cloud.applyMatrix4(matrixOf(local));
  group.add(cloud);
}

function cells(group: three.Object3D, shown: Shown): void {
  const [width, height, resolution] = [shown.width as number, shown.height as number, shown.resolution as number];
  const values = new Uint8Array(shown.body as ArrayBuffer, shown.bodyOffset, width * height);
  const pixels = new Uint8Array(width * height * 4);
  values.forEach((value, index) => {
    // 0 is free, 100 is taken, 255 is not known.
    const shade = value > 100 ? 128 : Math.round(235 - value * 2.05);
    pixels.set([shade, shade, value > 100 ? 134 : shade, value > 100 ? 70 : 235], index * 4);
  });
  clear(group);
  const texture = new three.DataTexture(pixels, width, height);
  texture.colorSpace = three.SRGBColorSpace;
  texture.magFilter = three.NearestFilter;
  texture.needsUpdate = true;
  const plane = new three.Mesh(
    new three.PlaneGeometry(width * resolution, height * resolution),
    new three.MeshBasicMaterial({ map: texture, transparent: true, side: three.DoubleSide, depthWrite: false }),
  );
  plane.name = "cells";
  plane.renderOrder = -1;
  const origin = (shown.origin as number[] | null) ?? [0, 0, 0, 0, 0, 0, 1];
  plane.applyMatrix4(new three.Matrix4().makeTranslation((width * resolution) / 2, (height * resolution) / 2, 0));
  plane.applyMatrix4(matrixOf(origin));
  group.add(plane);
}

type Fields = { [key: string]: Json };

function frameOf(data: Fields): string {
  const header = data.header as Fields | undefined;
  return String(header?.frame_id ?? data.frame_id ?? "").replace(/^\//, "");
}

/** A pose however deep it lies: Odometry has it in a pose with covariance. */
function poseOf(data: Fields): number[] | undefined {
  let pose = data as Fields | undefined;
  for (let depth = 0; depth < 3 && pose && !("position" in pose); depth++) pose = pose.pose as Fields | undefined;
  if (!pose || !("position" in pose)) return undefined;
  const part = (of: Json, name: string, otherwise = 0) => Number((of as Fields | undefined)?.[name] ?? otherwise);
  const [place, turn] = [pose.position, pose.orientation ?? {}];
  return [part(place, "x"), part(place, "y"), part(place, "z"), part(turn, "x"), part(turn, "y"), part(turn, "z"), part(turn, "w", 1)];
}

function arrow(group: three.Object3D, pose: number[] | undefined, size: number): void {
  clear(group);
  if (!pose) return;
  const shape = new three.Mesh(new three.ConeGeometry(0.07 * size, 0.4 * size, 16), new three.MeshStandardMaterial({ color: 0xf59e0b }));
  shape.rotation.z = -Math.PI / 2;
  shape.updateMatrix();
  shape.applyMatrix4(matrixOf(pose));
  group.add(shape);
}

function path(group: three.Object3D, data: Fields): void {
  clear(group);
  const poses = ((data.poses as Json[]) ?? []).map((one) => poseOf(one as Fields)).filter((one) => one !== undefined);
  const geometry = new three.BufferGeometry();
  geometry.setAttribute("position", new three.Float32BufferAttribute(poses.flatMap((pose) => pose.slice(0, 3)), 3));
  group.add(new three.Line(geometry, new three.LineBasicMaterial({ color: 0x10b981 })));
}
