"""Holds the answers of `asof sql --cluster` against those of `asof sql` over the same recordings.

usage: cluster.py ASOF [rows | roots | killed | packaging | bucket]
"""

import contextlib
import json
import logging
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

# The number of recordings, and the length of each.
RECORDINGS, SECONDS = 6, 20
# The scheduler drops an executor that was silent for this long.
TIMEOUT = 10

QUERIES = [
    'SELECT count(*) FROM "/imu"',
    "SELECT recording, count(*) FROM odom GROUP BY 1 ORDER BY 1",
    "SELECT recording, avg(twist.twist.linear.x), max(twist.twist.linear.x) FROM odom GROUP BY 1 ORDER BY 1",
    "SELECT count(*), sum(range_max) FROM scan WHERE range_max > 1",
    "SELECT log_time, pose.pose.position.x FROM odom WHERE pose.pose.position.x > 0.5 ORDER BY recording, log_time LIMIT 50",
    "SELECT count(*) FROM imu WHERE log_time >= '+2.5s' AND log_time < '+7.25s'",
    "SELECT count(DISTINCT log_time), count(stamp) FROM imu",
    "SELECT ranges[1] AS first, count(*) FROM scan GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 10",
    "SELECT count(*) FROM odom a JOIN odom b ON a.recording = b.recording AND a.log_time = b.log_time",
    "SELECT t, count(*) FROM (SELECT 'imu' AS t FROM imu UNION ALL SELECT 'odom' FROM odom UNION ALL SELECT 'scan' FROM scan) u GROUP BY t ORDER BY t",
    "SELECT count(*) FROM odom WHERE twist.twist.linear.x > (SELECT avg(twist.twist.linear.x) FROM odom)",
    "SELECT count(*) FROM imu WHERE log_time NOT IN (SELECT log_time FROM odom)",
    "SELECT recording, max(gap) FROM (SELECT recording, CAST(log_time AS BIGINT) - lag(CAST(log_time AS BIGINT)) OVER (PARTITION BY recording ORDER BY log_time) AS gap FROM imu) g GROUP BY 1 ORDER BY 1",
    # As-of joins, in one pass and merged.
    "SELECT s.recording, s.stamp, o.pose.pose.position.x FROM scan s ASOF JOIN odom o MATCH_CONDITION (s.stamp >= o.stamp) ORDER BY 1, 2",
    "SELECT count(*), count(i.stamp), avg(i.angular_velocity.z) FROM odom o ASOF JOIN imu i MATCH_CONDITION (nearest(o.log_time, i.log_time, INTERVAL '3 ms'))",
    "SELECT s.recording, count(*), avg(i.angular_velocity.z) FROM scan s ASOF JOIN odom o MATCH_CONDITION (s.stamp >= o.stamp) ASOF JOIN imu i MATCH_CONDITION (s.stamp >= i.stamp) GROUP BY 1 ORDER BY 1",
    "SELECT w.recording, count(*), avg(i.angular_velocity.z) FROM window_join(w => odom, i => imu, '-20ms', '0s') GROUP BY 1 ORDER BY 1",
    "SELECT r.recording, r.time, odom.pose.pose.position.x FROM resample(odom, imu, 5, 'last') r ORDER BY 1, 2",
    # What messages mean, points, and transforms.
    "SELECT recording, topic, count(*) FROM transforms GROUP BY 1, 2 ORDER BY 1, 2",
    "SELECT recording, count(*), avg(x), avg(range) FROM points(scan, 20) GROUP BY 1 ORDER BY 1",
    "SELECT s.recording, s.stamp, tf('odom', 'base_link', s.stamp, s.recording)['translation']['x'] AS x FROM scan s ORDER BY 1, 2",
    # Tables that the client answers without executors.
    "SELECT topic, sum(messages) FROM topics GROUP BY 1 ORDER BY 1",
    "SELECT count(*) FROM recordings",
]

