"""The path between the bridge and its server, on which each connection meets a fate.

The fates are drawn from a seed, in the order in which the connections come. One strikes once so
many events of the server have passed on its connection (1 to 50, over all answers), between two
events or within one; or before the head of the first answer. Until then all passes unchanged.
"""

import asyncio
import contextlib
import random
import threading
from collections import Counter
from dataclasses import dataclass

import rejoin  # noqa: F401: it makes the folder above importable

import cutter

READ_BYTES = 16 * 1024
EVENTS_MAX, TORN_BYTES_MAX = 50, 60
# A share of the fates strikes before the head of the first answer.
HEADLESS = 0.12
HOLE_SECONDS, LATE_SECONDS = (0.2, 1.5), (0.1, 1.0)
# Longer than any client waits for an answer that vanished.
CONNECTION_SECONDS = 120
# Every event has one line of this name.
EVENT = b"data:"
CALL = b'"tools/call"'

RESET, UNSENT = "reset", "reset before the request passed"
HALF_DOWN, HALF_UP = "closed by half towards the client", "closed by half towards the server"
HOLE_DOWN, HOLE_UP = "answers vanish", "requests vanish"
LATE = "late head, then reset"
WEIGHTS = {RESET: 5, UNSENT: 1, HALF_DOWN: 3, HALF_UP: 2, HOLE_DOWN: 2, HOLE_UP: 2, LATE: 2}
HOLES = (HOLE_DOWN, HOLE_UP)
# So many connections later there may be another that never ends: calls wait for one another then.
HOLE_DISTANCE = 15


@dataclass
class Fate:
    """What happens to one connection."""

    kind: str
    # Events of the server until it strikes; 0: before the first byte of an answer.
    events: int = 0
    # Bytes of the next event that pass.
    torn_bytes: int = 0
    # How long the head is late, or until a hole ends by a reset; None: it does not.
    seconds: float | None = 0


class Place:
    """Finds where a fate strikes in the bytes of the server."""

    def __init__(self, fate):
        self._left, self._torn, self._tail = fate.events, fate.torn_bytes, b""
        self._is_found = False

    def look(self, data):
        """(How many of these bytes pass before it, whether it is here)."""
        if self._is_found:
            return len(data), False
        joined, position = self._tail + data, 0
        while self._left and (found := joined.find(EVENT, position)) >= 0:
            position = found + len(EVENT)
            self._left -= 1
        if self._left:
            self._tail = joined[position:][1 - len(EVENT):]
            return len(data), False
        self._is_found = True
        passed = position - len(self._tail) + self._torn if position else 0
        return min(passed, len(data)), True


class Path:
    """The forwarder, on an event loop in a thread of its own; `with` starts and ends it."""

    def __init__(self, port, seed, holes=0, strikes_at_once=True):
        """`port` is a function: a server may come back at another one. `holes`: so many in each
        direction never end. `strikes_at_once`: else not before the first call of a tool."""
        self.server_port, self._random = port, random.Random(seed)
        self.strikes, self._holes_left = strikes_at_once, dict.fromkeys(HOLES, holes)
        self._drawn = self._next_hole = 0
        self._loop, self._stop = asyncio.new_event_loop(), None
        self._ready, self._tasks = threading.Event(), set()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.port = 0
        # Fates that struck, by kind.
        self.struck = Counter()
        # What the server was sent, in parts.
        self.sent = []

    def __enter__(self):
        self._thread.start()
        if not self._ready.wait(10):
            raise RuntimeError("the path did not start to listen within 10 s")
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def _run(self):
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._main())
        self._loop.close()

    async def _main(self):
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def fate(self):
        """That of the next connection."""
        chance = self._random
        self._drawn += 1
        kind = chance.choices(list(WEIGHTS), WEIGHTS.values())[0]
        events = 0 if chance.random() < HEADLESS else chance.randint(1, EVENTS_MAX)
        fate = Fate(kind, events, chance.randint(0, TORN_BYTES_MAX))
        if kind == LATE:
            fate.seconds = chance.uniform(*LATE_SECONDS)
        elif kind in HOLES:
            fate.seconds = chance.uniform(*HOLE_SECONDS)
            # Some do not end, and are in the midst of the first answer, or before.
            if self._holes_left[kind] and self._drawn >= self._next_hole:
                self._holes_left[kind] -= 1
                self._next_hole = self._drawn + HOLE_DISTANCE
                fate.seconds, fate.events = None, min(events, 3)
        return fate

    async def _serve(self, reader, writer):
        task = asyncio.current_task()
        self._tasks.add(task)
        ends = [writer]
        try:
            server = await asyncio.open_connection("127.0.0.1", self.server_port())
            ends.append(server[1])
            connection = Connection(self, (reader, writer), server)
            await asyncio.wait_for(connection.carry(), CONNECTION_SECONDS)
        except (OSError, asyncio.TimeoutError, asyncio.CancelledError):
            pass  # either side went away, or the server is down: both are closed below
        finally:
            self._tasks.discard(task)
            for end in ends:
                with contextlib.suppress(OSError):
                    end.close()


class Connection:
    """One connection of a client, and the one to the server."""

    def __init__(self, path, client, server):
        self._path, self._fate = path, path.fate()
        self._reader, self._writer = client
        self._server_reader, self._server_writer = server
        self._place = Place(self._fate)
        self._up_passes = self._down_passes = True
        self._hole = asyncio.Event()

    async def carry(self):
        """Carries both ways until a side ends, or the fate ends both."""
        ways = (self._up(), self._down(), self._end_of_hole())
        tasks = [asyncio.ensure_future(way) for way in ways]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _up(self):
        before_requests = (
            self._fate.kind == UNSENT or (self._fate.kind, self._fate.events) == (HOLE_UP, 0))
        while data := await self._reader.read(READ_BYTES):
            self._path.strikes = self._path.strikes or CALL in data
            is_here = self._path.strikes and self._up_passes and before_requests
            if is_here and self._strike():
                return
            if self._up_passes:
                self._path.sent.append(data)
                self._server_writer.write(data)
                await self._server_writer.drain()

    async def _down(self):
        is_head = True
        while data := await self._server_reader.read(READ_BYTES):
            if self._fate.kind == LATE and is_head:
                await asyncio.sleep(self._fate.seconds)
            is_head = False
            passed, is_here = len(data), False
            if self._path.strikes:
                passed, is_here = self._place.look(data)
            await self._write(data[:passed])
            if is_here and self._strike():
                return
            await self._write(data[passed:])

    async def _write(self, data):
        if data and self._down_passes:
            self._writer.write(data)
            await self._writer.drain()

    def _strike(self):
        """Does what is to be done. True if the connection is over."""
        kind = self._fate.kind
        for_good = " for good" if self._fate.seconds is None else ""
        self._path.struck[kind + for_good] += 1
        if kind in HOLES:
            self._hole.set()
        if kind == HALF_UP:
            self._server_writer.write_eof()
        if kind == HALF_DOWN:
            self._writer.write_eof()
        if kind in (HALF_UP, HOLE_UP):
            self._up_passes = False
        elif kind in (HALF_DOWN, HOLE_DOWN):
            self._down_passes = False
        else:
            self._reset()
            return True
        return False

    async def _end_of_hole(self):
        await self._hole.wait()
        await asyncio.sleep(CONNECTION_SECONDS if self._fate.seconds is None
                            else self._fate.seconds)
        self._reset()

    def _reset(self):
        cutter.reset(self._writer)
        cutter.reset(self._server_writer)
