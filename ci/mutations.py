"""Damages recordings and asks every verb about them. See ci/mutations."""

import concurrent.futures
import json
import os
import pathlib
import random
import sqlite3
import struct
import subprocess
import sys
import tempfile
import threading
import time

asof, recordings = sys.argv[1], pathlib.Path(sys.argv[2])
count = int(os.environ.get("ASOF_MUTATIONS", "25"))
first_seed = int(os.environ.get("ASOF_MUTATIONS_FROM", "0"))
SECONDS, BYTES = 10, 1 << 30

VERBS = {
    "info": ["info", "--json", "IN"],
    "cat --raw": ["cat", "--raw", "--json", "IN"],
    "cat": ["cat", "--json", "IN"],
    "at": ["at", "--raw", "--json", "--time=-0s", "IN"],
    "tf": ["tf", "IN"],
    "join": ["join", "--anchor", "TOPIC", "--with", "OTHER", "--json", "IN"],
    "export": ["export", "IN", "-o", "OUT/tables"],
    "convert": ["convert", "--json", "IN", "-o", "OUT/converted.mcap"],
    "doctor": ["doctor", "--json", "IN"],
    "recover": ["recover", "--json", "IN", "-o", "OUT/saved.mcap"],
}


def bag():
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
        data += record(field(b"op", b"\x05") + field(b"compression", b"none") + field(b"size", number(len(inner))), inner)
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
    for message in range(120):
        text = b"m" * [5, 300, 3000, 20000][message % 4]
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


def bases(folder):
    """What is damaged, by format: recordings of our own, and small ones of others' where they are there."""
    made = {}
    for compression in ("zstd", "lz4", "none"):
        path = folder / f"{compression}.mcap"
        subprocess.run([asof, "demo", "-o", folder / "demo.mcap", "--seconds", "1", "--force"], check=True, capture_output=True)
        words = ["convert", folder / "demo.mcap", "-o", path, "--compression", compression, "--chunk-size", "64k", "--force"]
        subprocess.run([asof, *words, "--topics", "/odom,/tf"], check=True, capture_output=True)
        made.setdefault("mcap", []).append(path.read_bytes())
    made["bag"], made["db3"], made["ulg"] = [bag()], [db3(folder)], [ulog()]
    if recordings.is_dir():
        for path in sorted(recordings.iterdir()):
            if path.suffix[1:] in made and path.stat().st_size < 120_000:
                made[path.suffix[1:]].append(path.read_bytes())
    else:
        print(f"SKIPPED: no recordings in {recordings} to damage, only our own (set ASOF_TEST_DATA)")
    return made


def damaged(data, dice):
    data = bytearray(data)
    for _ in range(dice.randint(1, 4)):
        if not data:
            break
        at = dice.randrange(len(data))
        kind = dice.randrange(8)
        if kind == 0:
            for _ in range(dice.randint(1, 20)):
                data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        elif kind == 1:
            del data[at:]
        elif kind == 2:
            lie = dice.choice([0, 1, 7, 2**16, 2**31 - 1, 2**31, 2**32 - 1])
            data[at : at + 4] = lie.to_bytes(4, dice.choice(["little", "big"]))
        elif kind == 3:
            lie = dice.choice([0, 2**40, 2**63 - 1, 2**63, 2**64 - 1])
            data[at : at + 8] = lie.to_bytes(8, "little")
        elif kind == 4:
            size = dice.randrange(4000)
            data[at : at + size] = bytes([dice.choice([0, 255, 6])]) * min(size, len(data) - at)
        elif kind == 5:
            piece = data[at : at + dice.randrange(3000)]
            to = dice.randrange(len(data))
            data[to:to] = piece
        elif kind == 6:
            del data[at : at + dice.randrange(1, 200)]
        else:
            data[at:at] = dice.randbytes(dice.randrange(200))
    return bytes(data)


def run(words):
    """Exit code, output, errors, seconds and the most memory of a command."""
    start = time.monotonic()
    child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    texts = {}
    read = lambda name, pipe: texts.__setitem__(name, pipe.read())
    readers = [
        threading.Thread(target=read, args=("out", child.stdout)),
        threading.Thread(target=read, args=("err", child.stderr)),
    ]
    for reader in readers:
        reader.start()
    watch = threading.Timer(3 * SECONDS, child.kill)
    watch.start()
    _, status, usage = os.wait4(child.pid, 0)
    watch.cancel()
    child.returncode = os.waitstatus_to_exitcode(status)
    for reader in readers:
        reader.join()
    return child.returncode, texts["out"], texts["err"], time.monotonic() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def faults(kind, seed, data, folder):
    """What is wrong with the answers about one file."""
    path = folder / f"damaged.{kind}"
    path.write_bytes(data)
    found, codes = [], {}
    topics = []
    for verb, words in VERBS.items():
        if verb == "join" and not topics:
            continue
        out = folder / "out"
        subprocess.run(["rm", "-rf", out], check=True)
        out.mkdir()
        places = {"IN": path, "TOPIC": (topics or [""])[0], "OTHER": (topics or [""])[-1]}
        filled = [str(places.get(word, word.replace("OUT", str(out)))) for word in words]
        code, printed, errors, seconds, cpu, memory = run([asof, *filled])
        codes[verb] = code
        say = lambda what: found.append(f"{verb} of {kind} seed {seed}: {what}")
        if code not in (0, 1, 3):
            say(f"exit code {code}: {errors[-300:]!r}")
        if b"panicked" in errors:
            say(f"a panic: {errors[-300:]!r}")
        # A busy machine makes the clock run, but not the processor's own.
        if min(seconds, cpu) > SECONDS:
            say(f"{seconds:.0f} s")
        if memory > BYTES:
            say(f"{memory >> 20} MiB")
        if code == 1 and not errors.strip() and not printed.strip():
            say("exit code 1 and not a word")
        if "--json" in words and code in (0, 3):
            try:
                answers = [json.loads(line) for line in printed.splitlines()]
            except ValueError:
                say("what it prints is not JSON")
                continue
            if verb == "info":
                # Commas are between names, and stars stand for others.
                named = [topic["topic"] for topic in answers[0]["topics"]]
                topics = [topic for topic in named if topic.startswith("/") and not set(topic) & set(",*?[{\\")]
    if codes["doctor"] == 0:
        for verb in ("info", "cat --raw", "at", "convert", "recover"):
            if codes[verb] != 0:
                found.append(f"{verb} of {kind} seed {seed}: exit code {codes[verb]} although the doctor finds it healthy")
    if codes["info"] == 1 and codes["cat --raw"] != 1:
        found.append(f"{kind} seed {seed}: info refuses what cat reads")
    return found


def main():
    wrong = []
    with tempfile.TemporaryDirectory() as name:
        top = pathlib.Path(name)
        made = bases(top)
        folders = threading.local()

        def one(job):
            kind, seed = job
            if not hasattr(folders, "own"):
                folders.own = pathlib.Path(tempfile.mkdtemp(dir=top))
            dice = random.Random(f"{kind}{seed}")
            return faults(kind, seed, damaged(dice.choice(made[kind]), dice), folders.own)

        jobs = [(kind, seed) for seed in range(first_seed, first_seed + count) for kind in made]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 2) as pool:
            for found in pool.map(one, jobs):
                wrong += found
                for line in found:
                    print(line, flush=True)
    if wrong:
        sys.exit(f"{len(wrong)} wrong answers")
    print(f"{len(jobs)} damaged files through {len(VERBS)} verbs: no panic, nothing over {SECONDS} s or 1 GB")


main()
