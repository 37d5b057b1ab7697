"""The small server with what servers, and what stands before them, do wrong. Python 3, no packages.

Arguments, tools and output as in upstream_http_server.py. A GET opens the standalone stream, or
with a cursor continues a stream whose events have ids. The argument `fault` of `charge` says what
goes wrong; `events` is the number of progress events before that:

  cut         the connection breaks; the events have no ids
  resumable   the connection breaks; as many events and the answer follow for who resumes
  hangup      the connection breaks before an answer begins
  end         the stream ends well without an answer
  status      the answer is the HTTP status `status` without a message
  json        the answer is JSON, not a stream
  beside      the stream ends, and the answer comes on the standalone one
  silent      nothing follows, for ever
  mute        no answer begins, for ever
  ask         the server asks on the standalone stream, waits for the response, then answers
  flood       the events leave as fast as they can, many in one write

These are no execution, happen once, and leave the next such call whole:

  gone        the server forgets the session and answers as to one that it does not know
  refused     503 with Retry-After
"""

import queue
import socket
import sys
import threading
import time

sys.dont_write_bytecode = True

import upstream_http_server as small  # noqa: E402: after what it needs

FLOOD_EVENTS = 500
STREAMS = {}
SPENT = set()


class Beside:
    """What goes out on the standalone stream of a session, and what comes back."""

    def __init__(self):
        self.out = queue.Queue()
        self.listened = threading.Event()
        self.responses = queue.Queue()


BESIDE = {}


class Handler(small.Handler):
    def beside(self):
        with small.LOCK:
            return BESIDE.setdefault(self.headers.get("Mcp-Session-Id"), Beside())

    def do_GET(self):
        if self.headers.get("Mcp-Session-Id") not in small.SESSIONS:
            return self.plain(404)
        cursor = self.headers.get("Last-Event-ID")
        self.open_stream()
        if cursor:
            stream, seen = cursor.rsplit("-", 1)
            self.events(stream, STREAMS[stream][int(seen):], int(seen))
            return self.end_stream()
        beside = self.beside()
        beside.listened.set()
        while True:
            self.event(beside.out.get())

    def hear(self, message):
        if "result" in message or "error" in message:
            self.beside().responses.put(message)

    def call(self, message, name, arguments, tenant):
        fault = arguments.get("fault")
        if fault in ("gone", "refused") and fault not in SPENT:
            SPENT.add(fault)
            if fault == "refused":
                return self.plain(503, headers={"Retry-After": "1"})
            small.SESSIONS.discard(self.headers.get("Mcp-Session-Id"))
            return self.unknown(message)
        if fault in (None, "gone", "refused"):
            return super().call(message, name, arguments, tenant)
        small.count(name, arguments)
        getattr(self, f"fault_{fault}")(message, arguments)

    def begin(self, message, arguments):
        self.open_stream()
        for number in range(1, arguments["events"] + 1):
            self.event(small.progress(message, number))

    def events(self, stream, messages, seen):
        for number, message in enumerate(messages, seen + 1):
            self.event(message, f"{stream}-{number}")

    def cut(self):
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def fault_cut(self, message, arguments):
        self.begin(message, arguments)
        self.cut()

    def fault_resumable(self, message, arguments):
        first = arguments["events"]
        events = [small.progress(message, number) for number in range(1, 2 * first + 1)]
        stream = f"stream-{message['id']}"
        STREAMS[stream] = [*events, small.charged(message, arguments)]
        self.open_stream()
        self.events(stream, events[:first], 0)
        self.cut()

    def fault_hangup(self, _message, _arguments):
        self.cut()

    def fault_end(self, message, arguments):
        self.begin(message, arguments)
        self.end_stream()

    def fault_status(self, _message, arguments):
        self.plain(arguments["status"], "<html>", "text/html")

    def fault_json(self, message, arguments):
        self.result(message, small.charged(message, arguments)["result"])

    def fault_beside(self, message, arguments):
        beside = self.beside()
        beside.listened.wait(10)
        self.begin(message, arguments)
        self.end_stream()
        beside.out.put(small.charged(message, arguments))

    def fault_silent(self, message, arguments):
        self.begin(message, arguments)
        while True:
            time.sleep(60)

    def fault_mute(self, _message, _arguments):
        while True:
            time.sleep(60)

    def fault_ask(self, message, arguments):
        beside = self.beside()
        beside.listened.wait(10)
        self.begin(message, arguments)
        beside.out.put({"jsonrpc": "2.0", "id": "ask-1", "method": "elicitation/create",
                        "params": {"message": "which?", "requestedSchema": {"type": "object"}}})
        response = beside.responses.get(timeout=20)
        arguments["amount"] = f"by {response['id']}"
        self.event(small.charged(message, arguments))
        self.end_stream()

    def fault_flood(self, message, arguments):
        self.open_stream()
        numbers = range(1, arguments["events"] + 1)
        for first in range(0, len(numbers), FLOOD_EVENTS):
            some = [small.progress(message, n) for n in numbers[first:first + FLOOD_EVENTS]]
            data = "".join(f"data: {small.json.dumps(event)}\n\n" for event in some).encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.event(small.charged(message, arguments))
        self.end_stream()


if __name__ == "__main__":
    small.main(Handler)
