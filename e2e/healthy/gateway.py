"""A gateway under test: `rejoin serve` with its server, its log and its metrics."""

import collections
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import peers  # noqa: E402
import run  # noqa: E402

KINDS = ("tools", "everything", "everything-http", "fastmcp-http")
METRIC = re.compile(r"^(rejoin_\w+)(?:\{([^}]*)\})? (\S+)$")


class Upstream:
    """A server that speaks HTTP itself, on a port of its own."""

    def __init__(self, kind, count_file):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/mcp"
        environment = {**os.environ, "PORT": str(port)}
        command = peers.everything_http() if kind == "everything-http" else [
            peers.venv_bin("fastmcp", "python"), str(peers.HERE / "servers/fastmcp_tools.py"),
            "--port", str(port), "--count-file", str(count_file)]
        self._process = subprocess.Popen(
            command, cwd=peers.HERE, env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + run.START_SECONDS
        while self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                if time.monotonic() > deadline:
                    break
                time.sleep(0.05)
        self.stop()
        raise RuntimeError(f"the server {kind} does not listen")

    def stop(self):
        """Ends the server."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Gateway(run.Front):
    """One gateway for one script of one client."""

    def __init__(self, kind, folder, limits):
        self._kind, self._limits, self._upstream = kind, limits, None
        try:
            super().__init__("tools", folder, False)
        except BaseException:
            self._stop_upstream()
            raise

    def _rejoin_command(self):
        binary = peers.rejoin_binary()
        log = os.environ.get("REJOIN_LOG", "info")
        options = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log", log]
        for limit in self._limits:
            options += ["--limit", limit]
        if self._kind == "tools":
            behind = ["--", binary, "tool-server", "--count-file", str(self.count_file)]
        elif self._kind == "everything":
            behind = ["--", *peers.everything_stdio()]
        else:
            self._upstream = Upstream(self._kind, self.count_file)
            behind = ["--upstream", self._upstream.url]
        return [binary, "serve", *options, *behind]

    def metrics(self):
        """The counters and gauges: {(name, ((label, value), ...)): number}."""
        log = self._log_path.read_text(errors="replace")
        found = re.search(r"admin on (http://127\.0\.0\.1:\d+)", log)
        if not found:
            raise RuntimeError("the log does not name the admin address: REJOIN_LOG hides it")
        with urllib.request.urlopen(f"{found[1]}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        values = {}
        for match in filter(None, map(METRIC.match, lines)):
            labels = re.findall(r'(\w+)="([^"]*)"', match[2] or "")
            values[match[1], tuple(sorted(labels))] = float(match[3])
        return values

    def log_lines(self):
        """The log so far."""
        return self._log_path.read_text(errors="replace").splitlines()

    def ran(self):
        """How often each tool was executed; None if this server does not count."""
        if self._kind.startswith("everything"):
            return None
        if not self.count_file.exists():
            return {}
        lines = self.count_file.read_text().splitlines()
        return dict(collections.Counter(line.split(" ", 1)[0] for line in lines))

    def stop(self):
        """Ends the gateway and its server; a complaint when one stays."""
        complaint = super().stop()
        self._stop_upstream()
        return complaint

    def _stop_upstream(self):
        if self._upstream is not None:
            self._upstream.stop()
            self._upstream = None


def fields(line):
    """The `name=value` fields of a log line."""
    return {name: value.strip('"') for name, value in re.findall(r'(\w+)=("[^"]*"|\S+)', line)}


def describe(values):
    """The verdicts of `rejoin_posts_total`, as JSON."""
    shown = {}
    for (name, labels), value in values.items():
        if name == "rejoin_posts_total":
            labels = dict(labels)
            shown[f"{labels['verdict']} {labels['reason']}".strip()] = int(value)
    return json.dumps(shown)
