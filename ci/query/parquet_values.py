"""Holds the Parquet tables of `asof export`, read by pyarrow, against the lines of `asof cat --json`.

usage: parquet_values.py ASOF DATA [PART OF A FILE NAME]
"""

import base64
import collections
import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile

import pyarrow as pa
import pyarrow.parquet as pq

# Values of a recording that are compared; a longer one is compared up to here.
MOST_BYTES = 200 << 20


class Different(Exception):
    pass


def require(condition, path, parquet, printed):
    if not condition:
        raise Different(f"{path}: Parquet {str(parquet)[:80]!r}, printed {str(printed)[:80]!r}")


def same_float(parquet, printed, is_single, path):
    named = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
    number = named.get(printed, printed) if isinstance(printed, str) else printed
    require(isinstance(number, (int, float)) and not isinstance(number, bool), path, parquet, printed)
    if math.isnan(number):
        require(math.isnan(parquet), path, parquet, printed)
        return
    code = "<f" if is_single else "<d"
    require(struct.pack(code, parquet) == struct.pack(code, float(number)), path, parquet, printed)


def same(field, parquet, printed, path, counts):
    """One value of a column with the same of a line; nothing printed is nothing there."""
    kind, metadata = field.type, field.metadata or {}
    if parquet is None:
        require(printed is None, path, parquet, printed)
        return
    if metadata.get(b"asof:json") == b"true":
        require(json.loads(parquet) == printed, path, parquet, printed)
    elif metadata.get(b"asof:empty") == b"true":
        require(printed == {}, path, parquet, printed)
    elif b"asof:enum" in metadata:
        names = json.loads(metadata[b"asof:enum"])
        require(names.get(str(parquet), parquet) == printed, path, parquet, printed)
    elif pa.types.is_struct(kind):
        require(isinstance(printed, dict), path, parquet, printed)
        names = {kind.field(at).name for at in range(kind.num_fields)}
        require(set(printed) <= names, path, names, list(printed))
        for at in range(kind.num_fields):
            inner = kind.field(at)
            same(inner, parquet[inner.name], printed.get(inner.name), f"{path}.{inner.name}", counts)
        return
    elif pa.types.is_map(kind):
        require(len(dict(parquet)) == len(printed), path, parquet, printed)
        for key, value in dict(parquet).items():
            name = str(key).lower() if isinstance(key, bool) else str(key)
            require(name in printed, path, parquet, printed)
            same(kind.item_field, value, printed[name], f"{path}[{name}]", counts)
        return
    elif pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        require(isinstance(printed, list) and len(printed) == len(parquet), path, parquet, printed)
        for at, (a, b) in enumerate(zip(parquet, printed)):
            same(kind.value_field, a, b, f"{path}[{at}]", counts)
        return
    elif pa.types.is_floating(kind):
        same_float(parquet, printed, pa.types.is_float32(kind), path)
    elif isinstance(parquet, bytes):
        require(base64.b64decode(printed) == parquet, path, parquet, printed)
    else:
        require(type(parquet) is type(printed) and parquet == printed, path, parquet, printed)
    counts["values"] += 1


def lines_of(asof, path):
    """What is printed, by topic and type."""
    found = collections.defaultdict(list)
    with subprocess.Popen([asof, "cat", "--json", "-q", path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as printing:
        size = 0
        for line in printing.stdout:
            size += len(line)
            if size > MOST_BYTES:
                printing.terminate()
                return None
            line = json.loads(line)
            if line["data"] is not None:
                found[line["topic"], line["type"]].append(line)
    return found


def own_columns(schema):
    """The message's own columns, with their names in it."""
    added = {"log_time", "publish_time", "stamp"}
    for field in schema:
        name = (field.metadata or {}).get(b"asof:name", field.name.encode()).decode()
        if pa.types.is_timestamp(field.type) and field.name in added:
            continue
        if name != "_other":
            yield field, name


def compare(asof, path, counts):
    lines = lines_of(asof, path)
    if lines is None:
        counts["recordings left out, too long"] += 1
        return []
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([asof, "export", "-q", path, "-o", folder], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        if done.returncode not in (0, 3):
            return [f"export exits with {done.returncode}: {done.stderr.decode()[:200]}"]
        for table in sorted(pathlib.Path(folder).glob("*.parquet")):
            rows = pq.read_table(table)
            metadata = rows.schema.metadata
            if metadata[b"asof:layer"] == b"raw":
                continue
            times = rows["log_time"].cast(pa.int64()).to_pylist()
            if times != sorted(times):
                problems.append(f"{table.name}: rows are not in order of time")
            topic, kind = metadata[b"asof:topic"].decode(), metadata[b"asof:type"].decode()
            # The rows of two tables of one topic are interleaved.
            expected = collections.defaultdict(list)
            for line in lines[topic, kind]:
                expected[line["log_time"]].append(line)
            columns = list(own_columns(rows.schema))
            values = [rows[field.name].to_pylist() for field, _ in columns]
            for row, time in enumerate(times):
                if not expected[time]:
                    problems.append(f"{topic} at {time}: a row without a line")
                    break
                line = expected[time].pop(0)
                try:
                    for (field, name), column in zip(columns, values):
                        same(field, column[row], line["data"].get(name), name, counts)
                except Different as error:
                    problems.append(f"{topic} at {time}: {error}")
                counts["rows"] += 1
    counts["recordings"] += 1
    return problems


def main():
    asof, data = sys.argv[1], pathlib.Path(sys.argv[2])
    part = sys.argv[3] if len(sys.argv) > 3 else ""
    counts, differences = collections.Counter(), 0
    paths = sorted(p for p in (data / "recordings").rglob("*") if p.suffix in (".mcap", ".bag", ".db3") and part in p.name)
    for path in paths:
        problems = compare(asof, path, counts)
        differences += len(problems)
        print(f"{'ok' if not problems else f'{len(problems)} DIFFERENCES':>16}  {path.name}", flush=True)
        for problem in problems[:5]:
            print(f"    {problem}")
    print(f"parquet-values: {differences} differences; " + ", ".join(f"{n} {name}" for name, n in sorted(counts.items())))
    sys.exit(1 if differences else 0)


main()
