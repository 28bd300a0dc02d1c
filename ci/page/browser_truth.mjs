// The page shows what the recording holds: frames that are not connected, all digits of a value, plots of fields that vary, and
// plots by click. Each step is one fact, on recordings that are made here and on those of other people's robots.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import readline from "node:readline";
import { mcap } from "./mcap.mjs";

const { ASOF_BIN, ASOF_FOLDER, ASOF_TEST_DATA } = process.env;
const schema = { type: "object" };
const still = { x: 0, y: 0, z: 0, w: 1 };
const kinds = (page) => page.locator(".panel").evaluateAll((all) => all.map((one) => one.dataset.kind));

export async function truth(tools) {
  await frames(tools);
  await digits(tools);
  await annotations(tools);
  await swatches(tools);
  await team(tools);
  await varying(tools);
  await plotting(tools);
  await around(tools);
}

/** A recording of another robot, if it is here. */
function others(name) {
  const file = path.join(ASOF_TEST_DATA, "recordings", name);
  if (fs.existsSync(file)) return file;
  console.log(`SKIPPED: ${name} is not here (ASOF_TEST_DATA)`);
  return undefined;
}

async function frames({ step, until, open, serve, path_of, hues }) {
  const marker = (topic, frame, color, at = 0, size = 2) => (t) => ({ topic, type: "visualization_msgs/Marker", schema, t, data: { header: { frame_id: frame }, ns: "m", id: 1, type: 1, pose: { position: { x: at, y: 0, z: 0 }, orientation: still }, scale: { x: size, y: size, z: size }, color: { a: 1, r: 0, g: 0, b: 0, ...color } } });
  const fixed = (t) => ({ topic: "/tf", type: "tf2_msgs/TFMessage", schema, t, data: { transforms: [{ header: { frame_id: "odom" }, child_frame_id: "base_link", transform: { translation: { x: 1, y: 0, z: 0 }, rotation: still } }] } });
  await step("what no transform places is not drawn and says so, and its frame is offered as the fixed one", async () => {
    const all = [fixed, marker("/placed", "base_link", { b: 1 }), marker("/lost", "laser", { r: 1 })];
    fs.writeFileSync(path_of("lost.mcap"), mcap([1e9, 2e9].flatMap((t) => all.map((one) => one(t)))));
    const { url } = await serve("serve", "lost.mcap");
    const view = await open(`${url}#t=0.5`);
    const row = view.page.locator('.layer[data-name="/lost"]');
    await row.getByText("no transform from laser to odom (as of 0.000 s)").waitFor();
    await until("the placed one alone", async () => (await hues(view.page, ".scene canvas")).blue > 20);
    assert.equal((await hues(view.page, ".scene canvas")).red, 0);
    await view.page.getByLabel("Fixed frame").selectOption({ label: "in laser (not connected)" });
    await until("the other alone", async () => (await hues(view.page, ".scene canvas")).red > 20);
    assert.equal((await hues(view.page, ".scene canvas")).blue, 0);
    await view.page.locator('.layer[data-name="/placed"]').getByText("no transform from base_link to laser").waitFor();
    assert.equal(await row.locator(".unplaced").innerText(), "");
    assert.deepEqual(view.complaints, []);
    await view.close();
  });
  await step("a layer that cannot be drawn says why, and a folded list how many there are", async () => {
    const map = { header: { frame_id: "map" }, info: { resolution: 0, width: 2, height: 2, origin: { position: { x: 0, y: 0, z: 0 }, orientation: still } }, data: [0, 0, 0, 0] };
    fs.writeFileSync(path_of("flat.mcap"), mcap([marker("/box", "map", { b: 1 })(1e9), { topic: "/map", type: "nav_msgs/OccupancyGrid", schema, t: 1e9, data: map }]));
    const { url } = await serve("serve", "flat.mcap");
    const view = await open(`${url}#t=0`);
    await until("the reason", async () => /resolution is 0/.test(await view.page.locator('.layer[data-name="/map"] .unplaced').innerText()));
    await view.page.getByRole("button", { name: "▾ Layers" }).click();
    await view.page.getByRole("button", { name: "▸ Layers (1 not drawn)" }).waitFor();
    assert.deepEqual(view.complaints, []);
    await view.close();
  });
  await step("one marker far away and one that is huge do not make the others small", async () => {
    const near = [0, 3, 6].map((at) => marker(`/near${at}`, "map", { b: 1 }, at));
    const all = [...near, marker("/far", "map", { g: 1 }, 5000), marker("/sky", "map", { a: 0.1, r: 0.2 }, 0, 3000)];
    fs.writeFileSync(path_of("far.mcap"), mcap([1e9, 2e9].flatMap((t) => all.map((one) => one(t)))));
    const { url } = await serve("serve", "far.mcap");
    const view = await open(`${url}#t=0.5`);
    await until("the near ones fill the view", async () => (await hues(view.page, ".scene canvas")).blue > 300);
    await view.close();
  });
  await step("a path of some centimetres is framed, and its arrow does not hide it", async () => {
    const at = (t) => ({ topic: "small", type: "geometry_msgs/PoseStamped", schema, t: t * 1e9, data: { header: { frame_id: "map" }, pose: { position: { x: 3 + 0.1 * Math.cos(t), y: 3 + 0.1 * Math.sin(t), z: 0 }, orientation: still } } });
    fs.writeFileSync(path_of("small.mcap"), mcap(Array.from({ length: 13 }, (_, index) => at(1 + index / 2))));
    const { url } = await serve("serve", "small.mcap");
    const view = await open(`${url}#t=2`);
    // A topic without a slash has its colour in the list, too.
    const tint = await view.page.locator('.layer[data-name="small"] .swatch').evaluate((one) => one.style.backgroundColor);
    const [red, green, blue] = tint.match(/[\d.]+/g).map(Number);
    const drawn = async () => {
      const shot = (await view.page.locator(".scene canvas").screenshot()).toString("base64");
      return view.page.evaluate(async ([shot, ...tint]) => {
        const image = new Image();
        image.src = `data:image/png;base64,${shot}`;
        await image.decode();
        const context = new OffscreenCanvas(image.width, image.height).getContext("2d");
        context.drawImage(image, 0, 0);
        const { data } = context.getImageData(0, 0, image.width, image.height);
        const columns = [];
        let count = 0;
        for (let at = 0; at < data.length; at += 4) {
          if (tint.some((one, index) => Math.abs(data[at + index] - one) > 40)) continue;
          columns.push((at / 4) % image.width);
          count++;
        }
        return { wide: (Math.max(...columns) - Math.min(...columns)) / image.width, part: count / (data.length / 4) };
      }, [shot, red, green, blue]);
    };
    await until("a path as wide as half of the view", async () => (await drawn()).wide > 0.4);
    const { part } = await drawn();
    assert.ok(part < 0.02, `lines and a small arrow, not ${part} of the picture`);
    assert.deepEqual(view.complaints, []);
    await view.close();
  });
  await step("a robot whose meshes are missing is drawn by its collision shapes, or as lines", async () => {
    const link = (name, collision) => `<link name="${name}"><visual><geometry><mesh filename="package://no/${name}.stl"/></geometry></visual>${collision}</link>`;
    const joint = '<joint name="j" type="fixed"><parent link="base_link"/><child link="arm"/><origin xyz="1 0 1"/></joint>';
    const red = '<collision><geometry><box size="1 1 1"/></geometry><material name="m"><color rgba="1 0 0 1"/></material></collision>';
    fs.writeFileSync(path_of("bare.mcap"), mcap([fixed(1e9), fixed(2e9)]));
    for (const [name, shape] of [["shapes", red], ["bones", ""]]) {
      fs.writeFileSync(path_of(`${name}.urdf`), `<robot name="${name}">${link("base_link", shape)}${link("arm", shape)}${joint}</robot>`);
      const { url } = await serve("serve", "bare.mcap", "--urdf", `${name}.urdf`);
      const view = await open(`${url}#t=0.5`);
      await view.page.locator(".layers", { hasText: "not drawn: 2 meshes" }).waitFor();
      await until(shape ? "its collision shapes" : "lines between its frames", async () => (await hues(view.page, ".scene canvas")).red > (shape ? 20 : 3));
      assert.deepEqual(view.complaints.filter((text) => !/400/.test(text)), []);
      await view.close();
    }
  });
  const scan = others("stage-scan-lz4.bag");
  if (scan)
    await step("the scan of another robot without transforms is not drawn at the origin of its odometry", async () => {
      const { url } = await serve("serve", scan);
      const view = await open(`${url}#t=5`);
      await view.page.locator('.layer[data-name="/base_scan"]').getByText("no transform from base_laser_link to odom (as of 0:04.9").waitFor();
      await view.page.getByLabel("Fixed frame").selectOption({ label: "in base_laser_link (not connected)" });
      await until("the scan", async () => Object.values(await hues(view.page, ".scene canvas")).reduce((a, b) => a + b) > 50);
      assert.deepEqual(view.complaints, []);
      await view.close();
    });
}

