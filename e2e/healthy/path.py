"""The way between a client and the gateway, with the small accidents that ordinary networks have.

Builds on ../cutter.py, which passes everything through. On top of that it can refuse every GET
(a client must live without a standalone stream), cut every open GET each few seconds, and reset
connections that are idle, when `POST /reset?kind=KIND` on the control address asks for it.
"""

import asyncio
import contextlib

import cutter

KINDS = ("client", "gateway", "both")
NO_GET = b"HTTP/1.1 405 Method Not Allowed\r\nAllow: POST, DELETE\r\nContent-Length: 0\r\n\r\n"


class Path(cutter.Cutter):
    """A proxy that no call goes through while one of its accidents happens to it."""

    def __init__(self, host, port, refuse_get=False, get_cut_seconds=None):
        super().__init__(host, port)
        self._refuse_get = refuse_get
        self._get_cut_seconds = get_cut_seconds
        self._pairs = {}
        self._busy = set()
        self._gets = set()
        self.resets = 0
        self.get_cuts = 0

    async def _main(self):
        ticker = asyncio.ensure_future(self._cut_gets())
        try:
            await super()._main()
        finally:
            ticker.cancel()
            await asyncio.gather(ticker, return_exceptions=True)

    async def _exchange(self, reader, writer, up_reader, up_writer, early):
        self._pairs[writer] = up_writer
        try:
            early = early or await reader.read(1)
            if not early:
                return None
            if early == b"G" and self._refuse_get:
                await cutter.read_head(reader, early)
                writer.write(NO_GET)
                await writer.drain()
                return await reader.read(1) or None
            return await super()._exchange(reader, writer, up_reader, up_writer, early)
        finally:
            self._pairs.pop(writer, None)

    async def _answer(self, entry, watched, writer, up_reader, up_writer):
        kept = self._gets if entry["method"] == "GET" else self._busy
        kept.add(writer)
        try:
            return await super()._answer(entry, watched, writer, up_reader, up_writer)
        finally:
            kept.discard(writer)

    async def _cut_gets(self):
        """Ends every open GET each period: by a reset and by a close, in turns."""
        while self._get_cut_seconds:
            await asyncio.sleep(self._get_cut_seconds)
            for writer in list(self._gets):
                self._end(writer, "client" if self.get_cuts % 2 else "both")
                self.get_cuts += 1

    def _end(self, writer, kind):
        up_writer = self._pairs.get(writer)
        for end, side in ((writer, "client"), (up_writer, "gateway")):
            if end is not None and kind in (side, "both"):
                cutter.reset(end)
            elif end is not None:
                end.close()

    async def _control(self, reader, writer):
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.TimeoutError):
            request = await asyncio.wait_for(cutter.read_head(reader), 5)
            kind = request.start.partition("kind=")[2].split(" ")[0] if request else ""
            status = "204 No Content" if kind in KINDS else "400 Bad Request"
            if kind in KINDS:
                for idle in set(self._pairs) - self._busy - self._gets:
                    self._end(idle, kind)
                    self.resets += 1
            writer.write(f"HTTP/1.1 {status}\r\nConnection: close\r\n\r\n".encode())
            await writer.drain()
        writer.close()
