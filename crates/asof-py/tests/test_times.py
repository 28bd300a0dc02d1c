"""A time is whatever the command line, Python, numpy and pandas have for it."""

from __future__ import annotations

import datetime

import asof
import numpy as np
import pandas as pd
import pytest
from asof import _asof

START = 1_714_564_800_000_000_000
NOON = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.timezone.utc)


@pytest.mark.parametrize(
    "given",
    [
        START,
        float(START) / 1e9,
        "2024-05-01T12:00:00Z",
        "1714564800",
        "1714564800.0",
        f"{START}ns",
        NOON,
        NOON.replace(tzinfo=None),
        NOON.astimezone(datetime.timezone(datetime.timedelta(hours=5))),
        np.datetime64("2024-05-01T12:00:00"),
        np.datetime64(START, "ns"),
        np.int64(START),
        np.float64(START / 1e9),
        pd.Timestamp(START),
        pd.Timestamp("2024-05-01T12:00:00Z"),
        asof.Record(sec=1714564800, nanosec=0),
    ],
)
def test_every_spelling_is_the_same_time(given):
    assert _asof.nanos(given) == START


def test_pandas_times_keep_their_nanoseconds():
    assert _asof.nanos(pd.Timestamp(START + 7)) == START + 7
    assert _asof.nanos(np.datetime64(START + 7, "ns")) == START + 7


@pytest.mark.parametrize("given", [pd.NaT, np.datetime64("NaT")])
def test_not_a_time_is_refused(given):
    with pytest.raises(asof.Error):
        _asof.nanos(given)


def test_relative_times_are_relative_to_the_recording(rec):
    source = rec._source
    assert source.resolve("+1.5s") == rec.start + 1_500_000_000
    assert source.resolve("-250ms") == rec.end - 250_000_000
    with pytest.raises(asof.Error, match="relative"):
        _asof.nanos("+1s")


@pytest.mark.parametrize(
    "given",
    ["50ms", "0.05s", 0.05, datetime.timedelta(milliseconds=50), np.timedelta64(50, "ms"), pd.Timedelta("50ms")],
)
def test_every_spelling_is_the_same_length(given):
    assert _asof.length(given) == 50_000_000


@pytest.mark.parametrize("given", ["-50ms", "soon", -1.0, float("nan"), datetime.timedelta(seconds=-1), ""])
def test_what_is_not_a_length_is_refused(given):
    with pytest.raises(asof.Error):
        _asof.length(given)
