"""The Python side of ci/robots/zenoh-peer: publishes as rmw_zenoh does, runs asof's side, compares the recording."""
import socket
import struct
import subprocess
import sys
import time

import zenoh
from mcap.reader import make_reader
from mcap_ros2._dynamic import serialize_dynamic
from mcap_ros2.decoder import DecoderFactory

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

STRING, CUSTOM = "std_msgs::msg::dds_::String_", "my_msgs::msg::dds_::Reading_"
DESCRIBE = "type_description_interfaces::srv::dds_::GetTypeDescription_"
IMU, STATIC = "sensor_msgs::msg::dds_::Imu_", "tf2_msgs::msg::dds_::TFMessage_"
# The hashes of the types: a type description must have the announced hash.
HASH = "RIHS01_d26379cd9bb85920847c2444821abfd8eae470c09745abe5c8da16b4fd7a38e4"
HASHES = {
    STRING: "RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18",
    IMU: "RIHS01_7d9a00ff131080897a5ec7e26e315954b8eae3353c3f995c55faf71574000b5b",
    STATIC: "RIHS01_e369d0f05a23ae52508854b66f6aa0437f3449d652e8cbf22d5abe85d020f087",
}
gid = bytes(range(16))


def token(number, topic, kind, qos, entity="MP"):
    mangled = topic.replace("/", "%")
    key = f"@ros2_lv/0/{session.zid()}/0/{number}/{entity}/%/%/python_driver/{mangled}/{kind}/{HASHES.get(kind, HASH)}/{qos}"
    return session.liveliness().declare_token(key)


def attachment(sequence, nanos):
    return struct.pack("<qqB", sequence, nanos, 16) + gid


def payload(number):
    body = bytes((number * 7 + i) % 256 for i in range(40 if number % 10 else 200_000))
    return b"\x00\x01\x00\x00" + struct.pack("<iI", 1_700_000_000 + number, 500) + body


RULE = "\n" + "=" * 80 + "\nMSG: "
READING = "string name\nfloat64[] values\nbuiltin_interfaces/Time at" + RULE + "builtin_interfaces/Time\nint32 sec\nuint32 nanosec"
PACKAGE = "type_description_interfaces"
RESPONSE = f"""bool successful
string failure_reason
{PACKAGE}/TypeDescription type_description
{PACKAGE}/TypeSource[] type_sources
{PACKAGE}/KeyValue[] extra_information{RULE}{PACKAGE}/TypeDescription
{PACKAGE}/IndividualTypeDescription type_description
{PACKAGE}/IndividualTypeDescription[] referenced_type_descriptions{RULE}{PACKAGE}/IndividualTypeDescription
string type_name
{PACKAGE}/Field[] fields{RULE}{PACKAGE}/Field
string name
{PACKAGE}/FieldType type
string default_value{RULE}{PACKAGE}/FieldType
uint8 type_id
uint64 capacity
uint64 string_capacity
string nested_type_name{RULE}{PACKAGE}/TypeSource
string type_name
string encoding
string raw_file_contents{RULE}{PACKAGE}/KeyValue
string key
string value"""
encode_response = serialize_dynamic(f"{PACKAGE}/Response", RESPONSE)[f"{PACKAGE}/Response"]
encode_reading = serialize_dynamic("my_msgs/Reading", READING)["my_msgs/Reading"]
encode_string = serialize_dynamic("std_msgs/String", "string data")["std_msgs/String"]


def field(name, type_id, nested=""):
    kind = {"type_id": type_id, "capacity": 0, "string_capacity": 0, "nested_type_name": nested}
    return {"name": name, "type": kind, "default_value": ""}


def describe(query):
    """A node's own answer, as rcl gives it: here from its fields, without the files."""
    assert b"my_msgs/msg/Reading" in bytes(query.payload), "the request names the type"
    time_fields = [field("sec", 6), field("nanosec", 7)]
    fields = [field("name", 17), field("values", 155), field("at", 1, "builtin_interfaces/msg/Time")]
    described = {
        "type_description": {"type_name": "my_msgs/msg/Reading", "fields": fields},
        "referenced_type_descriptions": [{"type_name": "builtin_interfaces/msg/Time", "fields": time_fields}],
    }
    answer = {
        "successful": True, "failure_reason": "", "type_description": described, "type_sources": [],
        "extra_information": [],
    }
    query.reply(query.key_expr, encode_response(answer))


