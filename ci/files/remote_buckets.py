"""Recordings in buckets and on web servers, through the command. See ci/files/remote-buckets."""

import contextlib
import functools
import http.server
import itertools
import json
import logging
import os
import pathlib
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

import boto3
from azure.storage.blob import BlobServiceClient
from moto.server import ThreadedMotoServer

asof, shuffled = (pathlib.Path(name).resolve() for name in sys.argv[1:3])
azurite = sys.argv[3] if len(sys.argv) > 3 else None
KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
OBJECT = "day one/run.mcap"
failures = 0
logging.getLogger("werkzeug").setLevel(logging.ERROR)


def run(*words, **env):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "GOOGLE_", "AZURE_"))}
    return subprocess.run([asof, *words], capture_output=True, text=True, env=clean | env, timeout=300, check=False)


def cat(place, **env):
    return run("cat", place, "--raw", "--json", **env)


def expect(what, is_so, told=""):
    global failures
    failures += not is_so
    print(f"{'good' if is_so else 'BAD '}  {what} {'' if is_so else told}", flush=True)


class Server:
    """A folder on the web, with whatever goes wrong there."""

    def __init__(self, folder, has_ranges=True, latency=0.0, failing=0):
        self.has_ranges, self.latency, self.failing = has_ranges, latency, failing
        self.requests = itertools.count()
        self.before = lambda number: None
        handler = functools.partial(Handler, self, directory=folder)
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self.http.server_port}"

    def count(self):
        """How many requests there were since the last call."""
        seen = next(self.requests)
        self.requests = itertools.count()
        return seen


class Handler(http.server.SimpleHTTPRequestHandler):
    """Python's own web server knows no ranges; this one does, for one range at a time."""

    protocol_version = "HTTP/1.1"

    def __init__(self, server, *args, **kwargs):
        self.place = server
        super().__init__(*args, **kwargs)

    def log_message(self, *_):
        pass

    def send_head(self):
        number = next(self.place.requests)
        self.place.before(number)
        time.sleep(self.place.latency)
        if self.place.failing and number % self.place.failing == self.place.failing - 1:
            self.send_error(503)
            return None
        wanted = self.headers.get("Range")
        if wanted is None or not self.place.has_ranges:
            return super().send_head()
        path = pathlib.Path(self.translate_path(self.path))
        if not path.exists():
            self.send_error(404)
            return None
        size = path.stat().st_size
        first, last = wanted.removeprefix("bytes=").split("-")
        first, last = int(first), min(int(last or size - 1), size - 1)
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        self.send_header("Content-Length", str(last + 1 - first))
        self.send_header("Last-Modified", self.date_time_string(path.stat().st_mtime))
        self.end_headers()
        # A client that detects an error closes the connection.
        with path.open("rb") as file, contextlib.suppress(ConnectionError):
            file.seek(first)
            self.wfile.write(file.read(last + 1 - first))
        return None

    def end_headers(self):
        path = pathlib.Path(self.translate_path(self.path))
        if path.is_file():
            found = path.stat()
            self.send_header("ETag", f'"{found.st_ino:x}-{found.st_size:x}-{found.st_mtime_ns:x}"')
        super().end_headers()

    def copyfile(self, source, outputfile):
        # A client that asked for a range closes the connection when it gets the whole file.
        with contextlib.suppress(ConnectionError):
            super().copyfile(source, outputfile)


def objects(local, folder):
    """What lies in a bucket: the file, the file again further down, a bag with a part missing, and other things."""
    bag = pathlib.Path(folder) / "bag_0.db3"
    with contextlib.closing(sqlite3.connect(bag)) as database, database:
        database.executescript(
            """CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT, type TEXT, serialization_format TEXT);
            INSERT INTO topics VALUES (1, '/said', 'std_msgs/msg/String', 'cdr');
            CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER, timestamp INTEGER, data BLOB);
            INSERT INTO messages VALUES (1, 1, 5000000000, x'00010000020000004100');"""
        )
    description = "rosbag2_bagfile_information:\n  relative_file_paths: [bag_0.db3, bag_1.db3]\n"
    file = pathlib.Path(local).read_bytes()
    return {
        OBJECT: file,
        "day one/noon/again.mcap": file,
        "day one/.unfinished.mcap": b"nothing yet",
        "day one/notes.txt": b"it rained",
        "bags/first/bag_0.db3": bag.read_bytes(),
        "bags/first/metadata.yaml": description.encode(),
    }


