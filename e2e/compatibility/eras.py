"""Clients of both eras at one endpoint at the same time."""

import threading
import time
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor

from compatibility import batches, clients, outcomes, scenarios
from compatibility.scenario import Cell, Scenario, join, run as step
from compatibility.seen import expect
from cutter import Cutter

GUARDED = "ts"
MODERN = tuple(name for name, client in clients.ALL.items() if client.is_modern)
PASSED = ("list", "call", "progress")
CUT_SECONDS = 30
POLL_SECONDS = 0.02
# A driver waits for the next cut 20 s.
BEAT_SECONDS = 8
BEATS = 16


class BothEras(Scenario):
    """The guarded client's part: its call runs, cut and resumed, while the others have theirs."""

    name = "both eras"
    count = 1800

    def call(self, cell):
        return cell.server.long(cell.tag, self.count, 0.1)

    def cuts(self, cell):
        return (("clean", 4),)

    def steps(self, cell):
        return [
            step("A", self.call(cell), "start"),
            # One wait of a driver is too short for what the others do. See `run_others`.
            *({"do": "await_cuts", "count": count} for count in range(1, BEATS + 1)),
            # Its resume comes 2 s after the cut, and brings what it missed.
            {"do": "await_progress", "call": "A", "count": 20},
            {"do": "cancel", "call": "A"},
            join("A"),
            step("B", cell.server.short()),
        ]

    def outcome(self, cell, seen):
        came = seen.progress("A")
        expect(came == list(range(1, len(came) + 1)), f"progress is not 1, 2, ...: {came}")
        expect(any(one["cursor"] for one in seen.asked(method="GET")), "it was not resumed")
        expect(not seen.all("result", "A"), "the call ended before it was cancelled")
        seen.result("B", cell.server.short().text)
        return outcomes.OK


SCENARIO = BothEras()


def batch(server, first_tag):
    """The cells of one server: the guarded client's, then those of the modern ones."""
    cells = [[(Cell(clients.ALL[GUARDED], server, first_tag), SCENARIO)]]
    for name in MODERN:
        first_tag += 1
        cell = Cell(clients.ALL[name], server, first_tag)
        cells.append([(cell, scenarios.ALL[scenario]) for scenario in PASSED])
    return cells


def run_others(gateway, parts, cutter):
    """Runs the modern ones, and tells the guarded one now and then that they have not ended."""
    results = []
    with ThreadPoolExecutor() as pool:
        running = [pool.submit(batches.run, gateway, part) for part in parts]
        for _ in range(BEATS - 2):
            done, _ = futures.wait(running, BEAT_SECONDS)
            if len(done) == len(running):
                break
            cutter.tell()
        for one in running:
            results += one.result()
    return results


def run_all(gateway, parts):
    """Runs them at the same time: one result, that of the guarded client or the first failure."""
    (cell, scenario), = parts[0]
    plan = scenario.plan(cell)
    cutter = Cutter("127.0.0.1", gateway.port, [plan]).start()
    results = []
    guarded = threading.Thread(target=lambda: results.extend(
        batches.drive_through(gateway, cutter, parts[0], [plan])
    ))
    try:
        guarded.start()
        deadline = time.monotonic() + CUT_SECONDS
        while not plan.done and time.monotonic() < deadline and guarded.is_alive():
            time.sleep(POLL_SECONDS)
        others = run_others(gateway, parts[1:], cutter)
        is_running = guarded.is_alive()
        for _ in range(BEATS):
            cutter.tell()
    finally:
        guarded.join()
        cutter.stop()
    failures = [
        f"{other.cell.client.name}, {other.scenario.name}: {other.failure}"
        for other in others if other.failure
    ]
    failures += [result.failure for result in results if result.failure]
    if not is_running:
        failures.append("the guarded call had ended before the others")
    lines = [line for result in results for line in result.lines]
    failure = "\n".join(failures) or None
    return [batches.Result(cell, scenario, None if failure else outcomes.OK, failure, lines)]
