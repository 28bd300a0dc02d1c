// Single kinds of panels: SQL rows and errors at the top, ticks of plots, maps with updates, sound, tiles that cannot be loaded.
import assert from "node:assert/strict";
import fs from "node:fs";
import http from "node:http";
import path from "node:path";
import { mcap } from "./mcap.mjs";
import { sound } from "./browser_pictures.mjs";

const { ASOF_TEST_DATA } = process.env;
const schema = { type: "object" };

export async function kinds(tools) {
  await answers(tools);
  await ticks(tools);
  await levels(tools);
  await updates(tools);
  await audio(tools);
  await dead(tools);
}

async function answers({ demo, step, until, open }) {
  if ((await (await fetch(`${demo.url}api/summary`)).json()).sql !== true) return console.log("SKIPPED: the SQL panel (a build without SQL)");
  await step("the SQL panel shows its rows, and its error, at the top, wherever it was scrolled to", async () => {
    const view = await open(`${demo.url}#t=2`);
    const { page } = view;
    await page.locator(".panel").first().getByLabel("Kind of panel").selectOption("sql");
    const panel = page.locator(".panel[data-kind=sql]");
    const query = panel.getByLabel("Query in SQL");
    const area = panel.getByRole("region", { name: "Answer" });
    const ask = async (text) => {
      await query.fill(text);
      await query.press("Control+Enter");
    };
    const isAtTop = async (element) => {
      const [outer, inner] = [await area.boundingBox(), await element.boundingBox()];
      return inner !== null && inner.y >= outer.y - 1 && inner.y + Math.min(inner.height, 20) <= outer.y + 140;
    };
    await ask("SELECT log_time, pose.pose.position.x AS x FROM odom");
    await area.locator("tbody tr").nth(900).waitFor({ state: "attached" });
    assert.equal(await isAtTop(area.locator("tbody tr").first()), true);
    await area.evaluate((one) => (one.scrollTop = one.scrollHeight));
    await ask("SELECT nothing FROM odom");
    const error = area.getByText(/nothing/).first();
    await error.waitFor();
    assert.equal(await area.evaluate((one) => one.scrollTop), 0);
    assert.equal(await isAtTop(area.getByText("No answer")), true);
    await ask("SELECT topic FROM topics ORDER BY topic");
    const first = area.locator("tbody tr").first();
    await until("the first topic", async () => (await first.count()) === 1 && /bumper/.test(await first.innerText()));
    assert.equal(await isAtTop(first), true);
    // A failed request is named in the console, too.
    assert.deepEqual(view.complaints.filter((text) => !/400/.test(text)), []);
    await view.close();
  });
}

async function ticks({ demo, step, until, open, serve, path_of }) {
  await step("plots of any height and width have ticks enough to be read", async () => {
    for (const viewport of [{ width: 1440, height: 900 }, { width: 1000, height: 760 }, { width: 390, height: 700 }]) {
      const view = await open(`${demo.url}#t=2`, { viewport });
      const { page } = view;
      if (viewport.width < 700) await page.getByRole("tab", { name: "Plot" }).click();
      await page.locator(".plot-area canvas").first().waitFor();
      const all = await writtenIn(page, ".plot-area");
      const labels = async () => {
        const written = await all();
        const numbers = written.filter(([text]) => /^-?[\d.]+(e[-+]?\d+)?$/.test(text));
        return [new Set(numbers.map(([text]) => text)).size, new Set(written.filter(([text]) => / s$|:/.test(text)).map(([text]) => text)).size];
      };
      await until(`ticks of both axes at ${viewport.width} by ${viewport.height}`, async () => {
        const [values, times] = await labels();
        return values >= 3 && times >= 3;
      });
      await view.close();
    }
  });
  await step("values that differ in their last digits have ticks that differ", async () => {
    const level = (index) => ({ topic: "/level", type: "my/Level", schema, t: 1e9 + index * 1e8, data: { seconds: 1751644407.5 + Math.sin(index) } });
    fs.writeFileSync(path_of("offset.mcap"), mcap(Array.from({ length: 30 }, (_, index) => level(index))));
    const { url } = await serve("serve", "offset.mcap");
    const view = await open(`${url}#t=1`);
    await view.page.locator(".plot-area canvas").first().waitFor();
    const labels = await writtenIn(view.page, ".plot-area");
    await until("three of them", async () => new Set((await labels()).map(([text]) => text).filter((text) => /^175164440\d(\.\d+)?$/.test(text))).size >= 3);
    assert.deepEqual((await labels()).filter(([, left]) => left < 0), [], "none is cut off");
    assert.deepEqual(view.complaints, []);
    await view.close();
  });
}

