"""A gateway under test: `rejoin serve` with its server, its log and its metrics."""

import collections
import contextlib
import os
import queue
import re
import subprocess
import sys
import threading
import urllib.request
from datetime import datetime
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import peers  # noqa: E402
import run  # noqa: E402

UPSTREAMS = ("stdio", "http")
SERVERS = ("tools", "everything")
METRIC = re.compile(r"^(rejoin_\w+)(?:\{([^}]*)\})? (\S+)$")
# A server that keeps what it sent for a resume pauses ever longer to collect its own garbage.
CALLS_A_SERVER = 1_000
# Every decision and every move of a call, each with its time: judge.py measures with them.
LOG = "info,rejoin_gateway::telemetry=debug"


class HttpServer:
    """A server that speaks HTTP itself. It serves one script at a time, but many scripts."""

    def __init__(self, server):
        self.served = 0
        self._counts = server == "tools"
        command = [peers.venv_bin("fastmcp", "python"), "servers/fastmcp_tools.py"] \
            if self._counts else ["node", "servers/everything.mjs"]
        self._process = subprocess.Popen(
            [*command, "--end-with-stdin"], cwd=peers.HERE, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        found = None
        for line in self._process.stdout:
            if found := re.search(r"(http://127\.0\.0\.1:\d+)/mcp", line):
                break
        if not found:
            self.stop()
            raise RuntimeError(f"the server {server} does not listen")
        self._root = found[1]
        # Read to the end: a server whose output nobody takes would stop in a write.
        threading.Thread(target=self._process.stdout.read, daemon=True).start()

    def url(self, count_file):
        """Where a gateway finds it, and what then counts its executions."""
        return f"{self._root}/count{count_file}/mcp" if self._counts else f"{self._root}/mcp"

    def stop(self):
        """Ends the server, if it still runs."""
        self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class HttpServers:
    """Servers that are up: starting one takes longer than a short script."""

    def __init__(self, server):
        self._server = server
        self._idle = queue.SimpleQueue()
        self._all = []

    @contextlib.contextmanager
    def one(self, calls):
        """A server that nobody else uses meanwhile, for a script of so many calls."""
        try:
            server = self._idle.get_nowait()
        except queue.Empty:
            server = HttpServer(self._server)
            self._all.append(server)
        yield server
        # Not after a failure: what that script left behind is no other script's concern.
        server.served += calls
        if server.served < CALLS_A_SERVER:
            self._idle.put(server)
        else:
            server.stop()

    def stop(self):
        """Ends all of them."""
        for server in self._all:
            server.stop()


class Gateway(run.Front):
    """One gateway for one script of one client."""

    def __init__(self, server, folder, limits, http=None):
        self._limits, self._http = limits, http
        super().__init__(server, folder, False)

    def _rejoin_command(self):
        binary = peers.rejoin_binary()
        log = os.environ.get("REJOIN_LOG", LOG)
        options = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log", log]
        for limit in self._limits:
            options += ["--limit", limit]
        if self._http is not None:
            behind = ["--upstream", self._http.url(self.count_file)]
        elif self.name == "tools":
            behind = ["--", binary, "tool-server", "--count-file", str(self.count_file)]
        else:
            behind = ["--", *peers.everything_stdio()]
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
        if self.name == "everything":
            return None
        if not self.count_file.exists():
            return {}
        lines = self.count_file.read_text().splitlines()
        return dict(collections.Counter(line.split(" ", 1)[0] for line in lines))


def fields(line):
    """The `name=value` fields of a log line."""
    return {name: value.strip('"') for name, value in re.findall(r'(\w+)=("[^"]*"|\S+)', line)}


def moment_ms(line):
    """The time at the start of a log line."""
    return datetime.fromisoformat(line.split(" ", 1)[0]).timestamp() * 1000
