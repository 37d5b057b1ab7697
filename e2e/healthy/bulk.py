"""Runs the steps of a script through one Python client: many calls, one JSON line for each."""

import asyncio
import contextlib
import json
import sys
import time
import urllib.request

CALL_SECONDS = 20


def saw(what, **more):
    """Prints one JSON line."""
    print(json.dumps({"saw": what, **more}, default=str), flush=False)


class Refused(Exception):
    """The call was answered with a JSON-RPC error."""

    def __init__(self, code, message):
        super().__init__(f"{code}: {message}")


class Bulk:
    """A client's own file says how to open, close, abort and call."""

    def __init__(self, url, control):
        self.url, self.control = url, control
        self._varied = 0

    async def open(self):
        """Starts a session. Returns True if it went back to the one that was aborted instead."""
        raise NotImplementedError

    async def close(self):
        """Ends the session as the client does by default."""
        raise NotImplementedError

    async def abort(self):
        """Closes all connections at once; no DELETE, no cancel."""
        raise NotImplementedError

    async def call(self, tool, arguments, timeout_seconds=None):
        """Calls a tool. Returns the result's `_meta`. Raises TimeoutError, Refused or others."""
        raise NotImplementedError

    async def run(self, steps):
        """Runs all steps in a session."""
        await self._new_session()
        await self._steps(steps)
        await self.close()
        saw("end")
        sys.stdout.flush()

    async def _new_session(self):
        if not await self.open():
            saw("session")

    async def _steps(self, steps):
        for step in steps:
            await getattr(self, f"_do_{step['do']}")(step)

    async def _do_rounds(self, step):
        for _ in range(step["count"]):
            await self._steps(step["steps"])

    async def _do_session(self, _step):
        await self.close()
        await self._new_session()

    async def _do_pause(self, step):
        await asyncio.sleep(step["ms"] / 1000)

    async def _do_control(self, step):
        request = urllib.request.Request(self.control + step["path"], method="POST")
        await asyncio.to_thread(lambda: urllib.request.urlopen(request, timeout=5).close())

    async def _do_calls(self, step):
        left = step["count"]
        while left > 0:
            width = min(left, step.get("width", 1))
            if width == 1:
                await self._timed(step)
            else:
                await asyncio.gather(*(self._timed(step) for _ in range(width)))
            left -= width
            if step.get("pause_ms"):
                await asyncio.sleep(step["pause_ms"] / 1000)

    def _vary(self, step):
        """The step with arguments that no call had before."""
        self._varied += 1
        name = step["vary"]
        value = step["arguments"][name] + self._varied / 1000
        return {**step, "arguments": {**step["arguments"], name: value}}

    async def _do_timeout(self, step):
        await self._timed(self._vary(step), step["after_ms"] / 1000)

    async def _do_abort(self, step):
        step = self._vary(step)
        began = time.monotonic()
        lost = asyncio.ensure_future(self.call(step["tool"], step["arguments"]))
        await asyncio.sleep(step["after_ms"] / 1000)
        early = lost.done()
        await self.abort()
        lost.cancel()
        with contextlib.suppress(BaseException):
            await lost
        self._note(step, began, "early" if early else "aborted")
        await self._new_session()

    async def _timed(self, step, timeout_seconds=None):
        began = time.monotonic()
        try:
            call = self.call(step["tool"], step["arguments"], timeout_seconds)
            meta = await asyncio.wait_for(call, CALL_SECONDS)
            outcome = "recorded" if "dev.rejoin/recorded" in (meta or {}) else "ok"
            self._note(step, began, outcome)
        except TimeoutError:
            self._note(step, began, "timeout")
        except Refused as error:
            self._note(step, began, "refused", str(error))
        except Exception as error:  # whatever the application would catch is what it sees
            self._note(step, began, "failed", f"{type(error).__name__}: {error}")

    @staticmethod
    def _note(step, began, outcome, detail=None):
        took = (time.monotonic() - began) * 1000
        saw("call", tool=step["tool"], ms=round(took, 2), over_ms=round(
            took - step.get("nominal_ms", 0), 2), outcome=outcome, detail=detail)


def main(client):
    """Runs the client named by its class: `URL CONTROL_URL < steps.json`."""
    url, control = sys.argv[1:3]
    steps = json.load(sys.stdin)
    asyncio.run(client(url, control).run(steps))
