"""LazyFrames of polars: the same rows as eager ones, and no more of a recording is read than they need."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import asof
import polars as pl
import pytest
from asof._lazy import time_bounds

X = "twist.twist.linear.x"


class Told:
    """What is asked of a topic."""

    def __init__(self, table):
        self.parts = []
        self._part = table._part
        table.__class__ = type("Watched", (type(table),), {"__slots__": (), "_part": self.part})

    def part(self, columns, bounds):
        self.parts.append((columns, bounds))
        return self._part(columns, bounds)


def at(rec, seconds):
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=(rec.start + seconds * 1_000_000_000) // 1000)


def test_a_lazy_topic_has_the_rows_of_an_eager_one(rec):
    for topic in ("/odom", "/scan", "/rosout", "/camera/image", "/tf"):
        assert rec[topic].lazy().collect().equals(rec[topic].to_polars()), topic


def test_only_the_columns_and_the_times_of_a_query_are_read(rec):
    table = rec["/odom"].read(columns=["log_time", "stamp", X, "twist.twist.angular.z"])
    told = Told(table)
    start, end = at(rec, 10), at(rec, 20)
    frame = table.lazy().filter((pl.col("log_time") >= start) & (pl.col("log_time") < end) & (pl.col(X) > 0.9)).select(X).collect()
    whole = table.to_polars()
    wanted = whole.filter((pl.col("log_time") >= start) & (pl.col("log_time") < end) & (pl.col(X) > 0.9)).select(X)
    assert frame.equals(wanted) and 0 < frame.height < 500
    [(columns, (first, last))] = told.parts
    assert set(columns) == {"log_time", X}
    assert rec.start + 9_999_000_000 <= first <= rec.start + 10_000_000_000
    assert rec.start + 19_999_000_000 <= last <= rec.start + 20_000_000_000


def test_a_range_that_was_given_stays(rec):
    lazy = rec["/odom"].lazy(start="+5s", end="+15s")
    start, end = at(rec, 10), at(rec, 20)
    frame = lazy.filter(pl.col("log_time").is_between(start, end)).collect()
    whole = rec["/odom"].to_polars(start="+5s", end="+15s")
    assert frame.equals(whole.filter(pl.col("log_time").is_between(start, end))) and frame.height > 200
    assert lazy.filter(pl.col("log_time") > at(rec, 16)).collect().height == 0


def test_first_rows_and_counts_are_those_of_the_table(rec):
    lazy = rec["/imu"].lazy()
    whole = rec["/imu"].to_polars()
    assert lazy.head(7).collect().equals(whole.head(7))
    assert lazy.head(100).filter(pl.col("log_time") > at(rec, 0.1)).collect().equals(
        whole.head(100).filter(pl.col("log_time") > at(rec, 0.1))
    )
    assert lazy.select(pl.len()).collect().item() == 6000
    assert lazy.tail(3).collect().equals(whole.tail(3))


def test_joins_of_ours_are_lazy_too(rec):
    table = rec.join("/scan", ["/odom"], columns={"/scan": [], "/odom": [X]})
    frame = table.lazy().filter(pl.col(f"/odom.{X}").is_not_null()).collect()
    assert frame.equals(table.to_polars().filter(pl.col(f"/odom.{X}").is_not_null()))


@pytest.mark.parametrize(
    ("predicate", "wanted"),
    [
        (pl.col("log_time") > pl.lit(5).cast(pl.Int64), (None, None)),
        (pl.col("stamp") > datetime(2026, 1, 1, tzinfo=timezone.utc), (None, None)),
        ((pl.col("log_time") > datetime(2026, 1, 1, tzinfo=timezone.utc)) | (pl.col("x") > 1), (None, None)),
        (~(pl.col("log_time") > datetime(2026, 1, 1, tzinfo=timezone.utc)), (None, None)),
        (pl.col("log_time") != datetime(2026, 1, 1, tzinfo=timezone.utc), (None, None)),
        (pl.col("log_time").dt.year() > 2020, (None, None)),
    ],
)
def test_what_is_not_plainly_a_range_limits_nothing(predicate, wanted):
    assert time_bounds(predicate) == wanted


def test_a_field_that_gave_way_to_a_time_is_read_by_its_column(tmp_path):
    from test_words import mcap_of

    path = tmp_path / "run.mcap"
    mcap_of(path, "/x", [(at, {"log_time": at * 2, "a.b": at}) for at in range(1, 5)])
    lazy = asof.open(path)["/x"].lazy()
    names = lazy.collect_schema().names()
    for name in names:
        assert lazy.select(name).collect().height == 4, name


def test_duckdb_takes_topics_joins_and_queries_as_streams(rec):
    duckdb = pytest.importorskip("duckdb")
    topic = rec["/odom"]  # noqa: F841
    joined = rec.join("/scan", ["/odom"], columns={"/scan": [], "/odom": [X]})  # noqa: F841
    assert duckdb.sql("SELECT count(*) FROM topic").fetchall() == [(1500,)]
    assert duckdb.sql("SELECT count(*) FROM joined").fetchall() == [(300,)]
    assert duckdb.sql("SELECT count(*) FROM topic JOIN joined ON topic.stamp = joined.time").fetchall()[0][0] >= 0