/** The texts that are written on the canvases of an area from now on, and where each begins. Labels are no elements of the document. */
async function writtenIn(page, area) {
  await page.evaluate((area) => {
    const write = CanvasRenderingContext2D.prototype.fillText;
    window.written = [];
    CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...rest) {
      const left = this.textAlign === "right" ? x - this.measureText(text).width : x;
      if (this.canvas.closest(area)) window.written.push([text, left]);
      return write.call(this, text, x, y, ...rest);
    };
  }, area);
  const { width, height } = page.viewportSize();
  await page.setViewportSize({ width, height: height - 2 });
  return () => page.evaluate(() => window.written);
}

async function levels({ step, until, open, serve, path_of }) {
  await step("a level is named as its system means it, diagnostics have their panel, and a time of another clock is a date", async () => {
    const log = (type, level, index) => ({ topic: `/${type.split(/[./]/)[0]}`, type, schema, t: 1e9 + index * 1e8, data: { level, name: "n", msg: `level ${level}`, message: `level ${level}` } });
    const all = [["foxglove.Log", [1, 2, 3, 4, 5]], ["rosgraph_msgs/Log", [1, 2, 4, 8, 16]], ["rcl_interfaces/msg/Log", [10, 20, 30, 40, 50]]];
    const status = { topic: "/diagnostics", type: "diagnostic_msgs/DiagnosticArray", schema, t: 1e9, data: { header: { stamp: { sec: 1747930377, nanosec: 0 }, frame_id: "" }, status: [{ level: 2, name: "wheel", message: "stuck", hardware_id: "", values: [] }] } };
    fs.writeFileSync(path_of("levels.mcap"), mcap([status, ...all.flatMap(([type, numbers]) => numbers.map((level, index) => log(type, level, index)))]));
    const { url } = await serve("serve", "levels.mcap");
    const view = await open(`${url}#t=1`);
    const panel = view.page.locator(".panel[data-kind=log]");
    for (const topic of ["/foxglove", "/rosgraph_msgs", "/rcl_interfaces"]) {
      await panel.getByLabel("Topic").selectOption(topic);
      await until(`the levels of ${topic}`, async () => (await panel.locator(".line .level").allInnerTexts()).join() === "debug,info,warn,error,fatal");
    }
    const diagnostics = view.page.locator(".panel[data-kind=diagnostics]");
    await diagnostics.getByText("stuck").waitFor();
    await diagnostics.getByLabel("Kind of panel").selectOption("raw");
    await view.page.locator(".panel[data-kind=raw]").getByText("2025-05-22 16:12:57").waitFor();
    assert.deepEqual(view.complaints, []);
    await view.close();
  });
  const file = path.join(ASOF_TEST_DATA, "recordings", "logs-json.mcap");
  if (!fs.existsSync(file)) return console.log("SKIPPED: logs-json.mcap is not here (ASOF_TEST_DATA)");
  await step("the errors of another robot's log are errors", async () => {
    const { url } = await serve("serve", file);
    const view = await open(`${url}#t=3`);
    const lines = view.page.locator(".line", { hasText: "Error: " });
    await lines.first().waitFor();
    assert.deepEqual([...new Set(await lines.locator(".level").allInnerTexts())], ["error"]);
    await view.close();
  });
}

