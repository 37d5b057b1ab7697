"""The tools of `rejoin tool-server`, served by FastMCP over Streamable HTTP.

Names, arguments and texts are those of the built-in server, as far as FastMCP can: it answers
`echo` from parsed arguments, not byte for byte, and no call that was cancelled. What a process of
the built-in server remembers, this server remembers for each session.

A request to `/count/FILE/mcp` counts its executions in `/FILE`, one to `/mcp` in `--count-file`.
"""

import argparse
import asyncio
import gc
import json
import os
import socket
import sys
import threading
import time
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import anyio
import mcp_types
import uvicorn
from fastmcp import Context, FastMCP
from fastmcp.server.dependencies import get_http_request
from fastmcp.server.event_store import EventStore
from fastmcp.server.middleware import Middleware
from fastmcp.tools import ToolResult

EXIT_CRASHED = 3
SAMPLE_TOKENS_MAX = 200
LOGGER = "rejoin-tool-server"

arguments_now = ContextVar("arguments_now")
server = FastMCP("rejoin-fastmcp-tools", version="4.2.3")


class Memory:
    """What the tools remember for one session; lost when the process ends."""

    of_session: dict[str, "Memory"] = {}

    def __init__(self):
        self.charges = 0
        self.reads = 0
        self.value = None

    @classmethod
    def of(cls, ctx):
        return cls.of_session.setdefault(ctx.session_id, cls())


class Counter:
    """One line per execution: `<tool> <json arguments> <unix time in ns>`, synced to disk."""

    default_path: str | None = None

    @classmethod
    def add(cls, tool):
        path = get_http_request().scope.get("count_file", cls.default_path)
        if path is None:
            return
        arguments = json.dumps(arguments_now.get(), separators=(",", ":"))
        line = f"{tool} {arguments} {time.time_ns()}\n".encode()
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, line)
            os.fdatasync(file)
        finally:
            os.close(file)


class RawArguments(Middleware):
    """Keeps the arguments as they came, for the count file."""

    async def on_call_tool(self, context, call_next):
        arguments_now.set(context.message.arguments or {})
        return await call_next(context)


def answer(text, structured=None, is_error=False, more=()):
    content = [mcp_types.TextContent(type="text", text=part) for part in (text, *more)]
    return ToolResult(content=content, structured_content=structured, is_error=is_error)


def crash_now():
    """Ends the process in the middle of the call. What was sent before is with the kernel."""
    os._exit(EXIT_CRASHED)


@server.tool(annotations={"idempotentHint": False, "openWorldHint": False})
async def charge(
    ctx: Context,
    amount: int,
    events: int = 0,
    interval_ms: int = 50,
    event_bytes: int = 0,
    ignore_cancel: bool = False,
    result_bytes: int = 0,
    crash_after: int | None = None,
    fail: bool = False,
) -> ToolResult:
    """Charges an account. Every execution takes effect: two executions charge twice."""
    Counter.add("charge")
    memory = Memory.of(ctx)
    memory.charges += 1
    number = memory.charges
    if crash_after == 0:
        crash_now()
    with anyio.CancelScope(shield=ignore_cancel):
        for event in range(1, events + 1):
            await asyncio.sleep(interval_ms / 1000)
            message = f"event {event}".ljust(event_bytes, ".")
            await ctx.report_progress(event, events, message)
            if crash_after == event:
                # What was reported is still on its way through queues of this process.
                await asyncio.sleep(0.2)
                crash_now()
    verb = "could not charge" if fail else "charged"
    text = f"{verb} {amount} (execution {number})"
    more = ["." * result_bytes] if result_bytes else []
    return answer(text, {"amount": amount, "execution": number}, fail, more)


@server.tool
async def slow(seconds: float) -> ToolResult:
    """Waits this many seconds, then answers. Can be cancelled."""
    Counter.add("slow")
    await asyncio.sleep(seconds)
    return answer(f"waited {seconds:g} seconds")


@server.tool(annotations={"readOnlyHint": True, "openWorldHint": False})
async def get(ctx: Context, key: str = "") -> ToolResult:
    """Reads, changes nothing, and answers at once with a text of constant size."""
    Counter.add("get")
    memory = Memory.of(ctx)
    memory.reads += 1
    text = f"The account is open. Read number {memory.reads:010}."
    return answer(text, {"reads": memory.reads})


