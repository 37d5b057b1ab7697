"""Healthy traffic of the Python SDK 2.x: `python client_py2.py URL CONTROL_URL < steps.json`."""

import contextlib

import bulk
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.exceptions import MCPError

TIMED_OUT = -32001


class Py2(bulk.Bulk):
    """This SDK cannot go back to a session: after an abort it starts a new one."""

    async def open(self):
        self._stack = contextlib.AsyncExitStack()
        self._http = create_mcp_http_client()
        transport = streamable_http_client(self.url, http_client=self._http)
        self._client = await self._stack.enter_async_context(
            # Left alone, it speaks the revision without sessions to a server that knows it, and
            # Rejoin has nothing to guard.
            Client(transport, mode="legacy"))

    async def close(self):
        await self._stack.aclose()
        await self._http.aclose()

    async def abort(self):
        await self._http.aclose()
        with contextlib.suppress(Exception):
            await self._stack.aclose()

    async def call(self, tool, arguments, timeout_seconds=None):
        try:
            result = await self._client.call_tool(
                tool, arguments, read_timeout_seconds=timeout_seconds)
        except MCPError as error:
            if timeout_seconds and error.error.code == TIMED_OUT:
                raise TimeoutError from error  # the SDK has sent the cancellation
            raise bulk.Refused(error.error.code, error) from error
        return result.meta


bulk.main(Py2)