async function digits({ step, until, open, serve, path_of }) {
  await step("an inspector shows all digits of a value, also of whole numbers beyond 2^53", async () => {
    const payload = Buffer.alloc(20);
    payload[1] = 1;
    payload.writeDoubleLE(1751644407.5218005, 4);
    payload.writeBigUInt64LE(9007199254740993n, 12);
    const numbers = (t) => ({ topic: "/numbers", type: "my/Numbers", schema: "float64 stamp\nuint64 count\n", t, payload });
    fs.writeFileSync(path_of("digits.mcap"), mcap([numbers(1e9), numbers(2e9)]));
    const { url } = await serve("serve", "digits.mcap");
    const view = await open(`${url}#t=0.5`);
    for (const kind of ["raw", "table"]) {
      await view.page.locator(".panel").first().getByLabel("Kind of panel").selectOption(kind);
      const panel = view.page.locator(`.panel[data-kind=${kind}]`);
      for (const text of ["1751644407.5218005", "9007199254740993"]) await panel.getByText(text, { exact: true }).first().waitFor();
    }
    assert.deepEqual(view.complaints, []);
    await view.close();
  });
  const imu = others("husky-gps-imu-bz2.bag");
  if (imu)
    await step("the digits of another robot's values are those that asof cat prints", async () => {
      const { url } = await serve("serve", imu);
      const { topics } = await (await fetch(`${url}api/summary`)).json();
      const fix = topics.find(({ role }) => role === "gps").topic;
      const [line] = execFileSync(ASOF_BIN, ["cat", imu, "--topics", fix, "--json"], { encoding: "utf8", maxBuffer: 1 << 28 }).split("\n", 1);
      const latitude = /"latitude":(-?[\d.]+)/.exec(line)[1];
      const view = await open(`${url}#t=0`);
      await view.page.locator(".topic", { hasText: fix }).waitFor();
      await view.page.locator(".panel").first().getByLabel("Kind of panel").selectOption("table");
      await view.page.locator(".panel[data-kind=table]").getByLabel("Topic").selectOption(fix);
      const { start } = await (await fetch(`${url}api/messages?topic=${encodeURIComponent(fix)}&limit=1`)).json().then(([one]) => ({ start: one.t }));
      await view.page.evaluate((t) => (location.hash = `t=${t}`), start / 1e9 + 0.001);
      await view.page.locator(".panel[data-kind=table]").getByText(latitude, { exact: true }).first().waitFor();
      await view.close();
    });
}

