"""CPU seconds of a query over a folder of tables that `asof export` wrote, printed on the last line.

usage: sql_peer.py duckdb FOLDER TOPIC...     rows of all topics, counted by the second
       sql_peer.py polars FOLDER LEFT RIGHT   join_asof of the two, one field of each counted
"""

import resource
import sys


def spent(who):
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def file_of(folder, topic):
    return f"{folder}/{topic.strip('/').replace('/', '.')}.parquet"


def duckdb_query(folder, topics):
    import duckdb

    each = " UNION ALL ".join(f"SELECT log_time FROM '{file_of(folder, topic)}'" for topic in topics)
    start = spent(resource.RUSAGE_SELF)
    seconds = f"SELECT date_trunc('second', log_time::TIMESTAMPTZ) AS second, count(*) AS n FROM ({each}) GROUP BY 1"
    print(duckdb.sql(f"SELECT count(*), sum(n) FROM ({seconds})").fetchall())
    return spent(resource.RUSAGE_SELF) - start


def polars_join(folder, topics):
    import polars

    start = spent(resource.RUSAGE_SELF)
    left, right = (polars.scan_parquet(file_of(folder, topic)) for topic in topics)
    left = left.select("log_time", polars.col("angular_velocity").struct.field("z")).sort("log_time")
    place = polars.col("pose").struct.field("pose").struct.field("position").struct.field("x")
    right = right.select("log_time", place).sort("log_time")
    joined = left.join_asof(right, on="log_time").select(polars.col("z").count(), polars.col("x").count()).collect()
    print(joined.row(0))
    return spent(resource.RUSAGE_SELF) - start


peer, folder, *topics = sys.argv[1:]
print((duckdb_query if peer == "duckdb" else polars_join)(folder, topics))
