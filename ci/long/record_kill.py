"""Kills recorders, and cuts the power of a disk, at random moments.

record_kill.py ASOF ROBOT FOLDER KILLS CUTS
"""

import json
import os
import pathlib
import random
import shutil
import socket
import subprocess
import sys
import time

asof, robot, folder = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
kills, cuts = int(sys.argv[4]), int(sys.argv[5])
AT_ONCE, PATIENCE = 4, 30.0
seed = random.randrange(1 << 30)
random.seed(seed)
print(f"seed {seed}")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def record(url: str, path: pathlib.Path) -> subprocess.Popen:
    return subprocess.Popen([asof, "record", url, "-o", str(path)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def wait_for_bytes(path: pathlib.Path) -> None:
    end = time.monotonic() + PATIENCE
    while not path.exists() or path.stat().st_size < 10_000:
        assert time.monotonic() < end, f"nothing was recorded into {path}"
        time.sleep(0.02)


def missing(path: pathlib.Path, at: float) -> float:
    """How many seconds before an instant a recording ends; it must open by itself."""
    done = subprocess.run([asof, "info", str(path), "--json"], capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, 3), (path, done.returncode, done.stderr)
    told = json.loads(done.stdout)
    assert told["messages"] > 0, told
    return at - told["end"] / 1e9


def kill_many(url: str) -> list:
    lacks = []
    while len(lacks) < kills:
        batch = []
        for number in range(min(AT_ONCE, kills - len(lacks))):
            path = folder / f"killed-{number}.mcap"
            path.unlink(missing_ok=True)
            batch.append((record(url, path), path))
        for process, path in batch:
            wait_for_bytes(path)
        for process, path in batch:
            time.sleep(random.uniform(0.0, 1.5))
            at = time.time()
            process.kill()
            process.wait()
            lacks.append(missing(path, at))
    return lacks


def sh(*words: str) -> None:
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def cut_power(url: str) -> list:
    lacks = []
    disk, after = folder / "disk", folder / "after"
    disk.mkdir()
    after.mkdir()
    for number in range(cuts):
        image, copy = folder / "disk.img", folder / "copy.img"
        with image.open("wb") as file:
            file.truncate(192 << 20)
        sh("mkfs.ext4", "-q", "-F", str(image))
        sh("mount", "-o", "loop", str(image), str(disk))
        recorder = record(url, disk / "run.mcap")
        try:
            wait_for_bytes(disk / "run.mcap")
            time.sleep(1.5 + random.uniform(0.0, 3.0))
            at = time.time()
            shutil.copyfile(image, copy)
        finally:
            recorder.kill()
            recorder.wait()
            sh("umount", str(disk))
        sh("mount", "-o", "loop", str(copy), str(after))
        try:
            lacks.append(missing(after / "run.mcap", at))
        finally:
            sh("umount", str(after))
        copy.unlink()
    return lacks


def tell(what: str, lacks: list) -> None:
    lacks = sorted(lacks)
    assert lacks[-1] <= 1.0, (what, lacks[-10:])
    print(f"{len(lacks)} {what}: all opened by themselves, and lacked {lacks[len(lacks) // 2]:.2f} s in the middle, {lacks[-1]:.2f} s at most")


port = free_port()
peer = subprocess.Popen([robot, f"zenoh://?listen=127.0.0.1:{port}", "36000"])
try:
    url = f"zenoh://127.0.0.1:{port}"
    tell("recorders killed", kill_many(url))
    if os.geteuid() != 0:
        print("SKIPPED: cuts of power need root, to mount an image")
    elif cuts > 0:
        tell("cuts of power", cut_power(url))
finally:
    peer.kill()
    peer.wait()
