// Annotations, files that are dropped onto the page, and several recordings in one view. Each step is one fact.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import crypto from "node:crypto";
import fs from "node:fs";
import { mcap } from "./mcap.mjs";

const { ASOF_BIN, ASOF_FOLDER } = process.env;
const schema = { type: "object" };

export async function files(tools) {
  await notes(tools);
  await dropped(tools);
  await beside(tools);
  await fleet(tools);
}

async function notes({ step, until, open, serve, path_of, barriers }) {
  await step("a moment is marked with a text, which lies beside the recording and goes along with it", async () => {
    execFileSync(ASOF_BIN, ["demo", "-o", "noted.mcap", "--no-serve", "-q", "--seconds", "5"], { cwd: ASOF_FOLDER, stdio: "ignore" });
    const { url } = await serve("serve", "noted.mcap");
    const view = await open(`${url}#t=2.5`);
    await view.page.locator(".panel").first().waitFor();
    await view.page.keyboard.press("m");
    const dialog = view.page.getByRole("dialog", { name: "Mark this moment" });
    await dialog.getByLabel("Text of the annotation").fill("the wheel slips");
    assert.deepEqual(await barriers(view.page), []);
    await dialog.getByRole("button", { name: "Mark" }).click();
    await until("the dialog goes", async () => (await dialog.count()) === 0);
    const kept = JSON.parse(fs.readFileSync(path_of("noted.mcap.annotations.json"), "utf8"));
    assert.equal(kept.annotations[0].text, "the wheel slips");
    const { start } = await (await fetch(`${url}api/summary`)).json();
    assert.equal(BigInt(kept.annotations[0].start), BigInt(start) + 2500000000n);
    await view.page.evaluate(() => (location.hash = "t=0"));
    await view.page.locator(".panel[data-kind=log]").getByLabel("Kind of panel").selectOption("annotations");
    const panel = view.page.locator(".panel[data-kind=annotations]");
    await panel.locator("tr", { hasText: "the wheel slips" }).getByRole("button", { name: "2.500 s" }).click();
    await until("it goes there", async () => Math.abs(Number(await view.page.locator(".timeline").getAttribute("aria-valuenow")) - 2.5) < 0.01);
    execFileSync(ASOF_BIN, ["convert", "noted.mcap", "-o", "copied.mcap", "-q"], { cwd: ASOF_FOLDER, stdio: "ignore" });
    const told = execFileSync(ASOF_BIN, ["info", "copied.mcap", "--json"], { cwd: ASOF_FOLDER, encoding: "utf8" });
    assert.match(told, /asof:annotations/);
    for (const place of ["noted.mcap", "copied.mcap"]) {
      const found = execFileSync(ASOF_BIN, ["find", place, "--text", "SLIPS wheel", "--json"], { cwd: ASOF_FOLDER, encoding: "utf8" });
      assert.equal(JSON.parse(found).text, "the wheel slips");
    }
    await panel.getByRole("button", { name: /^Forget/ }).click();
    await panel.getByText("Nothing is marked").waitFor();
    assert.equal(JSON.parse(fs.readFileSync(path_of("noted.mcap.annotations.json"), "utf8")).annotations.length, 0);
    assert.deepEqual(view.complaints, []);
    await view.close();
  });
  await step("pages of other sites can mark nothing", async () => {
    const { url } = await serve("serve", "noted.mcap", "--allow-origin", "https://app.example");
    const said = async (origin) => (await fetch(`${url}api/annotations?start=0&text=x`, { method: "POST", headers: origin ? { origin } : {} })).status;
    assert.equal(await said("https://app.example"), 400);
    assert.equal(await said("https://other.example"), 403);
    assert.equal(await said(undefined), 200);
  });
}

