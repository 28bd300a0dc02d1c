"""What did the robot know, as of time t?

>>> import asof
>>> rec = asof.open("run.mcap")
>>> rec["/odom"].to_polars()
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from asof import errors
from asof._asof import Batch, Fields, Message, Transform, __version__, now
from asof._fleet import Fleet, Found, fleet
from asof._live import Playback, Recorder, Robot, Sets, Window, connect
from asof._record import Record
from asof._recording import Problem, Recording, Topic, TopicInfo, open
from asof._table import Table
from asof._tf import TransformBuffer
from asof._writer import Writer
from asof.errors import DecodeWarning, Error

if TYPE_CHECKING:
    from asof import lerobot, torch


Mapping.register(Fields)


def __getattr__(name: str) -> Any:
    # What few need is imported when it is first asked for.
    if name in ("lerobot", "torch"):
        import importlib

        return importlib.import_module(f"asof.{name}")
    raise AttributeError(f"module 'asof' has no attribute '{name}'")


__all__ = [
    "Batch",
    "DecodeWarning",
    "Error",
    "Fields",
    "Fleet",
    "Found",
    "Message",
    "Playback",
    "Problem",
    "Record",
    "Recorder",
    "Recording",
    "Robot",
    "Sets",
    "Table",
    "Topic",
    "TopicInfo",
    "Transform",
    "TransformBuffer",
    "Window",
    "Writer",
    "__version__",
    "connect",
    "errors",
    "fleet",
    "lerobot",
    "now",
    "open",
    "torch",
]
