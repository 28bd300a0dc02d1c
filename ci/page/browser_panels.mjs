// Layouts that are saved, shared and imported; plots, tables, maps and video. Each step is one fact.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import http from "node:http";
import { film } from "./h264.mjs";
import { mcap } from "./mcap.mjs";

const { ASOF_BIN, ASOF_FOLDER } = process.env;
const schema = { type: "object" };

/** A layout as Foxglove saves it: two panels that are known here, one that is not, and a tab. */
const FOREIGN = {
  configById: {
    "3D!a": { followTf: "base_link", topics: { "/scan": { visible: false } } },
    "Plot!b": { paths: [{ value: "/odom.twist.twist.linear.x", enabled: true, color: "#00ff00" }, { value: "/imu.angular_velocity.z.@derivative", enabled: true }, { value: "/imu.angular_velocity.x.@abs", enabled: true }] },
    "Teleop!c": {},
    "Tab!d": { activeTabIdx: 0, tabs: [{ title: "one", layout: "RawMessages!e" }, { title: "two", layout: "Gauge!f" }] },
    "RawMessages!e": { topicPath: "/odom.pose" },
  },
  layout: { first: "3D!a", second: { first: "Plot!b", second: { first: "Tab!d", second: "Teleop!c", direction: "row" }, direction: "column", splitPercentage: 60 }, direction: "row", splitPercentage: 40 },
};

export async function panels(tools) {
  const { demo, open, path_of } = tools;
  fs.writeFileSync(path_of("foreign.json"), JSON.stringify(FOREIGN));
  const view = await open(`${demo.url}#t=2`);
  await view.page.locator(".panel").first().waitFor();
  await layouts(tools, view.page);
  await plots(tools, view.page);
  await tools.step("nothing was complained about with all these panels", async () => assert.deepEqual(view.complaints, []));
  await view.close();
  await givenLayout(tools);
  await parameters(tools);
  await space(tools);
  await framing(tools);
  await meshes(tools);
  await keyboard(tools);
  await heights(tools);
  await narrow(tools);
  await tiles(tools);
  await video(tools);
}

const kinds = (page) => page.locator(".panel").evaluateAll((all) => all.map((one) => one.dataset.kind));

async function layouts({ step, until, open, barriers, path_of }, page) {
  await step("a layout is saved under a name, and comes back; a change is undone and redone", async () => {
    const first = await kinds(page);
    await page.getByRole("button", { name: "Layouts" }).click();
    const dialog = page.getByRole("dialog", { name: "Layouts" });
    await dialog.getByLabel("Name of the layout").fill("mine");
    await dialog.getByRole("button", { name: "Save as" }).click();
    await dialog.getByRole("button", { name: "mine", exact: true }).waitFor();
    assert.deepEqual(await barriers(page), []);
    await dialog.getByRole("button", { name: "Close" }).click();
    await page.getByRole("button", { name: "Close Log" }).click();
    const fewer = await kinds(page);
    assert.equal(fewer.length, first.length - 1);
    await page.keyboard.press("Control+z");
    await until("it is undone", async () => (await kinds(page)).join() === first.join());
    await page.keyboard.press("Control+Shift+Z");
    await until("it is redone", async () => (await kinds(page)).join() === fewer.join());
    await page.getByRole("button", { name: "Layouts" }).click();
    await dialog.getByRole("button", { name: "mine", exact: true }).click();
    await until("mine", async () => (await kinds(page)).join() === first.join());
  });
  await step("a link carries a layout to another browser", async () => {
    const dialog = page.getByRole("dialog", { name: "Layouts" });
    await dialog.getByRole("button", { name: "Close" }).click();
    await page.getByRole("button", { name: "Close Log" }).click();
    const own = await kinds(page);
    await page.getByRole("button", { name: "Layouts" }).click();
    await dialog.getByRole("button", { name: "Copy a link" }).click();
    await until("a link", async () => Boolean(await dialog.getByRole("status").getAttribute("data-link")));
    const link = await dialog.getByRole("status").getAttribute("data-link");
    const other = await open(link);
    await until("the same panels", async () => (await kinds(other.page)).join() === own.join());
    await other.page.reload();
    await until("they stay", async () => (await kinds(other.page)).join() === own.join());
    assert.deepEqual(other.complaints, []);
    await other.close();
  });
  await step("a layout of Foxglove is taken over as far as there are such panels, and the rest is named", async () => {
    const dialog = page.getByRole("dialog", { name: "Layouts" });
    await dialog.getByLabel("Layout file").setInputFiles(path_of("foreign.json"));
    await until("its panels", async () => (await kinds(page)).join() === "scene,plot,raw");
    const said = await dialog.getByRole("status").innerText();
    for (const word of ["the panel Teleop", "the tab two", "@abs"]) assert.ok(said.includes(word), said);
    await dialog.getByRole("button", { name: "Close" }).click();
    const legend = page.locator(".panel[data-kind=plot] .legend");
    await until("its lines", async () => /twist\.twist\.linear\.x[^]*d\/dt[^]*angular_velocity\.z/.test(await legend.innerText()));
    assert.equal(await page.locator(".panel[data-kind=raw] select.title").inputValue(), "/odom");
    assert.equal(await page.locator('.layer[data-name="/scan"] input').isChecked(), false);
  });
  await step("a file that is not a layout changes nothing, and says so", async () => {
    const before = await kinds(page);
    fs.writeFileSync(path_of("broken.json"), '{"tree": {"split": "row", "first": 7}}');
    await page.getByRole("button", { name: "Layouts" }).click();
    const dialog = page.getByRole("dialog", { name: "Layouts" });
    await dialog.getByLabel("Layout file").setInputFiles(path_of("broken.json"));
    await dialog.getByText("This file cannot be shown").waitFor();
    await dialog.getByRole("button", { name: "Close" }).click();
    assert.deepEqual(await kinds(page), before);
  });
}

