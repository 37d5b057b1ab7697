#!/usr/bin/env python3
"""A loopback proxy that ends the answer streams of some calls, cleanly or by a reset.

Everything passes through unchanged but for the calls that plans name, by tool and arguments. A plan
begins with the first such call. Each of its cuts applies to the next answer stream of that call:
the event stream that answers its POST, then the event streams that answer `GET` with
`Last-Event-ID`. A cut lets `events` events through, after the head, and then ends the stream:

  clean     the chunked body ends with its last chunk, then the connection closes
  truncate  the connection closes in the middle of the body
  rst       the connection is reset

The upstream connection is reset at the same moment, so the server sees that what the cutter's
kernel took from it did not arrive. `GET /state` on the control address tells what was cut; all cuts
of a plan count as done once the next one has begun.
"""

import asyncio
import contextlib
import json
import socket
import struct
import threading
from dataclasses import dataclass, field

HEAD_LIMIT_BYTES = 64 * 1024
READ_BYTES = 64 * 1024
KINDS = ("clean", "truncate", "rst")


class SseCount:
    """Counts complete events in a byte stream; a block of comments alone is not an event."""

    def __init__(self):
        self._pending = b""
        self._fields = False

    def take(self, data, wanted):
        """Returns (events seen, length of the prefix that ends with the wanted-th event)."""
        seen = 0
        start = len(self._pending)
        buffer = self._pending + data
        position = 0
        while (end := buffer.find(b"\n", position)) >= 0:
            line = buffer[position:end].rstrip(b"\r")
            position = end + 1
            if line:
                self._fields = self._fields or not line.startswith(b":")
            elif self._fields:
                self._fields = False
                seen += 1
                if seen == wanted:
                    self._pending = b""
                    return seen, position - start
        self._pending = buffer[position:]
        return seen, len(data)


class Head:
    """The start line and headers of one HTTP/1.1 message, with its raw bytes."""

    def __init__(self, raw):
        self.raw = raw
        lines = raw.decode("latin-1").split("\r\n")
        self.start = lines[0]
        self.headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            self.headers[name.strip().lower()] = value.strip()

    def get(self, name):
        """The value of a header in lower case, or an empty string."""
        return self.headers.get(name, "").lower()

    @property
    def chunked(self):
        """True when the body comes in chunks."""
        return "chunked" in self.get("transfer-encoding")


async def read_head(reader, early=b""):
    """Reads one message head, `early` being its first bytes; None when the peer closed before."""
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    return Head(early + raw)


async def read_chunk(reader):
    """Reads one chunk: (raw bytes of the chunk, its data). The last chunk has no data."""
    size_line = await reader.readuntil(b"\r\n")
    size = int(size_line.split(b";")[0], 16)
    if size == 0:
        raw = size_line
        while True:
            line = await reader.readuntil(b"\r\n")
            raw += line
            if line == b"\r\n":
                return raw, b""
    body = await reader.readexactly(size + 2)
    return size_line + body, body[:-2]


async def read_body(reader, head):
    """Reads a whole request body: (raw bytes, decoded bytes)."""
    if head.chunked:
        raw, data = b"", b""
        while True:
            chunk, part = await read_chunk(reader)
            raw += chunk
            data += part
            if not part:
                return raw, data
    length = int(head.headers.get("content-length", "0"))
    body = await reader.readexactly(length)
    return body, body


