"""Recordings as LeRobot datasets, version 3: Parquet, metadata, statistics and videos.

>>> asof.lerobot.export(["a.mcap", "b.mcap"], "out/", hz=30, task="pick",
...                     mapping={"observation.state": ["/joint_states.position"], "action": ["/cmd_vel.linear.x"],
...                              "observation.images.front": "/camera/image"})

The command ``asof lerobot`` does the same.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from asof import _asof
from asof._places import several
from asof.errors import DecodeWarning


@dataclass(frozen=True)
class Exported:
    """What was written."""

    episodes: int
    frames: int
    #: Frames at which something was not known, or farther away than the tolerance.
    left_out: int
    #: Episodes that were cut in two by such frames.
    cuts: int
    #: Episodes that were asked for, and have no frame.
    empty: int
    #: Messages that could not be decoded, go back in time, or have no stamp.
    unusable: int
    #: Features of video without statistics, because there is no ffmpeg to look at it.
    without_statistics: list[str]
    #: What each feature became: ``float32``, ``image`` or ``video``.
    features: dict[str, str]


def export(
    places: Any,
    out: str | os.PathLike[str],
    hz: int,
    mapping: Mapping[str, str | Sequence[str] | Mapping[str, Any]],
    task: str = "",
    episodes: str = "by_recording",
    how: str = "last",
    on: str | None = None,
    tolerance: str | None = None,
    robot_type: str | None = None,
    videos: bool | None = None,
) -> Exported:
    """Writes a dataset into a folder that is not there yet, or empty. The folder appears when all is written.

    - ``places`` are recordings; a tuple among them is one recording of several places.
    - ``mapping`` says what becomes a feature: a list of paths, each a topic, a point and a way through its messages, becomes one
      vector of 32-bit floats; a topic becomes its pictures; ``{"paths": […], "method": "interpolated"}`` has a method of its own.
    - ``episodes`` is ``by_recording``, a length of time such as ``30s``, or a topic: each of its messages begins one, one that says
      ``data: False`` ends it instead, and a text names its task.
    - ``how`` is ``last``, ``nearest`` or ``interpolated``, and ``on`` is ``log_time`` or ``stamp``. What is farther away than
      ``tolerance``, ``50ms``, does not count, and a frame that lacks something is left out.
    - ``videos``: whether pictures become videos; without an answer, where there is ffmpeg. H.264 and H.265 are copied as they are.
    """
    wanted = {
        "hz": hz,
        "task": task,
        "episodes": episodes,
        "method": how,
        "on": on or "log_time",
        "tolerance": tolerance,
        "robot_type": robot_type,
        "videos": videos,
        "features": {name: _feature(feature) for name, feature in mapping.items()},
    }
    made = _asof.export_lerobot([list(place) for place in several(places)], os.fspath(out), json.dumps(wanted))
    exported = Exported(**made)
    if exported.unusable:
        warnings.warn(f"{exported.unusable:,} messages could not be used", DecodeWarning, stacklevel=2)
    return exported


def _feature(feature: str | Sequence[str] | Mapping[str, Any]) -> Any:
    if isinstance(feature, (str, Mapping)):
        return feature
    return list(feature)


__all__ = ["Exported", "export"]
