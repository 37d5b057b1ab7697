"""A host on the Python SDK 2.x that starts a server over stdio, and calls its tools.

    python py2_bridge.py COMMAND... < plan.json

The plan: `calls` with `tool` and `arguments`, how many run `at_once`, `call_seconds` after which a
call hangs, `seconds` for all. It prints one JSON line for each call when all have ended: its place
in the plan, what progress came, and the result, the error, or that it hangs.
"""

import json
import os
import sys

import anyio
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters


async def call(client, plan, number, seen):
    """One call, and all that the application sees of it."""
    planned = plan["calls"][number]

    async def on_progress(progress, _total, _message):
        seen["late"] += not seen.get("hung")
        seen["progress"].append(progress)

    try:
        with anyio.move_on_after(plan["call_seconds"]):
            result = await client.call_tool(
                planned["tool"], planned["arguments"], progress_callback=on_progress)
            seen["result"] = result.structured_content
            seen["content"] = [block.model_dump(mode="json") for block in result.content]
            seen["is_error"] = bool(result.is_error)
            seen["recorded"] = "dev.rejoin/recorded" in (result.meta or {})
            del seen["hung"]
    except MCPError as error:
        del seen["hung"]
        seen["error"] = error.error.model_dump(mode="json")
    except Exception as error:  # whatever the application would catch is what it sees
        del seen["hung"]
        seen["error"] = {"message": repr(error)}


async def run(plan, command, all_seen):
    """Connects as an application does, with the SDK's defaults but for the mode."""
    async def limited(client, number, limiter):
        async with limiter:
            await call(client, plan, number, all_seen[number])

    # What the SDK hands down is less than what this program was given.
    server = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
    async with Client(server, mode="legacy") as client:
        limiter = anyio.CapacityLimiter(plan["at_once"])
        async with anyio.create_task_group() as group:
            for number in range(len(plan["calls"])):
                group.start_soon(limited, client, number, limiter)


async def main():
    """Runs the plan and prints what came of it."""
    plan = json.load(sys.stdin)
    all_seen = [{"call": number, "progress": [], "late": 0, "hung": True}
                for number in range(len(plan["calls"]))]
    try:
        with anyio.move_on_after(plan["seconds"]):
            await run(plan, sys.argv[1:], all_seen)
    finally:
        for seen in all_seen:
            print(json.dumps(seen))


if __name__ == "__main__":
    anyio.run(main)