def frame(data):
    """One chunk of a chunked body."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def reset(writer):
    """Closes a connection so that its peer sees a reset."""
    sock = writer.get_extra_info("socket")
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@dataclass
class Plan:
    """What happens to one call, and what was asked from its beginning to that of the next one."""

    tool: str
    # Those that tell it from other calls of the tool.
    arguments: dict = field(default_factory=dict)
    cuts: list = field(default_factory=list)
    done: list = field(default_factory=list)
    requests: list = field(default_factory=list)

    def __post_init__(self):
        for cut in self.cuts:
            if cut["kind"] not in KINDS or cut["events"] < 0:
                raise ValueError(f"a cut needs a kind of {KINDS} and a number of events: {cut}")

    def is_for(self, params):
        """Whether this is the call."""
        arguments = params.get("arguments") or {}
        return params.get("name") == self.tool and self.arguments.items() <= arguments.items()

    def next_cut(self):
        """The cut of the next answer stream, or None."""
        return self.cuts[len(self.done)] if len(self.done) < len(self.cuts) else None


class Cutter:
    """The proxy and its control address, on an event loop in a thread of their own."""

    def __init__(self, upstream_host, upstream_port, plans=()):
        self._upstream = (upstream_host, upstream_port)
        self._plans = list(plans)
        self._begun = 0
        self._loop = asyncio.new_event_loop()
        self._tasks = set()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ready = threading.Event()
        self._stop = None
        self.port = 0
        self.control_port = 0

    def start(self):
        """Starts listening on two free loopback ports."""
        self._thread.start()
        if not self._ready.wait(10):
            raise RuntimeError("the cutter did not start to listen within 10 s")
        return self

    def stop(self):
        """Ends every connection and the thread."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def tell(self):
        """Counts one more cut than there was, for a client that waits for it."""
        self._plans[self._begun - 1].done.append({"kind": "told", "missed": True})

    def _cuts(self):
        """The cuts so far, those that an earlier plan still had among them."""
        if not self._begun:
            return []
        *before, now = self._plans[: self._begun]
        return [cut for plan in before for cut in plan.cuts] + now.done

    def _run(self):
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._main())
        self._loop.close()

    async def _main(self):
        self._stop = asyncio.Event()
        data = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=HEAD_LIMIT_BYTES)
        control = await asyncio.start_server(self._control, "127.0.0.1", 0)
        self.port = data.sockets[0].getsockname()[1]
        self.control_port = control.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        data.close()
        control.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader, writer):
        task = asyncio.current_task()
        self._tasks.add(task)
        upstream = None
        try:
            upstream = await asyncio.open_connection(*self._upstream, limit=HEAD_LIMIT_BYTES)
            early = b""
            while early is not None:
                early = await self._exchange(reader, writer, *upstream, early)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError, ValueError):
            pass  # either side went away: the other one is closed below
        finally:
            self._tasks.discard(task)
            for end in [writer] + ([upstream[1]] if upstream else []):
                with contextlib.suppress(OSError):
                    end.close()

    async def _exchange(self, reader, writer, up_reader, up_writer, early):
        """One request and its answer: the first byte of the next request, None when it is over.

        The byte is read early because a client that leaves while its answer runs must reach the
        server as a closed connection; it is then handed to the next exchange.
        """
        request = await read_head(reader, early)
        if request is None:
            return None
        raw, body = await read_body(reader, request)
        entry, plan = self._note(request, body)
        up_writer.write(request.raw + raw)
        await up_writer.drain()
        following = asyncio.ensure_future(reader.read(1))
        answer = asyncio.ensure_future(self._answer(entry, plan, writer, up_reader, up_writer))
        tasks = [following, answer]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done() and not following.result():
                return None
            if not await answer:
                return None
            # A server that ends must reach its client as a closed connection, too.
            tasks.append(asyncio.ensure_future(up_reader.read(1)))
            await asyncio.wait({following, tasks[-1]}, return_when=asyncio.FIRST_COMPLETED)
            return following.done() and following.result() or None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _note(self, request, body):
        """Records a request; its record, and the plan for its answer or None."""
        method = request.start.split(" ")[0]
        entry = {
            "method": method,
            "cursor": request.headers.get("last-event-id"),
            "revision": request.headers.get("mcp-protocol-version"),
        }
        begun = False
        with contextlib.suppress(ValueError, AttributeError, KeyError):
            message = json.loads(body) if body else {}
            entry["message"] = message.get("method")
            if entry["message"] == "tools/call":
                entry["tool"] = message["params"].get("name")
                begun = self._begin(message["params"])
        if not self._begun:
            return entry, None
        plan = self._plans[self._begun - 1]
        plan.requests.append(entry)
        is_answer = begun or (method == "GET" and entry["cursor"] is not None)
        return entry, plan if is_answer else None

    def _begin(self, params):
        """Goes on to the next plan if this is its call."""
        if self._begun == len(self._plans) or not self._plans[self._begun].is_for(params):
            return False
        self._begun += 1
        return True

    async def _answer(self, entry, plan, writer, up_reader, up_writer):
        """Passes one answer on. False when the connection must not be used again."""
        head = await read_head(up_reader)
        if head is None:
            return False
        entry["status"] = int(head.start.split(" ")[1])
        writer.write(head.raw)
        await writer.drain()
        stream = head.get("content-type").startswith("text/event-stream")
        if plan and plan.next_cut() and stream and head.chunked:
            return await self._cut_stream(plan, writer, up_reader, up_writer)
        if head.chunked:
            while True:
                raw, data = await read_chunk(up_reader)
                writer.write(raw)
                await writer.drain()
                if not data:
                    return head.get("connection") != "close"
        if "content-length" in head.headers:
            writer.write(await up_reader.readexactly(int(head.headers["content-length"])))
            await writer.drain()
        elif entry["status"] not in (202, 204, 304):
            while data := await up_reader.read(READ_BYTES):
                writer.write(data)
                await writer.drain()
            return False
        return head.get("connection") != "close"

    async def _cut_stream(self, plan, writer, up_reader, up_writer):
        """Passes the planned number of events, then ends the stream as planned."""
        cut = plan.next_cut()
        count = SseCount()
        left = cut["events"]
        while left > 0:
            raw, data = await read_chunk(up_reader)
            if not data:  # the stream ended before the cut was due: the plan did not fit the call
                writer.write(raw)
                await writer.drain()
                plan.done.append({**cut, "missed": True})
                return True
            seen, length = count.take(data, left)
            left -= seen
            writer.write(frame(data[:length]))
            await writer.drain()
        if cut["kind"] == "clean":
            writer.write(b"0\r\n\r\n")
            await writer.drain()
            writer.close()
        elif cut["kind"] == "truncate":
            writer.close()
        else:
            reset(writer)
        reset(up_writer)
        # Only a cut that the peers' kernels know of is done: a client that goes on at once would
        # else use the connection that is about to close.
        try:
            for end in (writer, up_writer):
                with contextlib.suppress(OSError):
                    await end.wait_closed()
        finally:  # also when the client closed first, for which `_exchange` ends this
            plan.done.append({**cut, "missed": False})
        return False

    async def _control(self, reader, writer):
        try:
            request = await asyncio.wait_for(read_head(reader), 5)
            if request is None:
                return
            status = "200 OK" if request.start.startswith("GET /state ") else "404 Not Found"
            answer = json.dumps({"cuts": self._cuts()}).encode()
            head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nConnection: close\r\n"
            writer.write(head.encode() + f"Content-Length: {len(answer)}\r\n\r\n".encode() + answer)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError):
            pass  # whoever asked went away
        finally:
            writer.close()
