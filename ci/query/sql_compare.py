"""Holds the answers of `asof sql` against DuckDB's and polars' over the same recordings, exported to Parquet.

usage: sql_compare.py ASOF RECORDINGS [PART OF A QUERY]

In a query, `$ns(x)` is a time in nanoseconds and `$t(2.5)` the instant 2.5 s after the start of the recording: each engine
has its own words for these, and DuckDB has no time zones with nanoseconds.
"""

import math
import pathlib
import re
import subprocess
import sys
import tempfile

import duckdb
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import sql_hard

DEMO = "demo.mcap"
# Both made recordings as one database.
ALL_MADE = "both made recordings"
TIMES = ("log_time", "publish_time", "stamp")

# Queries whose text is valid in both engines.
QUERIES = [
    # Aggregates.
    (DEMO, 'SELECT count(*) FROM "/imu"'),
    (DEMO, 'SELECT avg(twist.twist.linear.x), min(twist.twist.linear.x), max(twist.twist.linear.x) FROM "/odom"'),
    (DEMO, 'SELECT stddev_samp(angular_velocity.z), var_pop(angular_velocity.z) FROM "/imu"'),
    (DEMO, 'SELECT $ns(min(log_time)), $ns(max(log_time)), count(DISTINCT log_time) FROM "/scan"'),
    (DEMO, 'SELECT sum(range_max), count(*) FILTER (WHERE range_max > 1) FROM "/scan"'),
    (DEMO, 'SELECT count(*), count(stamp), median(pose.pose.position.x) FROM "/odom"'),
    ("husky-gps-imu-bz2.bag", 'SELECT avg(latitude), avg(longitude), max(altitude) FROM "/fix"'),
    ("husky-gps-imu-bz2.bag", 'SELECT status.status, count(*) FROM "/fix" GROUP BY status.status ORDER BY 1'),
    ("turtlesim-lz4.bag", 'SELECT avg(x), avg(y), corr(x, y) FROM "/turtle1/pose"'),
    ("turtlesim-lz4.bag", 'SELECT r, g, b, count(*) FROM "/turtle1/color_sensor" GROUP BY r, g, b ORDER BY r, g, b'),
    ("capstan-robot.mcap", 'SELECT data, count(*) AS n FROM "/system/state" GROUP BY data ORDER BY n DESC, data'),
    ("tb3-imu.bag", 'SELECT avg(linear_acceleration.z), max(abs(angular_velocity.x)) FROM "/imu"'),
    ("go2-vicon.db3", 'SELECT count(*), $ns(min(log_time)), $ns(max(log_time)) FROM "/vicon/UnitreeGo2/UnitreeGo2"'),
    # Filters.
    (DEMO, 'SELECT $ns(log_time), pose.pose.position.x FROM "/odom" WHERE pose.pose.position.x > 0.5 ORDER BY 1'),
    (DEMO, 'SELECT count(*) FROM "/imu" WHERE log_time >= $t(2.5) AND log_time < $t(7.25)'),
    (DEMO, 'SELECT avg(angular_velocity.z) FROM "/imu" WHERE log_time BETWEEN $t(1) AND $t(3) AND angular_velocity.z > 0'),
    ("husky-gps-imu-bz2.bag", 'SELECT count(*), avg(orientation.w) FROM "/imu/data" WHERE log_time > $t(10) AND orientation.w < 0.9'),
    ("turtlesim-lz4.bag", 'SELECT $ns(log_time), x, y FROM "/turtle2/pose" WHERE linear_velocity > 0 ORDER BY 1 LIMIT 50'),
    ("scan-cmdvel.db3", 'SELECT count(*) FROM "/cmd_vel" WHERE linear.x <> 0 OR angular.z <> 0'),
    ("slam-poses-unordered.bag", 'SELECT count(*), avg(pose.position.x) FROM "groundtruth" WHERE pose.position.z > 0'),
    # Lists.
    (DEMO, 'SELECT $ns(log_time), ranges[1], ranges[10] FROM "/scan" ORDER BY 1 LIMIT 20'),
    ("stage-scan-lz4.bag", 'SELECT avg(ranges[100]), max(ranges[1]) FROM "/base_scan"'),
    ("scan-cmdvel.db3", 'SELECT count(*) FROM "/scan" WHERE ranges[1] > 0.5'),
    # Joins, unions and subqueries.
    (DEMO, 'SELECT count(*), avg(a.pose.pose.position.x - b.pose.pose.position.x) FROM "/odom" a JOIN "/odom" b ON a.log_time = b.log_time'),
    (DEMO, "SELECT topic, count(*) FROM (SELECT 'imu' AS topic, log_time FROM \"/imu\" UNION ALL SELECT 'odom', log_time FROM \"/odom\" UNION ALL SELECT 'scan', log_time FROM \"/scan\") u GROUP BY topic ORDER BY topic"),
    (DEMO, 'SELECT $ns(log_time) / 1000000000 AS s, count(*), avg(twist.twist.linear.x) FROM "/odom" GROUP BY 1 ORDER BY 1'),
    ("stage-scan-lz4.bag", 'SELECT count(*), sum(s.angle_max) FROM "/base_scan" s JOIN "/base_pose_ground_truth" p ON s.stamp = p.stamp'),
    ("turtlesim-lz4.bag", 'SELECT count(*) FROM "/turtle1/pose" a WHERE a.x > (SELECT avg(x) FROM "/turtle2/pose")'),
    ("jackal-imu-bz2.bag", 'SELECT count(*) FROM "/imu/data" WHERE log_time IN (SELECT log_time FROM "/jackal_velocity_controller/odom")'),
    ("nav2-turtlebot-zstd.mcap", 'WITH moving AS (SELECT log_time, twist.twist.linear.x AS v FROM "/odom" WHERE twist.twist.linear.x > 0.01) SELECT count(*), avg(v), $ns(min(log_time)) FROM moving'),
    # Windows.
    (DEMO, 'SELECT max(gap) FROM (SELECT $ns(log_time) - lag($ns(log_time)) OVER (ORDER BY log_time) AS gap FROM "/imu") g'),
    (DEMO, 'SELECT $ns(log_time), avg(twist.twist.linear.x) OVER (ORDER BY log_time ROWS BETWEEN 4 PRECEDING AND CURRENT ROW) FROM "/odom" ORDER BY 1'),
    ("husky-gps-imu-bz2.bag", 'SELECT n, count(*) FROM (SELECT ntile(4) OVER (ORDER BY log_time) AS n FROM "/husky_velocity_controller/odom") t GROUP BY n ORDER BY n'),
    ("crazyflie-vicon.mcap", 'SELECT sum(d) FROM (SELECT abs(pose.position.x - lag(pose.position.x) OVER (ORDER BY log_time)) AS d FROM "/vicon/Group466CF/Group466CF/pose") t'),
    ("auv-clean.db3", 'SELECT $ns(log_time), row_number() OVER (ORDER BY log_time) FROM "/gps_odom" ORDER BY 1'),
]