async function dropped({ step, until, open, serve, path_of, position }) {
  await step("without a recording, the page waits for one, and opens what is dropped", async () => {
    const { url } = await serve("serve");
    const view = await open(url);
    await view.page.getByText("No recording is open").waitFor();
    const bytes = fs.readFileSync(path_of("noted.mcap")).toString("base64");
    const drop = (files) =>
      view.page.evaluate(async (files) => {
        const transfer = new DataTransfer();
        for (const [name, content] of files) transfer.items.add(new File([Uint8Array.from(atob(content), (one) => one.charCodeAt(0))], name));
        window.dispatchEvent(new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true }));
      }, files);
    await drop([["broken.mcap", Buffer.from("nothing of the kind").toString("base64")]]);
    await view.page.locator(".toast", { hasText: "broken.mcap" }).waitFor({ state: "attached" });
    await drop([["mine.mcap", bytes]]);
    await view.page.waitForURL((now) => now.pathname.startsWith("/r/"));
    await until("it plays", async () => (await position(view.page)) > 0.2);
    assert.equal(await view.page.locator(".top .name").innerText(), "mine.mcap");
    // A file that is not a recording is refused, and the browser says so.
    assert.deepEqual(view.complaints.filter((text) => !/400/.test(text)), []);
    await view.close();
  });
  await step("a large file goes to the disk as it comes, its progress is said, and it is looked at from there", async () => {
    // 240 MB that nothing compresses, and a log.
    const junk = crypto.randomBytes(8_000_000);
    const messages = Array.from({ length: 30 }, (_, at) => ({ topic: "/junk", type: "my/Junk", schema: "uint8[] data\n", t: 1e9 + at * 1e8, payload: Buffer.concat([Buffer.from([0, 1, 0, 0, 0, 0x12, 0x7a, 0]), junk]) }));
    messages.push({ topic: "/rosout", type: "rcl_interfaces/Log", schema, t: 1.5e9, data: { level: 20, name: "n", msg: "all of it came" } });
    const file = fs.openSync(path_of("plain-drop.mcap"), "w");
    mcap(messages, (part) => fs.writeSync(file, part));
    fs.closeSync(file);
    // With an index: a file without one is read completely to draw the timeline, and cached within the budget.
    execFileSync(ASOF_BIN, ["convert", "plain-drop.mcap", "-o", "large-drop.mcap", "--compression", "none", "-q"], { cwd: ASOF_FOLDER, stdio: "ignore" });
    fs.rmSync(path_of("plain-drop.mcap"));
    const { url, server } = await serve("serve");
    const held = () => Number(/VmHWM:\s+(\d+)/.exec(fs.readFileSync(`/proc/${server.pid}/status`, "utf8"))?.[1] ?? 0) / 1024;
    const before = held();
    const view = await open(url);
    const said = [];
    let taken = Infinity;
    // All bytes have arrived by then; none of them has been decoded.
    view.page.on("request", (request) => request.url().includes("/api/files/open") && (taken = held() - before));
    await view.page.exposeFunction("said", (text) => said.push(text));
    await view.page.locator(".drop").evaluate((over) => new MutationObserver(() => window.said(over.innerText)).observe(over, { childList: true }));
    const [chooser] = await Promise.all([view.page.waitForEvent("filechooser"), view.page.getByRole("button", { name: "Open" }).click()]);
    await chooser.setFiles(path_of("large-drop.mcap"));
    await view.page.waitForURL((now) => now.pathname.startsWith("/r/"), { timeout: 120_000 });
    await view.page.locator(".line", { hasText: "all of it came" }).waitFor();
    assert.ok(said.some((text) => /Copying large-drop\.mcap: [\d.]+ MB of 240 MB/.test(text)), said.join(" | "));
    assert.ok(taken < 100, `${taken.toFixed(0)} MB were held of 240`);
    await view.close();
    fs.rmSync(path_of("large-drop.mcap"));
  });
  await step("a name that leads out of its folder is not taken", async () => {
    const { url } = await serve("serve", "noted.mcap");
    for (const name of ["../x.mcap", "/etc/x", "a/b.mcap", "", ".."]) {
      const answer = await fetch(`${url}api/files?name=${encodeURIComponent(name)}`, { method: "POST", body: "x" });
      assert.equal(answer.status, 400, name);
    }
    assert.equal((await fetch(`${url}api/files?name=x.mcap&look=99`, { method: "POST", body: "x" })).status, 400);
  });
}

