"""What the clients do: scripts of healthy traffic, and what each of them may explain."""

from dataclasses import dataclass, field

SLOW_MS = 300
CALLS_FULL = 10_000
CALLS_QUICK = 200
# Identical calls in a row between two accidents.
BURST = 5
# Shortened times: an answer that really was lost then holds or refuses others for 1 s instead of 8.
SHORT_GRACE_MS = 1000
SHORT_GRACE = ("retry_ms=250", f"owed_grace_ms={SHORT_GRACE_MS}", "hold_max_ms=2000")
SHORT_RESET = ("reset_window_ms=200",)


@dataclass
class Script:
    """Steps for one client, and the rules under which they run."""

    name: str
    steps: list
    limits: tuple = ()
    refuse_get: bool = False
    get_cut_seconds: float = None
    get_cuts: int = 0
    # Why a hold is right here, or None: at most one for each session that lost an answer.
    holds_explained: str = None
    # Why a recorded answer is right here, or None: at most one for each reset.
    records_explained: str = None
    # Why a refusal is right here, or None: of a call collected at most `refused_ms` before, and at
    # most `refusals_each` for each recorded answer.
    refusals_explained: str = None
    refusals_each: int = 0
    refused_ms: int = 0
    calls: int = field(init=False)
    resets: int = field(init=False)

    def __post_init__(self):
        self.calls = count(self.steps, "calls")
        self.resets = count(self.steps, "control")


def count(steps, what):
    """How many calls (`calls`), or steps of another kind, the steps make."""
    total = 0
    for step in steps:
        if step["do"] == "rounds":
            total += step["count"] * count(step["steps"], what)
        elif what == "calls":
            made = {"calls": step.get("count"), "timeout": 1, "abort": 1}
            total += made.get(step["do"], 0)
        else:
            total += step["do"] == what
    return total


class Tools:
    """The tools of `rejoin tool-server` and of ../servers/fastmcp_tools.py."""

    charge = ("charge", {"amount": 1})
    others = (("get", {}), ("echo", {"text": "healthy"}), ("state", {"set": "healthy"}))
    notify = ("notify", {"count": 3})

    @staticmethod
    def slow(milliseconds):
        """A tool that waits."""
        return ("slow", {"seconds": milliseconds / 1000})


class Everything:
    """The tools of server-everything."""

    charge = ("echo", {"message": "healthy"})
    others = (("get-sum", {"a": 1, "b": 2}), ("get-tiny-image", {}),
              ("get-annotated-message", {"messageType": "success"}))
    notify = ("toggle-simulated-logging", {})

    @staticmethod
    def slow(milliseconds):
        """A tool that waits."""
        return ("trigger-long-running-operation",
                {"duration": milliseconds / 1000, "steps": 1})


def calls(tool, count=1, **more):
    """Identical calls, one after the other unless `width` says how many at a time."""
    return {"do": "calls", "tool": tool[0], "arguments": tool[1], "count": count, **more}


def rounds(count, *steps):
    """The same steps again and again."""
    return {"do": "rounds", "count": count, "steps": list(steps)}


def lose(how, tool, after_ms):
    """A call that is given up: by `timeout` and cancel, or by `abort`, closing the connection.

    Each has arguments of its own, a millisecond apart: it is not repeated.
    """
    return {"do": how, "tool": tool[0], "arguments": tool[1], "after_ms": after_ms,
            "vary": next(iter(tool[1]))}


def scripts(client, tools, quick):
    """All scripts of a client: CALLS_FULL or CALLS_QUICK calls together."""
    made = [parallel(tools, quick), abort(tools, quick), timeout(tools, quick),
            notifications(tools, quick), idle_reset(tools, quick), early_reset(tools, quick)]
    if client != "raw":  # it never opens a GET
        made.append(get_cut(tools, quick))
    left = (CALLS_QUICK if quick else CALLS_FULL) - sum(script.calls for script in made)
    return [Script("sequential", [calls(tools.charge, left)]), *made]


