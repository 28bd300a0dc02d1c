"""Transforms, with tf2's API, without ROS."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Any

import numpy as np

from asof import _asof
from asof._record import Record
from asof._time import nanos


class TransformBuffer(_asof.TransformBuffer):
    """A tree of frames over time: filled from a recording, by a robot, or by hand.

    Its methods have the names of tf2's Buffer. A time has any form that a recording takes; without one, and for
    zero, it is the latest. In a buffer from a recording, ``+5s`` is from its start; it pickles by the recording's
    address.
    """

    # The recording that it came from, and the topics.
    _recipe: tuple[Any, ...] | None = None

    def __reduce__(self) -> Any:
        if self._recipe is None:
            raise TypeError("a buffer that did not come from a recording cannot be pickled")
        return type(self._recipe[0]).tf, self._recipe

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><td style='text-align:left'>{html.escape(frame)}</td></tr>" for frame in self.frames())
        return f"<table><thead><tr><th style='text-align:left'>frame</th></tr></thead><tbody>{rows}</tbody></table>"

    def set_transform(
        self,
        transform: Any,
        child: str | None = None,
        stamp: Any = None,
        translation: Iterable[float] = (0.0, 0.0, 0.0),
        rotation: Iterable[float] = (0.0, 0.0, 0.0, 1.0),
        authority: str = "",
    ) -> None:
        """Stores the pose of a child frame in its parent at a time.

        Either ``set_transform("odom", "base_link", stamp, (x, y, z), (qx, qy, qz, qw))``, or a TransformStamped, such as
        ``message.transforms[0]``.
        """
        if isinstance(transform, str):
            if child is None or stamp is None:
                raise TypeError("set_transform needs the parent, the child and a stamp; set_transform_static needs no stamp")
            self.update(transform, child, stamp, _floats(translation, 3), _floats(rotation, 4))
        else:
            parent, child, stamp, translation, rotation = _parts(transform)
            self.update(parent, child, stamp, translation, rotation)

    def set_transform_static(
        self,
        transform: Any,
        child: str | None = None,
        translation: Iterable[float] = (0.0, 0.0, 0.0),
        rotation: Iterable[float] = (0.0, 0.0, 0.0, 1.0),
        authority: str = "",
    ) -> None:
        """Stores the static pose of a child frame in its parent."""
        if isinstance(transform, str):
            if child is None:
                raise TypeError("set_transform_static needs the parent and the child")
            self.update(transform, child, None, _floats(translation, 3), _floats(rotation, 4))
        else:
            parent, child, _, translation, rotation = _parts(transform)
            self.update(parent, child, None, translation, rotation)

    def can_transform(self, target_frame: str, source_frame: str, time: Any = None, timeout: Any = None) -> bool:
        """Whether :meth:`lookup_transform` would answer."""
        return self.missing(target_frame, source_frame, time, timeout) is None

    def lookup_many(self, target_frame: str, source_frame: str, stamps: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Transforms at many times at once: translations (n, 3), rotations (n, 4) as x, y, z, w, and a mask of the valid
        ones. The others are NaN."""
        return super().lookup_many(target_frame, source_frame, self._stamps(stamps))

    def transform_points(self, target_frame: str, source_frame: str, points: Any, stamps: Any = None) -> np.ndarray:
        """Transforms points (n, 3) from one frame into another: all at one time, or each at its own.

        With one time, a missing transform is an exception; with a time for each, points without a transform are NaN.
        """
        points = np.asarray(points, dtype=np.float64)
        if points.ndim != 2 or points.shape[1] != 3:
            raise ValueError(f"points are an array of shape (n, 3), not {points.shape}")
        if stamps is None or np.ndim(stamps) == 0:
            matrix = self.lookup_transform(target_frame, source_frame, stamps).matrix
            return points @ matrix[:3, :3].T + matrix[:3, 3]
        times = self._stamps(stamps)
        if len(times) != len(points):
            raise ValueError(f"there are {len(points)} points and {len(times)} stamps")
        return super().transform_points(target_frame, source_frame, np.ascontiguousarray(points), times)

    def path(self, target: str, source: str, hz: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The pose of a frame at a fixed rate, for as long as it is known: stamps, translations and rotations."""
        if not 0 < hz <= 1e9:
            raise ValueError(f"a rate is more than 0 Hz and at most 1e9, not {hz}")
        stamps = np.asarray(self.times_between(target, source, round(1e9 / hz)), dtype=np.int64)
        translations, rotations, mask = super().lookup_many(target, source, stamps)
        return stamps[mask].view("datetime64[ns]"), translations[mask], rotations[mask]

    def all_frames_as_string(self) -> str:
        """The tree as text."""
        return self.tree()

    def _stamps(self, stamps: Any) -> np.ndarray:
        """Times as integers of nanoseconds."""
        if hasattr(stamps, "to_numpy"):
            stamps = stamps.to_numpy()
        if isinstance(stamps, (list, tuple)):
            stamps = [self.resolve(stamp) for stamp in stamps]
        array = np.asarray(stamps)
        if array.ndim != 1:
            raise ValueError(f"stamps are an array of one dimension, not of {array.ndim}")
        if array.dtype.kind == "M":
            array = array.astype("datetime64[ns]").view(np.int64)
        elif array.dtype.kind == "f":
            array = np.round(array * 1e9)
        elif array.dtype.kind not in "iu" and array.size:
            array = np.array([self.resolve(stamp) for stamp in array])
        return np.ascontiguousarray(array, dtype=np.int64)

    def __repr__(self) -> str:
        return f"<asof.TransformBuffer of {len(self.frames())} frames>\n{self.tree()}".rstrip()


def _floats(given: Iterable[float], count: int) -> list[float]:
    values = [float(value) for value in given]
    if len(values) != count:
        raise ValueError(f"expected {count} numbers, not {len(values)}")
    return values


def _parts(transform: Any) -> tuple[str, str, int, list[float], list[float]]:
    try:
        pose = transform.transform
        place, turn = pose.translation, pose.rotation
        return (
            transform.header.frame_id,
            transform.child_frame_id,
            nanos(transform.header.stamp),
            [place.x, place.y, place.z],
            [turn.x, turn.y, turn.z, turn.w],
        )
    except AttributeError as error:
        name = type(transform).__name__
        raise TypeError(f"{name} is not a TransformStamped: {error}") from None


def stamped(transform: _asof.Transform) -> Record:
    """A transform with the fields of a TransformStamped."""
    x, y, z = transform.translation.tolist()
    qx, qy, qz, qw = transform.rotation.tolist()
    seconds, rest = divmod(transform.stamp or 0, 1_000_000_000)
    return Record(
        header=Record(stamp=Record(sec=seconds, nanosec=rest), frame_id=transform.target),
        child_frame_id=transform.source,
        transform=Record(
            translation=Record(x=x, y=y, z=z),
            rotation=Record(x=qx, y=qy, z=qz, w=qw),
        ),
    )
