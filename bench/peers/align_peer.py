"""CPU milliseconds of polars' join_asof of two sorted columns of stamps, printed on the last line.

usage: align_peer.py FOLDER STRATEGY [TOLERANCE]     FOLDER/anchors and FOLDER/others are 64-bit integers
"""

import resource
import sys

import polars
import pyarrow


def spent():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return (usage.ru_utime + usage.ru_stime) * 1e3


def frame(path, *names):
    with open(path, "rb") as file:
        bytes = file.read()
    column = pyarrow.Array.from_buffers(pyarrow.int64(), len(bytes) // 8, [None, pyarrow.py_buffer(bytes)])
    return polars.DataFrame({name: polars.from_arrow(column) for name in names}).with_columns(polars.col("t").set_sorted())


folder, strategy, *tolerance = sys.argv[1:]
anchors, others = frame(f"{folder}/anchors", "t"), frame(f"{folder}/others", "t", "value")
least = None
# The first time is slower than all others.
for _ in range(3):
    start = spent()
    joined = anchors.join_asof(others, on="t", strategy=strategy, tolerance=int(tolerance[0]) if tolerance else None)
    used = spent() - start
    least = used if least is None else min(least, used)
assert joined.height == anchors.height
print(least)
