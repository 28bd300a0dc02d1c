"""Holds asof's decoding of FlatBuffers against flatc and the Python library.

usage: flatbuffer_compare.py ASOF FOLDER
"""

import base64
import importlib
import json
import pathlib
import subprocess
import sys

import foxglove_schemas_flatbuffer as foxglove
import pyarrow.parquet as pq
from mcap.writer import Writer

STAMP = {"sec": 1714564800, "nsec": 250000000}
POSE = {"position": {"x": 1.5, "y": -2.25, "z": 0.125}, "orientation": {"x": 0.0, "y": 0.0, "z": 0.6, "w": 0.8}}
TRANSFORM = {
    "timestamp": STAMP, "parent_frame_id": "map", "child_frame_id": "base_link",
    "translation": {"x": 500123.25, "y": 4649776.5, "z": 101.0}, "rotation": POSE["orientation"],
}
FIELDS = [{"name": name, "offset": 4 * at, "type": "FLOAT32"} for at, name in enumerate("xyz")]

# Message type, what is in it, and columns that the semantic layer must have.
FOXGLOVE = [
    ("FrameTransform", TRANSFORM, ["stamp", "parent_frame", "child_frame", "translation", "rotation"]),
    ("FrameTransforms", {"transforms": [TRANSFORM, {**TRANSFORM, "child_frame_id": "lidar"}]}, ["stamp", "child_frame", "translation"]),
    ("PoseInFrame", {"timestamp": STAMP, "frame_id": "map", "pose": POSE}, ["position", "orientation"]),
    ("PosesInFrame", {"timestamp": STAMP, "frame_id": "map", "poses": [POSE, POSE]}, ["frame_id"]),
    ("LocationFix", {"timestamp": STAMP, "frame_id": "gps", "latitude": 47.5, "longitude": -8.25, "altitude": 408.0,
                     "position_covariance": [1.0, 0, 0, 0, 2.0, 0, 0, 0, 3.0], "position_covariance_type": "DIAGONAL_KNOWN"},
     ["latitude", "longitude", "altitude", "position_covariance"]),
    ("Log", {"timestamp": STAMP, "level": "WARNING", "message": "größer", "name": "nav", "file": "a.cpp", "line": 7}, ["level", "message"]),
    ("PointCloud", {"timestamp": STAMP, "frame_id": "lidar", "pose": POSE, "point_stride": 12, "fields": FIELDS, "data": list(range(24))},
     ["data", "fields", "position"]),
    ("RawImage", {"timestamp": STAMP, "frame_id": "cam", "width": 2, "height": 2, "encoding": "mono8", "step": 2, "data": [0, 127, 200, 255]},
     ["width", "height", "encoding", "data"]),
    ("CompressedImage", {"timestamp": STAMP, "frame_id": "cam", "data": [255, 216, 255], "format": "jpeg"}, ["format", "data"]),
    ("CompressedVideo", {"timestamp": STAMP, "frame_id": "cam", "data": [0, 0, 1], "format": "h264"}, ["format", "data"]),
    ("LaserScan", {"timestamp": STAMP, "frame_id": "laser", "pose": POSE, "start_angle": -1.5, "end_angle": 1.5,
                   "ranges": [1.0, 2.5, 3.25], "intensities": [0.5]}, ["ranges"]),
    ("CameraCalibration", {"timestamp": STAMP, "frame_id": "cam", "width": 640, "height": 480, "distortion_model": "plumb_bob",
                           "d": [0.1, -0.2], "k": [1.0] * 9, "r": [0.5] * 9, "p": [0.25] * 12}, ["width", "distortion_model"]),
]

EVERYTHING = """
namespace test;
enum Colour : byte { Red = 0, Green, Blue = 7 }
enum Bits : uint (bit_flags) { A, B }
struct Vec { x: double; y: float; n: short; grid: [int: 4]; }
table Leaf { name: string; weight: float = 2.5; }
table Other { count: long; }
union Choice { Leaf, Other }
table Root {
  a: bool = true; b: byte = -3; c: ubyte = 200; d: short; e: ushort; f: int = 42; g: uint; h: long; i: ulong;
  j: float; k: double = 0.5; name: string; colour: Colour = Green; vec: Vec; leaf: Leaf; choice: Choice;
  bytes: [ubyte]; shorts: [short]; names: [string]; leaves: [Leaf]; vecs: [Vec]; colours: [Colour]; maybe: int = null;
}
root_type Root;
"""
ROOTS = [
    {},
    {"a": False, "b": -128, "c": 0, "d": -32768, "e": 65535, "f": -1, "g": 4294967295, "h": -9223372036854775808,
     "i": 18446744073709551615, "j": 0.1, "k": -1e300, "name": "naïve \"text\"", "colour": "Blue",
     "vec": {"x": 1.0, "y": 0.1, "n": -5, "grid": [1, 2, 3, 4]}, "leaf": {"name": "l"}, "choice_type": "Other", "choice": {"count": 5},
     "bytes": [1, 2, 255], "shorts": [1, -1], "names": ["x", "", "z"], "leaves": [{}, {"weight": 0.25}],
     "vecs": [{"x": 2.0, "y": 3.0, "n": 4, "grid": [0, 0, 0, 9]}], "colours": ["Red", "Blue"], "maybe": 0},
    {"choice_type": "Leaf", "choice": {"name": "in a union"}, "names": [], "maybe": -7},
]


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"flatbuffer-compare: {' '.join(map(str, command))}: {done.stdout}{done.stderr}")
    return done.stdout


