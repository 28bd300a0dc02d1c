// The page, as a person uses it. Each step is one fact.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import fs from "node:fs";
import net from "node:net";
import path from "node:path";
import readline from "node:readline";
import { chromium } from "playwright-core";
import { createRequire } from "node:module";
import { files } from "./browser_files.mjs";
import { makeLarge, playHeavy } from "./browser_times.mjs";
import { kinds } from "./browser_kinds.mjs";
import { panels } from "./browser_panels.mjs";
import { keep, pictures } from "./browser_pictures.mjs";
import { truth } from "./browser_truth.mjs";
import { mcap } from "./mcap.mjs";

const axe = fs.readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

const { ASOF_BIN, ASOF_CHROMIUM, ASOF_FOLDER, ASOF_TEST_DATA, ASOF_PICTURES, ASOF_ROBOT } = process.env;
const wants = (flag) => process.argv.includes(flag);
const servers = [];
process.on("exit", () => servers.forEach((server) => server.kill()));

/** Serves a place, and says where. */
function serve(...words) {
  const began = performance.now();
  const server = spawn(ASOF_BIN, [...words, "--listen", "0", "--no-open"], { cwd: ASOF_FOLDER, stdio: ["ignore", "pipe", "ignore"] });
  servers.push(server);
  return new Promise((resolve, reject) => {
    server.on("exit", (code) => reject(new Error(`asof ${words.join(" ")} ended with ${code}`)));
    readline.createInterface({ input: server.stdout }).on("line", (line) => {
      if (line.startsWith("Open http")) resolve({ url: line.slice(5), server, began });
    });
  });
}

const browser = await chromium.launch({
  executablePath: ASOF_CHROMIUM,
  args: [
    "--headless", "--no-sandbox", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader",
  ],
});

/** A window on an address, and everything that went wrong in it. */
async function open(url, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, ...options });
  for (const file of process.env.ASOF_PAGE ? ["app.js", "scene.js", "meshes.js", "app.css"] : [])
    await context.route(`**/${file}`, (route) => route.fulfill({ path: path.join(process.env.ASOF_PAGE, file) }));
  const page = await context.newPage();
  page.setDefaultTimeout(Number(process.env.ASOF_PATIENCE ?? 90000));
  const complaints = [];
  page.on("console", (message) => {
    // Software rendering is slow, and says so.
    if (["error", "warning"].includes(message.type()) && !/GPU stall|GL Driver Message|Automatic fallback to software/.test(message.text())) complaints.push(message.text());
  });
  page.on("pageerror", (error) => complaints.push(error.message));
  await page.goto(url);
  return { page, complaints, close: () => context.close() };
}

let count = 0;
async function step(name, work) {
  if (wants("--only-times") || (process.env.ASOF_STEPS && !new RegExp(process.env.ASOF_STEPS).test(name))) return;
  const began = performance.now();
  try {
    await work();
  } catch (error) {
    console.error(`FAILED: ${name}`);
    throw error;
  }
  count++;
  console.log(`ok: ${name} (${((performance.now() - began) / 1000).toFixed(1)} s)`);
}

/** Waits until it holds. */
async function until(what, test, timeout = Number(process.env.ASOF_PATIENCE ?? 90000)) {
  const end = performance.now() + timeout;
  while (performance.now() < end) {
    if (await test()) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`never: ${what}`);
}

const position = async (page) => Number(await page.getByRole("slider", { name: "Position in the recording" }).getAttribute("aria-valuenow"));
const pixels = (page, selector) =>
  page.evaluate(async (selector) => {
    const canvas = document.querySelector(selector);
    if (!canvas || canvas.width === 0) return "none";
    // The drawing is copied to a small canvas and summed up.
    const small = new OffscreenCanvas(64, 64);
    const context = small.getContext("2d");
    context.drawImage(canvas, 0, 0, 64, 64);
    return Array.from(context.getImageData(0, 0, 64, 64).data).join("").slice(0, 40000);
  }, selector);

/** How much of a drawing is red, green and blue, of 256 x 256 pixels. */
const hues = (page, selector) =>
  page.evaluate((selector) => {
    const canvas = document.querySelector(selector);
    const count = { red: 0, green: 0, blue: 0 };
    if (!canvas || canvas.width === 0) return count;
    const small = new OffscreenCanvas(256, 256);
    const context = small.getContext("2d");
    context.drawImage(canvas, 0, 0, 256, 256);
    const { data } = context.getImageData(0, 0, 256, 256);
    for (let at = 0; at < data.length; at += 4) {
      const [red, green, blue] = data.slice(at, at + 3);
      if (red > 60 && red > 2 * green && red > 2 * blue) count.red++;
      if (green > 60 && green > 2 * red && green > 2 * blue) count.green++;
      if (blue > 60 && blue > 2 * red && blue > 2 * green) count.blue++;
    }
    return count;
  }, selector);

