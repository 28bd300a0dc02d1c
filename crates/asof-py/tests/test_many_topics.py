"""A recording of 384 topics: what is read of one of them makes nothing for the others."""

from __future__ import annotations

import asof
import pytest
from asof import _asof
from mcap.writer import Writer

TOPICS = 384


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    path = tmp_path_factory.mktemp("many") / "many.mcap"
    with open(path, "wb") as file:
        writer = Writer(file)
        writer.start()
        for number in range(TOPICS):
            # Each with a type of its own.
            kind = writer.register_schema(f"own/msg/Kind{number}", "ros2msg", f"float64 x{number}\nint32 n".encode())
            channel = writer.register_channel(f"/topic_{number:03}", "cdr", kind)
            payload = b"\0\1\0\0" + bytes(8) + number.to_bytes(4, "little")
            writer.add_message(channel, 1_000 + number, payload, 1_000 + number)
        writer.finish()
    return asof.open(path)


READS = {
    "topic": (lambda rec: rec["/topic_123"].name, 0),
    "info": (lambda rec: rec["/topic_123"].info.messages, 0),
    "repr": (lambda rec: (repr(rec), repr(rec["/topic_123"])), 0),
    "raw": (lambda rec: sum(len(message) for message in rec.messages()), 0),
    "at": (lambda rec: len(rec.at("+1s")), 0),
    "field": (lambda rec: [message.n for message in rec["/topic_123"]], 0),
    # The columns, those of the reading, and its threads.
    "to_numpy": (lambda rec: rec["/topic_123"].to_numpy("n"), 8),
    "to_polars": (lambda rec: rec["/topic_123"].to_polars(), 8),
    "join": (lambda rec: rec.join("/topic_123", "/topic_124").to_polars(), 32),
    "resample": (lambda rec: rec.resample("/topic_123", hz=10).to_polars(), 16),
}


@pytest.mark.parametrize("name", READS)
def test_one_topic_is_read_without_the_types_of_all(many, name):
    read, most = READS[name]
    before = _asof.decoders_made()
    read(many)
    assert _asof.decoders_made() - before <= most


def test_a_query_makes_the_types_that_it_names(many):
    try:
        before = _asof.decoders_made()
        assert many.sql("SELECT n FROM topic_123").to_polars()["n"].to_list() == [123]
    except asof.errors.UnavailableError:
        pytest.skip("this build has no engine for SQL")
    assert _asof.decoders_made() - before <= 32