async function annotations({ step, until, open, serve, path_of }) {
  await step("a moment of the demo is marked on the page that asof demo serves", async () => {
    const { url } = await serve("demo", "-o", "marked.mcap", "--seconds", "3", "--serve");
    const view = await open(`${url}#t=1`);
    await view.page.locator(".panel").first().waitFor();
    await view.page.keyboard.press("m");
    const dialog = view.page.getByRole("dialog", { name: "Mark this moment" });
    await dialog.getByLabel("Text of the annotation").fill("here");
    await dialog.getByRole("button", { name: "Mark" }).click();
    await until("the dialog goes", async () => (await dialog.count()) === 0);
    assert.equal(JSON.parse(fs.readFileSync(path_of("marked.mcap.annotations.json"), "utf8")).annotations[0].text, "here");
    assert.deepEqual(view.complaints, []);
    await view.close();
  });
}

async function swatches({ demo, step, open }) {
  await step("each line of a plot has its colour in the legend", async () => {
    const view = await open(`${demo.url}#t=2`);
    const tints = view.page.locator(".legend-entry input[type=color]");
    await tints.nth(1).waitFor();
    for (const index of [0, 1]) {
      const wanted = await tints.nth(index).inputValue();
      const shot = (await tints.nth(index).screenshot()).toString("base64");
      const seen = await view.page.evaluate(async (shot) => {
        const image = new Image();
        image.src = `data:image/png;base64,${shot}`;
        await image.decode();
        const context = new OffscreenCanvas(1, 1).getContext("2d");
        context.drawImage(image, image.width / 2, image.height / 2, 1, 1, 0, 0, 1, 1);
        return `#${[...context.getImageData(0, 0, 1, 1).data.slice(0, 3)].map((one) => one.toString(16).padStart(2, "0")).join("")}`;
      }, shot);
      assert.equal(seen, wanted);
    }
    await view.close();
  });
}

