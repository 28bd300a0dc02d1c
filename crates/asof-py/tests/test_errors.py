"""Errors are Python's own, in our sentences; nothing in a file crashes the interpreter."""

from __future__ import annotations

import socket
import subprocess
import sys
import textwrap

import asof
import pytest
from asof import errors
from test_words import mcap_of


def test_what_is_not_there_is_named(rec, tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere.mcap"):
        asof.open(tmp_path / "nowhere.mcap")
    with pytest.raises(errors.SourceError):
        asof.open([])
    with pytest.raises(KeyError, match="there is no topic /odm; there are .*/odom"):
        rec["/odm"]
    with pytest.raises(errors.TopicError, match="no topic matches '/nothing"):
        rec.messages("/nothing*")
    with pytest.raises(errors.FieldError, match="pose, covariance"):
        rec["/odom"].read(columns=["pose.position"])
    with pytest.raises(AttributeError, match="it has header, child_frame_id, pose, twist"):
        next(rec.messages("/odom")).speed
    with pytest.raises(AttributeError, match="there are pose, covariance"):
        next(rec.messages("/odom")).pose.position
    with pytest.raises(TypeError):
        asof.open(7)


@pytest.mark.parametrize("given", ["yesterday", "+12 parsecs", "", "NaN"])
def test_nonsense_is_not_a_time(rec, given):
    with pytest.raises(ValueError, match="time"):
        rec.at(given)


@pytest.mark.parametrize("given", [True, [1], object(), None])
def test_other_things_are_not_times(rec, given):
    with pytest.raises(TypeError):
        rec.at(given)


@pytest.mark.parametrize("given", [float("nan"), float("inf"), 1e300, 2**63, -(2**70)])
def test_no_number_is_beyond_time(rec, given):
    with pytest.raises(errors.TimeError):
        rec.at(given)


def test_a_batch_has_rows(rec):
    with pytest.raises(ValueError, match="at least one row"):
        next(rec["/odom"].batches(rows=0))
    with pytest.raises(OverflowError):
        next(rec["/odom"].batches(rows=-1))


def test_what_cannot_be_decoded_is_counted_and_told(tmp_path):
    path = tmp_path / "run.mcap"
    mcap_of(path, "/j", [(1, {"x": 1}), (2, b"{"), (3, {"x": 3})])
    topic = asof.open(path)["/j"]
    with pytest.warns(asof.DecodeWarning, match="1 message"):
        assert topic.to_numpy("x").tolist() == [1, 3]
    with pytest.warns(asof.DecodeWarning, match="1 message"):
        assert sum(len(batch) for batch in topic.batches()) == 2
    good, bad, _ = topic
    assert good.x == 1
    with pytest.raises(errors.DecodeError, match="/j at 1970"):
        bad.data


def test_a_topic_without_a_definition_says_so(tmp_path):
    from mcap.writer import Writer

    path = tmp_path / "run.mcap"
    with open(path, "wb") as file:
        writer = Writer(file)
        writer.start()
        channel = writer.register_channel("/x", "abacus", 0)
        writer.add_message(channel, 1, b"beads", 1)
        writer.finish()
    topic = asof.open(path)["/x"]
    with pytest.raises(errors.DecodeError, match="/x .*abacus"):
        topic.to_arrow()
    [message] = topic
    assert message.raw == b"beads"
    with pytest.raises(errors.DecodeError, match="abacus"):
        message.data


@pytest.mark.parametrize("size", [0, 1, 7, 8, 100, 5000, 50_000, 400_000])
def test_a_file_that_was_cut_is_read_as_far_as_it_goes(demo_path, tmp_path, size):
    path = tmp_path / "cut.mcap"
    path.write_bytes(demo_path.read_bytes()[:size])
    try:
        rec = asof.open(path)
    except errors.SourceError:
        assert size < 8
        return
    assert rec.problems and str(rec.problems[0]) in repr(rec)
    count = sum(1 for message in rec.messages() if message.data is not None)
    assert count > 0 or size < 50_000


def test_bytes_that_were_changed_do_not_crash(demo_path, tmp_path):
    import random
    import warnings

    whole = demo_path.read_bytes()
    chance = random.Random(1)
    for number in range(6):
        damaged = bytearray(whole[:600_000])
        for _ in range(60):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        path = tmp_path / f"{number}.mcap"
        path.write_bytes(damaged)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                rec = asof.open(path)
                for topic in rec:
                    rec[topic].to_arrow()
                for message in rec.messages():
                    message.data
        except asof.Error:
            pass


def interrupted(code, *words):
    """What a process prints that signals come to from `begin()` on, of which the third is a Ctrl-C.

    Python looks at signals when a call returns, and all that came until then are one. So only a call that looks at them itself sees
    a third.
    """
    code = f"""
import signal, sys, asof

seen = []

def heard(number, frame):
    seen.append(number)
    if len(seen) == 3:
        raise KeyboardInterrupt

def begin():
    signal.signal(signal.SIGALRM, heard)
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)

try:
{textwrap.indent(textwrap.dedent(code), "    ")}
    signal.setitimer(signal.ITIMER_REAL, 0)
    print("read on until the end")
except KeyboardInterrupt:
    print("interrupted")
"""
    done = subprocess.run([sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True, timeout=300)
    return done.stdout.strip() or done.stderr


@pytest.mark.parametrize(
    "body",
    [
        "rec['/imu'].to_arrow()",
        "sum(1 for _ in rec.messages())",
        "[len(batch) for batch in rec['/imu'].batches()]",
        "rec.tf()",
        # Few rows, for which much is read.
        "rec.join('/map', ['/odom', '/imu', '/scan'], how='interpolate', on='log_time').to_arrow()",
        "rec.resample(['/imu', '/odom'], hz=1).to_arrow()",
        "rec.convert(sys.argv[2])",
        "asof.lerobot.export(sys.argv[1:2], sys.argv[2], hz=30, mapping={'observation.images.a': '/camera/image'}, videos=False)",
    ],
)
def test_ctrl_c_interrupts_a_long_read(demo_path, tmp_path, body):
    code = f"rec = asof.open([sys.argv[1]] * 40)\nasof.lerobot\nbegin()\n{body}"
    assert interrupted(code, demo_path, tmp_path / "out.mcap") == "interrupted"


def test_ctrl_c_interrupts_an_opening():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        place = f"http://127.0.0.1:{silent.getsockname()[1]}/run.mcap"
        assert interrupted("begin()\nasof.open(sys.argv[1])", place) == "interrupted"


def test_ctrl_c_ends_a_wait_for_a_transform():
    code = """
    tf = asof.TransformBuffer()
    tf.set_transform("odom", "base_link", 1)
    begin()
    tf.lookup_transform("odom", "base_link", 5, timeout=600)
    """
    assert interrupted(code) == "interrupted"


def test_other_threads_run_while_a_recording_is_read(demo_path):
    import threading

    rec = asof.open([demo_path] * 10)
    counted, is_done = [0], threading.Event()

    def count():
        while not is_done.is_set():
            counted[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    try:
        before = counted[0]
        rec["/camera/image"].read().collect()
        during = counted[0] - before
    finally:
        is_done.set()
        thread.join()
    # While the lock is held, another thread gets none of it but for the switches between batches.
    assert during > 1000
