"""Recordings as a dataset; torch is not needed."""

from __future__ import annotations

import base64
import json
import pickle
import warnings
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from multiprocessing import get_context

import asof.torch
import numpy as np
import pytest
from asof import errors


@pytest.fixture(scope="module")
def dataset(demo_path):
    return asof.torch.Dataset(
        [demo_path, demo_path],
        hz=30,
        images=["/camera/image"],
        state=["/joint_states.position", "/odom.pose.pose.position.x"],
        action=["/cmd_vel.linear.x"],
        horizon=16,
    )


def test_a_sample_is_what_was_known_then(rec, dataset):
    assert 2 * 850 < len(dataset) < 2 * 900
    sample = dataset[100]
    known = rec.at(sample["time"])
    np.testing.assert_array_equal(np.asarray(sample["/camera/image"]), known["/camera/image"].image())
    wanted = [*known["/joint_states"].position, known["/odom"].pose.pose.position.x]
    np.testing.assert_allclose(np.asarray(sample["state"]), wanted, rtol=1e-6)
    assert np.asarray(sample["action"]).shape == (16, 1)
    later = sample["time"] + round(7e9 / 30)
    np.testing.assert_allclose(np.asarray(sample["action"])[7], rec.at(later)["/cmd_vel"].linear.x, rtol=1e-6)


def test_all_recordings_have_their_samples(dataset):
    half = len(dataset) // 2
    assert (dataset[0]["recording"], dataset[half]["recording"]) == (0, 1)
    assert dataset[0]["time"] == dataset[half]["time"]
    assert dataset[-1]["time"] == dataset[half - 1]["time"]
    with pytest.raises(IndexError):
        dataset[len(dataset)]


def state_of(given):
    dataset, index = given
    return np.asarray(dataset[index]["state"]).tolist()


def test_worker_processes_open_the_recordings_again(dataset):
    dataset[3]
    assert len(pickle.dumps(dataset)) < 5_000
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        found = list(pool.map(state_of, [(dataset, 3), (dataset, 500)]))
    assert found == [state_of((dataset, 3)), state_of((dataset, 500))]


def test_processes_that_are_forked_from_one_that_has_read_read_too(dataset):
    """As torch's loader makes its workers on Linux."""
    wanted = [state_of((dataset, 3)), state_of((dataset, 500))]
    picture = np.asarray(dataset[3]["/camera/image"]).sum()
    context = get_context("fork")
    results = context.Queue()

    def work():
        results.put([*(state_of((dataset, index)) for index in (3, 500)), np.asarray(dataset[3]["/camera/image"]).sum()])

    with warnings.catch_warnings():
        # Python 3.12 warns of any fork beside threads; that this one works is what is tested.
        warnings.simplefilter("ignore", DeprecationWarning)
        workers = [context.Process(target=work, daemon=True) for _ in range(2)]
        for worker in workers:
            worker.start()
    assert [results.get(timeout=300) for _ in workers] == [[*wanted, picture]] * 2
    for worker in workers:
        worker.join()


