"""Arrow comes from Rust without a copy."""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa


def test_the_buffers_in_python_lie_where_rust_has_them(rec):
    batch = next(rec["/imu"].batches(rows=1000, columns=["log_time", "linear_acceleration.x", "header.frame_id"]))
    table = pa.table(batch)
    for name in batch.columns:
        [chunk] = table[name].chunks
        buffers = [buffer.address for buffer in chunk.buffers()[1:] if buffer is not None]
        assert buffers == batch.addresses(name)
        assert all(buffers)


def test_numpy_looks_at_the_same_memory(rec):
    batch = next(rec["/imu"].batches(rows=1000, columns=["linear_acceleration.x"]))
    values = batch.to_numpy("linear_acceleration.x")
    assert [values.__array_interface__["data"][0]] == batch.addresses("linear_acceleration.x")
    assert not values.flags.owndata and not values.flags.writeable


def test_a_batch_outlives_everything_that_it_came_from(demo_path):
    import asof

    values = asof.open(demo_path)["/imu"].to_numpy("linear_acceleration.z")
    arrow = pa.table(next(asof.open(demo_path)["/imu"].batches()))
    message = next(asof.open(demo_path).messages("/scan"))
    ranges = message.data.ranges
    del message
    assert np.isfinite(values).all() and arrow.num_rows > 0 and len(ranges) > 100
    assert pl.DataFrame(arrow).height == arrow.num_rows
