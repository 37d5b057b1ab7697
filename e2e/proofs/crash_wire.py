"""A raw client for `crash.py`: one request on a socket of its own, read event by event, or cut.

What counts as read is what was taken from the socket and parsed; what a kernel buffered does not.
"""

import json
import socket
import struct
import threading
import time
from dataclasses import dataclass

# Every request must be answered, and its answer end, within this.
ANSWER_SECONDS = 20.0


@dataclass(frozen=True)
class Cut:
    """When a client leaves: after this many events, or at once (0), and how."""

    after: int
    # "reset": by RST; "close": as the kernel does, by FIN if all was read; "stall": it reads no
    # more, and stays until it is told to leave.
    how: str


@dataclass(frozen=True)
class Event:
    """An SSE event with an id; `data` is empty for one that only tells a cursor."""

    stream: str
    seq: int
    data: str

    @property
    def id(self):
        """The id as it was on the wire."""
        return f"{self.stream}-{self.seq}"


class Ended(Exception):
    """The connection ended before the answer did."""


class Exchange:
    """A request, and what was read of its answer.

    `end` is "whole" (to the last byte), "lost" (by the peer), "cut" (by this client), "refused" (no
    connection), "hang" (not within ANSWER_SECONDS) or "garbled" (no HTTP, no SSE).
    """

    def __init__(self, port, method, headers, body=None, cut=None, stays=False):
        self.method, self.headers, self.body, self.cut = method, headers, body, cut
        # It leaves the connection open when it has read all, as a pool does.
        self.stays = stays
        self.cursor = headers.get("Last-Event-ID")
        self.status, self.fields, self.text = None, {}, b""
        self.events, self.end, self.problem = [], None, None
        self.begun = self.written = self.ended = time.monotonic()
        self.was_written, self._left = threading.Event(), threading.Event()
        self._done = threading.Event()
        self._port, self._socket = port, None
        self._pending, self._rest = {}, b""
        threading.Thread(target=self._run, daemon=True).start()

    def leave(self):
        """Ends a client that stays."""
        self._left.set()

    def wait(self):
        """Waits for the end; itself."""
        if not self._done.wait(ANSWER_SECONDS + 10):
            self.end = "hang"
        return self

    def may_have_answer(self, request_id):
        """True if it closed as one does that has all it wants: it read the result of a request, or
        had taken more from the kernel than it looked at.
        """
        if self.end == "whole":
            return not self.stays and "result" in (self.answer(request_id) or {})
        closed = self.end == "cut" and self.cut.how == "close"
        return closed and (bool(self._rest) or "result" in (self.answer(request_id) or {}))

    def messages(self):
        """The JSON-RPC messages that were read, in order."""
        texts = [event.data for event in self.events if event.data]
        if self.end == "whole" and self.fields.get("content-type") == "application/json":
            texts.append(self.text)
        found = []
        for text in texts:
            message = json.loads(text)
            found.extend(message if isinstance(message, list) else [message])
        return found

    def answer(self, request_id):
        """The JSON-RPC response to a request; `None` if it was not read."""
        return next((message for message in self.messages()
                     if message.get("id") == request_id and "method" not in message), None)

    def __str__(self):
        asked = f" from {self.cursor}" if self.cursor else ""
        sent = f" {json.dumps(self.body)}" if self.body else ""
        read = "".join(f"\n    {event.id} {event.data}" for event in self.events)
        text = f"\n    {self.text.decode(errors='replace')}" if self.text else ""
        return (f"{self.begun:.4f}-{self.ended:.4f} {self.method}{asked}{sent}"
                f" -> {self.status} {self.end} {self.problem or ''}{read}{text}")

    def _run(self):
        try:
            self._exchange()
        except (TimeoutError, socket.timeout):
            self.end = "hang"
        except (Ended, OSError) as lost:
            self.end, self.problem = self.end or "lost", str(lost)
        except (ValueError, KeyError, UnicodeDecodeError) as garbled:
            self.end, self.problem = "garbled", repr(garbled)
        self.was_written.set()
        self.ended = time.monotonic()
        if self.stays and self.end == "whole":
            self._done.set()
            self._left.wait(ANSWER_SECONDS)
        self._close()
        self._done.set()

    def _exchange(self):
        try:
            self._socket = socket.create_connection(("127.0.0.1", self._port), 5)
        except OSError as refused:
            self.end, self.problem = "refused", str(refused)
            return
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(ANSWER_SECONDS)
        self._socket.sendall(self._request())
        self.written = time.monotonic()
        self.was_written.set()
        if self._leaves():
            return
        # Unbuffered: what was not read stays with the kernel, which resets the connection then.
        file = self._socket.makefile("rb", buffering=0)
        self._head(file)
        chunks = self._chunks(file)
        if self.fields.get("content-type", "").startswith("text/event-stream"):
            for chunk in chunks:
                if self._take(chunk):
                    return
        else:
            self.text = b"".join(chunks)
        self.end = "whole"

    def _request(self):
        body = b"" if self.body is None else json.dumps(self.body, separators=(",", ":")).encode()
        lines = [f"{self.method} /mcp HTTP/1.1", f"Host: 127.0.0.1:{self._port}",
                 *(f"{name}: {value}" for name, value in self.headers.items())]
        if self.body is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body

    def _head(self, file):
        status = line_of(file)
        version, code, _ = status.split(b" ", 2)
        if version != b"HTTP/1.1":
            raise ValueError(f"no HTTP/1.1 status: {status!r}")
        self.status = int(code)
        while line := line_of(file):
            name, value = line.decode().split(":", 1)
            self.fields[name.strip().lower()] = value.strip()

    def _chunks(self, file):
        if self.fields.get("transfer-encoding") != "chunked":
            size = int(self.fields.get("content-length", "0"))
            yield exactly(file, size)
            return
        while size := int(line_of(file), 16):
            yield exactly(file, size)
            line_of(file)
            if time.monotonic() - self.begun > ANSWER_SECONDS:
                raise TimeoutError
        line_of(file)

    def _take(self, chunk):
        """Reads events from a chunk; true if the client left."""
        rest = self._rest + chunk
        while b"\n" in rest:
            line, rest = rest.split(b"\n", 1)
            if line:
                name, _, value = line.decode().partition(":")
                self._pending[name] = value.removeprefix(" ")
                continue
            fields, self._pending = self._pending, {}
            if fields.get("id"):
                stream, seq = fields["id"].rsplit("-", 1)
                self.events.append(Event(stream, int(seq), fields.get("data", "")))
                self._rest = rest
                if self._leaves():
                    return True
        self._rest = rest
        return False

    def _leaves(self):
        if self.cut is None or len(self.events) < self.cut.after:
            return False
        if self.cut.how == "stall":
            self._left.wait(ANSWER_SECONDS)
        self.end = "cut"
        return True

    def _close(self):
        if self._socket is None:
            return
        try:
            if self.cut is not None and self.cut.how == "reset":
                linger = struct.pack("ii", 1, 0)
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        except OSError:
            pass
        self._socket.close()


def line_of(file):
    """A line without its end."""
    line = file.readline(65_536)
    if not line.endswith(b"\n"):
        raise Ended("the connection ended in the midst of an answer")
    return line.rstrip(b"\r\n")


def exactly(file, size):
    """This many bytes."""
    data = bytearray()
    while len(data) < size:
        more = file.read(size - len(data))
        if not more:
            raise Ended("the connection ended in the midst of an answer")
        data += more
    return bytes(data)
