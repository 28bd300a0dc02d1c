"""Asks `asof serve --flight` by the ADBC driver for Flight SQL, and holds its answers against those of `asof sql`.

usage: sql_flight.py ASOF
"""

import contextlib
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import adbc_driver_flightsql
import adbc_driver_flightsql.dbapi as flight
import adbc_driver_manager
import pyarrow as pa

program = pathlib.Path(sys.argv[1]).resolve()

QUERIES = [
    'SELECT * FROM "/odom" ORDER BY log_time',
    "SELECT recording, log_time, stamp, pose.pose.position.x AS x FROM odom WHERE log_time < '+3s' ORDER BY log_time",
    "SELECT count(*) AS n, min(log_time) AS first, avg(angular_velocity.z) AS z FROM imu",
    "SELECT s.stamp, o.pose.pose.position.x AS x FROM scan s ASOF JOIN odom o MATCH_CONDITION (s.stamp >= o.stamp) ORDER BY s.log_time",
    "SELECT tf('map', 'base_link', stamp) AS pose FROM scan ORDER BY log_time LIMIT 3",
    "SELECT * FROM topics ORDER BY topic",
    "SELECT upper(type) AS type, substr(topic, 2) AS name FROM topics ORDER BY topic",
    "SELECT ranges FROM scan ORDER BY log_time LIMIT 2",
    "SELECT log_time FROM odom WHERE false",
    "SELECT table_name, table_type FROM information_schema.tables ORDER BY table_name",
]


@contextlib.contextmanager
def served(*words):
    """A server, as the address and the token that it prints."""
    command = [program, "serve", "--no-open", *words]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        said = []
        for line in server.stdout:
            said.append(line)
            found = re.match(r"Flight SQL: (grpc://\S+)(?: \(token (\w+)\))?", line)
            if found:
                yield found.group(1), found.group(2)
                break
        else:
            raise SystemExit(f"no address: {''.join(said)}{server.stderr.read()}")
    finally:
        server.kill()
        server.wait()


def asked(cursor, query, parameters=None):
    cursor.execute(query, parameters)
    return cursor.fetch_arrow_table()


def here(path, query, folder):
    out = folder / "out.arrow"
    subprocess.run([program, "sql", path, "--arrow", out, "--force", query], check=True, stderr=subprocess.DEVNULL)
    with pa.OSFile(str(out)) as file:
        return pa.ipc.open_file(file).read_all()


def plain(table):
    """Texts in one form: clients of Flight get no views."""
    fields = [field.with_type(pa.string()) if pa.types.is_string_view(field.type) else field for field in table.schema]
    return table.cast(pa.schema(fields))


def refused(work, *words):
    try:
        work()
    except adbc_driver_manager.Error as error:
        text = str(error)
        assert all(word in text for word in words), text
    else:
        raise AssertionError(f"was not refused: {words}")


def check_answers(path, folder):
    with served(path, "--listen", "0", "--flight=0") as (address, token):
        assert token is None
        with flight.connect(address, autocommit=True) as connection, connection.cursor() as cursor:
            for query in QUERIES:
                found, expected = plain(asked(cursor, query)), plain(here(path, query, folder))
                assert found.schema.names == expected.schema.names, query
                assert found.cast(expected.schema).equals(expected), query
                if "false" not in query:
                    assert found.num_rows > 0, query
            check_tables(connection)
            check_parameters(cursor)
            check_refusals(cursor, folder)
            check_cancelled(address)


def check_tables(connection):
    [catalogue] = connection.adbc_get_objects(depth="all").read_all().to_pylist()
    assert catalogue["catalog_name"] == "asof"
    [schema] = catalogue["catalog_db_schemas"]
    tables = {table["table_name"]: table for table in schema["db_schema_tables"]}
    assert {"/odom", "odom", "topics", "problems"} <= set(tables), tables.keys()
    columns = [column["column_name"] for column in tables["/odom"]["table_columns"]]
    assert columns[:3] == ["recording", "log_time", "publish_time"], columns
    assert connection.adbc_get_table_types() == ["TABLE"]
    facts = connection.adbc_get_info()
    assert facts["vendor_name"] == "asof", facts
    schema = connection.adbc_get_table_schema("/odom")
    assert schema.field("log_time").type == pa.timestamp("ns", "UTC")


