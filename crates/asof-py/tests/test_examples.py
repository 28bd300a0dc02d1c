"""The examples run as they stand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted(Path(__file__).parents[1].glob("examples/*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs(path):
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) > 3


def test_there_are_examples():
    assert EXAMPLES
