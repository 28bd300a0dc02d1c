"""Pictures and point clouds as numpy arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from asof import _asof
from asof.errors import DecodeError

if TYPE_CHECKING:
    from asof import Message

_CLOUD = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 8: "f8"}
# Foxglove numbers them in another order.
_FOXGLOVE = {1: "u1", 2: "i1", 3: "u2", 4: "i2", 5: "u4", 6: "i4", 7: "f4", 8: "f8"}


def image(message: Message) -> np.ndarray:
    """The picture of a message, raw or compressed, ROS or Foxglove. Numbers that need no decoding share the message's memory."""
    buffer, kind, (height, width, channels), step, is_reversed = _asof.picture(message)
    size = np.dtype(kind).itemsize
    if channels == 1:
        return np.ndarray((height, width), kind, buffer, strides=(step, size))
    pixels: np.ndarray = np.ndarray((height, width, channels), kind, buffer, strides=(step, size * channels, size))
    if is_reversed:
        # Alpha, if there is one, stays last.
        pixels = pixels[..., ::-1] if channels == 3 else pixels[..., [2, 1, 0, 3]]
    return pixels


def cloud(message: Message) -> np.ndarray:
    """The points of a message, a ROS PointCloud2 or a Foxglove PointCloud, in the memory of the message."""
    try:
        return _cloud(message)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        # A JSON message has fields of any kind, or none.
        what = f"{type(error).__name__}: {error}"
        raise DecodeError(f"a message on {message.topic} of the type {message.type} is not a point cloud: {what}") from None


def _cloud(message: Message) -> np.ndarray:
    data = message.data
    step = data.get("point_step", data.get("point_stride"))
    if step is None or "fields" not in data:
        raise DecodeError(f"a message on {message.topic} of the type {message.type} is not a point cloud")
    order = ">" if data.get("is_bigendian") else "<"
    names, kinds, offsets = [], [], []
    for field in data["fields"]:
        number = field.get("datatype", field.get("type"))
        kind = (_CLOUD if "datatype" in field else _FOXGLOVE).get(int(number) if number is not None else 0)
        if kind is None:
            raise DecodeError(f"the field '{field['name']}' on {message.topic} has the unknown type {number}")
        count = int(field.get("count", 1) or 1)
        names.append(field["name"])
        kinds.append(order + kind if count == 1 else (order + kind, (count,)))
        offsets.append(int(field["offset"]))
    try:
        point = np.dtype({"names": names, "formats": kinds, "offsets": offsets, "itemsize": int(step)})
    except (ValueError, TypeError) as error:
        raise DecodeError(f"the fields of the points on {message.topic} do not fit into {step} bytes: {error}") from None
    points: Any = data["data"]
    if not isinstance(points, np.ndarray) or points.dtype != np.uint8:
        points = _asof.bytes_at(message, "data")
    height, width = int(data.get("height", 1)), int(data.get("width", 0))
    row = int(data.get("row_step", 0) or width * int(step))
    if "width" not in data:
        return np.frombuffer(points, point, count=len(points) // int(step)) if int(step) else np.empty(0, point)
    if height * width == 0:
        return np.empty((height, width) if height > 1 else width, point)
    if row < width * int(step) or len(points) < (height - 1) * row + width * int(step):
        raise DecodeError(
            f"the cloud on {message.topic} declares {width} x {height} points of {step} bytes, but has {len(points)} bytes"
        )
    shape, strides = ((height, width), (row, int(step))) if height > 1 else ((width,), (int(step),))
    return np.ndarray(shape, point, buffer=points, strides=strides)
