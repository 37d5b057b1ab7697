"""The small server with an event store: calls go on whoever listens. Python 3, no packages.

Arguments, tools and output as in upstream_http_server.py; a further argument `no-ids` takes the
event ids away. A GET with a cursor continues a stream; there is no standalone one. A session that
was opened with an Authorization takes no request with another. `charge` takes, beside the rest:

  hold         a file: the events after the first `held_after` come once it is there
  held_after   as said
  ask          asks its client once it goes on, and answers what that said

The file of executions has a line `finished` for each charge that ended, and one `delete` for each
session that was ended.
"""

import os
import sys
import threading
import time

sys.dont_write_bytecode = True

import upstream_http_server as small  # noqa: E402: after what it needs

HOLD_SECONDS = 30
CHANGED = threading.Condition()
STREAMS, CREDENTIALS, ANSWERS = {}, {}, {}


class Stream:
    """The events of a call, in order; `None` ends them."""

    def __init__(self):
        self.events = []

    def put(self, event):
        with CHANGED:
            self.events.append(event)
            CHANGED.notify_all()


class Handler(small.Handler):
    def do_GET(self):
        if self.is_stranger():
            return self.plain(401)
        if self.headers.get("Mcp-Session-Id") not in small.SESSIONS:
            return self.plain(404)
        name, _, seen = self.headers.get("Last-Event-ID", "").rpartition("-")
        if name not in STREAMS:
            return self.plain(405)
        self.follow(name, int(seen))

    def do_DELETE(self):
        if self.is_stranger():
            return self.plain(401)
        small.count("delete", {})
        super().do_DELETE()

    def do_POST(self):
        if self.is_stranger():
            return self.plain(401)
        super().do_POST()

    def is_stranger(self):
        session = self.headers.get("Mcp-Session-Id")
        return self.headers.get("Authorization") != CREDENTIALS.get(
            session, self.headers.get("Authorization"))

    def end_headers(self):
        for header in self._headers_buffer:
            if header.lower().startswith(b"mcp-session-id:"):
                session = header.split(b":", 1)[1].strip().decode()
                CREDENTIALS[session] = self.headers.get("Authorization")
        super().end_headers()

    def hear(self, message):
        with CHANGED:
            ANSWERS[message.get("id")] = message
            CHANGED.notify_all()

    def charge(self, message, arguments):
        name = f"s{message['id']}"
        stream = STREAMS[name] = Stream()
        threading.Thread(target=charge, args=(stream, message, arguments), daemon=True).start()
        self.follow(name, 0)

    def follow(self, name, seen):
        events = STREAMS[name].events
        try:
            self.open_stream()
            while True:
                with CHANGED:
                    CHANGED.wait_for(lambda: len(events) > seen)
                    event = events[seen]
                if event is None:
                    return self.end_stream()
                seen += 1
                self.event(event, None if "no-ids" in sys.argv else f"{name}-{seen}")
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True


def charge(stream, message, arguments):
    held_after = arguments.get("held_after", 0)
    for number in range(1, arguments["events"] + 1):
        if number == held_after + 1:
            held(arguments)
        time.sleep(arguments.get("interval_ms", 0) / 1000)
        stream.put(small.progress(message, number))
    if held_after == arguments["events"]:
        held(arguments)
    if "ask" in arguments:
        ask(stream, message, arguments)
    small.count("finished", arguments)
    stream.put(small.charged(message, arguments))
    stream.put(None)


def held(arguments):
    end = time.monotonic() + HOLD_SECONDS
    while "hold" in arguments and not os.path.exists(arguments["hold"]):
        assert time.monotonic() < end, "held for too long"
        time.sleep(0.01)


def ask(stream, message, arguments):
    question = f"q-{message['id']}"
    stream.put({"jsonrpc": "2.0", "id": question, "method": "elicitation/create",
                "params": {"message": "which?", "requestedSchema": {"type": "object"}}})
    with CHANGED:
        CHANGED.wait_for(lambda: question in ANSWERS, HOLD_SECONDS)
    arguments["amount"] = ANSWERS[question]["result"]["content"]["answer"]


if __name__ == "__main__":
    small.main(Handler)