def check_parameters(cursor):
    every = asked(cursor, "SELECT log_time, sequence, pose.pose.position.x AS x FROM odom ORDER BY log_time")
    instant = every["log_time"][len(every) // 2]
    every = every.drop_columns("log_time").to_pylist()
    for mark in ("?", "$1"):
        query = f"SELECT sequence, pose.pose.position.x AS x FROM odom WHERE pose.pose.position.x > {mark} ORDER BY log_time"
        for limit in (0.0, 0.5, 1e9):
            found = asked(cursor, query, (limit,)).to_pylist()
            assert found == [row for row in every if row["x"] > limit], (query, limit)
    row = pa.record_batch([pa.array([instant.value], pa.timestamp("ns", "UTC"))], ["1"])
    found = asked(cursor, "SELECT count(*) AS n FROM odom WHERE log_time <= ?", row).to_pylist()
    assert found == [{"n": len(every) // 2 + 1}], found
    refused(lambda: asked(cursor, "SELECT count(*) FROM odom WHERE log_time <= ?"), "$1")


def check_refusals(cursor, folder):
    out = folder / "stolen.csv"
    refused(lambda: asked(cursor, f"COPY (SELECT 1) TO '{out}'"), "is not allowed")
    refused(lambda: asked(cursor, "CREATE TABLE mine AS SELECT 1"), "is not allowed")
    refused(lambda: asked(cursor, "DROP TABLE odom"), "is not allowed")
    refused(lambda: cursor.executescript("DELETE FROM odom"), "is not allowed")
    assert not out.exists()
    refused(lambda: asked(cursor, "SELECT * FROM odmo"), "there is no table 'odmo'", "did you mean odom")
    assert asked(cursor, "SELECT 1 AS one").to_pylist() == [{"one": 1}]


def check_cancelled(address):
    """More queries without an end than run at once; each is given up, so that the next one has its turn."""
    for _ in range(8):
        with flight.connect(address, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT a.log_time FROM imu a, imu b, imu c, imu d, imu e")
            assert cursor.fetch_record_batch().read_next_batch().num_rows
            cursor.adbc_cancel()
    with flight.connect(address, autocommit=True) as connection, connection.cursor() as cursor:
        assert asked(cursor, "SELECT 1 AS one").num_rows == 1


def check_token(path):
    options = adbc_driver_flightsql.DatabaseOptions
    with served(path, "--listen", "0", "--flight=0.0.0.0:0") as (address, token):
        assert token
        address = address.replace("0.0.0.0", "127.0.0.1")

        def connected(**words):
            with flight.connect(address, db_kwargs=words, autocommit=True) as connection, connection.cursor() as cursor:
                return asked(cursor, "SELECT 1 AS one").num_rows

        refused(lambda: connected(), "the token is missing or wrong")
        wrong = {options.AUTHORIZATION_HEADER.value: "Bearer wrong"}
        refused(lambda: connected(**wrong), "the token is missing or wrong")
        refused(lambda: connected(username="anyone", password="wrong"), "the token is missing or wrong")
        assert connected(**{options.AUTHORIZATION_HEADER.value: f"Bearer {token}"}) == 1
        assert connected(username="anyone", password=token) == 1


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    path = folder / "demo.mcap"
    subprocess.run([program, "demo", "-o", path, "--seconds", "10", "-q"], check=True, stdout=subprocess.DEVNULL)
    start = time.monotonic()
    check_answers(path, folder)
    check_token(path)
    print(f"{len(QUERIES)} queries by ADBC equal to asof's own, tables, parameters, refusals, tokens: {time.monotonic() - start:.0f} s")
