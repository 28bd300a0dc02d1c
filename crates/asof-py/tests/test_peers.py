"""The same values as rosbags, mcap and mcap-ros2-support have, on recordings of other people's robots."""

from __future__ import annotations

import math
from itertools import zip_longest

import asof
import numpy as np
import pytest

BAGS = ["tb3-odom-tfstatic.bag", "turtlesim-lz4.bag", "husky-gps-imu-bz2.bag", "numpy-image-cloud-map.bag"]
MCAPS = ["crazyflie-vicon.mcap", "nav2-turtlebot-zstd.mcap", "auv-short.mcap", "types94.mcap"]


def same(ours, theirs, path=""):
    """Whether a value of ours is what a library has made of it."""
    if isinstance(ours, dict):
        for name, value in ours.items():
            # A word of Python has a line after it in some libraries; the structs of some are slots.
            other = getattr(theirs, name, None) if hasattr(theirs, name) else getattr(theirs, f"{name}_", None)
            if set(ours) in ({"sec", "nanosec"}, {"sec", "nsec"}):
                return list(ours.values()) == [theirs.sec, theirs.nanosec]
            if not same(value, other, f"{path}.{name}"):
                raise AssertionError(f"{path}.{name}: {value!r} is not {other!r}")
        return True
    if isinstance(ours, np.ndarray):
        theirs = np.frombuffer(theirs, np.uint8) if isinstance(theirs, (bytes, bytearray)) else np.asarray(theirs)
        return ours.shape == theirs.shape and np.array_equal(ours, theirs, equal_nan=ours.dtype.kind == "f")
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(same(a, b, f"{path}[]") for a, b in zip(ours, theirs))
    if isinstance(ours, float) and math.isnan(ours):
        return math.isnan(theirs)
    return ours == theirs


@pytest.mark.parametrize("name", BAGS)
def test_ros_1_bags_are_what_rosbags_reads(data, name):
    from rosbags.highlevel import AnyReader

    ours = asof.open(data / name)
    compared = 0
    with AnyReader([data / name]) as reader:
        for message, (connection, at, raw) in zip_longest(ours.messages(), reader.messages()):
            assert (message.topic, message.log_time) == (connection.topic, at)
            assert message.raw == bytes(raw)
            assert same(message.data, reader.deserialize(raw, connection.msgtype))
            compared += 1
    assert compared > 5


@pytest.mark.parametrize("name", MCAPS)
def test_mcap_files_are_what_mcap_reads(data, name):
    from mcap.reader import make_reader
    from mcap_ros2.decoder import DecoderFactory

    ours = asof.open(data / name)
    compared = 0
    with open(data / name, "rb") as file:
        factory, decoders = DecoderFactory(), {}
        theirs = make_reader(file).iter_messages(log_time_order=True)
        for message, (schema, channel, record) in zip_longest(ours.messages(), theirs):
            assert (message.topic, message.log_time) == (channel.topic, record.log_time)
            assert message.raw == record.data
            if channel.id not in decoders:
                decoders[channel.id] = factory.decoder_for(channel.message_encoding, schema)
            if decoders[channel.id] is not None:
                assert same(message.data, decoders[channel.id](record.data))
                compared += 1
    assert compared > 10


def test_columns_are_what_rosbags_collects(data):
    from rosbags.highlevel import AnyReader

    path = data / "tb3-odom-tfstatic.bag"
    with AnyReader([path]) as reader:
        [connection] = [one for one in reader.connections if one.topic == "/odom"]
        rows = [
            (at, message.pose.pose.position.x, message.twist.twist.angular.z)
            for connection, at, raw in reader.messages([connection])
            for message in [reader.deserialize(raw, connection.msgtype)]
        ]
    odom = asof.open(path)["/odom"]
    times, x, turn = map(np.array, zip(*rows))
    np.testing.assert_array_equal(odom.to_numpy("log_time").view(np.int64), times)
    np.testing.assert_array_equal(odom.to_numpy("pose.pose.position.x"), x)
    np.testing.assert_array_equal(odom.to_numpy("twist.twist.angular.z"), turn)


def test_every_recording_opens_prints_and_is_read(data):
    import warnings

    read = 0
    for path in sorted(data.iterdir()):
        try:
            rec = asof.open(path)
        except asof.Error as error:
            assert path.name in str(error)
            continue
        repr(rec), rec._repr_html_()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", asof.DecodeWarning)
            for topic in rec:
                try:
                    read += rec[topic].to_arrow().num_rows
                except asof.errors.DecodeError:
                    pass
    assert read > 10_000
