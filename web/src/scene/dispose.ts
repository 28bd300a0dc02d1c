import * as three from "three";

/** Empties a group and frees what it took on the graphics card, except for what stays over the whole recording. */
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

/** So many objects wait for a picture without them; where no picture is painted, the oldest go without. */
const MOST_RETIRED = 12;

/**
 * Objects that have given way to others. They are freed after the next picture: a material that is freed before its
 * successor is drawn takes its program with it, and without a graphics card a program takes longer to compile than a picture
 * to paint.
 */
export class Retired {
  private all: three.Object3D[] = [];

  push(object: three.Object3D): void {
    object.removeFromParent();
    this.all.push(object);
    if (this.all.length > MOST_RETIRED) free(this.all.splice(0, 1));
  }

  /** A picture has been painted. */
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
