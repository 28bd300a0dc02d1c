"""Runs every command of README and book on the demo's recording.

usage: book.py FOLDER, which has the programs `asof` (complete) and `examples/robot`.

A command is a line of a block `sh`. Each page has a folder of its own, in which its commands run one after the other. What they
name and the page does not make is there before: recordings, a fleet, a simulated robot, a web server. Commands that go on until
Ctrl-C get an end, servers run until the page is over.
"""

import functools
import http.server
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

programs = pathlib.Path(sys.argv[1]).resolve()
book = pathlib.Path("docs/src")
PAGES = [pathlib.Path("README.md")] + [book / page for page in re.findall(r"\]\(([^)]+\.md)\)", (book / "SUMMARY.md").read_text())]
# Commands that install and build are tested by `ci/long/package` and by the gate itself.
NOT_HERE = ("cargo ", "tar ", "sudo ", "pip ", "ci/long/package ")
SECONDS = 4
PATIENCE = 180


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Ranges(http.server.SimpleHTTPRequestHandler):
    """A web server that knows ranges, which Python's own does not."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def send_head(self):
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        path = pathlib.Path(self.translate_path(self.path))
        if not wanted or not path.is_file():
            return super().send_head()
        size = path.stat().st_size
        first, last = int(wanted[1]), min(int(wanted[2] or size - 1), size - 1)
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        self.send_header("Content-Length", str(last + 1 - first))
        self.send_header("ETag", f'"{size}"')
        self.end_headers()
        with path.open("rb") as file:
            file.seek(first)
            self.wfile.write(file.read(last + 1 - first))
        return None


def commands_of(page):
    """The lines of its blocks `sh`, those that go on joined, without comments."""
    for block in re.findall(r"^```sh\n(.*?)^```$", page.read_text(), re.M | re.S):
        for line in block.replace("\\\n", " ").splitlines():
            line = re.sub(r"\s+# .*$|^#.*$", "", line).strip()
            if line and not line.startswith(NOT_HERE):
                yield line


def prepare(folder, demo, lines):
    """Makes what the page's commands name and do not make themselves."""
    text = "\n".join(lines)
    made = set(re.findall(r"-o (\S+)", text)) | ({"asof-demo.mcap"} if "asof demo" in text else set())
    for name in ["asof-demo.mcap", "run.mcap", "good.mcap", "new.mcap", "monday.bag", "tuesday.mcap"]:
        # The format is detected by the first bytes, not by the name.
        if name in text and name not in made:
            shutil.copy(demo, folder / name)
    if "tuesday/" in text:
        (folder / "tuesday").mkdir()
        asof("convert", demo, "-o", folder / "tuesday" / "tuesday_0.mcap", "--metadata-yaml")
    for robot in ["r7", "r8"]:
        place = folder / "fleet" / robot / "2024-05-01"
        place.mkdir(parents=True)
        shutil.copy(demo, place / "run.mcap")


def asof(*words):
    subprocess.run([programs / "asof", *map(str, words)], check=True, capture_output=True)


def here(line, addresses):
    """The same command with addresses of this machine, and an end."""
    for there, address in addresses.items():
        line = re.sub(there, address, line)
    line = re.sub(r"--for \d+m?s?\b", f"--for {SECONDS}s", line)
    verb = line.split()[1] if line.startswith("asof ") else ""
    goes_on = verb in ("live", "record", "cat", "join", "play") or "--follow" in line or "--monitor" in line
    if "zenoh://" in line and goes_on and "--for" not in line:
        line += f" --for {SECONDS}s"
    return line


def is_server(line):
    return bool(re.match(r"asof (serve|cluster (scheduler|executor))\b", line))


def is_ready(line, said, environment):
    """Whether it says where it is; an executor also has to be known to its scheduler."""
    executor = re.search(r"executor --listen (\S+).* --scheduler (\S+)", line)
    if not executor:
        return bool(re.search(r"127\.0\.0\.1:\d+", said))
    status = subprocess.run(["asof", "cluster", "status", executor[2]], env=environment, capture_output=True, text=True)
    return executor[1] in status.stdout


def serve(line, folder, environment):
    """Starts a server, and returns it once it says where it is."""
    browser = " --no-open" if line.startswith("asof serve") and "--no-open" not in line else ""
    log = folder / f"server-{time.monotonic_ns()}.log"
    server = subprocess.Popen(
        ["bash", "-c", f"exec {line}{browser}"], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
        stdout=log.open("w"), stderr=subprocess.STDOUT, start_new_session=True,
    )
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if is_ready(line, log.read_text(), environment):
            return server
        if server.poll() is not None:
            break
        time.sleep(0.1)
    server.kill()
    raise SystemExit(f"FAILED: {line} does not serve: {log.read_text()}")


def run(page, folder, addresses, demo, environment):
    lines = list(commands_of(page))
    folder.mkdir(parents=True)
    prepare(folder, demo, lines)
    servers = []
    try:
        for line in lines:
            line = here(line, addresses)
            if is_server(line):
                servers.append(serve(line, folder, environment))
                continue
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", line], cwd=folder, env=environment, timeout=PATIENCE, text=True,
                input="SELECT 1\n", capture_output=True,
            )
            if done.returncode != 0:
                raise SystemExit(f"FAILED: {page}: {line}: exit {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    finally:
        for server in servers:
            server.send_signal(signal.SIGTERM)
        for server in servers:
            server.wait(timeout=PATIENCE)
    return len(lines)


with tempfile.TemporaryDirectory() as root:
    root = pathlib.Path(root)
    demo = root / "run.mcap"
    subprocess.run([programs / "asof", "demo", "--no-serve", "-o", demo], check=True, capture_output=True)
    handler = functools.partial(Ranges, directory=root)
    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    port = free_port()
    robot = subprocess.Popen([programs / "examples" / "robot", f"zenoh://?listen=127.0.0.1:{port}", "3600"], stdout=subprocess.DEVNULL)
    addresses = {
        r"zenoh://192\.168\.1\.5:7447|zenoh://(?=\s|$)": f"zenoh://127.0.0.1:{port}",
        r"s3://bucket/fleet": "fleet",
        r"https://example\.com": f"http://127.0.0.1:{web.server_port}",
        r"10\.0\.0\.5:50050": f"127.0.0.1:{free_port()}",
        r"10\.0\.0\.6:50051": f"127.0.0.1:{free_port()}",
    }
    environment = {"PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin", "HOME": str(root), "TERM": "dumb"}
    try:
        counts = {page: run(page, root / str(number), addresses, demo, environment) for number, page in enumerate(PAGES)}
    finally:
        robot.terminate()
        robot.wait()

commands = sum(counts.values())
if commands < 60 or not counts[PAGES[0]]:
    sys.exit(f"FAILED: {commands} commands were found, which is too few")
print(f"README and book: {commands} commands run")
