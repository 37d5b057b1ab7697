#!/usr/bin/env python3
"""Stock MCP clients against stock MCP servers with Rejoin in front. See README.md."""

import argparse
import collections
import queue
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import peers
from compatibility import (
    batches, clients, document, eras, expected, outcomes, restarts, scenarios, servers,
)
from compatibility.batches import drive  # noqa: F401: ./healthy drives its clients with it
from compatibility.gateways import Front, Gateway  # noqa: F401: ./healthy has its own Front
from compatibility.scenario import Cell
from compatibility.seen import brief

TOTAL_SECONDS = 1500
# Most of a scenario is waiting.
WORKERS = 24
# What bare servers pass too, and what one of them does that keeps its events.
DIRECT = ("list", "call", "progress", "server request", "cancel", "error result")
DIRECT_CUT = ("everything-http", "cut + resume")


class Site:
    """A server that clients are sent to: started for the first of them, ended after the last."""

    def __init__(self, name, start):
        self._folder = tempfile.TemporaryDirectory(prefix="rejoin-e2e-")
        self._start = start
        self._lock = threading.Lock()
        self._gateway = None
        self._error = None
        self.server = servers.ALL[name](Path(self._folder.name))
        self.batches_left = 0

    def gateway(self):
        """The server, started if it was not. Raises what its start raised."""
        with self._lock:
            if self._gateway is None and self._error is None:
                try:
                    self._gateway = self._start(self.server)
                except (RuntimeError, OSError, peers.PeersMissing) as error:
                    self._error = error
            if self._error is not None:
                raise self._error
            return self._gateway

    def leave(self):
        """One batch less. After the last: a list with the complaint of the end, or None."""
        with self._lock:
            self.batches_left -= 1
            if self.batches_left > 0:
                return None
        complaint = self._gateway.stop() if self._gateway else None
        self._folder.cleanup()
        return [complaint]


