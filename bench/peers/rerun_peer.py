"""CPU seconds that rerun-sdk spends on an MCAP file, printed on the last line.

usage: rerun_peer.py decode FILE [TOPIC,TOPIC]   McapReader, every chunk made and dropped
       rerun_peer.py convert FILE                the command `rerun mcap convert`
       rerun_peer.py query FILE TOPIC,TOPIC      that, then what the topics have at the times of the first, by the dataframe reader
"""

import os
import re
import resource
import subprocess
import sys
import tempfile

import numpy


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


def query(path, topics):
    import rerun_cli
    from rerun.server import Server

    program = os.path.join(os.path.dirname(rerun_cli.__file__), "rerun")
    index = "message_log_time"
    start = spent(resource.RUSAGE_SELF) + spent(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out.rrd")
        command = [program, "mcap", "convert", path, "-o", out]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with Server(datasets={"run": [out]}) as server:
            dataset = server.client().get_dataset("run")

            def columns(frame, of):
                wanted = [name for name in frame.schema().names if name.split(":")[0] in of and ":Mcap" not in name]
                return frame.select(*(f'"{name}"' for name in [index, *wanted]))

            first = columns(dataset.filter_contents(topics[:1]).reader(index=index), topics[:1])
            batches = first.collect()
            if len(topics) > 1:
                times = numpy.concatenate([batch.column(0).to_numpy(zero_copy_only=False) for batch in batches])
                frame = dataset.filter_contents(topics).reader(index=index, using_index_values=times, fill_latest_at=True)
                batches = columns(frame, topics).collect()
            print(f"{sum(batch.num_rows for batch in batches)} rows")
    print(spent(resource.RUSAGE_SELF) + spent(resource.RUSAGE_CHILDREN) - start)


if sys.argv[1] == "decode":
    decode(sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else "")
elif sys.argv[1] == "query":
    query(sys.argv[2], sys.argv[3].split(","))
else:
    convert(sys.argv[2])
