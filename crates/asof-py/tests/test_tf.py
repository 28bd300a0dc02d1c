"""tf2's words, without ROS."""

from __future__ import annotations

import asof
import numpy as np
import pytest
from asof import errors


@pytest.fixture(scope="module")
def tf(rec):
    return rec.tf()


def test_a_recording_has_its_transforms(rec, tf):
    assert {"map", "odom", "base_link", "laser"} <= set(tf.frames())
    found = tf.lookup_transform("map", "base_link", "+5s")
    assert found.translation.shape == (3,) and found.rotation.shape == (4,)
    assert found.stamp == rec.start + 5_000_000_000
    np.testing.assert_allclose(found.matrix[:3, 3], found.translation)
    np.testing.assert_allclose(found.matrix[:3, :3] @ found.matrix[:3, :3].T, np.eye(3), atol=1e-12)
    same = tf.lookup_transform("map", "base_link", rec.start + 5_000_000_000)
    np.testing.assert_allclose(same.matrix, found.matrix, rtol=0, atol=1e-12)
    assert found.transform.translation.x == found.translation[0]
    assert found.transform.rotation.w == found.rotation[3]
    assert (found.header.frame_id, found.child_frame_id) == ("map", "base_link")
    assert "base_link" in tf.tree() and "base_link" in repr(tf) and "base_link" in tf.all_frames_as_yaml()


def test_it_says_what_it_cannot_do(tf):
    assert tf.can_transform("map", "base_link", "+5s")
    assert not tf.can_transform("map", "nowhere", "+5s")
    assert not tf.can_transform("map", "base_link", "+5000s")
    with pytest.raises(errors.LookupException, match="nowhere"):
        tf.lookup_transform("map", "nowhere", "+5s")
    with pytest.raises(errors.ExtrapolationException, match="after its newest sample"):
        tf.lookup_transform("map", "base_link", "+5000s")
    lonely = asof.TransformBuffer()
    lonely.set_transform_static("a", "b")
    lonely.set_transform_static("c", "d")
    with pytest.raises(errors.ConnectivityException):
        lonely.lookup_transform("a", "d")
    with pytest.raises(errors.TimeError, match="relative"):
        lonely.lookup_transform("a", "b", "+5s")


def test_many_lookups_are_the_single_ones(rec, tf):
    stamps = rec["/odom"].to_numpy("stamp")
    places, turns, mask = tf.lookup_many("map", "base_link", stamps)
    assert places.shape == (1500, 3) and turns.shape == (1500, 4) and mask.shape == (1500,)
    assert mask.sum() > 1400
    for at in range(0, 1500, 97):
        if mask[at]:
            one = tf.lookup_transform("map", "base_link", int(stamps[at].astype(np.int64)))
            np.testing.assert_allclose(places[at], one.translation, rtol=0, atol=1e-12)
            np.testing.assert_allclose(turns[at], one.rotation, rtol=0, atol=1e-12)
        else:
            assert np.isnan(places[at]).all() and np.isnan(turns[at]).all()
    by_number = tf.lookup_many("map", "base_link", stamps.view(np.int64))
    np.testing.assert_array_equal(by_number[0], places)
    by_text = tf.lookup_many("map", "base_link", ["+1s", "+9999s"])
    assert by_text[2].tolist() == [True, False]
    assert tf.lookup_many("map", "base_link", [])[0].shape == (0, 3)


