"""The words of the first page, on the demo."""

from __future__ import annotations

import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import asof
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest


def test_a_recording_says_what_it_holds(rec):
    assert rec.end - rec.start > 29_000_000_000
    assert rec.problems == []
    assert 49 < rec.topics["/odom"].hz < 51
    assert rec.topics["/odom"].messages == 1500
    assert rec.topics["/odom"].type == "nav_msgs/msg/Odometry"
    assert rec.info().topics == rec.topics
    assert "/odom" in rec and "/nowhere" not in rec
    assert rec.format == "mcap" and not rec.is_growing


def test_it_prints_in_a_terminal_and_in_a_notebook(rec):
    assert "/odom" in repr(rec) and "50.0 Hz" in repr(rec)
    page = rec._repr_html_()
    assert "<td style='text-align:left'>/odom</td>" in page and "50.0 Hz" in page


def test_what_a_file_says_of_itself_is_no_markup(tmp_path):
    path = tmp_path / "run.mcap"
    mcap_of(path, "/<b>bold", [(1, {"x": 1})])
    page = asof.open(path)._repr_html_()
    assert "/<b>" not in page and "/&lt;b&gt;bold" in page


def test_several_places_are_one_recording(demo_path):
    both = asof.open([demo_path, str(demo_path)])
    assert both.topics["/odom"].messages == 3000
    assert asof.open(demo_path, demo_path).topics["/odom"].messages == 3000


def test_a_table_is_read_again_and_again(rec):
    table = rec["/odom"].read(columns=["stamp", "pose.pose.position"], start="+10s", end="+20s")
    assert table.columns == ["stamp", "pose.pose.position"]
    first, second = pl.DataFrame(table), pl.DataFrame(table)
    assert first.equals(second)
    assert first.height == 500
    assert pa.table(table).num_rows == 500
    times = first["stamp"].dt.timestamp("ns")
    assert times.min() >= rec.start + 9_900_000_000 and times.max() <= rec.start + 20_000_000_000


def test_duckdb_takes_a_table(rec):
    duckdb = pytest.importorskip("duckdb")
    odom = rec["/odom"].read(columns=["twist.twist.linear.x"])  # noqa: F841
    for _ in range(2):
        [(count, mean)] = duckdb.sql('SELECT count(*), avg("twist.twist.linear.x") FROM odom').fetchall()
        assert count == 1500 and abs(mean) < 1


def test_a_topic_goes_into_every_library(rec):
    odom = rec["/odom"]
    arrow, polars, frame = odom.to_arrow(), odom.to_polars(), odom.to_pandas()
    assert arrow.num_rows == polars.height == len(frame) == 1500
    assert arrow.column_names == polars.columns == list(frame.columns)
    x = odom.to_numpy("twist.twist.linear.x")
    assert x.dtype == np.float64 and x.shape == (1500,)
    wanted = polars["twist"].struct.field("twist").struct.field("linear").struct.field("x").to_numpy()
    np.testing.assert_array_equal(x, wanted)
    assert pl.DataFrame(odom).equals(polars)


def test_columns_become_the_arrays_that_numpy_has_for_them(rec):
    assert rec["/odom"].to_numpy("stamp").dtype == "datetime64[ns]"
    assert rec["/odom"].to_numpy("pose.covariance").shape == (1500, 36)
    place = rec["/odom"].to_numpy("pose.pose.position")
    assert place.dtype.names == ("x", "y", "z") and len(place) == 1500
    assert rec["/scan"].to_numpy("ranges").shape == (300, len(next(rec.messages("/scan")).data.ranges))
    assert rec["/bumper"].to_numpy("data").dtype == bool
    assert rec["/rosout"].to_numpy("msg").dtype == object
    assert rec["/joint_states"].to_numpy("position[1]").dtype == np.float64
    every = rec["/imu"].read(columns=["log_time", "linear_acceleration.z"]).to_numpy()
    assert list(every) == ["log_time", "linear_acceleration.z"]


def test_batches_are_bounded(rec):
    sizes = [len(batch) for batch in rec["/imu"].batches(rows=1000)]
    assert sizes == [1000] * 6
    rows = pl.concat([pl.DataFrame(batch) for batch in rec["/imu"].batches(rows=999)])
    assert rows.equals(rec["/imu"].to_polars())


def test_messages_come_one_by_one_in_order(rec):
    times, topics = [], set()
    for m in rec.messages("/odom", "/tf*"):
        times.append(m.log_time)
        topics.add(m.topic)
        if m.topic == "/odom":
            assert m.data["pose"] is m.data.pose
            assert m.data.pose.pose.orientation.w == m.pose.pose.orientation.w
    assert topics == {"/odom", "/tf", "/tf_static"} and len(times) == 3001
    assert times == sorted(times)
    assert len(list(rec.messages("/odom", start="+1s", end="+2s"))) == 50
    assert sum(1 for _ in rec.messages()) == sum(topic.messages for topic in rec.topics.values())
    first = next(iter(rec["/odom"]))
    assert first.stamp == first.header.stamp.sec * 10**9 + first.header.stamp.nanosec
    assert isinstance(first.raw, bytes) and len(first.raw) == len(first)


def test_what_was_known_as_of_a_time(rec):
    known = rec.at("+12.5s")
    assert set(known) == set(rec.topics) - {"/bumper"} | (set(known) & {"/bumper"})
    pose = known["/odom"].pose
    rows = rec["/odom"].to_polars(end="+12.5s")
    assert known["/odom"].log_time == rows["log_time"].dt.timestamp("ns")[-1]
    assert pose.pose.position.x == rows["pose"][-1]["pose"]["position"]["x"]
    assert set(rec.at("+12.5s", "/odom", "/sc*")) == {"/odom", "/scan"}
    assert rec.at(rec.start - 1) == {}


def test_a_table_can_do_without_views(rec):
    with_views = rec["/camera/image"].read(columns=["data"]).to_arrow()
    without = rec["/camera/image"].read(columns=["data"], views=False).to_arrow()
    assert with_views.schema.field("data").type == pa.binary_view()
    assert without.schema.field("data").type == pa.binary()
    assert [bytes(value) for value in with_views["data"].to_pylist()] == without["data"].to_pylist()
    frame = rec["/camera/image"].to_pandas(types_mapper=pd.ArrowDtype)
    assert len(frame) == 300


def head_of(topic: asof.Topic) -> tuple[str, int]:
    return topic.name, len(topic.to_numpy("log_time"))


def test_objects_pickle_by_address(rec):
    again = pickle.loads(pickle.dumps(rec))
    assert again.topics == rec.topics
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        found = list(pool.map(head_of, [rec["/odom"], rec["/imu"]]))
    assert found == [("/odom", 1500), ("/imu", 6000)]
    record = next(rec.messages("/odom")).data
    assert pickle.loads(pickle.dumps(record)).pose.pose == record.pose.pose


def test_the_command_is_in_the_wheel(demo_path):
    from conftest import run_asof

    done = run_asof("info", str(demo_path))
    assert done.returncode == 0 and "/odom" in done.stdout
    assert run_asof("info", "nowhere.mcap").returncode == 1
    assert run_asof("inf").returncode == 2


def mcap_of(path, topic, messages):
    """A recording of JSON messages."""
    import json

    from mcap.writer import Writer

    with open(path, "wb") as file:
        writer = Writer(file)
        writer.start()
        channel = writer.register_channel(topic, "json", 0)
        for at, value in messages:
            payload = value if isinstance(value, bytes) else json.dumps(value).encode()
            writer.add_message(channel, at, payload, at)
        writer.finish()
