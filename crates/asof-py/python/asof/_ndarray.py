"""Numpy arrays that are easier to make in Python than in Rust."""

from __future__ import annotations

from typing import Any

import numpy as np


def structured(rows: int, names: list[str], columns: list[np.ndarray]) -> np.ndarray:
    """Columns side by side, as one structured array."""
    kinds = [(name, column.dtype, column.shape[1:]) for name, column in zip(names, columns)]
    table = np.empty(rows, dtype=kinds)
    for name, column in zip(names, columns):
        table[name] = column
    return table


def objects(values: list[Any]) -> np.ndarray:
    """One object for each row, of any type."""
    array = np.empty(len(values), dtype=object)
    for at, value in enumerate(values):
        array[at] = value
    return array
