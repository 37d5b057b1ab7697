"""`rejoin serve` on loopback in front of its own tool server, and plain requests to it."""

import http.client
import json
import re
import subprocess
import sys
import tempfile
import threading
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import peers  # noqa: E402

START_SECONDS = 20
REVISION = "2025-11-25"
ACCEPT = "application/json, text/event-stream"


class Gateway:
    """A gateway; `with` ends it by SIGTERM and waits for it."""

    def __init__(self, *options, upstream=None):
        self._folder = tempfile.TemporaryDirectory()
        self.count_file = Path(self._folder.name) / "executions"
        self._log_path = Path(self._folder.name) / "log"
        binary = peers.rejoin_binary()
        listen = [] if "--listen" in options else ["--listen", "127.0.0.1:0"]
        listen += ["--admin", "127.0.0.1:0"]
        behind = ["--upstream", upstream] if upstream else [
            "--", binary, "tool-server", "--count-file", str(self.count_file)]
        self._log = open(self._log_path, "wb")
        self.process = subprocess.Popen(
            [binary, "serve", *listen, *options, *behind], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=self._log, text=True)
        line = self.process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/mcp", line)
        if not found:
            self.process.terminate()
            raise RuntimeError(f"rejoin serve printed no URL: {self._log_path.read_text()[-500:]}")
        self.port = int(found[1])
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._log.close()
        self._folder.cleanup()

    def executions(self):
        """How many calls were executed."""
        if not self.count_file.exists():
            return 0
        return len(self.count_file.read_text().splitlines())

    def metric(self, name):
        """The sum of a metric over its labels."""
        found = re.search(r"admin on (http://127\.0\.0\.1:\d+)", self._log_path.read_text())
        with urllib.request.urlopen(f"{found[1]}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        rows = re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", text, re.M)
        return sum(float(row) for row in rows)

    def connect(self):
        """A connection that stays open."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)


def exchange(connection, method, headers, body=None):
    """One request: (status, header fields but Date, body)."""
    if body is not None:
        headers = {"Content-Type": "application/json", **headers}
        body = json.dumps(body, separators=(",", ":")).encode()
    connection.request(method, "/mcp", body, {"Accept": ACCEPT, **headers})
    answer = connection.getresponse()
    fields = sorted((name.lower(), value) for name, value in answer.getheaders())
    payload = answer.read()
    return answer.status, [field for field in fields if field[0] != "date"], payload


def initialize(connection, headers):
    """Opens a session: the header fields of its requests."""
    params = {"protocolVersion": REVISION, "capabilities": {},
              "clientInfo": {"name": "proofs", "version": "1"}}
    body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    status, fields, text = exchange(connection, "POST", headers, body)
    if status != 200:
        raise RuntimeError(f"initialize was answered {status}: {text[:300]!r}")
    session = {**headers, "Mcp-Session-Id": dict(fields)["mcp-session-id"],
               "Mcp-Protocol-Version": REVISION}
    body = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    status, _, text = exchange(connection, "POST", session, body)
    if status != 202:
        raise RuntimeError(f"initialized was answered {status}: {text[:300]!r}")
    return session


def call(request_id, tool, arguments):
    """A `tools/call` with progress."""
    params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": request_id}}
    return {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}
