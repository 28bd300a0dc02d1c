import * as three from "three";
import type { Shown } from "../types";
import { matrixOf } from "./frames";
import { rainbowAt } from "./points";

export type Palette = "map" | "costmap" | "range";

/** The default palette: by the server for costs and heights, by the topic's name for costmaps of occupancies. */
export function paletteOf(shown: Shown): Palette {
  return (shown.palette as Palette | undefined) ?? (/cost/.test(shown.topic) ? "costmap" : "map");
}

/** The value range of a map that has neither occupancies nor costs. */
export function rangeOfCells(shown: Shown): string {
  const range = shown.range as [number, number] | undefined;
  const layer = shown.layer ? `${String(shown.layer)} ` : "";
  return range ? `${layer}${range.map((value) => Number(value.toPrecision(4))).join(" … ")}` : "";
}

/** A grid map as a textured plane. */
export function cellsOf(shown: Shown, palette: Palette): three.Mesh {
  const [width, height, resolution] = [Number(shown.width), Number(shown.height), Number(shown.resolution)];
  const values = shown.body ? new Uint8Array(shown.body, shown.bodyOffset, width * height) : new Uint8Array(0);
  const table = TABLES[palette];
  const pixels = new Uint8Array(width * height * 4);
  for (let cell = 0; cell < values.length; cell++) for (let part = 0; part < 4; part++) pixels[cell * 4 + part] = table[values[cell] * 4 + part];
  const texture = new three.DataTexture(pixels, width, height);
  texture.colorSpace = three.SRGBColorSpace;
  texture.magFilter = three.NearestFilter;
  texture.needsUpdate = true;
  const plane = new three.Mesh(
    new three.PlaneGeometry(width * resolution, height * resolution),
    new three.MeshBasicMaterial({ map: texture, transparent: true, side: three.DoubleSide, depthWrite: false }),
  );
  plane.name = palette === "map" ? "cells" : "costs";
  plane.renderOrder = palette === "map" ? -2 : -1;
  const origin = (shown.origin as number[] | null) ?? [0, 0, 0, 0, 0, 0, 1];
  const [x, y] = shown.anchor === "center" ? [0, 0] : [(width * resolution) / 2, (height * resolution) / 2];
  plane.applyMatrix4(new three.Matrix4().makeTranslation(x, y, palette === "map" ? 0 : 0.01));
  plane.applyMatrix4(matrixOf(origin));
  return plane;
}

/** 0 is free, 100 is taken, 255 is not known. */
const SHADES = tableOf((value) => {
  const shade = value > 100 ? 128 : Math.round(235 - value * 2.05);
  return [shade, shade, value > 100 ? 134 : shade, value > 100 ? 70 : 235];
});

/** Transparent where free, blue to red by cost, cyan for inscribed, pink for lethal. */
const COSTS = tableOf((value) => {
  if (value === 0) return [0, 0, 0, 0];
  if (value > 100) return [90, 110, 110, 90];
  if (value === 100) return [255, 0, 255, 200];
  if (value === 99) return [0, 255, 255, 200];
  return [Math.round(255 * (value / 98)), 0, Math.round(255 * (1 - value / 98)), 170];
});

/** Blue for the minimum, red for the maximum, transparent where unknown. */
const RANGE = tableOf((value) => (value > 100 ? [0, 0, 0, 0] : [...rainbowAt(value / 100), 215]));

const TABLES: Record<Palette, Uint8Array> = { map: SHADES, costmap: COSTS, range: RANGE };

function tableOf(color: (value: number) => number[]): Uint8Array {
  return Uint8Array.from({ length: 256 * 4 }, (_, at) => color(Math.floor(at / 4))[at % 4]);
}
