"""Topics side by side, against pandas' merge_asof and polars' join_asof."""

from __future__ import annotations

import asof
import numpy as np
import pandas as pd
import polars as pl
import pytest
from asof import errors

PLACE, TURN, SPEED = "pose.pose.position.x", "angular_velocity.z", "linear.x"
DIRECTION = {"nearest": "nearest", "last": "backward"}


def frames(rec, anchor, others):
    """The topics as frames, sorted by stamp, as pandas and polars want them."""
    left = rec[anchor].read(columns=["stamp"]).to_pandas().dropna().sort_values("stamp", kind="stable")
    right = {
        topic: rec[topic].read(columns=["stamp", path]).to_pandas().dropna().sort_values("stamp", kind="stable")
        for topic, path in others.items()
    }
    return left, right


@pytest.mark.parametrize("how", ["nearest", "last"])
@pytest.mark.parametrize("tolerance", [None, "3ms"])
def test_a_join_is_what_pandas_and_polars_make_of_it(rec, how, tolerance):
    others = {"/odom": PLACE, "/imu": TURN}
    columns = {"/camera/image": [], **{topic: [path] for topic, path in others.items()}}
    ours = rec.join("/camera/image", list(others), how=how, on="stamp", tolerance=tolerance, columns=columns).to_pandas()
    left, right = frames(rec, "/camera/image", others)
    assert len(ours) == len(left) == 300
    limit = None if tolerance is None else pd.Timedelta(tolerance)
    for topic, path in others.items():
        merged = pd.merge_asof(left, right[topic], on="stamp", direction=DIRECTION[how], tolerance=limit)
        np.testing.assert_array_equal(ours[f"{topic}.{path}"], merged[path])
        strategy = DIRECTION[how]
        joined = pl.from_pandas(left).join_asof(
            pl.from_pandas(right[topic]), on="stamp", strategy=strategy, tolerance=tolerance
        )
        np.testing.assert_array_equal(ours[f"{topic}.{path}"], joined[path].to_numpy())


def test_offsets_say_how_far_away_it_was(rec):
    table = rec.join("/camera/image", ["/odom"], columns={"/camera/image": ["stamp"], "/odom": ["stamp"]}).to_numpy()
    late = (table["/odom.stamp"] - table["time"]).astype(np.int64)
    np.testing.assert_array_equal(late, table["/odom offset"])
    np.testing.assert_array_equal(table["/camera/image.stamp"], table["time"])


@pytest.mark.parametrize("name", ["turtlesim-lz4.bag", "nav2-turtlebot-zstd.mcap", "scan-cmdvel.db3"])
def test_real_recordings_are_joined_as_pandas_does(data, name):
    rec = asof.open(data / name)
    stamped = [topic for topic in rec if rec.topics[topic].messages > 5 and "log_time" in columns_of(rec, topic)]
    assert len(stamped) >= 2
    anchor, other = stamped[0], stamped[1]
    ours = rec.join(anchor, other, how="last", on="log_time", columns={anchor: [], other: ["log_time"]}).to_pandas()
    left = rec[anchor].read(columns=["log_time"]).to_pandas().rename(columns={"log_time": "time"})
    right = rec[other].read(columns=["log_time"]).to_pandas()
    merged = pd.merge_asof(left, right, left_on="time", right_on="log_time")
    pd.testing.assert_series_equal(ours[f"{other}.log_time"], merged["log_time"], check_names=False)


def columns_of(rec, topic):
    try:
        return rec[topic].columns
    except asof.errors.DecodeError:
        return []


def test_a_grid_is_what_numpy_interpolates(rec):
    columns = {"/joint_states": ["position"], "/odom": [PLACE]}
    grid = rec.resample(["/joint_states", "/odom"], hz=30, how="interpolate", columns=columns, or_nearest=True).to_numpy()
    assert len(grid["time"]) == 900
    steps = np.diff(grid["time"]).astype(np.int64)
    assert set(steps) <= {33_333_333, 33_333_334}
    stamps = rec["/odom"].to_numpy("stamp").astype(np.int64) - rec.start
    wanted = np.interp(grid["time"].astype(np.int64) - rec.start, stamps, rec["/odom"].to_numpy(PLACE))
    np.testing.assert_allclose(grid[f"/odom.{PLACE}"], wanted, atol=1e-9)
    positions = rec["/joint_states"].to_numpy("position")
    stamps = rec["/joint_states"].to_numpy("stamp").astype(np.int64) - rec.start
    for joint in range(positions.shape[1]):
        wanted = np.interp(grid["time"].astype(np.int64) - rec.start, stamps, positions[:, joint])
        np.testing.assert_allclose(grid["/joint_states.position"][:, joint], wanted, atol=1e-9)


def test_rotations_lie_on_the_arc(rec):
    columns = {"/camera/image": [], "/odom": ["pose.pose.orientation"]}
    table = rec.join("/camera/image", "/odom", how="interpolate", columns=columns, or_nearest=True)
    turns = table.to_numpy("/odom.pose.pose.orientation")
    norms = sum(turns[part] ** 2 for part in "xyzw")
    np.testing.assert_allclose(norms, 1, atol=1e-9)


