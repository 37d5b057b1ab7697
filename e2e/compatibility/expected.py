"""What must come of each cell: it fails when it ends worse, and when it ends better.

The first rule that fits a cell holds for it; a cell that none fits must work.
"""

from dataclasses import dataclass

from compatibility import outcomes

CUT = "cut + resume"
EARLY = "cut before the first event"
REPEATS = ("repeat, running", "repeat, finished")
REQUEST = "server request"
PYTHON = ("py1", "py2", "py2-auto", "fastmcp", "fastmcp-auto")
NEVER_RESUMING = ("ts117", "py112")
# Those that get an error when a stream ends that had no id. The others wait.
FAILING_EARLY = ("py2", "py2-auto", "fastmcp", "fastmcp-auto", "rmcp")


@dataclass(frozen=True)
class Rule:
    """An outcome other than that it works, and where. What is None fits everywhere."""

    outcome: outcomes.Outcome
    scenarios: tuple
    clients: tuple | None = None
    servers: tuple | None = None
    # Whether Rejoin guards the session; see `Cell.is_guarded`.
    guarded: bool = True

    def fits(self, cell, scenario):
        """Whether it is about this cell."""
        wanted = (
            (self.scenarios, scenario.name),
            (self.clients, cell.client.name),
            (self.servers, cell.server.name),
        )
        fits = all(names is None or name in names for names, name in wanted)
        return fits and self.guarded == cell.is_guarded


RULES = (
    Rule(outcomes.UNGUARDED_LOST, (CUT,), guarded=False),
    Rule(outcomes.UNGUARDED_TWICE, (EARLY, *REPEATS), guarded=False),
    Rule(outcomes.CANNOT_ASK, (REQUEST,), servers=("fastmcp",), guarded=False),
    Rule(outcomes.FORM_UNKNOWN, (REQUEST,), ("ts117",), ("everything", "everything-http")),
    Rule(outcomes.NEVER_RESUMES, (CUT,), NEVER_RESUMING),
    Rule(outcomes.REFUSED_FIRST_LOST, REPEATS, NEVER_RESUMING),
    # Without progress none can come twice or be lost.
    Rule(outcomes.OK, (CUT, *REPEATS), (*PYTHON, "remote"), ("time", "memory", "filesystem")),
    Rule(outcomes.LAST_PROGRESS_LOST, ("progress", CUT, *REPEATS), ("remote",)),
    Rule(outcomes.AGAIN, (CUT,), PYTHON),
    Rule(outcomes.ERROR_THEN_RECORD, (EARLY,), FAILING_EARLY),
    Rule(outcomes.WAITS_THEN_RECORD, (EARLY,)),
    Rule(outcomes.UNKNOWN, ("killed, a call runs",)),
    Rule(outcomes.CANNOT_CONNECT, ("killed, a call meanwhile",), ("ts", "rmcp")),
    Rule(outcomes.CLIENT_ENDS, ("killed, a call meanwhile",)),
    Rule(outcomes.STATE_LOST, ("killed, a server with state",)),
)


def outcome(cell, scenario):
    """What must come of this cell."""
    fitting = (rule.outcome for rule in RULES if rule.fits(cell, scenario))
    return next(fitting, outcomes.OK)