async function plots({ step, until, barriers, pixels }, page) {
  const plot = page.locator(".panel[data-kind=plot]");
  await step("a formula over the lines of a plot is drawn, and what is wrong with one is said", async () => {
    await plot.getByRole("button", { name: "Add a formula" }).click();
    const input = plot.getByLabel(/^Formula/);
    await input.fill("sqrt(a^2 + ");
    await plot.getByRole("button", { name: "Add", exact: true }).click();
    await plot.getByText("ends too early").waitFor();
    await input.fill("q + 1");
    await plot.getByRole("button", { name: "Add", exact: true }).click();
    await plot.getByText("there is no line q").waitFor();
    await input.fill("2*a + 10");
    await plot.getByRole("button", { name: "Add", exact: true }).click();
    const value = async (name) => Number((await plot.locator(".legend-entry", { hasText: name }).first().locator(".now").innerText()) || NaN);
    await until("its value", async () => Math.abs((await value("2*a + 10")) - (2 * (await value("a = /odom")) + 10)) < 1e-3);
  });
  await step("the figures of what is seen are those of the line", async () => {
    await plot.getByRole("button", { name: "Statistics of the visible range" }).click();
    const row = plot.locator(".figures tr", { hasText: "2*a + 10" }).locator("td");
    await until("seven figures", async () => (await row.count()) === 7);
    const [least, most, mean, deviation, low, middle, high] = (await row.allInnerTexts()).map(Number);
    assert.ok(least <= mean && mean <= most && least > 8 && deviation > 0, `${least} ${mean} ${most} ${deviation}`);
    assert.ok(least <= low && low <= middle && middle <= high && high <= most, `${low} ${middle} ${high}`);
    // The statistics do not push the plot out of the panel.
    assert.ok((await plot.locator(".plot-area").boundingBox()).height >= 40);
  });
  await step("a plot is saved as a drawing, a picture and a table", async () => {
    for (const [name, start] of [["SVG drawing", /^<svg .*<path d="M/s], ["PNG picture", /^.PNG/s], ["CSV table", /^time,/]]) {
      const [download] = await Promise.all([page.waitForEvent("download"), plot.getByLabel("Save the plot as").selectOption(name)]);
      const content = fs.readFileSync(await download.path(), "latin1");
      assert.match(content, start, name);
    }
  });
  await step("a field is drawn over another", async () => {
    await plot.getByLabel("Kind of panel").selectOption("xy");
    const xy = page.locator(".panel[data-kind=xy]");
    await xy.locator("canvas").waitFor();
    await until("it is drawn", async () => !/^(none|0*)$/.test(await pixels(page, ".panel[data-kind=xy] canvas")));
    assert.match(await xy.locator(".legend").innerText(), /→ \/odom/);
  });
  await step("a table has a row for each message, and a click goes there", async () => {
    await page.locator(".panel[data-kind=raw]").getByLabel("Kind of panel").selectOption("table");
    const table = page.locator(".panel[data-kind=table]");
    await table.locator("tbody tr").nth(20).waitFor();
    assert.match(await table.locator("thead").innerText(), /pose\.pose\.position\.x/);
    assert.deepEqual(await barriers(page), []);
    await table.locator("tbody tr").nth(20).getByRole("button").click();
    await until("it is there", async () => {
      const t = Number(await page.locator(".timeline").getAttribute("aria-valuenow"));
      return t < 1.95 && t > 1;
    });
  });
}

async function givenLayout({ step, until, open, serve }) {
  await step("the server can be given a layout", async () => {
    const { url } = await serve("serve", "asof-demo.mcap", "--layout", "foreign.json");
    const given = await open(url);
    await until("its panels", async () => (await kinds(given.page)).join() === "scene,plot,raw");
    await given.page.locator(".toast", { hasText: "Not supported in this layout: " }).waitFor({ state: "attached" });
    await given.page.getByRole("button", { name: "Close Message" }).click();
    await given.page.reload();
    await until("a change is kept", async () => (await kinds(given.page)).join() === "scene,plot");
    assert.deepEqual(given.complaints, []);
    await given.close();
  });
}

async function parameters({ step, until, open, serve, path_of }) {
  await step("parameters are those of the moment", async () => {
    const set = (t, value) => ({ topic: "/parameter_events", type: "rcl_interfaces/msg/ParameterEvent", schema, t, data: { node: "/planner", new_parameters: [], changed_parameters: [{ name: "speed", value: { type: 3, double_value: value } }], deleted_parameters: [] } });
    fs.writeFileSync(path_of("parameters.mcap"), mcap([set(1e9, 0.5), set(3e9, 1.5)]));
    const { url } = await serve("serve", "parameters.mcap");
    const view = await open(`${url}#t=0.5`);
    await view.page.locator(".panel").first().getByLabel("Kind of panel").selectOption("parameters");
    const row = view.page.locator(".panel[data-kind=parameters] tr", { hasText: "/planner.speed" });
    await until("as it was", async () => (await row.count()) === 1 && /0\.5/.test(await row.innerText()));
    await view.page.evaluate(() => (location.hash = "t=2"));
    await until("as it is later", async () => /1\.5/.test(await row.innerText()));
    assert.deepEqual(view.complaints, []);
    await view.close();
  });
}

async function space({ step, until, open, serve, path_of, hues }) {
  await step("points are coloured by any of their fields, and a click in 3D shows the message of what is there", async () => {
    const count = 4000;
    const data = Buffer.alloc(count * 13);
    for (let at = 0; at < count; at++) {
      const angle = (at / count) * Math.PI * 2;
      [Math.cos(angle) * 4, Math.sin(angle) * 4, 0].forEach((value, axis) => data.writeFloatLE(value, at * 13 + axis * 4));
      data[at * 13 + 12] = at % 2;
    }
    const fields = [["x", 0, 7], ["y", 4, 7], ["z", 8, 7], ["ring", 12, 1]].map(([name, offset, type]) => ({ name, offset, type }));
    const cloud = (t) => ({ topic: "/ring", type: "foxglove.PointCloud", schema, t, data: { frame_id: "map", pose: { position: { x: 0, y: 0, z: 0 }, orientation: { x: 0, y: 0, z: 0, w: 1 } }, point_stride: 13, fields, data: data.toString("base64") } });
    const box = { header: { frame_id: "map" }, ns: "b", id: 1, type: 1, pose: { position: { x: 0, y: 0, z: 0 }, orientation: { x: 0, y: 0, z: 0, w: 1 } }, scale: { x: 4, y: 4, z: 4 }, color: { r: 0, g: 1, b: 0, a: 1 } };
    fs.writeFileSync(path_of("ring.mcap"), mcap([1e9, 2e9].flatMap((t) => [cloud(t), { topic: "/box", type: "visualization_msgs/Marker", schema, t, data: box }])));
    const { url } = await serve("serve", "ring.mcap");
    const view = await open(`${url}#t=1`);
    await until("all points", async () => (await view.page.locator('.layer[data-name="/ring"]').getAttribute("data-drawn")) === String(count));
    const seen = () => hues(view.page, ".scene canvas");
    await until("they are of one colour", async () => (await seen()).red === 0 && (await seen()).green > 20);
    await view.page.getByRole("button", { name: "Settings of /ring" }).click();
    await view.page.getByLabel("size of /ring").fill("6");
    await view.page.getByLabel("colour by of /ring").selectOption("field ring");
    await until("one ring is red, the other is blue", async () => (await seen()).red > 20 && (await seen()).blue > 20);
    const area = await view.page.locator(".scene canvas").boundingBox();
    await view.page.mouse.click(area.x + area.width / 2, area.y + area.height / 2);
    const message = view.page.getByRole("dialog", { name: "Message on /box" });
    await message.getByText("visualization_msgs/Marker").waitFor();
    const panels = await view.page.locator(".panel").count();
    await message.getByRole("button", { name: "Open as a panel" }).click();
    await until("a panel", async () => (await view.page.locator(".panel").count()) === panels + 1);
    assert.equal(await view.page.locator(".panel[data-kind=raw] select.title").inputValue(), "/box");
    assert.equal(await message.count(), 0);
    assert.deepEqual(view.complaints, []);
    await view.close();
  });
}

/** The colours of a drawing's outermost pixels, as "red,green,blue" in steps of 32. */
const border = (page, selector) =>
  page.evaluate((selector) => {
    const canvas = document.querySelector(selector);
    const small = new OffscreenCanvas(128, 128);
    const context = small.getContext("2d");
    context.drawImage(canvas, 0, 0, 128, 128);
    const { data } = context.getImageData(0, 0, 128, 128);
    const at = (x, y) => Array.from(data.slice((y * 128 + x) * 4, (y * 128 + x) * 4 + 3)).join(",");
    return [...Array(128).keys()].flatMap((one) => [at(one, 0), at(one, 127), at(0, one), at(127, one)]);
  }, selector);

async function framing({ step, until, open, serve, path_of, hues }) {
  const turn = { x: 0, y: 0, z: 0, w: 1 };
  const header = { frame_id: "map" };
  await step("what moves without a frame to follow stays in the picture, and a hand on the view keeps it where it is", async () => {
    const cube = (t) => ({ topic: "/drone", type: "visualization_msgs/Marker", schema, t: t * 1e9, data: { header, ns: "d", id: 1, type: 1, pose: { position: { x: t * 20, y: t * -15, z: 2 }, orientation: turn }, scale: { x: 4, y: 4, z: 1 }, color: { r: 0, g: 0, b: 1, a: 1 } } });
    fs.writeFileSync(path_of("drone.mcap"), mcap([1, 2, 3, 4, 5].map(cube)));
    const { url } = await serve("serve", "drone.mcap");
    const view = await open(`${url}#t=0`);
    const blue = async () => (await hues(view.page, ".scene canvas")).blue;
    for (const t of [0, 1, 3, 4]) {
      await view.page.evaluate((t) => (location.hash = `t=${t}`), t);
      await until(`it is seen at ${t} s`, async () => (await blue()) > 8);
    }
    const area = await view.page.locator(".scene canvas").boundingBox();
    await view.page.mouse.move(area.x + area.width / 2, area.y + area.height / 2);
    // So near that the first place is far outside.
    for (let turns = 0; turns < 30; turns++) await view.page.mouse.wheel(0, -240);
    await until("it is out of the picture", async () => (await blue()) === 0);
    await view.page.evaluate(() => (location.hash = "t=1"));
    await view.page.waitForTimeout(1500);
    assert.equal(await blue(), 0, "a view that a person has moved stays where it is");
    await view.page.getByRole("button", { name: "fit" }).click();
    await until("it is back", async () => (await blue()) > 8);
    assert.deepEqual(view.complaints, []);
    await view.close();
  });
  await step("a map is whole in the picture, whatever the shape of the panel", async () => {
    const map = (t) => ({ topic: "/costmap", type: "nav_msgs/OccupancyGrid", schema, t, data: { header, info: { resolution: 0.5, width: 60, height: 40, origin: { position: { x: -5, y: 3, z: 0 }, orientation: turn } }, data: Array(2400).fill(100) } });
    fs.writeFileSync(path_of("map.mcap"), mcap([map(1e9), map(2e9)]));
    const { url } = await serve("serve", "map.mcap");
    for (const viewport of [{ width: 1440, height: 900 }, { width: 800, height: 600 }, { width: 700, height: 1100 }]) {
      const view = await open(`${url}#t=0.5`, { viewport });
      const pink = (one) => {
        const [red, green, blue] = one.split(",").map(Number);
        return red > 180 && blue > 180 && green < 90;
      };
      const middle = () =>
        view.page.evaluate(() => {
          const canvas = document.querySelector(".scene canvas");
          if (!canvas || canvas.width === 0) return "";
          const context = new OffscreenCanvas(1, 1).getContext("2d");
          context.drawImage(canvas, canvas.width / 2, canvas.height / 2, 1, 1, 0, 0, 1, 1);
          return context.getImageData(0, 0, 1, 1).data.slice(0, 3).join(",");
        });
      await until("it is in the middle", async () => pink(await middle()));
      // The panel may still be taking its size.
      await until(`none of it is cut off at ${viewport.width} x ${viewport.height}`, async () => !(await border(view.page, ".scene canvas")).some(pink));
      assert.ok(pink(await middle()), "it is still there");
      await view.close();
    }
  });
}

/** A triangle on the ground, in each of the forms that meshes come in beside STL. */
const MESHES = {
  "green.obj": "v 0 0 0\nv 2 0 0\nv 0 2 0\nf 1 2 3\n",
  "blue.dae": `<COLLADA xmlns="http://www.collada.org/2005/11/COLLADASchema" version="1.4.1"><asset><up_axis>Z_UP</up_axis></asset>
<library_effects><effect id="e"><profile_COMMON><technique sid="t"><lambert><diffuse><color>0 0 1 1</color></diffuse></lambert></technique></profile_COMMON></effect></library_effects>
<library_materials><material id="m"><instance_effect url="#e"/></material></library_materials>
<library_geometries><geometry id="g"><mesh><source id="p"><float_array id="a" count="9">0 0 0 2 0 0 0 2 0</float_array><technique_common><accessor source="#a" count="3" stride="3"><param name="X" type="float"/><param name="Y" type="float"/><param name="Z" type="float"/></accessor></technique_common></source>
<source id="n"><float_array id="b" count="3">0 0 1</float_array><technique_common><accessor source="#b" count="1" stride="3"><param name="X" type="float"/><param name="Y" type="float"/><param name="Z" type="float"/></accessor></technique_common></source>
<vertices id="v"><input semantic="POSITION" source="#p"/></vertices><triangles count="1" material="s"><input semantic="VERTEX" source="#v" offset="0"/><input semantic="NORMAL" source="#n" offset="1"/><p>0 0 1 0 2 0</p></triangles></mesh></geometry></library_geometries>
<library_visual_scenes><visual_scene id="w"><node><instance_geometry url="#g"><bind_material><technique_common><instance_material symbol="s" target="#m"/></technique_common></bind_material></instance_geometry></node></visual_scene></library_visual_scenes><scene><instance_visual_scene url="#w"/></scene></COLLADA>`,
  "red.gltf": JSON.stringify({
    asset: { version: "2.0" }, scene: 0, scenes: [{ nodes: [0] }], nodes: [{ mesh: 0 }],
    materials: [{ doubleSided: true, pbrMetallicRoughness: { baseColorFactor: [1, 0, 0, 1], metallicFactor: 0 } }],
    meshes: [{ primitives: [{ attributes: { POSITION: 0 }, material: 0 }] }],
    accessors: [{ bufferView: 0, componentType: 5126, count: 3, type: "VEC3", min: [0, 0, 0], max: [2, 0, 2] }],
    bufferViews: [{ buffer: 0, byteLength: 36 }],
    // Its y is up.
    buffers: [{ byteLength: 36, uri: `data:application/octet-stream;base64,${Buffer.from(Float32Array.of(0, 0, 0, 0, 0, 2, 2, 0, 0).buffer).toString("base64")}` }],
  }),
};

async function meshes({ step, until, open, serve, path_of, hues }) {
  await step("meshes in OBJ, COLLADA and glTF are drawn, in their own colours or in the description's", async () => {
    fs.mkdirSync(path_of("shapes"), { recursive: true });
    for (const [name, text] of Object.entries(MESHES)) fs.writeFileSync(path_of(`shapes/${name}`), text);
    const part = (name, at) => `<link name="${name}"><visual><geometry><mesh filename="package://shapes/${name}"/></geometry>${name.startsWith("green") ? '<material name="m"><color rgba="0 1 0 1"/></material>' : ""}</visual></link><joint name="to ${name}" type="fixed"><parent link="base_link"/><child link="${name}"/><origin xyz="${at} 0 0"/></joint>`;
    fs.writeFileSync(path_of("shapes/shapes.urdf"), `<robot name="shapes"><link name="base_link"/>${Object.keys(MESHES).map((name, at) => part(name, at * 3)).join("")}</robot>`);
    const fixed = (t) => ({ topic: "/tf_static", type: "tf2_msgs/TFMessage", schema, t, data: { transforms: [{ header: { frame_id: "map" }, child_frame_id: "base_link", transform: { translation: { x: 0, y: 0, z: 0 }, rotation: { x: 0, y: 0, z: 0, w: 1 } } }] } });
    fs.writeFileSync(path_of("shapes.mcap"), mcap([fixed(1e9), fixed(2e9)]));
    const { url } = await serve("serve", "shapes.mcap", "--urdf", "shapes/shapes.urdf", "--package", "shapes");
    const view = await open(`${url}#t=0.5`);
    await view.page.locator(".layers", { hasText: "robot shapes" }).waitFor();
    await until("all three colours", async () => Object.values(await hues(view.page, ".scene canvas")).every((count) => count > 40));
    assert.equal(await view.page.locator(".layers", { hasText: "not drawn" }).count(), 0);
    assert.deepEqual(view.complaints, []);
    await view.close();
  });
}

async function keyboard({ demo, step, until, open, pixels }) {
  await step("the keyboard turns the 3D view, zooms the time and presses buttons", async () => {
    const view = await open(`${demo.url}#t=12`);
    const { page } = view;
    await page.locator(".scene[data-framed]").waitFor();
    const canvas = page.locator(".scene canvas");
    const drawn = () => pixels(page, ".scene canvas");
    await until("it is drawn", async () => !/^(none|0*)$/.test(await drawn()));
    await page.waitForTimeout(1500);
    const slider = page.getByRole("slider", { name: "Position in the recording" });
    const at = await slider.getAttribute("aria-valuenow");
    await canvas.focus();
    for (const key of ["ArrowLeft", "ArrowUp", "Shift+ArrowRight", "+", "-"]) {
      const before = await drawn();
      await page.keyboard.press(key);
      await until(`${key} changes the view`, async () => (await drawn()) !== before);
    }
    assert.equal(await slider.getAttribute("aria-valuenow"), at, "the keys of the view do not seek");
    await page.keyboard.press("f");
    await page.evaluate(() => document.activeElement?.blur());
    const plot = page.locator(".panel[data-kind=plot] .u-over");
    await plot.waitFor();
    let [whole, still] = ["", 0];
    await until("all lines are drawn", async () => {
      const before = whole;
      whole = await pixels(page, ".panel[data-kind=plot] canvas");
      still = whole === before ? still + 1 : 0;
      return still > 10;
    });
    await page.keyboard.press("+");
    await until("the plot is zoomed", async () => (await pixels(page, ".panel[data-kind=plot] canvas")) !== whole);
    await page.keyboard.press("0");
    await until("and back", async () => (await pixels(page, ".panel[data-kind=plot] canvas")) === whole);
    // A button that was reached with the tab key is pressed with the space bar, and nothing plays.
    const before = await page.locator(".panel").count();
    await page.getByRole("button", { name: "Close Log" }).focus();
    await page.keyboard.press("Shift+Tab");
    await page.keyboard.press("Tab");
    await page.keyboard.press("Space");
    await until("it is closed", async () => (await page.locator(".panel").count()) === before - 1);
    await page.getByRole("button", { name: "Play (space)" }).waitFor();
    assert.deepEqual(view.complaints, []);
    await view.close();
  });
}

async function heights({ step, until, open, serve, path_of, hues }) {
  const turn = { x: 0, y: 0, z: 0, w: 1 };
  const pose = { position: { x: 10, y: -4, z: 0 }, orientation: turn };
  const header = { frame_id: "map" };
  const [rows, columns] = [20, 30];
  const layer = (value) => ({ layout: { dim: [{ label: "column_index", size: columns, stride: rows * columns }, { label: "row_index", size: rows, stride: rows }], data_offset: 0 }, data: Array.from({ length: rows * columns }, (_, at) => value(at % rows, Math.floor(at / rows))) });
  const seen = (view) => hues(view.page, ".scene canvas");
  await step("a grid map is coloured from its least to its greatest, layer by layer", async () => {
    // Heights fall along x; the slope is the same everywhere but in one corner.
    const map = (t) => ({ topic: "/heights", type: "grid_map_msgs/GridMap", schema, t, data: { header, info: { resolution: 0.5, length_x: 10, length_y: 15, pose }, layers: ["slope", "height"], basic_layers: ["height"], data: [layer((row, column) => (row + column === 0 ? 1 : 0)), layer((row) => (row < 10 ? 2.5 : -1.5))], outer_start_index: 0, inner_start_index: 0 } });
    fs.writeFileSync(path_of("heights.mcap"), mcap([map(1e9), map(2e9)]));
    const { url } = await serve("serve", "heights.mcap");
    const view = await open(`${url}#t=0.5`);
    await until("one half is red, the other is blue", async () => (await seen(view)).red > 1000 && (await seen(view)).blue > 1000);
    const row = view.page.locator('.layer[data-name="/heights"]');
    assert.equal(await row.getAttribute("data-drawn"), "600");
    await row.getByText("height -1.5 … 2.5").waitFor();
    await view.page.getByRole("button", { name: "Settings of /heights" }).click();
    await view.page.getByLabel("layer of /heights").selectOption("slope");
    await row.getByText("slope 0 … 1").waitFor();
    await until("nearly all is blue", async () => (await seen(view)).red < 200 && (await seen(view)).blue > 2000);
    await view.page.getByLabel("colours of /heights").selectOption("map");
    await until("in shades", async () => (await seen(view)).blue < 100);
    assert.deepEqual(view.complaints, []);
    await view.close();
  });
  await step("costs of Nav2 have the colours of a costmap, and a map without a size says so", async () => {
    const origin = { position: { x: 0, y: 0, z: 0 }, orientation: turn };
    const costs = (t) => ({ topic: "/local", type: "nav2_msgs/Costmap", schema, t, data: { header, metadata: { resolution: 0.1, size_x: 40, size_y: 40, origin, layer: "m" }, data: Array.from({ length: 1600 }, (_, at) => (at < 800 ? 252 : 20)) } });
    const flat = (t) => ({ topic: "/flat", type: "nav_msgs/OccupancyGrid", schema, t, data: { header, info: { resolution: 0, width: 2, height: 2, origin }, data: [0, 0, 0, 0] } });
    fs.writeFileSync(path_of("costs.mcap"), mcap([1e9, 2e9].flatMap((t) => [costs(t), flat(t)])));
    const { url } = await serve("serve", "costs.mcap");
    const view = await open(`${url}#t=0.5`);
    await until("what is dear is red, what is cheap is blue", async () => (await seen(view)).red > 1000 && (await seen(view)).blue > 1000);
    await view.page.locator('.layer[data-name="/flat"] label[title*="resolution is 0"]').waitFor();
    assert.deepEqual(view.complaints, []);
    await view.close();
  });
}

async function narrow({ demo, step, open }) {
  await step("on a small screen, the names of panels are not cut", async () => {
    const view = await open(`${demo.url}#t=2`, { viewport: { width: 800, height: 600 } });
    await view.page.locator(".panel[data-kind=log] .line").first().waitFor();
    const cut = await view.page.locator(".bar select:not(.title)").evaluateAll((all) =>
      all.filter((one) => {
        const before = one.getBoundingClientRect().width;
        one.style.cssText = "flex: none; max-width: none; min-width: max-content";
        return one.getBoundingClientRect().width > before + 1;
      }).map((one) => one.getAttribute("aria-label")),
    );
    assert.deepEqual(cut, []);
    const outside = await view.page.locator(".bar").evaluateAll((all) => all.filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.parentElement?.getAttribute("aria-label")));
    assert.deepEqual(outside, []);
    await view.close();
  });
}

async function tiles({ step, until, open, serve, path_of }) {
  const fix = (t) => ({ topic: "/fix", type: "sensor_msgs/NavSatFix", schema, t: t * 1e9, data: { header: { frame_id: "gps" }, latitude: 48.1 + t * 1e-4, longitude: 11.5 + t * 1e-4, altitude: 500 } });
  await step("a map is fetched from the server that was named, and from nowhere without one", async () => {
    fs.writeFileSync(path_of("gps.mcap"), mcap([1, 2, 3, 4].map(fix)));
    const green = Buffer.from('<svg xmlns="http://www.w3.org/2000/svg" width="256" height="256"><rect width="256" height="256" fill="#00c800"/></svg>');
    const asked = [];
    const server = http.createServer((request, response) => {
      asked.push([request.url, request.headers.referer]);
      response.writeHead(200, { "content-type": "image/svg+xml" });
      response.end(green);
    });
    await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address();
    const plain = await serve("serve", "gps.mcap");
    const without = await open(`${plain.url}#t=1`);
    const others = [];
    without.page.on("request", (request) => !request.url().startsWith(plain.url) && /^http/.test(request.url()) && others.push(request.url()));
    await without.page.locator(".panel[data-kind=map] canvas").waitFor();
    await without.page.waitForTimeout(500);
    assert.deepEqual([others, asked], [[], []]);
    await without.close();
    const { url } = await serve("serve", "gps.mcap", "--tiles", `http://127.0.0.1:${port}/{z}/{x}/{y}.png`);
    const view = await open(`${url}#t=1`);
    await until("tiles are asked for", async () => asked.some(([path]) => /^\/\d+\/\d+\/\d+\.png$/.test(path)));
    // Tiles of another origin taint the canvas, so its pixels can be read only from a screenshot.
    const green_pixels = async () => {
      const shot = (await view.page.locator(".panel[data-kind=map] canvas").screenshot()).toString("base64");
      return view.page.evaluate(async (shot) => {
        const image = new Image();
        image.src = `data:image/png;base64,${shot}`;
        await image.decode();
        const context = new OffscreenCanvas(64, 64).getContext("2d");
        context.drawImage(image, 0, 0, 64, 64);
        const { data } = context.getImageData(0, 0, 64, 64);
        let count = 0;
        for (let at = 0; at < data.length; at += 4) if (data[at + 1] > 100 && data[at] < 80 && data[at + 2] < 80) count++;
        return count;
      }, shot);
    };
    await until("the map is under the track", async () => (await green_pixels()) > 2000);
    assert.ok(asked.every(([, referer]) => referer === undefined), "it is not told where it is shown");
    assert.deepEqual(view.complaints, []);
    await view.close();
    server.close();
  });
}

async function video({ step, until, open, serve, path_of, hues }) {
  const packets = film(40, 16);
  const packet = (type, field) => (data, at) => ({ topic: "/video", type, schema, t: 1e9 + at * 1e8, data: { timestamp: { sec: 1, nsec: 0 }, frame_id: "camera", data: data.toString("base64"), [field]: "h264" } });
  for (const [type, field] of [["foxglove.CompressedVideo", "format"], ["ffmpeg_image_transport_msgs/msg/FFMPEGPacket", "encoding"]])
    await step(`video (${type}) is shown at any moment, as all packets since the last key frame make it`, async () => {
      fs.writeFileSync(path_of("video.mcap"), mcap(packets.map(packet(type, field))));
      const { url } = await serve("serve", "video.mcap");
      const view = await open(`${url}#t=0`);
      /** So many of the 16 blocks are red. */
      const red = async () => Math.round(((await hues(view.page, ".picture")).red / 65536) * 16);
      const seek = (t) => view.page.evaluate((t) => (location.hash = `t=${t}`), t);
      await until("the first picture", async () => (await hues(view.page, ".picture")).blue > 60000);
      for (const [t, wanted] of [[0.5, 5], [1.5, 15], [1.6, 0], [2.2, 6], [0.3, 3], [3.9, 7]]) {
        await seek(t);
        const said = async () => `${await red()} blocks, ${await view.page.locator(".image").innerText()}`;
        await until(`${wanted} red blocks at ${t} s`, async () => (await red()) === wanted).catch(async (error) => assert.fail(`${error.message}; there are ${await said()}`));
      }
      await seek(0);
      await until("the start", async () => (await red()) === 0);
      await view.page.keyboard.press("Space");
      await until("it plays on to its end", async () => (await red()) === 7, 20000);
      assert.deepEqual(view.complaints, []);
      await view.close();
    });
  await step("the film that is exported of it plays in a browser, each picture when it was logged", async () => {
    // The second half is twice as slow.
    const at = (index) => 1e9 + (index < 8 ? index : 8 + (index - 8) * 2) * 1e8;
    fs.writeFileSync(path_of("film.mcap"), mcap(packets.slice(0, 16).map((data, index) => ({ ...packet("foxglove.CompressedVideo", "format")(data, 0), t: at(index) }))));
    execFileSync(ASOF_BIN, ["export", "film.mcap", "-o", "films", "--format", "video", "-q"], { cwd: ASOF_FOLDER, stdio: "ignore" });
    const bytes = fs.readFileSync(path_of("films/video.mp4")).toString("base64");
    const view = await open("about:blank");
    const shown = await view.page.evaluate(async (bytes) => {
      const video = document.createElement("video");
      video.muted = true;
      video.src = `data:video/mp4;base64,${bytes}`;
      await new Promise((resolve, reject) => ((video.oncanplay = resolve), (video.onerror = () => reject(new Error(video.error?.message)))));
      const context = new OffscreenCanvas(64, 64).getContext("2d", { willReadFrequently: true });
      const red = [];
      for (const t of [0.05, 0.55, 0.95, 1.55]) {
        video.currentTime = t;
        await new Promise((resolve) => (video.onseeked = resolve));
        context.drawImage(video, 0, 0);
        const { data } = context.getImageData(0, 0, 64, 64);
        let count = 0;
        for (let at = 0; at < data.length; at += 4) if (data[at] > 2 * data[at + 2]) count++;
        red.push(Math.round(count / 256));
      }
      return { duration: video.duration, red };
    }, bytes);
    assert.deepEqual(shown.red, [0, 5, 8, 11]);
    assert.ok(Math.abs(shown.duration - 2.4) < 0.01, `${shown.duration} s`);
    await view.close();
  });
  await step("video that the browser lacks the codec for, or that has no key frame, says so", async () => {
    const odd = { ...packet("foxglove.CompressedVideo", "format")(Buffer.from([0, 0, 0, 1, 0x42, 1, 1, 1, 0x60, 0, 0, 3, 0, 0x90, 0, 0, 3, 0, 0, 3, 0, 0x5d, 0, 0, 1, 0x26, 1]), 0) };
    odd.data.format = "h265";
    const headless = { ...packet("foxglove.CompressedVideo", "format")(packets[3], 0), topic: "/headless" };
    fs.writeFileSync(path_of("odd.mcap"), mcap([odd, headless]));
    const { url } = await serve("serve", "odd.mcap");
    const view = await open(`${url}#t=0`);
    await view.page.getByText(/cannot decode H\.265 \(hev1\.1\.6\.L93\.90\)|This video cannot be decoded/).waitFor();
    await view.page.getByText("there is no keyframe on").waitFor();
    await view.close();
  });
}