class Run:
    """All cells, several batches at a time."""

    def __init__(self, options):
        self.options = options
        self.results = []
        self.faults = []
        self.passed = 0
        self._lock = threading.Lock()
        self._jobs = queue.SimpleQueue()
        self._began = time.monotonic()

    def all(self):
        """Runs every wanted cell; the number of failures."""
        options = self.options
        for name in options.server or servers.ALL:
            site = Site(name, lambda server: Gateway(server, options.direct))
            jobs = [list(self._cells(site.server, client))
                    for client in options.client or clients.ALL]
            # Those that wait longest begin first.
            jobs.sort(key=lambda job: bool(job) and job[0][0].client.resumes)
            jobs = [(batches.run, job) for job in jobs if job]
            if site.server.is_dual_era and self.options.is_whole:
                tag = len(clients.ALL) * len(scenarios.ALL)
                jobs.append((eras.run_all, eras.batch(site.server, tag)))
            site.batches_left = len(jobs)
            for run, job in jobs:
                self._jobs.put((site, run, job))
        self._add_restarts()
        threads = [threading.Thread(target=self._work) for _ in range(WORKERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return self._report()

    def _add_restarts(self):
        """A site for each: no client is to meet the restart of another."""
        options = self.options
        wanted = restarts.ALL if options.is_whole else options.scenario or ()
        for scenario in (restarts.ALL[name] for name in wanted if name in restarts.ALL):
            for name in scenario.servers:
                for client in options.client or restarts.CLIENTS:
                    site = Site(name, lambda server, scenario=scenario: restarts.Gateway(
                        server, scenario.options))
                    site.batches_left = 1
                    cell = restarts.cell(client, site.server, scenario.name)
                    self._jobs.put((site, restarts.run, [(cell, scenario)]))

    def _cells(self, server, client):
        wanted = self.options.scenario or scenarios.ALL
        first = list(clients.ALL).index(client) * len(scenarios.ALL)
        for position, (name, scenario) in enumerate(scenarios.ALL.items()):
            has_part = name not in server.lacks
            if self.options.direct:
                has_part = name in DIRECT or (server.name, name) == DIRECT_CUT
            if name in wanted and has_part:
                cell = Cell(clients.ALL[client], server, first + position, self.options.direct)
                yield cell, scenario

    def _work(self):
        while True:
            try:
                site, run, job = self._jobs.get_nowait()
            except queue.Empty:
                return
            began = time.monotonic()
            try:
                if began - self._began > TOTAL_SECONDS:
                    raise RuntimeError(f"{TOTAL_SECONDS} s are over")
                results = run(site.gateway(), job)
            except Exception as error:  # a fault of the harness fails its cells, not the others
                cells = job[0] if run is eras.run_all else job
                results = [batches.failed(cell, scenario, error) for cell, scenario in cells]
            self._note(results, time.monotonic() - began)
            if ended := site.leave():
                self._note_end(site.server.name, *ended)

    def _note(self, results, seconds):
        for result in results:
            wanted = None if self.options.direct else expected.outcome(result.cell, result.scenario)
            fault = result.failure
            if fault is None and wanted not in (None, result.outcome):
                fault = f"{result.outcome.name!r}, but expected is {wanted.name!r}"
            names = (result.scenario.name, result.cell.client.name, result.cell.server.name)
            said = "" if result.outcome in (None, outcomes.OK) else result.outcome.name
            with self._lock:
                self.results.append(result)
                self._count(names, fault, seconds, said)
                if self.options.verbose:
                    for line in result.lines:
                        print(f"    {' '.join(names)}: {brief(line)}", flush=True)

    def _note_end(self, server, complaint):
        with self._lock:
            self._count(("shutdown", "", server), complaint, 0, "")

    def _count(self, names, fault, seconds, said):
        self.passed += fault is None
        if fault is not None:
            self.faults.append((names, fault))
        verdict = "ok" if fault is None else "FAIL"
        scenario, client, server = names
        print(f"{verdict:4}  {scenario:26}  {client:12}  {server:15}  {seconds:5.1f} s  "
              + (said if fault is None else fault), flush=True)

    def _report(self):
        for names, fault in self.faults:
            print(f"\nFAIL  {' '.join(names)}\n  {fault}")
        if self.options.is_whole and not self.faults:
            self._check_document()
        verdicts = collections.Counter(
            result.outcome.verdict for result in self.results if result.outcome
        )
        said = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
        print(f"\n{said}; {time.monotonic() - self._began:.0f} s")
        for names, fault in self.faults:
            print(f"FAIL  {' '.join(names)}: {fault.splitlines()[0]}")
        print(f"{self.passed} passed, {len(self.faults)} failed")
        return len(self.faults)

    def _check_document(self):
        table = document.table(self.results)
        guarded = [result for result in self.results if result.cell.is_guarded]
        print(f"\n{document.by_client(guarded)}")
        if self.options.write:
            document.write(table)
        elif differs := document.difference(table):
            self.faults.append((("table", "", ""), differs))
            print(f"\nFAIL  {differs}")


def parse():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="every cell (also the default)")
    parser.add_argument("--install", action="store_true", help="install the peers, run nothing")
    parser.add_argument("--direct", action="store_true", help="without Rejoin: prove the harness")
    parser.add_argument("--client", action="append", choices=clients.ALL, help="only this client")
    parser.add_argument("--server", action="append", choices=servers.ALL, help="only this server")
    parser.add_argument("--scenario", action="append", choices=[*scenarios.ALL, *restarts.ALL],
                        help="only the scenario of this name")
    parser.add_argument("--write", action="store_true",
                        help="write the table into docs/compatibility.md, if all is as expected")
    parser.add_argument("--verbose", action="store_true", help="print what each client saw")
    options = parser.parse_args()
    options.is_whole = not (
        options.direct or options.client or options.server or options.scenario
    )
    if options.direct:
        options.server = [
            name for name in options.server or servers.ALL if servers.ALL[name].is_http
        ]
    if options.write and not options.is_whole:
        parser.error("--write needs a whole run")
    return options


def main():
    """Installs the peers, runs the cells."""
    options = parse()
    try:
        peers.install()
        for server in servers.ALL.values():
            server.prepare()
        if not options.install and not options.direct:
            peers.rejoin_binary()
    except (peers.PeersMissing, subprocess.SubprocessError, OSError) as missing:
        print(f"The stock peers are not ready: {missing}", file=sys.stderr)
        return 2
    if options.install:
        return 0
    run = Run(options)
    failed = run.all()
    return 1 if failed or not run.results else 0


if __name__ == "__main__":
    sys.exit(main())
