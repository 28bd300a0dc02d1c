"""ROS 1 bags as ROS 2: what asof transcodes against what rosbags makes of it. See ci/files/formats-compare."""

import contextlib
import io
import pathlib
import subprocess
import tempfile
from collections import Counter

from mcap.reader import make_reader
from rosbags.convert.converter import generate_message_converter
from rosbags.highlevel import AnyReader
from rosbags.typesys import Stores, get_typestore

RENAMED = {"tf/msg/tfMessage": "tf2_msgs/msg/TFMessage"}
ours = get_typestore(Stores.ROS2_HUMBLE)


def by_asof(path, convert):
    """Messages of ROS 2: time, topic, type and payload; and how many stayed as they were."""
    messages, kept = [], 0
    with tempfile.TemporaryDirectory() as folder:
        converted = pathlib.Path(folder) / "out.mcap"
        subprocess.run([convert, "--to-ros2", path, converted], check=True, stdout=subprocess.PIPE)
        with open(converted, "rb") as file:
            for schema, channel, message in make_reader(file).iter_messages():
                if channel.message_encoding == "cdr":
                    messages.append((message.log_time, channel.topic, schema.name, message.data))
                else:
                    assert channel.message_encoding == "ros1" and schema.encoding == "ros1msg"
                    kept += 1
    return messages, kept


def with_own_types(reader):
    """ROS 2's types, and those of a bag that ROS 2 does not have, by the bag's own definitions."""
    store = get_typestore(Stores.ROS2_HUMBLE)
    own = {name: fields for name, fields in reader.typestore.fielddefs.items() if name not in store.fielddefs}
    store.register(own)
    return store


def compare(path, convert):
    """How many messages became ROS 2, how many did not, and what is different, if anything."""
    found, kept = by_asof(path, convert)
    transcoded = {(topic, kind) for _, topic, kind, _ in found}
    wanted, converters, standard = [], {}, 0
    with AnyReader([path]) as reader:
        store = with_own_types(reader)
        for connection, time, data in reader.messages():
            kind = RENAMED.get(connection.msgtype, connection.msgtype)
            standard += kind in ours.fielddefs
            if (connection.topic, kind) not in transcoded:
                continue
            if kind not in converters:
                with contextlib.redirect_stdout(io.StringIO()):
                    converters[kind] = generate_message_converter(
                        reader.typestore, store, connection.msgtype, kind, {}, src_is2=False, dst_is2=True
                    )
            wanted.append((time, connection.topic, kind, bytes(converters[kind](data))))
    faults = Counter(kind for _, _, kind, _ in (Counter(wanted) - Counter(found)).elements())
    lacking = standard - sum(kind in ours.fielddefs for _, _, kind, _ in found)
    return len(found), kept, dict(faults), lacking
