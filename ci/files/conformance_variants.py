"""Writes variants of the MCAP conformance suite from their published inputs: records and the features of a file.

A variant is a base (what is recorded) with a set of features (how the file is laid out). Those that are in a folder of the
suite already are held against it byte for byte, so what is written for the others can be believed.
"""

import itertools
import json
import pathlib
import struct
import sys
import zlib

MAGIC = b"\x89MCAP0\r\n"
EXTRA = b"\x01\xff\xff"

SCHEMA = {"type": "Schema", "id": 1, "name": "Example", "encoding": "c", "data": b"\4\5\6"}
CHANNEL = {"type": "Channel", "id": 1, "schema": 1, "topic": "example", "encoding": "a", "metadata": {"foo": "bar"}}
TEXT = {"type": "Channel", "id": 1, "schema": 0, "topic": "example", "encoding": "text", "metadata": {}}


def message(sequence, log_time, publish_time):
    times = {"log_time": log_time, "publish_time": publish_time}
    return {"type": "Message", "channel": 1, "sequence": sequence, "data": b"\1\2\3", **times}


ATTACHMENT = {
    "type": "Attachment",
    "log_time": 2,
    "create_time": 1,
    "name": "myFile",
    "media_type": "application/octet-stream",
    "data": b"\1\2\3",
}

BASES = {
    "NoData": [],
    "OneAttachment": [ATTACHMENT],
    "OneMetadata": [{"type": "Metadata", "name": "myMetadata", "metadata": {"foo": "bar"}}],
    "OneMessage": [SCHEMA, CHANNEL, message(10, 2, 1)],
    "OneSchemalessMessage": [TEXT, message(10, 2, 1)],
    # Not in the order of their times, and two of one time.
    "TenMessages": [SCHEMA, CHANNEL] + [message(*one) for one in zip(range(10), *[[0, 2, 1, 3, 3, 5, 4, 7, 8, 9]] * 2)],
}
FEATURES = ["ax", "ch", "chx", "mdx", "mx", "pad", "rch", "rsh", "st", "sum"]


def is_told_apart(base, features):
    """Whether a file with these features is another than one without some of them."""
    kinds = {record["type"] for record in BASES[base]}
    needs = {
        "ax": "Attachment" in kinds,
        "ch": "Message" in kinds,
        "chx": "ch" in features,
        "mdx": "Metadata" in kinds,
        "mx": "ch" in features,
        "rch": "Channel" in kinds,
        "rsh": "Schema" in kinds,
        "sum": bool({"ax", "chx", "mdx", "rch", "rsh", "st"} & features),
    }
    return all(needs.get(feature, True) for feature in features)


def variants():
    """Every base with every set of features that makes a difference to it."""
    for base in BASES:
        for picked in itertools.product([False, True], repeat=len(FEATURES)):
            features = {feature for feature, is_on in zip(FEATURES, picked) if is_on}
            if is_told_apart(base, features):
                yield base, features


def name_of(base, features):
    return "-".join([base, *sorted(features)])


def text(value):
    return struct.pack("<I", len(value)) + value.encode()


def of_map(pairs):
    body = b"".join(pairs)
    return struct.pack("<I", len(body)) + body


def record(opcode, body, extra=b""):
    return struct.pack("<BQ", opcode, len(body) + len(extra)) + body + extra


def recorded(one, extra):
    """A record of a base."""
    kind = one["type"]
    if kind == "Schema":
        body = struct.pack("<H", one["id"]) + text(one["name"]) + text(one["encoding"])
        return record(3, body + struct.pack("<I", len(one["data"])) + one["data"], extra)
    if kind == "Channel":
        body = struct.pack("<HH", one["id"], one["schema"]) + text(one["topic"]) + text(one["encoding"])
        return record(4, body + of_map(text(key) + text(value) for key, value in one["metadata"].items()), extra)
    if kind == "Message":
        head = struct.pack("<HIQQ", one["channel"], one["sequence"], one["log_time"], one["publish_time"])
        return record(5, head + one["data"])
    if kind == "Attachment":
        body = struct.pack("<QQ", one["log_time"], one["create_time"]) + text(one["name"]) + text(one["media_type"])
        body += struct.pack("<Q", len(one["data"])) + one["data"]
        return record(9, body + struct.pack("<I", zlib.crc32(body)), extra)
    pairs = of_map(text(key) + text(value) for key, value in one["metadata"].items())
    return record(12, text(one["name"]) + pairs, extra)


