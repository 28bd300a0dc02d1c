"""The README: its code runs as it stands, from top to bottom."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import asof
import pytest

README = (Path(__file__).parents[1] / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.fixture
def robot():
    pytest.importorskip("zenoh", reason="eclipse-zenoh plays the robot")
    from robots import Played

    played = Played("/scan", "/image", "/imu")
    yield played
    played.close()


def test_the_code_of_the_readme_runs(demo_path, tmp_path, monkeypatch, robot):
    from robots import saying

    names = {name: pytest.importorskip(name) for name in ("polars", "pyarrow", "duckdb")}
    (tmp_path / "run.mcap").symlink_to(demo_path)
    monkeypatch.chdir(tmp_path)
    start = asof.open("run.mcap").start + 5 * 10**9
    (tmp_path / "fleet/r7").mkdir(parents=True)
    shutil.copy(demo_path, tmp_path / "fleet/r7/monday.mcap")
    names["labels"] = names["polars"].DataFrame({"start": [start], "label": ["slips"]})
    names["labels"] = names["labels"].with_columns(names["polars"].col("start").cast(names["polars"].Datetime("ns", "UTC")))
    names |= {"xyz": [[1.0, 0.0, 0.0], [2.0, 0.0, 0.0]], "stamps": [start, start + 10**9]}
    lives = [saying(robot, topic, None) for topic in ("/scan", "/image", "/imu")]
    try:
        for block in BLOCKS:
            # A robot that is at hand, time for a slow machine, and loops that end.
            block = block.replace("timeout=1.0", "timeout=60.0")
            block = block.replace("s3://bucket/fleet", "fleet")
            block = re.sub(r"zenoh://[0-9.:]+", robot.address, block)
            block = re.sub(r"(synchronize\(.*\)): \.\.\.", r"\1: break", block)
            exec(compile(block, "README.md", "exec"), names)
    finally:
        for is_done, thread in lives:
            is_done.set()
            thread.join()
    assert len(BLOCKS) >= 8
    assert asof.open("out.mcap").topics["/score"].messages == 1
    assert (tmp_path / "out/meta/info.json").exists()


def test_what_the_readme_names_is_there():
    names = re.findall(r"`asof\.([a-zA-Z_.]+)[`(]", README)
    assert names
    for name in names:
        thing = asof
        for part in name.split("."):
            thing = getattr(thing, part)
