"""A robot of ROS 1 that asof did not make, behind a rosbridge server, and asof as its listener: what is recorded is held against
what was sent.

rosbridge_source.py ASOF FOLDER ROS_PYTHON    ROS_PYTHON: a Python with rospy and rosmaster
"""

import json
import os
import pathlib
import socket
import subprocess
import sys
import time

from mcap.reader import make_reader
from mcap_ros1.decoder import DecoderFactory

asof, folder, ros = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
HERE = pathlib.Path(__file__).parent


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


master_port, port = free_port(), free_port()
environment = {
    **os.environ, "ROS_MASTER_URI": f"http://127.0.0.1:{master_port}", "ROS_IP": "127.0.0.1", "ROS_HOME": str(folder / "ros"),
    "PYTHONUNBUFFERED": "1",
}
running = []


def start_ros(*words: str) -> subprocess.Popen:
    made = subprocess.Popen([ros, *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    running.append(made)
    return made


def ready(process: subprocess.Popen) -> subprocess.Popen:
    assert process.stdout.readline() == "ready\n", process.wait()
    return process


def stop(process: subprocess.Popen) -> None:
    process.kill()
    process.wait()
    running.remove(process)


def finish(*words: str, codes: tuple = (0,)) -> tuple:
    done = subprocess.run([asof, *words], capture_output=True, text=True, timeout=120)
    assert done.returncode in codes, (words, done.returncode, done.stdout, done.stderr)
    return done.stdout, done.stderr


def messages(path: pathlib.Path, topic: str) -> list:
    with path.open("rb") as file:
        reader = make_reader(file, decoder_factories=[DecoderFactory()])
        return [decoded for _, _, _, decoded in reader.iter_decoded_messages(topics=[topic])]


def check(path: pathlib.Path, least: int) -> str:
    """Holds a recording against what the robot sent."""
    words = [int(one.data.removeprefix("word ")) for one in messages(path, "/chatter")]
    assert len(words) > least and words == list(range(words[0], words[-1] + 1)), (len(words), words[:10])
    for one in messages(path, "/imu"):
        number = one.header.stamp.secs * 1000 + one.header.stamp.nsecs // 1_000_000
        assert one.angular_velocity.x == number * 0.5 and list(one.linear_acceleration_covariance) == [number] * 9, one
    [static] = messages(path, "/tf_static")
    assert static.transforms[0].child_frame_id == "lidar" and static.transforms[0].transform.translation.y == 2.0, static
    bulk = messages(path, "/bulk")
    numbers = [one.layout.data_offset for one in bulk]
    assert numbers == list(range(numbers[0], numbers[-1] + 1)), numbers
    for number, one in zip(numbers, bulk):
        assert bytes(one.data) == bytes([number % 251]) * 1_000_000, number
    return f"{len(words)} words and {len(bulk)} messages of 1 MB without a gap, and the /tf_static from before"


try:
    start_ros("-c", f"import rosmaster.master; m = rosmaster.master.Master({master_port}); m.start()\nwhile m.ok(): import time; time.sleep(1)")
    end = time.monotonic() + 30
    while socket.socket().connect_ex(("127.0.0.1", master_port)):
        assert time.monotonic() < end, "there is no master"
        time.sleep(0.1)
    robot = ready(start_ros(str(HERE / "rosbridge_robot.py")))
    server = ready(start_ros(str(HERE / "rosbridge_server.py"), str(port)))
    url = f"rosbridge://127.0.0.1:{port}"

    out = folder / "raw.mcap"
    finish("record", url, "-o", str(out), "--for", "8s")
    print(f"rosbridge, the bytes of the wire: {check(out, 200)}, value by value in mcap-ros1-support")
    [late] = messages(out, "/late")
    assert late.data == "kept", late
    info = json.loads(finish("info", str(out), "--json")[0])
    assert {one["encoding"] for one in info["topics"]} == {"ros1"}, info
    print("a topic that came later is found, and what it kept comes with it")

    # The robot and the server are restarted.
    recorder = subprocess.Popen([asof, "record", url, "-o", str(folder / "again.mcap"), "--topics", "/chatter,/tf_static", "--for", "14s"])
    time.sleep(4)
    stop(server)
    stop(robot)
    robot = ready(start_ros(str(HERE / "rosbridge_robot.py")))
    server = ready(start_ros(str(HERE / "rosbridge_server.py"), str(port)))
    assert recorder.wait(timeout=60) == 0
    words = [int(one.data.removeprefix("word ")) for one in messages(folder / "again.mcap", "/chatter")]
    again = next(at for at, (one, two) in enumerate(zip(words, words[1:])) if two < one)
    assert again > 50 and len(words) - again > 50, (again, len(words))
    assert len(messages(folder / "again.mcap", "/tf_static")) == 2
    print(f"a robot and a server that are restarted are heard again: {again} words before, {len(words) - again} after")

    # A server that knows values alone.
    stop(server)
    server = ready(start_ros(str(HERE / "rosbridge_server.py"), str(port), "--without-raw"))
    out = folder / "values.mcap"
    _, said = finish("record", url, "-o", str(out), "--for", "6s", "--exclude", "/bulk")
    assert "messages of /chatter come as values; they are re-encoded by their type" in said, said
    words = [int(one.data.removeprefix("word ")) for one in messages(out, "/chatter")]
    assert len(words) > 100 and words == list(range(words[0], words[-1] + 1)), words[:10]
    for one in messages(out, "/imu"):
        number = one.header.stamp.secs * 1000 + one.header.stamp.nsecs // 1_000_000
        assert one.angular_velocity.x == number * 0.5, one
    told = finish("info", url, "--for", "3s", "--json", codes=(0, 3))[0]
    assert "re-encoded" in told, told
    print(f"of a server without raw messages, values are re-encoded, and that is said: {len(words)} words without a gap")
finally:
    for one in running:
        one.kill()