# A slow query: every number of every scan is decoded, and nothing is cached.
LONG = "SELECT s.recording, count(*), sum(p.x), sum(p.y) FROM points(scan) p JOIN (SELECT DISTINCT recording FROM scan) s ON p.recording = s.recording GROUP BY 1 ORDER BY 1"


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Cluster:
    def __init__(self, asof, roots, logs):
        self.asof, self.roots, self.logs = asof, roots, logs
        self.address = f"127.0.0.1:{free_port()}"
        self.processes = []

    def start(self, name, *words):
        log = open(self.logs / f"{name}.log", "w")
        process = subprocess.Popen([self.asof, "cluster", *words], stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def executor(self, name, cores=1):
        before = len(self.api("executors"))
        roots = [word for root in self.roots for word in ("--root", str(root))]
        listen = f"127.0.0.1:{free_port()}"
        process = self.start(
            name, "executor", "--scheduler", self.address, "--listen", listen, "--name", name, "--cores", str(cores), *roots
        )
        self.wait(lambda: len(self.api("executors")) > before)
        return process

    def api(self, path):
        with urllib.request.urlopen(f"http://{self.address}/api/{path}", timeout=10) as answer:
            return json.load(answer)

    def wait(self, is_ready):
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with contextlib.suppress(OSError):
                if is_ready():
                    return
            time.sleep(0.1)
        sys.exit("the cluster does not come up")

    def stop(self):
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()


@contextlib.contextmanager
def running_cluster(asof, roots, logs):
    """A scheduler, for as long as it is needed; the caller adds executors. What they all said is printed if anything fails."""
    cluster = Cluster(asof, roots, logs)
    try:
        cluster.start("scheduler", "scheduler", "--listen", cluster.address, "--executor-timeout", str(TIMEOUT))
        cluster.wait(lambda: cluster.api("executors") == [])
        yield cluster
    except BaseException:
        for log in sorted(logs.glob("*.log")):
            print(f"--- {log.name}\n{log.read_text()[-2000:]}", file=sys.stderr)
        raise
    finally:
        cluster.stop()


def asked(asof, places, query, *words):
    command = [asof, "sql", "-q", "--json", *words, *map(str, places), query]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def rows(answer, query):
    assert answer.returncode in (0, 3), f"{query}\n{answer.stderr}"
    all_rows = [json.loads(line) for line in answer.stdout.splitlines()]
    return [[rounded(value) for value in row.values()] for row in all_rows]


def rounded(value):
    """Sums of floating point numbers depend on the order in which they are added."""
    return float(f"{value:.9g}") if isinstance(value, float) else value


def compare(asof, cluster, places, queries):
    for query in queries:
        here = rows(asked(asof, places, query), query)
        there = rows(asked(asof, places, query, "--cluster", cluster.address), query)
        if "ORDER BY" not in query:
            here, there = sorted(here, key=repr), sorted(there, key=repr)
        assert here == there, f"{query}\nhere  {len(here)} {here[:3]}\nthere {len(there)} {there[:3]}"
        assert here, f"{query} has no rows"
        print(f"  {len(here):>5} rows alike: {query[:100]}")


def test_same_rows(asof, cluster, fleet):
    recordings = sorted(fleet.glob("r*/*.mcap"))
    compare(asof, cluster, recordings, QUERIES)
    subprocess.run([asof, "index", "-q", fleet], check=True)
    print("the same over a catalogue:")
    compare(asof, cluster, [fleet], QUERIES[:4] + QUERIES[13:14] + QUERIES[18:21])
    jobs = cluster.api("jobs")
    assert len(jobs) >= len(QUERIES), f"only {len(jobs)} queries went to the cluster"


def test_one_is_killed(asof, cluster, fleet, victim):
    recordings = sorted(fleet.glob("r*/*.mcap"))
    here = rows(asked(asof, recordings, LONG), LONG)
    command = [asof, "sql", "-q", "--json", "--cluster", cluster.address, *map(str, recordings), LONG]
    done = {job["job_id"] for job in cluster.api("jobs")}
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    cluster.wait(lambda: any(job["job_id"] not in done for job in cluster.api("jobs")))
    time.sleep(0.3)
    was_running = running.poll() is None
    victim.send_signal(signal.SIGKILL)
    out, error = running.communicate(timeout=300)
    there = [[rounded(value) for value in json.loads(line).values()] for line in out.splitlines()]
    if running.returncode in (0, 3):
        assert there == here, f"after a death\nhere  {here}\nthere {there}"
        print(f"  the query ran on without it, {'in its middle' if was_running else 'after its end'}")
    else:
        assert "victim" in error, f"the failure does not name the executor: {error}"
        print(f"  the query failed: {error.strip()}")
    # The remaining executor answers.
    compare(asof, cluster, recordings, QUERIES[:2])
    cluster.wait(lambda: len(cluster.api("executors")) == 1)


def test_roots(asof, cluster, fleet, outside):
    recording = next(fleet.glob("r*/*.mcap"))
    elsewhere = outside / "secret.mcap"
    elsewhere.write_bytes(recording.read_bytes())
    link = fleet / "link.mcap"
    link.symlink_to(elsewhere)
    for place in (elsewhere, link):
        query = "SELECT avg(angular_velocity.z) FROM imu"
        answer = asked(asof, [place], query, "--cluster", cluster.address)
        assert answer.returncode == 1 and "under its roots" in answer.stderr, f"{place}: {answer.stderr}{answer.stdout}"
        print(f"  refused: {answer.stderr.strip()}")
    link.unlink()


def test_sentences(asof, cluster, fleet):
    recording = next(fleet.glob("r*/*.mcap"))
    nobody = f"127.0.0.1:{free_port()}"
    for words, expected in [
        (["--cluster", nobody], "cannot reach a scheduler"),
        (["--cluster", "nowhere"], "is not a host and a port"),
        (["--cluster", cluster.address, "--no-limits"], "do not reach the executors"),
    ]:
        answer = asked(asof, [recording], QUERIES[0], *words)
        assert answer.returncode != 0 and expected in answer.stderr, f"{words}: {answer.stderr}"
    bad = asked(asof, [recording], "SELECT nothing FROM imu", "--cluster", cluster.address)
    assert "there is no column 'nothing'" in bad.stderr, bad.stderr
    print("  sentences are told")


def commands_of(text):
    """The words of the commands in a unit of systemd or a manifest of Kubernetes."""
    found, lines = [], text.splitlines()
    for number, line in enumerate(lines):
        line = line.strip()
        if line.startswith("ExecStart="):
            found.append(line.removeprefix("ExecStart=").split())
        elif line.startswith("command: ["):
            found.append(json.loads(line.removeprefix("command:")))
        elif line == "command:":
            words = []
            for following in lines[number + 1 :]:
                if not following.strip().startswith("- "):
                    break
                words.append(following.strip().removeprefix("- "))
            found.append(words)
    return found


def test_packaging(asof, fleet, logs):
    """The commands of the examples start a cluster, with the addresses and roots of this machine in the place of theirs."""
    folder = pathlib.Path(__file__).parents[2] / "packaging/cluster"
    units = [word for name in ("asof-scheduler.service", "asof-executor.service") for word in commands_of((folder / name).read_text())]
    manifest = commands_of((folder / "kubernetes.yaml").read_text())
    recordings = sorted(fleet.glob("r*/*.mcap"))
    for name, commands in (("systemd", units), ("kubernetes", manifest)):
        assert len(commands) == 2, f"{name}: {commands}"
        scheduler, executor, processes = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}", []
        here = {"--scheduler": scheduler, "--root": str(fleet), "--external-host": "127.0.0.1"}
        try:
            for part, words in zip(("scheduler", "executor"), commands):
                assert pathlib.Path(words[0]).name == "asof" and words[1:3] == ["cluster", part], words
                here["--listen"] = scheduler if part == "scheduler" else executor
                words = [here.get(before, word) for before, word in zip([None, *words], words)]
                log = open(logs / f"{name}-{part}.log", "w")
                processes.append(subprocess.Popen([asof, *words[1:]], stdout=log, stderr=log))
            until = time.monotonic() + 60
            while subprocess.run([asof, "cluster", "status", scheduler], capture_output=True).returncode != 0:
                assert time.monotonic() < until, f"{name} does not come up: {(logs / f'{name}-executor.log').read_text()}"
                time.sleep(0.2)
            here_rows = rows(asked(asof, recordings, QUERIES[1]), QUERIES[1])
            there_rows = rows(asked(asof, recordings, QUERIES[1], "--cluster", scheduler), QUERIES[1])
            assert here_rows == there_rows, f"{name}: {there_rows}"
            print(f"  the commands of {name} start a cluster")
        finally:
            for process in processes:
                process.kill()
                process.wait()


