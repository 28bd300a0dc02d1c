"""Asks the command about every file of the MCAP conformance suite. See ci/conformance-command."""

import concurrent.futures
import json
import pathlib
import subprocess
import sys

suite, asof = pathlib.Path(sys.argv[1]), sys.argv[2]


def answers(*words):
    done = subprocess.run([asof, *words], capture_output=True, text=True)
    assert done.returncode == 0, (words, done.returncode, done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(path):
    records = json.loads(path.with_suffix(".json").read_text())["records"]
    of = lambda kind: [dict(record["fields"]) for record in records if record["type"] == kind]
    messages = of("Message")
    topics = {channel["topic"] for channel in of("Channel")}
    info = answers("info", "--json", str(path))[0]
    assert info["messages"] == len(messages), (path.name, info)
    all_of_it = answers("cat", "--raw", "--json", str(path))
    assert len(all_of_it) == len(messages), (path.name, all_of_it)
    for topic in topics:
        found = answers("cat", "--raw", "--json", "--topics", topic, str(path))
        assert len(found) == len(messages), (path.name, topic, found)
        found = answers("at", "--raw", "--json", "--topics", topic, "--time=-0s", str(path))
        assert len(found) == min(1, len(messages)), (path.name, topic, found)
    return path


files = sorted(suite.rglob("*.mcap"))
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    done = list(pool.map(check, files))
print(f"{len(done)} files of the conformance suite are answered through the command")
