"""PX4 logs: made here, found in packages, and compared with what pyulog reads. See ci/files/formats-compare."""

import json
import math
import pathlib
import struct
import subprocess
import tempfile

from mcap.reader import make_reader
from mcap_ros2.decoder import DecoderFactory
from pyulog import ULog

SEVERITIES = "emergency alert critical error warning notice info debug".split()
SYNC = bytes([0x2F, 0x73, 0x13, 0x20, 0x25, 0x0C, 0xBB, 0x12])
# Crates whose packages have logs of real flights in them.
PACKAGES = {"yule_log": "0.4.0", "ulog-rs": "0.0.4"}


def samples(folder):
    """Logs from packages, each of them also as pyulog writes it, and one that has everything."""
    folder = pathlib.Path(folder)
    logs = [made(folder / "made.ulg")]
    for log in downloaded(folder / "download"):
        copy = folder / log.name
        if copy.exists():
            continue
        copy.write_bytes(log.read_bytes())
        again = folder / f"rewritten-{log.name}"
        ULog(str(log)).write_ulog(str(again))
        logs += [copy, again]
    return logs


def downloaded(folder):
    folder.mkdir(parents=True)
    needs = "".join(f'{name} = "={version}"\n' for name, version in PACKAGES.items())
    (folder / "Cargo.toml").write_text(
        f'[package]\nname = "samples"\nedition = "2021"\n[lib]\npath = "lib.rs"\n[workspace]\n[dependencies]\n{needs}'
    )
    (folder / "lib.rs").write_text("")
    told = subprocess.run(
        ["cargo", "metadata", "--quiet", "--format-version", "1"], cwd=folder, stdout=subprocess.PIPE, check=False
    )
    if told.returncode:
        print("SKIPPED: logs from packages, since they cannot be downloaded")
        return []
    packages = json.loads(told.stdout)["packages"]
    found = [pathlib.Path(p["manifest_path"]).parent for p in packages if p["name"] in PACKAGES]
    return sorted(log for place in found for log in place.rglob("*.ulg"))


def made(path):
    """Every kind of message, every type of field, nesting, text, padding, instances, and an appended part."""
    log = bytearray(b"ULog\x01\x12\x35\x01" + struct.pack("<Q", 112_000))

    def put(kind, body):
        log.extend(struct.pack("<HB", len(body), ord(kind)) + body)

    def pair(kind, key, value, front=b""):
        put(kind, front + bytes([len(key)]) + key.encode() + value)

    put("B", bytes([1]) + bytes(39))
    kinds = "int8_t uint8_t int16_t uint16_t int32_t uint32_t int64_t uint64_t float double bool char".split()
    codes = "bBhHiIqQfd?B"
    fields = "".join(f"{kind} f{place};" for place, kind in enumerate(kinds))
    put("F", f"everything:uint64_t timestamp;{fields}float[3] vector;char[10] text;uint8_t[5] _padding0;".encode())
    put("F", b"leaf:uint16_t id;uint8_t[2] _padding0;double value;")
    put("F", b"branch:leaf[2] leaves;int8_t level;")
    put("F", b"tree:uint64_t timestamp;branch[3] branches;bool alive;")
    pair("I", "char[4] sys_name", b"Test")
    pair("M", "char[3] log", b"one", b"\0")
    pair("M", "char[3] log", b"two", b"\1")
    for place in range(20):
        pair("P", f"int32_t INT_{place}", struct.pack("<i", -place))
        pair("P", f"float FLOAT_{place}", struct.pack("<f", place / 7))
        pair("Q", f"float FLOAT_{place}", struct.pack("<f", 1.0), bytes([1 + place % 3]))
    for number, (name, instance) in enumerate([("everything", 0), ("everything", 1), ("tree", 0)]):
        put("A", struct.pack("<BH", instance, number) + name.encode())
    for step in range(500):
        time = 112_000 + step * 2500
        values = [-step % 100, step % 200, -step, step, -step, step, -step, step, step / 3, step / 7, step % 2, 65]
        body = struct.pack("<HQ", step % 2, time)
        body += b"".join(struct.pack("<" + code, value) for code, value in zip(codes, values))
        body += struct.pack("<3f", step, float("nan"), float("inf")) + f"step {step}".encode().ljust(10, b"\0")
        put("D", body)
        tree = b"".join(
            struct.pack("<H2xdH2xdb", step, step / 2, step + 1, step / 3, -branch) for branch in range(3)
        )
        put("D", struct.pack("<HQ", 2, time + 1) + tree + b"\1")
        if step % 50 == 7:
            put("S", SYNC)
            put("L", b"6" + struct.pack("<Q", time) + f"step {step}".encode())
            put("C", b"3" + struct.pack("<HQ", step, time) + f"tagged {step}".encode())
            put("O", struct.pack("<H", step))
            pair("P", "int32_t INT_3", struct.pack("<i", step))
    # A message is cut, and more data follows it, as after a crash.
    put("L", b"6" + struct.pack("<Q", 1) + b"lost in the crash")
    del log[-9:]
    flags = 16 + 3
    log[flags + 8] = 1
    log[flags + 16 : flags + 24] = struct.pack("<Q", len(log))
    put("L", b"0" + struct.pack("<Q", 2_000_000) + b"hard fault")
    path.write_bytes(log)
    return path