execFileSync(ASOF_BIN, ["demo", "-o", "asof-demo.mcap", "--no-serve", "-q"], { cwd: ASOF_FOLDER, stdio: "ignore" });
const demo = await serve("serve", "asof-demo.mcap");
const { page, complaints } = await open(demo.url);

await step("the demo opens with 3D, camera, velocity and log, and plays", async () => {
  for (const kind of ["scene", "image", "plot", "log"]) await page.locator(`.panel[data-kind=${kind}]`).first().waitFor();
  assert.match(await page.locator(".panel[data-kind=plot]").innerText(), /linear\.x/);
  await until("it plays", async () => (await position(page)) > 0.2);
});

await step("pictures and the 3D view change while it plays", async () => {
  for (const selector of [".picture", ".scene canvas"]) {
    await until(`${selector} is there`, async () => !/^(none|0*)$/.test(await pixels(page, selector)));
    const before = await pixels(page, selector);
    await until(`${selector} changes`, async () => (await pixels(page, selector)) !== before);
  }
});

await step("the log is shown, and follows", async () => {
  await page.locator(".line.current").first().waitFor();
  assert.match(await page.locator(".log").innerText(), /navigator/);
});

await step("the space bar pauses, and pauses for good", async () => {
  // On a slow machine it may have come to its end meanwhile.
  if ((await page.evaluate(() => document.documentElement.dataset.state)) === "ended") {
    await page.keyboard.press("Home");
    await page.keyboard.press("Space");
    await page.getByRole("button", { name: "Pause (space)" }).waitFor();
  }
  await page.keyboard.press("Space");
  await page.getByRole("button", { name: "Play (space)" }).waitFor();
  await until("it stands", async () => (await page.evaluate(() => document.documentElement.dataset.state)) !== "playing");
  const at = await position(page);
  await page.waitForTimeout(600);
  assert.equal(await position(page), at);
});

await step("the keys go home, on by a second, and to the end", async () => {
  await page.keyboard.press("Home");
  await until("the start", async () => (await position(page)) === 0);
  await page.keyboard.press("ArrowRight");
  await until("a second", async () => Math.abs((await position(page)) - 1) < 0.01);
  await page.keyboard.press("End");
  await until("the end", async () => (await position(page)) > 29);
});

await step("dragging on the timeline shows what was known there", async () => {
  const box = await page.locator(".timeline").boundingBox();
  await page.mouse.move(box.x + box.width * 0.2, box.y + 20);
  await page.mouse.down();
  await until("the picture of the sixth second", async () => Math.abs(Number(await page.locator(".picture").getAttribute("data-t")) / 1e9 - 6) < 0.2);
  const before = await pixels(page, ".picture");
  await page.mouse.move(box.x + box.width * 0.7, box.y + 20, { steps: 8 });
  await until("the picture of the 21st second", async () => Math.abs(Number(await page.locator(".picture").getAttribute("data-t")) / 1e9 - 21) < 0.2);
  await page.mouse.up();
  assert.notEqual(await pixels(page, ".picture"), before);
});

await step("the times can be read in UTC", async () => {
  await page.getByLabel("How times are shown").selectOption("utc");
  await until("UTC", async () => /2024-05-01 12:00:2\d\.\d+Z/.test(await page.locator(".now-time").innerText()));
  await page.getByLabel("How times are shown").selectOption("relative");
});

await step("a link to a moment leads there", async () => {
  const other = await open(`${demo.url}#t=12.5`);
  await until("the moment", async () => Math.abs((await position(other.page)) - 12.5) < 0.01);
  await other.page.waitForTimeout(300);
  assert.ok(Math.abs((await position(other.page)) - 12.5) < 0.01, "it stands still there");
  assert.deepEqual(other.complaints, []);
  await other.close();
});

await step("topics are found by their names and types", async () => {
  await page.getByRole("searchbox", { name: "Search topics and types" }).fill("laser");
  assert.equal(await page.locator(".topic").count(), 1);
  assert.match(await page.locator(".topic").innerText(), /\/scan/);
  await page.getByRole("searchbox", { name: "Search topics and types" }).fill("nowhere to be found");
  assert.match(await page.locator(".topics").innerText(), /No topic matches/);
  await page.getByRole("searchbox", { name: "Search topics and types" }).fill("");
});

