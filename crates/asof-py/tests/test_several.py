"""Several recordings at once: each row says which of them it is from, and no row mixes them."""

from __future__ import annotations

import pickle

import asof
import polars as pl
import pytest
from asof import errors

SECOND = 1_000_000_000


def recording(path, start, rows, **topics):
    """A row of numbers each second on every topic, counted from its first number."""
    with asof.Writer(path) as out:
        for topic, first in topics.items():
            times = [start + at * SECOND for at in range(rows)]
            out.write(f"/{topic}", pl.DataFrame({"log_time": times, "x": [first + at for at in range(rows)]}))
    return str(path)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Two robots at the same time, the second a little later."""
    folder = tmp_path_factory.mktemp("two")
    a = recording(folder / "a.mcap", 1_000 * SECOND, 5, odom=0.0, imu=100.0)
    b = recording(folder / "b.mcap", 1_000 * SECOND + SECOND // 4, 5, odom=50.0, imu=500.0)
    return a, b


@pytest.mark.parametrize("how", ["nearest", "last", "next", "before", "after", "interpolate"])
def test_a_join_keeps_recordings_apart(two, how):
    both = asof.open(two).join("/odom", "/imu", how=how, columns=["x"])
    assert both.columns[:2] == ["recording", "time"]
    frame = both.to_polars()
    assert frame["recording"].to_list() == [place for place in two for _ in range(5)]
    alone = [asof.open(place).join("/odom", "/imu", how=how, columns=["x"]).to_polars() for place in two]
    assert frame.drop("recording").equals(pl.concat(alone))
    assert sum(len(batch) for batch in both.batches(rows=2)) == 10


def test_a_grid_is_that_of_each_recording(two):
    frame = asof.open(two).resample("/odom", hz=2, columns=["x"]).to_polars()
    for place in two:
        alone = asof.open(place).resample("/odom", hz=2, columns=["x"]).to_polars()
        assert frame.filter(recording=place).drop("recording").equals(alone)


def test_as_one_they_are_joined_across(two):
    one = asof.open(two).as_one()
    frame = one.join("/odom", "/imu", how="before", columns=["x"]).to_polars()
    assert "recording" not in frame.columns
    # The last before is that of the other robot, but for the first of all.
    assert frame["/imu.x"].to_list()[1:] == [100.0, 500.0, 101.0, 501.0, 102.0, 502.0, 103.0, 503.0, 104.0]
    again = pickle.loads(pickle.dumps(one.join("/odom", "/imu", how="before", columns=["x"])))
    assert again.to_polars().equals(frame)


def test_topics_that_were_recorded_apart_belong_together(tmp_path):
    camera = recording(tmp_path / "camera.mcap", 1_000 * SECOND, 5, image=0.0)
    base = recording(tmp_path / "base.mcap", 1_000 * SECOND, 5, odom=10.0)
    frame = asof.open([camera, base]).join("/image", "/odom", columns=["x"]).to_polars()
    assert frame["/odom.x"].to_list() == [10.0, 11.0, 12.0, 13.0, 14.0]
    assert frame["recording"].null_count() == 5
    assert asof.open([camera, base]).resample(["/image", "/odom"], hz=1).to_polars().height == 5


def test_one_without_the_topics_is_left_out(two, tmp_path):
    other = recording(tmp_path / "other.mcap", 1_000 * SECOND, 5, gps=0.0)
    frame = asof.open([*two, other]).join("/odom", "/imu", columns=["x"]).to_polars()
    assert set(frame["recording"]) == set(two)


def test_errors_are_those_of_one_recording(two):
    with pytest.raises(errors.TopicError, match="/nowhere"):
        asof.open(two).join("/odom", "/nowhere")
    with pytest.raises(errors.FieldError, match="y"):
        asof.open(two).join("/odom", "/imu", columns=["y"])
    with pytest.raises(errors.AlignError, match="rate"):
        asof.open(two).resample("/odom", hz=0)


def test_a_query_names_recordings(two):
    try:
        found = asof.open(two).sql("SELECT recording, count(*) AS n, min(x) AS x FROM odom GROUP BY 1 ORDER BY 3").to_polars()
    except errors.UnavailableError:
        pytest.skip("this build has no engine for SQL")
    assert found.rows() == [(two[0], 5, 0.0), (two[1], 5, 50.0)]


def test_a_topic_is_in_order_of_time_and_each_row_names_its_recording(two):
    odom = asof.open(two)["/odom"]
    assert odom.columns[:2] == ["recording", "log_time"]
    frame = odom.to_polars()
    assert frame["recording"].to_list() == list(two) * 5
    assert frame["x"].to_list() == [0.0, 50.0, 1.0, 51.0, 2.0, 52.0, 3.0, 53.0, 4.0, 54.0]
    for place in two:
        alone = asof.open(place)["/odom"].to_polars()
        assert frame.filter(recording=place).drop("recording").equals(alone)
        lazy = odom.lazy().filter(recording=place).select("recording", "x").collect()
        assert lazy["x"].to_list() == alone["x"].to_list()
    assert odom.read(["x", "recording"]).columns == ["x", "recording"]
    assert odom.read(["x"]).columns == ["x"] and odom.to_numpy("x")[1] == 50.0
    assert sum(len(batch) for batch in odom.batches(rows=3)) == 10
    again = pickle.loads(pickle.dumps(odom.read()))
    assert again.to_polars().equals(frame)
    assert "recording" not in asof.open(two).as_one()["/odom"].columns


def test_one_place_is_no_several(two):
    assert "recording" not in asof.open(two[0]).join("/odom", "/imu").columns
    assert asof.open(list(two)).topics["/odom"].messages == 10