/** Serves a folder to others, as a team does. */
function team_server(servers, ...words) {
  const server = spawn(ASOF_BIN, ["serve", ...words, "--listen", "0.0.0.0:0", "--no-open"], { cwd: ASOF_FOLDER, stdio: ["ignore", "pipe", "ignore"] });
  servers.push(server);
  return new Promise((resolve, reject) => {
    server.on("exit", (code) => reject(new Error(`ended with ${code}`)));
    readline.createInterface({ input: server.stdout }).on("line", (line) => line.startsWith("Open http") && resolve(line.slice(5)));
  });
}

async function team({ step, until, open, path_of, position, servers, barriers }) {
  await step("a team opens recordings, drops files and shares layouts at one address, with its token", async () => {
    fs.mkdirSync(path_of("team/runs"), { recursive: true });
    execFileSync(ASOF_BIN, ["demo", "-o", "team/runs/one.mcap", "--no-serve", "-q", "--seconds", "3"], { cwd: ASOF_FOLDER, stdio: "ignore" });
    execFileSync(ASOF_BIN, ["index", "team"], { cwd: ASOF_FOLDER, stdio: "ignore" });
    const url = await team_server(servers, "team", "--layouts");
    assert.match(url, /token=/);
    const { origin } = new URL(url);
    assert.equal((await fetch(`${origin}/r/runs:one.mcap/api/summary`)).status, 401);
    const view = await open(url);
    const { page } = view;
    await page.getByRole("button", { name: "runs/one.mcap" }).click();
    await page.waitForURL(`${origin}/r/runs:one.mcap/**`);
    await until("it plays", async () => (await position(page)) > 0.2);
    // A layout that one of them saves is there for the next.
    await page.getByRole("button", { name: "Close Log" }).click();
    await page.getByRole("button", { name: "Layouts" }).click();
    const dialog = page.getByRole("dialog", { name: "Layouts" });
    await dialog.getByLabel("Name of the layout").fill("without a log");
    await dialog.getByRole("button", { name: "Save as" }).click();
    await dialog.getByText("Saved as without a log, on the server.").waitFor();
    assert.deepEqual(await barriers(page), []);
    assert.ok(fs.existsSync(path_of("team/layouts/without a log.json")));
    const other = await open(url);
    await other.page.goto(`${origin}/r/runs:one.mcap/#t=1`);
    await other.page.locator(".panel[data-kind=log]").waitFor();
    await other.page.getByRole("button", { name: "Layouts" }).click();
    await other.page.getByRole("button", { name: "without a log", exact: true }).click();
    await until("the same panels", async () => !(await kinds(other.page)).includes("log"));
    await other.close();
    await dialog.getByRole("button", { name: "Close" }).click();
    // Files are opened there, too.
    const [chooser] = await Promise.all([page.waitForEvent("filechooser"), page.getByRole("button", { name: "Open", exact: true }).click()]);
    await chooser.setFiles(path_of("team/runs/one.mcap"));
    await page.waitForURL(`${origin}/r/~1/**`);
    await until("it plays", async () => (await position(page)) > 0.2);
    await page.getByRole("link", { name: "team" }).click();
    await page.getByRole("button", { name: "runs/one.mcap" }).waitFor();
    assert.deepEqual(view.complaints, []);
    await view.close();
  });
}

