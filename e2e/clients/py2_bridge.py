"""The client of the Python SDK 2.x over stdio: starts a command and calls `charge`, often.

    python py2_bridge.py CALLS AT_ONCE EVENTS -- COMMAND...

It prints one JSON line for each call: its amount, what progress came, the result or the error.
"""

import json
import sys

import anyio
from mcp import Client
from mcp.client.stdio import StdioServerParameters


async def call(client, amount, events, limiter):
    """One call, and all that the application sees of it."""
    seen = {"amount": amount, "progress": [], "late": 0}

    async def on_progress(progress, _total, _message):
        seen["late"] += "result" in seen
        seen["progress"].append(progress)

    arguments = {"amount": amount, "events": events, "interval_ms": 5}
    async with limiter:
        try:
            result = await client.call_tool("charge", arguments, progress_callback=on_progress)
            seen["result"] = result.structured_content
            seen["recorded"] = "dev.rejoin/recorded" in (result.meta or {})
        except Exception as error:  # whatever the application would catch is what it sees
            seen["error"] = repr(error)
    return seen


async def main():
    """Connects as an application does, with the SDK's defaults but for the mode."""
    calls, at_once, events = (int(argument) for argument in sys.argv[1:4])
    command, *arguments = sys.argv[5:]
    all_seen = []

    async def run(client, amount, limiter):
        all_seen.append(await call(client, amount, events, limiter))

    server = StdioServerParameters(command=command, args=arguments)
    async with Client(server, mode="legacy") as client:
        limiter = anyio.CapacityLimiter(at_once)
        async with anyio.create_task_group() as group:
            for amount in range(1, calls + 1):
                group.start_soon(run, client, amount, limiter)
    for seen in all_seen:
        print(json.dumps(seen))


if __name__ == "__main__":
    anyio.run(main)
