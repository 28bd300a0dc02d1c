"""Holds asof's JSON against the decoders of the Python world, message by message.

usage: decode_compare.py PRINT DATA, where PRINT is the built example `print` of asof-decode.
"""

import base64
import collections
import json
import math
import pathlib
import struct
import subprocess
import sys

import zstandard
from mcap.exceptions import McapError
from mcap.records import Channel, Message, Schema
from mcap.stream_reader import StreamReader
from mcap_protobuf.decoder import DecoderFactory as ProtobufFactory
from mcap_ros1.decoder import DecoderFactory as Ros1Factory
from mcap_ros2.decoder import DecoderFactory as Ros2Factory
from rosbags.interfaces import Nodetype
from rosbags.typesys import Stores, get_types_from_idl, get_types_from_msg, get_typestore
from rosbags.typesys.msg import normalize_msgtype

FLOATS32 = {"float32"}


class Different(Exception):
    pass


class Number(str):
    """A JSON number with a fraction or an exponent, as it was written."""


def load(text):
    return json.loads(text, parse_float=Number)


def require(condition, path, ours, theirs):
    if not condition:
        raise Different(f"{path or 'message'}: asof {str(ours)[:120]!r}, reference {str(theirs)[:120]!r}")


def same_float(ours, theirs, is_single, path):
    theirs = float(theirs)
    if isinstance(ours, str) and not isinstance(ours, Number):
        special = {"NaN": math.isnan(theirs), "Infinity": theirs == math.inf, "-Infinity": theirs == -math.inf}
        require(special.get(ours, False), path, ours, theirs)
        return
    require(not isinstance(ours, bool) and isinstance(ours, (int, Number)), path, ours, theirs)
    code = "<f" if is_single else "<d"
    require(struct.pack(code, float(ours)) == struct.pack(code, theirs), path, ours, theirs)


def same_bytes(ours, theirs, path):
    require(isinstance(ours, str), path, ours, theirs)
    require(base64.b64decode(ours, validate=True) == theirs, path, ours, theirs)


# rosbags: the fields' types decide how values are compared.

def same_ros(store, ours, theirs, typename, path):
    fields = [f for f in store.fielddefs[typename][1] if f[0] != "structure_needs_at_least_one_member"]
    require(isinstance(ours, dict), path, ours, theirs)
    require(list(ours) == [name for name, _ in fields], path, list(ours), [name for name, _ in fields])
    for name, kind in fields:
        same_ros_value(store, ours[name], getattr(theirs, name), kind, f"{path}.{name}")


def same_ros_value(store, ours, theirs, kind, path):
    node, detail = kind
    if node == Nodetype.BASE:
        base = detail[0]
        if base in ("float32", "float64"):
            same_float(ours, theirs, base in FLOATS32, path)
        elif base == "bool":
            require(ours is bool(theirs), path, ours, theirs)
        else:
            require(type(ours) is type(theirs) and ours == theirs, path, ours, theirs)
        return
    if node == Nodetype.NAME:
        same_ros(store, ours, theirs, detail, path)
        return
    inner = detail[0]
    if inner[0] == Nodetype.BASE and inner[1][0] in ("uint8", "byte", "char", "octet"):
        same_bytes(ours, bytes(bytearray(int(v) & 255 for v in theirs)), path)
        return
    require(isinstance(ours, list) and len(ours) == len(theirs), path, ours, theirs)
    for at, (a, b) in enumerate(zip(ours, theirs)):
        if hasattr(b, "item"):
            b = b.item()
        same_ros_value(store, a, b, inner, f"{path}[{at}]")


# mcap-ros1-support and mcap-ros2-support: plain objects; the values decide.

def same_plain(ours, theirs, path):
    if isinstance(theirs, bool):
        require(ours is theirs, path, ours, theirs)
    elif isinstance(theirs, int):
        require(type(ours) is int and ours == theirs, path, ours, theirs)
    elif isinstance(theirs, float):
        try:
            same_float(ours, theirs, False, path)
        except Different:
            # These libraries do not say which floats were single: one that is exactly single may be.
            require(struct.unpack("<f", struct.pack("<f", theirs))[0] == theirs, path, ours, theirs)
            same_float(ours, theirs, True, path)
    elif isinstance(theirs, str):
        require(ours == theirs, path, ours, theirs)
    elif isinstance(theirs, (bytes, bytearray, memoryview)):
        same_bytes(ours, bytes(theirs), path)
    elif isinstance(theirs, (list, tuple)) or hasattr(theirs, "tolist"):
        if isinstance(ours, str):
            same_bytes(ours, bytes(bytearray(int(v) & 255 for v in theirs)), path)
            return
        require(isinstance(ours, list) and len(ours) == len(theirs), path, ours, theirs)
        for at, (a, b) in enumerate(zip(ours, theirs)):
            same_plain(a, b.item() if hasattr(b, "item") else b, f"{path}[{at}]")
    elif hasattr(theirs, "secs"):
        names = list(ours)
        require(names[0] == "sec" and len(names) == 2, path, ours, theirs)
        require(ours["sec"] == theirs.secs and ours[names[1]] == theirs.nsecs, path, ours, theirs)
    else:
        names = [n for n in getattr(theirs, "__slots__", ()) if not n.startswith("_")]
        require(isinstance(ours, dict) and set(ours) == set(names), path, list(ours), names)
        for name in names:
            same_plain(ours[name], getattr(theirs, name), f"{path}.{name}")


