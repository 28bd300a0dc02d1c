"""Pictures and clouds as numpy arrays."""

from __future__ import annotations

import io
import struct

import asof
import numpy as np
import pytest
from asof import errors
from asof._image import cloud, image


class Said:
    """A message with these fields."""

    topic, type = "/camera", "sensor_msgs/msg/Image"

    def __init__(self, **data):
        self.data = asof.Record(data)


def raw(encoding, pixels, step=None, big=0):
    height, width = pixels.shape[:2]
    row = pixels.nbytes // height
    rows = pixels.reshape(height, -1).view(np.uint8).reshape(height, row)
    if step:
        rows = np.pad(rows, ((0, 0), (0, step - row)))
    data = np.ascontiguousarray(rows).reshape(-1)
    return Said(encoding=encoding, width=width, height=height, step=step or row, is_bigendian=big, data=data)


RGB = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)


def test_raw_pictures_are_red_green_blue():
    np.testing.assert_array_equal(image(raw("rgb8", RGB)), RGB)
    np.testing.assert_array_equal(image(raw("bgr8", RGB)), RGB[..., ::-1])
    np.testing.assert_array_equal(image(raw("rgb8", RGB, step=16)), RGB)
    grey = RGB[..., 0].copy()
    np.testing.assert_array_equal(image(raw("mono8", grey)), grey)
    depth = (grey.astype(np.uint16) + 1) * 500
    np.testing.assert_array_equal(image(raw("16UC1", depth)), depth)
    np.testing.assert_array_equal(image(raw("16UC1", depth.astype(">u2"), big=1)), depth)
    rgba = np.dstack([RGB, grey])
    np.testing.assert_array_equal(image(raw("bgra8", rgba)), rgba[..., [2, 1, 0, 3]])


def test_raw_pictures_are_not_copied():
    message = raw("bgr8", RGB)
    assert np.shares_memory(image(message), message.data["data"])


@pytest.mark.parametrize("pattern", ["rggb", "bggr", "gbrg", "grbg"])
@pytest.mark.parametrize("bits", [8, 16])
def test_bayer_patterns_become_colours(pattern, bits):
    colour = np.array([200, 100, 50]) * (1 if bits == 8 else 200)
    mosaic = np.empty((6, 8), np.uint8 if bits == 8 else np.uint16)
    for row in range(6):
        for column in range(8):
            mosaic[row, column] = colour["rgb".index(pattern[row % 2 * 2 + column % 2])]
    found = image(raw(f"bayer_{pattern}{bits}", mosaic))
    assert found.shape == (6, 8, 3) and found.dtype == mosaic.dtype
    np.testing.assert_array_equal(found, np.broadcast_to(colour, (6, 8, 3)))


def test_compressed_pictures_are_what_pillow_reads():
    pillow = pytest.importorskip("PIL.Image")
    smooth = np.add.outer(np.arange(64), np.arange(48)).astype(np.uint8)
    colours = np.dstack([smooth, smooth[::-1], 255 - smooth])
    for picture in [smooth, colours]:
        for kind, options in [("png", {}), ("jpeg", {"quality": 90})]:
            file = io.BytesIO()
            pillow.fromarray(picture).save(file, kind, **options)
            found = image(Said(format=kind, data=np.frombuffer(file.getvalue(), np.uint8)))
            wanted = np.asarray(pillow.open(file))
            if found.ndim > wanted.ndim:
                wanted = np.dstack([wanted] * 3)
            assert found.shape == wanted.shape
            assert np.abs(found.astype(int) - wanted).max() <= (0 if kind == "png" else 4)
    depth = (smooth.astype(np.uint16) + 1) * 200
    file = io.BytesIO()
    pillow.fromarray(depth).save(file, "png")
    found = image(Said(format="16UC1; compressedDepth", data=np.frombuffer(bytes(12) + file.getvalue(), np.uint8)))
    np.testing.assert_array_equal(found, depth)


def test_the_demo_has_pictures(rec):
    pillow = pytest.importorskip("PIL.Image")
    message = next(rec.messages("/camera/image"))
    found = message.image()
    wanted = np.asarray(pillow.open(io.BytesIO(message.data.data)).convert("RGB"))
    assert np.abs(found.astype(int) - wanted).max() <= 8


@pytest.mark.parametrize(
    "message",
    [
        raw("yuv9", RGB),
        raw("bayer_rrrr8", RGB[..., 0].copy()),
        Said(encoding="rgb8", width=1000, height=1000, step=3000, data=np.zeros(10, np.uint8)),
        Said(encoding="rgb8", width=10, height=1, step=3, data=np.zeros(30, np.uint8)),
        Said(format="jpeg", data=np.zeros(0, np.uint8)),
        Said(format="jpeg", data=np.frombuffer(b"\xff\xd8\xff\xe0junk", np.uint8)),
        Said(format="png", data=np.frombuffer(b"\x89PNG\r\n\x1a\njunk", np.uint8)),
        Said(text="no picture"),
    ],
)
def test_what_is_not_a_picture_is_said(message):
    with pytest.raises(errors.DecodeError, match="/camera"):
        image(message)


def fields(*given):
    names = [("x", 0, 7), ("y", 4, 7), ("ring", 8, 4)] if not given else given
    return [asof.Record(name=name, offset=offset, datatype=kind, count=1) for name, offset, kind in names]


def test_clouds_are_structured_arrays_in_the_memory_of_the_message():
    data = np.frombuffer(b"".join(struct.pack("<ffHxx", at, -at, at) for at in range(6)), np.uint8)
    said = Said(height=1, width=6, point_step=12, row_step=72, is_bigendian=False, fields=fields(), data=data)
    points = cloud(said)
    assert points.dtype.names == ("x", "y", "ring") and points.shape == (6,)
    np.testing.assert_array_equal(points["y"], -np.arange(6))
    assert np.shares_memory(points, data)
    said.data.update(height=2, width=3, row_step=36)
    assert cloud(said).shape == (2, 3) and cloud(said)["ring"][1, 2] == 5
    said.data.update(height=2, width=2, row_step=36)
    np.testing.assert_array_equal(cloud(said)["x"], [[0, 1], [3, 4]])
    for wrong in [{"width": 999}, {"point_step": 4}, {"fields": fields(("x", 0, 99))}, {"row_step": 5, "height": 2}]:
        bad = Said(**{**said.data, **wrong})
        with pytest.raises(errors.DecodeError, match="/camera"):
            cloud(bad)


def test_a_real_cloud_is_what_rosbags_reads(data):
    rec = asof.open(data / "numpy-image-cloud-map.bag")
    [topic] = [name for name, topic in rec.topics.items() if "PointCloud2" in topic.type]
    message = next(rec.messages(topic))
    points = message.cloud()
    assert points.size == message.height * message.width
    assert np.shares_memory(points, message.data["data"])
    [topic] = [name for name, topic in rec.topics.items() if topic.type.endswith("/Image")]
    message = next(rec.messages(topic))
    assert message.image().shape[:2] == (message.height, message.width)
