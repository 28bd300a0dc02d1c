"""Running robots."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from asof import _asof
from asof._recording import Recording
from asof._table import Table
from asof._tf import TransformBuffer
from asof.errors import TimeError, TopicError

if TYPE_CHECKING:
    import pyarrow as pa


class Window:
    """The newest messages of a topic of a running robot, by the stamps in their headers."""

    def __init__(self, inner: _asof.Window, topic: str) -> None:
        self._inner = inner
        self.topic = topic

    def nearest(self, time: Any) -> _asof.Message | None:
        """The message nearest to a time; None without messages."""
        return self._inner.nearest(time)

    def before(self, time: Any) -> _asof.Message | None:
        """The last message at or before a time."""
        return self._inner.before(time)

    def after(self, time: Any) -> _asof.Message | None:
        """The first message at or after a time."""
        return self._inner.after(time)

    @property
    def newest(self) -> _asof.Message | None:
        """The newest message."""
        return self._inner.newest

    @property
    def oldest(self) -> _asof.Message | None:
        """The oldest message that is kept."""
        return self._inner.oldest

    def interval(self, start: Any = None, end: Any = None) -> list[_asof.Message]:
        """The messages between two times, both inclusive; all that are kept without them."""
        return self._inner.interval(start, end)

    def wait_after(self, time: Any, timeout: Any = None) -> _asof.Message:
        """Waits for a message that was measured after a time. :class:`TimeoutError` where none arrives in time."""
        return self._inner.wait_after(time, timeout)

    def counters(self) -> dict[str, int]:
        """Counters of held, evicted and rejected messages."""
        return self._inner.counters()

    def read(self, columns: Sequence[str] | None = None) -> Table:
        """What is kept now, as a table."""
        names = None if columns is None else list(columns)
        return Table(self._inner.snapshot().table(self.topic, names))

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """What is kept now, as a ``pyarrow.Table``."""
        return self.read(columns).to_arrow()

    def __iter__(self) -> Iterator[_asof.Message]:
        return iter(self.interval())

    def __len__(self) -> int:
        return len(self._inner)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return repr(self._inner)


class Robot:
    """A running robot; made by :func:`asof.connect`. It is closed at the end of a ``with`` block."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._inner = _asof.Robot.connect(address)

    @property
    def topics(self) -> dict[str, str]:
        """The topics and their types."""
        return dict(self._inner.topics())

    @property
    def is_connected(self) -> bool:
        """Whether the robot is connected at the moment."""
        return self._inner.is_connected

    def wait_for_topic(self, topic: str, timeout: Any = 5.0) -> bool:
        """Waits for a topic; returns whether it exists."""
        return self._inner.wait_for_topic(topic, timeout)

    def window(self, topic: str, last: Any = None, count: int | None = None, bytes: int | None = None) -> Window:
        """Keeps the newest messages of a topic, by age, count and size; ten seconds by default, and 512 MiB at most."""
        return Window(self._inner.window(topic, last, count, bytes), topic)

    def synchronize(
        self,
        *topics: str | Window,
        slop: Any = None,
        queue_size: int = 10,
        policy: str | None = None,
        optional: str | Sequence[str] = (),
        longest_wait: Any = None,
        offsets: Mapping[str, Any] | None = None,
        early: Any = None,
        lateness: Any = None,
    ) -> Sets:
        """Matching messages of several topics: their stamps are within ``slop``, or equal without it.

        The rules, ``policy``, are those of message_filters' ``exact``, ``approximate`` (best sets within the slop, the default with one),
        ``epsilon`` (the first sets within the slop) and ``latest`` (the newest of each topic at the rate of the fastest).

        - ``optional`` topics are not waited for, and ``longest_wait`` ends the wait for all others: a set has None where a message is
          missing. Both are for ``epsilon``, the default with them.
        - ``offsets={"/image": "-30ms"}`` is added to stamps before they are compared.
        - ``early`` gives a set that spans at most this at once, without a proof that it is the best (``approximate``).
        - ``lateness`` puts messages that arrive this much too late in order first.

        Sets that are not read in time are dropped, the newest ones, and counted in ``missed``; at most 64 wait.
        """
        if len(topics) < 2:
            raise ValueError("synchronize needs two topics or more")
        names = [topic.topic if isinstance(topic, Window) else topic for topic in topics]

        def place(name: str) -> int:
            if name not in names:
                raise TopicError(f"{name} is not one of {', '.join(names)}")
            return names.index(name)

        arguments = {
            "policy": policy,
            "slop": slop,
            "queue_size": queue_size,
            "optional": [place(name) for name in ([optional] if isinstance(optional, str) else optional)],
            "longest_wait": longest_wait,
            "offsets": [(place(name), _signed(offset)) for name, offset in (offsets or {}).items()],
            "early": early,
            "lateness": lateness,
        }
        windows = [topic if isinstance(topic, Window) else self.window(topic, count=max(queue_size, 2)) for topic in topics]
        return Sets(_asof.Synchronized([window._inner for window in windows], arguments))

    def recent(self, topics: str | Sequence[str] = (), last: Any = None, bytes: int | None = None) -> Recording:
        """The newest messages of topics, of all where none is named, as a recording that grows: five minutes and 600 MB, unless others
        are given."""
        return Recording._of(self._inner.recent(_names(topics), last, bytes), [self.address])

    def record(
        self,
        path: str | os.PathLike[str],
        topics: str | Sequence[str] = (),
        exclude: str | Sequence[str] = (),
        *,
        split_size: int | None = None,
        split_time: Any = None,
        quota: int | None = None,
        force: bool = False,
        **options: Any,
    ) -> Recorder:
        """Records topics, names or globs, into an MCAP file until the recorder is stopped; ``{time}`` in its name is the start.

        With ``split_size`` or ``split_time`` there are files one after another, ``run_0.mcap``, ``run_1.mcap``, …, within a ``quota`` of
        bytes. Further options: ``tags={"site": "north"}``, ``priorities={"/camera/*": -1}`` (what is dropped first when the disk is too
        slow), ``sim_time``, ``compression`` (``zstd``, ``lz4``, ``none``), ``level``, ``queue_bytes``.
        """
        parts = split_size, split_time, quota
        return Recorder(_asof.record(self._inner, os.fspath(path), parts, force, _arguments(topics, exclude, **options)))

    def snapshots(
        self,
        path: str | os.PathLike[str],
        topics: str | Sequence[str] = (),
        exclude: str | Sequence[str] = (),
        *,
        keep: Any = 60.0,
        after: Any = 30.0,
        bytes: int = 1_000_000_000,
        triggers: str | Sequence[str] = (),
        ring: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> Recorder:
        """Keeps the newest messages, and writes them to a file, ``run_0.mcap`` and so on, when a trigger fires, or
        :meth:`Recorder.trigger` is called: from ``keep`` before until ``after`` it.

        A trigger is ``/bumper.data == true``, ``log >= error`` or ``rate(/scan) < 5``. ``ring`` is a folder for the messages, which are in
        memory without it. Further options are those of :meth:`record`.
        """
        kept = keep, after, bytes
        folder = None if ring is None else os.fspath(ring)
        arguments = _arguments(topics, exclude, **options)
        return Recorder(_asof.snapshots(self._inner, os.fspath(path), kept, _names(triggers), folder, arguments))

    def play(
        self,
        recording: Recording,
        topics: str | Sequence[str] = (),
        start: Any = None,
        end: Any = None,
        *,
        rate: float = 1.0,
        names: Mapping[str, str] | None = None,
        clock: float | None = None,
    ) -> dict[str, Any]:
        """Publishes a recording as if the robot ran, until its end; ROS 1 and others are converted where ROS 2 has a type of the name.

        ``names`` renames topics; ``clock`` publishes the recording's time on ``/clock`` so many times a second. Returns what was
        played: ``published``, ``undecoded``, ``left_out``, ``behind`` (seconds).
        """
        playback = self.playback(recording, topics, start, end, rate=rate, names=names, clock=clock)
        playback.run()
        return playback.report()

    def playback(
        self,
        recording: Recording,
        topics: str | Sequence[str] = (),
        start: Any = None,
        end: Any = None,
        *,
        rate: float = 1.0,
        repeat: bool = False,
        names: Mapping[str, str] | None = None,
        clock: float | None = None,
        paused: bool = False,
    ) -> Playback:
        """The same in your own loop, which pauses and resumes it. The topics are announced at once; the first message is published half a
        second later, when subscribers have connected."""
        arguments = {
            "topics": _names(topics),
            "start": start,
            "end": end,
            "rate": float(rate),
            "repeat": repeat,
            "names": dict(names or {}),
            "clock": clock,
            "paused": paused,
        }
        return Playback(_asof.Playback(self._inner, recording._source, recording._places, arguments))

    def tf(self, cache_time: Any = None, namespace: str | None = None) -> TransformBuffer:
        """The robot's transforms, updated as they arrive.

        Several robots, on ``/robot1/tf`` and ``/robot2/tf``, have a buffer each: ``namespace="/robot1"`` chooses one."""
        return TransformBuffer(filled=self._inner.tf(cache_time, namespace))

    def close(self) -> None:
        """Ends the connection."""
        self._inner.close()

    def __enter__(self) -> Robot:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<asof.Robot {self.address}>"


class Sets(Iterator[tuple[Any, ...]]):
    """Matching messages as they arrive; made by :meth:`Robot.synchronize`. A message that is missing in a set is None."""

    def __init__(self, inner: _asof.Synchronized) -> None:
        self._inner = inner

    @property
    def missed(self) -> int:
        """How many sets were dropped because they were not read in time."""
        return self._inner.missed

    def next(self, timeout: Any = None) -> tuple[_asof.Message | None, ...] | None:
        """The next set; None where none arrives in time."""
        found = self._inner.next(timeout)
        return None if found is None else tuple(found)

    def __next__(self) -> tuple[Any, ...]:
        found = self.next()
        if found is None:
            raise StopIteration
        return found


class Recorder:
    """A recording that is being written; made by :meth:`Robot.record` and :meth:`Robot.snapshots`. It is stopped at the end of a ``with``
    block."""

    def __init__(self, inner: _asof.Recorder) -> None:
        self._inner = inner

    @property
    def path(self) -> str:
        """The file; of several, the name that theirs are made of."""
        return os.fspath(self._inner.path)

    @property
    def files(self) -> list[str]:
        """The files, of a recording in several; those of snapshots that are complete or being written."""
        return [os.fspath(file) for file in self.report()["files"]]

    @property
    def is_recording(self) -> bool:
        """Whether it is being written; False after a disk error."""
        return self._inner.is_recording

    def report(self) -> dict[str, Any]:
        """What was recorded so far: ``written``, ``dropped``, ``waiting_bytes``, ``topics`` with their counts, ``files``, and so on."""
        return self._inner.report()

    def note(self, name: str, **values: str) -> None:
        """Writes texts into the recording, as metadata: a remark, a marker."""
        self._inner.note(name, values)

    def trigger(self, reason: str = "asked for") -> None:
        """Writes a snapshot; does nothing where none are recorded."""
        self._inner.trigger(reason)

    def stop(self) -> dict[str, Any]:
        """Writes what waits, finishes the file, and returns the report."""
        self._inner.stop()
        return self.report()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *error: Any) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<asof.Recorder {self.path}: {self.report()['written']:,} messages>"


