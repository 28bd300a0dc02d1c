"""CPU seconds that rerun-sdk spends on an MCAP file, printed on the last line.

usage: rerun_peer.py decode FILE [TOPIC,TOPIC]   McapReader, every chunk made and dropped
       rerun_peer.py convert FILE                the command `rerun mcap convert`
"""

import os
import re
import resource
import subprocess
import sys
import tempfile


def spent(who):
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def decode(path, topics):
    from rerun.chunk import McapReader

    wanted = [f"^{re.escape(topic)}$" for topic in topics.split(",") if topic]
    start = spent(resource.RUSAGE_SELF)
    reader = McapReader(path, include_topic_regex=wanted or None)
    chunks = sum(1 for _ in reader.stream())
    print(f"{chunks} chunks")
    print(spent(resource.RUSAGE_SELF) - start)


def convert(path):
    import rerun_cli

    program = os.path.join(os.path.dirname(rerun_cli.__file__), "rerun")
    with tempfile.TemporaryDirectory() as folder:
        before = spent(resource.RUSAGE_CHILDREN)
        command = [program, "mcap", "convert", path, "-o", os.path.join(folder, "out.rrd")]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        print(spent(resource.RUSAGE_CHILDREN) - before)


if sys.argv[1] == "decode":
    decode(sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else "")
else:
    convert(sys.argv[2])
