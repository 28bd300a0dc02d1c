// Proves that no function of the page is longer than a screen or two.
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

const MOST = 80;
const folder = path.resolve(process.argv[2]);
const { parseAst } = await import(createRequire(path.join(folder, "package.json")).resolve("rolldown/parseAst"));
let long = 0;
for (const file of fs.readdirSync(path.join(folder, "src"), { recursive: true }).filter((name) => name.endsWith(".ts"))) {
  const code = fs.readFileSync(path.join(folder, "src", file), "utf8");
  const line = (at) => code.slice(0, at).split("\n").length;
  const walk = (node) => {
    if (!node || typeof node !== "object") return;
    if (Array.isArray(node)) return node.forEach(walk);
    const lines = line(node.end) - line(node.start) + 1;
    if (/Function/.test(node.type ?? "") && node.body && lines > MOST) {
      console.error(`web/src/${file}:${line(node.start)}: a function of ${lines} lines; ${MOST} is the most`);
      long++;
    }
    Object.values(node).forEach(walk);
  };
  walk(parseAst(code, { lang: "ts" }));
}
process.exit(long > 0 ? 1 : 0);
