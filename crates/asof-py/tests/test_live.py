"""A running robot, which asof itself plays on this machine."""

from __future__ import annotations

import socket
import struct
import threading
import time

import asof
import pytest
from asof import errors

zenoh = pytest.importorskip("zenoh", reason="eclipse-zenoh plays the robot")

SECOND = 1_000_000_000
HASH = "TypeHashNotSupported"


class Played:
    """A robot that publishes two topics as rmw_zenoh does."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        config = zenoh.Config()
        config.insert_json5("listen/endpoints", f'["tcp/127.0.0.1:{self.port}"]')
        config.insert_json5("scouting/multicast/enabled", "false")
        self.session = zenoh.open(config)
        self.publishers, self.tokens = {}, []
        for number, topic in enumerate(["/a", "/b"], 1):
            kind = "std_msgs::msg::dds_::Header_"
            key = f"0/{topic[1:]}/{kind}/{HASH}"
            self.publishers[topic] = self.session.declare_publisher(key)
            name = topic.replace("/", "%")
            token = f"@ros2_lv/0/{self.session.zid()}/0/{number}/MP/%/%/robot/{name}/{kind}/{HASH}/::,:,:,:,,"
            self.tokens.append(self.session.liveliness().declare_token(token))
        self.address = f"zenoh://127.0.0.1:{self.port}"

    def say(self, topic: str, stamp: int) -> None:
        payload = b"\0\1\0\0" + struct.pack("<iII", stamp // SECOND, stamp % SECOND, 5) + b"base\0"
        attachment = struct.pack("<qqB16s", 1, time.time_ns(), 16, b"\7" * 16)
        self.publishers[topic].put(payload, attachment=attachment)

    def close(self) -> None:
        self.session.close()


@pytest.fixture(scope="module")
def robot():
    played = Played()
    yield played
    played.close()


def until(condition, timeout=30.0):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def saying(robot, topic, stamps):
    """Says the same again until it was heard, since a subscription takes a moment."""
    is_done = threading.Event()

    def go():
        while not is_done.wait(0.02):
            for stamp in stamps:
                robot.say(topic, stamp)

    thread = threading.Thread(target=go)
    thread.start()
    return is_done, thread


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