# recording, left and right topic, time of each, strategy, tolerance in milliseconds, a field of the right topic.
JOINS = [
    (DEMO, "/scan", "/odom", "stamp", "stamp", "backward", None, "pose.pose.position.x"),
    (DEMO, "/odom", "/imu", "log_time", "log_time", "backward", 3, "angular_velocity.z"),
    (DEMO, "/scan", "/imu", "stamp", "stamp", "nearest", 2, "angular_velocity.z"),
    (DEMO, "/scan", "/odom", "stamp", "stamp", "forward", None, "pose.pose.position.x"),
    ("husky-gps-imu-bz2.bag", "/fix", "/imu/data", "stamp", "stamp", "backward", 20, "orientation.w"),
    ("husky-gps-imu-bz2.bag", "/fix", "/husky_velocity_controller/odom", "stamp", "stamp", "nearest", 50, "pose.pose.position.x"),
    ("auv-clean.db3", "/gps_odom", "/modem_imu", "stamp", "stamp", "nearest", 100, "orientation.w"),
    ("slam-poses-unordered.bag", "ORB-SLAM", "groundtruth", "stamp", "stamp", "nearest", 20, "pose.position.x"),
    ("slam-poses-unordered.bag", "S-PTAM", "groundtruth", "stamp", "stamp", "backward", None, "pose.position.x"),
    ("stage-scan-lz4.bag", "/base_scan", "/base_pose_ground_truth", "stamp", "stamp", "forward", 100, "pose.pose.position.x"),
    ("jackal-imu-bz2.bag", "/imu/data", "/jackal_velocity_controller/odom", "log_time", "log_time", "backward", 10, "pose.pose.position.x"),
    ("nav2-turtlebot-zstd.mcap", "/amcl_pose", "/odom", "stamp", "stamp", "nearest", 500, "pose.pose.position.x"),
    ("crazyflie-vicon.mcap", "/cf_logpos", "/vicon/Group466CF/Group466CF/pose", "log_time", "log_time", "backward", None, "pose.position.x"),
]


