"""The scenarios in which the stream of a call is cut."""

import re

from compatibility import outcomes
from compatibility.scenario import (
    IMPATIENCE_SECONDS, PATIENCE_SECONDS, Scenario, complete, ended, join, pause, run,
)
from compatibility.seen import brief, expect

EVENTS_FINISHED = 5
# A lost answer is kept from others of its session for 8 s; then a repeat gets it.
OWED_SECONDS = 9
TIMED_OUT = re.compile(r"time[d]?[ -]?out", re.IGNORECASE)


def wait_for_resumed(cell):
    """A call that may have to wait for one that was just resumed. The next call then need not: one
    that waits when its stream is cut is taken back."""
    return run("before", cell.server.short())


def for_the_record(name, call, unless=None):
    """The same call again, when its answer is no longer kept for a resume. Not if the call that
    `unless` names was answered: it got the record, and one more is a call of its own."""
    step = run(name, call, seconds=PATIENCE_SECONDS)
    if unless:
        step["unless_answered"] = unless
    return [pause(OWED_SECONDS), step]


def after_ids(cell, events):
    """After how many events to cut. If neither an id nor progress comes first, the answer does."""
    return events if cell.client.is_primed or cell.server.runs_long else 0


class Cut(Scenario):
    name = "cut + resume"
    words = ("the call's stream is cut four times: after its first event, which is only an id, "
             "then within the answer by a reset, cleanly, and in the midst of the body")

    def events(self, cell):
        """How many there are: few enough to have ended before a client that waits gives up."""
        return 24 if cell.client.resumes else 8

    def call(self, cell):
        return cell.server.long(cell.tag, self.events(cell), 0.1)

    def cuts(self, cell):
        return cell.server.cuts if cell.client.is_primed else (("clean", after_ids(cell, 2)),)

    def steps(self, cell):
        steps = [run("A", self.call(cell), seconds=cell.patience)]
        if self.asks_again(cell):
            steps += for_the_record("B", self.call(cell))
        return steps

    def asks_again(self, cell):
        """Whether the answer is to be had in no other way."""
        return not cell.client.resumes and not cell.is_direct

    def outcome(self, cell, seen):
        if not seen.all("result", "A"):
            if self.asks_again(cell):
                seen.result("B", self.call(cell).text)
            return lost(cell, seen)
        wanted = [kind for kind, _ in self.cuts(cell)]
        expect(seen.cut() == wanted, f"the stream was cut {seen.cut()}, not {wanted}")
        seen.result("A", self.call(cell).text)
        again = complete(cell, seen.progress("A"), self.events(cell))
        bound = sum(events for _, events in self.cuts(cell)[1:])
        expect(again <= bound, f"{again} progress events came twice, at most {bound} may")
        return outcomes.AGAIN if again else ended(cell)


def lost(cell, seen):
    """The outcome of a call that a client did not resume."""
    error = seen.one("error", "A")
    if not cell.is_guarded:
        return outcomes.UNGUARDED_LOST
    cursors = [asked["cursor"] for asked in seen.asked(method="GET") if asked["cursor"]]
    expect(not cursors, f"it resumed, and did not get the answer: {brief(error)}")
    expect(is_time_out(error), f"the error is no time-out: {brief(error)}")
    return outcomes.NEVER_RESUMES


def is_time_out(error):
    """Whether an application gave up waiting."""
    return bool(TIMED_OUT.search(f"{error['type']} {error['message']}"))


class CutEarly(Scenario):
    name = "cut before the first event"
    words = "the answer's head arrives, then the connection is lost"

    def call(self, cell):
        return cell.server.long(cell.tag, EVENTS_FINISHED, 0.02)

    def cuts(self, cell):
        return (("truncate", 0),)

    def steps(self, cell):
        return [
            wait_for_resumed(cell),
            run("A", self.call(cell), seconds=IMPATIENCE_SECONDS),
            *for_the_record("B", self.call(cell)),
        ]

    def outcome(self, cell, seen):
        expect(seen.cut() == ["truncate"], f"the stream was cut {seen.cut()}")
        error = seen.one("error", "A")
        seen.result("B", self.call(cell).text)
        if not cell.is_guarded:
            return outcomes.UNGUARDED_TWICE
        waited = is_time_out(error)
        return outcomes.WAITS_THEN_RECORD if waited else outcomes.ERROR_THEN_RECORD


class Repeat(Scenario):
    """The stream of a call is cut, and the application sends the same call again."""

    reasons = ()
    pause_seconds = 0

    def events(self, cell):
        """How many there are."""
        raise NotImplementedError

    def cuts(self, cell):
        return (("clean", after_ids(cell, 1)),)

    def steps(self, cell):
        steps = [
            wait_for_resumed(cell),
            run("A", self.call(cell), "start", cell.patience),
            {"do": "await_cuts", "count": 1},
            # A client resumes after the 2 s that Rejoin tells it. The repeat comes before that,
            # when Rejoin has seen the drop, and for a finished call after the call ended.
            pause(self.pause_seconds),
            run("B", self.call(cell), seconds=PATIENCE_SECONDS),
            join("A"),
        ]
        if not cell.client.resumes:
            steps += for_the_record("C", self.call(cell), unless="B")
        return [*steps, run("D", cell.server.short(), seconds=PATIENCE_SECONDS)]

    def outcome(self, cell, seen):
        seen.result("D", cell.server.short().text)
        if not cell.is_guarded:
            seen.one("error", "A")
            seen.result("B", self.call(cell).text)
            return outcomes.UNGUARDED_TWICE
        if not seen.all("result", "B"):
            self.check_refusal(cell, seen)
        elif cell.server.runs_long:
            raise AssertionError(f"the repeat was answered: {brief(seen.all('result', 'B'))}")
        else:
            # Rejoin had sent all of the answer when the stream was cut: it has a record to give.
            seen.result("B", self.call(cell).text)
        if cell.client.resumes:
            seen.result("A", self.call(cell).text)
            again = complete(cell, seen.progress("A"), self.events(cell))
            expect(again == 0, f"{again} progress events came twice")
            return ended(cell)
        expect(lost(cell, seen) is outcomes.NEVER_RESUMES, "the first call ended otherwise")
        if not seen.all("result", "B"):
            seen.result("C", self.call(cell).text)
        return outcomes.REFUSED_FIRST_LOST

    def check_refusal(self, cell, seen):
        """The repeat was refused, by the status and in the words that suit this client."""
        seen.refusal("B", cell.client, self.reasons)
        calls = [asked.get("status") for asked in seen.asked(tool=self.call(cell).tool)]
        wanted = [200, cell.client.refusal.status]
        expect(calls[:2] == wanted, f"HTTP statuses were {calls}, not {wanted}")


class RepeatRunning(Repeat):
    name = "repeat, running"
    words = "the call's stream is cut, and the same call is sent again while the first one runs"
    reasons = ("request_in_flight",)
    pause_seconds = 0.3

    def events(self, cell):
        return 30 if cell.client.resumes else 15

    def call(self, cell):
        return cell.server.long(cell.tag, self.events(cell), 0.1)


class RepeatFinished(Repeat):
    name = "repeat, finished"
    words = ("the same, when the first one has ended and its answer has not arrived: refused, or "
             "answered from the record if all of the answer had left Rejoin already")
    # The second if the server is slower than the pause.
    reasons = ("stream_not_drained", "request_in_flight")
    pause_seconds = 1.0

    def events(self, cell):
        return EVENTS_FINISHED

    def call(self, cell):
        return cell.server.long(cell.tag, self.events(cell), 0.02)
