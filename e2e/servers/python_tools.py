"""Tools of `rejoin tool-server` on a server of the Python SDK 2.x, over Streamable HTTP.

It serves both eras at `/mcp`: 2025-11-25 with sessions, 2026-07-28 without. Names and arguments are
those of the built-in server; `--count-file` gets one line for each execution of `charge`. With
`--event-store` it keeps the last hundred events of each stream, for all sessions in one store,
which is how the SDK takes a store.
"""

import argparse
import asyncio
import gc
import itertools
import json
import os
import socket
import sys
import threading
from collections import deque
from typing import Annotated

import mcp_types as types
import uvicorn
from mcp.server.mcpserver import Context, Elicit, MCPServer, Resolve, Sample
from mcp.server.streamable_http import EventMessage, EventStore
from pydantic import BaseModel

SAMPLE_TOKENS_MAX = 200
KEPT_EVENTS_MAX = 100

server = MCPServer("rejoin-python-tools", version="2.3.0")
count_path: str | None = None


class Answer(BaseModel):
    """What `ask` asks for."""

    answer: str


def ask_user(question: str) -> Elicit[Answer]:
    return Elicit(question, Answer)


def ask_model(prompt: str) -> Sample:
    content = types.TextContent(type="text", text=prompt)
    return Sample([types.SamplingMessage(role="user", content=content)],
                  max_tokens=SAMPLE_TOKENS_MAX)


def count(tool, **arguments):
    """One line per execution, synced to disk."""
    if count_path is None:
        return
    file = os.open(count_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, f"{tool} {json.dumps(arguments, separators=(',', ':'))}\n".encode())
        os.fdatasync(file)
    finally:
        os.close(file)


def answer(text, is_error=False):
    content = [types.TextContent(type="text", text=text)]
    return types.CallToolResult(content=content, is_error=is_error)


class RecentEvents(EventStore):
    """The last events of each stream, in memory."""

    def __init__(self):
        self.streams = {}
        self.numbers = itertools.count(1)

    async def store_event(self, stream_id, message):
        kept = self.streams.setdefault(stream_id, deque(maxlen=KEPT_EVENTS_MAX))
        event_id = str(next(self.numbers))
        kept.append((event_id, message))
        return event_id

    async def replay_events_after(self, last_event_id, send_callback):
        for stream_id, kept in self.streams.items():
            ids = [event_id for event_id, _ in kept]
            if last_event_id in ids:
                # A copy: the call that is replayed may go on meanwhile.
                for event_id, message in list(kept)[ids.index(last_event_id) + 1:]:
                    if message is not None:
                        await send_callback(EventMessage(message, event_id))
                return stream_id
        return None


@server.tool()
async def charge(
    ctx: Context, amount: int, events: int = 0, interval_ms: int = 50, event_bytes: int = 0,
    fail: bool = False,
) -> types.CallToolResult:
    """Charges an account. Every execution takes effect: two executions charge twice."""
    count("charge", amount=amount)
    for event in range(1, events + 1):
        await asyncio.sleep(interval_ms / 1000)
        await ctx.report_progress(event, events, f"event {event}".ljust(event_bytes, "."))
    return answer(f"could not charge {amount}" if fail else f"charged {amount}", fail)


@server.tool(annotations=types.ToolAnnotations(read_only_hint=True))
async def get() -> types.CallToolResult:
    """Reads, changes nothing, and answers at once."""
    return answer("The account is open.")


@server.tool()
async def ask(
    question: str, said: Annotated[Answer, Resolve(ask_user)]
) -> types.CallToolResult:
    """Asks the client's user a question and answers what the user answered."""
    return answer(said.answer)


@server.tool()
async def sample(
    prompt: str, said: Annotated[types.CreateMessageResult, Resolve(ask_model)]
) -> types.CallToolResult:
    """Asks the client's model and answers what the model answered."""
    return answer(said.content.text)


def end_with_stdin():
    """Ends the process when whoever started it ended."""
    sys.stdin.buffer.read()
    os._exit(0)


def main():
    global count_path
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count-file", help="one line per charge is appended to this file")
    parser.add_argument("--port", type=int, default=0, help="0 takes any free port")
    parser.add_argument("--event-store", action="store_true", help="streams can be resumed")
    args = parser.parse_args()
    count_path = args.count_file
    listener = socket.create_server(("127.0.0.1", args.port))
    # asyncio sets this on connections of listeners it made itself, not on those of this one.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    threading.Thread(target=end_with_stdin, daemon=True).start()
    print(f"python listens on http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    gc.freeze()
    store = RecentEvents() if args.event_store else None
    app = server.streamable_http_app(event_store=store)
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
