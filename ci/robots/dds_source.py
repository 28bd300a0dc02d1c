"""Robots on DDS that asof did not make, and asof as their listener: what is recorded is held against what was sent.

dds_source.py ASOF FOLDER [FAST]    FAST: a robot on Fast DDS, compiled from dds_fast.cpp

ASOF_HOSTS is the names of two network namespaces with a wire between them, where there are such.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

from rosbags.highlevel import AnyReader

from dds_robot import type_hash

asof, folder = sys.argv[1], pathlib.Path(sys.argv[2])
ROBOT = pathlib.Path(__file__).with_name("dds_robot.py")
URL = "dds://localhost?domain=0"
TOPICS, CLOUDS = 1_000, 100

CYCLONE = """<CycloneDDS><Domain id="any"><General><Interfaces><NetworkInterface address="127.0.0.1" multicast="false"/></Interfaces>
<AllowMulticast>false</AllowMulticast><MaxMessageSize>65500B</MaxMessageSize></General><Discovery><ParticipantIndex>auto</ParticipantIndex>
<MaxAutoParticipantIndex>20</MaxAutoParticipantIndex><Peers><Peer address="127.0.0.1"/></Peers></Discovery></Domain></CycloneDDS>"""
settings = folder / "cyclone.xml"
settings.write_text(CYCLONE)
environment = {**os.environ, "CYCLONEDDS_URI": settings.as_uri()}


def on(host: str) -> list:
    return ["ip", "netns", "exec", host] if host else []


def robot(*words: str, host: str = "") -> subprocess.Popen:
    # On a host of its own it runs with default settings.
    settings = os.environ if host else environment
    started = subprocess.Popen([*on(host), sys.executable, str(ROBOT), *words], env=settings, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert started.stdout.readline() == "ready\n", started.wait()
    return started


def start(*words: str, host: str = "") -> subprocess.Popen:
    return subprocess.Popen([*on(host), asof, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen, codes: tuple = (0,)) -> tuple:
    out, err = process.communicate(timeout=180)
    assert process.returncode in codes, (process.args, process.returncode, out[-2000:], err[-2000:])
    return out, err


def run(*words: str, codes: tuple = (0,)) -> str:
    return finish(start(*words), codes)[0]


def messages(path: pathlib.Path, topic: str) -> list:
    with AnyReader([path]) as reader:
        wanted = [connection for connection in reader.connections if connection.topic == topic]
        assert wanted, (topic, [connection.topic for connection in reader.connections])
        return [reader.deserialize(raw, connection.msgtype) for connection, _, raw in reader.messages(connections=wanted)]


def peak(process: subprocess.Popen) -> int:
    """The most memory that a process had so far, in bytes."""
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) * 1024


# Discovery, nodes, types, a late /tf_static, a type without a definition, and a mismatch.
speaker = robot("sensors", "40")
time.sleep(1)
found = json.loads(run("info", URL, "--json", "--for", "3s", codes=(0, 3)))
topics = {topic["topic"]: topic for topic in found["topics"]}
assert {"/chatter", "/imu", "/own", "/scan", "/tf_static"} == set(topics), topics
assert topics["/imu"]["type"] == "sensor_msgs/msg/Imu", topics["/imu"]
told = json.dumps(found)
assert any(one["name"] == "publishers" for one in found["metadata"]), told
assert "/base/driver offers BEST_EFFORT and /mapper requests RELIABLE" in told, told
robot_told = json.loads(run("cat", URL, "--metadata", "robot", "--for", "3s", codes=(0, 3)))
assert robot_told["topics without a type hash"] == "4", robot_told
print("topics with their types, the nodes that have them, and who on the robot does not hear whom")

out = folder / "sensors.mcap"
_, said = finish(start("record", URL, "-o", str(out), "--for", "5s"))
words = [int(one.data.removeprefix("word ")) for one in messages(out, "/chatter")]
assert len(words) > 200 and words == list(range(words[0], words[-1] + 1)), words[:10]
for one in messages(out, "/imu"):
    number = one.header.stamp.sec * 1000 + one.header.stamp.nanosec // 1_000_000
    assert one.angular_velocity.x == number * 0.5 and one.angular_velocity.y == -number, one
    assert one.linear_acceleration.z == 9.81 and list(one.linear_acceleration_covariance) == [number] * 9, one
[static] = messages(out, "/tf_static")
[lidar] = static.transforms
assert (lidar.child_frame_id, lidar.transform.translation.y) == ("lidar", 2.0), lidar
assert "/own" in said, said
print(f"{len(words)} words without a gap and a /tf_static from before, value by value in rosbags; a type without a definition is told")
speaker.kill()
speaker.wait()

# A robot of ROS 2 Iron or later, whose nodes describe their types. One node does not know its type, one describes another.
describing = robot("describes")
out = folder / "described.mcap"
_, said = finish(start("record", URL, "-o", str(out), "--topics", "/own,/other,/lied", "--for", "6s"))
numbers = [one["data"]["number"] for one in map(json.loads, run("cat", str(out), "--json", "--topics", "/own").splitlines())]
assert len(numbers) > 100 and numbers == list(range(numbers[0], numbers[-1] + 1)), numbers[:10]
assert [one.number for one in messages(out, "/own")] == numbers
assert "/other" in said and "/lied" in said and "/own" not in said, said
first = json.loads(run("cat", URL, "--topics", "/own", "--json", "--limit", "1"))
assert isinstance(first["data"]["number"], int), first
asked = describing.communicate(timeout=30)[0]
assert "('robot_msgs/msg/Own', 'RIHS01_" in asked, asked
print(f"a type that only its node knows is decoded, {len(numbers)} messages; what a node lies about or does not know is told")

# A robot with one correct topic, and everything else wrong.
wrong = robot("hostile")
out = folder / "hostile.mcap"
recorder = start("record", URL, "-o", str(out), "--for", "6s")
time.sleep(5)
memory = peak(recorder)
_, said = finish(recorder, codes=(0, 3))
words = [int(one.data.removeprefix("word ")) for one in messages(out, "/chatter")]
assert len(words) > 100 and words == list(range(words[0], words[-1] + 1)), words[:10]
lines = [json.loads(line) for line in run("cat", str(out), "--json", "--topics", "/liar", codes=(3,)).splitlines()]
assert len(lines) > 100 and sum("error" in line for line in lines) > len(lines) / 3, lines[:4]
assert len({one.data for one in messages(out, "/clocks")}) > 100
assert memory < 400 << 20, memory
wrong.stdin.close()
wrong.wait()
print(f"a robot that lies about its bytes, types, nodes and times costs nothing else: {len(words)} words without a gap, {memory >> 20} MB")

# A robot that is restarted.
speaker = robot("sensors", "40")
recorder = start("record", URL, "-o", str(folder / "again.mcap"), "--topics", "/chatter,/tf_static", "--for", "15s")
time.sleep(5)
speaker.kill()
speaker.wait()
time.sleep(1)
speaker = robot("sensors", "20")
finish(recorder)
words = [int(one.data.removeprefix("word ")) for one in messages(folder / "again.mcap", "/chatter")]
again = next(at for at, (one, two) in enumerate(zip(words, words[1:])) if two < one)
assert again > 100 and len(words) - again > 300, (again, len(words))
assert words[again + 1] < 100, words[again + 1]
static = messages(folder / "again.mcap", "/tf_static")
assert len(static) == 2, static
print(f"a robot that is restarted is heard again: {again} words before, {len(words) - again} after, the first is number {words[again + 1]}")
speaker.kill()
speaker.wait()

# Many topics.
speaker = robot("many", str(TOPICS))
out = folder / "many.mcap"
finish(start("record", URL, "-o", str(out), "--for", "12s"))
with AnyReader([out]) as reader:
    kept = {connection.topic: reader.deserialize(data, connection.msgtype).data for connection, _, data in reader.messages()}
assert kept == {f"/many/t{number}": f"kept {number}" for number in range(TOPICS)}, len(kept)
print(f"{TOPICS} topics are subscribed, and each has the message that was kept for late joiners")
speaker.stdin.close()
speaker.wait()

# A cloud of 5 MB ten times a second.
out = folder / "cloud.mcap"
recorder = start("record", URL, "-o", str(out), "--topics", "/cloud", "--compression", "none", "--json")
speaker = robot("cloud", str(CLOUDS))
speaker.wait(timeout=120)
rate = float(speaker.stdout.read())
memory = peak(recorder)
recorder.send_signal(signal.SIGINT)
finish(recorder)
clouds = messages(out, "/cloud")
numbers = [one.header.stamp.sec * 1000 + one.header.stamp.nanosec // 1_000_000 for one in clouds]
for number, one in zip(numbers, clouds):
    assert len(one.data) == 5_000_000 and (one.data == number % 251).all(), number
assert numbers == list(range(CLOUDS)), (len(numbers), numbers[:20])
print(f"{CLOUDS} clouds of 5 MB at {rate:.1f} Hz, none lost, every byte as it was sent; at most {memory >> 20} MB of memory")

# Two hosts on one network, discovered by multicast.
if hosts := os.environ.get("ASOF_HOSTS"):
    there, here = hosts.split()
    everywhere = "dds://?domain=0"
    speaker = robot("sensors", "60", host=there)
    time.sleep(1)
    out = folder / "hosts.mcap"
    finish(start("record", everywhere, "-o", str(out), "--topics", "/chatter,/imu,/tf_static", "--for", "6s", host=here))
    words = [int(one.data.removeprefix("word ")) for one in messages(out, "/chatter")]
    assert len(words) > 200 and words == list(range(words[0], words[-1] + 1)), (len(words), words[:10])
    [static] = messages(out, "/tf_static")
    assert static.transforms[0].transform.translation.y == 2.0, static
    speaker.kill()
    speaker.wait()

    speaker = robot("describes", host=there)
    out = folder / "hosts_described.mcap"
    finish(start("record", everywhere, "-o", str(out), "--topics", "/own", "--for", "6s", host=here))
    numbers = [one.number for one in messages(out, "/own")]
    assert len(numbers) > 100 and numbers == list(range(numbers[0], numbers[-1] + 1)), numbers[:10]
    speaker.kill()
    speaker.wait()

    # 3,500 datagrams each, best effort: lost ones are not requested again, and messages that do not arrive are counted.
    out = folder / "wire.mcap"
    recorder = start("record", everywhere, "-o", str(out), "--topics", "/cloud", "--compression", "none", "--json", host=here)
    speaker = robot("cloud", "30", host=there)
    speaker.wait(timeout=120)
    recorder.send_signal(signal.SIGINT)
    told, _ = finish(recorder, codes=(0, 3))
    [lost] = [topic["lost"] for topic in json.loads(told.splitlines()[-1])["topics"]]
    clouds = messages(out, "/cloud")
    for one in clouds:
        number = one.header.stamp.nanosec // 1_000_000
        assert len(one.data) == 5_000_000 and (one.data == number % 251).all(), number
    first, last = [clouds[at].header.stamp.nanosec // 1_000_000 for at in (0, -1)]
    assert len(clouds) + lost == last - first + 1, (len(clouds), lost, first, last)
    print(f"two hosts: {len(words)} words and {len(numbers)} of a type that only its node knows without a gap; of 30 clouds of 5 MB over the "
          f"wire {len(clouds)}, and {lost} are told to be lost")

# The other common DDS.
if len(sys.argv) > 3:
    speaker = subprocess.Popen([sys.argv[3], "14", type_hash("robot_msgs/msg/Own")], stdout=subprocess.PIPE, text=True)
    assert speaker.stdout.readline() == "ready\n", speaker.wait()
    time.sleep(1)
    out = folder / "fast.mcap"
    finish(start("record", URL, "-o", str(out), "--for", "8s"))
    words = [int(one.data.removeprefix("word ")) for one in messages(out, "/chatter")]
    assert len(words) > 300 and words == list(range(words[0], words[-1] + 1)), (len(words), words[:10])
    [static] = messages(out, "/tf_static")
    assert static.transforms[0].transform.translation.z == 3.0, static
    bulk = messages(out, "/bulk")
    numbers = [one.layout.data_offset for one in bulk]
    assert len(bulk) > 30 and numbers == list(range(numbers[0], numbers[-1] + 1)), numbers
    for number, one in zip(numbers, bulk):
        assert len(one.data) == 1_000_000 and (one.data == number % 251).all(), number
    own = [one.number for one in messages(out, "/own")]
    assert len(own) > 300 and own == list(range(own[0], own[-1] + 1)), own[:10]
    print(f"Fast DDS: a type that only its node knows is decoded; {len(words)} words and {len(bulk)} messages of 1 MB without a gap, and the /tf_static from before")
    speaker.wait()
