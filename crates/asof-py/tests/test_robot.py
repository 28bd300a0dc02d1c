"""A robot of our own: a recording is played to a network, and what comes out there is recorded, kept, and put together."""

from __future__ import annotations

import socket
import time

import asof
import numpy as np
import pytest
from asof import errors
from conftest import until

TOPICS = ["/imu", "/odom", "/tf", "/tf_static"]


@pytest.fixture
def pair():
    """Two sessions of one network."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with asof.connect(f"zenoh://?listen=127.0.0.1:{port}") as robot, asof.connect(f"zenoh://127.0.0.1:{port}") as observer:
        yield robot, observer


def playing(robot, rec, is_done, *topics, timeout=60.0, **options):
    """Plays two seconds over and over until something has happened: a subscription takes a moment."""
    playback = robot.playback(rec, topics or TOPICS, end="+2s", rate=10, repeat=True, **options)
    deadline = time.monotonic() + timeout
    while not is_done():
        assert time.monotonic() < deadline, "it did not happen in time"
        playback.run("50ms")
    return playback


def test_what_is_played_is_recorded(pair, rec, tmp_path):
    robot, observer = pair
    path = tmp_path / "out.mcap"
    x = rec["/odom"].to_numpy("pose.pose.position.x", end="+2s")
    with observer.record(path, topics="/odo*", exclude="/imu", tags={"site": "north"}) as recorder:
        assert recorder.path == str(path) and recorder.is_recording
        recorder.note("remark", text="a wet floor")
        playback = playing(robot, rec, lambda: recorder.report()["written"] >= 2 * len(x))
        assert playback.report()["published"] >= 2 * len(x)
        assert playback.report()["left_out"] == []
    report = recorder.report()
    assert not recorder.is_recording and report["dropped"] == 0
    assert list(report["topics"]) == ["/odom"]
    out = asof.open(path)
    assert list(out) == ["/odom"]
    assert set(out["/odom"].to_numpy("pose.pose.position.x")) == set(x)
    assert out["/odom"].info.messages == report["written"]
    assert out.metadata["tags"]["site"] == "north"
    assert out.metadata["remark"]["text"] == "a wet floor"
    with pytest.raises(errors.WriteError, match="exists already"):
        observer.record(path)
    with pytest.raises(errors.LiveError, match="stopped"):
        recorder.note("late", text="")


def test_playing_pauses_and_ends(pair, rec):
    robot, _ = pair
    playback = robot.playback(rec, "/odom", end="+1s", rate=20, paused=True)
    playback.run("0.6s")
    assert playback.is_paused and playback.report()["published"] == 0
    playback.resume()
    until(lambda: playback.run("20ms") or playback.report()["published"] > 3)
    playback.pause()
    playback.run("20ms")
    position = playback.position
    assert rec.start <= position <= rec.end
    playback.run("60ms")
    assert playback.position == position and not playback.is_ended
    playback.resume()
    playback.run()
    assert playback.is_ended
    count = len(rec["/odom"].to_numpy("stamp", end="+1s"))
    assert playback.report()["published"] == count
    assert robot.play(rec, "/odom", end="+1s", rate=20)["published"] == count
    with pytest.raises(errors.TopicError):
        robot.play(rec, "/nothing")
    with pytest.raises(ValueError, match="rate="):
        robot.play(rec, rate=0)


def test_renamed_topics_come_under_their_new_names(pair, rec):
    robot, observer = pair
    window = observer.window("/robot1/odom", count=5)
    playback = playing(robot, rec, lambda: len(window) == 5, "/odom", names={"/odom": "/robot1/odom"}, clock=50)
    assert window.newest.topic == "/robot1/odom"
    until(lambda: playback.run("20ms") or "/clock" in observer.topics)


def test_parts_are_files_one_after_another(pair, rec, tmp_path):
    robot, observer = pair
    with observer.record(tmp_path / "run.mcap", "/odom", split_time="100ms", compression="lz4") as recorder:
        playing(robot, rec, lambda: len(recorder.files) >= 3)
    names = [file.rsplit("/", 1)[1] for file in recorder.files]
    assert names[:3] == ["run_0.mcap", "run_1.mcap", "run_2.mcap"]
    assert sum(asof.open(file)["/odom"].info.messages for file in recorder.files) == recorder.report()["written"]


@pytest.mark.parametrize("triggers", [(), "/odom.pose.pose.position.x > -1000000"])
def test_snapshots_hold_what_was_before_their_trigger(pair, rec, tmp_path, triggers):
    robot, observer = pair
    with observer.snapshots(tmp_path / "crash.mcap", TOPICS, keep="60s", after="100ms", triggers=triggers) as recorder:
        playing(robot, rec, lambda: recorder.report()["kept"] > 10 or recorder.files)
        if not triggers:
            assert recorder.files == []
            recorder.trigger("by hand")
        playing(robot, rec, lambda: recorder.files and not recorder.report()["is_writing"])
        assert recorder.report()["triggered"] == 1
        assert ("by hand" if not triggers else "/odom") in recorder.report()["last_trigger"]
    out = asof.open(recorder.files[0])
    assert set(out) <= set(TOPICS) and "/odom" in out
    with pytest.raises(ValueError, match="is not a trigger"):
        observer.snapshots(tmp_path / "no.mcap", triggers="when it breaks")


def test_wrong_options_are_named(pair, tmp_path):
    _, observer = pair
    with pytest.raises(ValueError, match="compression='gzip'.*zstd"):
        observer.record(tmp_path / "out.mcap", compression="gzip")
    with pytest.raises(errors.WriteError, match="there is no folder"):
        observer.record(tmp_path / "nowhere/out.mcap")
    with pytest.raises(TypeError, match="bogus"):
        observer.record(tmp_path / "out.mcap", bogus=1)
    with pytest.raises(errors.TimeError, match="soon"):
        observer.record(tmp_path / "out.mcap", split_time="soon")
    assert list(tmp_path.iterdir()) == []


def test_a_robot_is_followed(pair, rec):
    robot, observer = pair
    seen = []

    def is_done():
        return len(seen) > 5

    recent = observer.recent("/odom", last="10s", bytes=10_000_000)
    window = observer.window("/odom", count=5)
    playing(robot, rec, lambda: len(window) == 5)
    follower = recent.follow("/odom")
    # What is kept comes first, and what comes later too.
    kept = recent.topics["/odom"].messages
    playing(robot, rec, lambda: recent.topics["/odom"].messages > kept + 5)
    for message in follower:
        seen.append(message.pose.pose.position.x)
        if len(seen) > kept + 5:
            break
    assert is_done() and set(seen) <= set(rec["/odom"].to_numpy("pose.pose.position.x"))
    assert list(recent) == ["/odom"]


def test_a_complete_recording_is_followed_to_its_end(rec):
    assert len(list(rec["/odom"].follow(end="+1s"))) == len(rec["/odom"].to_numpy("stamp", end="+1s"))


def test_sets_may_be_early_shifted_and_partial(pair, rec):
    robot, observer = pair
    windows = [observer.window(topic, count=50) for topic in ("/imu", "/odom")]
    playing(robot, rec, lambda: all(len(window) > 3 for window in windows))

    def first(**options):
        sets = observer.synchronize(*windows, **options)
        found = []
        playing(robot, rec, lambda: found.append(sets.next(timeout=0)) or found[-1] is not None)
        return found[-1]

    imu, odom = first(slop="50ms", early="50ms")
    assert (imu.topic, odom.topic) == ("/imu", "/odom") and abs(imu.stamp - odom.stamp) <= 50_000_000
    imu, odom = first(slop="5ms", offsets={"/odom": "-40ms"}, policy="epsilon", queue_size=50)
    assert abs(imu.stamp - (odom.stamp - 40_000_000)) <= 5_000_000
    imu, odom = first(policy="latest")
    assert (imu.topic, odom.topic) == ("/imu", "/odom")
    imu, odom = first(slop="5ms", lateness="100ms")
    assert abs(imu.stamp - odom.stamp) <= 5_000_000
    # Nobody publishes it: a set does not wait, or only so long.
    windows.append(observer.window("/nobody", count=5))
    imu, odom, nobody = first(slop="20ms", optional="/nobody")
    assert nobody is None and abs(imu.stamp - odom.stamp) <= 20_000_000
    found = first(slop="20ms", longest_wait="200ms")
    assert found[2] is None and any(found)


def test_a_wait_ends_although_nothing_arrives(pair, rec):
    robot, observer = pair
    windows = [observer.window("/odom", count=50), observer.window("/nobody", count=5)]
    playing(robot, rec, lambda: len(windows[0]) > 3)
    sets = observer.synchronize(*windows, longest_wait="200ms")

    def is_last_there():
        """A tenth of a second of messages: for all of them the wait ends after the last one."""
        robot.play(rec, "/odom", start="+4s", end="+4.1s", rate=10)
        while (found := sets.next(timeout="1s")) is not None:
            assert found[0].topic == "/odom" and found[1] is None
            if found[0].stamp > rec.start + 3_900_000_000:
                return True
        return False

    until(is_last_there)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"policy": "best"}, "policy='best'"),
        ({"policy": "exact", "slop": "1ms"}, "slop="),
        ({"policy": "approximate", "optional": "/imu"}, "epsilon"),
        ({"policy": "epsilon", "early": "1ms"}, "early="),
    ],
)
def test_options_that_do_not_fit_each_other_are_refused(pair, options, text):
    with pytest.raises(ValueError, match=text):
        pair[1].synchronize("/imu", "/odom", **options)


def test_options_of_topics_name_topics(pair):
    with pytest.raises(errors.TopicError, match="/gps"):
        pair[1].synchronize("/imu", "/odom", optional="/gps")
    with pytest.raises(errors.TopicError, match="/gps"):
        pair[1].synchronize("/imu", "/odom", offsets={"/gps": 1.0})


def test_a_window_is_bounded_by_bytes(pair, rec):
    robot, observer = pair
    window = observer.window("/odom", count=1000, bytes=4_000)
    playing(robot, rec, lambda: window.counters()["evicted"] > 3)
    assert window.counters()["bytes"] <= 4_000 and 0 < len(window) < 10
    assert np.isfinite([message.pose.pose.position.x for message in window]).all()