@contextlib.contextmanager
def bucket_of(fleet):
    """The recordings in a bucket of a server on this machine, under the addresses that are given; one more beside them."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    # One line for each request is too much.
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server.start()
    before = dict(os.environ)
    try:
        _, port = server.get_host_and_port()
        endpoint = f"http://127.0.0.1:{port}"
        # For every process that is started from now on.
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            del os.environ[name]
        keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
        os.environ.update(keys | {"AWS_ENDPOINT": endpoint, "AWS_ALLOW_HTTP": "true"})
        client = boto3.client("s3", endpoint_url=endpoint, aws_access_key_id="key", aws_secret_access_key="secret", region_name="us-east-1")
        client.create_bucket(Bucket="robots")
        addresses = []
        for path in sorted(fleet.glob("r*/*.mcap")):
            key = f"drives/{path.relative_to(fleet)}"
            client.put_object(Bucket="robots", Key=key, Body=path.read_bytes())
            addresses.append(f"s3://robots/{key}")
        client.put_object(Bucket="robots", Key="private/one.mcap", Body=path.read_bytes())
        yield addresses, "s3://robots/private/one.mcap"
    finally:
        os.environ.clear()
        os.environ.update(before)
        server.stop()


def test_bucket(asof, fleet, logs):
    logs.mkdir()
    with bucket_of(fleet) as (addresses, outside), running_cluster(asof, ["s3://robots/drives"], logs) as cluster:
        cluster.executor("first")
        cluster.executor("second")
        chosen = QUERIES[1:4] + QUERIES[13:14] + QUERIES[18:20]
        compare(asof, cluster, addresses, chosen)
        subprocess.run([asof, "index", "-q", "s3://robots/drives", "--pattern", "{robot}/…"], check=True, stdout=subprocess.DEVNULL)
        print("the same over its catalogue:")
        labelled = "SELECT robot, count(*), avg(twist.twist.linear.x) FROM odom WHERE robot <> 'r1' GROUP BY 1 ORDER BY 1"
        meant = "SELECT robot, topic, count(*) FROM transforms WHERE robot = 'r2' GROUP BY 1, 2 ORDER BY 1, 2"
        points = "SELECT robot, count(*), avg(x) FROM points(scan, 20) WHERE robot = 'r0' GROUP BY 1 ORDER BY 1"
        compare(asof, cluster, ["s3://robots/drives"], [*chosen[:2], labelled, meant, points])
        answer = asked(asof, [outside], "SELECT avg(angular_velocity.z) FROM imu", "--cluster", cluster.address)
        assert answer.returncode == 1 and "under its roots" in answer.stderr, f"{answer.stderr}{answer.stdout}"
        print(f"  refused: {answer.stderr.strip()}")


def main():
    # At SIGTERM it stops its own processes.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to end"))
    asof = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        fleet, outside, logs = folder / "fleet", folder / "outside", folder / "logs"
        for path in (fleet, outside, logs):
            path.mkdir()
        for number in range(RECORDINGS):
            path = fleet / f"r{number % 3}" / f"run{number}.mcap"
            path.parent.mkdir(exist_ok=True)
            words = ["--seconds", str(SECONDS), "--seed", str(number + 1), "--no-serve"]
            subprocess.run([asof, "demo", "-q", "-o", path, *words], check=True, stdout=subprocess.DEVNULL)
        wanted = sys.argv[2:] or ["rows", "roots", "killed", "packaging", "bucket"]
        with running_cluster(asof, [fleet], logs) as cluster:
            cluster.executor("steady")
            victim = cluster.executor("victim")
            if "rows" in wanted:
                print("two executors, the same rows:")
                test_same_rows(asof, cluster, fleet)
            if "roots" in wanted:
                print("outside of the roots:")
                test_roots(asof, cluster, fleet, outside)
                test_sentences(asof, cluster, fleet)
            if "killed" in wanted:
                print("one executor is killed:")
                test_one_is_killed(asof, cluster, fleet, victim)
        if "packaging" in wanted:
            print("the examples in packaging/cluster:")
            test_packaging(asof, fleet, logs)
        if "bucket" in wanted:
            print("recordings in a bucket:")
            test_bucket(asof, fleet, folder / "bucket-logs")
    print("a cluster answers as one process does")


main()
