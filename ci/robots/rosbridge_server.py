"""A rosbridge server over a real ROS 1 (rospy and rosmaster of Debian), as small as it can be.

rosbridge_suite itself is neither on PyPI nor in Debian. What it does is followed here, by its sources:
- rosbridge_library/capabilities/subscribe.py: subscriptions by id, `compression` is none, png, cbor or cbor-raw.
- rosbridge_library/internal/outgoing_message.py: cbor-raw is {op, topic, msg: {secs, nsecs, bytes}}, where bytes are the buffer
  that rospy received, and the time is the server's.
- rosapi: topics, and topics_and_raw_types, whose definitions are the `_full_text` of ROS's own generated classes.

rosbridge_server.py PORT [--without-raw]    with it, cbor-raw is not known and messages come as JSON, as of an old server
"""

import json
import struct
import sys

import genpy
import roslib.message
import rospy
import tornado.ioloop
import tornado.web
import tornado.websocket

IS_OLD = "--without-raw" in sys.argv


def cbor(value) -> bytes:
    """RFC 8949, as far as cbor-raw needs it."""
    def head(kind: int, number: int) -> bytes:
        for mark, size, form in [(24, 1 << 8, ">B"), (25, 1 << 16, ">H"), (26, 1 << 32, ">I")]:
            if mark == 24 and number < 24:
                return bytes([kind << 5 | number])
            if number < size:
                return bytes([kind << 5 | mark]) + struct.pack(form, number)
        return bytes([kind << 5 | 27]) + struct.pack(">Q", number)
    if isinstance(value, int):
        return head(0, value)
    if isinstance(value, bytes):
        return head(2, len(value)) + value
    if isinstance(value, str):
        return head(3, len(value.encode())) + value.encode()
    return head(5, len(value)) + b"".join(cbor(key) + cbor(one) for key, one in value.items())


def plain(value):
    """A message as JSON has it."""
    if isinstance(value, genpy.Message):
        return {name: plain(getattr(value, name)) for name in value.__slots__}
    if isinstance(value, genpy.TVal):
        return {"secs": value.secs, "nsecs": value.nsecs}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return list(value) if isinstance(value, bytes) else value


def published() -> list:
    return sorted((topic, kind) for topic, kind in rospy.get_published_topics() if topic != "/rosout_agg")


def full_text(kind: str) -> str:
    found = roslib.message.get_message_class(kind)
    return found._full_text if found else f"# failed to get full definition text for {kind}"


SERVICES = {
    "/rosapi/topics": lambda: {"topics": [topic for topic, _ in published()], "types": [kind for _, kind in published()]},
    "/rosapi/topics_and_raw_types": lambda: {
        "topics": [topic for topic, _ in published()], "types": [kind for _, kind in published()],
        "typedefs_full_text": [full_text(kind) for _, kind in published()],
    },
}


class Bridge(tornado.websocket.WebSocketHandler):
    def check_origin(self, origin: str) -> bool:
        return True

    def open(self) -> None:
        self.subscriptions = {}
        self.set_nodelay(True)

    def on_close(self) -> None:
        for one in self.subscriptions.values():
            one.unregister()

    def on_message(self, text) -> None:
        said = json.loads(text)
        {"subscribe": self.subscribe, "unsubscribe": self.unsubscribe, "call_service": self.call}[said["op"]](said)

    def tell(self, message, binary: bool = False) -> None:
        # rospy calls back on its own threads.
        loop.add_callback(lambda: self.ws_connection and self.write_message(message, binary))

    def subscribe(self, said: dict) -> None:
        topic, kind = said["topic"], said["type"]
        is_raw = said.get("compression") == "cbor-raw" and not IS_OLD

        def raw(message) -> None:
            now = rospy.get_rostime()
            body = {"secs": now.secs, "nsecs": now.nsecs, "bytes": message._buff}
            self.tell(cbor({"op": "publish", "topic": topic, "msg": body}), binary=True)

        def values(message) -> None:
            self.tell(json.dumps({"op": "publish", "topic": topic, "msg": plain(message)}))

        of = rospy.AnyMsg if is_raw else roslib.message.get_message_class(kind)
        self.subscriptions[topic] = rospy.Subscriber(topic, of, raw if is_raw else values)

    def unsubscribe(self, said: dict) -> None:
        gone = self.subscriptions.pop(said["topic"], None)
        if gone:
            gone.unregister()

    def call(self, said: dict) -> None:
        answer = SERVICES.get(said["service"])
        values = answer() if answer else f"Service {said['service']} does not exist"
        self.tell(json.dumps({
            "op": "service_response", "service": said["service"], "values": values, "result": answer is not None, "id": said.get("id"),
        }))


rospy.init_node("rosbridge_websocket", disable_signals=True)
loop = tornado.ioloop.IOLoop.current()
tornado.web.Application([(r"/", Bridge)]).listen(int(sys.argv[1]), "127.0.0.1")
print("ready", flush=True)
loop.start()
