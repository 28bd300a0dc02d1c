"""Cuts bags among their index records, db3 and MCAP files anywhere, and asks the command about the rest. See ci/files/cuts."""

import collections
import json
import os
import pathlib
import random
import sqlite3
import struct
import subprocess
import sys
import tempfile

recordings, asof = pathlib.Path(sys.argv[1]), sys.argv[2]
cuts_of_a_file = int(os.environ.get("ASOF_CUTS", "4"))
# Many random places: messages are lost only at few of them.
random_cuts = max(25, cuts_of_a_file)
# Fewer of the slow ones above, which are alike; ASOF_CUTS sets a larger number for all.
largest = 400_000 if "ASOF_CUTS" not in os.environ else 1 << 40


def answers(*words, may=(0, 3)):
    done = subprocess.run([asof, *map(str, words)], capture_output=True, text=True)
    assert done.returncode in may, (words, done.returncode, done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def index_records(data):
    """Where each index record of a bag starts and ends."""
    at = data.index(b"\n") + 1
    while at + 8 <= len(data):
        (header,) = struct.unpack_from("<I", data, at)
        if at + 8 + header > len(data):
            return
        (size,) = struct.unpack_from("<I", data, at + 4 + header)
        end = at + 8 + header + size
        if b"\x04\0\0\0op=\x04" in data[at + 4 : at + 4 + header]:
            yield at, end
        at = end


def some(things, count):
    step = max(1, len(things) // count)
    return things[::step]


def check_bag(path):
    """A cut bag: every way of asking agrees with a reading of the whole."""
    everything = answers("cat", "--raw", "--json", path)
    counts = collections.Counter(message["topic"] for message in everything)
    info = answers("info", "--json", path)[0]
    assert info["messages"] == len(everything), (info["messages"], len(everything))
    assert info["problems"], "nothing is said"
    for topic in some(sorted(counts), 4):
        found = answers("cat", "--raw", "--json", "--topics", topic, path)
        assert len(found) == counts[topic], (topic, len(found), counts[topic])
    if everything:
        middle = everything[len(everything) // 2]["log_time"]
        seconds = f"{middle // 10**9}.{middle % 10**9:09}"
        found = answers("cat", "--raw", "--json", "--start", seconds, path)
        later = [message for message in everything if message["log_time"] >= middle]
        assert len(found) == len(later), ("--start", len(found), len(later))
        found = answers("at", "--raw", "--json", "--time", seconds, path)
        known = {message["topic"]: message for message in everything if message["log_time"] <= middle}
        times = lambda messages: sorted((one["topic"], one["log_time"]) for one in messages)
        assert times(found) == times(known.values()), "at"


def varint(page, at):
    value = 0
    for index in range(9):
        byte = page[at + index]
        if index == 8:
            return value << 8 | byte, at + 9
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + index + 1


def rows_by_pages(data):
    """The ids of all messages that are whole in a file's pages, whatever leads to them."""
    size = struct.unpack_from(">H", data, 16)[0]
    size = 65536 if size == 1 else size
    usable = size - data[20]
    found = set()
    for start in range(size, len(data), size):
        page = data[start : start + size].ljust(size, b"\0")
        if page[0] != 0x0D:
            continue
        (cells,) = struct.unpack_from(">H", page, 3)
        for cell in range(cells):
            try:
                row = row_at(data, start, page, struct.unpack_from(">H", page, 8 + 2 * cell)[0], size, usable)
            except (IndexError, struct.error, TypeError):
                continue
            if row is not None:
                found.add(row)
    return found


def row_at(data, start, page, at, size, usable):
    length, at = varint(page, at)
    row, at = varint(page, at)
    local = length
    if length > usable - 35:
        least = (usable - 12) * 32 // 255 - 23
        filling = least + (length - least) % (usable - 4)
        local = filling if filling <= usable - 35 else least
    if start + at + local > len(data) or at + local > usable:
        return None
    header, place = varint(page, at)
    kinds = []
    while place < at + header:
        kind, place = varint(page, place)
        kinds.append(kind)
    # An id that is the number of the row, two whole numbers, a blob.
    is_number = lambda kind: kind in (1, 2, 3, 4, 5, 6, 8, 9)
    if len(kinds) != 4 or kinds[0] != 0 or not (is_number(kinds[1]) and is_number(kinds[2])):
        return None
    if kinds[3] < 12 or kinds[3] % 2:
        return None
    left = length - local
    following = struct.unpack_from(">I", page, at + local)[0] if left else 0
    while left > 0:
        needed = min(left, usable - 4)
        place = (following - 1) * size
        if following == 0 or place + 4 + needed > len(data):
            return None
        following = struct.unpack_from(">I", data, place)[0]
        left -= needed
    return row if following == 0 else None


def check_db3(path, whole, folder):
    """A cut db3: what recover saves is what a scan of the pages finds, and each message is as it was."""
    data = path.read_bytes()
    expected = rows_by_pages(data)
    saved = folder / "saved.mcap"
    saved.unlink(missing_ok=True)
    done = subprocess.run([asof, "recover", "--json", path, "-o", saved], capture_output=True, text=True)
    # A file that was cut opens as long as its first page, which has the schema, is whole.
    assert done.returncode == 3, (done.returncode, done.stderr)
    report = json.loads(done.stdout)
    assert report["messages"] == len(expected), (report["messages"], len(expected))
    left = collections.Counter(whole[row] for row in expected)
    found = collections.Counter()
    for message in answers("cat", "--raw", "--json", saved):
        found[message["log_time"], message.get("size", message.get("len"))] += 1
    assert set(time for time, _ in found) == set(time for time, _ in left), "other messages"
    for problem in report["problems"]:
        assert "-9223372036854775808" not in problem["message"], problem
        assert len(problem["message"]) < 500, problem


def mcap_records(data, at, end):
    """Opcode, body and end of each record that is whole or reaches past the end."""
    while at + 9 <= end:
        (size,) = struct.unpack_from("<Q", data, at + 1)
        yield data[at], at + 9, at + 9 + size
        at += 9 + size


def chunk_data(data, body):
    """The compression of a chunk, and where its data starts."""
    (name,) = struct.unpack_from("<I", data, body + 28)
    return data[body + 32 : body + 32 + name], body + 32 + name + 8


def mcap_walk(data, end, whole):
    """The messages that a plain walk finds before `end`: those of whole chunks, and of what is left of a plain one.

    `whole` has the messages of each chunk of the file before it was cut, by where the chunk is.
    """
    found = collections.Counter()
    message = lambda body: struct.unpack_from("<HIQ", data, body)
    for opcode, body, stop in mcap_records(data, 8, end):
        if opcode == 5 and stop <= end:
            found[message(body)[2]] += 1
        if opcode == 6 and stop <= end:
            found.update(whole[body])
        elif opcode == 6 and body + 40 <= end and chunk_data(data, body)[0] == b"":
            for opcode, inner, stop in mcap_records(data, chunk_data(data, body)[1], end):
                if opcode == 5 and stop <= end:
                    found[message(inner)[2]] += 1
    return found


def mcap_chunks(data):
    """The log times of the messages of each chunk, by its indexes, or by itself; `None` if neither tells them."""
    chunks, last = {}, None
    for opcode, body, stop in mcap_records(data, 8, len(data) - 8):
        if opcode == 6:
            last, chunks[body] = body, collections.Counter()
            compression, start = chunk_data(data, body)
            if compression == b"":
                for opcode, inner, _ in mcap_records(data, start, stop):
                    if opcode == 5:
                        chunks[body][struct.unpack_from("<HIQ", data, inner)[2]] += 1
        elif opcode == 7 and last is not None and chunk_data(data, last)[0] != b"":
            (size,) = struct.unpack_from("<I", data, body + 2)
            for at in range(body + 6, body + 6 + size, 16):
                chunks[last][struct.unpack_from("<Q", data, at)[0]] += 1
    compressed = [body for body in chunks if chunk_data(data, body)[0] != b""]
    return None if compressed and not any(chunks[body] for body in compressed) else chunks


def mcap_places(data, count, dice):
    """Random places of every kind: inside of records of each kind, in their headers, between them, anywhere."""
    kinds = collections.defaultdict(list)
    for opcode, body, stop in mcap_records(data, 8, len(data) - 8):
        kinds[opcode].append((body, stop))
        if opcode == 6 and chunk_data(data, body)[0] == b"":
            inner = mcap_records(data, chunk_data(data, body)[1], stop)
            kinds["inner"] += [(start, end) for _, start, end in inner]
    ways = [
        lambda body, stop: body - dice.randint(1, 8),
        lambda body, stop: dice.randint(body, max(body, stop - 1)),
        lambda body, stop: stop,
    ]
    places = []
    for turn in range(count):
        for kind in sorted(kinds, key=str)[turn % len(kinds) :: len(kinds)]:
            places.append(ways[turn // len(kinds) % 3](*dice.choice(kinds[kind])))
        if turn % 3 == 0:
            places.append(dice.randint(8, len(data) - 1))
    # In the middle of chunks, where messages can be lost.
    places += [dice.randint(*dice.choice(kinds[6])) for _ in range(count // 2) if kinds[6]]
    return [min(max(place, 8), len(data) - 1) for place in places]


def check_mcap(path, expected):
    """A cut MCAP file: nothing that a plain walk finds is lost."""
    done = subprocess.run([asof, "cat", "--raw", "--json", path], capture_output=True, text=True)
    if not expected and done.returncode in (0, 1, 3):
        return
    assert done.returncode in (0, 3), (done.returncode, done.stderr)
    found = collections.Counter(json.loads(line)["log_time"] for line in done.stdout.splitlines())
    lost = expected - found
    assert not lost, f"{sum(lost.values())} of {sum(expected.values())} messages are lost"


tried = collections.Counter()
with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    for path in sorted(recordings.glob("*.bag")):
        data = path.read_bytes()
        if len(data) > largest:
            continue
        places = [place for start, end in index_records(data) for place in (start, start + 9, end - 5, end)]
        for cut in some(places, cuts_of_a_file):
            short = folder / "cut.bag"
            short.write_bytes(data[:cut])
            try:
                check_bag(short)
            except AssertionError as error:
                sys.exit(f"{path.name} cut at byte {cut}: {error}")
            tried["bag"] += 1
    for path in sorted(recordings.glob("*.db3")):
        data = path.read_bytes()
        if len(data) > 4 * largest:
            continue
        database = sqlite3.connect(f"file:{path}?immutable=1", uri=True)
        rows = database.execute("SELECT id, timestamp, length(data) FROM messages")
        whole = {row: (time, size) for row, time, size in rows}
        database.close()
        dice = random.Random(path.name)
        places = [dice.randint(100, len(data) - 1) for _ in range(random_cuts)]
        # The topics are on one of the first pages, or after the messages.
        size = struct.unpack_from(">H", data, 16)[0]
        places += [size * page + extra for page in (2, 3, 4, 5, len(data) // size - 1) for extra in (0, 100)]
        for cut in sorted(place for place in set(places) if place < len(data)):
            short = folder / "cut.db3"
            short.write_bytes(data[:cut])
            try:
                check_db3(short, whole, folder)
            except AssertionError as error:
                sys.exit(f"{path.name} cut at byte {cut}: {error}")
            tried["db3"] += 1
    for path in sorted(recordings.glob("*.mcap")):
        data = path.read_bytes()
        if len(data) > 8 * largest or not data.startswith(b"\x89MCAP0\r\n"):
            continue
        chunks = mcap_chunks(data)
        if chunks is None:
            continue
        # The answers for the complete file: some files are damaged already, or have times beyond the range of a stamp.
        given = collections.Counter(one["log_time"] for one in answers("cat", "--raw", "--json", path))
        dice = random.Random(path.name)
        for cut in sorted(set(mcap_places(data, random_cuts, dice))):
            short = folder / "cut.mcap"
            short.write_bytes(data[:cut])
            try:
                check_mcap(short, mcap_walk(data, cut, chunks) & given)
            except AssertionError as error:
                sys.exit(f"{path.name} cut at byte {cut}: {error}")
            tried["mcap"] += 1
print(f"{tried['mcap']} cuts of MCAP files lose nothing that a plain walk finds")
print(f"{tried['bag']} cuts of bags and {tried['db3']} of db3 files are answered as an independent look has it")