async function varying({ step, until, open, serve, path_of }) {
  await step("fields that vary are plotted, each once; constants, single messages and counters of time are not", async () => {
    const at = (index) => 1e9 + index * 1e8;
    const messages = Array.from({ length: 40 }, (_, index) => [
      { topic: "/constant", type: "my/Level", schema, t: at(index), data: { level: 5.5 } },
      { topic: "/telemetry", type: "my/Telemetry", schema, t: at(index), data: { timestamp: 1.7e9 + index, gear: 3, speed: Math.sin(index), copy: Math.sin(index), nested: { current: Math.cos(index) } } },
    ]).flat();
    messages.push({ topic: "/once", type: "my/Once", schema, t: at(3), data: { value: 7 } });
    fs.writeFileSync(path_of("varying.mcap"), mcap(messages));
    const { url } = await serve("serve", "varying.mcap");
    const view = await open(`${url}#t=1`);
    const entries = view.page.locator(".legend-entry .path");
    await until("what varies", async () => (await entries.count()) === 2);
    assert.deepEqual((await entries.allInnerTexts()).sort(), ["nested.current", "speed"]);
    assert.deepEqual(view.complaints, []);
    await view.close();
  });
  for (const [name, wanted] of [["vec3-proto.mcap", /./], ["mouse-json.mcap", /./], ["capstan-robot.mcap", /./], ["turtlesim-lz4.bag", /^(x|y|theta)$/]]) {
    const file = others(name);
    if (file)
      await step(`${name}, from another robot, opens with a plot of what varies`, async () => {
        const { url } = await serve("serve", file);
        const plots = await (await fetch(`${url}api/plots`)).json();
        assert.ok(plots.length > 0);
        const view = await open(`${url}#t=0.5`);
        await until("a plot", async () => wanted.test((await view.page.locator(".legend-entry .path").first().innerText().catch(() => "")) ?? ""));
        assert.deepEqual(view.complaints, []);
        await view.close();
      });
  }
}

async function plotting({ step, until, open, serve, path_of, pixels }) {
  await step("a field is plotted from a message, a table and the topics, by keyboard and by click, and over another", async () => {
    const messages = Array.from({ length: 30 }, (_, index) => ({ topic: "/state", type: "my/State", schema, t: 1e9 + index * 1e8, data: { x: index, on: index % 10 > 4, label: '{"mode":"auto","speed":3}', bytes: [...Buffer.from('{"depth":[4.25]}')] } }));
    fs.writeFileSync(path_of("fields.mcap"), mcap(messages));
    const { url } = await serve("serve", "fields.mcap");
    const view = await open(`${url}#t=1`);
    const { page } = view;
    await page.locator(".topic", { hasText: "/state" }).click();
    const message = page.locator(".panel[data-kind=raw]");
    // JSON within a string, and within bytes, is shown as a tree.
    await message.getByText('"auto"').waitFor();
    await message.getByText("JSON in bytes").waitFor();
    await message.getByText("4.25").waitFor();
    await message.getByRole("button", { name: "on", exact: true }).focus();
    await page.keyboard.press("Enter");
    await page.getByRole("menuitem", { name: "Plot this field" }).waitFor();
    await page.keyboard.press("Enter");
    const legend = page.locator(".panel[data-kind=plot] .legend");
    await until("the boolean beside the number", async () => /x[^]*on/.test(await legend.innerText()));
    await until("its value", async () => /on\s*[01]/.test(await legend.innerText()));
    await message.getByRole("button", { name: "x", exact: true }).click();
    await page.getByRole("menuitem", { name: "XY: horizontal axis" }).click();
    await page.getByRole("button", { name: "Fields of /state" }).click();
    await page.getByRole("button", { name: "More for on" }).click();
    await page.getByRole("menuitem", { name: "XY: vertical axis" }).click();
    await until("a boolean over a number", async () => !/^(none|0*)$/.test(await pixels(page, ".panel[data-kind=xy] canvas")));
    await message.getByLabel("Kind of panel").selectOption("table");
    await page.locator(".panel[data-kind=table] thead").getByRole("button", { name: "x", exact: true }).click();
    await page.getByRole("menuitem", { name: "States over time" }).click();
    await page.locator(".panel[data-kind=state]").waitFor();
    assert.deepEqual(view.complaints, []);
    await view.close();
  });
  const imu = others("husky-gps-imu-bz2.bag");
  if (imu)
    await step("a field of another robot is plotted from its message", async () => {
      const { url } = await serve("serve", imu);
      const view = await open(`${url}#t=1`);
      await view.page.locator(".panel[data-kind=map]").getByLabel("Kind of panel").selectOption("raw");
      const name = view.page.locator(".panel[data-kind=raw] button.key").first();
      await name.waitFor();
      const field = await name.innerText();
      await name.click();
      await view.page.getByRole("menuitem", { name: "Plot this field" }).click();
      await until("it is in a legend", async () => (await view.page.locator(".legend").allInnerTexts()).some((text) => text.includes(field)));
      await view.close();
    });
}