async function updates({ step, until, open, serve, path_of, hues }) {
  await step("a map is drawn with its updates, each from its time on, and a new map replaces them", async () => {
    const header = { frame_id: "map" };
    const origin = { position: { x: 0, y: 0, z: 0 }, orientation: { x: 0, y: 0, z: 0, w: 1 } };
    const map = (t, value) => ({ topic: "/costmap/costmap", type: "nav_msgs/msg/OccupancyGrid", schema, t, data: { header, info: { resolution: 0.1, width: 40, height: 40, origin }, data: Array(1600).fill(value) } });
    const update = (t, y, value) => ({ topic: "/costmap/costmap_updates", type: "map_msgs/msg/OccupancyGridUpdate", schema, t, data: { header, x: 0, y, width: 40, height: 20, data: Array(800).fill(value) } });
    // Low costs are blue, high ones red.
    fs.writeFileSync(path_of("updates.mcap"), mcap([map(1e9, 10), update(2e9, 0, 95), update(3e9, 20, 95), map(4e9, 10), map(5e9, 10)]));
    const { url } = await serve("serve", "updates.mcap");
    const view = await open(`${url}#t=0.5`);
    const at = async (t, what, test) => {
      await view.page.evaluate((t) => (location.hash = `t=${t}`), t);
      await until(what, async () => test(await hues(view.page, ".scene canvas")));
    };
    await at(0.5, "all blue", ({ red, blue }) => red < 50 && blue > 1000);
    await at(1.5, "half red", ({ red, blue }) => red > 500 && blue > 500);
    await at(2.5, "all red", ({ red, blue }) => red > 1000 && blue < 50);
    await at(3.5, "the new map", ({ red, blue }) => red < 50 && blue > 1000);
    await at(1.5, "half red again", ({ red, blue }) => red > 500 && blue > 500);
    assert.deepEqual(view.complaints, []);
    await view.close();
  });
}

async function audio({ step, until, open, serve, path_of, pixels }) {
  const plays = async (url, seconds) => {
    const view = await open(`${url}#t=1`);
    const panel = view.page.locator(".panel[data-kind=audio]");
    const body = panel.locator(".audio[data-seconds]");
    await body.waitFor();
    const length = Number(await body.getAttribute("data-seconds"));
    assert.ok(Math.abs(length - seconds) < 0.5, `${length} s`);
    await until("a waveform", async () => !/^(none|0*)$/.test(await pixels(view.page, ".audio canvas")));
    await panel.getByRole("button", { name: "Listen" }).click();
    await view.page.getByRole("button", { name: "Play (space)" }).click();
    await until("it is heard from there on", async () => Number(await body.getAttribute("data-heard")) >= 0.9);
    assert.deepEqual(view.complaints, []);
    await view.close();
  };
  await step("sound has a waveform, and is heard while the recording plays", async () => {
    fs.writeFileSync(path_of("sound.mcap"), mcap(Array.from({ length: 60 }, (_, index) => sound(1e9 + index * 1e8, index))));
    await plays((await serve("serve", "sound.mcap")).url, 6);
  });
  const file = path.join(ASOF_TEST_DATA, "recordings", "audio.bag");
  if (!fs.existsSync(file)) return console.log("SKIPPED: audio.bag is not here (ASOF_TEST_DATA)");
  await step("audio.bag, from another robot, has a waveform, and is heard", async () => plays((await serve("serve", file)).url, 17.2));
}

async function dead({ step, open, serve, path_of }) {
  await step("tiles that cannot be loaded are said, with the server that was asked", async () => {
    const fix = (t) => ({ topic: "/fix", type: "sensor_msgs/NavSatFix", schema, t: t * 1e9, data: { header: { frame_id: "gps" }, latitude: 48.1 + t * 1e-4, longitude: 11.5 + t * 1e-4, altitude: 500 } });
    fs.writeFileSync(path_of("dead.mcap"), mcap([1, 2, 3, 4].map(fix)));
    const server = http.createServer((_, response) => response.writeHead(404).end());
    await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address();
    const { url } = await serve("serve", "dead.mcap", "--tiles", `http://127.0.0.1:${port}/{z}/{x}/{y}.png`);
    const view = await open(`${url}#t=1`);
    await view.page.locator(".panel[data-kind=map]").getByText(new RegExp(`^\\d+ tiles? of 127\\.0\\.0\\.1:${port} could not be loaded$`)).waitFor();
    await view.close();
    server.close();
  });
}
