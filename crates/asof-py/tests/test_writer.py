"""Recordings that Python writes are read by others."""

from __future__ import annotations

import asof
import numpy as np
import polars as pl
import pytest
from asof import errors


def test_messages_are_written_as_they_were(rec, tmp_path):
    path = tmp_path / "out.mcap"
    with asof.Writer(path) as out:
        out.write("/odom", rec["/odom"].read(start="+10s"))
        out.write("/pose", rec["/odom"])
        out.write("/scan", rec.messages("/scan"))
        out.write("/one", next(rec.messages("/imu")))
        assert out.written == 1000 + 1500 + 300 + 1
        assert not path.exists()
    new = asof.open(path)
    assert {name: topic.messages for name, topic in new.topics.items()} == {
        "/odom": 1000,
        "/pose": 1500,
        "/scan": 300,
        "/one": 1,
    }
    assert [m.raw for m in new["/pose"]] == [m.raw for m in rec["/odom"]]
    assert new["/odom"].to_polars().equals(rec["/odom"].to_polars(start="+10s"))
    assert new.topics["/odom"].type == "nav_msgs/msg/Odometry"


def test_others_read_what_was_written(rec, tmp_path):
    from mcap.reader import make_reader
    from mcap_ros2.decoder import DecoderFactory

    path = tmp_path / "out.mcap"
    with asof.Writer(path, compression="lz4") as out:
        out.write("/odom", rec["/odom"])
    with open(path, "rb") as file:
        reader = make_reader(file, decoder_factories=[DecoderFactory()])
        x = [message.pose.pose.position.x for _, _, _, message in reader.iter_decoded_messages()]
    np.testing.assert_array_equal(x, rec["/odom"].to_numpy("pose.pose.position.x"))


def test_frames_become_messages_with_a_schema(tmp_path):
    frame = pl.DataFrame(
        {
            "log_time": pl.Series([10, 20, 30]).cast(pl.Datetime("ns")),
            "x": [1.5, float("nan"), -0.1],
            "name": ["a", 'b"', None],
            "list": [[1, 2], [], [3]],
            "inner": [{"y": 1}, {"y": 2}, {"y": 3}],
            "raw": [b"\x00\xff", b"", b"abc"],
            "small": pl.Series([0.1, 0.2, 0.3], dtype=pl.Float32),
        }
    )
    path = tmp_path / "out.mcap"
    with asof.Writer(path) as out:
        out.write("/frame", frame)
        out.write("/frame", frame.rename({"log_time": "when"}), log_time="when")
        out.write("/note", {"text": "hello", "values": np.arange(3)}, log_time=40)
    rec = asof.open(path)
    assert rec["/frame"].to_numpy("log_time").astype(int).tolist() == [10, 10, 20, 20, 30, 30]
    first, *_, last = rec["/frame"]
    assert (first.data.x, first.data.name, first.data.inner.y) == (1.5, "a", 1)
    assert list(first.data.list) == [1, 2] and abs(first.data.small - 0.1) < 1e-12
    assert last.data.name is None and list(last.data.list) == [3]
    [note] = rec["/note"]
    assert note.log_time == 40 and note.data.text == "hello" and list(note.data["values"]) == [0, 1, 2]


def test_a_join_is_written_too(rec, tmp_path):
    path = tmp_path / "out.mcap"
    joined = rec.join("/scan", "/odom", columns={"/scan": [], "/odom": ["pose.pose.position.x"]})
    with asof.Writer(path) as out:
        out.write("/joined", joined)
    assert asof.open(path).topics["/joined"].messages == 300


def test_a_recording_can_be_written_over_itself(rec, tmp_path):
    path = tmp_path / "run.mcap"
    rec.convert(path, ["/odom", "/imu"])
    again = asof.open(path)
    with asof.Writer(path) as out:
        out.write("/odom", again["/odom"])
    assert list(asof.open(path).topics) == ["/odom"]
    assert len(list(again.messages())) == 7500


def test_a_cut_has_its_topics_and_its_time(rec, tmp_path):
    path = tmp_path / "cut.mcap"
    assert rec.convert(path, topics=["/odom", "/tf*"], start="+10s", end="+11s") == 100
    assert set(asof.open(path).topics) == {"/odom", "/tf"}


def test_what_cannot_be_written_is_said(rec, tmp_path):
    path = tmp_path / "out.mcap"
    with pytest.raises(errors.WriteError, match="no/such"):
        asof.Writer(tmp_path / "no/such/folder.mcap")
    with pytest.raises(errors.WriteError, match="folder"):
        asof.Writer(tmp_path)
    with pytest.raises(ValueError, match="zstd, lz4 and none"):
        asof.Writer(path, compression="rar")
    with pytest.raises(KeyError), asof.Writer(path) as out:
        out.write("/odom", next(rec.messages("/odom")))
        with pytest.raises(TypeError, match="cannot be written"):
            out.write("/odom", 7)
        with pytest.raises(errors.FieldError, match="no time column"):
            out.write("/odom", pl.DataFrame({"x": [1]}))
        with pytest.raises(ValueError):
            out.write("/odom", {"x": float("nan")})
        raise KeyError("an error of one's own")
    # What was written before it is there.
    assert asof.open(path).topics["/odom"].messages == 1
    with pytest.raises(errors.WriteError, match="closed"):
        out.write("/odom", {})
    out.close()
