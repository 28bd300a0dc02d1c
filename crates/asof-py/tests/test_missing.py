"""What is missing: every way of reading is asked about topics without messages, frames that nobody knows, messages without stamps, fields that
are null, and times at which there is nothing. Nothing is made up: there are no rows, or they are null."""

from __future__ import annotations

import json
import warnings

import asof
import numpy as np
import pytest
from asof import errors
from mcap.writer import Writer

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND
#: What each message on /some says: some of it is null, or not there.
SOME = [{"x": 1.5, "n": 1, "t": "a"}, {"x": None, "n": None, "t": None}, {}, {"x": -2.5, "n": 4, "t": "d"}]


@pytest.fixture(scope="module")
def gaps(tmp_path_factory):
    """A topic without messages, one with null fields and without stamps, and one with a message a second."""
    path = tmp_path_factory.mktemp("gaps") / "gaps.mcap"
    number = {"type": ["number", "null"]}
    fields = {"x": number, "n": {"type": ["integer", "null"]}, "t": {"type": ["string", "null"]}}
    schema = json.dumps({"type": "object", "properties": fields}).encode()
    with open(path, "wb") as file:
        writer = Writer(file)
        writer.start()
        kind = writer.register_schema("some/Numbers", "jsonschema", schema)
        empty, some, full = (writer.register_channel(topic, "json", kind) for topic in ("/empty", "/some", "/full"))
        assert empty != some
        for at in range(10):
            if at < len(SOME):
                writer.add_message(some, START + at * SECOND, json.dumps(SOME[at]).encode(), START + at * SECOND)
            payload = json.dumps({"x": float(at), "n": at, "t": str(at)}).encode()
            writer.add_message(full, START + at * SECOND, payload, START + at * SECOND)
        writer.finish()
    return asof.open(path)


def sql_rows(rec, topic, **part):
    bounds = [f"log_time >= '{part['start']}'"] if "start" in part else []
    bounds += [f"log_time <= '{part['end']}'"] if "end" in part else []
    where = f" WHERE {' AND '.join(bounds)}" if bounds else ""
    try:
        return rec.sql(f'SELECT count(*) AS n FROM "{topic}"{where}').to_polars()["n"].item()
    except errors.UnavailableError:
        pytest.skip("this build has no engine for SQL")


def written(rec, topic, tmp_path, **part):
    path = tmp_path / "out.mcap"
    rec.convert(path, topics=topic, **part)
    return sum(1 for _ in asof.open(path).messages())


def exported(rec, topic, tmp_path, **part):
    import pyarrow.parquet as pq

    assert rec.export(tmp_path / "tables", topics=topic, **part)
    return sum(pq.read_table(file).num_rows for file in (tmp_path / "tables").rglob("*.parquet"))


#: How many rows or messages each way of reading finds.
READERS = {
    "read": lambda rec, topic, _, **part: sum(len(batch) for batch in rec[topic].read(**part).batches()),
    "batches": lambda rec, topic, _, **part: sum(len(batch) for batch in rec[topic].batches(rows=3, **part)),
    "to_arrow": lambda rec, topic, _, **part: rec[topic].to_arrow(**part).num_rows,
    "to_polars": lambda rec, topic, _, **part: rec[topic].to_polars(**part).height,
    "to_pandas": lambda rec, topic, _, **part: len(rec[topic].to_pandas(**part)),
    "to_numpy": lambda rec, topic, _, **part: len(rec[topic].to_numpy("x", **part)),
    "lazy": lambda rec, topic, _, **part: rec[topic].lazy(**part).collect().height,
    "messages": lambda rec, topic, _, **part: sum(1 for _ in rec[topic].messages(**part)),
    "rec.messages": lambda rec, topic, _, **part: sum(1 for _ in rec.messages(topic, **part)),
    "follow": lambda rec, topic, _, **part: sum(1 for _ in rec[topic].follow(**part)),
    "join": lambda rec, topic, _, **part: rec.join(topic, "/full" if topic == "/some" else "/some", **part).to_polars().height,
    "sql": lambda rec, topic, _, **part: sql_rows(rec, topic, **part),
    "convert": written,
    "export": exported,
}


@pytest.fixture(params=READERS)
def count(request, tmp_path):
    read = READERS[request.param]
    return lambda rec, topic, **part: read(rec, topic, tmp_path, **part)


def test_a_topic_without_messages_has_no_rows(gaps, count):
    assert count(gaps, "/empty") == 0


def test_what_is_null_is_a_row_all_the_same(gaps, count):
    assert count(gaps, "/some") == len(SOME)


