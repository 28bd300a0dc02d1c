"""Writing recordings."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

from asof import _asof
from asof._recording import Topic
from asof._table import Table


class Writer:
    """Writes an MCAP file.

    It appears under its name when it is closed, at the end of a ``with`` block; before that, it is a hidden file beside it. An
    existing file is replaced then, so that a recording can be written over itself.
    """

    def __init__(
        self, path: str | os.PathLike[str], compression: str = "zstd", level: int = 0, profile: str = ""
    ) -> None:
        self._inner = _asof.Writer(os.fspath(path), compression, level, profile)

    def write(self, topic: str, what: Any, log_time: Any = None) -> None:
        """Writes to a topic.

        - Messages, one or many, and topics of recordings and their tables: as recorded, byte for byte.
        - A dict: as JSON; ``log_time`` is its log time, now by default.
        - Any Arrow table, such as a polars or pandas frame or the result of a join: each row as JSON, with
          a schema; ``log_time`` names the column of times, ``log_time``, ``time`` or ``stamp`` by default.
        """
        if isinstance(what, _asof.Message):
            self._inner.message(topic, what)
        elif isinstance(what, Topic):
            self._inner.copy(topic, what._recording._source, what.name)
        elif isinstance(what, Table) and what._origin is not None:
            source, of, start, end = what._origin
            self._inner.copy(topic, source, of, start, end)
        elif isinstance(what, Mapping):
            whole = what.to_dict() if isinstance(what, _asof.Fields) else what
            payload = json.dumps(whole, default=_plain, allow_nan=False).encode()
            self._inner.raw(topic, _asof.now() if log_time is None else log_time, payload, "json")
        elif hasattr(what, "__arrow_c_stream__"):
            self._inner.rows(topic, what, log_time)
        elif isinstance(what, Iterable) and not isinstance(what, (str, bytes)):
            for one in what:
                self.write(topic, one, log_time)
        else:
            raise TypeError(f"{type(what).__name__} cannot be written; give messages, a dict, or a table")

    def write_raw(
        self,
        topic: str,
        log_time: Any,
        payload: bytes,
        encoding: str,
        schema: tuple[str, str, bytes] | None = None,
    ) -> None:
        """Writes bytes of any encoding; the schema is its name, its language and its text."""
        self._inner.raw(topic, log_time, payload, encoding, schema)

    @property
    def written(self) -> int:
        """How many messages were written."""
        return self._inner.written

    def close(self) -> None:
        """Ends the file, which gets its name then."""
        self._inner.close()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *error: Any) -> None:
        # What was written before an error is worth keeping.
        self.close()


def _plain(value: Any) -> Any:
    """Converts a numpy value or the fields of a message for JSON."""
    if isinstance(value, _asof.Fields):
        return value.to_dict()
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
