"""Recordings as a dataset; torch is not needed."""

from __future__ import annotations

import pickle
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
    with pytest.raises(ValueError, match="nothing"):
        asof.torch.Dataset(demo_path, hz=1)
    long = asof.torch.Dataset(demo_path, hz=30, state=["/joint_states.position"], horizon=10_000)
    assert len(long) == 0
