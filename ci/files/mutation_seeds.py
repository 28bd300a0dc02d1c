"""Makes the small recordings that ci/files/mutations damages: some of our own, and small ones of others' where they are there.

usage: mutation_seeds.py ASOF RECORDINGS FOLDER, or mutation_seeds.py FOLDER for a bag, a db3 file and a PX4 log of our own alone;
mutation_seeds.py --fuzz CORPUS for the same as inputs of the fuzz targets, which put the first bytes of each format before them.
"""

import bz2
import pathlib
import sqlite3
import struct
import subprocess
import sys

# On files up to this size a verb takes a fraction of a millisecond.
MOST_BYTES = 120_000


def bag(compression="none"):
    """A small ROS 1 bag of our own: three chunks, two connections."""
    field = lambda name, value: struct.pack("<I", len(name) + 1 + len(value)) + name + b"=" + value
    record = lambda fields, data: struct.pack("<I", len(fields)) + fields + struct.pack("<I", len(data)) + data
    number = lambda value: struct.pack("<I", value)
    definition = b"string data\n"
    described = field(b"topic", b"/chat") + field(b"type", b"std_msgs/String")
    described += field(b"md5sum", b"992ce8a1687cec8c8bd883ec73ca41d1") + field(b"message_definition", definition)

    def connection(id_, topic):
        return record(field(b"op", b"\x07") + field(b"conn", number(id_)) + field(b"topic", topic), described)

    def header(index, chunks):
        fields = field(b"op", b"\x03") + field(b"index_pos", struct.pack("<Q", index))
        fields += field(b"conn_count", number(2)) + field(b"chunk_count", number(chunks))
        return record(fields, b" " * (4096 - len(fields) - 8))

    connections = [connection(0, b"/chat"), connection(1, b"/other")]
    data = b"#ROSBAG V2.0\n" + header(0, 3)
    infos = b""
    for chunk in range(3):
        inner, entries = b"".join(connections), {0: b"", 1: b""}
        for message in range(20):
            id_, at = message % 2, struct.pack("<II", 100 + 20 * chunk + message, 5)
            text = b"message %d" % message
            entries[id_] += at + number(len(inner))
            inner += record(
                field(b"op", b"\x02") + field(b"conn", number(id_)) + field(b"time", at),
                number(len(text)) + text,
            )
        place = len(data)
        fields = field(b"op", b"\x05") + field(b"compression", compression.encode()) + field(b"size", number(len(inner)))
        data += record(fields, bz2.compress(inner) if compression == "bz2" else inner)
        for id_, pairs in entries.items():
            fields = field(b"op", b"\x04") + field(b"ver", number(1)) + field(b"conn", number(id_))
            data += record(fields + field(b"count", number(10)), pairs)
        fields = field(b"op", b"\x06") + field(b"ver", number(1)) + field(b"chunk_pos", struct.pack("<Q", place))
        fields += field(b"start_time", struct.pack("<II", 100 + 20 * chunk, 5))
        fields += field(b"end_time", struct.pack("<II", 119 + 20 * chunk, 5)) + field(b"count", number(2))
        infos += record(fields, number(0) + number(10) + number(1) + number(10))
    index = len(data)
    data += b"".join(connections) + infos
    return data.replace(header(0, 3), header(index, 3))


def db3(folder):
    """A small ROS 2 bag of our own: messages of every size."""
    path = folder / "made.db3"
    path.unlink(missing_ok=True)
    database = sqlite3.connect(path)
    database.executescript(
        """CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT, type TEXT, serialization_format TEXT, offered_qos_profiles TEXT);
           INSERT INTO topics VALUES (1, '/chat', 'std_msgs/msg/String', 'cdr', ''), (2, '/tf', 'tf2_msgs/msg/TFMessage', 'cdr', '');
           CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER, timestamp INTEGER, data BLOB);
           CREATE INDEX timestamp_idx ON messages (timestamp ASC);"""
    )
    for message in range(24):
        text = b"m" * [5, 300, 3000, 9000][message % 4]
        payload = b"\0\1\0\0" + struct.pack("<I", len(text) + 1) + text + b"\0"
        database.execute(
            "INSERT INTO messages(topic_id, timestamp, data) VALUES (?, ?, ?)",
            (1 + message % 2, 10**9 * message, payload),
        )
    database.commit()
    database.close()
    return path.read_bytes()


def ulog():
    """A small PX4 log of our own."""
    message = lambda kind, body: struct.pack("<HB", len(body), ord(kind)) + body
    data = b"ULog\x01\x12\x35\x01" + struct.pack("<Q", 1000)
    data += message("B", bytes(40))
    data += message("F", b"sensor:uint64_t timestamp;float[3] value;")
    key = b"char[5] sys_name"
    data += message("I", bytes([len(key)]) + key + b"PX4 x")
    key = b"float PARAM"
    data += message("P", bytes([len(key)]) + key + struct.pack("<f", 2.5))
    data += message("A", struct.pack("<BH", 0, 0) + b"sensor")
    for number in range(200):
        data += message("D", struct.pack("<HQfff", 0, 1000 * number, number, 2.0, 3.0))
        if number % 50 == 0:
            data += message("L", b"6" + struct.pack("<Q", 1000 * number) + b"hello")
    return data


def made(folder):
    (folder / "made.bag").write_bytes(bag())
    (folder / "made.ulg").write_bytes(ulog())
    db3(folder)


def fuzz(corpus):
    folder = corpus / "db3"
    folder.mkdir(parents=True, exist_ok=True)
    seeds = {"bag": (13, [bag(), bag("bz2")]), "db3": (16, [db3(folder)]), "ulog": (8, [ulog()])}
    (folder / "made.db3").unlink()
    for target, (magic, files) in seeds.items():
        (corpus / target).mkdir(parents=True, exist_ok=True)
        for number, data in enumerate(files):
            (corpus / target / f"seed-{number}").write_bytes(data[magic:])


def main(asof, recordings, folder):
    demo = folder / "whole"
    subprocess.run([asof, "demo", "-o", demo, "--seconds", "1", "--force"], check=True, capture_output=True)
    for compression in ("zstd", "lz4", "none"):
        for size, end in (("4k", "+0.2s"), ("64k", "+1s")):
            words = ["convert", demo, "-o", folder / f"{compression}-{size}.mcap", "--compression", compression]
            words += ["--chunk-size", size, "--topics", "/odom,/tf", "--end", end, "--force"]
            subprocess.run([asof, *words], check=True, capture_output=True)
    demo.unlink()
    made(folder)
    if not recordings.is_dir():
        print(f"SKIPPED: no recordings in {recordings} to damage, only our own (set ASOF_TEST_DATA)")
        return
    for path in sorted(recordings.iterdir()):
        if path.suffix in (".mcap", ".bag", ".db3", ".ulg") and path.stat().st_size < MOST_BYTES:
            (folder / f"real-{path.name}").write_bytes(path.read_bytes())


if sys.argv[1] == "--fuzz":
    fuzz(pathlib.Path(sys.argv[2]))
elif len(sys.argv) == 2:
    made(pathlib.Path(sys.argv[1]))
else:
    main(sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))