await step("a click on a number adds it to the plot, and it is drawn", async () => {
  await page.getByRole("button", { name: "Fields of /imu" }).click();
  await page.locator(".field", { hasText: "angular_velocity.z" }).click();
  const plot = page.locator(".panel[data-kind=plot]");
  await until("the field in the legend", async () => /angular_velocity\.z/.test(await plot.locator(".legend").innerText()));
  await until("its value", async () => /angular_velocity\.z\s+-?\d/.test(await plot.locator(".legend").innerText()));
});

await step("a click on a topic adds a panel with its message", async () => {
  await page.locator(".topic", { hasText: "/joint_states" }).click();
  await page.locator(".panel[data-kind=raw]", { hasText: "position" }).waitFor();
});

await step("a frame tree can be added, and is a tree", async () => {
  await page.locator(".topic").filter({ hasText: "/tf_static" }).click();
  await page.getByRole("treeitem").filter({ hasText: "base_link" }).first().waitFor();
});

await step("a panel can be split and closed, and the layout is kept", async () => {
  const panels = page.locator(".panel");
  const before = await panels.count();
  await page.getByRole("button", { name: "Split Message to the right" }).first().click();
  assert.equal(await panels.count(), before + 1);
  await page.getByRole("button", { name: "Close Message" }).first().click();
  assert.equal(await panels.count(), before);
  await page.reload();
  await panels.first().waitFor();
  await until("the same panels", async () => (await panels.count()) === before);
  await page.getByRole("button", { name: "Reset layout" }).click();
});

await step("the view can be dark", async () => {
  await page.getByRole("button", { name: "Light or dark" }).click();
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), "dark");
});