def test_numbers_of_recordings_stay_within_the_memory(demo_path):
    words = {"hz": 30, "state": ["/joint_states.position"]}
    roomy = asof.torch.Dataset([demo_path] * 4, **words)
    each = len(roomy) // 4
    first = [np.asarray(roomy[at * each]["state"]) for at in range(4)]
    assert (roomy.evicted, len(roomy._open)) == (0, 4)
    tight = asof.torch.Dataset([demo_path] * 4, memory=roomy.held // 2, **words)
    for round_ in range(2):
        for at in range(4):
            np.testing.assert_array_equal(np.asarray(tight[at * each]["state"]), first[at])
            assert tight.held <= tight.memory
    assert tight.evicted == 6
    # The one that was asked last is not let go, and one that is too large by itself is still there.
    tight[2 * each], tight[3 * each]
    assert tight.evicted == 6
    none = asof.torch.Dataset([demo_path] * 2, memory=0, **words)
    none[0], none[1], none[each]
    assert (none.evicted, len(none._open)) == (1, 1)
    with pytest.raises(ValueError, match="memory"):
        asof.torch.Dataset(demo_path, memory=-1, **words)


def test_what_cannot_be_a_dataset_is_said(demo_path):
    with pytest.raises(errors.TopicError, match="/nowhere"):
        asof.torch.Dataset(demo_path, hz=30, images=["/nowhere"])
    with pytest.raises(errors.FieldError, match="/joint_states.position"):
        asof.torch.Dataset(demo_path, hz=30, state=["position"])
    with pytest.raises(errors.FieldError):
        asof.torch.Dataset(demo_path, hz=30, state=["/joint_states.name"])[0]
    with pytest.raises(errors.AlignError):
        asof.torch.Dataset(demo_path, hz=0, state=["/joint_states.position"])
    with pytest.raises(ValueError, match="horizon"):
        asof.torch.Dataset(demo_path, hz=1, state=["/joint_states.position"], horizon=0)
    with pytest.raises(ValueError, match="empty"):
        asof.torch.Dataset(demo_path, hz=1)
    long = asof.torch.Dataset(demo_path, hz=30, state=["/joint_states.position"], horizon=10_000)
    assert len(long) == 0


def test_history_and_future_are_padded_at_the_ends_of_an_episode(rec, demo_path):
    hz = 10
    data = asof.torch.Dataset(
        [demo_path, demo_path],
        hz=hz,
        images=["/camera/image"],
        state=["/odom.pose.pose.position.x"],
        action=["/cmd_vel.linear.x"],
        delta_timestamps={"state": [-0.2, -0.1, 0], "action": [0, 0.1, 0.2], "/camera/image": [-0.5, 0]},
    )
    half = len(data) // 2
    state = np.array([np.asarray(data[at]["state"])[2, 0] for at in range(half)])
    first, middle, last = data[0], data[half // 2], data[half - 1]
    assert np.asarray(first["state_is_pad"]).tolist() == [True, True, False]
    assert np.asarray(first["state"])[:, 0].tolist() == [state[0]] * 3
    assert np.asarray(first["action_is_pad"]).tolist() == [False] * 3
    at = half // 2
    assert np.asarray(middle["state"])[:, 0].tolist() == state[at - 2 : at + 1].tolist()
    assert not np.asarray(middle["state_is_pad"]).any() and np.asarray(middle["action"]).shape == (3, 1)
    assert np.asarray(last["action_is_pad"]).tolist() == [False, True, True]
    assert len(set(np.asarray(last["action"])[:, 0].tolist())) == 1
    # The next episode begins with its own first value.
    assert np.asarray(data[half]["state_is_pad"]).tolist() == [True, True, False]
    pictures = np.asarray(middle["/camera/image"])
    assert pictures.shape[0] == 2 and np.asarray(first["/camera/image_is_pad"]).tolist() == [True, False]
    then = rec.at(middle["time"] - 500_000_000, "/camera/image")["/camera/image"].image()
    np.testing.assert_array_equal(pictures[0], then)


def test_padding_keeps_the_last_samples_of_a_horizon(demo_path):
    words = {"hz": 10, "state": ["/odom.pose.pose.position.x"], "action": ["/cmd_vel.linear.x"], "horizon": 4}
    short, long = asof.torch.Dataset(demo_path, **words), asof.torch.Dataset(demo_path, padding=True, **words)
    assert len(long) == len(short) + 3
    for at in (0, len(short) - 1):
        np.testing.assert_array_equal(np.asarray(long[at]["action"]), np.asarray(short[at]["action"]))
        assert not np.asarray(long[at]["action_is_pad"]).any()
    assert np.asarray(long[len(long) - 1]["action_is_pad"]).tolist() == [False, True, True, True]


def test_deltas_are_instants_of_what_there_is(demo_path):
    words = {"hz": 10, "state": ["/odom.pose.pose.position.x"]}
    for deltas, why in [({"state": [0.05]}, "multiples of 1/10 s"), ({"action": [0]}, "names action"), ({"state": []}, "at least one")]:
        with pytest.raises(ValueError, match=why):
            asof.torch.Dataset(demo_path, delta_timestamps=deltas, **words)


def test_frames_of_video_are_decoded(tmp_path):
    av = pytest.importorskip("av")
    path = tmp_path / "video.mcap"
    encoder = av.CodecContext.create("libx264", "w")
    encoder.width, encoder.height, encoder.pix_fmt = 64, 48, "yuv420p"
    encoder.time_base, encoder.framerate = Fraction(1, 10), Fraction(10)
    encoder.options = {"tune": "zerolatency", "g": "7", "bf": "0"}
    start, shades = 1_700_000_000 * 10**9, [10 * at + 20 for at in range(20)]
    with asof.Writer(path) as out:
        for at, shade in enumerate(shades):
            frame = av.VideoFrame.from_ndarray(np.full((48, 64, 3), shade, np.uint8), format="rgb24")
            frame.pts = at
            for packet in encoder.encode(frame):
                message = {"format": "h264", "data": base64.b64encode(bytes(packet)).decode(), "frame_id": "camera"}
                payload = json.dumps(message).encode()
                schema = ("foxglove.CompressedVideo", "jsonschema", VIDEO.encode())
                out.write_raw("/video", start + at * 10**8, payload, "json", schema)
    data = asof.torch.Dataset(path, hz=10, images=["/video"], delta_timestamps={"/video": [-0.1, 0]})
    assert len(data) == 20
    # In order, back across a keyframe, and at random.
    for at in [*range(20), 3, 2, 19, 8, 7, 6]:
        pictures = np.asarray(data[at]["/video"])
        assert pictures.shape == (2, 48, 64, 3)
        assert abs(pictures[1].mean() - shades[at]) < 6 and abs(pictures[0].mean() - shades[max(at - 1, 0)]) < 6


VIDEO = """{"title": "foxglove.CompressedVideo", "type": "object", "properties": {"timestamp": {"type": "object", "properties":
{"sec": {"type": "integer"}, "nsec": {"type": "integer"}}}, "frame_id": {"type": "string"},
"data": {"type": "string", "contentEncoding": "base64"}, "format": {"type": "string"}}}"""