def folders(scheme, env, messages):
    """Folders of a bucket are what is in them."""
    for place in [f"{scheme}://drives/day one", f"{scheme}://drives/day one/"]:
        found = run("info", place, "--json", **env)
        counted = json.loads(found.stdout)["messages"] if found.stdout else found.stderr
        expect(f"{place} has the messages of both files in it", counted == 2 * messages, counted)
    found = run("info", f"{scheme}://drives/bags/first/metadata.yaml", "--json", **env)
    bag = json.loads(found.stdout) if found.stdout else {"messages": found.stderr}
    expect(f"a bag over {scheme} is opened by its description", bag["messages"] == 1, bag)
    expect("its missing part is told of", "bag_1.db3" in found.stdout + found.stderr, found.stderr)
    found = run("info", f"{scheme}://drives", "--json", **env)
    bucket = json.loads(found.stdout) if found.stdout else {"messages": found.stderr}
    expect(f"a whole bucket over {scheme} is one recording", bucket["messages"] == 2 * messages + 1, bucket["messages"])
    expect("and what is missing in it is told of", "bag_1.db3" in found.stdout + found.stderr, found.stderr)
    told = run("info", f"{scheme}://drives/nowhere/", **env).stderr
    expect("a folder with nothing in it is told of", "nothing there" in told and len(told.splitlines()) == 1, told)


@contextlib.contextmanager
def amazon(held):
    """A server that speaks S3, with files in a bucket."""
    moto = ThreadedMotoServer(port=0, verbose=False)
    moto.start()
    _, port = moto.get_host_and_port()
    endpoint = f"http://127.0.0.1:{port}"
    bucket = boto3.client(
        "s3", endpoint_url=endpoint, aws_access_key_id="key", aws_secret_access_key="secret", region_name="us-east-1"
    )
    bucket.create_bucket(Bucket="drives")
    for name, content in held.items():
        bucket.put_object(Bucket="drives", Key=name, Body=content)
    yield {**KEYS, "AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true"}
    moto.stop()


@contextlib.contextmanager
def azure(held, folder):
    """Azurite, with files in a container; `None` where it is not installed."""
    if azurite is None:
        print("SKIPPED: az://, since azurite is not here", flush=True)
        yield None
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [azurite, "--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", folder, "--silent"]
    emulator = subprocess.Popen([*command, "--skipApiVersionCheck", "--disableTelemetry"], stdout=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    # The account and key that every Azurite has.
    key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
    account = f"{address}/devstoreaccount1"
    try:
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.2)
        container = BlobServiceClient(account, credential=key).create_container("drives")
        for name, content in held.items():
            container.upload_blob(name, content)
        yield {"AZURE_STORAGE_USE_EMULATOR": "true", "AZURITE_BLOB_STORAGE_URL": address}
    finally:
        emulator.terminate()
        emulator.wait()


def buckets(local, folder):
    """Every message of a bucket is that of the file."""
    wanted = cat(local).stdout
    assert wanted
    # Google's buckets answer readers as a web server does, at /bucket/object.
    google = pathlib.Path(folder) / "google"
    (google / "drives" / OBJECT).parent.mkdir(parents=True)
    shutil.copy(local, google / "drives" / OBJECT)
    at_google = {"GOOGLE_BASE_URL": Server(str(google)).address, "ALLOW_HTTP": "true"}
    held = objects(local, folder)
    messages = json.loads(run("info", local, "--json").stdout)["messages"]
    with amazon(held) as at_amazon, azure(held, str(pathlib.Path(folder) / "azurite")) as at_azure:
        places = {"s3": at_amazon, "gs": at_google, "az": at_azure}
        for scheme, env in places.items():
            if env is None:
                continue
            found = cat(f"{scheme}://drives/{OBJECT}", **env)
            expect(f"every message over {scheme} is that of the file", found.stdout == wanted, found.stderr[:300])
            told = cat(f"{scheme}://drives/missing.mcap", **env).stderr
            expect(f"a missing object over {scheme} is told of", "no such file" in told, told)
            # The web server in place of Google's cannot list its files.
            if scheme != "gs":
                folders(scheme, env, messages)
    told = cat("az://container/run.mcap").stderr
    expect("azure without an account says what to set", "AZURE_STORAGE_ACCOUNT_NAME" in told, told)
    expect("a refusal is one line", len(told.splitlines()) == 1, told)


