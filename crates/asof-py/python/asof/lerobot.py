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
    #: Frames left out because something was not known, or farther away than the tolerance.
    left_out: int
    #: Episodes that were split by such frames.
    cuts: int
    #: Episodes without any frame.
    empty: int
    #: Messages that could not be decoded, go back in time, or have no stamp.
    unusable: int
    #: Video features without statistics, because there is no ffmpeg to decode them.
    without_statistics: list[str]
    #: The type of each feature: ``float32``, ``image`` or ``video``.
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
    append: bool = False,
) -> Exported:
    """Writes a dataset into a folder that does not exist yet, or is empty. The folder appears when it is complete.

    - ``places`` are recordings; a tuple among them is one recording from several places.
    - ``mapping`` defines the features: a list of paths, each a topic, a dot and a path into its messages, becomes one
      vector of 32-bit floats (``/joint_states.position[shoulder]`` is that of one joint, whatever else its messages list); a topic becomes its pictures; ``{"paths": […], "method": "interpolate"}`` has its own method.
    - ``episodes`` is ``by_recording``, a duration such as ``30s``, or a topic: each of its messages begins an episode, one with
      ``data: False`` ends it instead, and a text names its task.
    - ``how`` is ``last``, ``nearest``, ``next`` or ``interpolate``, and ``on`` is ``log_time`` or ``stamp``. ``tolerance``, such as
      ``50ms``, is the largest distance of a message; a frame without a match is left out.
    - ``videos``: whether pictures become videos; by default if ffmpeg is installed. H.264 and H.265 are copied.
    - ``append`` adds the episodes to a dataset with the same rate and features, which LeRobot may have made.
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
    made = _asof.export_lerobot([list(place) for place in several(places)], os.fspath(out), json.dumps(wanted), append)
    exported = Exported(**json.loads(made))
    if exported.unusable:
        warnings.warn(f"{exported.unusable:,} messages could not be used", DecodeWarning, stacklevel=2)
    return exported


def _feature(feature: str | Sequence[str] | Mapping[str, Any]) -> Any:
    if isinstance(feature, (str, Mapping)):
        return feature
    return list(feature)


__all__ = ["Exported", "export"]
