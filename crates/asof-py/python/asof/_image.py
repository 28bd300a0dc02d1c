"""Pictures and point clouds as numpy arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from asof import _asof
from asof.errors import DecodeError

if TYPE_CHECKING:
    from asof import Message

# The numbers of a pixel, their type, and where red, green, blue (and alpha) are among them.
_PIXELS: dict[str, tuple[int, str, tuple[int, ...] | None]] = {
    "mono8": (1, "u1", None),
    "8UC1": (1, "u1", None),
    "8SC1": (1, "i1", None),
    "mono16": (1, "u2", None),
    "16UC1": (1, "u2", None),
    "16SC1": (1, "i2", None),
    "32SC1": (1, "i4", None),
    "32FC1": (1, "f4", None),
    "64FC1": (1, "f8", None),
    "rgb8": (3, "u1", (0, 1, 2)),
    "bgr8": (3, "u1", (2, 1, 0)),
    "8UC3": (3, "u1", (2, 1, 0)),
    "rgba8": (4, "u1", (0, 1, 2, 3)),
    "bgra8": (4, "u1", (2, 1, 0, 3)),
    "8UC4": (4, "u1", (2, 1, 0, 3)),
    "rgb16": (3, "u2", (0, 1, 2)),
    "bgr16": (3, "u2", (2, 1, 0)),
    "32FC3": (3, "f4", (0, 1, 2)),
}

# The first two rows of a Bayer pattern, from its first two letters.
_BAYER = {"rggb": ("rg", "gb"), "bggr": ("bg", "gr"), "gbrg": ("gb", "rg"), "grbg": ("gr", "bg")}

_CLOUD = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 8: "f8"}
# Foxglove counts them in another order.
_FOXGLOVE = {1: "u1", 2: "i1", 3: "u2", 4: "i2", 5: "u4", 6: "i4", 7: "f4", 8: "f8"}


def image(message: Message) -> np.ndarray:
    """The picture of a message: raw or compressed, of ROS or of Foxglove."""
    data = message.data
    if "data" not in data or not ("encoding" in data or "format" in data):
        raise DecodeError(f"a message on {message.topic} of the type {message.type} is not a picture")
    if "encoding" not in data:
        return _compressed(message)
    encoding, width, height = data["encoding"], int(data["width"]), int(data["height"])
    order = ">" if data.get("is_bigendian") else "<"
    if encoding.startswith("bayer_"):
        pattern, bits = encoding[6:10], encoding[10:]
        if pattern not in _BAYER or bits not in ("8", "16"):
            raise _unknown(message, encoding)
        mosaic = _raw(message, width, height, 1, order + ("u1" if bits == "8" else "u2"))
        return _demosaic(mosaic, _BAYER[pattern])
    if encoding not in _PIXELS:
        raise _unknown(message, encoding)
    channels, kind, places = _PIXELS[encoding]
    pixels = _raw(message, width, height, channels, order + kind)
    if places is None or places == tuple(range(channels)):
        return pixels
    if channels == 3:
        return pixels[..., ::-1]
    return pixels[..., list(places)]


def _unknown(message: Message, encoding: str) -> DecodeError:
    known = ", ".join([*_PIXELS, *(f"bayer_{pattern}8" for pattern in _BAYER)])
    return DecodeError(f"the picture on {message.topic} has the encoding '{encoding}', which is not one of {known}")


def _raw(message: Message, width: int, height: int, channels: int, kind: str) -> np.ndarray:
    """Pixels as they lie in the message, which are not copied."""
    data = message.data
    size = np.dtype(kind).itemsize * channels
    step = int(data.get("step") or width * size)
    needed = (height - 1) * step + width * size if height and width else 0
    if step < width * size or len(data["data"]) < needed:
        raise DecodeError(
            f"the picture on {message.topic} says {width} x {height} pixels of {size} bytes in rows of {step}, "
            f"and has {len(data['data'])} bytes"
        )
    shape: tuple[int, ...] = (height, width) if channels == 1 else (height, width, channels)
    if needed == 0:
        return np.empty(shape, kind)
    inner = (np.dtype(kind).itemsize,) if channels > 1 else ()
    return np.ndarray(shape, kind, buffer=data["data"], strides=(step, size, *inner))


def _compressed(message: Message) -> np.ndarray:
    try:
        buffer, kind, (height, width, channels) = _asof.picture(message.data["data"])
    except DecodeError as error:
        given = message.data["format"]
        raise DecodeError(f"{message.topic}, format '{given}': {error}") from None
    pixels = np.frombuffer(buffer, kind)
    return pixels.reshape((height, width) if channels == 1 else (height, width, channels))


def _demosaic(mosaic: np.ndarray, pattern: tuple[str, str]) -> np.ndarray:
    """Colours by the mean of the nearest pixels that have them."""
    wide = np.pad(mosaic.astype(np.float32), 1, mode="reflect")
    height, width = mosaic.shape
    colours = np.empty((height, width, 3), np.float32)
    for channel, colour in enumerate("rgb"):
        has = np.zeros((height + 2, width + 2), np.float32)
        for row in range(2):
            for column in range(2):
                if pattern[row][column] == colour:
                    # One more row and column lie around it.
                    has[(row + 1) % 2 :: 2, (column + 1) % 2 :: 2] = 1
        values = wide * has
        total, weight = np.zeros((height, width), np.float32), np.zeros((height, width), np.float32)
        for down, right, share in _NEIGHBOURS:
            rows, columns = slice(1 + down, 1 + down + height), slice(1 + right, 1 + right + width)
            total += share * values[rows, columns]
            weight += share * has[rows, columns]
        own = has[1 : 1 + height, 1 : 1 + width] == 1
        colours[..., channel] = np.where(own, mosaic, total / np.maximum(weight, 1e-9))
    most = np.iinfo(mosaic.dtype).max
    return np.clip(np.rint(colours), 0, most).astype(mosaic.dtype.newbyteorder("="))


_NEIGHBOURS = [
    (down, right, 1.0 if abs(down) + abs(right) == 2 else 2.0)
    for down in (-1, 0, 1)
    for right in (-1, 0, 1)
    if (down, right) != (0, 0)
]


def cloud(message: Message) -> np.ndarray:
    """The points of a message, PointCloud2 of ROS or PointCloud of Foxglove, in the memory of the message."""
    data = message.data
    step = data.get("point_step", data.get("point_stride"))
    if step is None or "fields" not in data:
        raise DecodeError(f"a message on {message.topic} of the type {message.type} is not a cloud of points")
    order = ">" if data.get("is_bigendian") else "<"
    names, kinds, offsets = [], [], []
    for field in data["fields"]:
        number = field.get("datatype", field.get("type"))
        kind = (_CLOUD if "datatype" in field else _FOXGLOVE).get(int(number) if number is not None else 0)
        if kind is None:
            raise DecodeError(f"the field '{field['name']}' on {message.topic} is of the unknown type {number}")
        count = int(field.get("count", 1) or 1)
        names.append(field["name"])
        kinds.append(order + kind if count == 1 else (order + kind, (count,)))
        offsets.append(int(field["offset"]))
    try:
        point = np.dtype({"names": names, "formats": kinds, "offsets": offsets, "itemsize": int(step)})
    except (ValueError, TypeError) as error:
        raise DecodeError(f"the fields of the points on {message.topic} do not fit into {step} bytes: {error}") from None
    points: Any = data["data"]
    height, width = int(data.get("height", 1)), int(data.get("width", 0))
    row = int(data.get("row_step", 0) or width * int(step))
    if "width" not in data:
        return np.frombuffer(points, point, count=len(points) // int(step)) if int(step) else np.empty(0, point)
    if height * width == 0:
        return np.empty((height, width) if height > 1 else width, point)
    if row < width * int(step) or len(points) < (height - 1) * row + width * int(step):
        raise DecodeError(
            f"the cloud on {message.topic} says {width} x {height} points of {step} bytes, and has {len(points)} bytes"
        )
    shape, strides = ((height, width), (row, int(step))) if height > 1 else ((width,), (int(step),))
    return np.ndarray(shape, point, buffer=points, strides=strides)
