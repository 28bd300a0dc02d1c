"""Queries in SQL, in builds that have an engine; in others, how to get one."""

from __future__ import annotations

from datetime import timedelta

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


def test_tables_of_your_own_are_beside_the_topics(rec, query, tmp_path):
    start = pl.from_epoch(pl.Series([rec.start, rec.start + 10_000_000_000]), "ns").dt.replace_time_zone("UTC")
    labels = pl.DataFrame({"start": start, "stop": start + timedelta(seconds=5), "label": ["a", "b"]})
    sql = (
        "SELECT l.label, count(*) AS n FROM odom o JOIN labels l ON o.log_time >= l.start AND o.log_time < l.stop GROUP BY 1 ORDER BY 1"
    )
    wanted = {"label": ["a", "b"], "n": [250, 250]}
    for own in (labels, labels.to_arrow(), labels.to_pandas()):
        assert query(sql, labels=own).to_polars().to_dict(as_series=False) == wanted
    labels.write_parquet(tmp_path / "labels.parquet")
    labels.write_ipc(tmp_path / "labels.arrow")
    labels.write_csv(tmp_path / "labels.csv")
    for name in ("labels.parquet", "labels.arrow", "labels.csv"):
        table = query(sql, labels=tmp_path / name)
        assert table.to_polars().to_dict(as_series=False) == wanted, name
        assert table.to_polars().height == 2


def test_a_table_of_your_own_that_cannot_be_read_is_said(query, tmp_path):
    with pytest.raises(errors.QueryError, match="nothing.parquet"):
        query("SELECT * FROM labels", labels=tmp_path / "nothing.parquet")
    with pytest.raises(errors.QueryError, match="local file"):
        query("SELECT * FROM labels", labels="s3://bucket/labels.parquet")
    (tmp_path / "labels.txt").write_text("a")
    with pytest.raises(errors.QueryError, match="labels.txt"):
        query("SELECT * FROM labels", labels=tmp_path / "labels.txt")
    with pytest.raises(errors.QueryError, match="'odom'"):
        query("SELECT 1", odom=pl.DataFrame({"x": [1]}))


def test_a_lazy_frame_is_collected_and_what_is_no_table_is_said(query):
    assert query("SELECT sum(a) AS a FROM own", own=pl.LazyFrame({"a": [1, 2]})).to_polars()["a"].to_list() == [3]
    for wrong in ({"a": [1]}, [{"a": 1}], 5):
        with pytest.raises(TypeError, match=f"own is a {type(wrong).__name__}; a table is a polars"):
            query("SELECT * FROM own", own=wrong)
