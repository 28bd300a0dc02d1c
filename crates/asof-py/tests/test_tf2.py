"""Transforms against tf2's own Python (Debian's python3-tf2, which is that of ROS 1)."""

from __future__ import annotations

import itertools
import math

import asof
import numpy as np
import pytest
from asof import errors

tf2_py = pytest.importorskip("tf2_py", reason="tf2_py is not installed (python3-tf2)")


@pytest.fixture(scope="module")
def both(rec):
    """asof's buffer and tf2's, filled with the transforms of the recording, at times that tf2_py takes as they are.

    A sender's rotations are 1 long to nine digits or so. asof normalizes them; tf2 takes them as they are, and stretches what they turn.
    So that nothing but the two buffers is compared, both get them normalized.
    """
    from genpy import Duration
    from geometry_msgs.msg import TransformStamped

    own, core = asof.TransformBuffer(cache_time="10000s"), tf2_py.BufferCore(Duration(10_000))
    for message in rec.messages("/tf", "/tf_static"):
        for given in message.transforms:
            parent, child = given.header.frame_id, given.child_frame_id
            stamp = _exact(given.header.stamp.sec * 10**9 + given.header.stamp.nanosec)
            moved = tuple(given.transform.translation.values())
            turned = tuple(given.transform.rotation.values())
            length = math.hypot(*turned)
            turned = tuple(part / length for part in turned)
            one = TransformStamped()
            one.header.frame_id, one.child_frame_id = parent, child
            one.header.stamp = _time(stamp)
            for part, value in zip("xyz", moved):
                setattr(one.transform.translation, part, value)
            for part, value in zip("xyzw", turned):
                setattr(one.transform.rotation, part, value)
            if message.topic == "/tf_static":
                core.set_transform_static(one, "test")
                own.set_transform_static(parent, child, moved, turned)
            else:
                core.set_transform(one, "test")
                own.set_transform(parent, child, stamp, moved, turned)
    return own, core


def _time(nanos):
    from genpy import Time

    return Time(int(nanos) // 10**9, int(nanos) % 10**9)


#: 1/512 s in nanoseconds.
STEP = 1_953_125


def _exact(nanos):
    """A time that tf2_py takes as it is, at most 2 ms before another: a double holds it, and so many nanoseconds, without a rest.

    The binding asks a time for `to_sec()`, a double, and makes a `ros::Time` of that (tf2_py.cpp, rostime_converter), for the stamps
    of transforms as well as for the time of a lookup; tf2 itself interpolates between `toSec()` of its stamps (cache.cpp). A double of
    today has steps of 238 ns, in which a frame moves by some 1e-7 m.
    """
    return int(nanos) // STEP * STEP


def _numbers(found):
    moved, turned = found.transform.translation, found.transform.rotation
    return np.array([moved.x, moved.y, moved.z]), np.array([turned.x, turned.y, turned.z, turned.w])


def _apart(turns, others):
    """The largest difference of rotations, of which each and its negative are the same."""
    return np.minimum(abs(turns - others).max(axis=-1), abs(turns + others).max(axis=-1)).max()


def _theirs(core, target, source, stamps):
    found = [_numbers(core.lookup_transform_core(target, source, _time(stamp))) for stamp in stamps]
    return np.array([place for place, _ in found]), np.array([turn for _, turn in found])


def test_tf2_loses_part_of_a_time_but_not_of_those_that_are_compared():
    from geometry_msgs.msg import TransformStamped

    for given in (1_700_000_000_123_456_789, _exact(1_700_000_000_123_456_789)):
        core, one = tf2_py.BufferCore(), TransformStamped()
        one.header.frame_id, one.child_frame_id, one.header.stamp = "a", "b", _time(given)
        one.transform.rotation.w = 1.0
        core.set_transform(one, "test")
        stamp = core.lookup_transform_core("a", "b", _time(given)).header.stamp
        lost = abs(stamp.secs * 10**9 + stamp.nsecs - given)
        assert lost == 0 if given % STEP == 0 else 0 < lost <= 120


def test_every_pair_of_frames_is_where_tf2_has_it(rec, both):
    own, core = both
    stamps = np.random.default_rng(1).integers((rec.start + 10**9) // STEP, (rec.end - 10**9) // STEP, 200) * STEP
    compared = 0
    for target, source in itertools.permutations(own.frames(), 2):
        places, turns, known = own.lookup_many(target, source, stamps)
        assert known.all(), (target, source)
        their_places, their_turns = _theirs(core, target, source, stamps)
        np.testing.assert_allclose(places, their_places, rtol=0, atol=1e-12)
        assert _apart(turns, their_turns) < 1e-12
        compared += len(places)
        one = own.lookup_transform(target, source, int(stamps[0]))
        np.testing.assert_allclose(one.translation, places[0], rtol=0, atol=1e-12)
        np.testing.assert_allclose(one.rotation, turns[0], rtol=0, atol=1e-12)
    assert compared == 200 * 8 * 7


def test_the_buffer_of_a_recording_is_the_one_that_is_filled_by_hand(rec):
    """At the recording's own times, which no double was made of: with the test above, it is where tf2 has it."""
    tf, own = rec.tf(), asof.TransformBuffer(cache_time="10000s")
    for message in rec.messages("/tf", "/tf_static"):
        for given in message.transforms:
            (own.set_transform if message.topic == "/tf" else own.set_transform_static)(given)
    stamps = np.random.default_rng(2).integers(rec.start + 10**9, rec.end - 10**9, 200)
    assert sorted(own.frames()) == sorted(tf.frames())
    for target, source in itertools.permutations(tf.frames(), 2):
        for found, wanted in zip(tf.lookup_many(target, source, stamps), own.lookup_many(target, source, stamps)):
            np.testing.assert_array_equal(found, wanted)


def test_what_tf2_refuses_is_refused_in_the_same_words(rec, both):
    tf, core = rec.tf(), both[1]
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
