"""What a scenario is, and the steps of which it is made.

The steps of all of a client's scenarios at one server go to one driver, so each call has a name of
its own, and arguments of its own where the server's tools allow it: the tag.
"""

from dataclasses import dataclass

from compatibility import outcomes
from compatibility.seen import expect
from cutter import Plan

# What an application gives a call that may resume, and one that will not.
PATIENCE_SECONDS = 30
IMPATIENCE_SECONDS = 10


@dataclass(frozen=True)
class Cell:
    """One scenario of one client at one server."""

    client: object
    server: object
    tag: int
    # Whether there is no Rejoin between them.
    is_direct: bool = False

    @property
    def is_guarded(self):
        """Whether this client and this server keep a session: else Rejoin passes all through."""
        return not self.is_direct and not (self.client.is_modern and self.server.is_dual_era)

    @property
    def patience(self):
        """How long the application waits for a call whose stream is cut."""
        return PATIENCE_SECONDS if self.client.resumes and self.is_guarded else IMPATIENCE_SECONDS


class Scenario:
    """One column of the table."""

    name = ""
    words = ""

    def call(self, cell):
        """The call that may run once, or None."""
        return None

    def steps(self, cell):
        """What the application does."""
        raise NotImplementedError

    def cuts(self, cell):
        """Where the answers of `call` are cut."""
        return ()

    def plan(self, cell):
        """The cutter's part, or None."""
        call = self.call(cell)
        if call is None:
            return None
        cuts = [{"kind": kind, "events": events} for kind, events in self.cuts(cell)]
        return Plan(call.tool, call.arguments, cuts)

    def outcome(self, cell, seen):
        """What came of it. Raises AssertionError when that is none of what may come."""
        raise NotImplementedError


def run(name, call, do="call", seconds=None):
    """A step that makes a call."""
    step = {"do": do, "call": name, "tool": call.tool, "arguments": call.arguments}
    return step if seconds is None else {**step, "timeout_seconds": seconds}


def join(name):
    return {"do": "join", "call": name}


def pause(seconds):
    return {"do": "pause", "seconds": seconds}


def ended(cell):
    """The outcome of a call that ended well. Which progress the client drops is chance."""
    drops = cell.client.drops_last_progress and cell.server.runs_long
    return outcomes.LAST_PROGRESS_LOST if drops else outcomes.OK


def complete(cell, values, count):
    """How many progress events came again; all must have come, in order."""
    wanted = cell.server.progress(count)
    fresh = []
    for value in values:
        if not fresh or value > fresh[-1]:
            fresh.append(value)
    may_lack = len(wanted) if cell.client.drops_last_progress else 0
    is_complete = fresh == wanted[: len(fresh)] and len(fresh) + may_lack >= len(wanted)
    expect(is_complete, f"progress is not {wanted}: {values}")
    return len(values) - len(fresh)
