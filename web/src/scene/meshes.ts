import { base } from "../base";
import * as three from "three";
import { ColladaLoader } from "three/examples/jsm/loaders/ColladaLoader.js";
import { GLTFLoader } from "three/examples/jsm/loaders/GLTFLoader.js";
import { OBJLoader } from "three/examples/jsm/loaders/OBJLoader.js";
import { STLLoader } from "three/examples/jsm/loaders/STLLoader.js";

const address = (uri: string) => `${base}api/asset?uri=${encodeURIComponent(uri)}`;

/** Loads a mesh by URI from the server's package folders. */
export async function loadMesh(uri: string, material?: three.Material): Promise<three.Object3D> {
  const response = await fetch(address(uri));
  if (!response.ok) throw new Error(await reason(response));
  const bytes = await response.arrayBuffer();
  const folder = uri.slice(0, uri.lastIndexOf("/") + 1);
  const manager = new three.LoadingManager();
  // Textures lie beside the mesh.
  manager.setURLModifier((url) => (/^(blob:|data:)/.test(url) || url.startsWith(`${base}api/`) ? url : address(folder + url.replace(location.origin, "").replace(/^\/+/, ""))));
  const plain = material ?? new three.MeshLambertMaterial({ color: 0x9aa4b2 });
  switch (uri.split(/[?#]/)[0].split(".").pop()?.toLowerCase()) {
    case "stl":
      return new three.Mesh(new STLLoader(manager).parse(bytes), plain);
    case "obj": {
      const object = new OBJLoader(manager).parse(new TextDecoder().decode(bytes));
      object.traverse((child) => child instanceof three.Mesh && (child.material = plain));
      return object;
    }
    case "dae": {
      // Robots are drawn with z up, as in the file: the loader must not rotate them.
      const text = new TextDecoder().decode(bytes).replace(/<up_axis>\s*Z_UP\s*<\/up_axis>/, "<up_axis>Y_UP</up_axis>");
      const collada = new ColladaLoader(manager).parse(text, "");
      if (!collada) throw new Error("not a COLLADA file");
      collada.scene.rotation.set(0, 0, 0);
      return collada.scene;
    }
    case "gltf":
    case "glb": {
      const { scene } = await new GLTFLoader(manager).parseAsync(bytes, "");
      const up = new three.Group();
      scene.rotation.x = Math.PI / 2;
      up.add(scene);
      return up;
    }
    default:
      throw new Error("supported meshes are STL, OBJ, DAE and glTF");
  }
}

async function reason(response: Response): Promise<string> {
  try {
    return String((await response.json()).error);
  } catch {
    return response.statusText;
  }
}