async function fleet({ step, until, open, serve, path_of, barriers, position }) {
  await step("the recordings of a folder are listed, searched and opened, with the keyboard alone", async () => {
    const run = (...words) => execFileSync(ASOF_BIN, words, { cwd: ASOF_FOLDER, stdio: "ignore" });
    for (const robot of ["r1", "r2"]) {
      fs.mkdirSync(path_of(`fleet/${robot}`), { recursive: true });
      run("demo", "-o", `fleet/${robot}/run.mcap`, "--no-serve", "-q", "--seconds", robot === "r1" ? "3" : "5");
    }
    fs.writeFileSync(path_of("fleet/r2/cut.mcap"), fs.readFileSync(path_of("fleet/r2/run.mcap")).subarray(0, 200_000));
    // One of them is damaged, which it says with its exit code.
    assert.equal(spawnSync(ASOF_BIN, ["index", "fleet", "--pattern", "{robot}/…"], { cwd: ASOF_FOLDER }).status, 3);
    run("tag", "fleet", "r1/run.mcap", "weather=rain");
    const { url } = await serve("serve", "fleet");
    const view = await open(url);
    const { page } = view;
    const rows = page.locator(".fleet tbody tr");
    await until("all of them", async () => (await rows.count()) === 3);
    assert.doesNotMatch(await page.locator("header.top").innerText(), /messages| B /, "nothing is said of a recording that is not there");
    assert.match(await rows.filter({ hasText: "r1/run.mcap" }).innerText(), /2024-05-01 12:00:00[^]*3 s[^]*weather=rain/);
    assert.equal(await rows.filter({ hasText: "cut.mcap" }).getByRole("img", { name: /problem/ }).count(), 1);
    for (const mode of ["light", "dark"]) {
      assert.deepEqual(await barriers(page), [], mode);
      await page.getByRole("button", { name: "Light or dark" }).click();
    }
    const told = page.getByRole("search").getByRole("status");
    await page.getByRole("searchbox", { name: "Since" }).fill("nonsense");
    await until("what is wrong with it", async () => /'nonsense' is not a day or a time/.test(await told.innerText()));
    await page.getByRole("searchbox", { name: "Since" }).fill("2024-04-30");
    await until("all again", async () => (await told.innerText()) === "3 recordings");
    await page.getByRole("searchbox", { name: "Search", exact: true }).fill("rain");
    await until("the one with the tag", async () => (await rows.count()) === 1 && /r1/.test(await rows.innerText()));
    await page.getByRole("searchbox", { name: "Robot" }).fill("r2");
    await until("none", async () => (await told.innerText()) === "No recording matches");
    await page.getByRole("searchbox", { name: "Robot" }).fill("");
    await until("it is there again", async () => (await rows.count()) === 1);
    // Tab leads from the last field into the list and to the recording.
    await page.getByRole("searchbox", { name: "Until" }).focus();
    await page.keyboard.press("Tab");
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await page.waitForURL((now) => now.pathname.startsWith("/r/"));
    await until("it plays", async () => (await position(page)) > 0.2);
    // It is a path of the same server, so layouts and theme stay, and there is a link back to the list.
    assert.equal(new URL(page.url()).origin, new URL(url).origin);
    assert.equal(new URL(page.url()).pathname, "/r/r1:run.mcap/");
    await page.getByRole("button", { name: "Open", exact: true }).waitFor();
    assert.deepEqual(await barriers(page), []);
    await page.reload();
    await until("it plays again", async () => (await position(page)) > 0.2);
    await page.getByRole("link", { name: "fleet" }).click();
    await until("the list is back", async () => (await rows.count()) === 3);
    // A time that cannot be read is refused, and the browser says so.
    assert.deepEqual(view.complaints.filter((text) => !/400/.test(text)), []);
    await view.close();
  });
  await step("a list grows while its recordings are looked into, and says how far that is", async () => {
    const { url } = await serve("serve", "fleet");
    const view = await open("about:blank");
    const { page } = view;
    let done = 0;
    await page.route("**/api/recordings?*", async (route) => {
      const response = await route.fetch();
      const answer = await response.json();
      answer.recordings = answer.recordings.slice(0, done);
      answer.total = done;
      answer.reading = done < 3 ? { done, total: 3 } : null;
      done++;
      await route.fulfill({ response, json: answer });
    });
    await page.goto(url);
    const told = page.getByRole("search").getByRole("status");
    const rows = page.locator(".fleet tbody tr");
    await until("the beginning", async () => (await told.innerText()) === "Looking into 0 of 3 recordings …");
    await until("the first", async () => (await told.innerText()) === "1 so far; looking into 1 of 3 recordings …" && (await rows.count()) === 1);
    await rows.getByRole("button").first().focus();
    const focused = await page.evaluate(() => document.activeElement.textContent);
    await until("all", async () => (await told.innerText()) === "3 recordings" && (await rows.count()) === 3);
    assert.equal(await page.evaluate(() => document.activeElement.textContent), focused);
    assert.deepEqual(view.complaints, []);
    await view.close();
  });
}

