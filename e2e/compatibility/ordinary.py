"""The scenarios in which no connection is lost."""

from compatibility import outcomes
from compatibility.scenario import Scenario, complete, ended, join, run
from compatibility.seen import brief, expect

UNASKED = (
    ("unavailable on 2026-07-28 connections", outcomes.CANNOT_ASK),
    ("Cannot send 'sampling/createMessage'", outcomes.CANNOT_ASK),
    ("invalid_union", outcomes.FORM_UNKNOWN),
)


class List(Scenario):
    name = "list"
    words = "the list of tools"

    def steps(self, cell):
        return [{"do": "list"}]

    def outcome(self, cell, seen):
        names = seen.one("tools")["names"]
        wanted = cell.server.short().tool
        expect(wanted in names, f"the list has no {wanted}: {names}")
        return outcomes.OK


class CallTool(Scenario):
    name = "call"
    words = "a call and its answer"

    def steps(self, cell):
        return [run("A", cell.server.short())]

    def outcome(self, cell, seen):
        seen.result("A", cell.server.short().text)
        return outcomes.OK


class Progress(Scenario):
    name = "progress"
    words = "a call with progress: each event once, in order, before the answer"
    count = 8

    def call(self, cell):
        return cell.server.long(cell.tag, self.count, 0.05)

    def steps(self, cell):
        return [run("A", self.call(cell))]

    def outcome(self, cell, seen):
        seen.result("A", self.call(cell).text)
        again = complete(cell, seen.progress("A"), self.count)
        expect(again == 0, f"{again} progress events came twice")
        return ended(cell)


class ServerRequest(Scenario):
    name = "server request"
    words = "the server asks the user (elicitation), then the client's model (sampling)"

    def steps(self, cell):
        return [run(question.kind, question.call) for question in cell.server.questions]

    def outcome(self, cell, seen):
        unasked = set()
        for question in cell.server.questions:
            if seen.all(question.kind):
                seen.one(question.kind)
                seen.result(question.kind, question.answer)
            else:
                unasked.add(why_unasked(cell, seen, question))
        expect(len(unasked) <= 1, f"not asked for more than one reason: {unasked}")
        return unasked.pop() if unasked else outcomes.OK


def why_unasked(cell, seen, question):
    """The outcome when a question did not reach the application: its call says so."""
    if cell.client.raises:
        said = seen.one("error", question.kind)["message"]
    else:
        said = seen.text(seen.one("result", question.kind))
    for text, outcome in UNASKED:
        if text in said:
            return outcome
    raise AssertionError(f"no {question.kind} was asked: {said[:400]}")


class Cancel(Scenario):
    name = "cancel"
    words = "a call is cancelled midway: no answer for it, and the session goes on"

    def call(self, cell):
        return cell.server.long(cell.tag, 200, 0.1)

    def steps(self, cell):
        return [
            run("A", self.call(cell), "start"),
            {"do": "await_progress", "call": "A", "count": 2},
            {"do": "cancel", "call": "A"},
            join("A"),
            run("B", cell.server.short()),
        ]

    def outcome(self, cell, seen):
        expect(not seen.all("result", "A"), "a cancelled call gave a result")
        seen.one("error", "A")
        seen.result("B", cell.server.short().text)
        if cell.is_guarded:
            said = seen.asked(message="notifications/cancelled")
            statuses = [note.get("status") for note in said]
            expect(statuses == [202], f"the cancellation was not accepted once: {statuses}")
        return outcomes.OK


class Failing(Scenario):
    name = "error result"
    words = "a tool fails: its result is marked as an error, and has its text"

    def steps(self, cell):
        return [run("A", cell.server.failing(cell.tag))]

    def outcome(self, cell, seen):
        wanted = cell.server.failing(cell.tag).text
        if cell.client.raises:
            error = seen.one("error", "A")
            expect(error["type"] == cell.client.raises, f"the error is no tool's: {brief(error)}")
            text = error["message"]
        else:
            line = seen.one("result", "A")
            expect(line["error"], f"the result is not marked as an error: {brief(line)}")
            text = seen.text(line)
        expect(wanted in text, f"the error is {text!r}")
        return outcomes.OK
