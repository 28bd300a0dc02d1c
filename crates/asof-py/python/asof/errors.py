"""The exceptions of asof. All are an :class:`Error`, and what Python itself has for their sort."""

from __future__ import annotations


class Error(Exception):
    """Something that asof cannot do. The message says what, where, and what to do about it."""

    def __str__(self) -> str:
        # KeyError and OSError would print it in their own ways.
        return str(self.args[0]) if self.args else ""


class SourceError(Error, OSError):
    """A recording cannot be opened or read."""


class NotFoundError(SourceError, FileNotFoundError):
    """There is no such file."""


class TopicError(Error, KeyError):
    """There is no such topic."""


class FieldError(Error, KeyError):
    """There is no such field or column."""


class DecodeError(Error, ValueError):
    """A message, or a table of messages, cannot be decoded."""


class AlignError(Error, ValueError):
    """Topics cannot be put side by side in this way."""


class TooLargeError(Error, MemoryError):
    """More would have to be held in memory than is allowed."""


class TimeError(Error, ValueError):
    """Something is not a time, or not a length of time."""


class WriteError(Error, OSError):
    """A recording cannot be written."""


class LiveError(Error, ConnectionError):
    """A robot cannot be listened to."""


class MapError(Error, ValueError):
    """What is to become of a recording is not said in words that are known."""


class QueryError(Error, ValueError):
    """A query in SQL is wrong, or failed."""


class UnavailableError(Error, NotImplementedError):
    """This build of asof cannot do it; the message says what can."""


class TransformException(Error):
    """A transform cannot be had; its subclasses have the names of tf2."""


class LookupException(TransformException, LookupError):
    """A frame is not known."""


class ConnectivityException(TransformException):
    """Two frames are not connected."""


class ExtrapolationException(TransformException):
    """The time is before or after what is known."""


class InvalidArgumentException(TransformException, ValueError):
    """A transform that cannot be stored: not a rotation, or a name that is not one."""


class DecodeWarning(UserWarning):
    """Some messages could not be decoded, and are not among the rows."""
