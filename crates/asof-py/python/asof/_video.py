"""Pictures of recorded video, by time. Decoding needs PyAV (``pip install av``)."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import numpy as np

from asof import _asof
from asof._recording import Recording
from asof.errors import DecodeError, UnavailableError

#: PyAV's names of codecs.
_DECODERS = {"H.264": "h264", "H.265": "hevc", "VP9": "vp9", "AV1": "libdav1d"}


def is_video(message: _asof.Message) -> bool:
    """Whether a message is a packet of video, which is not a picture by itself."""
    return _asof.video_packet(message) is not None


class Video:
    """The pictures of a topic of video.

    The times of its packets are read once. A picture is decoded from the last keyframe before it, or from the picture that was
    decoded last, if that is nearer: frames in order cost one packet each.
    """

    def __init__(self, rec: Recording, topic: str) -> None:
        self._rec, self._topic = rec, topic
        #: The log times of packets with a picture, and of those that a decoder can start with.
        self.times: list[int] = []
        self._keys: list[int] = []
        for message in rec.messages(topic):
            packet = _asof.video_packet(message)
            if packet is None or not (packet[1] or self._keys):
                # Nothing can be decoded before the first keyframe.
                continue
            _, is_key, has_picture, _ = packet
            if is_key:
                self._keys.append(message.log_time)
            if has_picture:
                self.times.append(message.log_time)
        self._decoder: Any = None
        self._last: tuple[int, np.ndarray] | None = None

    def at(self, time: int) -> np.ndarray | None:
        """The last picture at or before a time, as height x width x 3; None before the first one."""
        place = bisect_right(self.times, time)
        if not place:
            return None
        wanted = self.times[place - 1]
        if self._last is not None and self._last[0] == wanted:
            return self._last[1]
        key = self._keys[bisect_right(self._keys, wanted) - 1]
        if self._last is not None and key <= self._last[0] < wanted:
            start = self._last[0] + 1
        else:
            self._decoder, start = None, key
        picture = None
        for message in self._rec.messages(self._topic, start=start, end=wanted):
            packet = _asof.video_packet(message)
            if packet is not None:
                picture = self._decode(packet, message)
        if picture is None:
            self._decoder = self._last = None
            raise DecodeError(f"the video on {self._topic} has no picture that can be decoded at {wanted}")
        self._last = wanted, picture
        return picture

    def _decode(self, packet: tuple[str, bool, bool, bytes], message: _asof.Message) -> np.ndarray | None:
        av = _av()
        codec, _, _, data = packet
        if self._decoder is None:
            self._decoder = av.CodecContext.create(_DECODERS.get(codec, codec.lower()), "r")
            # A robot's video has no pictures that depend on later ones: each packet gives its own at once.
            self._decoder.flags |= av.codec.context.Flags.low_delay
            self._decoder.thread_count = 1
        try:
            frames = self._decoder.decode(av.Packet(data))
        except av.error.FFmpegError as error:
            raise DecodeError(f"{self._topic} at {message.log_time}: {error}") from None
        return frames[-1].to_ndarray(format="rgb24") if frames else None


def _av() -> Any:
    try:
        import av
    except ImportError:
        raise UnavailableError("decoding video needs PyAV: pip install av") from None
    return av
