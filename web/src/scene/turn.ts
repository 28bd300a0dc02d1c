import * as three from "three";

/** How far a key turns the view, in radians, and how much nearer it comes. */
const TURN = Math.PI / 24;
const NEARER = 1.2;

/** The view's operations for keys: turn, move, zoom. */
export interface Turned {
  camera: three.PerspectiveCamera;
  target: three.Vector3;
  /** Called when the user has moved the view. */
  moved: () => void;
  fit: () => void;
}

/** Keyboard control of the view while it has the focus. */
export function turnByKeys(element: HTMLElement, view: Turned): void {
  element.tabIndex = 0;
  element.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !act(event, view)) return;
    event.preventDefault();
    event.stopPropagation();
  });
}

/** Handles a key. Returns whether it has a meaning. */
function act(event: KeyboardEvent, { camera, target, moved, fit }: Turned): boolean {
  if (event.key === "f") return fit(), true;
  const [x, y] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key] ?? [0, 0];
  const nearer = event.key === "+" || event.key === "=" ? 1 / NEARER : event.key === "-" ? NEARER : 1;
  if (x === 0 && y === 0 && nearer === 1) return false;
  const offset = camera.position.clone().sub(target);
  if (event.shiftKey && (x !== 0 || y !== 0)) {
    const right = new three.Vector3().setFromMatrixColumn(camera.matrixWorld, 0).setZ(0).normalize();
    const ahead = new three.Vector3().crossVectors(camera.up, right);
    target.addScaledVector(right, (x * offset.length()) / 12).addScaledVector(ahead, (y * offset.length()) / 12);
  } else {
    const flat = Math.hypot(offset.x, offset.y);
    const turn = Math.atan2(offset.y, offset.x) + x * TURN;
    // Never exactly from above or below, where left and right are undefined.
    const rise = three.MathUtils.clamp(Math.atan2(offset.z, flat) + y * TURN, -1.5, 1.5);
    const away = offset.length() * nearer;
    offset.set(Math.cos(turn) * Math.cos(rise), Math.sin(turn) * Math.cos(rise), Math.sin(rise)).multiplyScalar(away);
  }
  camera.position.copy(target).add(offset);
  moved();
  return true;
}
