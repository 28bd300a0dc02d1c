"""The fields of a message."""

from __future__ import annotations

from typing import Any


class Record(dict):
    """A dict whose entries are attributes too: ``record["pose"]`` is ``record.pose``.

    A field with the name of a dict method, such as ``items``, is accessible only by its key.
    """

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            known = ", ".join(self) or "none"
            raise AttributeError(f"there is no field '{name}'; there are {known}") from None

    def to_dict(self) -> Record:
        """Itself, as :meth:`asof.Fields.to_dict` of fields that are read when they are touched."""
        return self

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(name for name in self if name.isidentifier())})

    def __reduce__(self) -> Any:
        return Record, (dict(self),)
