"""Tools of `rejoin tool-server` on a server of the Python SDK 2.x, over Streamable HTTP.

It serves both eras at `/mcp`: 2025-11-25 with sessions, 2026-07-28 without. Names and arguments are
those of the built-in server; `--count-file` gets one line for each execution of `charge`.
"""

import argparse
import asyncio
import gc
import json
import os
import socket
import sys
import threading
from typing import Annotated

import mcp_types as types
import uvicorn
from mcp.server.mcpserver import Context, Elicit, MCPServer, Resolve, Sample
from pydantic import BaseModel

SAMPLE_TOKENS_MAX = 200

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


@server.tool()
async def charge(
    ctx: Context, amount: int, events: int = 0, interval_ms: int = 50, fail: bool = False
) -> types.CallToolResult:
    """Charges an account. Every execution takes effect: two executions charge twice."""
    count("charge", amount=amount)
    for event in range(1, events + 1):
        await asyncio.sleep(interval_ms / 1000)
        await ctx.report_progress(event, events, f"event {event}")
    return answer(f"could not charge {amount}" if fail else f"charged {amount}", fail)


@server.tool()
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
    count_path = parser.parse_args().count_file
    listener = socket.create_server(("127.0.0.1", 0))
    # asyncio sets this on connections of listeners it made itself, not on those of this one.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    threading.Thread(target=end_with_stdin, daemon=True).start()
    print(f"python listens on http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    gc.freeze()
    config = uvicorn.Config(
        server.streamable_http_app(), log_level="warning", timeout_graceful_shutdown=1
    )
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