/** What axe-core finds that keeps people from using the page. */
async function barriers(page) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  return violations.filter(({ impact }) => impact === "serious" || impact === "critical").map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map((one) => one.html.slice(0, 160)).join(" | ")}`);
}

await step("axe-core finds nothing serious, in both modes", async () => {
  assert.deepEqual(await barriers(page), [], "dark");
  await page.getByRole("button", { name: "Light or dark" }).click();
  assert.deepEqual(await barriers(page), [], "light");
});

await step("the question mark shows the keys", async () => {
  await page.evaluate(() => document.activeElement?.blur());
  await page.keyboard.press("?");
  const dialog = page.getByRole("dialog", { name: "Keys" });
  await dialog.getByText("Play or pause").waitFor();
  await page.keyboard.press("Escape");
  await until("it is gone", async () => (await dialog.count()) === 0);
});

await step("the address names the moment after a seek by key and by click, and a reload comes back to it", async () => {
  const moment = () => page.evaluate(() => Number(new URLSearchParams(location.hash.slice(1)).get("t")));
  if (await page.getByRole("button", { name: "Pause (space)" }).count()) await page.keyboard.press("Space");
  await page.getByRole("button", { name: "Play (space)" }).waitFor();
  await page.keyboard.press("Home");
  await until("the start", async () => (await position(page)) === 0);
  await page.keyboard.press("ArrowRight");
  await until("a second", async () => Math.abs((await position(page)) - 1) < 0.01);
  // The server has received it, too.
  await until("a second in the address", async () => Math.abs((await moment()) - 1) < 0.01);
  await page.keyboard.press("ArrowRight");
  await until("two seconds", async () => Math.abs((await moment()) - 2) < 0.05);
  const box = await page.locator(".timeline").boundingBox();
  await page.mouse.click(box.x + box.width * 0.5, box.y + 20);
  await until("the middle", async () => Math.abs((await moment()) - (await position(page))) < 0.01 && (await moment()) > 10);
  const before = await moment();
  await page.reload();
  await until("the same moment", async () => Math.abs((await position(page)) - before) < 0.01);
});

await step("the log is in the chosen clock", async () => {
  await page.locator(".line .when").first().waitFor();
  assert.match(await page.locator(".line .when").first().innerText(), /^\d+\.\d{3}$/);
  await page.getByLabel("How times are shown").selectOption("utc");
  await until("UTC in the log", async () => /^12:00:\d\d\.\d{3}Z$/.test(await page.locator(".line .when").first().innerText()));
  await page.getByLabel("How times are shown").selectOption("relative");
});

await step("another kind of panel and another topic can be chosen", async () => {
  const image = page.locator(".panel[data-kind=image]").first();
  await image.getByLabel("Kind of panel").selectOption("raw");
  const raw = page.locator(".panel[data-kind=raw]").first();
  await raw.getByLabel("Topic").selectOption("/joint_states");
  await page.locator(".panel[data-kind=raw]", { hasText: "position" }).waitFor();
  await page.getByRole("button", { name: "Reset layout" }).click();
});

await step("every control has a name", async () => {
  const nameless = await page.evaluate(() =>
    [...document.querySelectorAll("button, select, input, [role=slider], [role=separator]")]
      .filter((one) => !(one.getAttribute("aria-label") || one.textContent?.trim() || one.closest("label")?.textContent?.trim()))
      .map((one) => one.outerHTML.slice(0, 100)),
  );
  assert.deepEqual(nameless, []);
});

await step("nothing was complained about in the console", async () => assert.deepEqual(complaints, []));
await page.close();

await step("a damaged recording is shown as far as it goes, with its problems", async () => {
  const whole = fs.readFileSync(path.join(ASOF_FOLDER, "asof-demo.mcap"));
  fs.writeFileSync(path.join(ASOF_FOLDER, "cut.mcap"), whole.subarray(0, whole.length / 2));
  const { url } = await serve("serve", "cut.mcap");
  const damaged = await open(url);
  const chip = damaged.page.locator("button.problems");
  await chip.waitFor();
  await chip.click();
  assert.match(await damaged.page.getByRole("region", { name: "Problems of this recording" }).innerText(), /truncated|incomplete/i);
  await until("it plays", async () => (await position(damaged.page)) > 0.2);
  assert.deepEqual(damaged.complaints, []);
  await damaged.close();
});

await step("an empty recording says that it is", async () => {
  execFileSync(ASOF_BIN, ["demo", "-o", "none.mcap", "--seconds", "0", "--no-serve", "-q"], { cwd: ASOF_FOLDER, stdio: "ignore" });
  const { url } = await serve("serve", "none.mcap");
  const nothing = await open(url);
  await nothing.page.getByText("This recording has no messages").waitFor();
  assert.deepEqual(nothing.complaints, []);
  await nothing.close();
});

await step("markers and scenes are drawn, and what is not is named", async () => {
  const corner = (x, y) => ({ x, y, z: 0 });
  const color = (r, g, b) => ({ r, g, b, a: 1 });
  const header = { frame_id: "map" };
  const markers = {
    markers: [
      // Each corner has a colour; the marker's own is not used.
      { header, id: 1, type: 11, scale: { x: 4, y: 4, z: 1 }, points: [corner(0, 0), corner(1, 0), corner(0, 1)], colors: Array(3).fill(color(1, 0, 0)), color: color(0, 0, 0) },
      { header, id: 2, type: 6, scale: { x: 1, y: 1, z: 1 }, points: [corner(-2, 0), corner(-2, 3)], color: color(0, 0, 1) },
      { header, id: 3, type: 10, mesh_resource: "package://robot/base.stl" },
    ],
  };
  const words = { pose: { position: { x: 1, y: -3, z: 1 } }, text: "MMMMMM", font_size: 1.5, color: color(0, 1, 0) };
  const schema = { type: "object" };
  const marked = (t) => ({ topic: "/markers", type: "visualization_msgs/MarkerArray", schema, t, data: markers });
  const scene = (t, data) => ({ topic: "/scene", type: "foxglove.SceneUpdate", schema, t, data });
  const messages = [
    marked(1e9), scene(1e9, { entities: [{ id: "sign", frame_id: "map", texts: [words], models: [{}] }], deletions: [] }),
    scene(3e9, { entities: [], deletions: [{ type: 0, id: "sign" }] }), marked(4e9),
  ];
  fs.writeFileSync(path.join(ASOF_FOLDER, "markers.mcap"), mcap(messages));
  const { url } = await serve("serve", "markers.mcap");
  const marks = await open(`${url}#t=1`);
  let seen;
  const shows = (test) => async () => test((seen = await hues(marks.page, ".scene canvas")));
  try {
    await until("triangles in red, a sign in green, boxes in blue", shows(({ red, green, blue }) => red > 50 && green > 20 && blue > 50));
    await marks.page.locator(".scene", { hasText: "not drawn: mesh package://robot/base.stl" }).waitFor();
    await marks.page.locator(".scene", { hasText: "not drawn: 3D models" }).waitFor();
    await marks.page.evaluate(() => (location.hash = "t=2.5"));
    await until("the sign is taken away", shows(({ red, green, blue }) => red > 50 && green === 0 && blue > 50));
  } catch (error) {
    throw new Error(`${error.message}; seen ${JSON.stringify(seen)}`);
  }
  if (wants("--shots")) await marks.page.screenshot({ path: path.join(process.env.ASOF_SHOTS, "markers.png") });
  // A mesh that is not there is refused, and the browser says so.
  assert.deepEqual(marks.complaints.filter((text) => !/400/.test(text)), []);
  await marks.close();
});