@server.tool
async def echo(text: Any = None) -> ToolResult:
    """Answers its arguments, once as JSON text in a string, once as structured content."""
    Counter.add("echo")
    arguments = arguments_now.get()
    return answer(json.dumps(arguments, separators=(",", ":")), arguments)


@dataclass
class Answer:
    """What `ask` asks for."""

    answer: str


@server.tool
async def ask(ctx: Context, question: str) -> ToolResult:
    """Asks the client's user a question (elicitation) and answers what the user answered."""
    Counter.add("ask")
    capabilities = ctx.session.client_capabilities
    if capabilities is None or capabilities.elicitation is None:
        return answer("this client cannot be asked: it has no elicitation capability", None, True)
    said = await ctx.elicit(question, response_type=Answer)
    if said.action == "accept":
        return answer(said.data.answer, {"action": "accept", "content": vars(said.data)})
    return answer(f"no answer: {said.action}", {"action": said.action})


@server.tool
async def sample(ctx: Context, prompt: str) -> ToolResult:
    """Asks the client's model (sampling) and answers what the model answered."""
    Counter.add("sample")
    capabilities = ctx.session.client_capabilities
    if capabilities is None or capabilities.sampling is None:
        return answer("this client has no model to ask: it has no sampling capability", None, True)
    content = mcp_types.TextContent(type="text", text=prompt)
    said = await ctx.session.create_message(
        messages=[mcp_types.SamplingMessage(role="user", content=content)],
        max_tokens=SAMPLE_TOKENS_MAX,
        related_request_id=ctx.request_id,
    )
    text = getattr(said.content, "text", None) or "(the answer has no text)"
    return answer(text, said.model_dump(by_alias=True, mode="json", exclude_none=True))


@server.tool
async def state(ctx: Context, set: str | None = None) -> ToolResult:
    """Remembers one value for this session and answers it. A restarted server forgot it."""
    Counter.add("state")
    memory = Memory.of(ctx)
    if set is not None:
        memory.value = set
    text = memory.value if memory.value is not None else "(nothing was set in this process)"
    return answer(text, {"value": memory.value})


@server.tool
async def crash() -> ToolResult:
    """Ends the server process with status 3 in the middle of this call."""
    Counter.add("crash")
    crash_now()


@server.tool
async def notify(ctx: Context, count: int, key: Any = None) -> ToolResult:
    """Sends this many log messages, then one tools/list_changed; none belongs to any call."""
    Counter.add("notify")
    for number in range(1, count + 1):
        data = f"note {number} of {count}"
        await ctx.session.send_log_message(level="info", logger=LOGGER, data=data)
    await ctx.session.send_tool_list_changed()
    return answer(f"sent {count} log messages and one tools/list_changed", {"sent": count})


class CountPath:
    """Takes the count file out of the path."""

    PREFIX, SUFFIX = "/count", "/mcp"

    def __init__(self, app):
        self._app = app

    async def __call__(self, scope, receive, send):
        path = scope.get("path", "")
        if path.startswith(self.PREFIX + "/") and path.endswith(self.SUFFIX):
            count_file = path[len(self.PREFIX) : -len(self.SUFFIX)]
            scope = {**scope, "path": "/mcp", "raw_path": b"/mcp", "count_file": count_file}
        await self._app(scope, receive, send)


def end_with_stdin():
    """Ends the process when whoever started it ended."""
    sys.stdin.buffer.read()
    os._exit(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=0, help="0 takes any free port")
    parser.add_argument("--count-file", help="one line per execution is appended to this file")
    parser.add_argument("--end-with-stdin", action="store_true", help="end at the end of stdin")
    parser.add_argument("--retry-ms", type=int, help="what clients are to wait before a resume")
    args = parser.parse_args()
    Counter.default_path = args.count_file
    server.add_middleware(RawArguments())
    app = CountPath(server.http_app(
        path="/mcp", event_store=EventStore(), retry_interval=args.retry_ms))
    listener = socket.create_server(("127.0.0.1", args.port))
    # asyncio sets this on connections of listeners it made itself, not on those of this one.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if args.end_with_stdin:
        threading.Thread(target=end_with_stdin, daemon=True).start()
    print(f"fastmcp listens on http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    # What was imported stays: without this, each full collection looks at it for 50 ms.
    gc.freeze()
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
