"""Asks the command about every variant of the MCAP conformance suite. See ci/files/conformance-command."""

import base64
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import conformance_variants

suite, asof = pathlib.Path(sys.argv[1]), sys.argv[2]
ALL = 416


def run(*words):
    done = subprocess.run([asof, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, (words, done.returncode, done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def seen(messages):
    return [(one["log_time"], one["publish_time"], one["sequence"], base64.b64decode(one["data"])) for one in messages]


def expected(records):
    """The messages as they are to come: by time, then as they are in the file."""
    messages = [dict(record["fields"]) for record in records if record["type"] == "Message"]
    numbers = lambda one: tuple(int(one[name]) for name in ("log_time", "publish_time", "sequence"))
    found = [(*numbers(one), bytes(map(int, one["data"]))) for one in messages]
    return sorted(found, key=lambda one: one[0])


def check_messages(path, messages, topics):
    """Each way of asking for messages gives those that are there."""
    [info] = run("info", "--json", path)
    assert info["messages"] == len(messages), info
    assert not info["problems"], info
    assert [topic["topic"] for topic in info["topics"]] == topics, info
    assert sum(topic["messages"] for topic in info["topics"]) == len(messages), info
    assert seen(run("cat", "--raw", "--json", path)) == messages
    for topic in topics:
        asking = ["--raw", "--json", "--topics", topic]
        assert seen(run("cat", *asking, path)) == messages, topic
        for time in sorted({messages[0][0], messages[-1][0], 3}) if messages else []:
            known = [one for one in messages if one[0] <= time][-1:]
            assert seen(run("at", *asking, "--time", f"0.{time:09}", path)) == known, (topic, time)
        later = [one for one in messages if one[0] >= 2]
        assert seen(run("cat", *asking, "--start", "0.000000002", path)) == later, topic
    return info


def check(path):
    records = json.loads(path.with_suffix(".json").read_text())["records"]
    messages = expected(records)
    topics = sorted({dict(record["fields"])["topic"] for record in records if record["type"] == "Channel"})
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        try:
            info = check_messages(path, messages, topics)
            ways = [["convert"], ["recover"], *(["convert", "--topics", topic] for topic in topics)]
            for number, way in enumerate(ways):
                copy = folder / f"{number}.mcap"
                [report] = run(*way, "--json", path, "-o", copy)
                assert report["messages"] == len(messages), (way, report)
                copied = check_messages(copy, messages, topics)
                if "--topics" not in way:
                    for what in ("attachments", "metadata"):
                        assert len(copied[what]) == len(info[what]), (way, what)
                        kind = {"attachments": "Attachment", "metadata": "Metadata"}[what]
                        assert len(info[what]) == sum(record["type"] == kind for record in records), what
            # The message encoding of these files is unknown, so payloads are not decoded.
            [diagnosis] = run("doctor", "--no-decode", "--json", path)
            assert diagnosis["healthy"] and diagnosis["messages"] == len(messages), diagnosis
        except AssertionError as error:
            raise AssertionError(f"{path.name}: {error}") from error
    return path


with tempfile.TemporaryDirectory() as name:
    made = pathlib.Path(name)
    there, written = conformance_variants.write_missing(suite, made)
    files = sorted(suite.rglob("*.mcap")) + sorted(made.glob("*.mcap"))
    assert len(files) == ALL, f"{len(files)} variants, not {ALL}"
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 2) as pool:
        done = list(pool.map(check, files))
print(f"{len(done)} variants of the conformance suite are answered through the command; {written} of them were made here")
