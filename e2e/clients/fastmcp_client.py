"""Drives the FastMCP client through the steps of one scenario.

    python fastmcp_client.py legacy|auto URL CONTROL_URL < steps.json

`auto` is FastMCP's default: it takes the revision of 2026-07-28 where a server offers it.
"""

import json
import sys

import anyio
from fastmcp import Client
from py2 import Driver2
from steps import first_field, saw


class FastmcpDriver(Driver2):
    """The steps in FastMCP's words; its errors are those of the Python SDK 2.x."""

    async def tool_names(self):
        return [tool.name for tool in await self._client.list_tools()]

    async def call_tool(self, call, step, on_progress):
        return await self._client.call_tool(
            step["tool"], step["arguments"], timeout=step.get("timeout_seconds"),
            progress_handler=on_progress,
        )


async def sample(messages, _params, _context):
    """Answers a sampling request."""
    saw("sampling", prompt=messages[0].content.text)
    return "sampled by e2e"


async def elicit(message, _response_type, params, _context):
    """Answers an elicitation."""
    saw("elicitation", message=message)
    return {first_field(params.requested_schema): "answered by e2e"}


async def main():
    """Connects as an application does, with FastMCP's defaults but for the mode."""
    mode, url, control = sys.argv[1:4]
    steps = json.load(sys.stdin)
    async with Client(
        url, mode=mode, sampling_handler=sample, elicitation_handler=elicit
    ) as client:
        await FastmcpDriver(client, control).run(steps)


anyio.run(main)