class Playback:
    """A recording that is being published; made by :meth:`Robot.playback`."""

    def __init__(self, inner: _asof.Playback) -> None:
        self._inner = inner

    def run(self, time: Any = None) -> None:
        """Publishes what is due, until a time has passed, or until the end without it. What is published late is a warning."""
        try:
            self._inner.run(time)
        finally:
            for text in self._inner.warnings():
                warnings.warn(text, RuntimeWarning, stacklevel=2)

    def pause(self) -> None:
        """Stops publishing until :meth:`resume`."""
        self._inner.pause()

    def resume(self) -> None:
        """Continues."""
        self._inner.resume()

    @property
    def is_paused(self) -> bool:
        """Whether it was paused."""
        return self._inner.is_paused

    @property
    def is_ended(self) -> bool:
        """Whether the end was reached."""
        return self._inner.is_ended

    @property
    def position(self) -> int:
        """The time of the recording that is played, in nanoseconds since 1970."""
        return self._inner.position

    def report(self) -> dict[str, Any]:
        """What was played so far: ``published``, ``undecoded``, ``left_out``, ``behind`` (seconds)."""
        return self._inner.report()


def _names(given: str | Sequence[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)


def _signed(offset: Any) -> int:
    """A duration in nanoseconds, which may be negative."""
    if isinstance(offset, str):
        text = offset.strip()
        return -_asof.length(text[1:]) if text.startswith("-") else _asof.length(text.removeprefix("+"))
    try:
        return _asof.length(offset)
    except TimeError:
        return -_asof.length(-offset)


def _arguments(
    topics: str | Sequence[str],
    exclude: str | Sequence[str],
    tags: Mapping[str, str] | None = None,
    priorities: Mapping[str, int] | None = None,
    sim_time: bool = False,
    compression: str = "zstd",
    level: int = 0,
    queue_bytes: int = 256 << 20,
) -> dict[str, Any]:
    """What is recorded, and how it is written."""
    return {
        "topics": _names(topics),
        "exclude": _names(exclude),
        "tags": dict(tags or {}),
        "priorities": list((priorities or {}).items()),
        "sim_time": sim_time,
        "compression": compression,
        "level": level,
        "queue_bytes": queue_bytes,
    }


def connect(address: str) -> Robot:
    """Opens a session with a running robot.

    An address is ``zenoh://host:7447``, ``foxglove://host:8765`` (or ``ws://``), ``rosbridge://host:9090``, or ``dds://?domain=0`` in a
    build with the feature ``dds``.

    The connection to a robot that is not there yet is retried in the background, and a lost connection is restored.
    """
    return Robot(address)

