"""Transforms against tf2's own Python (Debian's python3-tf2, which is that of ROS 1)."""

from __future__ import annotations

import itertools

import asof
import numpy as np
import pytest
from asof import errors

tf2_py = pytest.importorskip("tf2_py", reason="tf2_py is not installed (python3-tf2)")


@pytest.fixture(scope="module")
def both(rec):
    from genpy import Duration
    from geometry_msgs.msg import TransformStamped

    core = tf2_py.BufferCore(Duration(10_000))
    for message in rec.messages("/tf", "/tf_static"):
        for given in message.transforms:
            one = TransformStamped()
            one.header.frame_id, one.child_frame_id = given.header.frame_id, given.child_frame_id
            one.header.stamp = _time(given.header.stamp.sec * 10**9 + given.header.stamp.nanosec)
            for part in "xyz":
                setattr(one.transform.translation, part, given.transform.translation[part])
            for part in "xyzw":
                setattr(one.transform.rotation, part, given.transform.rotation[part])
            (core.set_transform if message.topic == "/tf" else core.set_transform_static)(one, "test")
    return rec.tf(), core


def _time(nanos):
    from genpy import Time

    return Time(int(nanos) // 10**9, int(nanos) % 10**9)


def _numbers(found):
    moved, turned = found.transform.translation, found.transform.rotation
    return np.array([moved.x, moved.y, moved.z]), np.array([turned.x, turned.y, turned.z, turned.w])


def test_every_pair_of_frames_is_where_tf2_has_it(rec, both):
    tf, core = both
    stamps = np.random.default_rng(1).integers(rec.start + 10**9, rec.end - 10**9, 200)
    compared = 0
    for target, source in itertools.permutations(tf.frames(), 2):
        places, turns, known = tf.lookup_many(target, source, stamps)
        assert known.all(), (target, source)
        for at, stamp in enumerate(stamps):
            place, turn = _numbers(core.lookup_transform_core(target, source, _time(stamp)))
            # tf2_py makes a double of a time, which is a quarter of a microsecond off for those of today.
            np.testing.assert_allclose(places[at], place, rtol=0, atol=1e-5)
            # A rotation and its negative are the same.
            assert min(abs(turns[at] - turn).max(), abs(turns[at] + turn).max()) < 1e-6
            compared += 1
        one = tf.lookup_transform(target, source, int(stamps[0]))
        np.testing.assert_allclose(one.translation, places[0], atol=1e-12)
    assert compared == 200 * 8 * 7


def test_what_tf2_refuses_is_refused_in_the_same_words(rec, both):
    tf, core = both
    late = rec.end + 10**12
    for target, source, stamp, kind in [
        ("map", "nowhere", rec.start + 10**9, "LookupException"),
        ("map", "base_link", late, "ExtrapolationException"),
        ("map", "base_link", 10**9, "ExtrapolationException"),
    ]:
        with pytest.raises(getattr(tf2_py, kind)):
            core.lookup_transform_core(target, source, _time(stamp))
        with pytest.raises(getattr(errors, kind)):
            tf.lookup_transform(target, source, stamp)
        assert not tf.can_transform(target, source, stamp)


def test_a_buffer_that_is_filled_by_hand_agrees_to_nine_digits():
    from geometry_msgs.msg import TransformStamped

    own, core = asof.TransformBuffer(), tf2_py.BufferCore()
    for second in range(1, 4):
        turn = np.array([0.1 * second, 0.2, -0.1 * second, 1.0])
        turn /= np.linalg.norm(turn)
        own.set_transform("odom", "base", second * 10**9, (second, 2.0, -second), turn)
        one = TransformStamped()
        one.header.frame_id, one.child_frame_id, one.header.stamp = "odom", "base", _time(second * 10**9)
        one.transform.translation.x, one.transform.translation.y, one.transform.translation.z = second, 2.0, -second
        for part, value in zip("xyzw", turn):
            setattr(one.transform.rotation, part, value)
        core.set_transform(one, "test")
    for stamp in (10**9, 1_300_000_000, 2_500_000_000, 3 * 10**9):
        place, turn = _numbers(core.lookup_transform_core("base", "odom", _time(stamp)))
        found = own.lookup_transform("base", "odom", stamp)
        np.testing.assert_allclose(found.translation, place, atol=1e-9)
        assert abs(abs(np.dot(found.rotation, turn)) - 1) < 1e-9
