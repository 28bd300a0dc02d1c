import * as three from "three";
import { FAR, type Raster, displayed, drawInstances, drawLines } from "./raster";

/** Shapes with fewer corners than this are left to WebGL: in software rendering, many small triangles are what is expensive. */
const FEW = 300;

const VERTEX = `in vec3 position;
void main() { gl_Position = vec4(position.xy, 0.0, 1.0); }`;
const FRAGMENT = `precision highp float; precision highp sampler2D;
uniform sampler2D colors, depths; out vec4 color;
void main() { ivec2 at = ivec2(gl_FragCoord.xy); float depth = texelFetch(depths, at, 0).r; if (depth >= 1.0) discard; color = vec4(texelFetch(colors, at, 0).rgb, 1.0); gl_FragDepth = depth; }`;

/**
 * Draws points, long lines and many solid shapes without a GPU: projects them into an image with depths, which is then one
 * rectangle in the scene. Software WebGL takes microseconds for each, and this takes nanoseconds. The image is reused between
 * frames.
 */
export class Splats {
  private raster: Raster = { width: 0, height: 0, colors: new Uint32Array(0), depths: new Float32Array(0) };
  private tint?: three.DataTexture;
  private depth?: three.DataTexture;
  private sheet: three.Mesh<three.BufferGeometry, three.RawShaderMaterial>;

  constructor(
    private scene: three.Scene,
    private sun: three.Vector3,
  ) {
    const corners = new three.BufferGeometry();
    corners.setAttribute("position", new three.BufferAttribute(Float32Array.of(-1, -1, 0, 3, -1, 0, -1, 3, 0), 3));
    const uniforms = { colors: { value: null }, depths: { value: null } };
    const material = new three.RawShaderMaterial({ vertexShader: VERTEX, fragmentShader: FRAGMENT, uniforms, glslVersion: three.GLSL3 });
    this.sheet = new three.Mesh(corners, material);
    this.sheet.frustumCulled = false;
    this.sheet.visible = false;
    scene.add(this.sheet);
  }

  /** Draws the most numerous objects of a scene from the current view, and leaves the rest to the renderer. */
  draw(renderer: three.WebGLRenderer, camera: three.PerspectiveCamera): void {
    this.scene.updateMatrixWorld();
    camera.updateMatrixWorld();
    const all: three.Mesh[] = [];
    this.scene.traverseVisible((object) => isMany(object) && all.push(object as three.Mesh));
    this.sheet.visible = all.length > 0;
    if (all.length === 0) return;
    const size = renderer.getDrawingBufferSize(new three.Vector2());
    this.resize(size.x, size.y);
    this.raster.colors.fill(0);
    this.raster.depths.fill(FAR);
    const seen = new three.Matrix4().multiplyMatrices(camera.projectionMatrix, camera.matrixWorldInverse);
    for (const one of all) {
      // Drawn here, so the renderer must not draw it again.
      (one.material as three.Material).visible = false;
      if ((one as three.InstancedMesh).isInstancedMesh) drawInstances(one as three.InstancedMesh, seen, this.sun, this.raster);
      else if ((one as unknown as three.Line).isLine) drawLines(one as unknown as three.Line, seen, this.raster);
      else this.splat(one as unknown as three.Points, new three.Matrix4().multiplyMatrices(seen, one.matrixWorld), renderer.getPixelRatio());
    }
    (this.tint as three.DataTexture).needsUpdate = true;
    (this.depth as three.DataTexture).needsUpdate = true;
  }

  dispose(): void {
    this.tint?.dispose();
    this.depth?.dispose();
    this.sheet.geometry.dispose();
    this.sheet.material.dispose();
    this.scene.remove(this.sheet);
  }

  private resize(width: number, height: number): void {
    if (width === this.raster.width && height === this.raster.height) return;
    this.tint?.dispose();
    this.depth?.dispose();
    const [colors, depths] = [new Uint32Array(width * height), new Float32Array(width * height)];
    this.raster = { width, height, colors, depths };
    this.tint = new three.DataTexture(new Uint8Array(colors.buffer), width, height);
    this.depth = new three.DataTexture(depths, width, height, three.RedFormat, three.FloatType);
    this.sheet.material.uniforms.colors.value = this.tint;
    this.sheet.material.uniforms.depths.value = this.depth;
  }

  private splat(cloud: three.Points, matrix: three.Matrix4, ratio: number): void {
    const material = cloud.material as three.PointsMaterial;
    const places = cloud.geometry.getAttribute("position");
    const tints = packed(cloud.geometry);
    const { width, height, colors, depths } = this.raster;
    const e = matrix.elements;
    const at = places.array;
    const fixed = Math.max(1, Math.round(material.size * ratio));
    // As in the renderer: half the height of the image, divided by the distance.
    const growing = material.sizeAttenuation ? (material.size * height) / 2 : 0;
    for (let point = 0, from = 0; point < places.count; point++, from += 3) {
      const x = at[from];
      const y = at[from + 1];
      const z = at[from + 2];
      const w = e[3] * x + e[7] * y + e[11] * z + e[15];
      if (!(w > 0)) continue;
      const depth = ((e[2] * x + e[6] * y + e[10] * z + e[14]) / w) * 0.5 + 0.5;
      if (!(depth >= 0 && depth < FAR)) continue;
      const across = ((e[0] * x + e[4] * y + e[8] * z + e[12]) / w + 1) * 0.5 * width;
      const up = ((e[1] * x + e[5] * y + e[9] * z + e[13]) / w + 1) * 0.5 * height;
      const size = growing === 0 ? fixed : Math.min(Math.max(1, Math.round(growing / w)), 64);
      const left = Math.floor(across - (size - 1) / 2);
      const low = Math.floor(up - (size - 1) / 2);
      const first = left < 0 ? 0 : left;
      const right = left + size > width ? width : left + size;
      const top = low + size > height ? height : low + size;
      for (let row = low < 0 ? 0 : low; row < top; row++)
        for (let cell = row * width + first, end = row * width + right; cell < end; cell++)
          if (depth < depths[cell]) {
            depths[cell] = depth;
            colors[cell] = tints[point];
          }
    }
  }
}

/** Whether this draws it faster than software WebGL. */
function isMany(object: three.Object3D): boolean {
  const { isPoints, isLine, isInstancedMesh, geometry, material, count } = object as unknown as three.InstancedMesh & { isPoints?: boolean; isLine?: boolean };
  if (isPoints) return true;
  if (isInstancedMesh) return !(material as three.Material).transparent && count * geometry.getAttribute("position").count > FEW;
  return Boolean(isLine) && geometry.getAttribute("position").count > FEW;
}

/** The colours of points as displayed, four bytes each; computed once for each cloud. */
function packed(geometry: three.BufferGeometry): Uint32Array {
  const known = geometry.userData.packed as Uint32Array | undefined;
  if (known) return known;
  const { array, count } = geometry.getAttribute("color");
  const scale = array instanceof Uint8Array ? 1 / 255 : 1;
  const made = new Uint32Array(count);
  for (let point = 0, from = 0; point < count; point++, from += 3) made[point] = displayed(array[from] * scale, array[from + 1] * scale, array[from + 2] * scale);
  geometry.userData.packed = made;
  return made;
}
