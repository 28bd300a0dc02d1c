"""A Foxglove server of the foxglove-sdk package, and asof as its client: what is recorded is held against what was sent.

foxglove_source.py ASOF FOLDER
"""

import json
import pathlib
import subprocess
import sys
import threading
import time

import foxglove
from foxglove import Channel, Schema
from foxglove.websocket import Capability
from mcap.reader import make_reader
from mcap_ros2.decoder import DecoderFactory

asof, folder = sys.argv[1], pathlib.Path(sys.argv[2])
TOPICS, MESSAGES = 1_000, 200


def cdr_string(text: str) -> bytes:
    data = text.encode() + b"\0"
    return b"\0\x01\0\0" + len(data).to_bytes(4, "little") + data


def serve(port: int = 0):
    return foxglove.start_server(
        name="peer", host="127.0.0.1", port=port, capabilities=[Capability.Time]
    )


def run(*words: str) -> str:
    done = subprocess.run([asof, *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, (words, done.returncode, done.stdout, done.stderr)
    return done.stdout


ros2 = Channel(
    "/chatter",
    message_encoding="cdr",
    schema=Schema(name="std_msgs/msg/String", encoding="ros2msg", data=b"string data"),
)
plain = Channel("/json", message_encoding="json", schema=Schema(name="Point", encoding="jsonschema", data=b'{"type":"object"}'))
server = serve()
port = server.port
url = f"foxglove://127.0.0.1:{port}"
is_over = threading.Event()


def speak() -> None:
    number = 0
    while not is_over.is_set():
        ros2.log(cdr_string(f"word {number}"), log_time=1_000_000_000 + number)
        plain.log(json.dumps({"x": number}).encode(), log_time=1_000_000_000 + number)
        number += 1
        time.sleep(0.005)


speaker = threading.Thread(target=speak)
speaker.start()
try:
    found = json.loads(run("info", url, "--json", "--for", "2s"))
    names = {topic["topic"]: topic for topic in found["topics"]}
    assert names["/chatter"]["type"] == "std_msgs/msg/String", found
    assert names["/json"]["schema_encoding"] == "jsonschema", found
    print("info lists the server's channels, with their schemas")

    out = folder / "copy.mcap"
    run("record", url, "-o", str(out), "--for", "3s")
    words, last = 0, None
    with out.open("rb") as file:
        for _, channel, message, decoded in make_reader(file, decoder_factories=[DecoderFactory()]).iter_decoded_messages(topics=["/chatter"]):
            number = int(decoded.data.removeprefix("word "))
            assert last is None or number == last + 1, (last, number)
            assert message.publish_time == 1_000_000_000 + number
            words, last = words + 1, number
    assert words > MESSAGES, words
    print(f"{words} messages recorded without a gap, value by value in mcap-ros2-support")

    recorder = subprocess.Popen([asof, "record", url, "-o", str(folder / "again.mcap"), "--for", "8s", "--json"], stdout=subprocess.PIPE, text=True)
    time.sleep(2)
    server.stop()
    time.sleep(1)
    server = serve(port)
    report = json.loads(recorder.communicate(timeout=60)[0].splitlines()[-1])
    assert recorder.returncode == 0, report
    counts = {topic["topic"]: topic["messages"] for topic in report["topics"]}
    assert counts["/chatter"] > 500, counts
    print(f"a server that is restarted is found again: {counts['/chatter']} messages on both sides of it")
finally:
    is_over.set()
    speaker.join()

many = [Channel(f"/many/t{number}", message_encoding="json") for number in range(TOPICS)]
for channel in many:
    channel.log(b"{}")
began = time.monotonic()
found = json.loads(run("info", url, "--json", "--topics", "/many/*", "--for", "2s"))
assert len(found["topics"]) == TOPICS, len(found["topics"])
print(f"{TOPICS} channels seen by a run of {time.monotonic() - began:.1f} s, two of which are spent listening")

# A cloud of 5 MB ten times a second.
cloud, count = Channel("/cloud", message_encoding="raw", schema=Schema(name="Cloud", encoding="", data=b"")), 60
recorder = subprocess.Popen([asof, "record", url, "-o", str(folder / "cloud.mcap"), "--topics", "/cloud", "--for", "10s", "--compression", "none"], stdout=subprocess.PIPE, text=True)
time.sleep(2)
for number in range(count):
    cloud.log(number.to_bytes(4, "little") * (5_000_000 // 4))
    time.sleep(0.1)
recorder.wait(timeout=60)
with (folder / "cloud.mcap").open("rb") as file:
    numbers = [int.from_bytes(message.data[:4], "little") for _, _, message in make_reader(file).iter_messages()]
assert numbers == list(range(count)), numbers
print(f"{count} clouds of 5 MB at 10 Hz, 0 lost")
server.stop()
