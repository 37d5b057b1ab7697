"""Drives the client of the Python SDK 1.x through the steps of one scenario.

    python py1.py URL CONTROL_URL < steps.json
"""

import json
import sys
from datetime import timedelta

import anyio
from mcp import ClientSession, McpError, types
from mcp.client import streamable_http
from steps import Driver, first_field, saw

# The older of the two versions knows only the older name.
connect = getattr(
    streamable_http, "streamable_http_client", streamable_http.streamablehttp_client
)


class Driver1(Driver):
    """The steps in the words of the Python SDK 1.x."""

    def __init__(self, session, control):
        super().__init__(control)
        self._session = session

    async def tool_names(self):
        return [tool.name for tool in (await self._session.list_tools()).tools]

    async def call_tool(self, call, step, on_progress):
        # This SDK offers no other way to know the id that a later cancellation must name.
        call.request_id = self._session._request_id
        limit = step.get("timeout_seconds")
        return await self._session.call_tool(
            step["tool"], step["arguments"], limit and timedelta(seconds=limit),
            progress_callback=on_progress,
        )

    async def cancel(self, call):
        params = types.CancelledNotificationParams(requestId=call.request_id, reason="e2e")
        note = types.ClientNotification(
            types.CancelledNotification(method="notifications/cancelled", params=params)
        )
        await self._session.send_notification(note)
        call.scope.cancel()

    def describe(self, error):
        if isinstance(error, McpError):
            return {"code": error.error.code, "message": str(error), "data": error.error.data}
        return {"message": str(error)}

    @staticmethod
    def is_error(result):
        return bool(result.isError)


async def sample(_context, params):
    """Answers a sampling request."""
    content = params.messages[0].content
    saw("sampling", prompt=content.text)
    text = types.TextContent(type="text", text="sampled by e2e")
    return types.CreateMessageResult(model="e2e", role="assistant", content=text)


async def elicit(_context, params):
    """Answers an elicitation."""
    saw("elicitation", message=params.message)
    field = first_field(params.requestedSchema)
    return types.ElicitResult(action="accept", content={field: "answered by e2e"})


async def main():
    """Connects as an application does, with the SDK's defaults."""
    url, control = sys.argv[1:3]
    steps = json.load(sys.stdin)
    async with connect(url) as (read, write, _):
        async with ClientSession(
            read, write, sampling_callback=sample, elicitation_callback=elicit
        ) as session:
            await session.initialize()
            await Driver1(session, control).run(steps)


anyio.run(main)
