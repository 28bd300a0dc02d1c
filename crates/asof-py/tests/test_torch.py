"""Recordings as a dataset; torch is not needed."""

from __future__ import annotations

import pickle
import warnings
from concurrent.futures import ProcessPoolExecutor
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
