import type * as three from "three";

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
