"""Healthy traffic of the Python SDK 1.x: `python client_py1.py URL CONTROL_URL < steps.json`."""

import contextlib
from datetime import timedelta

import bulk
from mcp import ClientSession, McpError, types
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

TIMED_OUT = 408


class Py1(bulk.Bulk):
    """This SDK cannot go back to a session: after an abort it starts a new one."""

    async def open(self):
        self._stack = contextlib.AsyncExitStack()
        self._http = create_mcp_http_client()
        read, write, _ = await self._stack.enter_async_context(
            streamable_http_client(self.url, http_client=self._http))
        self._session = await self._stack.enter_async_context(ClientSession(read, write))
        await self._session.initialize()

    async def close(self):
        await self._stack.aclose()
        await self._http.aclose()

    async def abort(self):
        await self._http.aclose()
        with contextlib.suppress(Exception):
            await self._stack.aclose()

    async def call(self, tool, arguments, timeout_seconds=None):
        limit = timeout_seconds and timedelta(seconds=timeout_seconds)
        # The SDK has no other way to learn the id that a cancellation must name.
        request_id = self._session._request_id
        try:
            result = await self._session.call_tool(tool, arguments, read_timeout_seconds=limit)
        except McpError as error:
            if error.error.code != TIMED_OUT:
                raise bulk.Refused(error.error.code, error) from error
            await self._cancel(request_id)
            raise TimeoutError from error
        return result.meta

    async def _cancel(self, request_id):
        params = types.CancelledNotificationParams(requestId=request_id, reason="timed out")
        note = types.CancelledNotification(params=params)
        await self._session.send_notification(types.ClientNotification(note))


bulk.main(Py1)