# Protobuf: the descriptor decides.

def same_proto(ours, message, path):
    require(isinstance(ours, dict), path, ours, message)
    expected = []
    for field in message.DESCRIPTOR.fields:
        is_repeated = field.is_repeated if isinstance(getattr(field, "is_repeated", None), bool) else field.label == 3
        if not is_repeated and field.has_presence and not message.HasField(field.name):
            continue
        expected.append(field.name)
        require(field.name in ours, f"{path}.{field.name}", "nothing", "a value")
        theirs, here = getattr(message, field.name), f"{path}.{field.name}"
        mine = ours[field.name]
        if is_repeated and field.message_type and field.message_type.GetOptions().map_entry:
            value = field.message_type.fields_by_name["value"]
            require(len(mine) == len(theirs), here, mine, theirs)
            for key in theirs:
                name = str(key).lower() if isinstance(key, bool) else str(key)
                require(name in mine, here, mine, theirs)
                same_proto_value(mine[name], theirs[key], value, f"{here}[{name}]")
        elif is_repeated:
            require(isinstance(mine, list) and len(mine) == len(theirs), here, mine, theirs)
            for at, (a, b) in enumerate(zip(mine, theirs)):
                same_proto_value(a, b, field, f"{here}[{at}]")
        else:
            same_proto_value(mine, theirs, field, here)
    require(list(ours) == expected, path, list(ours), expected)


def same_proto_value(ours, theirs, field, path):
    if field.type in (field.TYPE_MESSAGE, field.TYPE_GROUP):
        same_proto(ours, theirs, path)
    elif field.type in (field.TYPE_DOUBLE, field.TYPE_FLOAT):
        same_float(ours, theirs, field.type == field.TYPE_FLOAT, path)
    elif field.type == field.TYPE_BYTES:
        same_bytes(ours, theirs, path)
    elif field.type == field.TYPE_ENUM:
        value = field.enum_type.values_by_number.get(theirs)
        require(ours == (value.name if value else theirs), path, ours, theirs)
    else:
        require(type(ours) is type(theirs) and ours == theirs, path, ours, theirs)


def same_json(ours, theirs, path):
    if isinstance(theirs, Number):
        same_float(ours, theirs, False, path)
    elif isinstance(theirs, dict):
        require(isinstance(ours, dict) and list(ours) == list(theirs), path, ours, theirs)
        for name in theirs:
            same_json(ours[name], theirs[name], f"{path}.{name}")
    elif isinstance(theirs, list):
        require(isinstance(ours, list) and len(ours) == len(theirs), path, ours, theirs)
        for at, (a, b) in enumerate(zip(ours, theirs)):
            same_json(a, b, f"{path}[{at}]")
    else:
        require(type(ours) is type(theirs) and ours == theirs, path, ours, theirs)


