"""The scenarios: the steps an application takes, where its call is cut, what it must have seen."""

import json
from dataclasses import dataclass, field

THREE_CUTS = ("clean", "clean", "rst")
TS_PREFIX = "Streamable HTTP error: Error POSTing to endpoint: "
ERROR_TYPES = {"ts": "StreamableHTTPError", "py2": "MCPError", "py1": "McpError"}
# The client of the Python SDK 1.x loses its session on any other status.
REFUSAL_STATUS = {"ts": 409, "py2": 409, "py1": 200}
REFUSALS = {
    "request_in_flight": (40902, (
        "Not run. The same call is already in progress and its answer has not reached you yet. "
        "Do not send it again: the first one counts. Continue without it, or check its effect "
        "with another tool."
    )),
    "stream_not_drained": (40901, (
        "Not run. The same call already ran to its end, but its answer may not have reached you. "
        "Do not send it again: the first one counts. Check its effect with another tool."
    )),
}


@dataclass
class Scenario:
    """One row of the table."""

    name: str
    server: str
    steps: list
    check: object
    tool: str = ""
    cuts: list = field(default_factory=list)
    executions: int = 0


class Seen:
    """What the application saw, and what passed the cutter meanwhile."""

    def __init__(self, client, lines, cutter):
        self.client = client
        self.lines = lines
        self.cutter = cutter

    def all(self, what, call=None):
        """Every line of a kind, of one call if given."""
        return [
            line for line in self.lines
            if line["saw"] == what and (call is None or line.get("call") == call)
        ]

    def one(self, what, call=None):
        """The only line of a kind."""
        found = self.all(what, call)
        expect(len(found) == 1, f"expected one {what} of call {call}, saw {brief(found)}")
        return found[0]

    def result(self, call):
        """The text of the result of a call that must have succeeded exactly once."""
        expect(not self.all("error", call), f"call {call} failed: {brief(self.all('error', call))}")
        line = self.one("result", call)
        expect(not line["error"], f"the result of call {call} is an error: {brief(line)}")
        return "\n".join(part.get("text", "") for part in line["content"])

    def progress(self, call):
        """The progress values of a call, in the order the application saw them."""
        return [int(line["progress"]) for line in self.all("progress", call)]


def expect(condition, message):
    """An expectation of a scenario."""
    if not condition:
        raise AssertionError(message)


def brief(value):
    """A value short enough for a table."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 400 else text[:400] + "..."


def complete(values, count, may_repeat):
    """Every event once and in order; some may come again after an abrupt end."""
    fresh, highest = [], 0
    for value in values:
        if value > highest:
            fresh.append(value)
            highest = value
    expect(fresh == list(range(1, count + 1)), f"progress is not 1..{count}: {values}")
    again = len(values) - count
    expect(again <= may_repeat, f"{again} progress events came twice, at most {may_repeat} may")


def long_call(server, call, count, seconds, do):
    """A step that runs a call of `count` progress events."""
    if server == "everything":
        arguments = {"duration": round(count * seconds, 3), "steps": count}
    else:
        arguments = {"amount": 7, "events": count, "interval_ms": round(seconds * 1000)}
    return {"do": do, "call": call, "tool": LONG[server], "arguments": arguments}


LONG = {"everything": "trigger-long-running-operation", "tools": "charge"}
SHORT = {
    "everything": ("echo", {"message": "still here"}, "still here"),
    "tools": ("get", {}, "The account is open."),
    "time": (
        "convert_time",
        {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"},
        "21:00",
    ),
}


def short_call(server, call):
    """A step that runs a call with an immediate answer."""
    tool, arguments, _ = SHORT[server]
    return {"do": "call", "call": call, "tool": tool, "arguments": arguments}


def check_short(seen, server, call):
    """The immediate answer arrived."""
    expect(SHORT[server][2] in seen.result(call), f"call {call} answered {seen.result(call)!r}")


def tools(server):
    """List the tools, call one."""
    def check(seen):
        names = seen.one("tools")["names"]
        expect(SHORT[server][0] in names, f"the list has no {SHORT[server][0]}: {names}")
        check_short(seen, server, "A")

    return Scenario("tools", server, [{"do": "list"}, short_call(server, "A")], check)


def progress(server):
    """A call with progress."""
    count = 8

    def check(seen):
        seen.result("A")
        expect(seen.progress("A") == list(range(1, count + 1)),
               f"progress is not 1..{count}: {seen.progress('A')}")

    steps = [long_call(server, "A", count, 0.05, "call")]
    return Scenario("progress", server, steps, check, executions=1)


def asked(name, server, tool, arguments, answer):
    """A call in which the server asks the client once and gets its answer."""
    def check(seen):
        seen.one(name)
        expect(answer in seen.result("A"), f"the answer is not in {seen.result('A')!r}")

    steps = [{"do": "call", "call": "A", "tool": tool, "arguments": arguments}]
    return Scenario(name, server, steps, check)


def sampling(server):
    """The server asks the client's model."""
    tool = {"everything": "trigger-sampling-request", "tools": "sample"}[server]
    return asked("sampling", server, tool, {"prompt": "Say something."}, "sampled by e2e")


