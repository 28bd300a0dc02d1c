"""Two made recordings in which much is missing, and queries over them: nulls, transforms that nobody sends, topics without
messages, stamps that are equal or go back, and several recordings. See ci/query/sql-compare.

A query is a text for both engines, or a pair: what asof is asked, and what DuckDB is.
"""

import json

from mcap.writer import Writer
from mcap_ros2.writer import Writer as Ros2Writer

SECOND = 1_000_000_000
STARTS = {"hard_a.mcap": 1_700_000_000 * SECOND, "hard_b.mcap": 1_700_086_400 * SECOND}

HEADER = """std_msgs/Header header
float64 x
int32 n
================================================================================
MSG: std_msgs/Header
builtin_interfaces/Time stamp
string frame_id
"""
TRANSFORMS = """geometry_msgs/TransformStamped[] transforms
================================================================================
MSG: geometry_msgs/TransformStamped
std_msgs/Header header
string child_frame_id
geometry_msgs/Transform transform
================================================================================
MSG: std_msgs/Header
builtin_interfaces/Time stamp
string frame_id
================================================================================
MSG: geometry_msgs/Transform
geometry_msgs/Vector3 translation
geometry_msgs/Quaternion rotation
================================================================================
MSG: geometry_msgs/Vector3
float64 x
float64 y
float64 z
================================================================================
MSG: geometry_msgs/Quaternion
float64 x
float64 y
float64 z
float64 w
"""
READING = {
    "type": "object",
    "properties": {
        "seq": {"type": "integer"},
        "value": {"type": "number"},
        "label": {"type": "string"},
        "key": {"type": "string"},
        "pos": {"type": "object", "properties": {"x": {"type": "number"}, "y": {"type": "number"}}},
        "list": {"type": "array", "items": {"type": "number"}},
    },
}


