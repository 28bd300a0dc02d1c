"""Tables as polars LazyFrames: only the columns, times and rows that a query needs are read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

    from asof._table import Table

#: The most rows of a frame that is passed on.
MOST_ROWS = 1 << 16
#: Nanoseconds of the units in which polars counts times.
_UNITS = {"Nanoseconds": 1, "Microseconds": 1_000, "Milliseconds": 1_000_000}
_MIRRORED = {"Lt": "Gt", "LtEq": "GtEq", "Gt": "Lt", "GtEq": "LtEq"}

#: The first and the last log time that can match; None where it is open.
Bounds = tuple[int | None, int | None]


def lazy(table: Table, part: Callable[[Sequence[str] | None, Bounds], Table]) -> pl.LazyFrame:
    """A LazyFrame of a table; `part` is the same of fewer columns and times."""
    import polars as pl
    from polars.io.plugins import register_io_source

    schema = pl.Schema(table)

    def read(
        columns: list[str] | None, predicate: pl.Expr | None, most: int | None, rows: int | None
    ) -> Iterator[pl.DataFrame]:
        # The first rows are those before the filter.
        bounds = (None, None) if predicate is None or most is not None else time_bounds(predicate)
        left = most
        # Rows have to be counted even where no column is wanted.
        wanted = columns if columns is None or columns else [table.columns[0]]
        size = max(1, min(rows or MOST_ROWS, left or MOST_ROWS, MOST_ROWS))
        for batch in part(wanted, bounds).batches(size):
            frame = pl.DataFrame(batch)
            if left is not None:
                frame = frame.head(left)
                left -= frame.height
            if predicate is not None:
                frame = frame.filter(predicate)
            if columns is not None:
                frame = frame.select(columns)
            yield frame
            if left == 0:
                return

    return register_io_source(read, schema=schema, explain_name="asof")


def time_bounds(predicate: pl.Expr) -> Bounds:
    """The log times that can match, as far as the predicate says that plainly. What it does not understand limits nothing:
    polars filters the rows in any case."""
    try:
        return _bounds(json.loads(predicate.meta.serialize(format="json")))
    except (AttributeError, KeyError, TypeError, ValueError):
        return None, None


def _bounds(tree: Any) -> Bounds:
    if not isinstance(tree, dict):
        return None, None
    if "Function" in tree:
        return _between(tree["Function"])
    node = tree.get("BinaryExpr")
    if node is None:
        return None, None
    left, op, right = node["left"], node["op"], node["right"]
    if op in ("And", "LogicalAnd"):
        return _both(_bounds(left), _bounds(right))
    if right == {"Column": "log_time"}:
        left, op, right = right, _MIRRORED.get(op, op), left
    at = _nanos(right)
    if left != {"Column": "log_time"} or at is None:
        return None, None
    if op in ("Lt", "LtEq"):
        return None, at
    if op in ("Gt", "GtEq"):
        return at, None
    return (at, at) if op == "Eq" else (None, None)


def _between(call: dict[str, Any]) -> Bounds:
    boolean = call["function"].get("Boolean") if isinstance(call["function"], dict) else None
    if not isinstance(boolean, dict) or "IsBetween" not in boolean:
        return None, None
    column, start, end = call["input"]
    return (_nanos(start), _nanos(end)) if column == {"Column": "log_time"} else (None, None)


def _both(one: Bounds, other: Bounds) -> Bounds:
    starts = [start for start, _ in (one, other) if start is not None]
    ends = [end for _, end in (one, other) if end is not None]
    return max(starts, default=None), min(ends, default=None)


def _nanos(tree: Any) -> int | None:
    """The time of a literal."""
    try:
        count, unit, _ = tree["Literal"]["Scalar"]["Datetime"]
        nanos: int = count * _UNITS[unit]
    except (KeyError, TypeError, ValueError):
        return None
    return nanos
