"""Compares what asof reads with what Python's libraries read. See ci/files/formats-compare."""

import pathlib
import struct
import subprocess
import sys
import tempfile

from mcap.reader import make_reader
from rosbags.rosbag1 import Reader as Reader1
from rosbags.rosbag2 import Reader as Reader2

import formats_ros2
import formats_ulog

recordings, programs = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
dump, convert, check = programs / "dump", programs / "convert", programs / "check"


def short(kind):
    parts = kind.split("/")
    return parts[0] + "/" + parts[-1] if len(parts) > 1 else kind


def by_library(reader):
    with reader(path) as bag:
        for connection, time, data in bag.messages():
            yield time, connection.topic, short(connection.msgtype), bytes(data).hex()


def by_walking(path):
    """A bag without an index: rosbags refuses it, so its records are walked here."""
    bytes_ = path.read_bytes()
    connections = {}

    def records(data, at=0):
        while at < len(data):
            (length,) = struct.unpack_from("<I", data, at)
            header, fields = data[at + 4 : at + 4 + length], {}
            place = 0
            while place < length:
                (size,) = struct.unpack_from("<I", header, place)
                name, _, value = header[place + 4 : place + 4 + size].partition(b"=")
                fields[name] = value
                place += 4 + size
            at += 4 + length
            (length,) = struct.unpack_from("<I", data, at)
            yield fields, data[at + 4 : at + 4 + length]
            at += 4 + length

    def messages(data, at):
        for fields, body in records(data, at):
            if fields[b"op"] == b"\x05":
                assert fields[b"compression"] == b"none"
                yield from messages(body, 0)
            elif fields[b"op"] == b"\x07":
                described, place = {}, 0
                while place < len(body):
                    (size,) = struct.unpack_from("<I", body, place)
                    name, _, value = body[place + 4 : place + 4 + size].partition(b"=")
                    described[name] = value
                    place += 4 + size
                connections[fields[b"conn"]] = (
                    fields[b"topic"].decode(),
                    short(described[b"type"].decode()),
                )
            elif fields[b"op"] == b"\x02":
                seconds, nanos = struct.unpack("<II", fields[b"time"])
                topic, kind = connections[fields[b"conn"]]
                yield seconds * 10**9 + nanos, topic, kind, body.hex()

    yield from messages(bytes_, 13)


def by_sqlite(path):
    """A single db3 file, by Python's own SQLite."""
    import sqlite3

    database = sqlite3.connect(f"file:{path}?immutable=1", uri=True)
    sql = (
        "SELECT timestamp, name, type, data FROM messages JOIN topics ON topics.id = topic_id "
        "ORDER BY timestamp, messages.id"
    )
    for time, topic, kind, data in database.execute(sql):
        yield time, topic, short(kind), data.hex()


def by_asof(path):
    printed = subprocess.run([dump, path], check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    for line in printed.stdout.decode().splitlines():
        time, topic, kind, data = line.split("\t")
        yield int(time), topic, short(kind), data


def by_mcap(path):
    with open(path, "rb") as file:
        for schema, channel, message in make_reader(file).iter_messages():
            kind = short(schema.name) if schema else ""
            yield message.log_time, channel.topic, kind, message.data.hex()


def library_of(path):
    if path.suffix == ".bag":
        return by_walking(path) if "unindexed" in path.name else by_library(Reader1)
    if path.suffix == ".db3":
        return by_sqlite(path)
    return by_library(Reader2)


places = sorted(
    path
    for path in recordings.rglob("*")
    if path.suffix == ".bag"
    or (path.suffix == ".db3" and not (path.parent / "metadata.yaml").exists())
    or (path / "metadata.yaml").exists()
)
failures = 0
for path in places:
    wanted = sorted(library_of(path))
    found = sorted(by_asof(path))
    verdict = "same" if wanted == found else "DIFFERENT"
    with tempfile.TemporaryDirectory() as folder:
        converted = pathlib.Path(folder) / "out.mcap"
        subprocess.run([convert, path, converted], check=True, stdout=subprocess.PIPE)
        again = list(by_mcap(converted))
        if sorted(again) != wanted:
            verdict += ", DIFFERENT once converted"
        if [m[0] for m in again] != sorted(m[0] for m in wanted):
            verdict += ", OUT OF ORDER once converted"
        if subprocess.run([check, converted], check=False).returncode:
            verdict += ", NOT HEALTHY once converted"
    failures += verdict != "same"
    print(f"{verdict:10} {len(wanted):7} messages  {path.relative_to(recordings)}", flush=True)
print(f"{len(places) - failures} of {len(places)} recordings are the same, byte by byte, read and converted")

bags = [path for path in places if path.suffix == ".bag" and "unindexed" not in path.name]
bad_bags = 0
for path in bags:
    transcoded, kept, faults, lacking = formats_ros2.compare(path, convert)
    verdict = "same" if not faults and not lacking else f"DIFFERENT {faults}, {lacking} standard messages not transcoded"
    bad_bags += verdict != "same"
    print(f"{verdict:10} {transcoded:7} became ROS 2, {kept} stayed  {path.name}", flush=True)
print(f"{len(bags) - bad_bags} of {len(bags)} bags become the ROS 2 that rosbags makes of them, byte by byte")

bad_logs = 0
with tempfile.TemporaryDirectory() as folder:
    logs = sorted(recordings.rglob("*.ulg")) + formats_ulog.samples(folder)
    for path in logs:
        messages, faults = formats_ulog.compare(path, convert)
        verdict = "same" if not faults else f"DIFFERENT {faults}"
        bad_logs += verdict != "same"
        print(f"{verdict:10} {messages:7} messages  {path.name}", flush=True)
print(f"{len(logs) - bad_logs} of {len(logs)} PX4 logs are the same, value by value")
sys.exit(failures + bad_bags + bad_logs > 0 or not places)