class Recording:
    """A recording, its tables as other engines see them, and when it starts."""

    def __init__(self, asof, path, folder):
        self.asof, self.paths = asof, [path]
        tables = folder / (path.name + ".tables")
        # A recording with a message that cannot be decoded ends with 3, and has all others.
        export = subprocess.run([asof, "export", path, "-o", tables, "--format", "parquet", "-q"])
        assert export.returncode in (0, 3), f"{path} is not exported"
        self.frames = {}
        for file in sorted(tables.glob("*.parquet")):
            self.frames[file.stem] = in_nanoseconds(pq.read_table(file))
        self.start = min(pc.min(frame["log_time"]).as_py() for frame in self.frames.values() if len(frame))
        self.starts = pa.table({"recording": [str(path)], "start": [self.start]})

    def frame(self, topic):
        name = topic.lstrip("/").replace("/", ".")
        if name not in self.frames:
            # A topic without messages is not exported, but its columns are known.
            self.frames[name] = in_nanoseconds(self.ours(f'SELECT * FROM "{topic}" LIMIT 0'))
        return self.frames[name]

    def ours(self, sql):
        sql = re.sub(r"\$t\(([^)]*)\)", r"'+\1s'", sql)
        answer = subprocess.run([self.asof, "sql", *self.paths, "--arrow", "-", "-q", with_casts(sql)], capture_output=True)
        assert answer.returncode in (0, 3), f"{sql}: {answer.stderr.decode()}"
        return pa.ipc.open_stream(answer.stdout).read_all()

    def duckdb(self, sql):
        def instant(found):
            return str(self.start + round(float(found[1]) * 1e9))

        sql = re.sub(r"\$t\(([^)]*)\)", instant, sql).replace("$ns", "")
        # Times in whole seconds are equal in both.
        sql = sql.replace("(log_time) / 1000000000", "(log_time) // 1000000000")
        database = duckdb.connect()
        database.register("starts", self.starts)
        for topic in set(re.findall(r'(?:FROM|JOIN) "([^"]*)"', sql)):
            database.register(topic, self.frame(topic))
        return database.execute(sql).fetchall()


class Several(Recording):
    """Several recordings as one database: each table has the rows of all, and the column `recording`."""

    def __init__(self, recordings):
        self.asof, self.paths = recordings[0].asof, [path for one in recordings for path in one.paths]
        self.start = min(one.start for one in recordings)
        self.starts = pa.concat_tables(one.starts for one in recordings)
        self.frames = {}
        for name in sorted({name for one in recordings for name in one.frames}):
            named = [with_name(one.frames[name], one.paths[0]) for one in recordings if name in one.frames]
            self.frames[name] = pa.concat_tables(named, promote_options="default")


def with_name(frame, path):
    column = pa.array([str(path)] * len(frame), pa.string())
    if "recording" in frame.column_names:
        return frame.set_column(frame.column_names.index("recording"), "recording", column)
    return frame.append_column("recording", column)


def with_casts(sql):
    """`$ns(min(log_time))` as a cast, brackets and all."""
    while (start := sql.find("$ns(")) >= 0:
        depth, end = 0, start + 3
        while True:
            depth += {"(": 1, ")": -1}.get(sql[end], 0)
            if depth == 0:
                break
            end += 1
        sql = f"{sql[:start]}CAST({sql[start + 4:end]} AS BIGINT){sql[end + 1:]}"
    return sql


def in_nanoseconds(table):
    for name in TIMES:
        if name in table.column_names:
            place = table.column_names.index(name)
            column = table[name]
            if pa.types.is_timestamp(column.type):
                table = table.set_column(place, name, column.cast(pa.timestamp("ns", "UTC")).cast(pa.int64()))
    return table


def with_polars(recording, left, right, left_time, right_time, strategy, tolerance, field):
    """The left times and the field, by polars."""
    first, *rest = field.split(".")
    values = recording.frame(right)[first]
    for name in rest:
        values = pc.struct_field(values, name)
    times = recording.frame(left)[left_time]
    ours = polars.DataFrame({"t": times.to_pylist(), "place": range(len(times))})
    theirs = polars.DataFrame({"t": recording.frame(right)[right_time].to_pylist(), "other": recording.frame(right)[right_time].to_pylist(), "value": values.to_pylist()})
    # Both sorts are stable.
    joined = ours.sort("t", maintain_order=True).join_asof(
        theirs.sort("t", maintain_order=True),
        on="t",
        strategy=strategy,
        tolerance=None if tolerance is None else tolerance * 1_000_000,
    )
    rows = joined.sort("t", "place").iter_rows(named=True)
    return [(row["t"], row["other"], row["value"]) for row in rows]


