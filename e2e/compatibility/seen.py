"""What an application saw of a scenario, and what passed the cutter meanwhile."""

import json

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


class Seen:
    """One scenario's lines of a driver, and its plan as the cutter left it."""

    def __init__(self, lines, plan):
        self.lines = lines
        self.plan = plan

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

    def result(self, call, text):
        """A call that must have succeeded exactly once, with this text in its result."""
        expect(not self.all("error", call), f"call {call} failed: {brief(self.all('error', call))}")
        line = self.one("result", call)
        expect(not line["error"], f"the result of call {call} is an error: {brief(line)}")
        expect(text in self.text(line), f"call {call} answered {self.text(line)!r}, not {text!r}")

    @staticmethod
    def text(line):
        """The text of a result."""
        return "\n".join(part.get("text", "") for part in line["content"])

    def progress(self, call):
        """The progress values of a call, in the order the application saw them."""
        return [int(line["progress"]) for line in self.all("progress", call)]

    def asked(self, **wanted):
        """The requests that passed, from the scenario's call to that of the next scenario."""
        return [
            request for request in self.plan.requests
            if all(request.get(key) == value for key, value in wanted.items())
        ]

    def cut(self):
        """How the call's streams were cut."""
        return [done["kind"] for done in self.plan.done if not done["missed"]]

    def refusal(self, call, client, reasons):
        """A repeat that was refused for one of these, with the exact text for this client."""
        expect(not self.all("result", call), f"the repeat ran: {brief(self.all('result', call))}")
        error = client.refusal.read(self.one("error", call))
        data = error.get("data") or {}
        reason = data.get("reason")
        expect(reason in reasons, f"the reason is {reason!r}, not one of {reasons}")
        code, text = REFUSALS[reason]
        expect(error["code"] == code, f"the code is {error['code']}, not {code}")
        expect(error["message"] == text, f"the text is {error['message']!r}, not {text!r}")
        expect(bool(data.get("lastEventId")), "the refusal names no cursor")


def expect(condition, message):
    """An expectation of a scenario."""
    if not condition:
        raise AssertionError(message)


def brief(value):
    """A value short enough for a table."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 400 else text[:400] + "..."