async function beside({ step, until, open, serve, path_of, hues }) {
  const point = (x, y) => ({ x, y, z: 0 });
  const vector = { type: "object", properties: { x: { type: "number" }, y: { type: "number" }, z: { type: "number" } } };
  const twist = { type: "object", properties: { linear: vector, angular: vector } };
  const still = { x: 0, y: 0, z: 0, w: 1 };
  /** A robot that goes along a line, and a marker before it, at some time of some year. */
  const run = (start, speed, color) =>
    [0, 1, 2, 3, 4].flatMap((t) => {
      const at = start + t * 1e9;
      const stamp = { sec: Math.floor(at / 1e9), nanosec: 0 };
      return [
        { topic: "/tf", type: "tf2_msgs/TFMessage", schema, t: at, data: { transforms: [{ header: { stamp, frame_id: "map" }, child_frame_id: "base_link", transform: { translation: point(t * speed, 0), rotation: still } }] } },
        { topic: "/speed", type: "geometry_msgs/Twist", schema: twist, t: at, data: { linear: point(speed * t, 0), angular: point(0, 0) } },
        { topic: "/sign", type: "visualization_msgs/Marker", schema, t: at, data: { header: { stamp, frame_id: "base_link" }, ns: "s", id: 1, type: 1, pose: { position: point(0, 0), orientation: still }, scale: { x: 2, y: 2, z: 1 }, color: { ...color, a: 1 } } },
      ];
    });
  await step("two recordings of different years lie beside each other from their starts, in one picture", async () => {
    fs.writeFileSync(path_of("one.mcap"), mcap(run(1e18, 3, { r: 1, g: 0, b: 0 })));
    fs.writeFileSync(path_of("two.mcap"), mcap(run(1.5e18, -3, { r: 0, g: 0, b: 1 })));
    const { url } = await serve("serve", "one.mcap", "two.mcap", "--prefix", "before,after", "--align", "start");
    const summary = await (await fetch(`${url}api/summary`)).json();
    assert.equal(summary.duration, 4e9);
    assert.deepEqual(summary.topics.map(({ topic }) => topic), ["/after/sign", "/after/speed", "/after/tf", "/before/sign", "/before/speed", "/before/tf"]);
    // Each robot is where its own transforms say, although they were stamped years apart.
    const edges = await (await fetch(`${url}api/frames?t=${2e9}`)).json();
    const x = (child) => edges.find((edge) => edge.child === child)?.pose[0];
    assert.deepEqual([x("before/base_link"), x("after/base_link"), x("after/map")], [6, -6, 0]);
    const view = await open(`${url}#t=2`);
    await until("both are in the picture", async () => {
      const { red, blue } = await hues(view.page, ".scene canvas");
      return red > 20 && blue > 20;
    });
    await until("both are plotted", async () => /\/before\/speed[^]*\/after\/speed/.test(await view.page.locator(".legend").innerText()));
    assert.deepEqual(view.complaints, []);
    await view.close();
  });
}
