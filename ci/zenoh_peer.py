"""The Python side of ci/zenoh-peer: publishes as rmw_zenoh does, runs asof's side, compares the recording."""
import socket
import struct
import subprocess
import sys
import time

import zenoh
from mcap.reader import make_reader

program, recording = sys.argv[1], sys.argv[2]
with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]

config = zenoh.Config()
config.insert_json5("mode", '"peer"')
config.insert_json5("listen/endpoints", f'["tcp/127.0.0.1:{port}"]')
config.insert_json5("connect/endpoints", "[]")
config.insert_json5("scouting/multicast/enabled", "false")
config.insert_json5("timestamping/enabled", "true")
session = zenoh.open(config)

IMU, STATIC = "sensor_msgs::msg::dds_::Imu_", "tf2_msgs::msg::dds_::TFMessage_"
HASH = "RIHS01_" + "ab" * 32
gid = bytes(range(16))


def token(number, topic, kind, qos):
    mangled = topic.replace("/", "%")
    key = f"@ros2_lv/0/{session.zid()}/0/{number}/MP/%/%/python_driver/{mangled}/{kind}/{HASH}/{qos}"
    return session.liveliness().declare_token(key)


def attachment(sequence, nanos):
    return struct.pack("<qqB", sequence, nanos, 16) + gid


def payload(number):
    body = bytes((number * 7 + i) % 256 for i in range(40 if number % 10 else 200_000))
    return b"\x00\x01\x00\x00" + struct.pack("<iI", 1_700_000_000 + number, 500) + body


# A topic that is published before anybody listens: a late joiner must get it.
latched = None
try:
    from zenoh.ext import CacheConfig, declare_advanced_publisher

    latched = declare_advanced_publisher(
        session, f"0/tf_static/{STATIC}/{HASH}", cache=CacheConfig(max_samples=1), publisher_detection=True
    )
    latched.put(payload(9_999_999), attachment=attachment(1, 1))
except ImportError as problem:
    print(f"SKIPPED: this eclipse-zenoh has no advanced publisher ({problem})", file=sys.stderr)
tokens = [token(1, "/imu/data", IMU, "::,:,:,:,,")]
if latched is not None:
    tokens.append(token(2, "/tf_static", STATIC, ":1:,1:,:,:,,"))

count = 200
side = subprocess.Popen(
    [program, f"zenoh://127.0.0.1:{port}", recording, str(count), "latched" if latched else "plain"],
    stdout=subprocess.PIPE, text=True,
)
ready = side.stdout.readline().strip()
assert ready == "ready", ready
# Blocking instead of dropping, since every byte is compared; and only when the subscription has arrived here.
imu = session.declare_publisher(f"0/imu/data/{IMU}/{HASH}", congestion_control=zenoh.CongestionControl.BLOCK)
deadline = time.monotonic() + 60
while not imu.matching_status.matching and time.monotonic() < deadline:
    time.sleep(0.01)
time.sleep(1)
for number in range(1, count + 1):
    imu.put(payload(number), attachment=attachment(number, 1_000_000_000 + number))
    time.sleep(0.001)
report, _ = side.communicate(timeout=120)
print(report, end="")
assert side.returncode == 0, "asof's side failed"

with open(recording, "rb") as file:
    seen = {}
    for schema, channel, message in make_reader(file).iter_messages():
        seen.setdefault(channel.topic, []).append((schema.name, message))
assert len(seen["/imu/data"]) == count, len(seen["/imu/data"])
for number, (name, message) in enumerate(seen["/imu/data"], 1):
    assert name == "sensor_msgs/msg/Imu", name
    assert message.data == payload(number), f"message {number} has other bytes"
    assert (message.sequence, message.publish_time) == (number, 1_000_000_000 + number)
if latched is not None:
    assert [m.data for _, m in seen["/tf_static"]] == [payload(9_999_999)], "history of /tf_static"
print(f"recorded: {count} messages on /imu/data with the same bytes" + (", and the history of /tf_static" if latched else ""))
session.close()