const header = { frame_id: "map" };
const schema = { type: "object" };
const point = (x, y, z = 0) => ({ x, y, z });
const pose = (at, radius) => ({ position: point(Math.cos(at) * radius, Math.sin(at) * radius), orientation: { x: 0, y: 0, z: Math.sin(at / 2), w: Math.cos(at / 2) } });

await step("a path of 10,000 poses, 500 poses and 1,000 markers are drawn whole", async () => {
  const way = { header, poses: Array.from({ length: 10_000 }, (_, at) => ({ header, pose: pose(at / 1000, 5 + at / 2000) })) };
  const poses = { header, poses: Array.from({ length: 500 }, (_, at) => pose(at / 80, 3)) };
  const markers = Array.from({ length: 1000 }, (_, id) => ({ header, ns: "m", id, type: 1 + (id % 3), pose: pose(id / 150, 8), scale: point(0.1, 0.1, 0.1), color: { r: 0, g: 0, b: 1, a: 1 } }));
  const messages = [1e9, 2e9].flatMap((t) => [
    { topic: "/path", type: "nav_msgs/Path", schema, t, data: way },
    { topic: "/poses", type: "geometry_msgs/PoseArray", schema, t, data: poses },
    { topic: "/many", type: "visualization_msgs/MarkerArray", schema, t, data: { markers } },
  ]);
  fs.writeFileSync(path_of("whole.mcap"), mcap(messages));
  const { url } = await serve("serve", "whole.mcap");
  const whole = await open(`${url}#t=1`);
  for (const [topic, count] of [["/path", "10000"], ["/poses", "500"], ["/many", "1000"]])
    await until(`${count} of ${topic}`, async () => (await whole.page.locator(`.layer[data-name="${topic}"]`).getAttribute("data-drawn")) === count);
  assert.equal(await whole.page.locator(".layers", { hasText: "not drawn" }).count(), 0);
  await until("markers in blue", async () => (await hues(whole.page, ".scene canvas")).blue > 20);
  // Each has a colour of its own.
  const colors = await whole.page.locator(".swatch").evaluateAll((all) => all.map((one) => one.style.background));
  assert.equal(new Set(colors).size, colors.length);
  if (wants("--shots")) await whole.page.screenshot({ path: path.join(process.env.ASOF_SHOTS, "whole.png") });
  assert.deepEqual(whole.complaints, []);
  await whole.close();
});

await step("a robot is drawn as its description says, with its meshes, and what is missing is named", async () => {
  const link = (name, geometry) => `<link name="${name}"><visual><geometry>${geometry}</geometry><material name="m"><color rgba="1 0 0 1"/></material></visual></link>`;
  const joint = `<joint name="j" type="fixed"><parent link="base_link"/><child link="arm"/><origin xyz="0 0 0.5"/></joint>`;
  const lost = `<joint name="k" type="fixed"><parent link="base_link"/><child link="leg"/></joint>`;
  const urdf = `<robot name="two">${link("base_link", '<box size="1 1 0.4"/>')}${link("arm", '<mesh filename="package://two/arm.stl"/>')}${link("leg", '<mesh filename="package://two/leg.stl"/>')}${joint}${lost}</robot>`;
  fs.mkdirSync(path_of("two"), { recursive: true });
  fs.writeFileSync(path_of("two/two.urdf"), urdf);
  fs.writeFileSync(path_of("two/arm.stl"), "solid a\nfacet normal 0 0 1\nouter loop\nvertex 0 0 0\nvertex 2 0 0\nvertex 0 2 0\nendloop\nendfacet\nendsolid a\n");
  const { url } = await serve("serve", "asof-demo.mcap", "--urdf", "two/two.urdf", "--package", "two");
  const robot = await open(`${url}#t=1`);
  await robot.page.locator(".layers", { hasText: "robot two" }).waitFor();
  await robot.page.locator(".layers", { hasText: "not drawn: 1 mesh; name their folder with --package" }).waitFor();
  await until("the robot in red", async () => (await hues(robot.page, ".scene canvas")).red > 20);
  if (wants("--shots")) await robot.page.screenshot({ path: path.join(process.env.ASOF_SHOTS, "robot.png") });
  assert.deepEqual(robot.complaints.filter((text) => !/400/.test(text)), []);
  await robot.close();
});

