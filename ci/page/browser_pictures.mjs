// The pictures of the README and of the book: taken with --pictures, else compared with the page as it is.
import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import zlib from "node:zlib";
import { mcap } from "./mcap.mjs";

const { ASOF_PICTURES } = process.env;
const isTaken = process.argv.includes("--pictures");

/** How much two pictures differ, of 255, in 96 by 57 cells: on average, and the share of cells that are clearly others. */
async function difference(open, one, other) {
  const view = await open("about:blank");
  const found = await view.page.evaluate(async (all) => {
    const cells = await Promise.all(all.map(async (bytes) => {
      const image = new Image();
      image.src = `data:image/png;base64,${bytes}`;
      await image.decode();
      const context = new OffscreenCanvas(96, 57).getContext("2d");
      context.imageSmoothingQuality = "high";
      context.drawImage(image, 0, 0, 96, 57);
      return { size: [image.width, image.height].join(), data: context.getImageData(0, 0, 96, 57).data };
    }));
    if (cells[0].size !== cells[1].size) return { mean: 255, others: 1 };
    const each = [...cells[0].data].map((value, at) => Math.abs(value - cells[1].data[at]));
    return { mean: each.reduce((a, b) => a + b) / each.length, others: each.filter((one) => one > 60).length / each.length };
  }, [one, other].map((bytes) => bytes.toString("base64")));
  await view.close();
  return found;
}

/** Keeps a picture, or compares it with the one that is kept. A running robot is never in the same place twice. */
export async function keep(open, name, bytes, most = { mean: 6, others: 0.04 }) {
  const file = path.join(ASOF_PICTURES, name);
  if (isTaken) {
    fs.mkdirSync(path.dirname(file), { recursive: true });
    fs.writeFileSync(file, bytes);
    return console.log(`the picture is in ${file}`);
  }
  assert.ok(fs.existsSync(file), `there is no ${name}; take it with --pictures`);
  const { mean, others } = await difference(open, bytes, fs.readFileSync(file));
  assert.ok(mean < most.mean && others < most.others, `they differ by ${mean.toFixed(1)} on average, ${(others * 100).toFixed(1)} % clearly; take them anew with --pictures`);
}

