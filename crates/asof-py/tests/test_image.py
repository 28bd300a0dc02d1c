"""Pictures and clouds as numpy arrays."""

from __future__ import annotations

import base64
import io
import json
import struct

import asof
import numpy as np
import pytest
from asof import _asof, errors
from asof._image import cloud, image


IMAGE = """std_msgs/Header header
uint32 height
uint32 width
string encoding
uint8 is_bigendian
uint32 step
uint8[] data
================================================================================
MSG: std_msgs/Header
builtin_interfaces/Time stamp
string frame_id
================================================================================
MSG: builtin_interfaces/Time
int32 sec
uint32 nanosec
"""


def said(kind, **fields):
    """A message on /camera in JSON."""
    schema = (kind, "jsonschema", b"{}")
    return _asof.message_of(("/camera", "json", schema), (1, 1, 0), json.dumps(fields).encode())


def picture(encoding, width, height, step, data, big=0):
    """A sensor_msgs/Image on /camera, as ROS 2 sends it."""
    body = bytearray(struct.pack("<iI", 1, 2))
    for text in ["camera", None, encoding]:
        if text is None:
            body += bytes(-len(body) % 4) + struct.pack("<II", height, width)
        else:
            body += bytes(-len(body) % 4) + struct.pack("<I", len(text) + 1) + text.encode() + b"\0"
    body += bytes([big])
    body += bytes(-len(body) % 4) + struct.pack("<II", step, len(data)) + bytes(data)
    schema = ("sensor_msgs/msg/Image", "ros2msg", IMAGE.encode())
    return _asof.message_of(("/camera", "cdr", schema), (1, 1, 0), b"\0\1\0\0" + bytes(body))


def raw(encoding, pixels, step=None, big=0):
    height, width = pixels.shape[:2]
    row = pixels.nbytes // height
    rows = np.ascontiguousarray(pixels).reshape(height, -1).view(np.uint8).reshape(height, row)
    if step:
        rows = np.pad(rows, ((0, 0), (0, step - row)))
    return picture(encoding, width, height, step or row, rows.tobytes(), big)


def compressed(kind, data):
    return said("sensor_msgs/msg/CompressedImage", format=kind, data=list(data))


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


@pytest.mark.parametrize(
    ("encoding", "kind"), [("8SC1", "i1"), ("16SC1", "<i2"), ("32SC1", "<i4"), ("32FC1", "<f4"), ("64FC1", "<f8")]
)
def test_numbers_keep_their_kind(encoding, kind):
    numbers = np.array([[-3, 0, 7], [100, -128, 1]], kind)
    for big in (0, 1):
        found = image(raw(encoding, numbers.astype(numbers.dtype.newbyteorder(">")) if big else numbers, big=big))
        assert found.dtype == (numbers.dtype.newbyteorder(">") if big else numbers.dtype)
        np.testing.assert_array_equal(found, numbers)


def test_colours_of_16_bits_and_fractions_are_as_they_were():
    deep = np.arange(2 * 3 * 3, dtype="<u2").reshape(2, 3, 3) * 3000
    np.testing.assert_array_equal(image(raw("rgb16", deep)), deep)
    np.testing.assert_array_equal(image(raw("bgr16", deep)), deep[..., ::-1])
    fractions = deep.astype("<f4") / 7
    np.testing.assert_array_equal(image(raw("32FC3", fractions)), fractions)


def test_raw_pictures_lie_in_one_piece_of_memory_that_is_not_copied(data):
    message = raw("bgr8", np.zeros((400, 400, 3), np.uint8))
    first, second = image(message), image(message)
    assert np.shares_memory(first, second) and np.shares_memory(first, message.data["data"])
    del message
    assert first.sum() == 0


def test_a_step_that_is_too_short_is_not_meant():
    packed = np.arange(30, dtype=np.uint8)
    np.testing.assert_array_equal(image(picture("rgb8", 10, 1, 3, packed)), packed.reshape(1, 10, 3))


def test_pictures_in_json_are_pictures_too():
    found = image(said("sensor_msgs/msg/Image", width=2, height=1, encoding="bgr8", step=6, data=[1, 2, 3, 4, 5, 6]))
    np.testing.assert_array_equal(found, [[[3, 2, 1], [6, 5, 4]]])
    text = base64.b64encode(bytes([9, 8])).decode()
    found = image(said("foxglove.RawImage", width=2, height=1, encoding="mono8", step=2, data=text))
    np.testing.assert_array_equal(found, [[9, 8]])


