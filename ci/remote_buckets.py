"""Recordings in a bucket and on a web server, read by the command. See ci/remote-buckets."""

import functools
import http.server
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

import boto3
from moto.server import ThreadedMotoServer

asof = str(pathlib.Path(sys.argv[1]).resolve())
KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
failures = 0


def run(*words, **env):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "GOOGLE_", "AZURE_"))}
    return subprocess.run([asof, *words], capture_output=True, text=True, env=clean | env, timeout=120, check=False)


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


def serve(handler, folder):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


with tempfile.TemporaryDirectory() as folder:
    local = str(pathlib.Path(folder) / "run.mcap")
    assert run("demo", "-o", local, "--seconds", "3").returncode == 0
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
    for name, (place, env) in places.items():
        found, wanted = run("info", place, "--json", **env), run("info", local, "--json")
        expect(f"info over {name}", found.returncode == 0, found.stderr)
        if found.returncode == 0:
            one, other = json.loads(found.stdout), json.loads(wanted.stdout)
            one["path"] = other["path"] = ""
            expect(f"info over {name} is that of the file", one == other)
        for words in (["cat", "--json", "--raw"], ["at", "--time", "+1.5s", "--json", "--raw"]):
            found, wanted = (run(words[0], where, *words[1:], **env) for where in (place, local))
            expect(f"{words[0]} over {name} is that of the file", found.stdout == wanted.stdout, found.stderr[:300])
    found = run("info", "s3://drives/missing.mcap", **at_bucket)
    expect("a missing object is told of", found.returncode == 1 and "no such file" in found.stderr, found.stderr)
    found = run("info", serve(NoRanges, folder) + "/run.mcap")
    told = found.stderr
    expect("a server without ranges is told of", found.returncode == 1 and "does not hand out ranges" in told, told)
    found = run("info", "az://container/run.mcap")
    told = found.stderr
    expect("azure without an account says what to set", "AZURE_STORAGE_ACCOUNT_NAME" in told, told)
    expect("every refusal is one line", len(told.splitlines()) == 1, told)
    moto.stop()
sys.exit(failures > 0)