export async function pictures({ demo, step, until, open, serve, path_of }) {
  for (const colorScheme of ["light", "dark"])
    await step(`the ${colorScheme} picture of the README is of the page as it is`, async () => {
      const view = await open(`${demo.url}#t=9.4`, { colorScheme, viewport: { width: 1440, height: 860 } });
      await view.page.locator(".scene[data-framed]").waitFor();
      await view.page.waitForTimeout(4000);
      const bytes = await view.page.screenshot();
      await view.close();
      await keep(open, `page-${colorScheme}.png`, bytes);
    });
  const others = await recordingOfOthers({ serve, path_of });
  const field = (topic, path) => ({ topic, path });
  const note = { asof_annotations: 1, annotations: [{ id: 1, start: "1714564808000000000", end: "1714564808000000000", text: "the wheel slips" }, { id: 2, start: "1714564812000000000", end: "1714564815000000000", text: "waits at the door" }] };
  fs.copyFileSync(path_of("asof-demo.mcap"), path_of("noted.mcap"));
  fs.writeFileSync(path_of("noted.mcap.annotations.json"), JSON.stringify(note));
  const noted = (await serve("serve", "noted.mcap")).url;
  const hasSql = (await (await fetch(`${demo.url}api/summary`)).json()).sql === true;
  const panels = [
    [demo.url, { kind: "scene" }, ".scene[data-framed]"],
    [demo.url, { kind: "image", topic: "/camera/image" }, ".picture[data-t]"],
    [demo.url, { kind: "plot", fields: [field("/odom", "twist.twist.linear.x"), field("/odom", "twist.twist.angular.z")] }, ".plot-area canvas"],
    [demo.url, { kind: "xy", fields: [field("/odom", "pose.pose.position.x"), field("/odom", "pose.pose.position.y")] }, "canvas"],
    [demo.url, { kind: "state", fields: [field("/bumper", "data")] }, "canvas"],
    [demo.url, { kind: "raw", topic: "/odom" }, ".leaf"],
    [demo.url, { kind: "table", topic: "/cmd_vel" }, "tbody tr"],
    [demo.url, { kind: "log", topic: "/rosout" }, ".line.current"],
    [demo.url, { kind: "diagnostics", topic: "/diagnostics" }, ".diagnostics *"],
    [demo.url, { kind: "frames" }, "[role=treeitem]"],
    [demo.url, { kind: "joints", topic: "/joint_states" }, ".body *"],
    [noted, { kind: "annotations" }, ".body *"],
    [others, { kind: "map", topic: "/fix" }, "canvas"],
    [others, { kind: "parameters" }, "tr"],
    [others, { kind: "audio", topic: "/audio" }, ".audio[data-seconds]"],
    ...(hasSql ? [[demo.url, { kind: "sql", options: { query: 'SELECT log_time, pose.pose.position.x AS x FROM odom' } }, ".query"]] : []),
  ];
  if (!hasSql) console.log("SKIPPED: the picture of the SQL panel (a build without SQL)");
  for (const [url, spec, shown] of panels)
    await step(`the picture of the ${spec.kind} panel in the book is of the page as it is`, async () => {
      const layout = zlib.deflateRawSync(JSON.stringify(spec)).toString("base64url");
      const view = await open(`${url}#layout=${layout}&t=9.4`, { colorScheme: "light", viewport: { width: 860, height: 520 } });
      const panel = view.page.locator(`.panel[data-kind=${spec.kind}]`);
      await panel.locator(shown).first().waitFor({ state: "attached" });
      if (spec.kind === "sql") {
        await panel.getByRole("button", { name: "Run" }).click();
        await panel.locator("tbody tr").first().waitFor();
        // How long it took is never the same.
        await panel.locator(".sql-bar [role=status]").evaluate((one) => (one.textContent = one.textContent.replace(/ in .*/, "")));
      }
      if (spec.kind === "plot") await until("values", async () => /linear\.x\s+-?\d/.test(await panel.locator(".legend").innerText()));
      // Drawings ask for what they show after the first frames.
      await view.page.waitForTimeout(4000);
      await view.page.waitForLoadState("networkidle");
      await view.page.mouse.move(5, 5);
      const bytes = await panel.screenshot();
      assert.deepEqual(view.complaints, []);
      await view.close();
      await keep(open, `panels/${spec.kind}.png`, bytes);
    });
}

/** What the demo does not have: positions on the earth, parameters, sound. */
async function recordingOfOthers({ serve, path_of }) {
  const schema = { type: "object" };
  const messages = [];
  for (let index = 0; index < 120; index++) {
    const t = 1e9 + index * 1e8;
    const turn = index / 19;
    messages.push({ topic: "/fix", type: "sensor_msgs/NavSatFix", schema, t, data: { header: { frame_id: "gps" }, latitude: 48.1 + Math.sin(turn) * 4e-4, longitude: 11.5 + Math.cos(turn / 2) * 9e-4, altitude: 500 } });
    messages.push(sound(t, index));
  }
  const set = (t, values) => ({ topic: "/parameter_events", type: "rcl_interfaces/msg/ParameterEvent", schema, t, data: { node: "/planner", new_parameters: Object.entries(values).map(([name, value]) => ({ name, value: { type: 3, double_value: value } })), changed_parameters: [], deleted_parameters: [] } });
  messages.push(set(1e9, { max_speed: 0.8, inflation_radius: 0.35, goal_tolerance: 0.1 }), set(7e9, { max_speed: 0.5 }));
  messages.sort((one, other) => one.t - other.t);
  fs.writeFileSync(path_of("others.mcap"), mcap(messages));
  return (await serve("serve", "others.mcap")).url;
}

/** A tenth of a second of a tone that comes and goes, at 16 kHz. */
export function sound(t, index, topic = "/audio") {
  const count = 1600;
  const payload = Buffer.alloc(8 + 2 * count);
  payload[1] = 1;
  payload.writeUInt32LE(2 * count, 4);
  for (let at = 0; at < count; at++) {
    const second = (index * count + at) / 16000;
    payload.writeInt16LE(Math.round(20000 * Math.sin(second * 0.9) ** 2 * Math.sin(second * 2 * Math.PI * 440)), 8 + 2 * at);
  }
  return { topic, type: "audio_common_msgs/msg/AudioData", schema: "uint8[] data\n", t, payload };
}
