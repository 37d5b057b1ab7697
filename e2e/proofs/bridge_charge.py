"""Calls of `charge` by a stock host, through the bridge, a path with faults, and `rejoin serve`."""

import json
import random
import tempfile
from collections import Counter
from pathlib import Path as File

import bridge_host
import bridge_path
import rejoin
from bridge_outcome import Outcome

# Half of the calls are this one.
SAME = {"amount": 7, "events": 20, "interval_ms": 3}
OTHERS_FROM, EVENTS_MAX, INTERVAL_MS_MAX = 1_000, 60, 5
# What one call may take: a bridge waits 30 or 45 s before it takes a silent connection for dead,
# and calls wait for older ones.
CALL_SECONDS = 400
# Of so many calls one meets a fault, at the very least.
CALLS_PER_CUT_MAX = 10
COLUMNS = ("calls", "executions", "results", "progress events")


def calls(count, seed):
    """The arguments of each call: half of them the same, the others like no other."""
    chance = random.Random(seed)
    planned = [SAME] * (count // 2)
    planned += [{"amount": OTHERS_FROM + number, "events": chance.randint(0, EVENTS_MAX),
                 "interval_ms": chance.randint(0, INTERVAL_MS_MAX)}
                for number in range(count - len(planned))]
    chance.shuffle(planned)
    return planned


def executions(count_file):
    """How often each amount was charged."""
    counts, text = Counter(), count_file.read_text() if count_file.exists() else ""
    for line in text.splitlines():
        arguments = json.JSONDecoder().raw_decode(line.partition(" ")[2])[0]
        counts[arguments["amount"]] += 1
    return counts


def judge_progress(arguments, seen):
    """What is wrong with the progress of a call that was answered, or None."""
    whole = list(range(1, arguments["events"] + 1))
    # Of a record too: what came before it is kept.
    if seen["progress"] != whole:
        record = ", before a record" if seen["recorded"] else ""
        return f"progress {seen['progress']}, not {whole}{record}"
    return f"{seen['late']} of its progress came after the result" if seen["late"] else None


def judge(outcome, planned, all_seen, ran):
    """Notes what is wrong; each call must end with its result, after one execution."""
    for arguments, seen in zip(planned, all_seen):
        name, result = f"call {seen['call']} of {arguments}", seen.get("result")
        if not result or result["amount"] != arguments["amount"]:
            outcome.faults.append(f"{name}: no result: {seen.get('error', seen)}")
            continue
        if fault := judge_progress(arguments, seen):
            outcome.faults.append(f"{name}: {fault}")
        outcome.figures["results"] += 1
        outcome.figures["progress events"] += len(seen["progress"])
    numbers = sorted(seen["result"]["execution"] for seen in all_seen if seen.get("result"))
    if numbers != list(range(1, len(planned) + 1)):
        outcome.faults.append(f"the results are not those of executions 1 to {len(planned)}")
    if ran != Counter(arguments["amount"] for arguments in planned):
        outcome.faults.append(f"executions by amount that differ: {differing(planned, ran)}")


def differing(planned, ran):
    """The amounts that were not charged as often as they were asked for."""
    asked = Counter(arguments["amount"] for arguments in planned)
    return {amount: (ran[amount], asked[amount]) for amount in asked | ran
            if ran[amount] != asked[amount]}


def run(count, at_once, host, seed, holes, seconds):
    """Runs the calls; an Outcome."""
    outcome = Outcome(f"`{host}`, {at_once} at a time", COLUMNS)
    planned = calls(count, seed)
    with tempfile.TemporaryDirectory() as folder, \
            rejoin.Gateway("--limit", "retry_ms=20") as gateway, \
            bridge_path.Path(lambda: gateway.port, seed, holes) as path:
        server = bridge_host.command(bridge_host.BRIDGE, path.port)
        asked = [("charge", arguments) for arguments in planned]
        all_seen, outcome.log = bridge_host.run(
            host, server, asked, at_once, seconds, CALL_SECONDS, File(folder))
        ran = executions(gateway.count_file)
    outcome.figures.update({"calls": count, "executions": sum(ran.values())})
    judge(outcome, planned, all_seen, ran)
    outcome.met = path.struck
    if sum(path.struck.values()) < count // CALLS_PER_CUT_MAX:
        outcome.faults.append("too few connections broke")
    return outcome