@pytest.mark.parametrize(
    ("start", "end"), [("+20s", None), ("-30s", "+0s"), ("2001-01-01", "2001-01-02"), ("2100-01-01", None), ("+5s", "+4s")]
)
def test_a_time_at_which_there_is_nothing_has_no_rows(gaps, count, start, end):
    part = {name: time for name, time in (("start", start), ("end", end)) if time is not None}
    if start == "-30s":
        # Before the start, where its first message is not yet.
        part = {"start": START - 30 * SECOND, "end": START - 1}
    if any(isinstance(time, int) for time in part.values()) and count.__closure__[0].cell_contents is READERS["sql"]:
        part = {"start": "2023-11-14T22:12:50Z", "end": "2023-11-14T22:13:19Z"}
    assert count(gaps, "/full", **part) == 0


def test_a_topic_that_is_not_there_is_an_error(gaps, count):
    with pytest.raises((errors.TopicError, errors.QueryError), match="nowhere"):
        count(gaps, "/nowhere")


def test_null_fields_are_nothing_in_every_library(gaps):
    topic = gaps["/some"]
    np.testing.assert_array_equal(topic.to_numpy("x"), [1.5, np.nan, np.nan, -2.5])
    assert topic.to_polars(["x", "n", "t"]).to_dict(as_series=False) == {
        "x": [1.5, None, None, -2.5],
        "n": [1, None, None, 4],
        "t": ["a", None, None, "d"],
    }
    assert topic.to_arrow(["n"])["n"].null_count == 2
    assert topic.to_pandas(["t"])["t"].isna().tolist() == [False, True, True, False]
    assert topic.lazy().select("x").collect()["x"].null_count() == 2
    assert [m.x for m in topic if "x" in m.data] == [1.5, None, -2.5] or [m.x for m in topic] == [1.5, None, None, -2.5]


def test_null_fields_are_not_counted_in_sql(gaps):
    try:
        found = gaps.sql('SELECT count(x) AS n, sum(x) AS x, avg(n) AS mean FROM "/some"').to_polars()
        none = gaps.sql('SELECT count(x) AS n, sum(x) AS x FROM "/empty"').to_polars()
    except errors.UnavailableError:
        pytest.skip("this build has no engine for SQL")
    assert found.rows() == [(2, -1.0, 2.5)]
    assert none.rows() == [(0, None)]


def test_without_stamps_there_is_no_stamp(gaps):
    assert "stamp" not in gaps["/full"].columns
    assert all(message.stamp is None for message in gaps["/full"])
    with pytest.raises(errors.FieldError, match="stamp"):
        gaps["/full"].to_numpy("stamp")
    with pytest.raises(errors.FieldError, match="stamp"):
        gaps.join("/full", "/some", on="stamp")
    # Not asked for, log times are taken.
    assert gaps.join("/full", "/some", columns=["x"]).to_polars().height == 10


@pytest.mark.parametrize("how", ["nearest", "last", "before", "next", "after", "interpolate"])
def test_a_side_without_messages_is_null(gaps, how):
    joined = gaps.join("/full", "/empty", how=how, columns={"/full": ["x"], "/empty": ["x", "t"]}).to_polars()
    assert joined.height == 10
    assert joined["/empty.x"].null_count() == joined["/empty offset"].null_count() == joined["/empty.t"].null_count() == 10
    grid = gaps.resample(["/full", "/empty"], hz=2, how=how, columns=["x"]).to_polars()
    assert grid.height == 19 and grid["/empty.x"].null_count() == 19


@pytest.mark.parametrize(
    ("how", "nulls"), [("nearest", 0), ("last", 2), ("before", 3), ("next", 4), ("after", 5), ("interpolate", 6)]
)
def test_beyond_the_ends_nothing_is_made_up(gaps, how, nulls):
    """/full from 2 s to 5 s is the side: before it and after it there is nothing, but for the nearest."""
    path = gaps.places[0] + f".{how}.mcap"
    with asof.Writer(path) as out:
        out.write("/all", gaps["/full"].read())
        out.write("/mid", gaps["/full"].read(start="+2s", end="+5s"))
    joined = asof.open(path).join("/all", "/mid", how=how, columns=["x"]).to_polars()
    assert joined["/mid.x"].null_count() == nulls
    wanted = {
        "nearest": [2, 2, 2, 3, 4, 5, 5, 5, 5, 5],
        "last": [None, None, 2, 3, 4, 5, 5, 5, 5, 5],
        "before": [None, None, None, 2, 3, 4, 5, 5, 5, 5],
        "next": [2, 2, 2, 3, 4, 5, None, None, None, None],
        "after": [2, 2, 3, 4, 5, None, None, None, None, None],
        "interpolate": [None, None, 2, 3, 4, 5, None, None, None, None],
    }
    assert joined["/mid.x"].to_list() == wanted[how]


