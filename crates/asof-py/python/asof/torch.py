"""Recordings as a dataset for machine learning.

>>> data = asof.torch.Dataset(["run.mcap"], hz=30, images=["/camera/image"], state=["/joint_states.position"])
>>> loader = torch.utils.data.DataLoader(data, batch_size=32, num_workers=4, shuffle=True)

torch is optional: without it, samples are numpy arrays.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from asof import _asof
from asof._places import several
from asof._recording import Recording, open
from asof._video import Video, is_video
from asof.errors import AlignError, DecodeError, FieldError, TopicError

#: How many recordings of a dataset a process has open at most.
MOST_OPEN = 128


@dataclass(frozen=True)
class _Part:
    """A recording of the dataset: its places, the time of its first sample, and the number of its samples."""

    place: tuple[str, ...]
    start: int
    count: int


class Dataset:
    """Samples at a fixed rate: pictures, the state, and the following actions.

    A sample is a dict: for each of ``images`` the last picture at that time (height, width, 3), also of H.264, H.265, VP9 and AV1
    (with PyAV); ``state``, the numbers of all its paths (n,); ``action``, those of the next ``horizon`` instants (horizon, n); ``time`` in
    nanoseconds; ``recording``, the index of its place. A path is a topic, a dot and a path into its messages:
    ``/joint_states.position``.

    ``delta_timestamps`` gives history and future, in seconds from the sample, as in LeRobot: ``{"state": [-0.1, 0], "action": [0, 0.1],
    "/camera/image": [-0.5, 0]}``. What it names has one more dimension. Each recording is an episode; beyond its ends the first
    and the last value are repeated, and ``state_is_pad`` and the like say where (len(deltas),). With ``padding`` the same holds for
    ``horizon``: otherwise the last samples, whose actions are not all known, are left out.

    It is a map-style dataset and pickles: worker processes open the recordings again. Pictures are read on demand, by the
    recording's own index. Numbers are read once for each recording and process, and kept for the most recently used recordings, up
    to ``memory`` bytes in each process and :data:`MOST_OPEN` recordings; one recording always stays. ``evicted`` counts the
    evictions: if it grows with every batch, ``memory`` is too small for samples in random order, and recordings are read repeatedly.
    """

    def __init__(
        self,
        places: Any,
        hz: float,
        images: Sequence[str] = (),
        state: Sequence[str] = (),
        action: Sequence[str] = (),
        horizon: int = 1,
        how: str = "last",
        on: str | None = None,
        memory: int = 256 << 20,
        delta_timestamps: Mapping[str, Sequence[float]] | None = None,
        padding: bool = False,
    ) -> None:
        if not 0 < hz <= 1e9:
            raise AlignError(f"{hz} is not a rate: it is more than 0 and at most 1,000,000,000 per second")
        if horizon < 1:
            raise ValueError(f"a horizon is at least 1, not {horizon}")
        if not (images or state or action):
            raise ValueError("name images, state or action: otherwise a sample is empty")
        if memory < 0:
            raise ValueError(f"memory is a number of bytes, not {memory}")
        self.hz, self.horizon, self.how, self.on, self.memory = hz, horizon, how, on, memory
        #: How many recordings were evicted in this process, to stay within the memory.
        self.evicted = 0
        self.images, self.state, self.action = list(images), list(state), list(action)
        self.padding = padding
        #: For what has history or future, its distances from a sample in instants.
        self._steps = self._checked(delta_timestamps or {})
        if action and padding:
            self._steps.setdefault("action", list(range(horizon)))
        #: How many instants at the end of a recording have no sample.
        self._rest = horizon - 1 if action and "action" not in self._steps else 0
        if not action and not padding:
            self._rest = horizon - 1
        self._parts = [part for place in several(places) if (part := self._part(place)) is not None]
        self._ends = np.cumsum([part.count for part in self._parts]).tolist()
        # The most recently used one is the last.
        self._open: OrderedDict[int, _Opened] = OrderedDict()

    def _checked(self, deltas: Mapping[str, Sequence[float]]) -> dict[str, list[int]]:
        known = [*self.images, *(name for name in ("state", "action") if getattr(self, name))]
        steps: dict[str, list[int]] = {}
        for name, seconds in deltas.items():
            if name not in known:
                raise ValueError(f"delta_timestamps names {name}, but there are {', '.join(known)}")
            instants = [second * self.hz for second in seconds]
            steps[name] = [round(instant) for instant in instants]
            far = [second for second, instant, step in zip(seconds, instants, steps[name]) if abs(instant - step) > 1e-3]
            if far or not instants:
                raise ValueError(
                    f"delta_timestamps of {name} are multiples of 1/{self.hz:g} s, at least one, not {far or 'none'}"
                )
        return steps

    def _part(self, place: tuple[str, ...]) -> _Part | None:
        rec = open(*place).as_one()
        names = {*self.images, *(self._split(rec, path)[0] for path in self.state + self.action)}
        for topic in names:
            if topic not in rec:
                raise TopicError(f"{', '.join(place)} has no topic {topic}; it has {', '.join(rec)}")
        if rec.start is None or rec.end is None:
            return None
        # The time from which everything is known.
        firsts = [self._first(rec, name) for name in names]
        if any(first is None for first in firsts):
            return None
        start = max(first for first in firsts if first is not None)
        count = int((rec.end - start) * self.hz / 1e9) + 1 - self._rest
        return _Part(place, start, count) if count > 0 else None

    def _first(self, rec: Recording, topic: str) -> int | None:
        """When the first message of a topic was recorded; of video, the first keyframe."""
        for message in rec.messages(topic):
            packet = _asof.video_packet(message) if topic in self.images else None
            if packet is None or packet[1]:
                return message.log_time
        return None

    @staticmethod
    def _split(rec: Recording, path: str) -> tuple[str, str]:
        """The topic of a path, which may contain dots, and the path into its messages."""
        at = path.find(".")
        while at >= 0:
            if path[:at] in rec:
                return path[:at], path[at + 1 :]
            at = path.find(".", at + 1)
        raise FieldError(f"'{path}' is not a topic, a dot and a field, such as /joint_states.position")

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(f"there are {len(self)} samples")
        number = bisect_right(self._ends, index)
        row = index - (self._ends[number - 1] if number else 0)
        opened = self._opened(number)
        times = opened.columns["time"]
        sample: dict[str, Any] = {"time": int(times[row]), "recording": number}
        for name in ("state", "action"):
            if not getattr(self, name):
                continue
            column = opened.columns[name]
            if name in self._steps:
                rows = self._rows(sample, name, row, len(column))
                sample[name] = _tensor(column[rows])
            elif name == "action":
                sample[name] = _tensor(column[row : row + self.horizon])
            else:
                sample[name] = _tensor(column[row])
        for topic in self.images:
            if topic in self._steps:
                rows = self._rows(sample, topic, row, len(times))
                pictures = [opened.picture(topic, int(times[one])) for one in rows]
                sample[topic] = _tensor(np.stack(pictures))
            else:
                sample[topic] = _tensor(np.ascontiguousarray(opened.picture(topic, int(times[row]))))
        return sample

    def _rows(self, sample: dict[str, Any], name: str, row: int, count: int) -> np.ndarray:
        """The rows of an episode around one of them; those beyond its ends are its first and its last, and are noted as padding."""
        rows = row + np.asarray(self._steps[name])
        inside = np.clip(rows, 0, count - 1)
        sample[f"{name}_is_pad"] = _tensor(rows != inside)
        return inside

    @property
    def held(self) -> int:
        """The bytes of the numbers that are held in this process."""
        return sum(column.nbytes for opened in self._open.values() for column in opened.columns.values())

    def _opened(self, number: int) -> _Opened:
        if number in self._open:
            self._open.move_to_end(number)
        else:
            part = self._parts[number]
            rec = open(*part.place).as_one()
            count = part.count + self._rest
            times = part.start + np.round(np.arange(count) * 1e9 / self.hz).astype(np.int64)
            columns = {"time": times}
            for name, paths in (("state", self.state), ("action", self.action)):
                if paths:
                    columns[name] = self._numbers(rec, paths, part.start, count)
            self._open[number] = _Opened(rec, columns)
            while len(self._open) > 1 and (self.held > self.memory or len(self._open) > MOST_OPEN):
                self._open.popitem(last=False)
                self.evicted += 1
        return self._open[number]

    def _numbers(self, rec: Recording, paths: list[str], start: int, count: int) -> np.ndarray:
        wanted: dict[str, list[str]] = {}
        for path in paths:
            topic, way = self._split(rec, path)
            wanted.setdefault(topic, []).append(way)
        table = rec.resample(
            list(wanted), self.hz, how=self.how, on=self.on or "log_time", columns=wanted, start=start, end=rec.end
        ).to_numpy()
        columns = []
        for path in paths:
            column = table[".".join(self._split(rec, path))]
            columns.append(_matrix(column, path).astype(np.float32))
        return np.concatenate(columns, axis=1)[:count]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": OrderedDict(), "evicted": 0}


class _Opened:
    """A recording of the dataset that is open in this process, and its numbers."""

    def __init__(self, rec: Recording, columns: dict[str, np.ndarray]) -> None:
        self._rec, self.columns = rec, columns
        self._videos: dict[str, Video] = {}

    def picture(self, topic: str, time: int) -> np.ndarray:
        if topic not in self._videos:
            known = self._rec.at(time, topic)[topic]
            if not is_video(known):
                return known.image()
            self._videos[topic] = Video(self._rec, topic)
        picture = self._videos[topic].at(time)
        if picture is None:
            raise DecodeError(f"the video on {topic} has no keyframe before {time}")
        return picture


def _matrix(column: np.ndarray, path: str) -> np.ndarray:
    """A column as rows of numbers; NaN before the first value."""
    refused = FieldError(f"'{path}' is not a number, or a list of one length")
    if column.dtype.names is not None:
        raise refused
    if column.dtype == object:
        there = [value for value in column if value is not None]
        sizes = {np.shape(value) for value in there}
        if len(sizes) != 1 or not all(isinstance(value, np.ndarray) for value in there):
            raise refused
        rows = np.full((len(column), *sizes.pop()), np.nan)
        for at, value in enumerate(column):
            if value is not None:
                rows[at] = value
        column = rows
    if column.dtype.kind not in "fiub":
        raise refused
    return column.reshape(len(column), -1).astype(np.float64)


def _tensor(array: np.ndarray) -> Any:
    if not array.flags.writeable:
        array = array.copy()
    try:
        import torch
    except ImportError:
        return array
    return torch.from_numpy(array)


__all__ = ["MOST_OPEN", "Dataset"]
