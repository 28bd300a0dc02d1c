import * as three from "three";

/** Empties a group and frees its GPU resources, except for shared ones. */
export function clear(group: three.Object3D): void {
  for (const child of [...group.children]) {
    if (child.name === "kept") continue;
    if (child.children.length > 0) clear(child);
    group.remove(child);
    const mesh = child as three.Mesh & { dispose?: () => void };
    mesh.geometry?.dispose();
    const materials = [mesh.material ?? []].flat() as three.MeshBasicMaterial[];
    for (const material of materials) {
      material.map?.dispose();
      material.dispose();
    }
    mesh.dispose?.();
  }
}

/** The most replaced objects that wait for the next frame; where no frame is rendered, the oldest are freed before it. */
const MOST_RETIRED = 12;

/**
 * Replaced objects, freed after the next frame: a material that is freed before its successor is drawn also frees its shader
 * program, and without a GPU a program takes longer to compile than a frame takes to render.
 */
export class Retired {
  private all: three.Object3D[] = [];

  push(object: three.Object3D): void {
    object.removeFromParent();
    this.all.push(object);
    if (this.all.length > MOST_RETIRED) free(this.all.splice(0, 1));
  }

  /** Called after a frame was rendered. */
  free(): void {
    free(this.all.splice(0));
  }
}

function free(objects: three.Object3D[]): void {
  if (objects.length === 0) return;
  const holder = new three.Group();
  holder.add(...objects);
  clear(holder);
}
