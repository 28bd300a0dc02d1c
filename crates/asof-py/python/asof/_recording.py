"""Recordings: their contents, and their topics."""

from __future__ import annotations

import builtins
import html
import json
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from asof import _asof
from asof._table import Table, own_tables
from asof._tf import TransformBuffer
from asof.errors import AlignError, DecodeWarning, FieldError, TopicError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import polars as pl
    import pyarrow as pa


@dataclass(frozen=True)
class TopicInfo:
    """What is known about a topic without reading it."""

    name: str
    #: The name of its type; several are separated by commas.
    type: str
    #: The encoding of its messages.
    encoding: str
    #: How many messages it has; None where that is not known without reading.
    messages: int | None
    #: Messages per second of the recording; 0 for fewer than two, None where they are not counted.
    hz: float | None
    #: The language and the text of the definition of its type.
    schema: tuple[str, str] | None


@dataclass(frozen=True)
class Problem:
    """A problem in a recording that did not stop it from being read."""

    kind: str
    offset: int | None
    topic: str | None
    message: str

    def __str__(self) -> str:
        place = "" if self.offset is None else f" at byte {self.offset}"
        topic = "" if self.topic is None else f" on {self.topic}"
        return f"{self.kind}{place}{topic}: {self.message}"


class Recording:
    """A recording, several as one, or a running robot; made by :func:`asof.open`.

    ``rec["/odom"]`` is a topic. Opening reads a file's summary and no message; everything else is read on
    demand. It pickles by its address: another process opens it again.
    """

    def __init__(self, places: Sequence[str], as_one: bool = False) -> None:
        self._places = list(places)
        self._source = _asof.Source.open(self._places)
        self._is_one = as_one
        self._shift: tuple[Recording, str, int] | None = None
        if as_one:
            self._source = self._source.as_one()

    @classmethod
    def _of(cls, source: _asof.Source, places: list[str]) -> Recording:
        """Wraps a source that was opened in another way."""
        recording = cls.__new__(cls)
        recording._places, recording._source, recording._is_one = places, source, False
        recording._shift = None
        return recording

    def as_one(self) -> Recording:
        """Several recordings as a single one: :meth:`join`, :meth:`resample` and :meth:`sql` do not keep them apart."""
        recording = Recording._of(self._source.as_one(), self._places)
        recording._is_one = True
        return recording

    def shifted(self, prefix: str = "", by: int = 0) -> Recording:
        """The same with ``prefix`` before each topic, and with log times that are ``by`` nanoseconds later: to be put beside another.
        Times inside of messages stay as recorded."""
        recording = Recording._of(self._source.shifted(prefix, by), self._places)
        recording._shift = (self, prefix, by)
        return recording

    # Contents

    @property
    def places(self) -> list[str]:
        """Its path or address."""
        return list(self._places)

    @property
    def start(self) -> int | None:
        """The first log time, in nanoseconds since 1970; None without messages."""
        start: int | None = self._source.summary()["start"]
        return start

    @property
    def end(self) -> int | None:
        """The last log time, in nanoseconds since 1970; None without messages."""
        end: int | None = self._source.summary()["end"]
        return end

    @property
    def duration(self) -> float:
        """From start to end, in seconds."""
        summary = self._source.summary()
        return 0.0 if summary["start"] is None else (summary["end"] - summary["start"]) * 1e-9

    @property
    def format(self) -> str:
        """The format: ``mcap``, ``bag``, ``db3``, …"""
        return str(self._source.summary()["format"])

    @property
    def is_growing(self) -> bool:
        """Whether more messages may arrive."""
        return bool(self._source.summary()["is_growing"])

    @property
    def problems(self) -> list[Problem]:
        """Its problems, as far as they have been met."""
        return [Problem(*problem) for problem in self._source.summary()["problems"]]

    @property
    def topics(self) -> dict[str, TopicInfo]:
        """The topics, by name."""
        return _topics(self._source.summary())

    @property
    def attachments(self) -> Mapping[str, bytes]:
        """Attachments of the recording, by name; of several with one name, the last."""
        entries = self._source.summary()["attachments"]
        return {name: self._source.attachment(place) for place, (name, _, _) in enumerate(entries)}

    @property
    def metadata(self) -> Mapping[str, dict[str, str]]:
        """Metadata records of the recording, by name; of several with one name, the last."""
        names = self._source.summary()["metadata"]
        return {name: self._source.metadata(place) for place, name in enumerate(names)}

    def info(self) -> Recording:
        """The recording itself: ``rec.info().topics`` is ``rec.topics``."""
        return self

    # Reading

    def __getitem__(self, topic: str) -> Topic:
        if topic not in self:
            known = ", ".join(self) or "none"
            raise TopicError(f"there is no topic {topic}; there are {known}")
        return Topic(self, topic)

    def __contains__(self, topic: object) -> bool:
        return isinstance(topic, str) and self._source.has_topic(topic)

    def __iter__(self) -> Iterator[str]:
        return iter(self._source.topic_names())

    def __len__(self) -> int:
        return len(self._source.topic_names())

    def messages(self, *topics: str, start: Any = None, end: Any = None) -> Iterator[_asof.Message]:
        """The messages of some topics, names or globs such as ``/tf*``, in order of log time; of all where none is named.

        Fields are read when they are touched: ``m.pose.pose.position.x`` decodes one number. ``m.data`` is all of it as a dict.
        """
        return self._source.messages(list(topics), start, end)

    def follow(self, *topics: str, start: Any = None, end: Any = None) -> Iterator[_asof.Message]:
        """The same, then new ones as they arrive: of a running robot, or of a file that is being written. It ends when the recording
        is complete, the robot is gone, or the end of the range has passed."""
        return self._source.follow(list(topics), start, end)

    def at(self, time: Any, *topics: str) -> dict[str, _asof.Message]:
        """What was known: the last message of every topic at or before a time."""
        return {message.topic: message for message in self._source.at(time, list(topics))}

    def join(
        self,
        anchor: str,
        others: str | Sequence[str],
        how: str = "nearest",
        on: str | None = None,
        tolerance: Any = None,
        columns: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
        start: Any = None,
        end: Any = None,
        or_nearest: bool = False,
    ) -> Table:
        """For each message of one topic, the matching message of others.

        ``how`` is ``nearest``, ``last`` (at or before), ``before``, ``next`` (at or after), ``after`` or ``interpolate``; ``on`` is
        ``stamp``, the time of measurement, or ``log_time``; without it, stamps where all topics have them. ``tolerance`` is the
        largest distance of a match. Nothing is interpolated before the first message and after the last one; with ``or_nearest``,
        these are taken there.

        The columns are ``time``, those of the anchor, ``/camera/image.width``, and for each other topic ``/odom offset``, in
        nanoseconds, and its own, ``/odom.pose``. ``columns`` selects: by topic, or a list for all topics that have them.

        Of several recordings that have these topics, a message is matched with those of its own recording, which the first column,
        ``recording``, names; it is null where one has some of the topics and others have the rest. :meth:`as_one` joins across them.
        """
        names = [others] if isinstance(others, str) else list(others)
        chosen = self._columns([anchor, *names], columns)
        arguments = _arguments(how, on, tolerance, chosen, start, end, or_nearest)
        return Table(self._source.join(anchor, names, arguments), (self, "join", (anchor, names, arguments)))

    def resample(
        self,
        topics: str | Sequence[str],
        hz: float,
        how: str = "last",
        on: str | None = None,
        tolerance: Any = None,
        columns: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
        start: Any = None,
        end: Any = None,
        or_nearest: bool = False,
    ) -> Table:
        """The topics at a fixed rate, of each of several recordings from its start to its end; the arguments are those of :meth:`join`."""
        names = [topics] if isinstance(topics, str) else list(topics)
        chosen = self._columns(names, columns)
        arguments = _arguments(how, on, tolerance, chosen, start, end, or_nearest)
        return Table(self._source.resample(names, hz, arguments), (self, "resample", (names, hz, arguments)))

    def _columns(
        self, topics: Sequence[str], columns: Sequence[str] | Mapping[str, Sequence[str]] | None
    ) -> dict[str, list[str]]:
        """The wanted columns by topic; a topic that is not named has all of them. Columns are named by topic, which is there once."""
        for at, topic in enumerate(topics):
            if topic in topics[:at]:
                raise AlignError(f"{topic} is named twice")
        if columns is None:
            return {}
        if isinstance(columns, Mapping):
            for topic in columns:
                if topic not in topics:
                    raise TopicError(f"columns of {topic} are wanted, but it is not one of {', '.join(topics)}")
            return {topic: [paths] if isinstance(paths, str) else list(paths) for topic, paths in columns.items()}
        wanted = [columns] if isinstance(columns, str) else list(columns)
        chosen: dict[str, list[str]] = {topic: [] for topic in topics}
        missing: FieldError | None = None
        for path in wanted:
            found = False
            for topic in topics:
                try:
                    self._source.table(topic, [path])
                except FieldError as error:
                    missing = error
                else:
                    chosen[topic].append(path)
                    found = True
            if not found and missing is not None:
                raise missing
        return chosen

    def sql(self, query: str, **tables: Any) -> Table:
        """The rows of a query: every topic is a table, ``"/odom"`` or ``odom``.

        ``labels=frame`` adds a table of your own: any Arrow table, such as a polars or pandas frame, or the path of a Parquet,
        CSV or Arrow file.

        It needs a build with the feature ``sql``; :class:`asof.errors.UnavailableError` explains how to get one.
        """
        name = os.path.basename(self._places[0].rstrip("/")) if self._places else ""
        own = own_tables(tables)
        return Table(self._source.sql(name, query, own), (self, "sql", (name, query, own)))

    def convert(
        self, path: str | os.PathLike[str], topics: str | Sequence[str] = (), start: Any = None, end: Any = None
    ) -> int:
        """Writes some topics of a time range into a new MCAP file, byte for byte; returns how many messages it has.

        The command ``asof convert`` does more: it keeps attachments, and converts ROS 1 to ROS 2.
        """
        from asof._writer import Writer

        names = [topics] if isinstance(topics, str) else list(topics)
        with Writer(path) as out:
            for message in self.messages(*names, start=start, end=end):
                out.write(message.topic, message)
            return out.written

    def split(
        self,
        output: str | os.PathLike[str],
        every: Any = None,
        size: int | None = None,
        topics: str | Sequence[str] = (),
        start: Any = None,
        end: Any = None,
        force: bool = False,
    ) -> dict[str, Any]:
        """Splits it into several MCAP files, ``run_0.mcap``, ``run_1.mcap`` and so on, each ``every`` long, or of about ``size`` bytes.
        Returns what was written: ``parts``, ``messages``, ``problems``."""
        names = [topics] if isinstance(topics, str) else list(topics)
        return self._said(_asof.split, os.fspath(output), (every, size), (names, start, end), force)

    def recover(self, path: str | os.PathLike[str], force: bool = False) -> dict[str, Any]:
        """Saves what a damaged recording still holds into a new MCAP file. Returns how many messages there are, and how many are lost."""
        return self._said(_asof.recover, os.fspath(path), force)

    def export(
        self,
        folder: str | os.PathLike[str],
        format: str = "parquet",
        topics: str | Sequence[str] = (),
        start: Any = None,
        end: Any = None,
        fields: Sequence[str] = (),
        force: bool = False,
    ) -> bool:
        """Writes a table for each topic into a folder: ``parquet``, ``arrow``, ``csv`` or ``ndjson``; or its pictures: ``images``,
        ``video``. Returns whether everything could be written; what could not is a warning."""
        names = [topics] if isinstance(topics, str) else list(topics)
        part = (names, start, end)
        return self._said(_asof.export, os.fspath(folder), (format, list(fields)), part, force)

    def doctor(self, decode: bool = True) -> dict[str, Any]:
        """Reads all of it, and verifies that its parts agree: ``healthy``, ``messages``, ``undecoded``, ``problems``."""
        return self._said(_asof.doctor, decode)

    def check(self, expectations: str | os.PathLike[str]) -> dict[str, Any]:
        """Checks it against expectations in a TOML file; :meth:`expectations` writes them. The result has a verdict for each."""
        with builtins.open(expectations, encoding="utf-8") as file:
            return self._said(_asof.check, os.fspath(expectations), file.read())

    def expectations(self) -> str:
        """Expectations that it and others like it meet, as TOML: what was measured, with a margin."""
        text, _ = _asof.expectations(self._source, self._places)
        return text

    def diff(self, other: Recording) -> list[dict[str, Any]]:
        """What is different in another recording."""
        return self._said(_asof.diff, other._source, other._places)

    def _said(self, verb: Any, *words: Any) -> Any:
        text, problems = verb(self._source, self._places, *words)
        for problem in problems:
            warnings.warn(problem, DecodeWarning, stacklevel=3)
        return json.loads(text)

    def tf(self, *topics: str) -> TransformBuffer:
        """All its transforms, ROS and Foxglove, in a buffer with tf2's API. What could not be used is a warning.

        Frames of several robots, on ``/robot1/tf`` and ``/robot2/tf``, have their namespace before their names:
        ``robot1/base_link``. Of one robot, ``tf("/robot1/*")``, they have not."""
        filled, _, problems = self._source.tf(list(topics))
        for problem in problems:
            warnings.warn(problem, DecodeWarning, stacklevel=2)
        buffer = TransformBuffer(filled=filled)
        buffer._recipe = (self, *topics)
        return buffer

    # Display

    def __repr__(self) -> str:
        summary = self._source.summary()
        lines = [f"<asof.Recording {', '.join(self._places)}: {_headline(summary)}>"]
        topics = _topics(summary)
        width = max((len(name) for name in topics), default=0)
        kind = max((len(topic.type) for topic in topics.values()), default=0)
        for topic in topics.values():
            lines.append(f"  {topic.name:<{width}}  {topic.type:<{kind}}  {_count(topic):>9}  {_hertz(topic)}".rstrip())
        lines += [f"  problem: {Problem(*problem)}" for problem in summary["problems"]]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        summary = self._source.summary()
        rows = "".join(
            f"<tr><td style='text-align:left'>{html.escape(topic.name)}</td>"
            f"<td style='text-align:left'>{html.escape(topic.type)}</td>"
            f"<td>{_count(topic)}</td><td>{_hertz(topic)}</td></tr>"
            for topic in _topics(summary).values()
        )
        problems = "".join(f"<li>{html.escape(str(Problem(*problem)))}</li>" for problem in summary["problems"])
        places = html.escape(", ".join(self._places))
        return (
            f"<div><b>{places}</b><br>{html.escape(_headline(summary))}"
            "<table><thead><tr><th style='text-align:left'>topic</th><th style='text-align:left'>type</th>"
            f"<th>messages</th><th>rate</th></tr></thead><tbody>{rows}</tbody></table>"
            + (f"<p>Problems:</p><ul>{problems}</ul>" if problems else "")
            + "</div>"
        )

    def __reduce__(self) -> Any:
        if self._shift is not None:
            return Recording.shifted, self._shift
        return Recording, (self._places, self._is_one)