async function around({ demo, step, until, open, serve, path_of }) {
  await step("on a narrow screen one panel is shown at a time, and nothing is cut off", async () => {
    const view = await open(`${demo.url}#t=2`, { viewport: { width: 390, height: 760 } });
    await until("one panel", async () => (await view.page.locator(".panel").count()) === 1);
    await view.page.getByRole("tab", { name: "Plot" }).click();
    await view.page.locator(".panel[data-kind=plot] canvas").waitFor();
    const wide = () => view.page.evaluate(() => [...document.querySelectorAll("header.top, .controls, .grid, .panel")].filter((one) => one.scrollWidth > one.clientWidth + 1 || one.getBoundingClientRect().right > innerWidth + 1).map((one) => one.className));
    assert.deepEqual(await wide(), []);
    await view.page.getByRole("button", { name: /Show or hide the topics/ }).click();
    await view.page.locator(".topic").first().waitFor();
    assert.deepEqual(view.complaints, []);
    await view.close();
  });
  await step("at 800 by 600 every panel shows what it has, and the topics never scroll sideways", async () => {
    const view = await open(`${demo.url}#t=2`, { viewport: { width: 800, height: 600 } });
    await view.page.locator(".plot-area canvas").waitFor();
    const cut = await view.page.evaluate(() => [...document.querySelectorAll(".panel")].filter((one) => one.querySelector(".u-wrap")?.getBoundingClientRect().bottom > one.getBoundingClientRect().bottom + 1).map((one) => one.dataset.kind));
    assert.deepEqual(cut, []);
    const cutEntries = await view.page.evaluate(() => [...document.querySelectorAll(".legend-entry")].filter((one) => one.getBoundingClientRect().right > one.closest(".panel").getBoundingClientRect().right).map((one) => one.innerText));
    assert.deepEqual(cutEntries, []);
    await view.page.keyboard.press("t");
    await view.page.locator(".topic").first().waitFor();
    assert.equal(await view.page.locator(".topics").evaluate((one) => one.scrollWidth <= one.clientWidth), true);
    await view.close();
  });
  await step("at 800 by 600 a long list of layers leaves the picture, and the legend of a low plot shows whole rows", async () => {
    const header = { frame_id: "map" };
    const pose = (t) => ({ position: { x: t, y: 0, z: 0 }, orientation: still });
    const marker = (t, id) => ({ topic: `/planning/scenario/lane_driving/marker_${id}`, type: "visualization_msgs/Marker", schema, t: 1e9 + t * 1e8, data: { header, ns: "m", id, type: 1, pose: pose(id + t / 10), scale: { x: 1, y: 1, z: 1 }, color: { r: 0, g: 0, b: 1, a: 1 } } });
    const speeds = (t) => ({ topic: "/vehicle/status", type: "my/Status", schema, t: 1e9 + t * 1e8, data: Object.fromEntries(Array.from({ length: 8 }, (_, at) => [`measured_velocity_of_wheel_${at}`, Math.sin(t / 5 + at)])) });
    fs.writeFileSync(path_of("layers.mcap"), mcap(Array.from({ length: 20 }, (_, t) => [...Array.from({ length: 14 }, (_, id) => marker(t, id)), speeds(t)]).flat()));
    const { url } = await serve("serve", "layers.mcap");
    const fields = Array.from({ length: 8 }, (_, at) => ({ topic: "/vehicle/status", path: `measured_velocity_of_wheel_${at}` }));
    fs.writeFileSync(path_of("low.json"), JSON.stringify({ split: "column", share: 0.6, first: { kind: "scene" }, second: { split: "row", share: 0.5, first: { kind: "plot", fields }, second: { kind: "plot", fields: fields.slice(0, 3) } } }));
    const low = await serve("serve", "layers.mcap", "--layout", "low.json");
    for (const at of [url, low.url]) {
      const view = await open(`${at}#t=1`, { viewport: { width: 800, height: 600 } });
      const { page } = view;
      const list = page.locator(".layers");
      await page.locator(".layer").nth(15).waitFor({ state: "attached" });
      await page.locator(".legend-entry").first().waitFor();
      const share = () => list.evaluate((one) => {
        const [own, around] = [one.getBoundingClientRect(), one.closest(".body").getBoundingClientRect()];
        return [own.width / around.width, own.height / around.height];
      });
      const [wide, high] = await share();
      assert.ok(wide <= 0.41 && high <= 0.41, `${wide} x ${high}`);
      assert.equal(await page.locator(".layer-list").evaluate((one) => one.scrollHeight > one.clientHeight && one.scrollWidth <= one.clientWidth), true);
      const clipped = () => page.evaluate(() => [...document.querySelectorAll(".legend-entry")].filter((one) => {
        const [own, legend] = [one.getBoundingClientRect(), one.closest(".legend").getBoundingClientRect()];
        return own.top < legend.bottom - 1 && own.bottom > legend.bottom + 1;
      }).map((one) => one.innerText));
      assert.deepEqual(await clipped(), []);
      assert.ok((await page.locator(".legend-entry").first().boundingBox()).height > 0);
      await page.getByRole("button", { name: /Layers/ }).focus();
      await page.keyboard.press("Enter");
      await until("it is folded", async () => (await share())[1] < 0.2 && !(await page.locator(".layer").first().isVisible()));
      assert.equal(await page.getByRole("button", { name: /Layers/ }).evaluate((one) => one === document.activeElement && one.getAttribute("aria-expanded")), "false");
      await page.reload();
      await page.locator(".scene canvas").waitFor();
      await until("it stays folded", async () => (await page.getByRole("button", { name: /Layers/ }).getAttribute("aria-expanded")) === "false");
      assert.deepEqual(view.complaints, []);
      await view.close();
    }
  });
  await step("a setting that is not set shows its default and its unit", async () => {
    const view = await open(`${demo.url}#t=2`);
    await view.page.getByRole("button", { name: "Settings of /scan" }).click();
    assert.match(await view.page.locator(".layer-settings").innerText(), /size \(px\)[^]*decay \(s\)/);
    for (const [name, otherwise] of [["size of /scan", "5"], ["from of /scan", "minimum"], ["decay of /scan", "0"]]) {
      const input = view.page.getByLabel(name, { exact: true });
      assert.deepEqual([await input.inputValue(), await input.getAttribute("placeholder")], ["", otherwise]);
    }
    assert.deepEqual(view.complaints, []);
    await view.close();
  });
  await step("a long recording counts minutes, and the difference between two moments is shown", async () => {
    const level = (t) => ({ topic: "/level", type: "sensor_msgs/Temperature", schema, t: 1e9 + t * 1e9, data: { temperature: t, variance: 0.1 } });
    fs.writeFileSync(path_of("long.mcap"), mcap(Array.from({ length: 25 }, (_, index) => level(index * 60))));
    const { url } = await serve("serve", "long.mcap");
    const view = await open(`${url}#t=1200`);
    await until("20:00", async () => (await view.page.locator(".now-time").innerText()) === "20:00.000");
    await view.page.getByRole("button", { name: "Differences to this moment" }).click();
    await view.page.evaluate(() => (location.hash = "t=600"));
    await until("the difference", async () => /Δ -600[^]*Δt -600\.000 s/.test(await view.page.locator(".legend").innerText()));
    assert.deepEqual(view.complaints, []);
    await view.close();
  });
  const many = others("autoware-384topics.db3");
  if (many)
    await step("the empty topics of another robot can be hidden", async () => {
      const { url } = await serve("serve", many);
      const view = await open(`${url}#t=1`);
      await view.page.getByRole("button", { name: "Hide 383 empty topics" }).click();
      await until("one is left", async () => (await view.page.locator(".topic").count()) === 1);
      await view.page.getByRole("button", { name: "Show 383 empty topics" }).click();
      await until("all", async () => (await view.page.locator(".topic").count()) === 384);
      assert.deepEqual(view.complaints, []);
      await view.close();
    });
}