def by_pyulog(path):
    """What pyulog reads, by topic: times in nanoseconds and flat fields."""
    log = ULog(str(path))
    found = {}
    for data in log.data_list:
        topic = f"/{data.name}" + (f"/{data.multi_id}" if data.multi_id else "")
        # pyulog drops padding at the end of a message and keeps the padding of what is nested in it.
        kinds = {f.field_name: f.type_str for f in data.field_data if "_padding" not in f.field_name}
        columns = {name: data.data[name].tolist() for name in kinds}
        rows = []
        for row, time in enumerate(columns["timestamp"]):
            values = {name: column[row] for name, column in columns.items()}
            rows.append((time * 1000, texts(values, kinds)))
        found[topic] = rows
    strings = [(m.timestamp, m.log_level, None, m.message) for m in log.logged_messages]
    for messages in log.logged_messages_tagged.values():
        strings += [(m.timestamp, m.log_level, m.tag, m.message) for m in messages]
    found["/logged_strings"] = [
        (
            time * 1000,
            {
                "timestamp": time,
                "level": level - 48,
                "severity": SEVERITIES[level - 48],
                "tagged": tag is not None,
                "tag": tag or 0,
                "text": text,
            },
        )
        for time, level, tag, text in strings
    ]
    found["/dropouts"] = [
        (drop.timestamp * 1000, {"timestamp": drop.timestamp, "duration_ms": drop.duration}) for drop in log.dropouts
    ]
    parameters = [("initial", name, value, 0) for name, value in log.initial_parameters.items()]
    parameters += [("changed", name, value, 0) for _, name, value in log.changed_parameters]
    for bit in (0, 1):
        parameters += [("default", name, value, bit) for name, value in log.get_default_parameters(bit).items()]
    return {topic: rows for topic, rows in found.items() if rows}, sorted(parameters)


def texts(values, kinds):
    """pyulog gives text one character a column; a single character stays a number."""
    flat, letters = {}, {}
    for name, value in values.items():
        if kinds[name] == "char" and name.endswith("]"):
            letters.setdefault(name[: name.rindex("[")], []).append(value % 256)
        elif kinds[name] == "char":
            flat[name] = value % 256
        elif kinds[name] == "bool":
            flat[name] = bool(value)
        else:
            flat[name] = value
    for name, codes in letters.items():
        flat[name] = bytes(codes).split(b"\0")[0].decode(errors="replace")
    return flat


def flattened(value, name, flat):
    if hasattr(value, "__slots__"):
        for part in value.__slots__:
            flattened(getattr(value, part), f"{name}.{part}" if name else part, flat)
    elif isinstance(value, (bytes, list, tuple)):
        for place, part in enumerate(value):
            flattened(part, f"{name}[{place}]", flat)
    else:
        flat[name] = value


def by_mcap_ros2(path):
    found, parameters = {}, []
    with open(path, "rb") as file:
        reader = make_reader(file, decoder_factories=[DecoderFactory()])
        for _, channel, message, decoded in reader.iter_decoded_messages():
            flat = {}
            flattened(decoded, "", flat)
            if channel.topic != "/parameters":
                found.setdefault(channel.topic, []).append((message.log_time, flat))
                continue
            bits = [bit for bit in (0, 1) if flat["default_types"] & 1 << bit] if flat["source"] == "default" else [0]
            value = int(flat["value"]) if flat["type"] == "int32_t" else flat["value"]
            parameters += [(flat["source"], flat["name"], value, bit) for bit in bits]
    return found, sorted(parameters)


def same(one, other):
    if one.keys() != other.keys():
        return False
    for name, value in one.items():
        peer = other[name]
        if value != peer and not (isinstance(value, float) and math.isnan(value) and math.isnan(peer)):
            return False
    return True


def compare(path, convert):
    """How many messages there are, and what is different, if anything."""
    wanted, wanted_parameters = by_pyulog(path)
    with tempfile.TemporaryDirectory() as folder:
        converted = pathlib.Path(folder) / "out.mcap"
        subprocess.run([convert, path, converted], check=True, stdout=subprocess.PIPE)
        found, parameters = by_mcap_ros2(converted)
    faults = []
    if wanted.keys() != found.keys():
        faults.append(f"topics {wanted.keys() ^ found.keys()}")
    if wanted_parameters != parameters:
        faults.append("parameters")
    for topic in wanted.keys() & found.keys():
        pairs = zip(sorted(wanted[topic], key=lambda m: m[0]), found[topic])
        if len(wanted[topic]) != len(found[topic]):
            faults.append(f"{topic}: {len(wanted[topic])} and {len(found[topic])} messages")
        elif not all(one[0] == other[0] and same(one[1], other[1]) for one, other in pairs):
            faults.append(topic)
    return sum(map(len, wanted.values())) + len(wanted_parameters), faults
