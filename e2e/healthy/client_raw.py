"""Healthy traffic of a client made of plain sockets: `client_raw.py URL CONTROL_URL < steps.json`.

It keeps connections open and uses them again, reads every answer to its last chunk, never opens a
GET, and goes back to its session after an abort.
"""

import asyncio
import itertools
import json
from urllib.parse import urlsplit

import bulk

REVISION = "2025-11-25"
HEAD_LIMIT_BYTES = 64 * 1024


class Raw(bulk.Bulk):
    """HTTP/1.1 by hand."""

    def __init__(self, url, control):
        super().__init__(url, control)
        parts = urlsplit(url)
        self._host, self._port, self._target = parts.hostname, parts.port, parts.path
        self._ids = itertools.count(1)
        self._session = None
        self._idle, self._used = [], set()

    async def open(self):
        if self._session is not None:
            return True
        params = {"protocolVersion": REVISION, "capabilities": {},
                  "clientInfo": {"name": "healthy-raw", "version": "1"}}
        headers, _ = await self._request("initialize", params)
        self._session = headers["mcp-session-id"]
        await self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return False

    async def close(self):
        await self._exchange("DELETE", b"", None)
        self._session = None
        await self.abort()

    async def abort(self):
        for _, writer in [*self._idle, *self._used]:
            writer.close()
        self._idle, self._used = [], set()

    async def call(self, tool, arguments, timeout_seconds=None):
        request_id = next(self._ids)
        params = {"name": tool, "arguments": arguments}
        work = self._request("tools/call", params, request_id)
        try:
            _, answer = await asyncio.wait_for(asyncio.shield(task := asyncio.ensure_future(work)),
                                               timeout_seconds)
        except TimeoutError:
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            params = {"requestId": request_id, "reason": "timed out"}
            await self._post({"jsonrpc": "2.0", "method": "notifications/cancelled",
                              "params": params})
            raise
        except asyncio.CancelledError:
            task.cancel()
            raise
        if "error" in answer:
            raise bulk.Refused(answer["error"]["code"], answer["error"]["message"])
        return answer["result"].get("_meta")

    async def _request(self, method, params, request_id=None):
        request_id = next(self._ids) if request_id is None else request_id
        message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        return await self._post(message, request_id)

    async def _post(self, message, request_id=None):
        body = json.dumps(message, separators=(",", ":")).encode()
        return await self._exchange("POST", body, request_id)

    async def _exchange(self, method, body, request_id):
        """One request: (headers, the response with this id if one is wanted)."""
        lines = [f"{method} {self._target} HTTP/1.1", f"Host: {self._host}:{self._port}",
                 "Accept: application/json, text/event-stream",
                 f"MCP-Protocol-Version: {REVISION}", f"Content-Length: {len(body)}"]
        if body:
            lines.append("Content-Type: application/json")
        if self._session is not None:
            lines.append(f"Mcp-Session-Id: {self._session}")
        connection = await self._connection()
        self._used.add(connection)
        reader, writer = connection
        done = False
        try:
            writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
            await writer.drain()
            headers = await self._read_head(reader)
            answer = find(await read_body(reader, headers), headers, request_id)
            done = headers.get("connection") != "close"
        finally:
            if connection in self._used:
                self._used.discard(connection)
                if done:
                    self._idle.append(connection)
                else:
                    writer.close()
        return headers, answer

    async def _connection(self):
        while self._idle:
            reader, writer = self._idle.pop()
            if not reader.at_eof() and reader.exception() is None and not writer.is_closing():
                return reader, writer
            writer.close()
        return await asyncio.open_connection(self._host, self._port, limit=HEAD_LIMIT_BYTES)

    @staticmethod
    async def _read_head(reader):
        raw = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {"status": raw[0].split(" ")[1]}
        for line in filter(None, raw[1:]):
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        return headers


async def read_body(reader, headers):
    """A whole body, to its last byte."""
    if headers.get("transfer-encoding") != "chunked":
        return await reader.readexactly(int(headers.get("content-length", "0")))
    body = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readexactly(2)
    return body


def find(body, headers, request_id):
    """The response with this id, from a JSON body or from the events of a stream."""
    if request_id is None:
        return None
    texts = [body]
    if headers.get("content-type", "").startswith("text/event-stream"):
        lines = body.split(b"\n")
        texts = [line[5:] for line in lines if line.startswith(b"data:") and line[5:].strip()]
    for text in texts:
        message = json.loads(text)
        if message.get("id") == request_id and "method" not in message:
            return message
    raise RuntimeError(f"status {headers['status']}: no response with id {request_id}")


if __name__ == "__main__":
    bulk.main(Raw)
