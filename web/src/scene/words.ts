import * as three from "three";

/** A text that faces the camera, with its height in metres. */
export function words(text: string, color: three.Color, tall: number): three.Sprite {
  const picture = document.createElement("canvas");
  const context = picture.getContext("2d");
  const font = "48px system-ui, sans-serif";
  const lines = text.slice(0, 500).split("\n").slice(0, 20);
  if (context) context.font = font;
  picture.width = Math.max(8, Math.min(2048, Math.max(...lines.map((line) => context?.measureText(line).width ?? 100)) + 12));
  picture.height = lines.length * 58;
  if (context) {
    context.font = font;
    context.textBaseline = "middle";
    context.fillStyle = `#${color.getHexString()}`;
    lines.forEach((line, index) => context.fillText(line, 6, index * 58 + 29));
  }
  const texture = new three.CanvasTexture(picture);
  texture.colorSpace = three.SRGBColorSpace;
  const sprite = new three.Sprite(new three.SpriteMaterial({ map: texture, depthWrite: false }));
  const high = tall * lines.length * 1.2;
  sprite.scale.set((high * picture.width) / picture.height, high, 1);
  return sprite;
}
