"""What can be sent to another process."""

from __future__ import annotations

import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import asof
import numpy as np
import polars as pl
import pytest


def again(thing):
    return pickle.loads(pickle.dumps(thing))


def test_tables_are_read_again_where_they_arrive(rec):
    odom = rec["/odom"].read(columns=["stamp", "pose.pose.position"], start="+1s", end="+2s")
    assert pl.DataFrame(again(odom)).equals(pl.DataFrame(odom))
    plain = rec["/camera/image"].read(end="+1s", views=False)
    assert again(plain)._inner.types == plain._inner.types
    joined = rec.join("/camera/image", ["/odom"], tolerance="50ms", columns={"/camera/image": ["stamp"], "/odom": ["twist"]})
    assert pl.DataFrame(again(joined)).equals(pl.DataFrame(joined))
    grid = rec.resample(["/joint_states"], hz=10, how="interpolate", columns=["position"])
    assert pl.DataFrame(again(grid)).equals(pl.DataFrame(grid))


def test_a_message_is_sent_whole(rec):
    message = next(iter(rec["/odom"]))
    other = again(message)
    assert (other.topic, other.type, other.log_time, other.sequence) == (
        message.topic,
        message.type,
        message.log_time,
        message.sequence,
    )
    assert other.raw == message.raw and other.pose.pose == message.pose.pose


def test_transforms_of_a_recording_are_sent_by_its_address(rec):
    tf = rec.tf()
    np.testing.assert_array_equal(
        again(tf).lookup_transform("map", "base_link", "+5s").translation,
        tf.lookup_transform("map", "base_link", "+5s").translation,
    )
    with pytest.raises(TypeError, match="did not come from a recording"):
        pickle.dumps(asof.TransformBuffer())


def speed(topic):
    return float(topic.to_numpy("twist.twist.linear.x").max())


def test_other_processes_open_a_topic_again(rec):
    topic = rec["/odom"]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        assert list(pool.map(speed, [topic, topic])) == [speed(topic)] * 2
