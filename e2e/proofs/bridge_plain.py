"""`rejoin bridge` and npm `mcp-remote`, side by side, in front of servers without a Rejoin.

The same host makes the same calls of a tool with effects, over paths of the same seed whose faults
begin with the first call. Each execution is counted.
"""

import json
import re
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path as File

import bridge_charge
import bridge_host
import bridge_path
import rejoin  # noqa: F401: it makes the folder above importable
from bridge_outcome import Outcome

from compatibility import servers
from compatibility.gateways import Program

AT_ONCE, EVENTS, INTERVAL_SECONDS = 4, 20, 0.02
AMOUNTS_FROM = 1_000
KEEPS, NO_IDS = "keeps events", "no event ids"
COMPLETED, TWICE, HUNG = "completed", "ran twice", "never ended"
NOT_RUN, UNKNOWN = "told: did not run", "told: may have run"
OTHER = "error that tells neither"
COLUMNS = ("calls", COMPLETED, NOT_RUN, UNKNOWN, OTHER, HUNG, TWICE)


@dataclass(frozen=True)
class Kind:
    """A server, and what it keeps."""

    server: type
    keeps: str
    # Its tool has annotations that allow to run it twice: here they are not to count.
    options: tuple = ()


KINDS = (
    Kind(servers.EverythingHttp, KEEPS, ("--distrust-annotations",)),
    Kind(servers.Fastmcp, KEEPS),
    Kind(servers.PythonSdk, NO_IDS),
)


class Counted:
    """How often each call ran."""

    def __init__(self, server, path):
        self._file, self._path = server.count_file, path

    def of(self, call):
        """What the server counted; or, where it does not count, how often it was sent the call."""
        if call.tool == "charge":
            return bridge_charge.executions(self._file)[call.arguments["amount"]]
        duration = json.dumps({"duration": call.arguments["duration"]})[1:-1].replace(" ", "")
        sent = b"".join(self._path.sent).replace(b" ", b"")
        return len(re.findall(duration.encode() + rb"\b", sent))


def verdict(call, seen):
    """The column of a call."""
    if seen.get("hung"):
        return HUNG
    if error := seen.get("error"):
        may_have_run = (error.get("data") or {}).get("mayHaveRun")
        return {True: UNKNOWN, False: NOT_RUN}.get(may_have_run, OTHER)
    texts = [block.get("text", "") for block in seen["content"]]
    return COMPLETED if any(call.text in text for text in texts) else OTHER


def judge(outcome, kind, calls, all_seen, counted):
    """Fills the columns, and notes what the bridge may never do."""
    outcome.figures["calls"] = len(calls)
    for call, seen in zip(calls, all_seen):
        column, ran = verdict(call, seen), counted.of(call)
        outcome.figures[column] += 1
        outcome.figures[TWICE] += ran > 1
        name = f"call {seen['call']}"
        if column in (OTHER, HUNG):
            outcome.faults.append(f"{name}: {column}: {seen}")
        if ran > 1 or ran != 1 and column == COMPLETED or ran and column == NOT_RUN:
            outcome.faults.append(f"{name}: {column}, {ran} executions")
        progress = seen["progress"]
        # It had an event to resume from.
        if column == UNKNOWN and progress and kind.keeps == KEEPS:
            outcome.faults.append(f"{name}: {column}, after progress {progress}")
        if progress != sorted(set(progress)):
            outcome.faults.append(f"{name}: progress {progress}")


def run(kind, name, count, seed, call_seconds):
    """One program in front of one server; an Outcome."""
    outcome = Outcome(f"`{name}` before `{kind.server.name}` ({kind.keeps})", COLUMNS)
    with tempfile.TemporaryDirectory() as folder:
        server = kind.server(File(folder))
        calls = [server.long(AMOUNTS_FROM + number, EVENTS, INTERVAL_SECONDS)
                 for number in range(count)]
        program = Program(server.name, server.command(), File(folder) / "log", None)
        try:
            port = program.wait_for_port()
            with bridge_path.Path(lambda: port, seed, strikes_at_once=False) as path:
                options = kind.options if name == bridge_host.BRIDGE else ()
                asked = [(call.tool, call.arguments) for call in calls]
                seconds = call_seconds * (count // AT_ONCE + 2)
                all_seen, outcome.log = bridge_host.run(
                    "py2", bridge_host.command(name, path.port, options), asked, AT_ONCE, seconds,
                    call_seconds, File(folder))
            judge(outcome, kind, calls, all_seen, Counted(server, path))
        finally:
            program.stop()
    outcome.met = path.struck
    if name != bridge_host.BRIDGE:
        outcome.faults.clear()
    return outcome
