"""Times of Python libraries as nanoseconds."""

from __future__ import annotations

import datetime
import operator
from typing import Any

from asof.errors import TimeError

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_MICROSECOND = datetime.timedelta(microseconds=1)
_PARTS = (("sec", "nanosec"), ("sec", "nsec"), ("secs", "nsecs"), ("seconds", "nanos"))


def nanos(given: Any) -> int:
    """Nanoseconds since 1970. A time without a zone is UTC, as in numpy and pandas."""
    if given is None:
        raise TypeError("a time is required, not None")
    value = getattr(given, "as_unit", None)
    if value is not None and hasattr(given, "value"):  # pandas.Timestamp, to the nanosecond
        if given != given:
            raise TimeError("NaT is not a time")
        return int(given.as_unit("ns").value)
    if isinstance(given, datetime.datetime):
        zoned = given if given.tzinfo is not None else given.replace(tzinfo=datetime.timezone.utc)
        return (zoned - _EPOCH) // _MICROSECOND * 1000
    if isinstance(given, datetime.date):
        midnight = datetime.datetime(given.year, given.month, given.day, tzinfo=datetime.timezone.utc)
        return (midnight - _EPOCH) // _MICROSECOND * 1000
    kind = getattr(getattr(given, "dtype", None), "kind", None)
    if kind == "M":
        return _whole(given, "datetime64[ns]")
    if kind == "f":
        return round(float(given) * 1e9)
    whole = getattr(given, "nanoseconds", None)  # rclpy.time.Time
    if isinstance(whole, int):
        return whole
    for seconds, rest in _PARTS:  # a Time of ROS 2, of ROS 1, of protobuf
        if hasattr(given, seconds) and hasattr(given, rest):
            return int(getattr(given, seconds)) * 1_000_000_000 + int(getattr(given, rest))
    try:
        return operator.index(given)
    except TypeError:
        name = type(given).__name__
        raise TypeError(
            f"{name} is not a time; give a text such as '+12.5s' or '2024-05-01T12:00:10Z', nanoseconds, a datetime, "
            "or a numpy datetime64"
        ) from None


def length(given: Any) -> int:
    """A duration in nanoseconds."""
    if hasattr(given, "as_unit") and hasattr(given, "value"):  # pandas.Timedelta
        if given != given:
            raise TimeError("NaT is not a duration")
        return int(given.as_unit("ns").value)
    if isinstance(given, datetime.timedelta):
        return given // _MICROSECOND * 1000
    kind = getattr(getattr(given, "dtype", None), "kind", None)
    if kind == "m":
        return _whole(given, "timedelta64[ns]")
    if kind in ("f", "i", "u"):
        return round(float(given) * 1e9)
    name = type(given).__name__
    raise TypeError(f"{name} is not a duration; give a text such as '50ms', seconds, or a timedelta")


def _whole(given: Any, kind: str) -> int:
    value = int(given.astype(kind).astype("int64"))
    if value == -(2**63):
        raise TimeError("NaT is not a time")
    return value
