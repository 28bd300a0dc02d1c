"""A running robot, which asof itself plays on this machine."""

from __future__ import annotations

import threading
import time

import asof
import pytest
from asof import errors

pytest.importorskip("zenoh", reason="eclipse-zenoh plays the robot")
from conftest import until
from robots import SECOND, Played, saying


@pytest.fixture(scope="module")
def robot():
    played = Played("/a", "/b")
    yield played
    played.close()


def test_a_window_keeps_the_newest_messages(robot):
    start = asof.now()
    with asof.connect(robot.address) as connected:
        assert connected.wait_for_topic("/a", timeout=20)
        assert connected.topics["/a"] == "std_msgs/msg/Header"
        window = connected.window("/a", last="10s")
        is_done, thread = saying(robot, "/a", [start + at * SECOND // 10 for at in range(5)])
        try:
            until(lambda: len(window) >= 5)
        finally:
            is_done.set()
            thread.join()
        near = window.nearest(start + SECOND // 4 - 1)
        assert near.data.stamp.sec * SECOND + near.data.stamp.nanosec == start + SECOND // 5
        assert near.frame_id == "base"
        assert window.before(start - 1) is None
        assert window.newest.topic == "/a" and window.oldest.topic == "/a"
        assert len(window.interval(start, start + SECOND // 10)) >= 2
        assert window.to_arrow(["stamp", "frame_id"]).num_rows == len(window)
        assert window.counters()["held"] == len(window)
        with pytest.raises(TimeoutError, match="/a"):
            window.wait_after(start + 100 * SECOND, timeout=0.05)
        threading.Timer(0.1, lambda: robot.say("/a", start + SECOND)).start()
        assert window.wait_after(start + SECOND // 2, timeout=20).frame_id == "base"


def test_messages_that_belong_together_come_together(robot):
    start = asof.now()
    with asof.connect(robot.address) as connected:
        assert connected.wait_for_topic("/a", timeout=20) and connected.wait_for_topic("/b", timeout=20)
        pairs = connected.synchronize("/a", "/b", slop="20ms")
        first = []

        def go():
            for number in range(400):
                robot.say("/a", start + number * SECOND // 10)
                robot.say("/b", start + number * SECOND // 10 + 5_000_000)
                time.sleep(0.02)
                if first:
                    return

        thread = threading.Thread(target=go)
        thread.start()
        try:
            a, b = next(pairs)
        finally:
            first.append(True)
            thread.join()
        assert (a.topic, b.topic) == ("/a", "/b")
        nanos = [m.data.stamp.sec * SECOND + m.data.stamp.nanosec for m in (a, b)]
        assert nanos[1] - nanos[0] == 5_000_000
        with pytest.raises(ValueError, match="two topics"):
            connected.synchronize("/a")


def test_a_robot_is_opened_like_a_recording(robot):
    is_done, thread = saying(robot, "/a", [asof.now()])
    try:
        rec = asof.open(robot.address)
        assert rec.is_growing
        until(lambda: (rec.topics.get("/a") and rec.topics["/a"].messages or 0) > 3)
        assert rec.at(rec.end)["/a"].frame_id == "base"
        assert rec["/a"].to_polars().height > 3
    finally:
        is_done.set()
        thread.join()


def test_an_address_that_is_none_is_said():
    with pytest.raises(errors.LiveError):
        asof.connect("nonsense://here")
    with asof.connect("zenoh://127.0.0.1:1?mode=peer") as nobody:
        assert not nobody.is_connected
        with pytest.raises(TimeoutError):
            nobody.window("/scan", count=3).wait_after(asof.now(), timeout=0.05)
    with pytest.raises(errors.LiveError, match="closed"):
        nobody.window("/scan")


@pytest.mark.parametrize("address", ["zenoh://127.0.0.1:9", "foxglove://127.0.0.1:9", "ws://127.0.0.1:9", "rosbridge://127.0.0.1:9"])
def test_a_robot_of_any_kind_that_is_not_there_is_waited_for(address):
    with asof.connect(address) as robot:
        assert not robot.is_connected
        assert not robot.wait_for_topic("/scan", timeout=0.05)
        assert robot.topics == {}


def test_an_address_of_no_robot_says_what_one_looks_like():
    with pytest.raises(errors.LiveError, match="rosbridge://host:9090"):
        asof.connect("gopher://robot")