class References:
    """Who can decode the messages of one channel."""

    def __init__(self, schema, channel):
        self.checks = []
        self.refused = []
        encoding = (channel.message_encoding, schema.encoding if schema else "")
        if encoding[0] in ("cdr", "ros1") and encoding[1] in ("ros2msg", "ros1msg", "ros2idl", "omgidl"):
            self.attempt("rosbags", lambda: self.rosbags(schema, encoding))
        factory = {("cdr", "ros2msg"): Ros2Factory, ("ros1", "ros1msg"): Ros1Factory}.get(encoding)
        if factory:
            name = "mcap-ros2-support" if factory is Ros2Factory else "mcap-ros1-support"
            self.attempt(name, lambda: self.plain(factory(), channel, schema))
        if encoding == ("protobuf", "protobuf"):
            self.attempt("mcap-protobuf-support", lambda: self.protobuf(channel, schema))
        if encoding[0] == "json":
            self.checks.append(("json", lambda ours, data: same_json(ours, load(data.decode()), "")))

    def attempt(self, name, make):
        try:
            self.checks.append((name, make()))
        except Exception as error:
            self.refused.append((name, f"{type(error).__name__}: {error}"))

    @staticmethod
    def rosbags(schema, encoding):
        store = get_typestore(Stores.EMPTY)
        text = schema.data.decode()
        name = normalize_msgtype(schema.name)
        if encoding[1] in ("ros2idl", "omgidl"):
            types = get_types_from_idl(text)
            name = schema.name.replace("::", "/")
        else:
            types = get_types_from_msg(text, name)
        if encoding[0] == "cdr":
            known = get_typestore(Stores.ROS2_HUMBLE)
        else:
            known = get_typestore(Stores.ROS1_NOETIC)
        for base in ("builtin_interfaces/msg/Time", "builtin_interfaces/msg/Duration", "std_msgs/msg/Header"):
            types.setdefault(base, known.fielddefs[base])
        store.register(types)
        decode = store.deserialize_cdr if encoding[0] == "cdr" else store.deserialize_ros1
        ros1_time = encoding[0] == "ros1"

        def check(ours, data):
            theirs = decode(data, name)
            same_ros(store, with_nanosec(ours) if ros1_time else ours, theirs, name, "")
        return check

    @staticmethod
    def plain(factory, channel, schema):
        decode = factory.decoder_for(channel.message_encoding, schema)
        return lambda ours, data: same_plain(ours, decode(data), "")

    @staticmethod
    def protobuf(channel, schema):
        decode = ProtobufFactory().decoder_for(channel.message_encoding, schema)
        return lambda ours, data: same_proto(ours, decode(data), "")


def with_nanosec(value):
    """rosbags gives ROS 1's times the field names of ROS 2."""
    if isinstance(value, dict):
        if list(value) == ["sec", "nsec"]:
            return {"sec": value["sec"], "nanosec": value["nsec"]}
        return {name: with_nanosec(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [with_nanosec(inner) for inner in value]
    return value


def messages_of(path):
    """All messages that can be read, in the order of their log times."""
    schemas, channels, found = {}, {}, []
    try:
        with open(path, "rb") as file:
            for record in StreamReader(file).records:
                if isinstance(record, Schema):
                    schemas[record.id] = record
                elif isinstance(record, Channel):
                    channels[record.id] = record
                elif isinstance(record, Message):
                    channel = channels[record.channel_id]
                    found.append((schemas.get(channel.schema_id), channel, record))
    except (McapError, struct.error, EOFError) as error:
        print(f"  ({path.name}: the reference's reader stops with {type(error).__name__})")
    return sorted(found, key=lambda entry: entry[2].log_time)


def unpacked(data):
    if data[:4] == b"\x28\xb5\x2f\xfd":
        return zstandard.ZstdDecompressor().decompressobj().decompress(data)
    return data


def compare(printer, path, totals):
    lines = subprocess.run([printer, path], check=True, stdout=subprocess.PIPE).stdout.splitlines()
    expected = messages_of(path)
    counts = collections.Counter()
    problems, references = [], {}
    if len(lines) != len(expected):
        problems.append(f"asof has {len(lines)} messages, the reference's reader {len(expected)}")
    for line, (schema, channel, message) in zip(lines, expected):
        ours = load(line)
        head = (ours["topic"], ours["log_time"], ours["sequence"])
        if head != (channel.topic, message.log_time, message.sequence):
            problems.append(f"order: asof {head}, reference {(channel.topic, message.log_time, message.sequence)}")
            break
        known = references.get(channel.id)
        if known is None:
            known = references[channel.id] = References(schema, channel)
            for name, reason in known.refused:
                print(f"  {path.name} {channel.topic}: {name} refuses the schema ({reason[:100]})")
        data = unpacked(message.data)
        if not known.checks:
            counts["without a reference"] += 1
            continue
        for name, check in known.checks:
            try:
                if ours.get("data") is None:
                    raise Different(f"asof cannot decode it: {ours.get('error')}")
                check(ours["data"], data)
                counts[name] += 1
            except Different as error:
                problems.append(f"{channel.topic} at {message.log_time} by {name}: {error}")
            except Exception as error:
                counts[f"{name} fails itself ({type(error).__name__})"] += 1
    verdict = "ok" if not problems else f"{len(problems)} DIFFERENCES"
    print(f"{verdict:>16}  {path.name}: " + ", ".join(f"{n} by {name}" for name, n in sorted(counts.items())))
    for problem in problems[:5]:
        print(f"    {problem}")
    totals["differences"] += len(problems)
    totals.update({name: n for name, n in counts.items()})


def main():
    printer, data = sys.argv[1], pathlib.Path(sys.argv[2])
    totals = collections.Counter()
    for path in sorted((data / "recordings").rglob("*.mcap")):
        compare(printer, path, totals)
    print("in all: " + ", ".join(f"{n} {name}" for name, n in sorted(totals.items())))
    sys.exit(1 if totals["differences"] else 0)


main()
