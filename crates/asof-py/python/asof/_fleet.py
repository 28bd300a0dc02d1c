"""Folders and buckets of recordings as one database."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from asof import _asof
from asof._recording import Recording, open
from asof._table import Table, own_tables
from asof.errors import DecodeWarning, FleetError, QueryError

_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class Indexed:
    """What indexing found."""

    recordings: int
    #: Those that were opened, because they are new or have changed.
    opened: int
    unchanged: int
    #: Those that are gone since the last time.
    vanished: int
    #: Of the opened ones, those with problems, and those that could not be read.
    damaged: int
    failed: int


class Found(Table):
    """Recordings that were found: a table with a row for each, and as a sequence the recordings, opened when they are taken.

    Its columns are ``recording``, ``address``, ``format``, ``size``, ``start``, ``end``, ``messages``, ``robot``, ``site``, ``date``,
    ``tags``, ``topics`` (those that were asked for) and ``problems`` (how many).
    """

    __slots__ = ("_addresses",)

    def __init__(self, inner: _asof.Table) -> None:
        super().__init__(inner)
        self._addresses: list[str] = list(inner.numpy(inner.columns.index("address")))

    @property
    def places(self) -> list[str]:
        """Their addresses."""
        return list(self._addresses)

    @overload
    def __getitem__(self, index: int) -> Recording: ...
    @overload
    def __getitem__(self, index: slice) -> list[Recording]: ...
    def __getitem__(self, index: int | slice) -> Recording | list[Recording]:
        if isinstance(index, slice):
            return [open(place) for place in self._addresses[index]]
        return open(self._addresses[index])

    def __len__(self) -> int:
        return len(self._addresses)

    def __iter__(self) -> Iterator[Recording]:
        return (open(place) for place in self._addresses)

    def __repr__(self) -> str:
        return f"<asof.Found: {len(self)} recordings>"


class Fleet:
    """The recordings below a folder or bucket; made by :func:`asof.fleet`.

    A catalogue in plain Parquet beside the recordings says what is in each of them: :meth:`index` keeps it current, and
    :meth:`find` answers from it without opening a recording.
    """

    def __init__(self, place: str, catalogue: str | None = None) -> None:
        self._words = place, catalogue
        self._inner = _asof.Fleet.open(place, catalogue)

    @property
    def place(self) -> str:
        """The address of its recordings."""
        return self._inner.place

    @property
    def is_indexed(self) -> bool:
        """Whether there is a catalogue."""
        return self._inner.is_indexed()

    def index(self) -> Indexed:
        """Writes its recordings to the catalogue; only those that are new or have changed are opened. Problems are warnings."""
        counts, problems = self._inner.index()
        for problem in problems:
            warnings.warn(problem, DecodeWarning, stacklevel=2)
        return Indexed(**counts)

    def watch(self, pause: Any = 60.0) -> Iterator[Indexed]:
        """Indexes again and again, each time after a pause, and says what each run found. A run that fails, as of a network that
        is gone, is a warning."""
        import time

        while True:
            time.sleep(_asof.length(pause) * 1e-9)
            try:
                yield self.index()
            except FleetError as error:
                warnings.warn(str(error), DecodeWarning, stacklevel=2)

    def find(
        self,
        topics: str | Sequence[str] = (),
        since: Any = None,
        until: Any = None,
        robot: str | Sequence[str] = (),
        site: str | Sequence[str] = (),
        tags: Mapping[str, str] | None = None,
        where: str | None = None,
    ) -> Found:
        """The recordings with messages on one of these topics in a time, of one of these robots and sites, with these tags, and a
        condition such as ``messages > 1000``. Names may be patterns: ``/camera/*``. What is not given matches everything."""
        wanted = _wanted(topics, since, until, robot, site, tags, where)
        return Found(self._asked(lambda: self._inner.find(wanted)))

    def recordings(
        self,
        topics: str | Sequence[str] = (),
        since: Any = None,
        until: Any = None,
        robot: str | Sequence[str] = (),
        site: str | Sequence[str] = (),
        tags: Mapping[str, str] | None = None,
        where: str | None = None,
    ) -> list[Recording]:
        """The same recordings, to be read. What they hold is known from the catalogue; the first reader of each opens it. Those that
        cannot be read are left out, which is a warning."""
        wanted = _wanted(topics, since, until, robot, site, tags, where)
        found, _, unreadable = self._asked(lambda: self._inner.recordings(wanted))
        if unreadable:
            warnings.warn(f"{unreadable} recordings cannot be read, and are left out", DecodeWarning, stacklevel=2)
        return [Recording._of(source, [place]) for place, source in found]

    def tag(self, recording: str | os.PathLike[str], **tags: str | None) -> dict[str, str]:
        """Tags a recording without touching its file; None removes a tag. It is named by its path, its address, or the end of its
        path. Returns its tags. ``robot``, ``site`` and ``date`` override those of path and metadata."""
        return self._inner.tag(os.fspath(recording), tags)

    def sql(self, query: str, **tables: Any) -> Table:
        """The rows of a query over all recordings: every topic is a table, with the columns ``recording``, ``robot``, ``site`` and
        ``tags`` beside its own. Recordings that the query does not need are not opened. ``labels=frame`` adds a table of your own."""
        own = own_tables(tables)
        return Table(self._asked(lambda: self._inner.sql(query, own)))

    def _asked(self, ask: Callable[[], _Answer]) -> _Answer:
        """An answer from the catalogue; an error without one says how to get it."""
        try:
            return ask()
        except (FleetError, QueryError):
            if self.is_indexed:
                raise
            raise FleetError(f"{self.place} has no catalogue yet; index() makes it") from None

    def to_polars(self) -> Any:
        """All recordings as a ``polars.DataFrame``."""
        return self.find().to_polars()

    def to_pandas(self, **options: Any) -> Any:
        """All recordings as a ``pandas.DataFrame``."""
        return self.find().to_pandas(**options)

    def to_arrow(self) -> Any:
        """All recordings as a ``pyarrow.Table``."""
        return self.find().to_arrow()

    def __iter__(self) -> Iterator[Recording]:
        return iter(self.find())

    def __repr__(self) -> str:
        return f"<asof.Fleet {self.place}>"

    def __reduce__(self) -> Any:
        return Fleet, self._words


def _wanted(
    topics: str | Sequence[str],
    since: Any,
    until: Any,
    robot: str | Sequence[str],
    site: str | Sequence[str],
    tags: Mapping[str, str] | None,
    where: str | None,
) -> dict[str, Any]:
    """What a search asks for."""
    return {
        "topics": _names(topics),
        "since": since,
        "until": until,
        "robot": _names(robot),
        "site": _names(site),
        "tags": dict(tags or {}),
        "predicate": where,
    }


def _names(given: str | Sequence[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)


def fleet(place: str | os.PathLike[str], catalogue: str | os.PathLike[str] | None = None) -> Fleet:
    """The recordings below a folder or bucket as one database. Nothing is read yet.

    ``catalogue`` is the folder of the catalogue where it is not ``.asof`` beside the recordings.
    """
    return Fleet(os.fspath(place), None if catalogue is None else os.fspath(catalogue))
