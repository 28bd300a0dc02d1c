// What a Foxglove client sees: channels, messages that decode, time, and playback control.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createRequire } from "node:module";
import readline from "node:readline";

const require = createRequire(import.meta.url);
const { FoxgloveClient } = require("@foxglove/ws-protocol");
const { parse } = require("@foxglove/rosmsg");
const { MessageReader } = require("@foxglove/rosmsg2-serialization");
const WebSocket = require("ws");

const [asof, recording, reference] = process.argv.slice(2);
const server = spawn(asof, ["serve", recording, "--listen", "0"], { stdio: ["ignore", "pipe", "inherit"] });
process.on("exit", () => server.kill());
const address = await new Promise((resolve) => {
  readline.createInterface({ input: server.stdout }).on("line", (line) => {
    if (line.startsWith("Foxglove")) resolve(line.split(": ")[1]);
  });
});

const once = (client, event, test = () => true) =>
  new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`no ${event} came`)), 15000);
    const listener = (value) => {
      if (!test(value)) return;
      clearTimeout(timer);
      client.off(event, listener);
      resolve(value);
    };
    client.on(event, listener);
  });

async function step(name, work) {
  await work();
  console.log(`ok: ${name}`);
}

function open(...protocols) {
  const socket = new WebSocket(address, protocols);
  const client = new FoxgloveClient({ ws: socket });
  const errors = [];
  client.on("error", (error) => errors.push(error));
  return { socket, client, errors };
}

const [OLDER, SDK] = ["foxglove.websocket.v1", "foxglove.sdk.v1"];
// Lichtblick offers the older one first; the client's order decides.
const offers = [[OLDER, SDK], [SDK, OLDER], [OLDER], [SDK], []];
for (const offer of offers) {
  await step(`a client that offers [${offer}] is played to, and its clock is set before each message`, async () => {
    const one = open(...offer);
    const [[channel], info] = await Promise.all([
      once(one.client, "advertise").then((all) => all.filter(({ topic }) => topic === "/odom")),
      once(one.client, "serverInfo"),
    ]);
    assert.equal(one.socket.protocol, offer[0] ?? "");
    assert.equal(info.capabilities.includes("playbackControl"), offer[0] === SDK);
    let clock = 0n;
    one.client.on("time", ({ timestamp }) => (clock = timestamp));
    const id = one.client.subscribe(channel.id);
    const wrong = [];
    one.client.on("message", ({ timestamp }) => timestamp !== clock && wrong.push([timestamp, clock]));
    for (let count = 0; count < 10; count++) await once(one.client, "message", (message) => message.subscriptionId === id);
    // What was known before comes first, at the time at which it was known.
    assert.ok(wrong.length <= 1, wrong.join("; "));
    one.client.close();
  });
}

if (reference) {
  await step("where the reference server speaks one of the protocols, this one speaks the same", async () => {
    const chosen = (url, offer) =>
      new Promise((resolve) => {
        const socket = new WebSocket(url, offer);
        socket.on("open", () => (resolve(socket.protocol), socket.close()));
        socket.on("error", () => resolve(undefined));
      });
    for (const offer of [[OLDER, SDK], [OLDER]]) {
      const [ours, theirs] = await Promise.all([chosen(address, offer), chosen(reference, offer)]);
      assert.equal(theirs, OLDER);
      assert.equal(ours, theirs);
    }
  });
}

const older = open(OLDER);
const [info, channels] = await Promise.all([once(older.client, "serverInfo"), once(older.client, "advertise")]);

await step("the older protocol is spoken, and says what it can", async () => {
  assert.equal(older.socket.protocol, "foxglove.websocket.v1");
  assert.deepEqual(info.capabilities, ["time"]);
  assert.equal(channels.length, 12);
});

await step("messages come by themselves, and another library decodes them", async () => {
  const channel = channels.find((one) => one.topic === "/odom");
  assert.equal(channel.schemaName, "nav_msgs/msg/Odometry");
  const reader = new MessageReader(parse(channel.schema, { ros2: true }));
  const id = older.client.subscribe(channel.id);
  let last = 0n;
  for (let count = 0; count < 20; count++) {
    const message = await once(older.client, "message", (one) => one.subscriptionId === id);
    const odometry = reader.readMessage(message.data);
    assert.equal(odometry.header.frame_id, "odom");
    assert.ok(Number.isFinite(odometry.pose.pose.position.x));
    assert.ok(message.timestamp >= last);
    last = message.timestamp;
  }
  const time = await once(older.client, "time");
  assert.ok(time.timestamp >= 1714564800000000000n);
  older.client.unsubscribe(id);
});

