"""The steps of a scenario, driven through one client of a Python SDK."""

import json
import time
import urllib.request

import anyio

POLL_SECONDS = 0.02
WAIT_SECONDS = 20


def saw(what, **more):
    """Prints one JSON line for a thing the application sees."""
    print(json.dumps({"saw": what, **more}), flush=True)


class Call:
    """One tool call under way."""

    def __init__(self):
        self.progress = 0
        self.scope = anyio.CancelScope()
        self.settled = anyio.Event()
        self.is_answered = False
        self.request_id = None


class Driver:
    """Runs steps. An SDK's own file says how to list, call and cancel."""

    def __init__(self, control):
        self._control = control
        self._calls = {}

    async def tool_names(self):
        """The names the server lists."""
        raise NotImplementedError

    async def call_tool(self, call, step, on_progress):
        """Calls the step's tool, within its `timeout_seconds` if it has them; the SDK's result."""
        raise NotImplementedError

    async def cancel(self, call):
        """Cancels a call as an application of this SDK does."""
        call.scope.cancel()

    def describe(self, error):
        """The code, message and data the application finds in an error."""
        raise NotImplementedError

    @staticmethod
    def is_error(result):
        """Whether a tool result is marked as an error."""
        raise NotImplementedError

    async def run(self, steps):
        """Runs all the steps, calls in tasks of their own."""
        async with anyio.create_task_group() as group:
            for step in steps:
                await self._step(group, step)
        saw("end")

    async def _step(self, group, step):
        act = step["do"]
        call = self._calls.get(step.get("call"))
        other = self._calls.get(step.get("unless_answered"))
        if other and other.is_answered:
            return
        if act == "list":
            saw("tools", names=await self.tool_names())
        elif act in ("start", "call"):
            call = self._calls[step["call"]] = Call()
            group.start_soon(self._call, call, step)
            if act == "call":
                await call.settled.wait()
        elif act == "join":
            await call.settled.wait()
        elif act == "cancel":
            await self.cancel(call)
        elif act == "await_progress":
            await self._until(lambda: call.progress >= step["count"], "progress events")
        elif act == "await_cuts":
            await self._until(lambda: self._cuts() >= step["count"], "cuts")
        elif act == "pause":
            await anyio.sleep(step["seconds"])
        else:
            raise ValueError(f"no such step: {act}")

    async def _call(self, call, step):
        async def on_progress(progress, total, message):
            call.progress += 1
            saw("progress", call=step["call"], progress=progress, total=total)

        try:
            with call.scope:
                result = await self.call_tool(call, step, on_progress)
                content = [part.model_dump(mode="json") for part in result.content]
                saw("result", call=step["call"], error=self.is_error(result), content=content)
                call.is_answered = True
            if call.scope.cancelled_caught:
                saw("error", call=step["call"], type="cancelled", message="cancelled by e2e")
        except Exception as error:  # whatever the application would catch is what it sees
            saw("error", call=step["call"], type=type(error).__name__, **self.describe(error))
        finally:
            call.settled.set()

    async def _until(self, condition, what):
        deadline = time.monotonic() + WAIT_SECONDS
        while not await anyio.to_thread.run_sync(condition):
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {WAIT_SECONDS} s in vain for {what}")
            await anyio.sleep(POLL_SECONDS)

    def _cuts(self):
        with urllib.request.urlopen(f"{self._control}/state", timeout=5) as answer:
            return len(json.load(answer)["cuts"])


def first_field(schema):
    """The first field an elicitation asks for."""
    return next(iter(schema["properties"]))
