"""Opens exported tables with pyarrow and DuckDB and checks their types and rows.

usage: parquet_open.py FOLDER, with the folders reflection, semantic, raw, their Arrow twins, and times.
"""

import pathlib
import sys

import duckdb
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

TIME = pa.timestamp("ns", tz="UTC")


def expect(condition, message):
    if not condition:
        sys.exit(f"parquet-open: {message}")


def type_at(schema, path):
    first, *rest = path.split(".")
    kind = schema.field(first).type
    for name in rest:
        kind = kind.value_type if name == "[]" else kind.field(name).type
    return kind


def values(column):
    # Python's own times have no nanoseconds.
    return (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()


def check_types(folder):
    odom = pq.read_schema(folder / "reflection/odom.parquet")
    for name in ("log_time", "publish_time", "stamp"):
        expect(odom.field(name).type == TIME, f"{name} is {odom.field(name).type}")
    expect(pa.types.is_struct(type_at(odom, "pose.pose.position")), "a position is not a struct")
    expect(type_at(odom, "pose.pose.position.x") == pa.float64(), "x is not a float64")
    covariance = type_at(odom, "pose.covariance")
    expect(pa.types.is_fixed_size_list(covariance) and covariance.list_size == 36, f"covariance is {covariance}")
    expect(type_at(odom, "header.frame_id") == pa.string(), "frame_id is not text")
    scan = pq.read_schema(folder / "reflection/scan.parquet")
    expect(type_at(scan, "ranges").value_type == pa.float32(), "ranges are no float32")
    tf = pq.read_schema(folder / "reflection/tf.parquet")
    expect(type_at(tf, "transforms.[].transform.rotation.w") == pa.float64(), "w is not a float64")
    seen = pq.read_schema(folder / "semantic/odom.parquet")
    position = type_at(seen, "position")
    expect(pa.types.is_fixed_size_list(position) and position.list_size == 3, f"position is {position}")
    times = pq.read_schema(folder / "times/odom.parquet")
    expect("log_time" not in times.names and times.field("stamp").type == TIME, "--times stamp has other times")
    metadata = {key.decode(): value.decode() for key, value in odom.metadata.items()}
    expect(metadata["asof:topic"] == "/odom" and metadata["asof:layer"] == "reflection", f"metadata is {metadata}")


def check_rows(folder):
    """The same rows in pyarrow, in DuckDB, and in the Arrow file beside."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone='UTC'")
    tables = 0
    for path in sorted(folder.glob("*/*.parquet")):
        table = pq.read_table(path)
        rows, columns = connection.execute(f"SELECT count(*) FROM '{path}'").fetchone()[0], table.column_names
        expect(rows == table.num_rows and rows > 0, f"{path}: {rows} rows in DuckDB, {table.num_rows} in pyarrow")
        described = {name: kind for name, kind, *_ in connection.execute(f"DESCRIBE SELECT * FROM '{path}'").fetchall()}
        expect(list(described) == columns, f"{path}: columns {list(described)} in DuckDB")
        for name in set(columns) & {"log_time", "publish_time", "stamp"}:
            if table.schema.field(name).type == TIME:
                expect(described[name].startswith("TIMESTAMP"), f"{path}: {name} is {described[name]} in DuckDB")
        for column in columns:
            if pa.types.is_struct(table.schema.field(column).type):
                expect(described[column].startswith("STRUCT"), f"{path}: {column} is {described[column]} in DuckDB")
        if "log_time" in columns:
            low, high = connection.execute(f"SELECT epoch_ns(min(log_time)), epoch_ns(max(log_time)) FROM '{path}'").fetchone()
            times = table["log_time"].cast(pa.int64()).to_pylist()
            expect(abs(low - min(times)) < 1000 and abs(high - max(times)) < 1000, f"{path}: other times in DuckDB")
        twin = folder / f"{path.parent.name}-arrow" / f"{path.stem}.arrow"
        if twin.exists():
            with pa.memory_map(str(twin)) as source:
                arrow = pyarrow.ipc.open_file(source).read_all()
            expect(arrow.num_rows == table.num_rows, f"{twin}: {arrow.num_rows} rows")
            for name in columns:
                expect(values(arrow[name]) == values(table[name]), f"{path}: {name} is not as in {twin.name}")
        tables += 1
    return tables


def check_times(folder):
    """Times that DuckDB can reckon with, and the same nanoseconds as those in UTC."""
    connection = duckdb.connect()
    odom = folder / "duckdb/odom.parquet"
    expect(pq.read_schema(odom).field("log_time").type == pa.timestamp("ns"), "--time-zone none has a zone")
    expect("pose.pose.position.x" in pq.read_schema(odom).names, "--flatten has no column for a position")
    first, last, gap, buckets = connection.execute(
        "SELECT epoch_ns(min(log_time)), epoch_ns(max(log_time)), max(log_time) - min(log_time), "
        f"count(DISTINCT time_bucket(INTERVAL 1 second, log_time)) FROM '{odom}' WHERE log_time > TIMESTAMP_NS '2000-01-01'"
    ).fetchone()
    times = pq.read_table(folder / "reflection/odom.parquet")["log_time"].cast(pa.int64()).to_pylist()
    expect((first, last) == (min(times), max(times)), "other nanoseconds without a zone")
    expect(abs(gap.total_seconds() - (last - first) / 1e9) < 1e-5 and buckets >= 3, f"{gap} and {buckets} buckets in DuckDB")
    try:
        connection.execute(f"SELECT max(log_time) - min(log_time) FROM '{folder / 'reflection/odom.parquet'}'").fetchone()
        print("parquet-open: this DuckDB subtracts times in UTC, too: --time-zone none is not needed for it")
    except duckdb.BinderException:
        pass


folder = pathlib.Path(sys.argv[1])
check_types(folder)
check_times(folder)
print(f"parquet-open: {check_rows(folder)} tables open in pyarrow {pa.__version__} and DuckDB {duckdb.__version__}, rows and types as expected")