def test_a_list_of_columns_is_for_those_that_have_them(rec):
    table = rec.join("/odom", "/imu", columns=["stamp", TURN])
    assert table.columns == ["time", "/odom.stamp", "/imu offset", "/imu.stamp", f"/imu.{TURN}"]
    with pytest.raises(errors.FieldError, match="nothing"):
        rec.join("/odom", "/imu", columns=["nothing"])


def test_without_a_choice_all_columns_are_there(rec):
    table = rec.join("/scan", ["/odom"], start="+5s", end="+6s")
    assert {"/scan.ranges", "/odom.pose", "/odom.twist"} <= set(table.columns)
    assert table.to_polars().height == 10
    assert sum(len(batch) for batch in table.batches(rows=3)) == 10


def test_what_cannot_be_joined_is_said(rec):
    with pytest.raises(errors.AlignError, match="how='often'"):
        rec.join("/odom", "/imu", how="often")
    with pytest.raises(errors.AlignError, match="on='time'"):
        rec.join("/odom", "/imu", on="time")
    with pytest.raises(errors.FieldError, match="/cmd_vel have no stamp"):
        rec.join("/odom", "/cmd_vel", on="stamp")
    with pytest.raises(errors.TopicError, match="/nowhere"):
        rec.join("/odom", "/nowhere")
    with pytest.raises(errors.TopicError, match="/scan"):
        rec.join("/odom", "/imu", columns={"/scan": ["ranges"]})
    with pytest.raises(errors.AlignError, match="rate"):
        rec.resample("/odom", hz=0)
    with pytest.raises(errors.AlignError, match="no topic"):
        rec.resample([], hz=1)
    with pytest.raises(errors.TimeError):
        rec.join("/odom", "/imu", tolerance="wide")
    # Without a stamp in one of them, log times are joined on.
    assert rec.join("/odom", "/cmd_vel").to_polars().height == 1500


WORDS = {
    "nearest": [],
    "last": ["backward", "ffill"],
    "before": [],
    "next": ["forward", "bfill"],
    "after": [],
    "interpolate": ["interpolated", "linear"],
}


@pytest.mark.parametrize("how", WORDS)
def test_every_word_means_what_it_means_on_the_command_line_and_in_sql(rec, how):
    columns = {"/odom": ["log_time", PLACE]}
    wanted = rec.resample("/odom", hz=20, how=how, on="log_time", columns=columns).to_polars()
    for word in WORDS[how]:
        found = rec.resample("/odom", hz=20, how=word, on="log", columns=columns).to_polars()
        assert found.equals(wanted)
    query = f"SELECT odom.{PLACE} AS x FROM resample(odom, 20, '{how}', 'log_time') ORDER BY time"
    found = rec.sql(query).to_polars()["x"]
    assert found.equals(wanted[f"/odom.{PLACE}"], check_names=False)


def test_beyond_the_ends_nothing_is_interpolated_unless_the_nearest_is_wanted(rec):
    columns = {"/odom": [PLACE]}
    arguments = {"hz": 200, "how": "interpolate", "on": "log_time", "columns": columns}
    plain = rec.resample("/odom", **arguments).to_polars()[f"/odom.{PLACE}"]
    whole = rec.resample("/odom", or_nearest=True, **arguments).to_polars()[f"/odom.{PLACE}"]
    assert 0 < plain.null_count() < len(plain)
    assert whole.null_count() == 0
    query = f"SELECT odom.{PLACE} AS x FROM resample(odom, 200, 'interpolate', 'log_time'%s) ORDER BY time"
    assert rec.sql(query % "").to_polars()["x"].equals(plain, check_names=False)
    assert rec.sql(query % ", 'or_nearest'").to_polars()["x"].equals(whole, check_names=False)


def bits(*columns):
    return np.stack([np.asarray(column, dtype=np.float64) for column in columns], axis=1).view(np.int64)


def test_what_lies_between_has_the_bits_of_the_transform_and_of_sql(rec):
    pose = "pose.pose"
    columns = {"/odom": [pose]}
    grid = rec.resample("/odom", hz=30, how="interpolate", on="stamp", columns=columns)
    times = grid.to_numpy("time")
    poses = grid.to_polars()[f"/odom.{pose}"]
    known = poses.is_not_null().to_numpy()
    assert known.sum() > 800

    def parts(frame, part, names):
        inner = frame.struct.field(part)
        return [inner.struct.field(name).to_numpy()[known] for name in names]

    ours = bits(*parts(poses, "position", "xyz"), *parts(poses, "orientation", "xyzw"))
    query = "SELECT odom.pose.pose AS pose FROM resample(odom, 30, 'interpolate', 'stamp') ORDER BY time"
    found = rec.sql(query).to_polars()["pose"]
    np.testing.assert_array_equal(bits(*parts(found, "position", "xyz"), *parts(found, "orientation", "xyzw")), ours)
    translations, rotations, valid = rec.tf().lookup_many("odom", "base_link", times[known])
    assert valid.all()
    np.testing.assert_array_equal(bits(*translations.T, *rotations.T), ours)
