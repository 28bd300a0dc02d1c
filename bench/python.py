"""The suite `py`: asof from Python beside its peers, each case measured in turns in one run.

    python bench/python.py [--json] [--case TEXT] [--rounds N] [--seconds N]

`asof-bench py` runs it in an environment of its own. It needs the wheel of a release build, and of the peers those that can be had: rosbags, mcap, mcap-ros2-support, rerun-sdk, pandas,
polars, pyarrow, and tf2_py (Debian's python3-tf2). A peer that is not there is said and left out.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import asof
import numpy as np

#: What a ratio may be at most.
TARGETS = {
    ("iterate_all_raw", "mcap"): 0.05,
    **{
        (f"iterate_one_field_{topic}", peer): most
        for topic in ("imu", "tf", "odom", "scan")
        for peer, most in (("rosbags", 0.15), ("mcap_ros2", 1.0))
    },
    ("decode_small_to_numpy", "rosbags"): 0.02,
    ("decode_small_to_numpy", "mcap_ros2"): 0.005,
    ("topic_to_polars", "rust_decode"): 1.1,
    ("topic_to_polars", "rerun"): 0.3,
    ("tf_lookup_many_100000", "tf2_py"): 0.01,
    ("tf_lookup_single", "tf2_py"): 0.5,
    ("join_nearest_3_topics", "pandas_merge_asof"): 0.5,
}
FIELDS = ["angular_velocity.z", "linear_acceleration.x", "orientation.w"]
#: The topics of the recording of small messages: no pictures, scans or maps.
SMALL = "/odom,/imu,/joint_states,/tf,/tf_static,/cmd_vel"


def there(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


def iterate_all_raw(path: Path) -> dict[str, Callable[[], object]]:
    def ours() -> int:
        return sum(1 for _ in asof.open(path).messages())

    def mcap() -> int:
        from mcap.reader import make_reader

        with open(path, "rb") as file:
            return sum(1 for _ in make_reader(file).iter_messages())

    return {"asof": ours, "mcap": mcap}


def iterate_one_field(topic: str, field: Callable[[object], float]) -> Callable[[Path], dict[str, Callable[[], object]]]:
    """The loop that everybody writes first: one field of each message, in CPU time. The recording of small messages has no scans."""

    def ways(path: Path) -> dict[str, Callable[[], object]]:
        path = with_scans(path)

        def ours() -> float:
            return sum(field(message) for message in asof.open(path).messages(topic))

        def rosbags() -> float:
            return sum(field(message) for message in by_rosbags(path, topic))

        def mcap_ros2() -> float:
            from mcap.reader import make_reader
            from mcap_ros2.decoder import DecoderFactory

            with open(path, "rb") as file:
                reader = make_reader(file, decoder_factories=[DecoderFactory()])
                return sum(field(message) for _, _, _, message in reader.iter_decoded_messages(topics=[topic]))

        return {"asof": ours, "rosbags": rosbags, "mcap_ros2": mcap_ros2}

    ways.__name__ = f"iterate_one_field_{topic[1:]}"
    return ways


def imu_fields(message) -> tuple[float, float, float]:
    return message.angular_velocity.z, message.linear_acceleration.x, message.orientation.w


def decode_small_to_numpy(path: Path) -> dict[str, Callable[[], object]]:
    """On the recording of small messages: of a picture in the same chunk all of them would measure the decompression."""
    path = small(path)

    def ours() -> int:
        table = asof.open(path)["/imu"].read(columns=FIELDS).to_numpy()
        return sum(len(table[field]) for field in FIELDS)

    def mcap_ros2() -> int:
        from mcap.reader import make_reader
        from mcap_ros2.decoder import DecoderFactory

        with open(path, "rb") as file:
            reader = make_reader(file, decoder_factories=[DecoderFactory()])
            messages = reader.iter_decoded_messages(topics=["/imu"])
            return np.array([imu_fields(message) for _, _, _, message in messages]).size

    def rosbags() -> int:
        return np.array([imu_fields(message) for message in by_rosbags(path, "/imu")]).size

    return {"asof": ours, "mcap_ros2": mcap_ros2, "rosbags": rosbags}


def by_rosbags(path: Path, topic: str):
    """The messages of a topic, as rosbags decodes them."""
    from rosbags.highlevel import AnyReader
    from rosbags.typesys import Stores, get_typestore

    with AnyReader([path], default_typestore=get_typestore(Stores.ROS2_HUMBLE)) as reader:
        wanted = [one for one in reader.connections if one.topic == topic]
        for connection, _, raw in reader.messages(wanted):
            yield reader.deserialize(raw, connection.msgtype)


def topic_to_polars(path: Path) -> dict[str, Callable[[], object]]:
    def ours() -> int:
        return asof.open(path)["/imu"].to_polars().height

    def rust_decode() -> int:
        return sum(len(batch) for batch in asof.open(path)["/imu"].batches(rows=1 << 16))

    def rerun() -> int:
        import rerun as rr

        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "run.rrd"
            command = Path(sys.executable).parent / "rerun"
            subprocess.run([command, "mcap", "convert", str(path), "-o", str(file)], check=True, capture_output=True)
            # A file is read through a server within the process.
            with rr.server.Server(host="127.0.0.1", datasets={"run": [str(file)]}) as server:
                topic = server.client().get_dataset("run").filter_contents(["/imu/**"])
                return topic.reader(index="message_log_time").to_arrow_table().num_rows

    return {"asof": ours, "rust_decode": rust_decode, "rerun": rerun}


@functools.cache
def _tf2(path: Path):
    """tf2's buffer with the same transforms, made once."""
    import tf2_py
    from geometry_msgs.msg import TransformStamped
    from genpy import Duration, Time

    core = tf2_py.BufferCore(Duration(10_000))
    for message in asof.open(path).messages("/tf", "/tf_static"):
        for given in message.transforms:
            one = TransformStamped()
            one.header.frame_id, one.child_frame_id = given.header.frame_id, given.child_frame_id
            one.header.stamp = Time(given.header.stamp.sec, given.header.stamp.nanosec)
            for part in "xyz":
                setattr(one.transform.translation, part, given.transform.translation[part])
            for part in "xyzw":
                setattr(one.transform.rotation, part, given.transform.rotation[part])
            (core.set_transform if message.topic == "/tf" else core.set_transform_static)(one, "bench")
    return core, Time