await step("where no transform says it, odometry moves the robot, and the first view has nothing twice", async () => {
  const odometry = (t) => ({ topic: "/odom", type: "nav_msgs/Odometry", schema, t: t * 1e9, data: { header: { frame_id: "odom" }, child_frame_id: "base_footprint", pose: { pose: { position: point(t, 0), orientation: { x: 0, y: 0, z: 0, w: 1 } } } } });
  const fixed = { topic: "/tf_static", type: "tf2_msgs/TFMessage", schema, t: 1e9, data: { transforms: [{ header: { frame_id: "base_footprint" }, child_frame_id: "laser", transform: { translation: point(0, 0, 1), rotation: { x: 0, y: 0, z: 0, w: 1 } } }] } };
  const said = { topic: "/rosout", type: "rcl_interfaces/Log", schema, t: 1e9, data: { level: 20, name: "n", msg: "\u001b[31mred\u001b[0m and plain" } };
  fs.writeFileSync(path_of("moves.mcap"), mcap([fixed, said, ...[1, 2, 3, 4].map(odometry)]));
  const { url } = await serve("serve", "moves.mcap");
  const moves = await open(`${url}#t=0.5`);
  await until("odom stands still", async () => /in odom/.test((await moves.page.getByLabel("Fixed frame").innerText()) ?? ""));
  assert.equal(await moves.page.locator(".line .text").first().innerText(), "red and plain");
  const titles = await moves.page.locator(".panel").evaluateAll((all) => all.map((one) => one.getAttribute("aria-label")));
  assert.equal(new Set(titles).size, titles.length, titles.join(", "));
  assert.deepEqual(moves.complaints, []);
  await moves.close();
});

await step("a constant is plotted around itself", async () => {
  const same = Array.from({ length: 20 }, (_, at) => ({ topic: "/level", type: "sensor_msgs/Temperature", schema, t: 1e9 + at * 1e8, data: { temperature: 5.5, variance: 0.25 } }));
  fs.writeFileSync(path_of("constant.mcap"), mcap(same));
  const { url } = await serve("serve", "constant.mcap");
  const flat = await open(url);
  await flat.page.getByRole("button", { name: "Fields of /level" }).click();
  await flat.page.locator(".field", { hasText: "temperature" }).first().click();
  await until("its value", async () => /5\.5/.test(await flat.page.locator(".legend").innerText()));
  const before = await flat.page.locator(".plot-area").boundingBox();
  await flat.page.mouse.move(before.x + before.width / 2, before.y + before.height / 2);
  await flat.page.waitForTimeout(200);
  const after = await flat.page.locator(".plot-area").boundingBox();
  assert.deepEqual(after, before, "the plot stays where it is under the pointer");
  assert.deepEqual(flat.complaints, []);
  await flat.close();
});

await files({ step, until, open, serve, barriers, path_of, position, hues });
await truth({ demo, step, until, open, serve, path_of, position, hues, pixels, barriers, servers });
await kinds({ demo, step, until, open, serve, path_of, pixels, hues });
await panels({ demo, step, until, open, serve, barriers, path_of, pixels, hues });

/** A file in the tests' own folder. */
function path_of(name) {
  return path.join(ASOF_FOLDER, name);
}

for (const [name, expected] of [
  ["nav2-turtlebot-zstd.mcap", "scene"],
  ["husky-gps-imu-bz2.bag", "map"],
  ["soccer-image-msgzstd.mcap", "image"],
]) {
  const file = path.join(ASOF_TEST_DATA, "recordings", name);
  if (!fs.existsSync(file)) {
    console.log(`SKIPPED: ${name} is not here (ASOF_TEST_DATA)`);
    continue;
  }
  await step(`${name}, from another robot, opens with a ${expected} panel`, async () => {
    const { url } = await serve("serve", file);
    const other = await open(url);
    await other.page.locator(`.panel[data-kind=${expected}] canvas`).first().waitFor();
    await until("it moves, or ends", async () => {
      const state = await other.page.evaluate(() => document.documentElement.dataset.state);
      return state === "ended" || (await position(other.page)) > 0.05;
    });
    await other.page.waitForTimeout(1500);
    if (wants("--shots")) await other.page.screenshot({ path: path.join(process.env.ASOF_SHOTS, `${name}.png`) });
    assert.deepEqual(other.complaints, []);
    await other.close();
  });
}

