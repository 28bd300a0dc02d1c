"""Recordings as LeRobot datasets, version 3: Parquet, metadata and statistics.

>>> asof.lerobot.export(["a.mcap", "b.mcap"], "out/", hz=30, task="pick",
...                     mapping={"observation.state": ["/joint_states.position"], "action": ["/cmd_vel.linear.x"],
...                              "observation.images.front": "/camera/image"})

Numbers are aligned at a fixed rate, pictures are the last that were known. A JPEG or PNG of a recording is kept as it is, byte for
byte; other pictures become PNG. pyarrow and pandas are needed.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from asof._recording import Recording, open
from asof.errors import AlignError, TopicError, WriteError
from asof.torch import Dataset, _matrix, _several

#: A data file is closed when it has this many bytes, as LeRobot's own are.
_FILE_BYTES = 100_000_000
_DATA = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
_CHUNK = 1000


def export(
    places: Any,
    out: str | os.PathLike[str],
    hz: int,
    mapping: Mapping[str, str | Sequence[str]],
    task: str = "",
    episodes: str = "by_recording",
    how: str = "last",
    on: str | None = None,
    robot_type: str | None = None,
) -> int:
    """Writes a dataset into a folder that is not there yet, or empty; returns how many frames it has.

    ``mapping`` says what becomes a feature: a list of paths, a topic, a point and a way through its messages, becomes one vector of
    32-bit floats; a topic becomes its pictures. ``episodes`` is ``by_recording``, a length of time such as ``30s``, or a topic: each of
    its messages begins one. ``how`` and ``on`` are those of :meth:`asof.Recording.resample`.
    """
    folder = Path(out)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise WriteError(f"{folder} is there and not empty; name another folder")
    if int(hz) != hz or hz < 1:
        raise AlignError(f"LeRobot's rates are whole numbers of frames per second, not {hz}")
    numbers = {name: list(paths) for name, paths in mapping.items() if not isinstance(paths, str)}
    pictures = {name: topic for name, topic in mapping.items() if isinstance(topic, str)}
    if not mapping:
        raise ValueError("the mapping names no feature")
    writer = _Writer(folder, int(hz), task or "unnamed", robot_type, numbers, pictures)
    for place in _several(places):
        for start, end in _episodes(open(*place), episodes):
            writer.episode(place, start, end, how, on)
    writer.finish()
    return writer.frames


def _episodes(rec: Recording, how: str) -> Iterator[tuple[int, int]]:
    """From when to when each episode is."""
    if rec.start is None or rec.end is None:
        return
    if how == "by_recording":
        starts = [rec.start]
    elif how.startswith("/"):
        if how not in rec:
            raise TopicError(f"{', '.join(rec.places)} has no topic {how} to begin episodes; it has {', '.join(rec)}")
        starts = [message.log_time for message in rec.messages(how)]
    else:
        from asof import _asof

        starts = list(range(rec.start, rec.end + 1, max(_asof.length(how), 1_000_000)))
    for start, end in zip(starts, [*(start - 1 for start in starts[1:]), rec.end]):
        yield start, end


class _Writer:
    """A dataset on its way."""

    def __init__(
        self,
        folder: Path,
        hz: int,
        task: str,
        robot_type: str | None,
        numbers: dict[str, list[str]],
        pictures: dict[str, str],
    ) -> None:
        self.folder, self.hz, self.task, self.robot_type = folder, hz, task, robot_type
        self.numbers, self.pictures = numbers, pictures
        self.frames, self.file, self.bytes = 0, 0, 0
        self.parquet: Any = None
        self.shapes: dict[str, list[int]] = {}
        self.rows: list[dict[str, Any]] = []
        self.stats: list[dict[str, dict[str, np.ndarray]]] = []

    def episode(self, place: tuple[str, ...], start: int, end: int, how: str, on: str | None) -> None:
        import pyarrow as pa

        rec = open(*place)
        topics = {*self.pictures.values()}
        for topic in topics:
            if topic not in rec:
                raise TopicError(f"{', '.join(place)} has no topic {topic}; it has {', '.join(rec)}")
        columns = self._columns(rec, start, end, how, on)
        times = columns.pop("time")
        known = ~np.any([np.isnan(column).any(axis=1) for column in columns.values()] or [np.zeros(len(times), bool)], axis=0)
        # An episode begins when everything is known.
        first = int(np.argmax(known)) if known.any() else len(times)
        shown: dict[str, list[dict[str, Any]]] = {name: [] for name in self.pictures}
        seen: dict[str, list[np.ndarray]] = {name: [] for name in self.pictures}
        rows: list[int] = []
        for row in range(first, len(times)):
            found = rec.at(int(times[row]), *topics) if topics else {}
            if len(found) < len(topics):
                continue
            rows.append(row)
            for name, topic in self.pictures.items():
                message = found[topic]
                pixels = message.image()
                shown[name].append({"bytes": _encoded(message, pixels), "path": None})
                self._agree(name, list(pixels.shape if pixels.ndim == 3 else (*pixels.shape, 1)), place)
                seen[name].append(pixels)
        if not rows:
            return
        count, episode = len(rows), len(self.rows)
        arrays: dict[str, Any] = {}
        stats: dict[str, dict[str, np.ndarray]] = {}
        for name, column in columns.items():
            chosen = column[rows].astype(np.float32)
            self._agree(name, [chosen.shape[1]], place)
            arrays[name] = pa.FixedSizeListArray.from_arrays(pa.array(chosen.reshape(-1)), chosen.shape[1])
            stats[name] = _statistics(chosen)
        for name in self.pictures:
            arrays[name] = pa.array(shown[name], pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
            stats[name] = _picture_statistics(seen[name])
        plain: dict[str, np.ndarray] = {
            "timestamp": (np.arange(count) / self.hz).astype(np.float32),
            "frame_index": np.arange(count, dtype=np.int64),
            "episode_index": np.full(count, episode, np.int64),
            "index": np.arange(self.frames, self.frames + count, dtype=np.int64),
            "task_index": np.zeros(count, np.int64),
        }
        for name, values in plain.items():
            arrays[name] = pa.array(values)
            stats[name] = _statistics(values.reshape(-1, 1))
        table = pa.table(arrays)
        self._write(table)
        self.rows.append(
            {
                "episode_index": episode,
                "tasks": [self.task],
                "length": count,
                "data/chunk_index": self.file // _CHUNK,
                "data/file_index": self.file % _CHUNK,
                "dataset_from_index": self.frames,
                "dataset_to_index": self.frames + count,
                "meta/episodes/chunk_index": 0,
                "meta/episodes/file_index": 0,
                **{f"stats/{name}/{kind}": value.tolist() for name, all_of in stats.items() for kind, value in all_of.items()},
            }
        )
        self.stats.append(stats)
        self.frames += count

    def _columns(self, rec: Recording, start: int, end: int, how: str, on: str | None) -> dict[str, np.ndarray]:
        """Numbers at the rate of the dataset, by feature."""
        count = int((end - start) * self.hz / 1e9) + 1
        columns = {"time": start + np.round(np.arange(count) * 1e9 / self.hz).astype(np.int64)}
        for name, paths in self.numbers.items():
            wanted: dict[str, list[str]] = {}
            for path in paths:
                topic, way = Dataset._split(rec, path)
                wanted.setdefault(topic, []).append(way)
            table = rec.resample(
                list(wanted), self.hz, how=how, on=on or "log_time", columns=wanted, start=start, end=end
            ).to_numpy()
            parts = [_matrix(table[".".join(Dataset._split(rec, path))], path) for path in paths]
            columns[name] = np.concatenate(parts, axis=1)[:count]
        return columns

    def _agree(self, name: str, shape: list[int], place: tuple[str, ...]) -> None:
        known = self.shapes.setdefault(name, shape)
        if known != shape:
            raise WriteError(f"'{name}' has the shape {shape} in {', '.join(place)}, and {known} before; a feature has one shape")

    def _write(self, table: Any) -> None:
        import pyarrow.parquet as pq

        if self.parquet is not None and self.bytes > _FILE_BYTES:
            self.parquet.close()
            self.parquet, self.bytes, self.file = None, 0, self.file + 1
        if self.parquet is None:
            path = self.folder / _DATA.format(chunk_index=self.file // _CHUNK, file_index=self.file % _CHUNK)
            path.parent.mkdir(parents=True, exist_ok=True)
            self.parquet = pq.ParquetWriter(path, table.schema)
        self.parquet.write_table(table)
        self.bytes += table.nbytes

    def finish(self) -> None:
        import pandas as pd
        import pyarrow as pa
        import pyarrow.parquet as pq

        if self.parquet is None:
            raise WriteError("there is no frame in which everything is known, so there is no dataset")
        self.parquet.close()
        meta = self.folder / "meta"
        (meta / "episodes/chunk-000").mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(self.rows), meta / "episodes/chunk-000/file-000.parquet")
        tasks = pd.DataFrame({"task_index": [0]}, index=pd.Index([self.task], name="task"))
        tasks.to_parquet(meta / "tasks.parquet")
        stats = {name: _united([one[name] for one in self.stats]) for name in self.stats[0]}
        (meta / "stats.json").write_text(json.dumps(stats, indent=2))
        info = {
            "codebase_version": "v3.0",
            "robot_type": self.robot_type,
            "total_episodes": len(self.rows),
            "total_frames": self.frames,
            "total_tasks": 1,
            "chunks_size": _CHUNK,
            "data_files_size_in_mb": 100,
            "video_files_size_in_mb": 200,
            "fps": self.hz,
            "splits": {"train": f"0:{len(self.rows)}"},
            "data_path": _DATA,
            "video_path": None,
            "features": self._features(),
        }
        (meta / "info.json").write_text(json.dumps(info, indent=2))

    def _features(self) -> dict[str, Any]:
        features: dict[str, Any] = {}
        for name, paths in self.numbers.items():
            size = self.shapes[name][0]
            names = paths if len(paths) == size else [f"{name}.{at}" for at in range(size)]
            features[name] = {"dtype": "float32", "shape": [size], "names": names}
        for name in self.pictures:
            features[name] = {"dtype": "image", "shape": self.shapes[name], "names": ["height", "width", "channels"]}
        features["timestamp"] = {"dtype": "float32", "shape": [1], "names": None}
        for name in ("frame_index", "episode_index", "index", "task_index"):
            features[name] = {"dtype": "int64", "shape": [1], "names": None}
        return features


def _statistics(values: np.ndarray) -> dict[str, np.ndarray]:
    wide = values.astype(np.float64)
    return {
        "min": wide.min(axis=0),
        "max": wide.max(axis=0),
        "mean": wide.mean(axis=0),
        "std": wide.std(axis=0),
        "count": np.array([len(wide)]),
    }


def _picture_statistics(pictures: list[np.ndarray]) -> dict[str, np.ndarray]:
    """Of each colour, from 0 to 1, over some of the pictures and pixels, as LeRobot does."""
    some = pictures[:: max(len(pictures) // 100, 1)]
    flat = [picture[::4, ::4].reshape(-1, picture.shape[2] if picture.ndim == 3 else 1) for picture in some]
    pixels = np.concatenate(flat).astype(np.float64) / np.iinfo(some[0].dtype).max
    found = _statistics(pixels)
    shaped = {name: value.reshape(-1, 1, 1) for name, value in found.items() if name != "count"}
    return {**shaped, "count": np.array([len(some)])}


def _united(parts: list[dict[str, np.ndarray]]) -> dict[str, Any]:
    """The statistics of all episodes, from those of each."""
    counts = np.array([part["count"][0] for part in parts], np.float64)
    shape = (-1, *([1] * parts[0]["mean"].ndim))
    weights = (counts / counts.sum()).reshape(shape)
    means, stds = np.array([part["mean"] for part in parts]), np.array([part["std"] for part in parts])
    mean = (means * weights).sum(axis=0)
    variance = ((stds**2 + (means - mean) ** 2) * weights).sum(axis=0)
    return {
        "min": np.min([part["min"] for part in parts], axis=0).tolist(),
        "max": np.max([part["max"] for part in parts], axis=0).tolist(),
        "mean": mean.tolist(),
        "std": np.sqrt(variance).tolist(),
        "count": [int(counts.sum())],
    }


def _encoded(message: Any, pixels: np.ndarray) -> bytes:
    """A picture as a file: as it was recorded, or as PNG."""
    if "format" in message.data and "encoding" not in message.data:
        data = message.data["data"].tobytes()
        if data.startswith((b"\xff\xd8", b"\x89PNG")):
            return bytes(data)
    return _png(pixels)


def _png(pixels: np.ndarray) -> bytes:
    height, width = pixels.shape[:2]
    colour = {2: 0, 3: {1: 0, 3: 2, 4: 6}[pixels.shape[2]] if pixels.ndim == 3 else 0}[pixels.ndim]
    if pixels.dtype not in (np.uint8, np.uint16):
        raise WriteError(f"a picture of {pixels.dtype} cannot be written as PNG")
    wide = pixels.astype(">u2") if pixels.dtype == np.uint16 else pixels
    rows = np.ascontiguousarray(wide).reshape(height, -1).view(np.uint8)
    filtered = np.pad(rows, ((0, 0), (1, 0))).tobytes()
    header = struct.pack(">IIBBBBB", width, height, wide.dtype.itemsize * 8, colour, 0, 0, 0)

    def part(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", header) + part(b"IDAT", zlib.compress(filtered, 6)) + part(b"IEND", b"")


__all__ = ["export"]