def file_of(base, features):
    """The bytes of a variant."""
    records = BASES[base]
    of = lambda kind: [one for one in records if one["type"] == kind]
    messages = of("Message")
    extra = EXTRA if "pad" in features else b""
    times = [one["log_time"] for one in messages]
    span = struct.pack("<QQ", min(times, default=0), max(times, default=0))
    data = MAGIC + record(1, text("") + text(""), extra)
    places, chunk_index = {}, b""
    if "ch" in features:
        inner, entries = b"", []
        for one in records:
            if one["type"] == "Message":
                entries.append((one["log_time"], len(inner)))
            inner += recorded(one, b"")
        start = len(data)
        size = struct.pack("<Q", len(inner))
        data += record(6, span + size + struct.pack("<I", zlib.crc32(inner)) + text("") + size + inner)
        length, offsets, index = len(data) - start, b"", b""
        if "mx" in features:
            offsets = struct.pack("<HQ", 1, len(data))
            pairs = of_map(struct.pack("<QQ", *entry) for entry in entries)
            index = record(7, struct.pack("<H", 1) + pairs, extra)
            data += index
        chunk_index = span + struct.pack("<QQ", start, length) + of_map([offsets]) + struct.pack("<Q", len(index))
        chunk_index += text("") + size + size
    else:
        for one in records:
            places[one["type"]] = len(data)
            data += recorded(one, extra)
    data += record(15, struct.pack("<I", zlib.crc32(data)))

    summary_start = len(data)
    groups = []
    if "rsh" in features:
        groups.append((3, b"".join(recorded(one, extra) for one in of("Schema"))))
    if "rch" in features:
        groups.append((4, b"".join(recorded(one, extra) for one in of("Channel"))))
    if "st" in features:
        counts = [len(messages), len(of("Schema")), len(of("Channel"))]
        counts += [len(of("Attachment")), len(of("Metadata")), int("ch" in features)]
        by_channel = of_map([struct.pack("<HQ", 1, len(messages))] if messages else [])
        groups.append((11, record(11, struct.pack("<QHIIII", *counts) + span + by_channel, extra)))
    if "mdx" in features:
        [one] = of("Metadata")
        place = struct.pack("<QQ", places["Metadata"], len(recorded(one, extra)))
        groups.append((13, record(13, place + text(one["name"]), extra)))
    if "ax" in features:
        [one] = of("Attachment")
        place = struct.pack("<QQ", places["Attachment"], len(recorded(one, extra)))
        place += struct.pack("<QQQ", one["log_time"], one["create_time"], len(one["data"]))
        groups.append((10, record(10, place + text(one["name"]) + text(one["media_type"]), extra)))
    if "chx" in features:
        groups.append((8, record(8, chunk_index, extra)))
    starts = {}
    for opcode, group in groups:
        starts[opcode] = len(data)
        data += group
    offsets_start = 0
    if "sum" in features:
        offsets_start = len(data)
        for opcode, group in groups:
            data += record(14, struct.pack("<BQQ", opcode, starts[opcode], len(group)), extra)
    if not groups:
        summary_start = 0
    footer = struct.pack("<BQQQ", 2, 20, summary_start, offsets_start)
    crc = zlib.crc32((data[summary_start:] if summary_start else b"") + footer)
    return data + footer + struct.pack("<I", crc) + MAGIC


def check_published():
    """Of ten messages, the suite publishes the checksums of the data and of the summary."""
    data = file_of("TenMessages", {"ch", "chx", "mx", "rch", "rsh", "st", "sum"})
    end = record(15, struct.pack("<I", 2749581515))
    assert data[683 - len(end) : 683] == end, "the data of ten messages are others"
    assert data.endswith(struct.pack("<I", 2261599816) + MAGIC), "the summary of ten messages is another"


def expectation(base, features):
    """What the suite says of a variant beside it: the records that count here, and its features."""
    records = []
    for one in BASES[base]:
        fields = [[key, str(value)] for key, value in one.items() if key in ("topic", "log_time", "publish_time", "sequence")]
        if "data" in one:
            fields.append(["data", [str(byte) for byte in one["data"]]])
        records.append({"type": one["type"], "fields": fields})
    return {"records": records, "meta": {"variant": {"features": sorted(features)}}}


def write_missing(suite, folder):
    """Writes what is not in a suite into a folder; returns how many are there and how many were written."""
    check_published()
    found = {path.stem: path for path in suite.rglob("*.mcap")}
    there = written = 0
    for base, features in variants():
        name = name_of(base, features)
        data = file_of(base, features)
        if name in found:
            assert found.pop(name).read_bytes() == data, f"{name}: the suite has other bytes"
            there += 1
            continue
        (folder / f"{name}.mcap").write_bytes(data)
        (folder / f"{name}.json").write_text(json.dumps(expectation(base, features)))
        written += 1
    assert not found, f"variants that are not known here: {sorted(found)}"
    return there, written


if __name__ == "__main__":
    suite, folder = map(pathlib.Path, sys.argv[1:3])
    folder.mkdir(parents=True, exist_ok=True)
    there, written = write_missing(suite, folder)
    print(f"{there} variants are as the suite has them, {written} were written into {folder}")
