"""A robot is recorded, and asked what it knew. Nothing but asof is needed: the robot is its demo, played to this machine.

    python record_and_ask.py
"""

import socket
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import asof


def main(folder: Path) -> None:
    demo = folder / "demo.mcap"
    subprocess.run([sys.executable, "-m", "asof", "demo", "-o", demo, "--seconds", "5", "--quiet"], check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    with asof.connect(f"zenoh://?listen=127.0.0.1:{port}") as robot, asof.connect(f"zenoh://127.0.0.1:{port}") as observer:
        with observer.record(folder / "run.mcap", exclude="/camera/*") as recorder:
            # A subscription takes a moment: it is played until enough of it was heard.
            playback = robot.playback(asof.open(demo), rate=4, repeat=True)
            while recorder.report()["topics"].get("/odom", {}).get("written", 0) < 200:
                playback.run("0.1s")

    rec = asof.open(folder / "run.mcap")
    print(rec)
    known = rec.at("+1s")
    print(f"after a second it was at {known['/odom'].pose.pose.position.to_dict()}")

    joined = rec.join("/odom", "/imu", how="interpolate", on="log_time", columns=["twist.twist.angular.z", "angular_velocity.z"])
    table = joined.to_numpy()
    print(f"{len(table['time'])} times by odometry and by the gyroscope")

    with warnings.catch_warnings():
        # Its clock is set back where the playback starts over.
        warnings.simplefilter("ignore", asof.DecodeWarning)
        print(rec.tf().tree())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary))
