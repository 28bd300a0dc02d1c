"""Python's `rosbags`, for the suite `formats`: makes the recordings, and reads them on demand.

`rosbags_peer.py make FOLDER` writes FOLDER/run.bag and FOLDER/run (a db3 bag) with the same messages.
`rosbags_peer.py serve` reads lines `KIND PATH` and answers each with nanoseconds, messages and bytes of payload.
"""

import pathlib
import random
import sys
import time

from rosbags.rosbag1 import Reader as Reader1, Writer as Writer1
from rosbags.rosbag2 import Reader as Reader2, Writer as Writer2
from rosbags.typesys import Stores, get_typestore

SMALL = [
    ("/imu", "sensor_msgs/msg/Imu", 324),
    ("/odom", "nav_msgs/msg/Odometry", 724),
    ("/tf", "geometry_msgs/msg/TransformStamped", 120),
    ("/joint_states", "sensor_msgs/msg/JointState", 260),
    ("/cmd_vel", "geometry_msgs/msg/Twist", 48),
    ("/battery", "sensor_msgs/msg/BatteryState", 96),
]
LARGE = [("/camera", "sensor_msgs/msg/Image", 60_000), ("/scan", "sensor_msgs/msg/LaserScan", 3_000)]


def messages():
    """150,000 messages over 500 s: mostly small ones, as on a robot."""
    dice = random.Random(8)
    noise = dice.randbytes(200_000)
    for index in range(150_000):
        if index % 300 == 0:
            topic, kind, length = LARGE[0]
        elif index % 50 == 0:
            topic, kind, length = LARGE[1]
        else:
            topic, kind, length = SMALL[dice.randrange(len(SMALL))]
        start = dice.randrange(100_000)
        payload = b"\x00\x01\x00\x00" + noise[start : start + length - 4]
        yield topic, kind, 1_700_000_000_000_000_000 + index * 3_333_333 + dice.randrange(1000), payload


def make(folder):
    folder.mkdir(parents=True, exist_ok=True)
    store1, store2 = get_typestore(Stores.ROS1_NOETIC), get_typestore(Stores.ROS2_HUMBLE)
    with Writer1(folder / "run.bag") as bag:
        known = {}
        for topic, kind, stamp, payload in messages():
            if topic not in known:
                known[topic] = bag.add_connection(topic, kind, typestore=store1)
            bag.write(known[topic], stamp, payload)
    with Writer2(folder / "run", version=8) as bag:
        known = {}
        for topic, kind, stamp, payload in messages():
            if topic not in known:
                known[topic] = bag.add_connection(topic, kind, typestore=store2)
            bag.write(known[topic], stamp, payload)


def read(kind, path):
    reader = Reader1 if kind == "bag" else Reader2
    count = size = 0
    start = time.perf_counter_ns()
    with reader(pathlib.Path(path)) as bag:
        for _, _, data in bag.messages():
            count += 1
            size += len(data)
    return time.perf_counter_ns() - start, count, size


if sys.argv[1] == "make":
    make(pathlib.Path(sys.argv[2]))
else:
    for line in sys.stdin:
        kind, path = line.rstrip("\n").split(" ", 1)
        print(*read(kind, path), flush=True)