class Topic:
    """A topic of a recording, read on demand."""

    def __init__(self, recording: Recording, name: str) -> None:
        self._recording = recording
        self.name = name

    @property
    def info(self) -> TopicInfo:
        """What is known about it without reading it."""
        return _topics(self._recording._source.summary(self.name))[self.name]

    @property
    def columns(self) -> list[str]:
        """Its columns."""
        return self.read().columns

    def read(
        self,
        columns: Sequence[str] | None = None,
        start: Any = None,
        end: Any = None,
        views: bool = True,
    ) -> Table:
        """The messages as a table.

        Columns are ``log_time``, ``publish_time``, ``stamp`` and paths into the message, such as ``pose.pose.position`` or
        ``ranges[3]``; each is named as requested. Times are absolute or relative: ``+10s`` is from the start, ``-3s``
        from the end; both ends are inclusive.

        Of several recordings, the rows are merged by log time, and the column ``recording`` names that of each. It is the first one
        unless ``columns`` says otherwise; a message's own field of the name is ``recording_`` then. :meth:`Recording.as_one` has none.
        """
        if isinstance(columns, str):
            columns = [columns]
        names = None if columns is None else list(columns)
        words = (self.name, names, start, end)
        table = self._recording._source.table(*words)
        origin = (self._recording._source, self.name, start, end) if names is None else None
        return Table(table if views else table.with_views(False), (self._recording, "table", words), origin)

    def batches(
        self, rows: int = 8192, columns: Sequence[str] | None = None, start: Any = None, end: Any = None
    ) -> Iterator[_asof.Batch]:
        """The rows, one batch at a time: only that is in memory."""
        return self.read(columns, start, end).batches(rows)

    def to_arrow(self, columns: Sequence[str] | None = None, start: Any = None, end: Any = None) -> pa.Table:
        """As a ``pyarrow.Table``."""
        return self.read(columns, start, end).to_arrow()

    def to_polars(self, columns: Sequence[str] | None = None, start: Any = None, end: Any = None) -> pl.DataFrame:
        """As a ``polars.DataFrame``."""
        return self.read(columns, start, end).to_polars()

    def lazy(self, columns: Sequence[str] | None = None, start: Any = None, end: Any = None) -> pl.LazyFrame:
        """As a ``polars.LazyFrame``: only the columns, rows and log times that a query needs are read."""
        return self.read(columns, start, end).lazy()

    def to_pandas(
        self, columns: Sequence[str] | None = None, start: Any = None, end: Any = None, **options: Any
    ) -> pd.DataFrame:
        """As a ``pandas.DataFrame``; options are those of ``pyarrow.Table.to_pandas``."""
        return self.read(columns, start, end).to_pandas(**options)

    def to_numpy(self, column: str, start: Any = None, end: Any = None) -> np.ndarray:
        """One column as a numpy array: ``twist.twist.linear.x``, ``stamp``, ``ranges``."""
        array: np.ndarray = self.read([column], start, end).to_numpy(column)
        return array

    def messages(self, start: Any = None, end: Any = None) -> Iterator[_asof.Message]:
        """Its messages, in order of log time."""
        return self._recording._source.messages([self.name], start, end)

    def follow(self, start: Any = None, end: Any = None) -> Iterator[_asof.Message]:
        """Its messages, then new ones as they arrive."""
        return self._recording._source.follow([self.name], start, end)

    def write_poses(
        self,
        path: str | os.PathLike[str],
        format: str = "csv",
        start: Any = None,
        end: Any = None,
        force: bool = False,
    ) -> int:
        """Writes its poses as a trajectory, ``csv``, ``tum`` or ``kitti``, each at its own stamp; returns how many there are."""
        written = (os.fspath(path), format)
        return self._recording._said(_asof.write_poses, self.name, written, (start, end), force)

    def __iter__(self) -> Iterator[_asof.Message]:
        return self.messages()

    def __arrow_c_schema__(self) -> Any:
        return self.read().__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.read().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        info = self.info
        return f"<asof.Topic {self.name} {info.type}: {_count(info)} messages {_hertz(info)}".rstrip() + ">"

    def _repr_html_(self) -> str:
        info = self.info
        told = html.escape(f"{info.type}, {_count(info)} messages {_hertz(info)}".rstrip())
        return f"<div><b>{html.escape(self.name)}</b><br>{told}{self.read()._repr_html_()}</div>"

    def __reduce__(self) -> Any:
        return Topic, (self._recording, self.name)


