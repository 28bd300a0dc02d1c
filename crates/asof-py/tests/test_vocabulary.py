"""The book's table of names: what it says that Python has, is there."""

from __future__ import annotations

import functools
import importlib

import asof
import pytest
from conftest import ROOT

PAGE = ROOT / "docs/src/vocabulary.md"


def names() -> list[str]:
    rows = [line.strip("|").split("|") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    cells = [row[1].strip().strip("`") for row in rows[1:]]
    return sorted({cell for cell in cells if cell != "–"})


@pytest.mark.parametrize("name", names())
def test_each_name_of_the_table_is_there(name):
    module, _, rest = name.partition(".")
    start = importlib.import_module(f"asof.{module}") if module == "lerobot" else asof
    path = rest if module in ("asof", "lerobot") else name
    found = functools.reduce(getattr, path.split("."), start)
    assert callable(found) or isinstance(found, property), name
    assert found.__doc__, f"{name} says nothing about itself"


def test_the_table_was_found():
    assert len(names()) > 30