def silence():
    """A server that listens and says nothing is given up after half a minute or so."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        started = time.monotonic()
        told = run("info", f"http://127.0.0.1:{server.getsockname()[1]}/run.mcap").stderr
    took = time.monotonic() - started
    expect(f"a server that says nothing is told of after {took:.0f} s", "nothing for" in told and took < 60, told)
    expect("in one line, too", len(told.splitlines()) == 1, told)


def info(server):
    """A look at what is in a file costs a few requests, however large it is."""
    server.count()
    found = run("info", f"{server.address}/run.mcap", "--json")
    requests = server.count()
    size = json.loads(found.stdout)["size"] if found.stdout else 0
    expect(f"info on {size / 1e6:.0f} MB took {requests} requests", 0 < requests <= 4, found.stderr)


def web(local, folder):
    """A web server, and what goes wrong with them."""
    wanted = cat(local).stdout
    web = Server(folder)
    place = f"{web.address}/run.mcap"
    found = cat(place)
    expect("every message over http is that of the file", found.stdout == wanted, found.stderr[:300])
    info(web)
    copy = str(pathlib.Path(folder) / "copy.mcap")
    found = run("convert", place, "-o", copy)
    expect("convert reads over http", found.returncode == 0 and cat(copy).stdout == wanted, found.stderr)
    found = run("at", place, "--time", "-0.001s", "--json", "--raw")
    expect("what was known then, over http", found.stdout == run("at", local, "--time", "-0.001s", "--json", "--raw").stdout)

    slow = Server(folder, latency=0.05)
    started = time.monotonic()
    found = cat(f"{slow.address}/run.mcap")
    took, requests = time.monotonic() - started, slow.count()
    expect(f"50 ms of latency: the same, in {requests} requests and {took:.1f} s", found.stdout == wanted, found.stderr)

    failing = Server(folder, failing=5)
    found = cat(f"{failing.address}/run.mcap")
    expect("one request in five fails: the same", found.stdout == wanted, found.stderr)

    told = cat(f"{Server(folder, has_ranges=False).address}/run.mcap").stderr
    expect("a server without ranges is told of", "does not hand out ranges" in told, told)
    expect("in one line", len(told.splitlines()) == 1, told)

    changing = pathlib.Path(folder) / "changing.mcap"
    other = pathlib.Path(folder) / "other.mcap"
    shutil.copy(local, changing)
    shutil.copy(local, other)
    swapped = Server(folder)
    swapped.before = lambda number: other.exists() and number == 4 and other.replace(changing)
    found = cat(f"{swapped.address}/changing.mcap")
    is_told = found.returncode == 1 and "changed" in found.stderr and len(found.stderr.splitlines()) == 1
    expect("a file that is swapped meanwhile is told of", is_told, found.stderr or f"exit code {found.returncode}")


with tempfile.TemporaryDirectory() as folder:
    local = str(pathlib.Path(folder) / "run.mcap")
    if "ASOF_REMOTE_MEGABYTES" in os.environ:
        subprocess.run([shuffled, local, os.environ["ASOF_REMOTE_MEGABYTES"]], check=True)
        info(Server(folder))
    else:
        subprocess.run([shuffled, local, "20"], check=True)
        # Most of the time is spent waiting.
        quiet = threading.Thread(target=silence)
        quiet.start()
        web(local, folder)
        buckets(local, folder)
        quiet.join()
sys.exit(failures > 0)