def test_a_topic_beside_itself_is_refused(gaps):
    with pytest.raises(errors.AlignError, match="/full is named twice"):
        gaps.join("/full", ["/some", "/full"])
    with pytest.raises(errors.AlignError, match="/full is named twice"):
        gaps.resample(["/full", "/full"], hz=1)


def test_what_was_known_is_what_was_there(gaps):
    assert gaps.at(START - 1) == {}
    assert gaps.at("2001-01-01") == {} and gaps.at(0) == {}
    assert set(gaps.at("+0s")) == {"/some", "/full"}
    assert gaps.at("2100-01-01")["/full"].n == 9
    assert "/empty" not in gaps.at("-0s")
    with pytest.raises(errors.TopicError, match="nowhere"):
        gaps.at("+1s", "/nowhere")


def test_a_field_that_is_not_there_is_an_error_that_names_the_others(gaps):
    for read in (lambda: gaps["/full"].to_numpy("y"), lambda: gaps["/full"].to_polars(["y"])):
        with pytest.raises(errors.FieldError, match="y"):
            read()
    with pytest.raises(AttributeError, match="it has .*x"):
        next(iter(gaps["/full"])).y
    with pytest.raises(errors.FieldError, match="y"):
        gaps.join("/full", "/some", columns=["y"])


def test_a_recording_without_transforms_has_no_frames(gaps):
    buffer = gaps.tf()
    assert buffer.frames() == [] and not buffer.can_transform("map", "base_link", START)
    with pytest.raises(errors.LookupException, match="map"):
        buffer.lookup_transform("map", "base_link", START)


def test_an_unknown_frame_is_nowhere(rec):
    buffer = rec.tf()
    stamps = rec["/odom"].to_numpy("stamp")[:5]
    with pytest.raises(errors.LookupException, match="nowhere"):
        buffer.lookup_transform("map", "nowhere", rec.start)
    assert not buffer.can_transform("map", "nowhere", rec.start)
    for target, source in (("map", "nowhere"), ("nowhere", "map")):
        with pytest.raises(errors.LookupException, match="nowhere"):
            buffer.lookup_many(target, source, stamps)
        with pytest.raises(errors.LookupException, match="nowhere"):
            buffer.transform_points(target, source, np.ones((5, 3)), stamps)
        with pytest.raises(errors.LookupException, match="nowhere"):
            buffer.path(target, source, hz=10)


def test_a_time_beyond_the_transforms_is_an_extrapolation(rec):
    buffer = rec.tf()
    for time in (rec.start - 100 * SECOND, rec.end + 100 * SECOND):
        with pytest.raises(errors.ExtrapolationException):
            buffer.lookup_transform("odom", "base_link", time)
        assert not buffer.can_transform("odom", "base_link", time)
    translations, _, mask = buffer.lookup_many("odom", "base_link", [rec.start - 100 * SECOND, rec.end + 100 * SECOND])
    assert not mask.any() and np.isnan(translations).all()


def test_a_transform_that_is_not_there_is_null_in_sql(rec):
    query = (
        "SELECT count(*) AS n, count(tf('map', 'nowhere', stamp)) AS whole, count(tf('map', 'nowhere', stamp)['translation']['x']) AS x, "
        "sum(CASE WHEN tf('map', 'nowhere', stamp) IS NULL THEN 1 ELSE 0 END) AS nulls FROM odom"
    )
    try:
        found = rec.sql(query).to_polars()
    except errors.UnavailableError:
        pytest.skip("this build has no engine for SQL")
    count = rec.topics["/odom"].messages
    assert found.rows() == [(count, 0, 0, count)]


def test_samples_of_what_is_missing(gaps):
    with pytest.raises(errors.FieldError, match="nowhere"):
        asof.torch.Dataset([gaps.places[0]], hz=1, state=["/nowhere.x"])
    # Nothing of it is known at any time, so there is no sample.
    assert len(asof.torch.Dataset([gaps.places[0]], hz=1, state=["/empty.x"])) == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        samples = asof.torch.Dataset([gaps.places[0]], hz=1, state=["/some.x"])
        state = [np.asarray(samples[at]["state"]).item() for at in range(4)]
    np.testing.assert_array_equal(state, [1.5, np.nan, np.nan, -2.5])
