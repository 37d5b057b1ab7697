"""Drives the client of the Python SDK 2.x through the steps of one scenario.

    python py2.py legacy|auto URL CONTROL_URL < steps.json

`auto` is the SDK's default: it takes the revision of 2026-07-28 where a server offers it.
"""

import json
import sys

import anyio
import mcp_types as types
from mcp import Client
from mcp.shared.exceptions import MCPError
from steps import Driver, first_field, saw


class Driver2(Driver):
    """The steps in the words of the Python SDK 2.x."""

    def __init__(self, client, control):
        super().__init__(control)
        self._client = client

    async def tool_names(self):
        return [tool.name for tool in (await self._client.list_tools()).tools]

    async def call_tool(self, call, step, on_progress):
        return await self._client.call_tool(
            step["tool"], step["arguments"], step.get("timeout_seconds"),
            progress_callback=on_progress,
        )

    def describe(self, error):
        if isinstance(error, MCPError):
            return {"code": error.error.code, "message": str(error), "data": error.error.data}
        return {"message": str(error)}

    @staticmethod
    def is_error(result):
        return bool(result.is_error)


async def sample(_context, params):
    """Answers a sampling request."""
    content = params.messages[0].content
    saw("sampling", prompt=content.text)
    text = types.TextContent(type="text", text="sampled by e2e")
    return types.CreateMessageResult(model="e2e", role="assistant", content=text)


async def elicit(_context, params):
    """Answers an elicitation."""
    saw("elicitation", message=params.message)
    field = first_field(params.requested_schema)
    return types.ElicitResult(action="accept", content={field: "answered by e2e"})


async def main():
    """Connects as an application does, with the SDK's defaults but for the mode."""
    mode, url, control = sys.argv[1:4]
    steps = json.load(sys.stdin)
    async with Client(
        url, mode=mode, sampling_callback=sample, elicitation_callback=elicit
    ) as client:
        await Driver2(client, control).run(steps)


if __name__ == "__main__":
    anyio.run(main)
