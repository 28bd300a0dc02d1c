"""Recordings in a bucket and on a web server. See ci/remote-buckets."""

import contextlib
import functools
import http.server
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

import boto3
from moto.server import ThreadedMotoServer

programs = pathlib.Path(sys.argv[1]).resolve()
KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
failures = 0


def dump(place, **env):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "GOOGLE_", "AZURE_"))}
    return subprocess.run([programs / "dump", place], capture_output=True, text=True, env=clean | env, timeout=120, check=False)


def expect(what, is_so, told=""):
    global failures
    failures += not is_so
    print(f"{'good' if is_so else 'BAD '}  {what} {'' if is_so else told}", flush=True)


class Ranges(http.server.SimpleHTTPRequestHandler):
    """Python's own web server knows no ranges; this one does, for one range at a time."""

    def log_message(self, *_):
        pass

    def send_head(self):
        wanted = self.headers.get("Range")
        if wanted is None:
            return super().send_head()
        path = pathlib.Path(self.translate_path(self.path))
        data = path.read_bytes()
        first, last = wanted.removeprefix("bytes=").split("-")
        last = min(int(last or len(data) - 1), len(data) - 1)
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        self.send_header("Content-Length", str(last + 1 - int(first)))
        self.send_header("Last-Modified", self.date_time_string(path.stat().st_mtime))
        self.end_headers()
        self.wfile.write(data[int(first) : last + 1])
        return None


class NoRanges(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def copyfile(self, source, outputfile):
        # Whoever wanted a part hangs up on the whole.
        with contextlib.suppress(ConnectionError):
            super().copyfile(source, outputfile)


def serve(handler, folder):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


with tempfile.TemporaryDirectory() as folder:
    local = str(pathlib.Path(folder) / "run.mcap")
    subprocess.run([programs / "shuffled", local, "5"], check=True)
    moto = ThreadedMotoServer(port=0, verbose=False)
    moto.start()
    _, port = moto.get_host_and_port()
    endpoint = f"http://127.0.0.1:{port}"
    bucket = boto3.client(
        "s3", endpoint_url=endpoint, aws_access_key_id="key", aws_secret_access_key="secret", region_name="us-east-1"
    )
    bucket.create_bucket(Bucket="drives")
    bucket.upload_file(local, "drives", "day one/run.mcap")
    at_bucket = {**KEYS, "AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true"}
    places = {
        "s3": ("s3://drives/day one/run.mcap", at_bucket),
        "http": (serve(Ranges, folder) + "/run.mcap", {}),
    }
    wanted = dump(local).stdout
    assert wanted
    for name, (place, env) in places.items():
        found = dump(place, **env)
        expect(f"every message over {name} is that of the file", found.stdout == wanted, found.stderr[:300])
    told = dump("s3://drives/missing.mcap", **at_bucket).stderr
    expect("a missing object is told of", "no such file" in told, told)
    told = dump(serve(NoRanges, folder) + "/run.mcap").stderr
    expect("a server without ranges is told of", "does not hand out ranges" in told, told)
    told = dump("az://container/run.mcap").stderr
    expect("azure without an account says what to set", "AZURE_STORAGE_ACCOUNT_NAME" in told, told)
    expect("a refusal is one line", len(told.splitlines()) == 1, told)
    moto.stop()
sys.exit(failures > 0)
