"""The recordings that tests use."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import asof
import pytest

ROOT = Path(__file__).resolve().parents[3]


def run_asof(*words: str) -> subprocess.CompletedProcess[str]:
    """The command, as the wheel brings it."""
    return subprocess.run([sys.executable, "-m", "asof", *words], capture_output=True, text=True, check=False)


@pytest.fixture(scope="session")
def demo_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("demo") / "run.mcap"
    done = run_asof("demo", "-o", str(path))
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture(scope="session")
def rec(demo_path: Path) -> asof.Recording:
    return asof.open(demo_path)


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder with recordings of others."""
    folder = Path(os.environ.get("ASOF_TEST_DATA", ROOT / "../shared/data")) / "recordings"
    if not folder.is_dir():
        pytest.skip(f"there are no recordings at {folder}; set ASOF_TEST_DATA")
    return folder


def until(condition, timeout=60.0):
    """Waits for something to happen."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)