def _arguments(
    how: str,
    on: str | None,
    tolerance: Any,
    columns: dict[str, list[str]],
    start: Any,
    end: Any,
    or_nearest: bool,
) -> dict[str, Any]:
    """Options for aligning topics."""
    return {
        "how": how,
        "on": on,
        "tolerance": tolerance,
        "columns": columns,
        "start": start,
        "end": end,
        "or_nearest": or_nearest,
    }


def _topics(summary: dict[str, Any]) -> dict[str, TopicInfo]:
    seconds = 0.0 if summary["start"] is None else (summary["end"] - summary["start"]) * 1e-9
    found: dict[str, TopicInfo] = {}
    for name, kind, encoding, messages, schema in sorted(summary["channels"], key=lambda channel: channel[0]):
        before = found.get(name)
        if before is not None:
            # Several channels of one topic.
            kind = before.type if kind in before.type.split(", ") else f"{before.type}, {kind}"
            encodings = before.encoding.split(", ")
            encoding = before.encoding if encoding in encodings else f"{before.encoding}, {encoding}"
            messages = None if messages is None or before.messages is None else messages + before.messages
            schema = before.schema
        rate = None if messages is None else (messages / seconds if messages > 1 and seconds > 0 else 0.0)
        found[name] = TopicInfo(name, kind, encoding, messages, rate, schema)
    return found


