"""A robot on DDS, by Eclipse Cyclone DDS from PyPI, with the names that ROS 2 gives things; without ROS.

dds_robot.py sensors SECONDS    /chatter, /imu, /own, /scan, a /tf_static that is sent once, and ros_discovery_info
dds_robot.py describes          /own, whose type only its node knows, /other, which it does not know, and /lied, about which it lies
dds_robot.py hostile            everything that a robot can do wrong, beside a /chatter that is right
dds_robot.py cloud COUNT        a cloud of 5 MB ten times a second, once somebody listens
dds_robot.py many COUNT         so many topics, each with a message that is kept for late joiners
"""

import dataclasses
import hashlib
import json
import sys
import threading
import time
import types

from cyclonedds.core import Policy, Qos
from cyclonedds.domain import DomainParticipant
from cyclonedds.idl import IdlStruct
from cyclonedds.idl.types import array, float64, int32, int64, sequence, uint8, uint32, uint64
from cyclonedds.pub import DataWriter
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic
from cyclonedds.util import duration

STRING_HASH = b"typehash=RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18;"


def struct(typename: str, fields: dict):
    """A type with the name that ROS 2 has for it on DDS."""
    name = typename.rsplit("::", 1)[1]
    made = types.new_class(name, (IdlStruct,), {"typename": typename.replace("::", ".")}, lambda body: body["__annotations__"].update(fields))
    return dataclasses.dataclass(made)


String = struct("std_msgs::msg::dds_::String_", {"data": str})
Time = struct("builtin_interfaces::msg::dds_::Time_", {"sec": int32, "nanosec": uint32})
Header = struct("std_msgs::msg::dds_::Header_", {"stamp": Time, "frame_id": str})
Vector3 = struct("geometry_msgs::msg::dds_::Vector3_", {"x": float64, "y": float64, "z": float64})
Quaternion = struct("geometry_msgs::msg::dds_::Quaternion_", {"x": float64, "y": float64, "z": float64, "w": float64})
Transform = struct("geometry_msgs::msg::dds_::Transform_", {"translation": Vector3, "rotation": Quaternion})
TransformStamped = struct("geometry_msgs::msg::dds_::TransformStamped_", {"header": Header, "child_frame_id": str, "transform": Transform})
TFMessage = struct("tf2_msgs::msg::dds_::TFMessage_", {"transforms": sequence[TransformStamped]})
Imu = struct("sensor_msgs::msg::dds_::Imu_", {
    "header": Header, "orientation": Quaternion, "orientation_covariance": array[float64, 9], "angular_velocity": Vector3,
    "angular_velocity_covariance": array[float64, 9], "linear_acceleration": Vector3, "linear_acceleration_covariance": array[float64, 9],
})
PointField = struct("sensor_msgs::msg::dds_::PointField_", {"name": str, "offset": uint32, "datatype": uint8, "count": uint32})
PointCloud2 = struct("sensor_msgs::msg::dds_::PointCloud2_", {
    "header": Header, "height": uint32, "width": uint32, "fields": sequence[PointField], "is_bigendian": bool, "point_step": uint32,
    "row_step": uint32, "data": sequence[uint8], "is_dense": bool,
})
Own = struct("robot_msgs::msg::dds_::Own_", {"number": int32})
Other = struct("robot_msgs::msg::dds_::Other_", {"number": int32})
Lied = struct("robot_msgs::msg::dds_::Lied_", {"number": int32})
# Types under the names of others: their bytes do not fit the name.
LyingString = struct("std_msgs::msg::dds_::String_", {"length": uint32, "rest": sequence[uint8]})
LyingNodes = struct("rmw_dds_common::msg::dds_::ParticipantEntitiesInfo_", {"data": sequence[uint8]})
Gid = struct("rmw_dds_common::msg::dds_::Gid_", {"data": array[uint8, 16]})
NodeEntitiesInfo = struct("rmw_dds_common::msg::dds_::NodeEntitiesInfo_", {
    "node_namespace": str, "node_name": str, "reader_gid_seq": sequence[Gid], "writer_gid_seq": sequence[Gid],
})
ParticipantEntitiesInfo = struct("rmw_dds_common::msg::dds_::ParticipantEntitiesInfo_", {
    "gid": Gid, "node_entities_info_seq": sequence[NodeEntitiesInfo],
})

