"""Queries in SQL, in builds that have an engine; in others, how to get one."""

from __future__ import annotations

import polars as pl
import pytest
from asof import errors


@pytest.fixture(scope="module")
def query(rec):
    try:
        rec.sql("SELECT 1")
    except errors.UnavailableError:
        pytest.skip("this build has no engine for SQL")
    return rec.sql


def test_a_build_without_an_engine_says_how_to_get_one(rec):
    try:
        rec.sql("SELECT 1")
    except errors.UnavailableError as error:
        assert "maturin build" in str(error) and "duckdb" in str(error)


def test_a_topic_is_a_table(rec, query):
    found = query('SELECT count(*) AS n, max(twist.twist.linear.x) AS fastest FROM "/odom"').to_polars()
    assert found["n"].to_list() == [rec.topics["/odom"].messages]
    assert found["fastest"].to_list() == [rec["/odom"].to_numpy("twist.twist.linear.x").max()]


def test_rows_are_read_again_and_again(query):
    table = query('SELECT stamp FROM "/scan"')
    assert table.to_arrow().num_rows == table.to_arrow().num_rows > 0
    assert table.columns == ["stamp"]


def test_libraries_take_rows_on_threads_of_their_own(rec, query):
    table = query('SELECT log_time, stamp FROM "/imu"')
    count = rec.topics["/imu"].messages
    assert pl.DataFrame(table).height == count and pl.LazyFrame(pl.DataFrame(table)).collect().height == count
    assert sum(len(batch) for batch in table.batches(100)) == count


def test_a_wrong_query_is_an_error_with_a_sentence(query):
    with pytest.raises(errors.QueryError, match="nowhere"):
        query("SELECT * FROM nowhere")