def tf_lookup_many_100000(path: Path) -> dict[str, Callable[[], object]]:
    tf, stamps = asof.open(path).tf(), _stamps(path)

    def tf2_py() -> int:
        core, make = _tf2(path)
        times = [make(int(t) // 10**9, int(t) % 10**9) for t in stamps]
        return len([core.lookup_transform_core("map", "laser", t) for t in times])

    return {"asof": lambda: tf.lookup_many("map", "laser", stamps)[2].sum(), "tf2_py": tf2_py}


def tf_lookup_single(path: Path) -> dict[str, Callable[[], object]]:
    tf, stamps = asof.open(path).tf(), _stamps(path)[:10_000].tolist()

    def tf2_py() -> int:
        core, make = _tf2(path)
        times = [make(t // 10**9, t % 10**9) for t in stamps]
        return len([core.lookup_transform_core("map", "laser", t) for t in times])

    return {"asof": lambda: len([tf.lookup_transform("map", "laser", t) for t in stamps]), "tf2_py": tf2_py}


def _stamps(path: Path) -> np.ndarray:
    rec = asof.open(path)
    return np.linspace(rec.start + 10**9, rec.end - 10**9, 100_000).astype(np.int64)


def join_nearest_3_topics(path: Path) -> dict[str, Callable[[], object]]:
    """From the recording to the joined table. pandas has its frames from rosbags, or (`_of_tables`) from asof itself."""
    import pandas as pd

    path = small(path)
    fields = {"/imu": "angular_velocity.z", "/odom": "pose.pose.position.x", "/joint_states": "position[0]"}
    values = {
        "/imu": lambda message: message.angular_velocity.z,
        "/odom": lambda message: message.pose.pose.position.x,
        "/joint_states": lambda message: message.position[0],
    }
    columns = {topic: [field] for topic, field in fields.items()}

    def merged(frames: list) -> int:
        joined, *others = frames
        for frame in others:
            joined = pd.merge_asof(joined, frame, on="stamp", direction="nearest", tolerance=pd.Timedelta("20ms"))
        return len(joined)

    def ours() -> int:
        joined = asof.open(path).join("/imu", ["/odom", "/joint_states"], on="stamp", tolerance="20ms", columns=columns)
        return joined.to_arrow().num_rows

    def pandas_merge_asof() -> int:
        frames = []
        for topic, value in values.items():
            stamps, numbers = [], []
            for message in by_rosbags(path, topic):
                stamp = message.header.stamp
                stamps.append(stamp.sec * 10**9 + stamp.nanosec)
                numbers.append(value(message))
            frames.append(pd.DataFrame({"stamp": pd.to_datetime(stamps, utc=True), fields[topic]: numbers}))
        return merged(frames)

    def pandas_merge_asof_of_tables() -> int:
        rec = asof.open(path)
        return merged([rec[topic].read(columns=["stamp", field]).to_pandas() for topic, field in fields.items()])

    return {"asof": ours, "pandas_merge_asof": pandas_merge_asof, "pandas_merge_asof_of_tables": pandas_merge_asof_of_tables}


@functools.cache
def small(path: Path) -> Path:
    """The small messages of a recording, in one of their own beside it."""
    return only(path, "small.mcap", SMALL)


@functools.cache
def with_scans(path: Path) -> Path:
    """The small messages and the scans of a recording, in one of their own beside it."""
    return only(path, "scans.mcap", SMALL + ",/scan")


def only(path: Path, name: str, topics: str) -> Path:
    own = path.with_name(name)
    command = [sys.executable, "-m", "asof", "convert", str(path), "-o", str(own), "--topics", topics, "--quiet"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return own


CASES = [
    iterate_all_raw,
    iterate_one_field("/imu", lambda message: message.linear_acceleration.z),
    iterate_one_field("/tf", lambda message: message.transforms[0].transform.translation.x),
    iterate_one_field("/odom", lambda message: message.pose.pose.position.x),
    iterate_one_field("/scan", lambda message: message.ranges[0]),
    decode_small_to_numpy,
    topic_to_polars,
    tf_lookup_many_100000,
    tf_lookup_single,
    join_nearest_3_topics,
]
NEEDS = {"mcap": "mcap", "mcap_ros2": "mcap_ros2", "rosbags": "rosbags", "rerun": "rerun", "tf2_py": "tf2_py", "pandas_merge_asof": "rosbags"}


def timed(way: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    began = clock()
    way()
    return clock() - began


def measure(case: Callable[[Path], dict[str, Callable[[], object]]], path: Path, rounds: int) -> dict[str, float]:
    ways = case(path)
    for name in list(ways):
        if name in NEEDS and not there(NEEDS[name]):
            print(f"{case.__name__}: {name} is left out, {NEEDS[name]} is not installed", file=sys.stderr)
            del ways[name]
    # Of a loop it is CPU time that counts: of reading ahead on other threads too.
    clock = time.process_time if case.__name__.startswith("iterate_one_field") else time.perf_counter
    took: dict[str, list[float]] = {name: [] for name in ways}
    for name in list(ways):
        try:
            first = timed(ways[name], clock)
        except Exception as error:  # A peer that cannot do it on this machine is said and left out.
            if name == "asof":
                raise
            print(f"{case.__name__}: {name} is left out: {type(error).__name__}: {error}", file=sys.stderr)
            del ways[name], took[name]
            continue
        # What takes long is measured once; for all others this was to warm up.
        if first > 20:
            took[name].append(first)
    for _ in range(rounds):
        for name, way in ways.items():
            if not (took[name] and took[name][0] > 20):
                took[name].append(timed(way, clock))
    return {name: statistics.median(all_times) for name, all_times in took.items()}


def show(case: str, times: dict[str, float]) -> None:
    for name, seconds in times.items():
        line = f"{case:<24} {name:<18} {seconds:>11.6f} s"
        if name != "asof":
            line += f"  asof takes {times['asof'] / seconds:.4f} of it, at most {TARGETS.get((case, name))}"
        print(line, flush=True)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--json", action="store_true", help="one object a line")
    words.add_argument("--case", default="", help="only cases with this in their names")
    words.add_argument("--rounds", type=int, default=5)
    words.add_argument("--seconds", type=int, default=600, help="how long the robot of the recording drives")
    given = words.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.mcap"
        made = [sys.executable, "-m", "asof", "demo", "-o", str(path), "--seconds", str(given.seconds), "--quiet"]
        subprocess.run(made, check=True, stdout=subprocess.DEVNULL)
        for case in CASES:
            if given.case not in case.__name__:
                continue
            times = measure(case, path, given.rounds)
            if given.json:
                ours = times.pop("asof")
                print(json.dumps({"suite": "py", "case": case.__name__, "unit": "s", "asof": ours, "peers": times}), flush=True)
            else:
                show(case.__name__, times)


if __name__ == "__main__":
    main()
