"""An MCP client of plain sockets that notes when each event came, and can cut its connection."""

import contextlib
import http.client
import json
import socket
import struct
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "proofs"))

import rejoin  # noqa: E402

WAIT_SECONDS = 30


@dataclass
class Event:
    """One SSE event: when it came, its id, its message if it has one."""

    at: float
    id: str
    message: dict | None


class Cut(Exception):
    """The connection ended before the answer did."""


class Answer:
    """The answer to one request, on a connection of its own."""

    def __init__(self, port, method, headers, body, read=True):
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_SECONDS)
        fields = {"Accept": rejoin.ACCEPT, **headers}
        if body is not None:
            fields["Content-Type"] = "application/json"
            body = json.dumps(body, separators=(",", ":")).encode()
        self.sent_at = time.monotonic()
        self._connection.request(method, "/mcp", body, fields)
        self._socket = self._connection.sock
        self._file = self._socket.makefile("rb")
        self._body = b""
        self.comments = 0
        if read:
            self.head()

    def head(self):
        """Reads the head."""
        self.status = int(self._line().split(" ")[1])
        self.headers = {}
        while line := self._line():
            name, _, value = line.partition(":")
            self.headers[name.lower()] = value.strip()
        self.head_at = time.monotonic()

    def json(self):
        """The whole body, which is JSON and has a length."""
        return json.loads(self._file.read(int(self.headers["content-length"])))

    def event(self):
        """The next event; None at the end of the stream. Raises Cut."""
        event_id, data = "", []
        while True:
            while b"\n" not in self._body:
                chunk = self._chunk()
                if not chunk:
                    return None
                self._body += chunk
            raw, _, self._body = self._body.partition(b"\n")
            line = raw.decode().rstrip("\r")
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if line.startswith(":"):
                self.comments += 1
            elif name == "id":
                event_id = value
            elif name == "data":
                data.append(value)
            elif not line and (event_id or data):
                text = "\n".join(data)
                return Event(time.monotonic(), event_id, json.loads(text) if text else None)

    def _chunk(self):
        data = self._file.read(int(self._line(), 16))
        if self._file.readline() != b"\r\n":
            raise Cut("in the middle of a chunk")
        return data

    def _line(self):
        try:
            line = self._file.readline()
        except ConnectionError as error:
            raise Cut(str(error)) from error
        if not line.endswith(b"\n"):
            raise Cut("no last chunk")
        return line.decode().rstrip("\r\n")

    def messages(self, count):
        """Reads events until so many with a message came: all of them."""
        events = []
        while sum(event.message is not None for event in events) < count:
            event = self.event()
            if event is None:
                raise AssertionError(f"the stream ended after {events}")
            events.append(event)
        return events

    def rest(self):
        """All events up to the end. Raises Cut."""
        events = []
        while event := self.event():
            events.append(event)
        return events

    def cut(self):
        """Resets the connection."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._file.close()
        self._connection.close()


class Session:
    """A session at a port, each request on a new connection."""

    def __init__(self, port, **headers):
        self._port = port
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_SECONDS)
        self.headers = rejoin.initialize(connection, headers)
        connection.close()

    def charge(self, request_id, amount, events=0, interval_ms=0, read=True, **headers):
        """The answer to a call that takes so many progress events, so far apart."""
        arguments = {"amount": amount, "events": events, "interval_ms": interval_ms}
        message = rejoin.call(request_id, "charge", arguments)
        return Answer(self._port, "POST", {**self.headers, **headers}, message, read)

    def echo(self, request_id, text):
        """The answer to a call with a large argument."""
        message = rejoin.call(request_id, "echo", {"text": text})
        return Answer(self._port, "POST", self.headers, message)

    def resume(self, cursor):
        """The answer to a GET with this cursor."""
        headers = {**self.headers, "Accept": "text/event-stream", "Last-Event-ID": cursor}
        return Answer(self._port, "GET", headers, None)


class Gateway(rejoin.Gateway):
    """A gateway that logs every move of a stream."""

    def __init__(self, *options, upstream=None):
        log = ["--log", "info,rejoin_gateway::telemetry=debug"]
        super().__init__(*log, *options, upstream=upstream)

    def wait_for(self, *texts, count=1):
        """Waits until the log has so many lines with all these texts."""
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            lines = self._log_path.read_text(errors="replace").splitlines()
            if sum(all(text in line for text in texts) for line in lines) >= count:
                return
            time.sleep(0.02)
        raise AssertionError(f"no line with {texts} in the log: {lines[-20:]}")

    def wait_for_executions(self, count):
        """Waits until so many calls were executed."""
        deadline = time.monotonic() + WAIT_SECONDS
        while self.executions() < count:
            assert time.monotonic() < deadline, f"{self.executions()} executions, not {count}"
            time.sleep(0.02)

    def lost(self):
        """Waits until it saw that a running call's connection is gone."""
        self.wait_for("a stream moved", 'to="owed"')


def resumed(session, cursor):
    """Resumes up to five times, each time from the last event that came: the response."""
    for _ in range(5):
        answer = session.resume(cursor)
        assert answer.status == 200, answer.status
        try:
            while event := answer.event():
                cursor = event.id or cursor
                if event.message and event.message.get("id") is not None:
                    return event.message
        except Cut:
            continue
    raise AssertionError(f"no response after five resumes, the last from {cursor}")


class Resetting:
    """A server that answers so many requests and resets the connection of every later one."""

    def __init__(self, after):
        self._after = after
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(WAIT_SECONDS)
        self.port = self._listener.getsockname()[1]
        self.taken = []

    def __enter__(self):
        threading.Thread(target=self._run, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._listener.close()

    def _run(self):
        with contextlib.suppress(OSError):
            while True:
                with self._listener.accept()[0] as connection:
                    connection.settimeout(WAIT_SECONDS)
                    self._serve(connection)

    def _serve(self, connection):
        while data := connection.recv(65536):
            self.taken.append(data.split(b" ", 1)[0].decode())
            if len(self.taken) > self._after:
                linger = struct.pack("ii", 1, 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                return
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")


def opening_status(port, **headers):
    """The status of `initialize` with these header fields."""
    params = {"protocolVersion": rejoin.REVISION, "capabilities": {},
              "clientInfo": {"name": "proxies", "version": "1"}}
    message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    return Answer(port, "POST", headers, message).status


def sockets_to(port):
    """How many connections to a loopback port are open, or were until lately."""
    ends = [line.split()[1:3] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    peers = [other if here.endswith(f":{port:04X}") else here for here, other in ends
             if f"{port:04X}" in {here[-4:], other[-4:]}]
    return len(set(peers) - {"00000000:0000"})


def numbers(events):
    """The numbers of the progress events, in the order in which they came."""
    return [event.message["params"]["progress"] for event in events
            if event.message and event.message.get("method") == "notifications/progress"]


def result(events):
    """The response at the end."""
    return events[-1].message
