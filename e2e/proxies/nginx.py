"""A real nginx on loopback: how it is had, and one process with a configuration of the test's.

The program on the path is taken; else Debian's package is fetched by `apt-get download` and
unpacked into `.nginx/` here, without installing it: installing would start a server on port 80.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import peers  # noqa: E402

FOLDER = HERE / ".nginx"
GUIDE = HERE.parents[1] / "docs" / "operating.md"
INSTALL_SECONDS = 240
START_SECONDS = 10
# What nginx needs to run as whoever runs the test, and nothing else.
FRAME = """
daemon off;
worker_processes 1;
pid {folder}/pid;
error_log {folder}/error.log info;
{user}
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {servers}
}}
"""
PLAIN = """
server {
    listen 127.0.0.1:80;
    location / {
        proxy_pass http://127.0.0.1:8080;
        %s
    }
}
"""


def program():
    """The path of nginx, fetched if need be. Raises PeersMissing."""
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    unpacked = FOLDER / "usr" / "sbin" / "nginx"
    if found is None and not unpacked.is_file():
        fetch()
    path = found or str(unpacked)
    run([path, "-v"])
    return path


def fetch():
    """Debian's package, unpacked into the folder."""
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise peers.PeersMissing("nginx is not on the path, and this is no Debian: install it")
    FOLDER.mkdir(exist_ok=True)
    if not list(FOLDER.glob("nginx_*.deb")):
        # A machine that has never asked for the lists of packages finds none without them.
        if run(["apt-get", "download", "nginx"], cwd=FOLDER, check=False) != 0:
            run(["apt-get", "update"], cwd=FOLDER)
            run(["apt-get", "download", "nginx"], cwd=FOLDER)
    run(["dpkg-deb", "-x", str(next(FOLDER.glob("nginx_*.deb"))), str(FOLDER)])


def run(command, cwd=None, check=True):
    """The exit status of a command. Raises PeersMissing with its output if it fails."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True,
                          timeout=INSTALL_SECONDS, check=False)
    if check and done.returncode != 0:
        output = (done.stdout + done.stderr).strip()[-1000:]
        raise peers.PeersMissing(f"nginx: `{' '.join(command)}` failed:\n{output}")
    return done.returncode


def documented(heading):
    """The nginx block under a heading of docs/operating.md: the tests run what the page says."""
    _, found, rest = GUIDE.read_text().partition(f"### {heading}\n")
    block = re.search(r"```nginx\n(.*?)```", rest.partition("\n### ")[0], re.S)
    if not found or not block:
        raise AssertionError(f"{GUIDE} has no nginx block under `### {heading}`")
    return block[1]


def plain(*lines):
    """A server with `proxy_pass`, nginx's defaults, and these lines."""
    return PLAIN % "\n        ".join(lines)


class Nginx:
    """One nginx in front of a port; `with` ends it."""

    def __init__(self, servers, upstream_port, read_timeout=None):
        self._folder = tempfile.TemporaryDirectory()
        self.port = free_port()
        servers = servers.replace("127.0.0.1:8080", f"127.0.0.1:{upstream_port}")
        servers = servers.replace("127.0.0.1:80;", f"127.0.0.1:{self.port};")
        if read_timeout:
            servers = re.sub(r"proxy_read_timeout [^;]+;", f"proxy_read_timeout {read_timeout};",
                             servers)
            assert f"proxy_read_timeout {read_timeout};" in servers, servers
        user = "user root root;" if os.geteuid() == 0 else ""
        config = Path(self._folder.name) / "nginx.conf"
        config.write_text(FRAME.format(folder=self._folder.name, user=user, servers=servers))
        self._process = subprocess.Popen(
            [program(), "-c", str(config), "-e", "stderr"], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        deadline = time.monotonic() + START_SECONDS
        while not listens(self.port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"nginx does not start: {self._process.stderr.read()!r}")
            time.sleep(0.02)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
        self._process.stderr.close()
        self._folder.cleanup()

    def stop(self):
        """Ends it, at once."""
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def log(self):
        """What it has logged."""
        return (Path(self._folder.name) / "error.log").read_text()


def free_port():
    """A port that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def listens(port):
    """Whether somebody listens on a port."""
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
