"""The exceptions of asof. Each is an :class:`Error` and a subclass of the matching Python exception."""

from __future__ import annotations


class Error(Exception):
    """Something that asof cannot do. The message names what, where, and what to do about it."""

    def __str__(self) -> str:
        # KeyError and OSError would format it differently.
        return str(self.args[0]) if self.args else ""


class SourceError(Error, OSError):
    """A recording cannot be opened or read."""


class NotFoundError(SourceError, FileNotFoundError):
    """The file does not exist."""


class TopicError(Error, KeyError):
    """The topic does not exist."""


class FieldError(Error, KeyError):
    """The field or column does not exist."""


class DecodeError(Error, ValueError):
    """A message, or a table of messages, cannot be decoded."""


class AlignError(Error, ValueError):
    """Topics cannot be aligned in this way."""


class FleetError(Error):
    """A folder or bucket of recordings cannot be indexed or searched."""


class TimeError(Error, ValueError):
    """The value is not a time or a duration."""


class WriteError(Error, OSError):
    """A recording cannot be written."""


class LiveError(Error, ConnectionError):
    """A connection to a robot failed."""


class MapError(Error, ValueError):
    """The mapping of a dataset is invalid."""


class QueryError(Error, ValueError):
    """An SQL query is invalid, or failed."""


class UnavailableError(Error, NotImplementedError):
    """This build of asof cannot do it; the message names the one that can."""


class TransformException(Error):
    """A transform is not available; the subclasses have tf2's names."""


class LookupException(TransformException, LookupError):
    """A frame is unknown."""


class ConnectivityException(TransformException):
    """Two frames are not connected."""


class ExtrapolationException(TransformException):
    """The time is before or after the known range."""


class InvalidArgumentException(TransformException, ValueError):
    """A transform that cannot be stored: not a rotation, or an invalid name."""


class DecodeWarning(UserWarning):
    """Some messages could not be decoded, and are not among the rows."""
