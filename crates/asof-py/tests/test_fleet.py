"""Folders of recordings as one database."""

from __future__ import annotations

import pickle
import shutil

import asof
import polars as pl
import pytest
from asof import errors


@pytest.fixture(scope="module")
def folder(demo_path, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fleet")
    for name in ("r1/monday.mcap", "r1/tuesday.mcap", "r2/monday.mcap"):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(demo_path, folder / name)
    (folder / "r2/broken.mcap").write_bytes(b"not a recording")
    return folder


@pytest.fixture(scope="module")
def fleet(folder):
    fleet = asof.fleet(folder)
    with pytest.warns(asof.DecodeWarning, match="broken"):
        run = fleet.index()
    assert (run.recordings, run.opened) == (4, 4)
    return fleet


def test_a_fleet_without_a_catalogue_says_so(tmp_path):
    fleet = asof.fleet(tmp_path)
    assert not fleet.is_indexed
    for ask in (fleet.find, fleet.recordings, lambda: fleet.sql("SELECT 1 FROM odom")):
        with pytest.raises(errors.FleetError, match=r"no catalogue yet; index\(\) makes it"):
            ask()


def test_only_what_is_new_is_opened_again(fleet):
    assert fleet.is_indexed
    again = fleet.index()
    assert (again.recordings, again.opened, again.unchanged) == (4, 0, 4)


def test_recordings_are_found_without_opening_one(fleet, rec, folder):
    hits = fleet.find(topics="/odom")
    assert len(hits) == 3 and sorted(hits.to_polars()["recording"]) == ["r1/monday.mcap", "r1/tuesday.mcap", "r2/monday.mcap"]
    frame = hits.to_polars()
    assert frame["topics"].to_list() == [["/odom"]] * 3
    assert frame["start"].dt.timestamp("ns").to_list() == [rec.start] * 3
    assert frame["messages"].to_list() == [sum(topic.messages for topic in rec.topics.values())] * 3
    assert len(fleet.find(topics=["/nowhere"])) == 0
    assert len(fleet.find(since=rec.end + 1)) == 0 and len(fleet.find(since=rec.start, until=rec.end)) == 3
    assert len(fleet.find(where="messages > 1000000")) == 0
    assert len(fleet.find()) == 4 and fleet.to_pandas()["problems"].sum() >= 1
    with pytest.raises(errors.TimeError):
        fleet.find(since="+5s")
    with pytest.raises(errors.QueryError):
        fleet.find(where="messages >")


def test_libraries_take_what_was_found_as_a_table(fleet):
    hits = fleet.find(topics="/odom")
    duckdb = pytest.importorskip("duckdb")
    assert pl.DataFrame(hits).height == 3 and "address" in pl.DataFrame(hits).columns
    assert duckdb.sql("SELECT count(*) FROM hits").fetchall() == [(3,)]


def test_recordings_are_opened_by_their_first_reader(fleet, rec):
    with pytest.warns(asof.DecodeWarning, match="cannot be read"):
        found = fleet.recordings()
    assert len(found) == 3 and all(one.topics["/odom"] == rec.topics["/odom"] for one in found)
    assert [len(one["/odom"].to_numpy("stamp")) for one in fleet.recordings(topics="/odom")] == [1500] * 3
    assert fleet.recordings(topics="/nowhere") == []


def test_a_watch_says_what_each_run_found(folder, fleet, tmp_path):
    runs = fleet.watch(pause="10ms")
    assert next(runs).opened == 0
    shutil.copy(folder / "r1/monday.mcap", folder / "r1/wednesday.mcap")
    try:
        assert next(runs).opened == 1
    finally:
        (folder / "r1/wednesday.mcap").unlink()
    assert next(runs).vanished == 1


def test_what_was_found_are_recordings_and_places(fleet, rec):
    hits = fleet.find(topics="/odom")
    assert hits[0].topics == rec.topics and [one.start for one in hits] == [rec.start] * 3
    assert len(hits[1:]) == 2 and all(place.endswith(".mcap") for place in hits.places)
    data = asof.torch.Dataset(hits, hz=10, state=["/odom.pose.pose.position.x"])
    assert len(data._parts) == 3


def test_tags_are_set_found_and_removed(fleet):
    assert fleet.tag("r1/monday.mcap", weather="rain")["weather"] == "rain"
    hits = fleet.find(tags={"weather": "rain"})
    assert hits.to_polars()["recording"].to_list() == ["r1/monday.mcap"]
    assert dict(hits.to_arrow()["tags"].to_pylist()[0])["weather"] == "rain"
    assert "weather" not in fleet.tag("r1/monday.mcap", weather=None)
    assert len(fleet.find(tags={"weather": "rain"})) == 0
    with pytest.raises(errors.FleetError, match="nothing.mcap"):
        fleet.tag("nothing.mcap", weather="rain")


def test_queries_go_over_all_recordings(fleet, rec):
    try:
        table = fleet.sql("SELECT recording, count(*) AS n FROM odom GROUP BY 1 ORDER BY 1")
    except errors.UnavailableError:
        pytest.skip("this build has no engine for SQL")
    assert table.to_polars()["n"].to_list() == [1500] * 3
    sites = pl.DataFrame({"recording": table.to_polars()["recording"], "site": ["a", "b", "b"]})
    joined = fleet.sql('SELECT s.site AS place, count(*) AS n FROM odom o JOIN own s ON o.recording = s.recording GROUP BY 1 ORDER BY 1', own=sites)
    assert joined.to_polars().to_dict(as_series=False) == {"place": ["a", "b"], "n": [1500, 3000]}


def test_a_fleet_pickles_by_its_place(fleet):
    again = pickle.loads(pickle.dumps(fleet))
    assert len(again.find(topics="/odom")) == 3 and repr(again) == repr(fleet)