# The type description service as in rmw_cyclonedds: the client and the number of the request come first.
FieldType = struct("type_description_interfaces::msg::dds_::FieldType_", {
    "type_id": uint8, "capacity": uint64, "string_capacity": uint64, "nested_type_name": str,
})
Field = struct("type_description_interfaces::msg::dds_::Field_", {"name": str, "type": FieldType, "default_value": str})
IndividualTypeDescription = struct("type_description_interfaces::msg::dds_::IndividualTypeDescription_", {"type_name": str, "fields": sequence[Field]})
TypeDescription = struct("type_description_interfaces::msg::dds_::TypeDescription_", {
    "type_description": IndividualTypeDescription, "referenced_type_descriptions": sequence[IndividualTypeDescription],
})
TypeSource = struct("type_description_interfaces::msg::dds_::TypeSource_", {"type_name": str, "encoding": str, "raw_file_contents": str})
KeyValue = struct("type_description_interfaces::msg::dds_::KeyValue_", {"key": str, "value": str})
DescriptionRequest = struct("type_description_interfaces::srv::dds_::GetTypeDescription_Request_", {
    "client": uint64, "number": int64, "type_name": str, "type_hash": str, "include_type_sources": bool,
})
DescriptionReply = struct("type_description_interfaces::srv::dds_::GetTypeDescription_Response_", {
    "client": uint64, "number": int64, "successful": bool, "failure_reason": str, "type_description": TypeDescription,
    "type_sources": sequence[TypeSource], "extra_information": sequence[KeyValue],
})

RELIABLE = Policy.Reliability.Reliable(duration(seconds=1))
LATCHED = Qos(RELIABLE, Policy.Durability.TransientLocal, Policy.History.KeepLast(1))
SERVICE = Qos(RELIABLE, Policy.History.KeepLast(10))
SENSOR = Qos(Policy.Reliability.BestEffort, Policy.History.KeepLast(5))


def gid(entity) -> Gid:
    return Gid(list(entity.guid.bytes))