def header(nanos, frame="map"):
    return {"stamp": {"sec": nanos // SECOND, "nanosec": nanos % SECOND}, "frame_id": frame}


def write(folder):
    """The two recordings; the second has no `/only_a`, other readings, and transforms of its own."""
    for number, (name, start) in enumerate(STARTS.items()):
        ros = folder / f"ros-{name}"
        with open(ros, "wb") as file:
            writer = Ros2Writer(file)
            messages(writer, start, number)
            writer.finish()
        with open(folder / f"json-{name}", "wb") as file:
            writer = Writer(file)
            writer.start()
            readings(writer, start, number)
            writer.finish()


def messages(writer, start, number):
    item = writer.register_msgdef("made/msg/Item", HEADER)
    transforms = writer.register_msgdef("tf2_msgs/msg/TFMessage", TRANSFORMS)

    def item_at(topic, at, stamp, x, n):
        writer.write_message(topic, item, {"header": header(stamp), "x": x, "n": n}, at, at, n)

    for n in range(100):
        at = start + n * SECOND // 10
        item_at("/steady", at, at, n / 4 + number, n)
        # Neighbours are swapped.
        item_at("/back", at, start + (n ^ 1) * SECOND // 10, n / 2, n)
        # Four equal messages with the same stamp and log time.
        item_at("/equal", start + n // 4 * SECOND // 5, start + n // 4 * SECOND // 5, n // 4, n // 4)
        if number == 0:
            item_at("/only_a", at, at, float(n), n)
        # The first second has no transform, and some of the later ones are missing.
        if n >= 10 and n % 7:
            translation = {"x": n * 1.0 + 1000 * number, "y": 0.0, "z": 0.0}
            rotation = {"x": 0.0, "y": 0.0, "z": 0.0, "w": 1.0}
            sent = {"header": header(at), "child_frame_id": "base", "transform": {"translation": translation, "rotation": rotation}}
            writer.write_message("/tf", transforms, {"transforms": [sent]}, at, at, n)


def readings(writer, start, number):
    schema = writer.register_schema("Reading", "jsonschema", json.dumps(READING).encode())
    topics = {name: writer.register_channel(name, "json", schema) for name in ("/reading", "/other", "/silent")}

    def write_at(topic, at, reading):
        writer.add_message(topics[topic], at, json.dumps(reading).encode(), at)

    for n in range(60):
        at = start + n * SECOND // 10
        reading = {"seq": n}
        if n % 3:
            reading["value"] = n / 2 + number
        if n % 4:
            reading["label"] = f"l{n % 4}"
        if n % 5:
            reading["key"] = f"k{n % 3}"
        if n % 2:
            reading["pos"] = {"x": n * 1.5} | ({"y": -n * 1.0} if n % 6 == 1 else {})
        if n % 10 != 9:
            reading["list"] = [float(place) for place in range(n % 4)]
        write_at("/reading", at, reading)
        if n % 2:
            other = {"seq": 1000 + n, "value": n * 2.0} | ({"key": f"k{n % 3}"} if n % 4 == 1 else {})
            write_at("/other", at, other)


# Of the JSON recording alone.
MISSING = [
    'SELECT count(*), count(seq), count(value), count(label), count(list) FROM "/reading"',
    'SELECT sum(value), avg(value), min(value), max(value), stddev_samp(value) FROM "/reading"',
    'SELECT count(*) FROM "/reading" WHERE value IS NULL',
    'SELECT count(*) FROM "/reading" WHERE value <> 1',
    'SELECT count(*) FROM "/reading" WHERE NOT (value > 2)',
    'SELECT count(*) FROM "/reading" WHERE NOT (value > 2) OR value IS NULL',
    'SELECT seq, coalesce(value, -1) FROM "/reading" ORDER BY seq',
    'SELECT label, count(*), count(value), sum(value) FROM "/reading" GROUP BY label ORDER BY label NULLS FIRST',
    'SELECT count(DISTINCT label), count(DISTINCT value), count(DISTINCT key) FROM "/reading"',
    'SELECT count(pos.x), count(pos.y), sum(pos.x), max(pos.y) FROM "/reading"',
    'SELECT count(*) FILTER (WHERE pos.x IS NULL), count(*) FILTER (WHERE pos.y IS NOT NULL) FROM "/reading"',
    'SELECT seq, pos.x + pos.y FROM "/reading" ORDER BY seq',
    'SELECT count(*) FROM "/reading" WHERE pos.x > 10 AND pos.y < 0',
    'SELECT count(*) FROM "/reading" WHERE value IN (1, 2, NULL)',
    'SELECT count(*) FROM "/reading" WHERE value NOT IN (1, 2)',
    'SELECT count(*) FROM "/reading" WHERE value NOT IN (1, NULL)',
    'SELECT seq, value FROM "/reading" ORDER BY value NULLS FIRST, seq',
    'SELECT seq, value FROM "/reading" ORDER BY value DESC NULLS LAST, seq LIMIT 15',
    'SELECT seq, nullif(value, 1), CASE WHEN value > 5 THEN 1 WHEN value IS NULL THEN 2 ELSE 3 END FROM "/reading" ORDER BY seq',
    'SELECT seq, lag(value) OVER (ORDER BY seq), sum(value) OVER (ORDER BY seq ROWS 3 PRECEDING) FROM "/reading" ORDER BY seq',
    'SELECT label, rank() OVER (ORDER BY label NULLS LAST), seq FROM "/reading" ORDER BY seq',
    'SELECT seq, list[1], list[3] FROM "/reading" ORDER BY seq',
    'SELECT count(*) FROM "/reading" WHERE list[2] IS NULL',
    'SELECT count(*) FROM "/reading" a JOIN "/other" b ON a.key = b.key',
    'SELECT count(*), count(b.seq) FROM "/reading" a LEFT JOIN "/other" b ON a.key = b.key AND a.log_time = b.log_time',
    'SELECT count(*) FROM "/reading" a JOIN "/other" b ON a.key IS NOT DISTINCT FROM b.key',
    'SELECT count(*) FROM "/reading" WHERE key IN (SELECT key FROM "/other")',
    'SELECT count(*) FROM "/reading" a WHERE NOT EXISTS (SELECT 1 FROM "/other" b WHERE b.key = a.key)',
    'SELECT key, count(*) FROM "/reading" GROUP BY key HAVING count(value) > 3 ORDER BY key NULLS LAST',
    # As of, with keys that are missing: they match nothing.
    (
        'SELECT a.seq, b.seq FROM "/reading" a ASOF JOIN "/other" b MATCH_CONDITION (a.log_time >= b.log_time) ON a.key = b.key ORDER BY a.seq',
        'SELECT a.seq, b.seq FROM "/reading" a ASOF LEFT JOIN "/other" b ON a.key = b.key AND a.log_time >= b.log_time ORDER BY a.seq',
    ),
    (
        'SELECT a.seq, b.seq FROM "/reading" a ASOF JOIN "/other" b MATCH_CONDITION (a.log_time < b.log_time) ON a.key = b.key ORDER BY a.seq',
        'SELECT a.seq, b.seq FROM "/reading" a ASOF LEFT JOIN "/other" b ON a.key = b.key AND a.log_time < b.log_time ORDER BY a.seq',
    ),
    # A topic without messages.
    'SELECT count(*), sum(value), max(label), count(pos.x) FROM "/silent"',
    'SELECT count(*) FROM (SELECT label FROM "/silent" GROUP BY label) s',
    'SELECT count(*), count(b.seq) FROM "/reading" a LEFT JOIN "/silent" b ON a.key = b.key',
    'SELECT count(*) FROM "/reading" WHERE key NOT IN (SELECT key FROM "/silent")',
    'SELECT count(*) FROM "/reading" WHERE EXISTS (SELECT 1 FROM "/silent")',
    'SELECT count(*), sum(value) FROM (SELECT value FROM "/reading" UNION ALL SELECT value FROM "/silent") u',
    (
        'SELECT count(*), count(b.seq) FROM "/reading" a ASOF JOIN "/silent" b MATCH_CONDITION (a.log_time >= b.log_time)',
        'SELECT count(*), count(b.seq) FROM "/reading" a ASOF LEFT JOIN "/silent" b ON a.log_time >= b.log_time',
    ),
    'SELECT count(*) FROM "/silent" WHERE log_time >= $t(1)',
]

# Of the ROS recording alone: stamps that go back, equal ones, and transforms.
ORDER = [
    'SELECT count(*), $ns(min(stamp)), $ns(max(stamp)), count(DISTINCT stamp) FROM "/back"',
    'SELECT $ns(stamp), n FROM "/back" ORDER BY stamp',
    'SELECT $ns(log_time), n FROM "/back" ORDER BY log_time LIMIT 20',
    'SELECT count(*) FROM "/back" WHERE stamp < log_time',
    'SELECT count(*) FROM "/back" WHERE stamp >= $t(2) AND stamp < $t(4)',
    'SELECT max(gap), min(gap) FROM (SELECT $ns(stamp) - lag($ns(stamp)) OVER (ORDER BY log_time) AS gap FROM "/back") g',
    (
        'SELECT a.n, b.n FROM "/steady" a ASOF JOIN "/back" b MATCH_CONDITION (a.stamp >= b.stamp) ORDER BY a.n',
        'SELECT a.n, b.n FROM "/steady" a ASOF LEFT JOIN "/back" b ON a.stamp >= b.stamp ORDER BY a.n',
    ),
    (
        'SELECT a.n, b.n FROM "/steady" a ASOF JOIN "/back" b MATCH_CONDITION (a.stamp > b.stamp) ORDER BY a.n',
        'SELECT a.n, b.n FROM "/steady" a ASOF LEFT JOIN "/back" b ON a.stamp > b.stamp ORDER BY a.n',
    ),
    (
        'SELECT a.n, b.n FROM "/back" a ASOF JOIN "/steady" b MATCH_CONDITION (a.stamp < b.stamp) ORDER BY a.n',
        'SELECT a.n, b.n FROM "/back" a ASOF LEFT JOIN "/steady" b ON a.stamp < b.stamp ORDER BY a.n',
    ),
    'SELECT count(*), count(DISTINCT stamp), count(DISTINCT log_time) FROM "/equal"',
    'SELECT $ns(stamp), count(*), sum(x) FROM "/equal" GROUP BY stamp ORDER BY 1',
    'SELECT count(*) FROM "/equal" a JOIN "/equal" b ON a.stamp = b.stamp',
    'SELECT n, dense_rank() OVER (ORDER BY stamp) FROM "/equal" ORDER BY n',
    (
        'SELECT a.n, b.n FROM "/steady" a ASOF JOIN "/equal" b MATCH_CONDITION (a.stamp >= b.stamp) ORDER BY a.n',
        'SELECT a.n, b.n FROM "/steady" a ASOF LEFT JOIN "/equal" b ON a.stamp >= b.stamp ORDER BY a.n',
    ),
    (
        'SELECT a.n, b.n FROM "/equal" a ASOF JOIN "/steady" b MATCH_CONDITION (a.stamp <= b.stamp) ORDER BY a.n',
        'SELECT a.n, b.n FROM "/equal" a ASOF LEFT JOIN "/steady" b ON a.stamp <= b.stamp ORDER BY a.n',
    ),
    # The frame `nowhere` does not exist, and `base` has no transform before its first message.
    (
        "SELECT count(*), count(tf('map', 'nowhere', stamp)['translation']['x']) FROM \"/steady\"",
        'SELECT count(*), 0 FROM "/steady"',
    ),
    (
        "SELECT sum(tf('map', 'nowhere', stamp)['translation']['x']), count(*) FILTER (WHERE tf('map', 'nowhere', stamp) IS NULL) FROM \"/steady\"",
        'SELECT NULL, count(*) FROM "/steady"',
    ),
    (
        "SELECT count(transform_point('map', 'nowhere', stamp, named_struct('x', 1, 'y', 0, 'z', 0))['x']) FROM \"/steady\" WHERE n < 50",
        "SELECT 0",
    ),
    (
        "SELECT count(*) FROM \"/steady\" WHERE tf('map', 'base', stamp)['translation']['x'] IS NULL",
        'SELECT count(*) FROM "/steady" WHERE stamp < (SELECT min(log_time) FROM "/tf") OR stamp > (SELECT max(log_time) FROM "/tf")',
    ),
    (
        "SELECT n, tf('map', 'base', stamp)['translation']['x'] FROM \"/steady\" WHERE n % 7 <> 0 ORDER BY n",
        'SELECT s.n, t.transforms[1].transform.translation.x FROM "/steady" s LEFT JOIN "/tf" t ON s.stamp = t.log_time WHERE s.n % 7 <> 0 ORDER BY s.n',
    ),
    (
        "SELECT n, tf('map', 'base', stamp)['translation']['x'] FROM \"/steady\" WHERE n % 7 = 0 AND n > 10 AND n < 98 ORDER BY n",
        # Between two samples: here on a straight line.
        'SELECT n, n * 1.0 FROM "/steady" WHERE n % 7 = 0 AND n > 10 AND n < 98 ORDER BY n',
    ),
]

# Of both, by the column `recording`.
SEVERAL = [
    'SELECT recording, count(*), sum(x), $ns(min(log_time)) FROM "/steady" GROUP BY recording ORDER BY recording',
    'SELECT count(*), avg(x) FROM "/steady"',
    'SELECT recording, count(*) FROM "/only_a" GROUP BY recording',
    'SELECT count(*) FROM "/steady" a JOIN "/back" b ON a.recording = b.recording AND a.n = b.n',
    'SELECT count(DISTINCT recording), count(DISTINCT n), count(*) FROM "/equal"',
    'SELECT recording, n, x - lag(x) OVER (PARTITION BY recording ORDER BY log_time) FROM "/steady" ORDER BY recording, n LIMIT 120',
    (
        'SELECT a.recording, count(*), count(b.n), sum(b.x) FROM "/steady" a ASOF JOIN "/equal" b MATCH_CONDITION (a.stamp >= b.stamp) GROUP BY 1 ORDER BY 1',
        'SELECT a.recording, count(*), count(b.n), sum(b.x) FROM "/steady" a ASOF LEFT JOIN "/equal" b ON a.recording = b.recording AND a.stamp >= b.stamp GROUP BY 1 ORDER BY 1',
    ),
    (
        'SELECT a.recording, count(*), count(b.n) FROM "/steady" a ASOF JOIN "/only_a" b MATCH_CONDITION (a.log_time > b.log_time) GROUP BY 1 ORDER BY 1',
        'SELECT a.recording, count(*), count(b.n) FROM "/steady" a ASOF LEFT JOIN "/only_a" b ON a.recording = b.recording AND a.log_time > b.log_time GROUP BY 1 ORDER BY 1',
    ),
    (
        # Each recording has its own zero.
        "SELECT recording, count(*) FROM \"/steady\" WHERE log_time >= '+2s' AND log_time < '+3.5s' GROUP BY 1 ORDER BY 1",
        'SELECT s.recording, count(*) FROM "/steady" s JOIN starts z ON z.recording = s.recording WHERE s.log_time - z.start >= 2000000000 AND s.log_time - z.start < 3500000000 GROUP BY 1 ORDER BY 1',
    ),
    (
        # And its own transforms.
        "SELECT recording, n, tf('map', 'base', stamp)['translation']['x'] FROM \"/steady\" WHERE n % 7 <> 0 AND n > 10 ORDER BY 1, 2",
        'SELECT s.recording, s.n, t.transforms[1].transform.translation.x FROM "/steady" s JOIN "/tf" t ON s.recording = t.recording AND s.stamp = t.log_time WHERE s.n > 10 ORDER BY 1, 2',
    ),
]