# A topic that is published before there is a subscriber: a late joiner must get it.
latched = None
try:
    from zenoh.ext import CacheConfig, declare_advanced_publisher

    latched = declare_advanced_publisher(
        session, f"0/tf_static/{STATIC}/{HASHES[STATIC]}", cache=CacheConfig(max_samples=1), publisher_detection=True
    )
    latched.put(payload(9_999_999), attachment=attachment(1, 1))
except ImportError as problem:
    print(f"SKIPPED: this eclipse-zenoh has no advanced publisher ({problem})", file=sys.stderr)
service = session.declare_queryable(f"0/python_driver/get_type_description/{DESCRIBE}/{HASH}", describe, complete=True)
tokens = [
    token(1, "/imu/data", IMU, "::,:,:,:,,"),
    token(3, "/chatter", STRING, "::,:,:,:,,"),
    token(4, "/reading", CUSTOM, "::,:,:,:,,"),
    token(5, "/python_driver/get_type_description", DESCRIBE, "::,10:,:,:,,", "SS"),
]
if latched is not None:
    tokens.append(token(2, "/tf_static", STATIC, ":1:,1:,:,:,,"))

count = 200


def publish():
    """Runs asof's side, and publishes what it windows and records."""
    side = subprocess.Popen(
        [program, f"zenoh://127.0.0.1:{port}", recording, str(count), "latched" if latched else "plain"],
        stdout=subprocess.PIPE, text=True,
    )
    ready = side.stdout.readline().strip()
    assert ready == "ready", ready
    # Blocking instead of dropping, since every byte is compared; starts when the subscriptions have arrived.
    keys = [f"0/imu/data/{IMU}/{HASHES[IMU]}", f"0/chatter/{STRING}/{HASHES[STRING]}", f"0/reading/{CUSTOM}/{HASH}"]
    publishers = [session.declare_publisher(key, congestion_control=zenoh.CongestionControl.BLOCK) for key in keys]
    deadline = time.monotonic() + 60
    while not all(publisher.matching_status.matching for publisher in publishers):
        assert time.monotonic() < deadline, "nobody listens"
        time.sleep(0.01)
    imu, chatter, readings = publishers
    for number in range(1, 11):
        chatter.put(encode_string({"data": f"word {number}"}), attachment=attachment(number, number))
        reading = {"name": "wheel", "values": [0.5, float(number)], "at": {"sec": number, "nanosec": 7}}
        readings.put(encode_reading(reading), attachment=attachment(number, number))
    for number in range(1, count + 1):
        imu.put(payload(number), attachment=attachment(number, 1_000_000_000 + number))
        time.sleep(0.001)
    report, _ = side.communicate(timeout=120)
    print(report, end="")
    assert side.returncode == 0, "asof's side failed"


def compare():
    """Opens the recording with Python's mcap."""
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
    with open(recording, "rb") as file:
        decoded = make_reader(file, decoder_factories=[DecoderFactory()]).iter_decoded_messages(topics=["/chatter", "/reading"])
        found = {"/chatter": [], "/reading": []}
        for _, channel, _, message in decoded:
            found[channel.topic].append(message)
    assert [m.data for m in found["/chatter"]] == [f"word {n}" for n in range(1, 11)], found["/chatter"]
    values = [(m.name, list(m.values), m.at.sec, m.at.nanosec) for m in found["/reading"]]
    assert values == [("wheel", [0.5, float(n)], n, 7) for n in range(1, 11)], values
    print("decoded in Python: /chatter by its standard type, /reading by what its node described")
    print(f"recorded: {count} messages on /imu/data with the same bytes" + (", and the history of /tf_static" if latched else ""))


# An open session would keep a failed program running.
try:
    publish()
    compare()
finally:
    session.close()
