"""LeRobot datasets, read by pyarrow, and by lerobot where it is there."""

from __future__ import annotations

import base64
import io
import json
import shutil

import asof.lerobot
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from asof import errors
from conftest import run_asof

MAPPING = {
    "observation.state": ["/joint_states.position", "/odom.twist.twist.linear.x"],
    "action": ["/cmd_vel.linear.x", "/cmd_vel.angular.z"],
    "observation.images.front": "/camera/image",
}


@pytest.fixture(scope="module")
def dataset(demo_path, tmp_path_factory):
    short = tmp_path_factory.mktemp("lerobot") / "short.mcap"
    asof.open(demo_path).convert(short, end="+6s")
    folder = short.parent / "out"
    made = asof.lerobot.export([short, short], folder, hz=10, mapping=MAPPING, task="drive", videos=False)
    assert made.episodes == 2 and made.features["observation.images.front"] == "image"
    return short, folder, made.frames


def test_a_dataset_has_the_files_of_version_3(dataset):
    _, folder, frames = dataset
    info = json.loads((folder / "meta/info.json").read_text())
    assert info["codebase_version"] == "v3.0"
    assert (info["total_episodes"], info["total_frames"], info["fps"]) == (2, frames, 10)
    assert info["features"]["action"] == {"dtype": "float32", "shape": [2], "names": MAPPING["action"]}
    assert info["features"]["observation.images.front"]["dtype"] == "image"
    rows = pq.read_table(folder / "data/chunk-000/file-000.parquet")
    assert rows.num_rows == frames and set(rows.column_names) == set(info["features"])
    episodes = pq.read_table(folder / "meta/episodes/chunk-000/file-000.parquet").to_pylist()
    assert [one["dataset_from_index"] for one in episodes] == [0, frames // 2]
    assert episodes[1]["dataset_to_index"] == frames and episodes[0]["tasks"] == ["drive"]
    assert pd.read_parquet(folder / "meta/tasks.parquet").loc["drive", "task_index"] == 0


def test_frames_are_what_was_known_then(dataset):
    short, folder, frames = dataset
    rec = asof.open(short)
    rows = pq.read_table(folder / "data/chunk-000/file-000.parquet").to_pylist()
    first = rows[0]
    # The first frame is the first at which everything is known.
    known = None
    for step in range(20):
        known = rec.at(rec.start + round(step * 1e8))
        if {"/joint_states", "/odom", "/cmd_vel", "/camera/image"} <= set(known):
            break
    wanted = [*known["/joint_states"].position, known["/odom"].twist.twist.linear.x]
    np.testing.assert_allclose(first["observation.state"], wanted, rtol=1e-6)
    # Pictures are kept as they were recorded.
    assert first["observation.images.front"]["bytes"] == known["/camera/image"].data["data"].tobytes()
    assert [row["index"] for row in rows] == list(range(frames))
    assert rows[frames // 2]["frame_index"] == 0 and rows[frames // 2]["episode_index"] == 1
    np.testing.assert_allclose(rows[7]["timestamp"], 0.7, rtol=1e-6)


def test_statistics_are_those_of_the_numbers(dataset):
    _, folder, _ = dataset
    stats = json.loads((folder / "meta/stats.json").read_text())
    rows = pq.read_table(folder / "data/chunk-000/file-000.parquet")
    action = np.array(rows["action"].to_pylist())
    np.testing.assert_allclose(stats["action"]["mean"], action.mean(axis=0), atol=1e-9)
    np.testing.assert_allclose(stats["action"]["std"], action.std(axis=0), atol=1e-9)
    np.testing.assert_allclose(stats["action"]["max"], action.max(axis=0))
    assert stats["action"]["count"] == [len(action)]
    assert np.array(stats["observation.images.front"]["mean"]).shape == (3, 1, 1)
    assert 0 <= np.min(stats["observation.images.front"]["min"]) <= np.max(stats["observation.images.front"]["max"]) <= 1


def test_episodes_by_time_and_by_a_topic(demo_path, tmp_path):
    mapping = {"action": ["/cmd_vel.linear.x"]}
    asof.lerobot.export(demo_path, tmp_path / "time", hz=10, mapping=mapping, episodes="10s")
    info = json.loads((tmp_path / "time/meta/info.json").read_text())
    assert info["total_episodes"] == 3
    # Each pressing of the bumper begins one, and letting go ends it.
    asof.lerobot.export(demo_path, tmp_path / "topic", hz=50, mapping=mapping, episodes="/bumper")
    info = json.loads((tmp_path / "topic/meta/info.json").read_text())
    pressed = [message for message in asof.open(demo_path)["/bumper"] if message.data["data"]]
    assert info["total_episodes"] == len(pressed) > 0


def test_what_cannot_be_a_dataset_is_said(demo_path, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    with pytest.raises(errors.WriteError, match="not empty"):
        asof.lerobot.export(demo_path, tmp_path / "full", hz=10, mapping=MAPPING)
    with pytest.raises(errors.TopicError, match="/nowhere"):
        asof.lerobot.export(demo_path, tmp_path / "a", hz=10, mapping={"observation.images.x": "/nowhere"})
    with pytest.raises(errors.MapError, match="29.97"):
        asof.lerobot.export(demo_path, tmp_path / "b", hz=29.97, mapping=MAPPING)
    with pytest.raises(errors.FieldError, match="is not a number"):
        asof.lerobot.export(demo_path, tmp_path / "c", hz=10, mapping={"action": ["/joint_states.name"]})


def test_pictures_that_were_not_compressed_become_png(tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    chance = np.random.default_rng(1)
    for name, shape, kind in [("rgb8", (4, 5, 3), np.uint8), ("16UC1", (4, 5), np.uint16)]:
        pixels = chance.integers(0, np.iinfo(kind).max, shape).astype(kind)
        with asof.Writer(tmp_path / f"{name}.mcap") as out:
            for at in range(3):
                data = base64.b64encode(pixels.tobytes()).decode()
                step = pixels.strides[0]
                picture = {"height": 4, "width": 5, "encoding": name, "is_bigendian": 0, "step": step, "data": data}
                schema = ("sensor_msgs/Image", "jsonschema", b"{}")
                out.write_raw("/camera", 1_000_000_000 * (at + 1), json.dumps(picture).encode(), "json", schema)
        mapping = {"observation.images.front": "/camera"}
        asof.lerobot.export(tmp_path / f"{name}.mcap", tmp_path / name, hz=1, mapping=mapping, videos=False)
        rows = pq.read_table(tmp_path / name / "data/chunk-000/file-000.parquet").to_pylist()
        file = rows[0]["observation.images.front"]["bytes"]
        np.testing.assert_array_equal(np.asarray(pillow.open(io.BytesIO(file))), pixels)
        info = json.loads((tmp_path / name / "meta/info.json").read_text())
        assert info["features"]["observation.images.front"]["shape"] == [4, 5, 3 if kind is np.uint8 else 1]


def test_pictures_become_a_video_where_there_is_ffmpeg(dataset, tmp_path):
    if shutil.which("ffmpeg") is None:
        pytest.skip("there is no ffmpeg")
    short, _, frames = dataset
    made = asof.lerobot.export([short, short], tmp_path / "out", hz=10, mapping=MAPPING, videos=True)
    assert made.features["observation.images.front"] == "video" and made.frames == frames
    episodes = pq.read_table(tmp_path / "out/meta/episodes/chunk-000/file-000.parquet").to_pylist()
    assert episodes[1]["videos/observation.images.front/from_timestamp"] == frames / 2 / 10
    assert (tmp_path / "out/videos/observation.images.front/chunk-000/file-000.mp4").stat().st_size > 1000
    module = pytest.importorskip("lerobot.datasets.lerobot_dataset", reason="lerobot is not installed")
    loaded = module.LeRobotDataset("local/test", root=tmp_path / "out")
    assert loaded[frames - 1]["observation.images.front"].shape == (3, 240, 320)


def test_the_command_makes_the_same(dataset, tmp_path):
    short, folder, _ = dataset
    features = "\n".join(f"{json.dumps(name)} = {json.dumps(paths)}" for name, paths in MAPPING.items())
    (tmp_path / "map.toml").write_text(f'hz = 10\ntask = "drive"\nvideos = false\n[features]\n{features}\n')
    done = run_asof("lerobot", str(short), str(short), "-o", str(tmp_path / "out"), "--config", str(tmp_path / "map.toml"))
    assert done.returncode == 0, done.stderr
    for name in ["meta/info.json", "meta/stats.json", "data/chunk-000/file-000.parquet"]:
        assert (tmp_path / "out" / name).read_bytes() == (folder / name).read_bytes(), name


def test_lerobot_loads_it(dataset):
    module = pytest.importorskip("lerobot.datasets.lerobot_dataset", reason="lerobot is not installed")
    _, folder, frames = dataset
    loaded = module.LeRobotDataset("local/test", root=folder)
    assert len(loaded) == frames and loaded.num_episodes == 2
    sample = loaded[3]
    assert tuple(sample["action"].shape) == (2,) and sample["task"] == "drive"
    assert sample["observation.images.front"].shape[0] == 3


def follow_the_rules(folder):
    """Reads a dataset as its format says, by its metadata alone; returns how many episodes and frames there are."""
    info = json.loads((folder / "meta/info.json").read_text())
    features = info["features"]
    tasks = pd.read_parquet(folder / "meta/tasks.parquet")
    assert sorted(tasks["task_index"]) == list(range(info["total_tasks"]))
    episodes = pd.concat([pd.read_parquet(path) for path in sorted((folder / "meta/episodes").rglob("*.parquet"))])
    assert episodes["episode_index"].tolist() == list(range(info["total_episodes"]))
    index = 0
    for episode in episodes.to_dict("records"):
        place = {"chunk_index": episode["data/chunk_index"], "file_index": episode["data/file_index"]}
        rows = pd.read_parquet(folder / info["data_path"].format(**place))
        rows = rows[rows["episode_index"] == episode["episode_index"]]
        assert set(rows.columns) == {name for name, feature in features.items() if feature["dtype"] != "video"}
        assert len(rows) == episode["length"] == episode["dataset_to_index"] - episode["dataset_from_index"]
        assert rows["index"].tolist() == list(range(index, index + len(rows))) and episode["dataset_from_index"] == index
        assert rows["frame_index"].tolist() == list(range(len(rows)))
        np.testing.assert_allclose(rows["timestamp"], rows["frame_index"] / info["fps"], atol=1e-4)
        assert set(tasks.index[rows["task_index"].unique()]) == set(episode["tasks"])
        for name, feature in features.items():
            if feature["dtype"] == "float32" and feature["shape"] != [1]:
                assert all(value.shape == tuple(feature["shape"]) for value in rows[name]), name
            if feature["dtype"] == "video":
                place = {"video_key": name, "chunk_index": episode[f"videos/{name}/chunk_index"]}
                place["file_index"] = episode[f"videos/{name}/file_index"]
                assert (folder / info["video_path"].format(**place)).stat().st_size > 0
                seconds = episode[f"videos/{name}/to_timestamp"] - episode[f"videos/{name}/from_timestamp"]
                assert round(seconds * info["fps"]) == len(rows)
        index += len(rows)
    assert index == info["total_frames"] and info["splits"] == {"train": f"0:{len(episodes)}"}
    stats = json.loads((folder / "meta/stats.json").read_text())
    for name, feature in features.items():
        if feature["dtype"] in ("float32", "int64"):
            assert stats[name]["count"] == [index] and len(stats[name]["mean"]) == feature["shape"][0], name
    return len(episodes), index


def test_a_dataset_follows_the_rules_of_its_format(dataset):
    _, folder, frames = dataset
    assert follow_the_rules(folder) == (2, frames)


@pytest.mark.parametrize("videos", [False, True])
def test_episodes_are_added_to_a_dataset(dataset, tmp_path, videos):
    if videos and shutil.which("ffmpeg") is None:
        pytest.skip("there is no ffmpeg")
    short, _, frames = dataset
    words = {"hz": 10, "mapping": MAPPING, "videos": videos, "append": True}
    for count, task in enumerate(["drive", "turn", "drive"], 1):
        made = asof.lerobot.export(short, tmp_path / "out", task=task, **words)
        assert made.episodes == 1 and made.frames == frames // 2
        assert follow_the_rules(tmp_path / "out") == (count, count * frames // 2)
    assert json.loads((tmp_path / "out/meta/info.json").read_text())["total_tasks"] == 2
    with pytest.raises(asof.Error, match="rate"):
        asof.lerobot.export(short, tmp_path / "out", **{**words, "hz": 20})
    with pytest.raises(errors.WriteError, match="append"):
        asof.lerobot.export(short, tmp_path / "out", **{**words, "append": False})
    module = pytest.importorskip("lerobot.datasets.lerobot_dataset", reason="lerobot is not installed")
    loaded = module.LeRobotDataset("local/test", root=tmp_path / "out")
    assert len(loaded) == 3 * frames // 2 and loaded.num_episodes == 3
    assert loaded[len(loaded) - 1]["task"] == "drive" and loaded[frames // 2]["task"] == "turn"


def test_joints_are_chosen_by_name(rec, dataset, tmp_path):
    short, _, frames = dataset
    names = next(rec.messages("/joint_states")).name
    mapping = {"action": [f"/joint_states.position[{names[1]}]", f"/joint_states.position[{names[0]}]"]}
    asof.lerobot.export(short, tmp_path / "out", hz=10, mapping=mapping)
    found = np.stack(pd.read_parquet(tmp_path / "out/data/chunk-000/file-000.parquet")["action"])
    asof.lerobot.export(short, tmp_path / "all", hz=10, mapping={"action": ["/joint_states.position"]})
    wanted = np.stack(pd.read_parquet(tmp_path / "all/data/chunk-000/file-000.parquet")["action"])
    np.testing.assert_array_equal(found, wanted[:, [1, 0]])
    with pytest.raises(errors.FieldError, match="elbow"):
        asof.lerobot.export(short, tmp_path / "none", hz=10, mapping={"action": ["/joint_states.position[elbow]"]})
