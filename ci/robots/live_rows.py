"""Holds what asof prints of a running robot against what the same command lines print of its recording.

usage: live_rows.py FOLDER, which has the programs `asof` (with the feature `live`) and `examples/robot`.

The robot is recorded while the verbs listen to it. Each has its own subscription, so the time of receipt (log_time)
differs by microseconds; everything else of a row must be the same: topic, publisher's time, sequence, type and data. A
comparison of no rows at all is a failure.
"""

import json
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

programs = Path(sys.argv[1]).resolve()
failures = []


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def asof(*words):
    return subprocess.Popen([programs / "asof", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def rows(process):
    said, notes = process.communicate(timeout=300)
    if process.returncode != 0:
        failures.append(f"{process.args[1:]}: exit {process.returncode}: {notes.strip()}")
    return [json.loads(line) for line in said.splitlines()]


def same(row):
    """A row without what two subscriptions cannot have in common: when it was received, and how long ago that was."""
    if isinstance(row, dict):
        return {name: same(value) for name, value in row.items() if name not in ("log_time", "age")}
    return row


def rounded(row):
    """Numbers to nine digits: a chain of frames that is looked up by its newest time is put together in another order."""
    if isinstance(row, float):
        return round(row, 9)
    if isinstance(row, list):
        return [rounded(value) for value in row]
    return {name: rounded(value) for name, value in row.items()} if isinstance(row, dict) else row


def key(row):
    return (row["topic"], row["sequence"], row["publish_time"])


def by_key(found):
    return {key(row): row for row in found}


def check(what, is_right, detail=""):
    print(("ok    " if is_right else "WRONG ") + what)
    if not is_right:
        failures.append(f"{what} {detail}")


def check_rows(verb, pairs, least):
    """Each pair is a row of the robot, and the one of the recording or None."""
    differing = [(live, recorded) for live, recorded in pairs if recorded is None or same(live) != same(recorded)]
    check(
        f"{verb}: {len(pairs)} rows, each the same of the robot and of its recording",
        len(pairs) >= least and not differing,
        f"(at least {least}; {len(differing)} differ) {str(differing[:1])[:600]}",
    )


CHOSEN = ["--topics", "/odom,/scan", "--json"]
JOIN = ["--anchor", "/scan", "--with", "/odom", "--on", "stamp", "--json"]
FRAMES = ["--from", "map", "--to", "base_link", "--json"]

with tempfile.TemporaryDirectory() as folder:
    url = f"zenoh://127.0.0.1:{(port := free_port())}"
    robot = subprocess.Popen([programs / "examples" / "robot", f"zenoh://?listen=127.0.0.1:{port}", "600"])
    try:
        recording = str(Path(folder) / "run.mcap")
        record = asof("record", url, "-o", recording, "--for", "30s", "--json")
        # Until the recorder has subscribed.
        patience = time.monotonic() + 60
        while not Path(recording).exists() or Path(recording).stat().st_size < 2000:
            if time.monotonic() > patience or record.poll() is not None:
                sys.exit(f"nothing is recorded: {record.communicate()}")
            time.sleep(0.1)
        lines = {
            "cat": ["cat", url, *CHOSEN, "--for", "6s"],
            "at": ["at", url, *CHOSEN],
            "join": ["join", url, *JOIN, "--for", "8s"],
            "tf": ["tf", url, *FRAMES],
            "tf --follow": ["tf", url, *FRAMES, "--follow", "--every", "500ms", "--for", "6s"],
            "info": ["info", url, "--json", "--for", "4s"],
        }
        began = {verb: asof(*words) for verb, words in lines.items()}
        live = {verb: rows(process) for verb, process in began.items()}
        check("the recording outlasts the verbs", record.poll() is None)
        recorded = rows(record)
        check("record: messages", recorded and recorded[0]["messages"] > 100, str(recorded)[:300])
    finally:
        robot.terminate()
        robot.wait()

    def of_recording(verb, *more):
        """What the same command line prints of the recording."""
        return rows(asof(*[recording if word == url else word for word in lines[verb]], *more))

    known = by_key(of_recording("cat"))
    check_rows("cat", [(row, known.get(key(row))) for row in live["cat"]], 20)
    # Nothing is missing between the first and the last.
    for topic in ["/odom", "/scan"]:
        sequences = [row["sequence"] for row in live["cat"] if row["topic"] == topic]
        whole = list(range(sequences[0], sequences[-1] + 1)) if sequences else None
        check(f"cat: {len(sequences)} of {topic} without a gap", sequences == whole)

    # As of when the recorder received the newest of them, the recording knows the same.
    times = [known[key(row)]["log_time"] for row in live["at"] if key(row) in known]
    then = by_key(of_recording("at", "--time", f"{max(times, default=0)}ns"))
    newest = [row for row in live["at"] if key(row) in known and known[key(row)]["log_time"] == max(times)]
    check_rows("at", [(row, then.get(key(row))) for row in newest], 1)
    check_rows("at, every row", [(row, known.get(key(row))) for row in live["at"]], 2)

    joined = by_key(of_recording("join"))
    # The first rows lack messages that were published before the subscription; the last ones are final because the session
    # ended, not because of later messages.
    settled = [row for row in live["join"][1:] if not row.get("early")][:-2]
    check_rows("join", [(row, joined.get(key(row))) for row in settled], 10)

    for verb, least in [("tf", 1), ("tf --follow", 5)]:
        line = [recording if word == url else word for word in lines["tf"]]
        at = lambda row: rows(asof(*line, "--at", f"{row['stamp']}ns"))[0]
        pairs = [(rounded(row), rounded(at(row))) for row in live[verb]]
        check_rows(verb, pairs, least)

    kinds = lambda info: {(topic["topic"], topic["type"], topic["encoding"]) for topic in info[0]["topics"]}
    whole, seen = kinds(of_recording("info")), kinds(live["info"])
    # A topic without messages is announced by the robot, and missing in a recording.
    check(f"info: {len(whole)} topics and types", len(whole) >= 5 and whole <= seen, f"{whole} and {seen}")

if failures:
    sys.exit("\n".join(["", *failures]))
