"""Recordings as a dataset for machine learning.

>>> data = asof.torch.Dataset(["run.mcap"], hz=30, images=["/camera/image"], state=["/joint_states.position"])
>>> loader = torch.utils.data.DataLoader(data, batch_size=32, num_workers=4, shuffle=True)

torch is optional: without it, samples are numpy arrays.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from asof._places import several
from asof._recording import Recording, open
from asof.errors import AlignError, FieldError, TopicError

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

    A sample is a dict: for each of ``images`` the last picture at that time (height, width, 3); ``state``, the numbers of all
    its paths (n,); ``action``, those of the next ``horizon`` instants (horizon, n); ``time`` in nanoseconds; ``recording``, the index of
    its place. A path is a topic, a dot and a path into its messages: ``/joint_states.position``.

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
        self._parts = [part for place in several(places) if (part := self._part(place)) is not None]
        self._ends = np.cumsum([part.count for part in self._parts]).tolist()
        # The most recently used one is the last.
        self._open: OrderedDict[int, tuple[Recording, dict[str, np.ndarray]]] = OrderedDict()

    def _part(self, place: tuple[str, ...]) -> _Part | None:
        rec = open(*place)
        for topic in {*self.images, *(self._split(rec, path)[0] for path in self.state + self.action)}:
            if topic not in rec:
                raise TopicError(f"{', '.join(place)} has no topic {topic}; it has {', '.join(rec)}")
        if rec.start is None or rec.end is None:
            return None
        # The time from which everything is known.
        names = {*self.images, *(self._split(rec, path)[0] for path in self.state + self.action)}
        firsts = [next(iter(rec[name]), None) for name in names]
        if any(first is None for first in firsts):
            return None
        start = max(first.log_time for first in firsts if first is not None)
        count = int((rec.end - start) * self.hz / 1e9) + 1 - (self.horizon - 1)
        return _Part(place, start, count) if count > 0 else None

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
        rec, columns = self._opened(number)
        time = int(columns["time"][row])
        sample: dict[str, Any] = {"time": time, "recording": number}
        if self.state:
            sample["state"] = _tensor(columns["state"][row])
        if self.action:
            sample["action"] = _tensor(columns["action"][row : row + self.horizon])
        for topic in self.images:
            known = rec.at(time, topic)
            sample[topic] = _tensor(np.ascontiguousarray(known[topic].image()))
        return sample

    @property
    def held(self) -> int:
        """The bytes of the numbers that are held in this process."""
        return sum(column.nbytes for _, columns in self._open.values() for column in columns.values())

    def _opened(self, number: int) -> tuple[Recording, dict[str, np.ndarray]]:
        if number in self._open:
            self._open.move_to_end(number)
        else:
            part = self._parts[number]
            rec = open(*part.place)
            count = part.count + self.horizon - 1
            times = part.start + np.round(np.arange(count) * 1e9 / self.hz).astype(np.int64)
            columns = {"time": times}
            for name, paths in (("state", self.state), ("action", self.action)):
                if paths:
                    columns[name] = self._numbers(rec, paths, part.start, count)
            self._open[number] = rec, columns
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