def parallel(tools, quick):
    """Eight identical slow calls at a time, all meant."""
    slow = calls(tools.slow(SLOW_MS), 8, width=8, nominal_ms=SLOW_MS)
    return Script("parallel", [rounds(2 if quick else 200, slow)])


def other_calls(tools, times=1):
    """Every other tool, `times` times."""
    return [calls(tool) for _ in range(times) for tool in tools.others]


def abort(tools, quick):
    """The host closes its connections while a call runs, comes back, and does other things."""
    lost = lose("abort", tools.slow(2 * SLOW_MS), SLOW_MS)
    once = [lost, *other_calls(tools, 3)]
    sessions, losses = (1, 2) if quick else (10, 4)
    return Script(
        "host abort", [rounds(sessions, {"do": "session"}, rounds(losses, *once))],
        limits=(*SHORT_GRACE, "children_max=256"),
        holds_explained="row 16: the aborted call's answer is owed until owed_grace; "
                        "once a session, since no cursor was ever presented",
    )


def timeout(tools, quick):
    """A call runs into the client's time limit and is cancelled; other tools follow."""
    lost = lose("timeout", tools.slow(1000), 100)
    return Script("timeout, cancel", [rounds(4 if quick else 60, lost, *other_calls(tools),
                                             calls(tools.charge))], limits=SHORT_GRACE)


def notifications(tools, quick):
    """The server notifies although no standalone stream was ever opened."""
    once = [calls(tools.notify), calls(tools.charge, 2), *other_calls(tools),
            calls(tools.notify, 4)]
    return Script("notifications, no GET", [rounds(2 if quick else 40, *once)], refuse_get=True)


def get_cut(tools, quick):
    """The standalone stream is cut every 5 s while calls go on."""
    once = [calls(tools.charge, 8, pause_ms=40), calls(tools.notify, 2, pause_ms=40)]
    return Script("GET cut", [rounds(2 if quick else 40, *once)],
                  limits=("retry_ms=100",) if quick else (),
                  get_cut_seconds=0.25 if quick else 5, get_cuts=2)


def resets(sides, wait_ms, tools, *after):
    """Identical calls, then a reset of every idle connection on the way, then what comes after."""
    steps = []
    for kind in sides:
        steps += [calls(tools.charge, BURST), {"do": "pause", "ms": wait_ms},
                  {"do": "control", "path": f"/reset?kind={kind}"}, {"do": "pause", "ms": 20},
                  *after]
    return steps


def idle_reset(tools, quick):
    """Kept connections are reset when they have been idle longer than the reset window."""
    steps = resets(("client", "gateway", "both"), 300, tools)
    return Script("idle reset", [rounds(1 if quick else 20, *steps)], limits=SHORT_RESET)


def early_reset(tools, quick):
    """Kept connections are reset right after an answer: it may have been lost.

    Nobody but the client knows that it was not. What is called next must feel it as little as can
    be: the same call once more gets the record, then nothing until `owed_grace` is over; every
    other tool, and every call afterwards, runs.
    """
    after = [calls(tools.charge, BURST), *other_calls(tools),
             {"do": "pause", "ms": SHORT_GRACE_MS + 200}]
    steps = resets(("gateway", "client"), 5, tools, *after)
    return Script(
        "reset at once", [rounds(1 if quick else 10, *steps)],
        # So that a reset says nothing of what was answered before the pause.
        limits=(*SHORT_GRACE, f"reset_window_ms={SHORT_GRACE_MS}"),
        records_explained="row 11: a reset within reset_window says the answer may be lost; "
                          "the next identical call gets its record",
        refusals_explained="row 13: an identical call less than owed_grace after the record was "
                           "collected; not run, and told that it may be sent again",
        refusals_each=BURST - 1, refused_ms=SHORT_GRACE_MS,
    )