def _headline(summary: dict[str, Any]) -> str:
    parts = [summary["format"]]
    if summary["messages"] is not None:
        parts.append(f"{summary['messages']:,} messages")
    if summary["start"] is not None:
        seconds = (summary["end"] - summary["start"]) * 1e-9
        parts.append(f"{seconds:,.3f} s from {_shown(summary['start'])}")
    if summary["size"]:
        parts.append(f"{summary['size'] / 1e6:,.1f} MB")
    return ", ".join(parts)


def _shown(nanos: int) -> str:
    try:
        instant = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=nanos // 1000)
    except OverflowError:
        return f"{nanos} ns"
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _count(topic: TopicInfo) -> str:
    return "?" if topic.messages is None else f"{topic.messages:,}"


def _hertz(topic: TopicInfo) -> str:
    return f"{topic.hz:,.1f} Hz" if topic.hz else ""


def open(*places: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> Recording:  # noqa: A001
    """Opens a recording, several as one, or a running robot.

    A place is a file or a folder (MCAP, ROS 1 and ROS 2 bags, PX4 logs), an address (``https://``, ``s3://``, ``gs://``,
    ``az://``), a robot (``zenoh://host:port``, ``foxglove://``, ``rosbridge://``), or a list of these, which are merged by time.
    """
    names: list[str] = []
    for place in places:
        several: list[Any] = list(place) if isinstance(place, (list, tuple)) else [place]
        names += [os.fspath(one) for one in several]
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"a place is a path or an address, not {type(name).__name__}")
    return Recording(names)