if (ASOF_ROBOT) await live();
else console.log("SKIPPED: a running robot (ASOF_ROBOT is not set)");

/** The same page beside a running robot: there is none at first, it comes, goes and comes back. */
async function live() {
  const port = await new Promise((resolve) => {
    const probe = net.createServer().listen(0, "127.0.0.1", () => {
      const { port } = probe.address();
      probe.close(() => resolve(port));
    });
  });
  const robot = () => {
    const running = spawn(ASOF_ROBOT, [`zenoh://?listen=127.0.0.1:${port}`], { stdio: "ignore" });
    servers.push(running);
    return running;
  };
  if (wants("--only-times")) return;
  const { url } = await serve("serve", `zenoh://127.0.0.1:${port}`, "--window", "20s");
  const { page, complaints, close } = await open(url);
  const badge = page.locator(".live");
  const pressed = async () => (await badge.getAttribute("aria-pressed")) === "true";
  const pictured = async () => Number(await page.locator(".picture").getAttribute("data-t")) / 1e9;
  let running;

  await step("a robot that is not there yet is waited for", async () => {
    await page.getByText("Waiting for the robot").waitFor();
    await until("nobody answers", async () => (await badge.innerText()) === "NO ROBOT");
  });
  await step("when it comes, its topics and panels appear, and are followed", async () => {
    running = robot();
    for (const kind of ["scene", "image", "plot", "log"]) await page.locator(`.panel[data-kind=${kind}]`).first().waitFor();
    await page.locator(".topic", { hasText: "/camera/image" }).waitFor();
    await until("it is live", async () => (await badge.innerText()) === "LIVE" && (await pressed()));
    for (const selector of [".picture", ".scene canvas", ".plot canvas"]) {
      await until(`${selector} is there`, async () => !/^(none|0*)$/.test(await pixels(page, selector)));
      const before = await pixels(page, selector);
      await until(`${selector} changes`, async () => (await pixels(page, selector)) !== before);
    }
    await until("the log follows", async () => (await page.locator(".line.current").count()) === 1);
  });
  await step("a pause stands still while the robot goes on", async () => {
    await page.keyboard.press("Space");
    await page.getByRole("button", { name: "Play (space)" }).waitFor();
    const at = await position(page);
    const end = async () => Number(await page.locator(".timeline").getAttribute("aria-valuemax"));
    const before = await end();
    await until("the timeline moves on", async () => (await end()) > before + 1);
    assert.equal(await position(page), at);
    assert.equal(await pressed(), false);
  });
  await step("one can scroll back within the window", async () => {
    const box = await page.locator(".timeline").boundingBox();
    await page.mouse.move(box.x + box.width * 0.9, box.y + 20);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * 0.7, box.y + 20, { steps: 5 });
    const at = await position(page);
    await until("the picture of then", async () => Math.abs((await pictured()) - (await position(page))) < 0.3);
    await page.mouse.up();
    await page.waitForTimeout(300);
    assert.ok(Math.abs((await position(page)) - at) < 0.5, "it stands where it was let go");
  });
  await step("what has left the window is said to have", async () => {
    await page.getByText("This moment has left the window").waitFor();
    await until("a count", async () => /[\d,]+ have left/.test(await page.locator(".facts").innerText()));
  });
  await step("the end key returns to the newest", async () => {
    await page.keyboard.press("End");
    await until("it follows", pressed);
    const before = await position(page);
    await until("it goes on", async () => (await position(page)) > before + 0.5);
    assert.equal(await page.getByText("This moment has left the window").isVisible(), false);
  });
  await step("plots are of what varies on the running robot", async () => {
    const [best] = await (await fetch(`${url}api/plots`)).json();
    const shown = page.locator(".panel[data-kind=plot] .legend-entry .path");
    await until("its fields", async () => (await shown.allInnerTexts()).join() === best.fields.join());
  });
  await step("the live picture of the README is of the page as it is", async () => {
    await page.mouse.move(700, 20);
    await page.evaluate(() => document.activeElement?.blur());
    // Until the plots show several seconds.
    await until("ten seconds", async () => (await position(page)) > 10);
    await page.waitForTimeout(3000);
    await keep(open, "page-live.png", await page.screenshot(), { mean: 14, others: 0.12 });
  });
  await step("a robot that goes away and comes back is found again", async () => {
    running.kill();
    await until("it is missed", async () => (await badge.innerText()) === "NO ROBOT");
    const before = await position(page);
    running = robot();
    await until("it is back", async () => (await badge.innerText()) === "LIVE");
    await until("it goes on", async () => (await position(page)) > before + 0.5);
  });
  if (wants("--shots")) await page.screenshot({ path: path.join(process.env.ASOF_SHOTS, "live.png") });
  await step("nothing was complained about beside a robot", async () => assert.deepEqual(complaints, []));
  await close();
  running.kill();
}