def test_points_go_from_frame_to_frame(rec, tf):
    points = np.array([[1.0, 0.0, 0.0], [0.0, 2.0, 0.5]])
    matrix = tf.lookup_transform("map", "laser", "+5s").matrix
    wanted = points @ matrix[:3, :3].T + matrix[:3, 3]
    np.testing.assert_allclose(tf.transform_points("map", "laser", points, "+5s"), wanted)
    stamps = np.array([rec.start + 5_000_000_000, rec.end + 10**12])
    moved = tf.transform_points("map", "laser", points, stamps)
    np.testing.assert_allclose(moved[0], wanted[0])
    assert np.isnan(moved[1]).all()
    with pytest.raises(ValueError, match=r"\(n, 3\)"):
        tf.transform_points("map", "laser", [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="2 points and 1 stamps"):
        tf.transform_points("map", "laser", points, stamps[:1])
    with pytest.raises(errors.ExtrapolationException):
        tf.transform_points("map", "laser", points, "+5000s")


def test_a_buffer_is_filled_by_hand():
    tf = asof.TransformBuffer(cache_time="30s")
    second = 1_000_000_000
    tf.set_transform("odom", "base_link", 10 * second, (0, 0, 0))
    tf.set_transform("odom", "base_link", 12 * second, (4, 0, 0), (0, 0, 1, 0))
    tf.set_transform_static("base_link", "laser", (0.5, 0, 0))
    half = tf.lookup_transform("odom", "base_link", 11 * second)
    np.testing.assert_allclose(half.translation, [2, 0, 0])
    np.testing.assert_allclose(half.rotation, [0, 0, np.sqrt(0.5), np.sqrt(0.5)])
    np.testing.assert_allclose(tf.lookup_transform("odom", "laser").translation, [3.5, 0, 0], atol=1e-12)
    assert tf.get_latest_common_time("odom", "laser") == 12 * second
    assert tf.lookup_transform("odom", "laser", 0).stamp == 12 * second
    full = tf.lookup_transform_full("laser", 12 * second, "laser", 10 * second, "odom")
    np.testing.assert_allclose(full.translation, [3.0, 0, 0], atol=1e-12)
    with pytest.raises(errors.InvalidArgumentException, match="not a rotation"):
        tf.set_transform("odom", "base_link", 13 * second, (0, 0, 0), (0, 0, 0, 2))
    with pytest.raises(errors.InvalidArgumentException):
        tf.set_transform("odom", "base_link", 13 * second, (float("nan"), 0, 0))
    with pytest.raises(errors.InvalidArgumentException):
        tf.set_transform("odom", "", 13 * second)
    with pytest.raises(TypeError, match="stamp"):
        tf.set_transform("odom", "base_link")
    with pytest.raises(TypeError, match="TransformStamped"):
        tf.set_transform(object())


def test_messages_fill_a_buffer_as_in_a_node(rec, tf):
    own = asof.TransformBuffer(cache_time=60)
    for message in rec.messages("/tf", "/tf_static"):
        for transform in message.transforms:
            if message.topic == "/tf":
                own.set_transform(transform, "test")
            else:
                own.set_transform_static(transform)
    for at in ["+3s", "+17.3s"]:
        time = rec.start + int(float(at[1:-1]) * 1e9)
        ours = own.lookup_transform("map", "camera", time).matrix
        np.testing.assert_allclose(ours, tf.lookup_transform("map", "camera", at).matrix, rtol=0, atol=1e-12)


def test_a_lookup_waits_for_its_transform():
    import threading

    tf = asof.TransformBuffer()
    tf.set_transform("odom", "base_link", 1, (1, 0, 0))
    with pytest.raises(errors.ExtrapolationException, match="timed out after"):
        tf.lookup_transform("odom", "base_link", 5, timeout=0.01)
    threading.Timer(0.05, lambda: tf.set_transform("odom", "base_link", 9, (9, 0, 0))).start()
    assert tf.lookup_transform("odom", "base_link", 5, timeout=30).translation[0] == 5
    assert tf.can_transform("odom", "base_link", 5, timeout=1)


def test_a_lookup_of_the_latest_waits_too():
    import threading

    tf = asof.TransformBuffer()
    assert not tf.can_transform("odom", "base_link", timeout=0.01)
    with pytest.raises(errors.LookupException, match="timed out after"):
        tf.lookup_transform("odom", "base_link", 0, timeout=0.01)
    threading.Timer(0.05, lambda: tf.set_transform("odom", "base_link", 9, (9, 0, 0))).start()
    found = tf.lookup_transform("odom", "base_link", timeout=30)
    assert (found.translation[0], found.stamp) == (9, 9)


def test_a_path_has_a_rate(tf):
    stamps, places, turns = tf.path("map", "base_link", hz=50)
    assert len(stamps) == len(places) == len(turns) > 1400
    assert set(np.diff(stamps).astype(int)) == {20_000_000}
    with pytest.raises(ValueError, match="rate"):
        tf.path("map", "base_link", hz=0)


def test_arguments_have_the_names_of_tf2_ros(rec, tf):
    time = rec.start + 5 * 10**9
    found = tf.lookup_transform(target_frame="map", source_frame="base_link", time=time, timeout=0.1)
    assert tf.can_transform(target_frame="map", source_frame="base_link", time=time, timeout=0.1)
    full = tf.lookup_transform_full(
        target_frame="map", target_time=time, source_frame="base_link", source_time=time, fixed_frame="odom"
    )
    np.testing.assert_allclose(full.translation, found.translation, atol=1e-9)
    assert found.transform.translation.x == found.translation[0] and found.header.frame_id == "map"
