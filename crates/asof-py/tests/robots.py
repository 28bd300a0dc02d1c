"""A robot, which eclipse-zenoh plays on this machine."""

from __future__ import annotations

import socket
import struct
import threading
import time

import zenoh

SECOND = 1_000_000_000
HASH = "TypeHashNotSupported"


class Played:
    """A robot that publishes topics of headers as rmw_zenoh does."""

    def __init__(self, *topics: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        config = zenoh.Config()
        config.insert_json5("listen/endpoints", f'["tcp/127.0.0.1:{self.port}"]')
        config.insert_json5("scouting/multicast/enabled", "false")
        self.session = zenoh.open(config)
        self.publishers, self.tokens = {}, []
        for number, topic in enumerate(topics, 1):
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


def saying(robot, topic, stamps):
    """Says the same again until it was heard, since a subscription takes a moment; without stamps, what the clock says."""
    is_done = threading.Event()

    def go():
        while not is_done.wait(0.02):
            for stamp in stamps or [time.time_ns()]:
                robot.say(topic, stamp)

    thread = threading.Thread(target=go)
    thread.start()
    return is_done, thread
