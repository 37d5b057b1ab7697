"""The scenarios of one client at one server, driven through one process of the client."""

import json
import subprocess
from dataclasses import dataclass

import peers
from compatibility import outcomes
from compatibility.scenario import Cell
from compatibility.seen import Seen, brief, expect
from cutter import Cutter

# An answer that never comes is given up by its own step; this is for a client that hangs.
SCENARIO_SECONDS = 60
FIRST_MODERN = "2026-07-28"


@dataclass(frozen=True)
class Result:
    """What came of a cell: an outcome, or why there is none."""

    cell: Cell
    scenario: object
    outcome: outcomes.Outcome | None
    failure: str | None
    lines: list


def failed(cell, scenario, error):
    """The result of a cell that could not be run."""
    return Result(cell, scenario, None, f"not run: {type(error).__name__}: {error}", [])


def run(gateway, batch):
    """Runs the scenarios of one client after each other: [(cell, scenario), ...]; the results."""
    plans = [scenario.plan(cell) for cell, scenario in batch]
    cutter = Cutter("127.0.0.1", gateway.port, [plan for plan in plans if plan]).start()
    try:
        return drive_through(gateway, cutter, batch, plans)
    finally:
        cutter.stop()


def drive_through(gateway, cutter, batch, plans):
    """The same through a cutter that has these plans."""
    urls = [f"http://127.0.0.1:{cutter.port}/mcp", f"http://127.0.0.1:{cutter.control_port}"]
    command = [*peers.client_command(batch[0][0].client.name), *urls]
    lines, trouble = drive(command, named(batch, plans), SCENARIO_SECONDS * len(batch))
    return [
        judge(gateway, cell, scenario, Seen(own_lines(lines, scenario), plan), trouble)
        for (cell, scenario), plan in zip(batch, plans)
    ]


def named(batch, plans):
    """The steps of all, with names of calls and counts of cuts that say whose they are."""
    steps, cuts = [], 0
    for (cell, scenario), plan in zip(batch, plans):
        for step in scenario.steps(cell):
            step = dict(step)
            for name in ("call", "unless_answered"):
                if name in step:
                    step[name] = f"{scenario.name}:{step[name]}"
            if step["do"] == "await_cuts":
                step["count"] += cuts
            steps.append(step)
        cuts += len(plan.cuts) if plan else 0
    return steps


def own_lines(lines, scenario):
    """The lines of one scenario, with the names its steps gave. Those of no call go to all."""
    own = []
    for line in lines:
        owner, _, call = line.get("call", "").rpartition(":")
        if owner in ("", scenario.name):
            own.append({**line, "call": call} if owner else line)
    return own


def judge(gateway, cell, scenario, seen, trouble):
    """What came of one scenario."""
    outcome, failure = None, None
    try:
        found = scenario.outcome(cell, seen)
        check_executions(cell, scenario, found)
        check_era(cell, seen)
        outcome = found
    except AssertionError as failed:
        failure = f"{failed}{f'; {trouble}' if trouble else ''}"
        if seen.plan:
            failure += f"\n  cuts: {brief(seen.plan.done)}\n  asked: {brief(seen.plan.requests)}"
        failure += f"\n  saw: {brief(seen.lines[-6:])}\n  log: {gateway.log_tail()}"
    except Exception as error:  # a fault of the harness fails its cell, not the others
        failure = f"{type(error).__name__}: {error}; {trouble}"
    return Result(cell, scenario, outcome, failure, seen.lines)


def check_executions(cell, scenario, outcome):
    """The call ran as often as it may, where the server shows that."""
    if scenario.call(cell) is None:
        return
    ran = cell.server.executions(cell.tag)
    if ran is not None:
        wanted = outcome.executions
        expect(ran == wanted, f"{outcome.name}, but the call ran {ran} times, not {wanted}")


def check_era(cell, seen):
    """The client spoke the revision that the table says."""
    if seen.plan and not cell.is_direct:
        first = seen.plan.requests[0]["revision"] or ""
        is_modern = first >= FIRST_MODERN
        expect(is_modern != cell.is_guarded, f"the call was one of revision {first!r}")


def drive(command, steps, seconds):
    """Runs a client through the steps: (what it saw, what went wrong or None)."""
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    trouble = None
    try:
        output, errors = process.communicate(json.dumps(steps), timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        output, errors = process.communicate()
        trouble = f"the client did not finish in {seconds:.0f} s"
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    if trouble is None and (process.returncode != 0 or not lines or lines[-1]["saw"] != "end"):
        # The error's own line, the last one, comes first: what prints this may cut its end.
        tail = " / ".join(reversed(errors.strip().splitlines()[-4:]))
        trouble = f"the client ended early with status {process.returncode}: {tail}"
    return lines, trouble