await pictures({ demo, step, until, open, serve, path_of });

/** The largest recording of other people's robots of at least so many bytes, if there is one. */
function largest(least) {
  const folder = path.join(ASOF_TEST_DATA, "recordings");
  const names = fs.existsSync(folder) ? fs.readdirSync(folder).filter((name) => /\.(mcap|bag|db3)$/.test(name)) : [];
  const sized = names.map((name) => [fs.statSync(path.join(folder, name)).size, path.join(folder, name)]);
  const [size, file] = sized.sort((one, other) => other[0] - one[0])[0] ?? [0];
  return size >= least ? file : undefined;
}

if (wants("--times") || wants("--only-times")) {
  await playHeavy({ open, serve, until, path_of, position });
  {
    const large = process.env.ASOF_LARGE ? path.resolve(process.env.ASOF_LARGE) : (largest(5e8) ?? makeLarge(path_of, 2e9));
    console.log(`time: the large recording is ${path.basename(large)}, ${(fs.statSync(large).size / 1e9).toFixed(2)} GB`);
    const taken = (...words) => {
      const began = performance.now();
      execFileSync(ASOF_BIN, words, { stdio: "ignore" });
      return (performance.now() - began) / 1000;
    };
    for (const round of [1, 2, 3]) {
      const [tf, log] = [taken("tf", large), taken("cat", large, "--topics", "/rosout")];
      const { url, server } = await serve("serve", large);
      const began = performance.now();
      const view = await open(url);
      const since = () => (performance.now() - began) / 1000;
      const seen = { log: 0, frames: 0 };
      await Promise.all([
        view.page.locator(".line").first().waitFor().then(() => (seen.log = since())),
        view.page.locator(".scene[data-framed]").waitFor().then(() => (seen.frames = since())),
      ]);
      console.log(`time: first 3D frame of the large recording ${seen.frames.toFixed(2)} s, asof tf ${tf.toFixed(2)} s: ${(seen.frames / tf).toFixed(2)}x`);
      console.log(`time: first log lines of the large recording ${seen.log.toFixed(2)} s, asof cat --topics /rosout ${log.toFixed(2)} s: ${(seen.log / log).toFixed(2)}x`);
      await view.close();
      server.kill();
    }
    fs.rmSync(path_of("large.mcap"), { force: true });
  }
  for (const round of [1, 2, 3]) {
    const { url, began } = await serve("demo", "-o", `time-${round}.mcap`, "--serve");
    const view = await open(url);
    await view.page.locator(".picture[data-t]").waitFor();
    await view.page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
    console.log(`time: process start to first painted frame ${((performance.now() - began) / 1000).toFixed(2)} s`);
    await view.close();
  }
  const view = await open(`${demo.url}#t=1`);
  await view.page.locator(".picture[data-t]").waitFor();
  // Only the camera: 3D in software is slower than on a graphics card, and would dominate the time.
  for (const kind of ["3D", "Plot", "Log", "States"]) await view.page.getByRole("button", { name: `Close ${kind}` }).first().click();
  const times = await view.page.evaluate(async () => {
    const picture = document.querySelector(".picture");
    const times = [];
    for (let round = 0; round < 100; round++) {
      const t = 0.2 + ((round * 7919) % 2950) / 100;
      const before = picture.dataset.t;
      const began = performance.now();
      location.hash = `t=${t}`;
      while (picture.dataset.t === before || Math.abs(Number(picture.dataset.t) / 1e9 - t) > 0.15) {
        await new Promise((resolve) => requestAnimationFrame(resolve));
        if (performance.now() - began > 5000) break;
      }
      times.push(performance.now() - began);
    }
    return times.sort((a, b) => a - b);
  });
  console.log(`time: seek to painted frame, median ${times[50].toFixed(0)} ms, p95 ${times[95].toFixed(0)} ms, worst ${times[99].toFixed(0)} ms`);
  await view.close();
}

await browser.close();
console.log(`${count} steps passed`);
process.exit(0);
