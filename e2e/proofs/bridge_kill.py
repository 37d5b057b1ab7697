"""The calls of `bridge_charge`, while the gateway is killed by SIGKILL again and again.

In front of a server on stdio, which ends with the gateway, some calls cannot be known, and their
errors must say so. One over HTTP lives on, and keeps its events; but what it has while it goes from
a replay to what comes live, the Python SDK does not send (`_replay_events`, PyPI `mcp` 2.3.0), so
that progress can have gaps there. They are counted.
"""

import random
import tempfile
import threading
from collections import Counter
from pathlib import Path as File

import bridge_charge
import bridge_host
import bridge_path
import crash
import crash_gateway
from bridge_outcome import Outcome
from crash_round import TRIGGERS

DURABILITY = "calls"
# From one start to the next kill, half of them at a line of the log; and down.
UP_SECONDS, DOWN_SECONDS = (0.3, 2.5), (0, 0.4)
# Of so many calls at least one is under way when it is killed.
CALLS_PER_KILL_MAX = 20
DROPPED = "progress events that the server dropped"
COLUMNS = ("calls", "kills", "executions", "results", "told unknown", "told not run",
           "progress events", DROPPED)


class Killer:
    """Kills a gateway and starts it again, until `with` ends."""

    def __init__(self, gateway, seed):
        self._gateway, self._random = gateway, random.Random(seed)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.error = None

    def __enter__(self):
        self._gateway.start()
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join(60)
        self._gateway.end()

    def _run(self):
        gateway, chance = self._gateway, self._random
        try:
            while not self._over.wait(chance.uniform(*UP_SECONDS)):
                if chance.random() < 0.5:
                    gateway.kill_at(chance.choice(TRIGGERS), 0.002 * chance.random())
                    # No call may be under way.
                    self._over.wait(chance.uniform(*UP_SECONDS))
                gateway.kill()
                self._over.wait(chance.uniform(*DOWN_SECONDS))
                gateway.start()
        except crash_gateway.NotStarted as error:
            self.error = error


def judge_progress(outcome, arguments, seen, drops):
    """Counts the progress of a call that was answered; what is wrong with it, or None."""
    progress = seen["progress"]
    outcome.figures["progress events"] += len(progress)
    fault = bridge_charge.judge_progress(arguments, seen)
    if not (fault and drops and progress == sorted(set(progress)) and not seen["late"]):
        return fault
    outcome.figures[DROPPED] += arguments["events"] - len(progress)
    return None


def judge(outcome, planned, all_seen, ran, drops):
    """Each call was answered rightly, or told; what was told holds. `drops`: gaps are allowed."""
    may_run, must_run = Counter(), Counter()
    for arguments, seen in zip(planned, all_seen):
        name, amount = f"call {seen['call']} of {arguments}", arguments["amount"]
        data = (seen.get("error") or {}).get("data") or {}
        if result := seen.get("result"):
            outcome.figures["results"] += 1
            may_run[amount] += 1
            must_run[amount] += 1
            if result["amount"] != amount:
                outcome.faults.append(f"{name}: the result is {result}")
            elif fault := judge_progress(outcome, arguments, seen, drops):
                outcome.faults.append(f"{name}: {fault}")
        elif data.get("mayHaveRun") is True:
            outcome.figures["told unknown"] += 1
            may_run[amount] += 1
        elif data.get("mayHaveRun") is False:
            outcome.figures["told not run"] += 1
        else:
            outcome.faults.append(f"{name}: {seen}")
    for amount in may_run | must_run | ran:
        if not must_run[amount] <= ran[amount] <= may_run[amount]:
            outcome.faults.append(
                f"amount {amount}: {ran[amount]} executions, {must_run[amount]} results, "
                f"{may_run[amount] - must_run[amount]} told unknown")


def run(count, at_once, host, seed, holes, seconds, kind):
    """Runs the calls in front of a server of this kind; an Outcome."""
    outcome = Outcome(f"`{host}`, {at_once} at a time, server over {kind}", COLUMNS)
    planned = bridge_charge.calls(count, seed)
    asked = [("charge", arguments) for arguments in planned]
    with tempfile.TemporaryDirectory() as name, crash.Fastmcp() as fastmcp:
        folder = File(name).resolve()
        upstream = {"stdio": crash.over_stdio, "HTTP": fastmcp.upstream}[kind]
        gateway = crash_gateway.Gateway(folder, DURABILITY, upstream)
        with Killer(gateway, seed) as killer, \
                bridge_path.Path(lambda: gateway.port, seed, holes) as path:
            server = bridge_host.command(bridge_host.BRIDGE, path.port)
            all_seen, outcome.log = bridge_host.run(
                host, server, asked, at_once, seconds, bridge_charge.CALL_SECONDS, folder)
        ran = Counter(gateway.executions())
    outcome.figures.update({
        "calls": count, "kills": gateway.kills, "executions": sum(ran.values())})
    judge(outcome, planned, all_seen, ran, drops=kind == "HTTP")
    outcome.met = path.struck
    outcome.faults += [str(fault) for fault in gateway.faults]
    outcome.faults += [str(killer.error)] if killer.error else []
    if gateway.kills < count // CALLS_PER_KILL_MAX:
        outcome.faults.append(f"it was killed only {gateway.kills} times")
    return outcome
