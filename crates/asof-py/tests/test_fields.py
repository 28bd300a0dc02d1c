"""Fields that are read when they are touched."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from copy import deepcopy

import asof
import numpy as np
import pytest
from asof import errors
from test_words import mcap_of


def same(lazy, whole):
    if isinstance(whole, dict):
        assert list(lazy.keys()) == list(whole) and len(lazy) == len(whole)
        return all(same(lazy[name], value) for name, value in whole.items())
    if isinstance(whole, np.ndarray):
        is_float = whole.dtype.kind == "f"
        return lazy.dtype == whole.dtype and np.array_equal(lazy, whole, equal_nan=is_float)
    if isinstance(whole, list):
        return len(lazy) == len(whole) and all(same(a, b) for a, b in zip(lazy, whole))
    return lazy == whole or (lazy != lazy and whole != whole)


def whole_of(rec, topic, rows):
    """The first rows of a topic, by way of its table."""
    table = rec[topic].to_arrow().slice(0, rows).to_pylist()
    return [{name: value for name, value in row.items() if name not in ("log_time", "publish_time")} for row in table]


def test_fields_are_those_of_the_whole_message(rec):
    for topic in rec:
        for count, m in enumerate(rec[topic]):
            for name, value in m.data.items():
                assert same(m[name], value), f"{topic}.{name}"
            if count == 20:
                break


def test_other_recordings_have_the_same_fields_one_by_one(data):
    compared = 0
    for path in sorted(data.iterdir()):
        try:
            messages = asof.open(path).messages()
            for count, m in enumerate(messages):
                try:
                    whole = m.data
                except errors.DecodeError:
                    continue
                for name, value in whole.items():
                    assert same(m[name], value), f"{path.name} {m.topic}.{name}"
                    compared += 1
                if count == 300:
                    break
        except asof.Error:
            continue
    assert compared > 5_000


def test_a_field_is_the_value_of_the_table(rec):
    z = rec["/imu"].to_numpy("linear_acceleration.z")
    assert [m.linear_acceleration.z for m in rec.messages("/imu")] == z.tolist()
    x = rec["/odom"].to_numpy("pose.pose.position.x")
    assert [m.pose.pose.position.x for m in rec["/odom"]] == x.tolist()
    ranges = rec["/scan"].to_numpy("ranges")
    for m, row in zip(rec["/scan"], ranges):
        np.testing.assert_array_equal(m.ranges, row)
    names = {(t.header.frame_id, t.child_frame_id) for m in rec.messages("/tf") for t in m.transforms}
    assert ("odom", "base_link") in names or len(names) > 1


def test_a_struct_is_a_mapping_whose_entries_are_attributes(rec):
    m = next(rec.messages("/odom"))
    pose = m.pose.pose
    assert isinstance(pose, asof.Fields) and isinstance(pose, Mapping)
    assert list(pose) == pose.keys() == ["position", "orientation"] and len(pose) == 2
    assert "position" in pose and "nothing" not in pose and 7 not in pose
    assert pose["position"].x == pose.position["x"] == pose.get("position").x
    assert pose.get("nothing") is None and pose.get("nothing", 1) == 1
    assert dict(pose.items()) == dict(zip(pose.keys(), pose.values()))
    assert pose == m.data.pose.pose and m.data.pose.pose == pose and pose != {"position": 1}
    assert pose.to_dict() == m.data.pose.pose and isinstance(pose.to_dict(), dict)
    assert repr(pose) == repr(m.data.pose.pose)
    assert "orientation" in dir(pose) and "pose" in dir(m) and "topic" in dir(m)
    with pytest.raises(KeyError, match="nothing"):
        pose["nothing"]
    with pytest.raises(AttributeError, match="position, orientation"):
        _ = pose.nothing
    with pytest.raises(AttributeError, match="/odom has no field 'nothing'; it has header"):
        _ = m.nothing


def test_what_was_touched_is_the_same_object_again(rec):
    m = next(rec.messages("/scan"))
    assert m.ranges is m.ranges and m.header is m.header and m.header.stamp is m.header.stamp
    assert not m.ranges.flags.writeable and m.ranges.flags.aligned


def test_fields_pickle_and_copy_as_dicts(rec):
    m = next(rec.messages("/odom"))
    for again in (pickle.loads(pickle.dumps(m.pose.pose)), deepcopy(m.pose.pose)):
        assert again == m.data.pose.pose and again.position.x == m.pose.pose.position.x
    assert pickle.loads(pickle.dumps(m)).pose.pose.position.x == m.pose.pose.position.x


def test_fields_outlive_their_message(rec):
    positions = [m.pose.pose.position for m in rec.messages("/odom", end="+1s")]
    pictures = [m.data["data"] for m in rec.messages("/camera/image", end="+1s")]
    assert [p.x for p in positions] == rec["/odom"].to_numpy("pose.pose.position.x", end="+1s").tolist()
    assert all(picture.size for picture in pictures)


def test_a_message_that_is_decoded_whole_has_the_same_words(tmp_path):
    path = tmp_path / "run.mcap"
    mcap_of(path, "/x", [(1, {"a": {"b": [1, 2], "c": "text"}}), (2, b"{")])
    m, broken = asof.open(path).messages("/x")
    assert m.a.c == m["a"]["c"] == "text" and m.a.to_dict() == m.data.a and "a" in dir(m)
    with pytest.raises(errors.DecodeError, match="/x at"):
        _ = broken.a
    with pytest.raises(KeyError):
        m["nothing"]


def test_a_short_message_is_refused_where_it_ends(tmp_path, rec):
    first = next(rec.messages("/odom"))
    name, encoding, text = "nav_msgs/msg/Odometry", "ros2msg", rec.topics["/odom"].schema[1]
    path = tmp_path / "cut.mcap"
    with asof.Writer(path) as out:
        out.write_raw("/odom", 1, first.raw[:100], "cdr", (name, encoding, text.encode()))
    [cut] = asof.open(path).messages()
    assert cut.header == first.header and cut.child_frame_id == first.child_frame_id
    with pytest.raises(errors.DecodeError, match="/odom at .*nav_msgs"):
        _ = cut.twist.twist.angular.z
    with pytest.raises(errors.DecodeError):
        _ = cut.data
