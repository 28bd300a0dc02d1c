"""The verbs of the command, as methods of a recording."""

from __future__ import annotations

import pickle

import asof
import pyarrow.parquet as pq
import pytest
from asof import errors


def test_a_recording_is_split_and_its_parts_are_all_of_it(rec, tmp_path):
    made = rec.split(tmp_path / "part.mcap", every="10s", topics=["/odom", "/imu"])
    assert [part["output"].rsplit("/", 1)[-1] for part in made["parts"]] == ["part_0.mcap", "part_1.mcap", "part_2.mcap"]
    parts = asof.open([part["output"] for part in made["parts"]])
    assert parts.topics["/odom"].messages == 1500 and set(parts) == {"/odom", "/imu"}
    with pytest.raises(ValueError, match="every="):
        rec.split(tmp_path / "x.mcap")


def test_a_damaged_recording_is_told_and_recovered(demo_path, tmp_path):
    cut = tmp_path / "cut.mcap"
    cut.write_bytes(demo_path.read_bytes()[: demo_path.stat().st_size // 2])
    rec = asof.open(cut)
    assert not rec.doctor()["healthy"] and asof.open(demo_path).doctor()["healthy"]
    saved = rec.recover(tmp_path / "saved.mcap")
    again = asof.open(tmp_path / "saved.mcap")
    assert saved["messages"] == sum(topic.messages for topic in again.topics.values()) > 1000
    with pytest.raises(errors.WriteError):
        rec.recover(tmp_path / "saved.mcap")
    rec.recover(tmp_path / "saved.mcap", force=True)


def test_topics_are_exported(rec, tmp_path):
    assert rec.export(tmp_path / "out", topics=["/odom"], start="+1s", end="+2s")
    [path] = (tmp_path / "out").iterdir()
    assert pq.read_table(path).num_rows == 50
    with pytest.raises(ValueError, match="ndjson"):
        rec.export(tmp_path / "other", format="xml")


def test_a_recording_meets_its_own_expectations_and_equals_itself(rec, demo_path, tmp_path):
    (tmp_path / "own.toml").write_text(rec.expectations())
    report = rec.check(tmp_path / "own.toml")
    assert report["verdicts"] if "verdicts" in report else report
    assert rec.diff(asof.open(demo_path)) == []
    rec.convert(tmp_path / "less.mcap", topics=["/odom"])
    assert rec.diff(asof.open(tmp_path / "less.mcap")) != []
    (tmp_path / "wrong.toml").write_text("what = 1")
    with pytest.raises(asof.Error, match="wrong.toml"):
        rec.check(tmp_path / "wrong.toml")


def test_poses_are_written_as_a_trajectory(rec, tmp_path):
    path = tmp_path / "odom.tum"
    count = rec["/odom"].write_poses(path, "tum", start="+1s", end="+2s")
    lines = path.read_text().splitlines()
    assert count == len(lines) == 50 and all(len(line.split()) == 8 for line in lines)
    with pytest.raises(errors.WriteError):
        rec["/odom"].write_poses(path)
    with pytest.raises(ValueError, match="kitti"):
        rec["/odom"].write_poses(path, "svg")
    with pytest.raises(asof.Error, match="no poses"):
        rec["/imu"].write_poses(tmp_path / "imu.csv")


def test_a_shifted_recording_has_other_names_and_times_everywhere(rec, tmp_path):
    shifted = rec.shifted("/before", by=-1_000_000_000)
    assert set(shifted) == {f"/before{topic}" for topic in rec} and shifted.start == rec.start - 1_000_000_000
    for other in (shifted, pickle.loads(pickle.dumps(shifted))):
        first, moved = next(iter(rec["/odom"])), next(iter(other["/before/odom"]))
        assert (moved.log_time, moved.raw) == (first.log_time - 1_000_000_000, first.raw)
        assert other["/before/odom"].read(columns=["stamp"]).to_numpy("stamp")[0] == rec["/odom"].to_numpy("stamp")[0]
    made = shifted.split(tmp_path / "part.mcap", every="1h", topics=["/before/odom"])
    assert set(asof.open(made["parts"][0]["output"])) == {"/before/odom"}
