"""Holds what asof prints of a running robot against what the same command lines print of its recording.

usage: live_rows.py FOLDER, which has the programs `asof` (with the feature `live`) and `examples/robot`.

The robot is recorded while the verbs listen to it. Each has its own subscription, so the time of receipt (log_time)
differs by microseconds; everything else of a row must be the same: topic, publisher's time, sequence, type and data.
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


def asof(*words, **options):
    return subprocess.Popen(
        [programs / "asof", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def rows(process, what):
    said, notes = process.communicate(timeout=300)
    if process.returncode != 0:
        failures.append(f"{what}: exit {process.returncode}: {notes.strip()}")
    return [json.loads(line) for line in said.splitlines()]


def same(row):
    """A row without what two subscriptions cannot have in common."""
    if isinstance(row, dict):
        return {name: same(value) for name, value in row.items() if name not in ("log_time", "offset")}
    return row


def check(what, is_right, detail=""):
    print(("ok    " if is_right else "WRONG ") + what)
    if not is_right:
        failures.append(f"{what} {detail}")


def by_publisher(found):
    return {(row["topic"], row["sequence"], row["publish_time"]): row for row in found}


with tempfile.TemporaryDirectory() as folder:
    url = f"zenoh://127.0.0.1:{(port := free_port())}"
    robot = subprocess.Popen([programs / "examples" / "robot", f"zenoh://?listen=127.0.0.1:{port}", "600"])
    try:
        time.sleep(1)
        recording = str(Path(folder) / "run.mcap")
        record = asof("record", url, "-o", recording, "--for", "20s")
        # Until it is being recorded.
        while not Path(recording).exists() or Path(recording).stat().st_size < 2000:
            time.sleep(0.1)
        chosen = ["--topics", "/odom,/scan", "--json"]
        join = ["--anchor", "/scan", "--with", "/odom", "--json"]
        frames = ["--from", "map", "--to", "base_link", "--json"]
        live = {
            "cat": asof("cat", url, *chosen, "--for", "6s"),
            "at": asof("at", url, *chosen),
            "join": asof("join", url, *join, "--for", "8s"),
            "tf": asof("tf", url, *frames),
            "info": asof("info", url, "--json", "--for", "4s"),
        }
        live = {verb: rows(process, verb) for verb, process in live.items()}
        rows(record, "record")
    finally:
        robot.terminate()
        robot.wait()

    recorded = by_publisher(rows(asof("cat", recording, *chosen), "cat of the recording"))
    for verb, least in [("cat", 20), ("at", 2)]:
        found = live[verb]
        check(f"{verb}: {len(found)} rows of the robot", len(found) >= least)
        for key, row in by_publisher(found).items():
            if key not in recorded or same(recorded[key]) != same(row):
                check(f"{verb}: the row {key} is in the recording", False, str(row)[:300])
                break
        else:
            check(f"{verb}: each is a row of the recording", True)
    # Nothing is missing between the first and the last.
    for topic in ["/odom", "/scan"]:
        sequences = [row["sequence"] for row in live["cat"] if row["topic"] == topic]
        whole = list(range(sequences[0], sequences[-1] + 1)) if sequences else None
        check(f"cat: {len(sequences)} of {topic} without a gap", sequences == whole)

    joined = by_publisher(rows(asof("join", recording, *join), "join of the recording"))
    found = by_publisher(live["join"])
    check(f"join: {len(found)} rows of the robot", len(found) >= 10)
    # The last anchors were settled by the end of the listening, not by what came after them; what the robot said
    # before anyone listened is not known to the first.
    settled = list(found.items())[1:-2]
    differing = [key for key, row in settled if key not in joined or same(joined[key]) != same(row)]
    check("join: each is a row of the recording", not differing, f"{len(differing)} of {len(settled)}: {differing[:3]}")

    answer = live["tf"][0]
    again = rows(asof("tf", recording, *frames, "--at", f"{answer['stamp']}ns"), "tf of the recording")[0]
    check("tf: the same pose at the same time", again == answer, f"{answer} and {again}")

    kinds = lambda info: {(topic["topic"], topic["type"], topic["encoding"]) for topic in info[0]["topics"]}
    whole = kinds(rows(asof("info", recording, "--json"), "info of the recording"))
    # A topic without a message is announced by the robot, and is not in a recording.
    check("info: the same topics and types", whole <= kinds(live["info"]), f"{whole} and {kinds(live['info'])}")

if failures:
    sys.exit("\n".join(["", *failures]))
