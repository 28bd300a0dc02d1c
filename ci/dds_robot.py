"""A robot on DDS, by Eclipse Cyclone DDS from PyPI, with the names that ROS 2 gives things; without ROS.

dds_robot.py sensors SECONDS    /chatter, /imu, /own, /scan, a /tf_static that is sent once, and ros_discovery_info
dds_robot.py cloud COUNT        a cloud of 5 MB ten times a second, once somebody listens
dds_robot.py many COUNT         so many topics, each with a message that is kept for late joiners
"""

import dataclasses
import sys
import time
import types

from cyclonedds.core import Policy, Qos
from cyclonedds.domain import DomainParticipant
from cyclonedds.idl import IdlStruct
from cyclonedds.idl.types import array, float64, int32, sequence, uint8, uint32
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
Gid = struct("rmw_dds_common::msg::dds_::Gid_", {"data": array[uint8, 16]})
NodeEntitiesInfo = struct("rmw_dds_common::msg::dds_::NodeEntitiesInfo_", {
    "node_namespace": str, "node_name": str, "reader_gid_seq": sequence[Gid], "writer_gid_seq": sequence[Gid],
})
ParticipantEntitiesInfo = struct("rmw_dds_common::msg::dds_::ParticipantEntitiesInfo_", {
    "gid": Gid, "node_entities_info_seq": sequence[NodeEntitiesInfo],
})

RELIABLE = Policy.Reliability.Reliable(duration(seconds=1))
LATCHED = Qos(RELIABLE, Policy.Durability.TransientLocal, Policy.History.KeepLast(1))
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
    # Somebody on the robot who never hears of it.
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


def cloud(count: int) -> None:
    participant = DomainParticipant(0)
    points = writer(participant, "rt/cloud", PointCloud2, Qos(RELIABLE, Policy.History.KeepLast(5)))
    fields = [PointField("x", 0, 7, 1), PointField("y", 4, 7, 1), PointField("z", 8, 7, 1), PointField("intensity", 12, 7, 1)]
    print("ready", flush=True)
    end = time.monotonic() + 60
    while not points.get_matched_subscriptions() and time.monotonic() < end:
        time.sleep(0.01)
    # The reader has to know of the writer, too.
    time.sleep(0.5)
    # Serializing takes Python longer than a tenth of a second; so that is done once, and what changes is put in.
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
    {"sensors": lambda: sensors(float(sys.argv[2])), "cloud": lambda: cloud(int(sys.argv[2])), "many": lambda: many(int(sys.argv[2]))}[sys.argv[1]]()
