"""Running robots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from asof import _asof
from asof._recording import Recording
from asof._table import Table
from asof._tf import TransformBuffer

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

    def window(self, topic: str, last: Any = None, count: int | None = None) -> Window:
        """Keeps the newest messages of a topic, by age or count; ten seconds by default, and 512 MiB at most."""
        return Window(self._inner.window(topic, last, count), topic)

    def synchronize(
        self, *topics: str | Window, slop: Any = None, queue_size: int = 10
    ) -> Iterator[tuple[_asof.Message, ...]]:
        """Matching messages of several topics: their stamps are within ``slop``, or equal without it.

        The rules are those of message_filters' ApproximateTime and ExactTime. Sets that are not read in time
        are dropped, oldest last; at most 64 wait.
        """
        if len(topics) < 2:
            raise ValueError("synchronize needs two topics or more")
        windows = [topic if isinstance(topic, Window) else self.window(topic, count=max(queue_size, 2)) for topic in topics]
        inner = _asof.Synchronized([window._inner for window in windows], slop, queue_size)
        return _sets(inner)

    def recent(self) -> Recording:
        """The recent messages of all topics, five minutes and 600 MB at most, as a recording that grows."""
        return Recording._of(self._inner.recent(), [self.address])

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


def _sets(inner: _asof.Synchronized) -> Iterator[tuple[_asof.Message, ...]]:
    for found in inner:
        yield tuple(found)


def connect(address: str) -> Robot:
    """Opens a session with a running robot.

    An address is ``zenoh://host:7447``, ``foxglove://host:8765`` (or ``ws://``), ``rosbridge://host:9090``, or ``dds://?domain=0`` in a
    build with the feature ``dds``.

    The connection to a robot that is not there yet is retried in the background, and a lost connection is restored.
    """
    return Robot(address)