await step("a channel that is not there is complained about", async () => {
  older.client.subscribe(4711);
  const status = await once(older.client, "status");
  assert.match(status.message, /no channel 4711/);
});

await step("the older protocol has no playback control, and says so", async () => {
  const told = once(older.client, "status");
  older.socket.send(Buffer.concat([Buffer.from([3, 1]), Buffer.alloc(17)]));
  assert.match((await told).message, /no playback control/);
});
assert.deepEqual(older.errors, []);
older.client.close();

const newer = open(SDK);
const [newInfo, newChannels] = await Promise.all([once(newer.client, "serverInfo"), once(newer.client, "advertise")]);

// The client from npm does not know playback yet: requests and states are written and read as the SDK's protocol has them.
const states = [];
newer.socket.on("message", (data, isBinary) => {
  const bytes = Buffer.from(data);
  if (!isBinary || bytes[0] !== 5) return;
  states.push({
    status: ["playing", "paused", "buffering", "ended"][bytes[1]],
    time: bytes.readBigUInt64LE(2),
    speed: bytes.readFloatLE(10),
    didSeek: bytes[14] === 1,
    id: bytes.subarray(19, 19 + bytes.readUInt32LE(15)).toString(),
  });
});
function control({ play, speed = 1, seek, id }) {
  const bytes = Buffer.alloc(19 + id.length);
  bytes[0] = 3;
  bytes[1] = play ? 0 : 1;
  bytes.writeFloatLE(speed, 2);
  bytes[6] = seek === undefined ? 0 : 1;
  bytes.writeBigUInt64LE(seek ?? 0n, 7);
  bytes.writeUInt32LE(id.length, 15);
  bytes.write(id, 19);
  newer.socket.send(bytes);
}
async function state(test) {
  for (let tries = 0; tries < 1000; tries++) {
    const found = states.find(test);
    if (found) return found;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  throw new Error(`no such state; those that came: ${JSON.stringify(states, (_, value) => (typeof value === "bigint" ? String(value) : value))}`);
}

const nanos = ({ sec, nsec }) => BigInt(sec) * 1000000000n + BigInt(nsec);
await step("the newer protocol has playback control and says what there is to play", async () => {
  assert.equal(newer.socket.protocol, "foxglove.sdk.v1");
  assert.ok(newInfo.capabilities.includes("playbackControl"));
  assert.ok(nanos(newInfo.dataEndTime) - nanos(newInfo.dataStartTime) > 4000000000n);
});

await step("a seek tells what was known then", async () => {
  const channel = newChannels.find((one) => one.topic === "/scan");
  const reader = new MessageReader(parse(channel.schema, { ros2: true }));
  const id = newer.client.subscribe(channel.id);
  const at = nanos(newInfo.dataStartTime) + 3000000000n;
  const heard = once(newer.client, "message", (one) => one.subscriptionId === id && one.timestamp > at - 200000000n);
  control({ play: false, seek: at, id: "seek" });
  const message = await heard;
  assert.ok(message.timestamp <= at);
  assert.equal(reader.readMessage(message.data).ranges.length, 360);
  const answer = await state((one) => one.id === "seek");
  assert.deepEqual([answer.status, answer.didSeek, answer.time], ["paused", true, at]);
});

await step("playing, its speed, its pause and its end are obeyed and told", async () => {
  control({ play: true, speed: 5, id: "play" });
  const playing = await state((one) => one.id === "play");
  assert.deepEqual([playing.status, playing.speed], ["playing", 5]);
  control({ play: false, speed: 5, id: "pause" });
  assert.equal((await state((one) => one.id === "pause")).status, "paused");
  control({ play: true, speed: 10, id: "on" });
  await state((one) => one.status === "ended");
});
newer.client.close();
server.kill();
console.log("all of it passed");
