// Measurements, without limits: the playback of a heavy scene, and the first frame of a large recording.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import { mcap } from "./mcap.mjs";

const { ASOF_BIN } = process.env;
const schema = { type: "object" };
const POINTS = 500_000;

/** The definition of a cloud, as ROS 2 has it. */
const CLOUD = `std_msgs/Header header
uint32 height
uint32 width
sensor_msgs/PointField[] fields
bool is_bigendian
uint32 point_step
uint32 row_step
uint8[] data
bool is_dense
================================================================================
MSG: std_msgs/Header
builtin_interfaces/Time stamp
string frame_id
================================================================================
MSG: builtin_interfaces/Time
int32 sec
uint32 nanosec
================================================================================
MSG: sensor_msgs/PointField
string name
uint32 offset
uint8 datatype
uint32 count
`;

/** A cloud of many points in CDR, a ring around the origin that turns with `turn`. */
function cloud(count, turn) {
  const head = new Cdr();
  head.u32(1).u32(0).text("map").u32(1).u32(count).u32(4);
  ["x", "y", "z", "intensity"].forEach((name, index) => head.text(name).u32(index * 4).u8(7).u32(1));
  head.u8(0).u32(16).u32(count * 16).u32(count * 16);
  const points = new Float32Array(count * 4);
  for (let at = 0; at < count; at++) {
    const angle = (at / count) * 600 + turn;
    const radius = 5 + 3 * Math.sin(at / 977);
    points.set([Math.cos(angle) * radius, Math.sin(angle) * radius, (at % 1000) / 400, at % 255], at * 4);
  }
  return Buffer.concat([Buffer.from([0, 1, 0, 0]), Buffer.from(head.bytes), Buffer.from(points.buffer), Buffer.from([1])]);
}

class Cdr {
  bytes = [];
  u8(value) {
    this.bytes.push(value);
    return this;
  }
  u32(value) {
    while (this.bytes.length % 4) this.bytes.push(0);
    this.bytes.push(...new Uint8Array(Uint32Array.of(value).buffer));
    return this;
  }
  text(value) {
    this.u32(value.length + 1);
    this.bytes.push(...Buffer.from(value), 0);
    return this;
  }
}

/** A cloud of 500,000 points ten times a second, with 1,000 markers and a path of 10,000 poses beside it. */
function heavy(seconds) {
  const header = { frame_id: "map" };
  const pose = (at, radius) => ({ position: { x: Math.cos(at) * radius, y: Math.sin(at) * radius, z: 0 }, orientation: { x: 0, y: 0, z: 0, w: 1 } });
  const way = { header, poses: Array.from({ length: 10_000 }, (_, at) => ({ header, pose: pose(at / 1000, 5 + at / 2000) })) };
  const markers = Array.from({ length: 1000 }, (_, id) => ({ header, ns: "m", id, type: 1 + (id % 3), pose: pose(id / 150, 8), scale: { x: 0.1, y: 0.1, z: 0.1 }, color: { r: 0, g: 0, b: 1, a: 1 } }));
  const messages = [];
  for (let at = 0; at < seconds * 10; at++) {
    const t = 1e9 + at * 1e8;
    messages.push({ topic: "/cloud", type: "sensor_msgs/msg/PointCloud2", schema: CLOUD, t, payload: cloud(POINTS, at / 20) });
    if (at % 10 === 0) messages.push({ topic: "/path", type: "nav_msgs/Path", schema, t, data: way }, { topic: "/many", type: "visualization_msgs/MarkerArray", schema, t, data: { markers } });
  }
  return mcap(messages);
}

/** Plays a heavy scene, and prints what the page itself has counted. */
export async function playHeavy({ open, serve, until, path_of, position }) {
  const seconds = 8;
  fs.writeFileSync(path_of("heavy.mcap"), heavy(seconds));
  const { url } = await serve("serve", "heavy.mcap");
  for (const speed of [1, 0.25]) {
    const view = await open(`${url}#t=0`);
    const scene = view.page.locator(".scene[data-painted]");
    await until("the cloud is there", async () => (await view.page.locator('.layer[data-name="/cloud"]').getAttribute("data-drawn")) === String(POINTS));
    const counts = () => scene.evaluate(({ dataset }) => ["messages", "painted", "dropped", "leftOut"].map((name) => Number(dataset[name])));
    const before = await counts();
    const rates = new Set();
    await view.page.getByLabel("Speed").selectOption(String(speed));
    const began = performance.now();
    await view.page.keyboard.press("Space");
    let drawn = "";
    await until("it has played", async () => {
      rates.add(await scene.getAttribute("data-rate"));
      drawn = await view.page.locator('.layer[data-name="/cloud"]').getAttribute("data-drawn");
      return (await position(view.page)) > seconds - 0.5;
    }, 120_000);
    const lasted = (performance.now() - began) / 1000;
    const [messages, painted, dropped, leftOut] = (await counts()).map((value, index) => value - before[index]);
    const rate = [...rates].map((rate) => rate || "the screen's").join(", then ");
    console.log(`time: ${POINTS} points at ${10 * speed} Hz with 1,000 markers and 10,000 poses, ${lasted.toFixed(1)} s: ${messages} messages came, ${painted} pictures painted (${(painted / lasted).toFixed(1)} a second; stated ${rate}), ${dropped} messages dropped, ${leftOut} left out by the server, ${drawn} points drawn of each cloud`);
    assert.equal(dropped, 0, "at the rate that it states, the page drops nothing");

    await view.close();
  }
  fs.rmSync(path_of("heavy.mcap"));
}

/** What zstd makes of a cloud. */
const COMPRESSED = 0.56;

/**
 * Makes a recording of about so many bytes, with an index, and returns its path: clouds, transforms and a log. It is compressed:
 * of one that is not, `asof tf` reads a few pages in less time than a browser takes to start.
 */
export function makeLarge(path_of, bytes) {
  const [plain, indexed] = [path_of("plain.mcap"), path_of("large.mcap")];
  const header = (t) => ({ stamp: { sec: Math.floor(t / 1e9), nanosec: t % 1e9 }, frame_id: "map" });
  const payload = cloud(POINTS, 0);
  const messages = [];
  const count = Math.ceil(bytes / payload.length / COMPRESSED);
  for (let at = 0; at < count; at++) {
    const t = 1e9 + at * 1e8;
    messages.push({ topic: "/cloud", type: "sensor_msgs/msg/PointCloud2", schema: CLOUD, t, payload });
    for (let step = 0; step < 5; step++) {
      const own = t + step * 2e7;
      messages.push({ topic: "/tf", type: "tf2_msgs/TFMessage", schema, t: own, data: { transforms: [{ header: header(own), child_frame_id: "base_link", transform: { translation: { x: at / 10, y: 0, z: 0 }, rotation: { x: 0, y: 0, z: 0, w: 1 } } }] } });
    }
    messages.push({ topic: "/rosout", type: "rcl_interfaces/Log", schema, t, data: { level: 20, name: "n", msg: `line ${at}` } });
  }
  const file = fs.openSync(plain, "w");
  mcap(messages, (part) => fs.writeSync(file, part));
  fs.closeSync(file);
  execFileSync(ASOF_BIN, ["convert", plain, "-o", indexed, "-q"], { stdio: "ignore" });
  fs.rmSync(plain);
  return indexed;
}