def encode(folder, schema, value):
    """The message as flatc writes it, and as flatc reads it again."""
    source = folder / "message.json"
    source.write_text(json.dumps(value))
    run("flatc", "--binary", "-o", folder, schema, source)
    binary = folder / "message.bin"
    run("flatc", "--json", "--strict-json", "--defaults-json", "--natural-utf8", "--raw-binary", "-o", folder, schema, "--", binary)
    return binary.read_bytes(), json.loads(source.read_text())


def same(ours, theirs, path):
    if isinstance(theirs, list) and isinstance(ours, str):
        ours = list(base64.b64decode(ours, validate=True))
    if isinstance(theirs, dict):
        require(isinstance(ours, dict), path, ours, theirs)
        # An optional number that is not there is null to flatc, and absent here. flatc prints neither empty vectors that are absent nor the type of a union that is not set.
        for key in (key for key in theirs if theirs[key] is not None):
            require(key in ours, f"{path}.{key}", None, theirs[key])
            same(ours[key], theirs[key], f"{path}.{key}")
        for key in set(ours) - set(theirs):
            require(ours[key] in ([], "", "NONE", None), f"{path}.{key}", ours[key], None)
    elif isinstance(theirs, list):
        require(len(ours) == len(theirs), path, ours, theirs)
        for at, (one, other) in enumerate(zip(ours, theirs)):
            same(one, other, f"{path}[{at}]")
    elif isinstance(theirs, float) and isinstance(ours, (int, float)):
        # flatc prints floats with twelve digits at most.
        require(abs(ours - theirs) <= 1e-6 * max(1.0, abs(theirs)), path, ours, theirs)
    elif isinstance(ours, bool) or isinstance(theirs, bool):
        require(bool(ours) == bool(theirs), path, ours, theirs)
    else:
        require(ours == theirs, path, ours, theirs)


def require(condition, path, ours, theirs):
    if not condition:
        sys.exit(f"flatbuffer-compare: {path}: asof {ours!r}, reference {theirs!r}")


def camel(name):
    return "".join(part.capitalize() for part in name.split("_"))


def same_as_python(ours, table, path):
    """Exactly what the generated classes of the Python library return."""
    for key, value in ours.items():
        name = camel(key)
        where = f"{path}.{key}"
        if isinstance(value, dict):
            same_as_python(value, getattr(table, name)(), where)
        elif isinstance(value, list):
            require(getattr(table, f"{name}Length")() == len(value), where, value, "another length")
            for at, item in enumerate(value):
                theirs = getattr(table, name)(at)
                if isinstance(item, dict):
                    same_as_python(item, theirs, f"{where}[{at}]")
                else:
                    require(item == theirs, f"{where}[{at}]", item, theirs)
        else:
            theirs = getattr(table, name)
            if hasattr(table, f"{name}Length"):
                theirs = bytes(getattr(table, name)(at) for at in range(getattr(table, f"{name}Length")()))
                require(base64.b64decode(value) == theirs, where, value, theirs)
                continue
            theirs = theirs()
            theirs = theirs.decode() if isinstance(theirs, bytes) else theirs
            # An enum's name is known to its schema alone.
            require(value == theirs or isinstance(value, str) and isinstance(theirs, int), where, value, theirs)


def main():
    asof, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    schema = folder / "everything.fbs"
    schema.write_text(EVERYTHING)
    run("flatc", "--binary", "--schema", "-o", folder, schema)
    cases = [("/everything", "test.Root", schema, folder / "everything.bfbs", root) for root in ROOTS]
    for name, value, _ in FOXGLOVE:
        binary_schema = folder / f"{name}.bfbs"
        binary_schema.write_bytes(foxglove.get_schema(name))
        cases.append((f"/{name}", f"foxglove.{name}", binary_schema, binary_schema, value))

    expected, channels, recording = [], {}, folder / "run.mcap"
    with open(recording, "wb") as out:
        writer = Writer(out)
        writer.start()
        for at, (topic, kind, source, binary_schema, value) in enumerate(cases):
            payload, reference = encode(folder, source, value)
            expected.append((topic, kind, payload, reference))
            if topic not in channels:
                known = writer.register_schema(kind, "flatbuffer", binary_schema.read_bytes())
                channels[topic] = writer.register_channel(topic, "flatbuffer", known)
            writer.add_message(channels[topic], at, payload, at)
        writer.finish()

    lines = [json.loads(line) for line in run(asof, "cat", "--json", recording).splitlines()]
    require(len(lines) == len(expected), "messages", len(lines), len(expected))
    for line, (topic, kind, payload, reference) in zip(lines, expected):
        require(line["topic"] == topic and line["data"] is not None, topic, line.get("error"), "a message")
        same(line["data"], reference, kind)
        if kind.startswith("foxglove."):
            name = kind.removeprefix("foxglove.")
            module = importlib.import_module(f"foxglove_schemas_flatbuffer.{name}")
            same_as_python(line["data"], getattr(module, name).GetRootAs(payload, 0), kind)

    run(asof, "export", "-q", recording, "-o", folder / "seen", "--layer", "semantic")
    for name, value, columns in FOXGLOVE:
        table = pq.read_table(folder / "seen" / f"{name}.parquet")
        archetype = (table.schema.metadata or {}).get(b"asof:archetype")
        require(archetype is not None, name, "reflection", "an archetype")
        for column in columns:
            require(column in table.column_names, f"{name}.{column}", table.column_names, column)
    table = pq.read_table(folder / "seen/FrameTransforms.parquet")
    require(table["translation"].to_pylist() == [[500123.25, 4649776.5, 101.0]] * 2, "translation", table["translation"].to_pylist(), "the same")
    print(f"flatbuffer-compare: {len(lines)} messages of {len(channels)} types are as flatc and Python read them, "
          f"{len(FOXGLOVE)} of Foxglove's types have their archetypes")


main()