def elicitation(server):
    """The server asks the user."""
    if server == "everything":
        return asked("elicitation", server, "trigger-elicitation-request", {}, "answered by e2e")
    return asked("elicitation", server, "ask", {"question": "Go on?"}, "answered by e2e")


def cancel(server):
    """A call is cancelled midway; the session goes on."""
    def check(seen):
        expect(not seen.all("result", "A"), "a cancelled call gave a result")
        seen.one("error", "A")
        check_short(seen, server, "B")
        notes = [
            asked for asked in seen.cutter["requests"]
            if asked.get("message") == "notifications/cancelled"
        ]
        expect([note.get("status") for note in notes] == [202],
               f"the cancellation was not accepted once: {brief(notes)}")

    steps = [
        long_call(server, "A", 200, 0.1, "start"),
        {"do": "await_progress", "call": "A", "count": 2},
        {"do": "cancel", "call": "A"},
        {"do": "join", "call": "A"},
        short_call(server, "B"),
    ]
    return Scenario("cancel", server, steps, check, executions=1)


def cut(server, count=24, seconds=0.1):
    """A call whose connection is cut three times, twice cleanly, completes."""
    events = 1 if server == "time" else 4

    def check(seen):
        kinds = [done["kind"] for done in seen.cutter["cuts"] if not done["missed"]]
        expect(kinds == list(THREE_CUTS), f"the stream was cut {kinds}, not {list(THREE_CUTS)}")
        if server == "time":
            check_short(seen, server, "A")
            return
        seen.result("A")
        # After an abrupt end the Python clients resume from where that connection began.
        complete(seen.progress("A"), count, 0 if seen.client == "ts" else events)

    steps = [short_call(server, "A") if server == "time"
             else long_call(server, "A", count, seconds, "call")]
    cuts = [{"kind": kind, "events": events} for kind in THREE_CUTS]
    return Scenario("cut 3x", server, steps, check, steps[0]["tool"], cuts, executions=1)


def refused(server, reason):
    """A blind repeat of a call whose answer is owed is refused; the first one completes."""
    running = reason == "request_in_flight"
    count = 30 if running else 5

    def check(seen):
        check_refusal(seen, "B", reason)
        statuses = [
            asked.get("status") for asked in seen.cutter["requests"]
            if asked.get("tool") == LONG[server]
        ]
        expect(statuses == [200, REFUSAL_STATUS[seen.client]], f"HTTP statuses were {statuses}")
        seen.result("A")
        complete(seen.progress("A"), count, 0)
        check_short(seen, server, "C")

    steps = [
        long_call(server, "A", count, 0.1 if running else 0.02, "start"),
        {"do": "await_cuts", "count": 1},
        # A client resumes after the 2 s that Rejoin tells it. The repeat comes before that, when
        # Rejoin has seen the drop, and for a finished call after the call ended.
        {"do": "pause", "seconds": 0.1 if running else 1.0},
        long_call(server, "B", count, 0.1 if running else 0.02, "call"),
        {"do": "join", "call": "A"},
        short_call(server, "C"),
    ]
    name = "repeat, running" if running else "repeat, finished"
    cuts = [{"kind": "clean", "events": 3}]
    return Scenario(name, server, steps, check, LONG[server], cuts, executions=1)


def check_refusal(seen, call, reason):
    """The exact text the application reads when its repeat is refused."""
    code, text = REFUSALS[reason]
    expect(not seen.all("result", call), f"the repeat ran: {brief(seen.all('result', call))}")
    line = seen.one("error", call)
    wanted = ERROR_TYPES[seen.client]
    expect(line["type"] == wanted, f"the error is no {wanted}: {brief(line)}")
    message = line["message"]
    if seen.client == "ts":
        expect(message.startswith(TS_PREFIX), f"the text is {message!r}")
        body = json.loads(message[len(TS_PREFIX):])
        expect(isinstance(body.get("id"), int), f"the refusal lacks the request's own id: {body}")
        expect(line["code"] == 409, f"the status is {line['code']}")
        error = body["error"]
    else:
        error = {"code": line.get("code"), "message": message, "data": line.get("data")}
    expect(error["code"] == code, f"the code is {error['code']}, not {code}")
    expect(error["message"] == text, f"the text is {error['message']!r}, not {text!r}")
    data = error.get("data") or {}
    expect(data.get("reason") == reason, f"the reason is {data.get('reason')!r}")
    expect(bool(data.get("lastEventId")), "the refusal names no cursor")


def through_rejoin():
    """Every scenario with Rejoin in front."""
    rows = [tools("time"), cut("time")]
    for server in ("everything", "tools"):
        rows += [
            tools(server), progress(server), sampling(server), elicitation(server),
            cancel(server), cut(server), refused(server, "request_in_flight"),
            refused(server, "stream_not_drained"),
        ]
    return rows


def direct():
    """The scenarios a bare server passes too: they prove the drivers and the cutter.

    This server replays only what was stored before the resume, so the call ends before a client
    comes back.
    """
    server = "everything"
    return [
        tools(server), progress(server), sampling(server), elicitation(server), cancel(server),
        cut(server, count=14, seconds=0.03),
    ]