def test_brightness_and_colour_apart_become_red_green_blue():
    grey = picture("yuv422_yuy2", 2, 1, 4, [50, 128, 200, 128])
    np.testing.assert_array_equal(image(grey), [[[50] * 3, [200] * 3]])
    planes = picture("nv12", 2, 2, 2, [100, 100, 100, 100, 128, 128])
    np.testing.assert_array_equal(image(planes), np.full((2, 2, 3), 100))


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
            found = image(compressed(kind, file.getvalue()))
            wanted = np.asarray(pillow.open(file))
            if found.ndim > wanted.ndim:
                wanted = np.dstack([wanted] * 3)
            assert found.shape == wanted.shape
            assert np.abs(found.astype(int) - wanted).max() <= (0 if kind == "png" else 4)
    depth = (smooth.astype(np.uint16) + 1) * 200
    file = io.BytesIO()
    pillow.fromarray(depth).save(file, "png")
    found = image(compressed("16UC1; compressedDepth", bytes(12) + file.getvalue()))
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
        picture("rgb8", 1000, 1000, 3000, bytes(10)),
        picture("rgb8", 2**32 - 1, 2**32 - 1, 2**32 - 1, bytes(10)),
        picture("rgb8", 0, 0, 0, b""),
        compressed("jpeg", b""),
        compressed("jpeg", b"\xff\xd8\xff\xe0junk"),
        compressed("png", b"\x89PNG\r\n\x1a\njunk"),
        said("foxglove.CompressedVideo", format="h264", data=[0, 0, 0, 1, 9]),
        said("sensor_msgs/msg/Image", width="wide", height=None, encoding="rgb8", step=[], data={"a": 1}),
        said("std_msgs/msg/String", text="no picture"),
    ],
)
def test_what_is_not_a_picture_is_said(message):
    with pytest.raises(errors.DecodeError, match="/camera"):
        image(message)


class Said:
    """A message with these fields."""

    topic, type = "/camera", "sensor_msgs/msg/PointCloud2"

    def __init__(self, **data):
        self.data = asof.Record(data)


def fields(*given):
    names = [("x", 0, 7), ("y", 4, 7), ("ring", 8, 4)] if not given else given
    return [asof.Record(name=name, offset=offset, datatype=kind, count=1) for name, offset, kind in names]


def test_clouds_are_structured_arrays_in_the_memory_of_the_message():
    data = np.frombuffer(b"".join(struct.pack("<ffHxx", at, -at, at) for at in range(6)), np.uint8)
    points_said = Said(height=1, width=6, point_step=12, row_step=72, is_bigendian=False, fields=fields(), data=data)
    points = cloud(points_said)
    assert points.dtype.names == ("x", "y", "ring") and points.shape == (6,)
    np.testing.assert_array_equal(points["y"], -np.arange(6))
    assert np.shares_memory(points, data)
    points_said.data.update(height=2, width=3, row_step=36)
    assert cloud(points_said).shape == (2, 3) and cloud(points_said)["ring"][1, 2] == 5
    points_said.data.update(height=2, width=2, row_step=36)
    np.testing.assert_array_equal(cloud(points_said)["x"], [[0, 1], [3, 4]])
    for wrong in [{"width": 999}, {"point_step": 4}, {"fields": fields(("x", 0, 99))}, {"row_step": 5, "height": 2}]:
        bad = Said(**{**points_said.data, **wrong})
        with pytest.raises(errors.DecodeError, match="/camera"):
            cloud(bad)


def test_clouds_in_json_are_clouds_too():
    data = struct.pack("<ffHxx", 1, 2, 3)
    words = {"height": 1, "width": 1, "point_step": 12, "row_step": 12, "is_bigendian": False}
    words["fields"] = [dict(field) for field in fields()]
    for given in (list(data), base64.b64encode(data).decode()):
        assert cloud(said("sensor_msgs/msg/PointCloud2", **words, data=given)).tolist() == [(1.0, 2.0, 3)]
    for wrong in [{"fields": [1]}, {"fields": [{}]}, {"point_step": "much"}, {"point_step": -1}, {"data": None}, {"width": 1e300}]:
        with pytest.raises(errors.DecodeError, match="/camera"):
            cloud(said("sensor_msgs/msg/PointCloud2", **{**words, "data": list(data), **wrong}))


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
