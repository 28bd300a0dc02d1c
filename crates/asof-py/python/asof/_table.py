"""Tables: of one topic, or of several that were joined."""

from __future__ import annotations

import html
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from asof import _asof
from asof.errors import DecodeError, DecodeWarning, FieldError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import polars as pl
    import pyarrow as pa


class Table:
    """Rows that are read on demand, any number of times.

    Every library that supports the Arrow PyCapsule protocol accepts it without a copy: ``polars.DataFrame(table)``,
    ``pyarrow.table(table)``, ``duckdb.sql("SELECT … FROM odom")`` for a variable ``odom``.
    """

    __slots__ = ("_inner", "_origin", "_recipe")

    def __init__(self, inner: _asof.Table, recipe: Any = None, origin: Any = None) -> None:
        self._inner = inner
        # The recording, the query, and its arguments: another process repeats it.
        self._recipe = recipe
        # The topic of all its columns: writing the table writes the topic's messages.
        self._origin = origin

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return self._inner.columns

    @property
    def lost(self) -> int:
        """How many messages the last reading could not decode; they are not among the rows."""
        return self._inner.lost

    def views(self, views: bool) -> Table:
        """The same; with False, without Arrow's view types, which some libraries do not support."""
        return Table(self._inner.with_views(views), self._recipe)

    def collect(self) -> Table:
        """The same, read into memory once."""
        return Table(self._told(self._inner, self._inner.collect()), self._recipe)

    def batches(self, rows: int = 8192) -> Iterator[_asof.Batch]:
        """The rows, one batch at a time: only that is in memory."""
        batches = self._inner.batches(rows)
        yield from batches
        _warn(batches.lost)

    def to_arrow(self) -> pa.Table:
        """All rows as a ``pyarrow.Table``."""
        import pyarrow as pa

        return pa.table(self.collect())

    def to_polars(self) -> pl.DataFrame:
        """All rows as a ``polars.DataFrame``."""
        import polars as pl

        return pl.DataFrame(self.collect())

    def lazy(self) -> pl.LazyFrame:
        """The rows as a ``polars.LazyFrame``, which reads what a query needs.

        Of a topic, only the columns that are used, the rows that are asked for, and the log times that a filter on ``log_time`` leaves
        are read; of other tables, the rows that are asked for.
        """
        from asof._lazy import lazy

        return lazy(self, self._part)

    def _part(self, columns: Sequence[str] | None, bounds: tuple[int | None, int | None]) -> Table:
        """The same with at least these columns, and the rows of these log times."""
        if self._recipe is None or self._recipe[1] != "table":
            return self
        recording, question, (topic, names, start, end) = self._recipe
        source = recording._source
        after, before = bounds
        if after is not None:
            start = after if start is None else max(after, source.resolve(start))
        if before is not None:
            end = before if end is None else min(before, source.resolve(end))
        try:
            words = (topic, names if columns is None else list(columns), start, end)
            table = getattr(source, question)(*words)
        except (FieldError, DecodeError):
            # The name of a column is not always a path: one with dots in it, or one that gave way to a time. Without a schema, a path
            # that is nowhere is told as what cannot be decoded; what really cannot fails again.
            words = (topic, names, start, end)
            table = getattr(source, question)(*words)
        table = table if self._inner.has_views else table.with_views(False)
        return Table(table, (recording, question, words))

    def to_pandas(self, **options: Any) -> pd.DataFrame:
        """All rows as a ``pandas.DataFrame``; options are those of ``pyarrow.Table.to_pandas``."""
        return self.views(False).to_arrow().to_pandas(**options)

    def to_numpy(self, column: str | None = None) -> Any:
        """A column as a numpy array; without a name, a dict of all of them.

        Numbers share the memory that they were decoded into. Nulls are NaN or NaT. Lists of one length are rows of
        a matrix, structs are structured arrays, and texts are objects.
        """
        names = self.columns
        made = self.collect()._inner
        if column is None:
            return {name: made.numpy(at) for at, name in enumerate(names)}
        if column not in names:
            raise FieldError(f"there is no column '{column}'; there are {', '.join(names)}")
        return made.numpy(names.index(column))

    def __arrow_c_schema__(self) -> Any:
        return self._inner.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._inner.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return f"<asof.Table: {', '.join(self.columns)}>"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td style='text-align:left'>{html.escape(name)}</td><td style='text-align:left'>{html.escape(kind)}</td></tr>"
            for name, kind in self._inner.types
        )
        return (
            "<table><thead><tr><th style='text-align:left'>column</th><th style='text-align:left'>type</th></tr></thead>"
            f"<tbody>{rows}</tbody></table>"
        )

    def __reduce__(self) -> Any:
        if self._recipe is None:
            raise TypeError("a table that is not from a recording cannot be pickled; pickle the result of to_arrow()")
        return _again, (*self._recipe, self._inner.has_views)

    @staticmethod
    def _told(read: _asof.Table, made: Any) -> Any:
        _warn(read.lost)
        return made


def own_tables(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Tables for a query, as paths or Arrow; a lazy frame is collected."""
    own = {}
    for name, table in tables.items():
        if hasattr(table, "collect") and not hasattr(table, "__arrow_c_stream__"):
            table = table.collect()
        if not isinstance(table, (str, os.PathLike)) and not hasattr(table, "__arrow_c_stream__"):
            kind = type(table).__name__
            raise TypeError(f"{name} is a {kind}; a table is a polars or pandas frame, another Arrow table, or the path of a file")
        own[name] = table
    return own


def _again(recording: Any, question: str, words: tuple[Any, ...], views: bool) -> Table:
    """Opens a table of a recording again."""
    table = getattr(recording._source, question)(*words)
    return Table(table if views else table.with_views(False), (recording, question, words))


def _warn(lost: int) -> None:
    if lost:
        what = "1 message" if lost == 1 else f"{lost:,} messages"
        warnings.warn(f"{what} could not be decoded, and are not among the rows", DecodeWarning, stacklevel=4)