def join_of(left, right, left_time, right_time, strategy, tolerance, field):
    a, b = f"a.{left_time}", f"b.{right_time}"
    within = "" if tolerance is None else f"INTERVAL '{tolerance} ms'"
    if strategy == "nearest":
        condition = f"nearest({a}, {b}{', ' + within if within else ''})"
    elif strategy == "backward":
        condition = f"{a} >= {b}" + (f" AND {a} - {b} <= {within}" if within else "")
    else:
        condition = f"{a} <= {b}" + (f" AND {b} - {a} <= {within}" if within else "")
    return f'SELECT CAST({a} AS BIGINT) AS t, CAST({b} AS BIGINT) AS other, b.{field} AS v FROM "{left}" a ASOF JOIN "{right}" b MATCH_CONDITION ({condition}) ORDER BY {a}, a.log_time'


def rows_of(table):
    return list(zip(*(column.to_pylist() for column in table.columns)))


def is_same(one, other):
    if one is None or other is None:
        # Where there is no value, DataFusion returns NULL, and DuckDB may return NaN.
        return one is other or all(value is None or value != value for value in (one, other))
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return one == other or math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12) or (one != one and other != other)
    return str(one) == str(other)


def is_tie(one, other):
    """Of two that are as near, asof takes the earlier and polars the later."""
    return None not in (one[1], other[1]) and one[0] == other[0] and abs(one[1] - one[0]) == abs(other[1] - other[0])


def compare(name, ours, theirs, may_tie):
    assert len(ours) == len(theirs), f"{name}: {len(ours)} rows, and {len(theirs)}"
    for place, (one, other) in enumerate(zip(ours, theirs)):
        is_equal = len(one) == len(other) and all(map(is_same, one, other))
        assert is_equal or (may_tie and is_tie(one, other)), f"{name}: row {place} is {one}, and {other}"
    assert ours, f"{name}: nothing was compared"


def main():
    asof, data, *parts = sys.argv[1:]
    part = parts[0] if parts else ""
    failures, recordings, compared = [], {}, 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        subprocess.run([asof, "demo", "-o", folder / DEMO, "--seconds", "20", "-q"], check=True, stdout=subprocess.DEVNULL)

        sql_hard.write(folder)
        json_file, *made = ["json-hard_a.mcap", "ros-hard_a.mcap", "ros-hard_b.mcap"]

        def opened(name):
            if name not in recordings:
                if name == ALL_MADE:
                    recordings[name] = Several([opened(one) for one in made])
                else:
                    path = folder / name if (folder / name).exists() else pathlib.Path(data) / name
                    recordings[name] = Recording(asof, path, folder)
            return recordings[name]

        cases = [(f"{name}: {sql}", name, sql, None) for name, sql in QUERIES]
        hard = [(json_file, sql_hard.MISSING), (made[0], sql_hard.ORDER), (ALL_MADE, sql_hard.SEVERAL)]
        for name, queries in hard:
            cases += [(f"{name}: {sql if isinstance(sql, str) else sql[0]}", name, sql, None) for sql in queries]
        cases += [(f"{join[0]}: {join_of(*join[1:])}", join[0], join_of(*join[1:]), join) for join in JOINS]
        for title, name, sql, join in cases:
            if part not in title:
                continue
            try:
                asked, held = (sql, sql) if isinstance(sql, str) else sql
                ours = rows_of(opened(name).ours(asked))
                theirs = with_polars(opened(name), *join[1:]) if join else opened(name).duckdb(held)
                compare(title, ours, theirs, bool(join) and join[5] == "nearest")
                compared += 1
            except Exception as error:  # one that fails does not keep the others from their turn
                failures.append(f"{title}\n    {type(error).__name__}: {error}")
    for failure in failures:
        print(f"DIFFERENT {failure}")
    print(f"{compared} of {compared + len(failures)} queries over {len(recordings)} recordings have the same answers")
    sys.exit(1 if failures or not compared else 0)


main()