def stamp(number: int) -> Header:
    return Header(Time(number // 1000, number % 1000 * 1_000_000), "base")


def imu(number: int) -> Imu:
    zero = [0.0] * 9
    return Imu(stamp(number), Quaternion(0.0, 0.0, 0.0, 1.0), zero, Vector3(number * 0.5, -number, 1e-3), zero, Vector3(0.0, 0.0, 9.81), [float(number)] * 9)


def writer(participant, name: str, kind, qos: Qos) -> DataWriter:
    return DataWriter(participant, Topic(participant, name, kind), qos)


def sensors(seconds: float) -> None:
    participant = DomainParticipant(0)
    words = writer(participant, "rt/chatter", String, Qos(RELIABLE, Policy.History.KeepLast(10), Policy.Userdata(STRING_HASH)))
    motion = writer(participant, "rt/imu", Imu, SENSOR)
    own = writer(participant, "rt/own", Own, Qos(RELIABLE))
    careless = writer(participant, "rt/scan", String, SENSOR)
    # A participant on the robot that never discovers it.
    strict = DataReader(participant, Topic(participant, "rt/scan", String), Qos(RELIABLE))
    static = writer(participant, "rt/tf_static", TFMessage, LATCHED)
    nodes = writer(participant, "ros_discovery_info", ParticipantEntitiesInfo, LATCHED)
    nodes.write(ParticipantEntitiesInfo(gid(participant), [
        NodeEntitiesInfo("/", "talker", [], [gid(words), gid(own)]),
        NodeEntitiesInfo("/base", "driver", [], [gid(motion), gid(careless), gid(static)]),
        NodeEntitiesInfo("/", "mapper", [gid(strict)], []),
    ]))
    static.write(TFMessage([TransformStamped(stamp(7), "lidar", Transform(Vector3(1.0, 2.0, 3.0), Quaternion(0.0, 0.0, 0.0, 1.0)))]))
    print("ready", flush=True)
    number, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        words.write(String(f"word {number}"))
        motion.write(imu(number))
        own.write(Own(number))
        careless.write(String("scan"))
        number += 1
        time.sleep(0.01)


def type_hash(type_name: str) -> str:
    """The hash of a type with the one field `int32 number`, as REP 2016 has it."""
    kind = {"type_id": 6, "capacity": 0, "string_capacity": 0, "nested_type_name": ""}
    described = {"type_name": type_name, "fields": [{"name": "number", "type": kind}]}
    whole = json.dumps({"type_description": described, "referenced_type_descriptions": []})
    return f"RIHS01_{hashlib.sha256(whole.encode()).hexdigest()}"


def int32_field(name: str) -> "Field":
    return Field(name, FieldType(6, 0, 0, ""), "")


def reply(request, type_name: str, fields: list, reason: str = "") -> "DescriptionReply":
    description = TypeDescription(IndividualTypeDescription(type_name, fields), [])
    return DescriptionReply(request.client, request.number, not reason, reason, description, [], [])


def describes() -> None:
    """A node of ROS 2 Iron or later: what its types are made of, it says itself."""
    participant = DomainParticipant(0)
    writers = []
    for name, kind in [("Own", Own), ("Other", Other), ("Lied", Lied)]:
        announced = f"typehash={type_hash(f'robot_msgs/msg/{name}')};".encode()
        made = writer(participant, f"rt/{name.lower()}", kind, Qos(RELIABLE, Policy.Userdata(announced)))
        writers.append((made, kind))
    service = "/base/driver/get_type_description"
    requests = DataReader(participant, Topic(participant, f"rq{service}Request", DescriptionRequest), SERVICE)
    replies = writer(participant, f"rr{service}Reply", DescriptionReply, SERVICE)
    nodes = writer(participant, "ros_discovery_info", ParticipantEntitiesInfo, LATCHED)
    nodes.write(ParticipantEntitiesInfo(gid(participant), [
        NodeEntitiesInfo("/base", "driver", [gid(requests)], [gid(one) for one, _ in writers] + [gid(replies)]),
    ]))
    print("ready", flush=True)
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    asked, number = set(), 0
    while not ended.wait(0.01):
        for request in requests.take(N=16):
            if not isinstance(request, DescriptionRequest):
                # A client that has left.
                continue
            asked.add((request.type_name, request.type_hash))
            # A reply to another client, which is not for the one that asked.
            stranger = reply(request, request.type_name, [])
            stranger.client += 1
            replies.write(stranger)
            if request.type_name == "robot_msgs/msg/Lied":
                replies.write(reply(request, request.type_name, [int32_field("number"), int32_field("more")]))
            elif request.type_name == "robot_msgs/msg/Other":
                replies.write(reply(request, request.type_name, [], "it is not known here"))
            else:
                replies.write(reply(request, request.type_name, [int32_field("number")]))
        for one, kind in writers:
            one.write(kind(number))
        number += 1
    print(sorted(asked), flush=True)


def hostile() -> None:
    participant = DomainParticipant(0)
    words = writer(participant, "rt/chatter", String, Qos(RELIABLE, Policy.History.KeepLast(10)))
    liar = writer(participant, "rt/liar", LyingString, Qos(RELIABLE, Policy.Userdata(b"typehash=;typehash=RIHS01_zz\xff;" * 50)))
    clocks = writer(participant, "rt/clocks", String, Qos(RELIABLE, Policy.History.KeepLast(10)))
    both = [writer(participant, "rt/both", String, Qos(RELIABLE)), writer(DomainParticipant(0), "rt/both", Own, Qos(RELIABLE))]
    odd = [writer(participant, name, String, LATCHED) for name in ["rt/", "rt//", "rt/" + "x" * 240, "rr/get_type_descriptionReply", "rq/"]]
    nodes = writer(participant, "ros_discovery_info", LyingNodes, LATCHED)
    # As a string: unterminated, of 2 GB, not UTF-8, empty.
    lies = [(0xFFFFFFFF, []), (0x7FFFFFFF, [1, 2, 3]), (4, [0xFF, 0xFE, 0xFD, 0xFC]), (0, [7] * 50_000)]
    year = 31_556_952 * 10**9
    print("ready", flush=True)
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    number = 0
    while not ended.wait(0.01):
        words.write(String(f"word {number}"))
        liar.write(LyingString(*lies[number % len(lies)]))
        nodes.write(LyingNodes([number % 256] * (number % 500)))
        # The first second of 1970, now, and the year 2100.
        clocks.write(String(f"{number}"), timestamp=[1, None, 130 * year][number % 3])
        both[0].write(String("one"))
        both[1].write(Own(2))
        for one in odd:
            one.write(String("odd"))
        number += 1


def cloud(count: int) -> None:
    participant = DomainParticipant(0)
    # A listener on a busy machine makes the robot wait: with a history of a few clouds, it would lose what it had no time to fetch.
    points = writer(participant, "rt/cloud", PointCloud2, Qos(Policy.Reliability.Reliable(duration(seconds=60)), Policy.History.KeepAll))
    fields = [PointField("x", 0, 7, 1), PointField("y", 4, 7, 1), PointField("z", 8, 7, 1), PointField("intensity", 12, 7, 1)]
    print("ready", flush=True)
    end = time.monotonic() + 60
    while not points.get_matched_subscriptions() and time.monotonic() < end:
        time.sleep(0.01)
    # The reader must have discovered the writer, too.
    time.sleep(0.5)
    # Serializing takes Python longer than a tenth of a second, so it is done once, and the changing bytes are patched.
    size = 5_000_000 // 16 * 16
    one = PointCloud2(stamp(0), 1, size // 16, fields, False, 16, size, b"\xff" * size, True)
    whole = one.serialize()
    at = whole.index(b"\xff" * size)
    began = time.monotonic()
    for number in range(count):
        head = stamp(number).stamp
        times = head.sec.to_bytes(4, "little") + head.nanosec.to_bytes(4, "little")
        sent = whole[:4] + times + whole[12:at] + bytes([number % 251]) * size + whole[at + size:]
        one.serialize = lambda *_, sent=sent, **__: sent
        points.write(one)
        time.sleep(max(0.0, began + (number + 1) * 0.1 - time.monotonic()))
    print(f"{count / (time.monotonic() - began):.2f}", flush=True)
    time.sleep(2)


def many(count: int) -> None:
    participant = DomainParticipant(0)
    writers = [writer(participant, f"rt/many/t{number}", String, LATCHED) for number in range(count)]
    for number, one in enumerate(writers):
        one.write(String(f"kept {number}"))
    print("ready", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    {"sensors": sensors, "describes": describes, "hostile": hostile, "cloud": cloud, "many": many}[sys.argv[1]](*map(int, sys.argv[2:]))
