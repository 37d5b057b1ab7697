#!/usr/bin/env python3
"""The official conformance suites: directly, through `rejoin serve`, and with RejoinLayer.

See README.md. The exit status is 0 if no check is worse with Rejoin than without.
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import peers  # noqa: E402
from differences import CLIENT_DIFFERENCES, SERVER_DIFFERENCES  # noqa: E402
from processes import Server  # noqa: E402

SUITE_SECONDS = 120
TARGET = HERE.parent.parent / "target"
SERVER = TARGET / "e2e-conformance/debug/conformance-server"
DIRECT, GATEWAY, LAYER = "direct", "gateway", "layer"
WAYS = (DIRECT, GATEWAY, LAYER)
# What is told beside what is checked.
REPORTED = "INFO"
PASSED_THROUGH = "2026-07-28"
PASSED = "SUCCESS"
STAMP = re.compile(r"-\d{4}-\d\d-\d\dT[\d-]+Z$")


class Suite:
    """A published suite, or what it has for one revision."""

    def __init__(self, package, version, revision, server_passed, client_passed):
        self.package = package
        self.revision = revision
        self.name = " ".join(filter(None, (version, revision)))
        # How many checks pass without Rejoin: fewer, and the run would prove less than it says.
        self.server_passed = server_passed
        self.client_passed = client_passed
        # Requests without sessions pass Rejoin as they are: there is nothing to differ in.
        self.is_guarded = revision != PASSED_THROUGH

    def command(self, side, *more):
        """The command that runs it."""
        revision = ["--spec-version", self.revision] if self.revision else []
        suite = HERE / "node_modules" / self.package / "dist/index.js"
        return [node(), str(suite), side, *more, *revision]


SUITES = (
    Suite("conformance-0.1", "0.1.16", None, 47, 5),
    Suite("conformance-0.2", "0.2.0-alpha.12", "2025-11-25", 84, 6),
    Suite("conformance-0.2", "0.2.0-alpha.12", "2026-07-28", 153, 0),
)
CLIENT_SCENARIOS = ("initialize", "tools_call", "sse-retry")


def node():
    """Node 22, which the suites need; the packages bring it."""
    for found in (HERE / "node_modules").glob("node-linux-*/bin/node"):
        return str(found)
    raise peers.PeersMissing("no node-linux package for this processor was installed")


class Outcome:
    """What came of a suite in one way: how often each check ended in which status."""

    def __init__(self, folder, status):
        self.status = status
        self.checks = {}
        self.messages = {}
        for file in sorted(folder.glob("*/checks.json")):
            scenario = STAMP.sub("", file.parent.name).removeprefix("server-")
            for check in json.loads(file.read_text()):
                key = (scenario, check["id"])
                self.checks.setdefault(key, Counter())[check["status"]] += 1
                if check.get("errorMessage"):
                    self.messages[key] = check["errorMessage"]

    def count(self, status):
        """How many checks ended in a status."""
        return sum(checks[status] for checks in self.checks.values())

    def complaints(self, differences):
        """What is wrong with it, were there nothing to compare it with."""
        said = [f"the suite ended with status {self.status}"] if self.status else []
        for key, statuses in sorted(self.checks.items()):
            for status in statuses:
                wanted = differences.get(key, (PASSED, ""))[0]
                if status not in (PASSED, REPORTED, wanted):
                    said.append(f"{' / '.join(key)}: {status}: {self.messages.get(key, '')}")
        return said

    def compared(self, direct, differences):
        """What passes directly and not here, beside the known differences."""
        said = []
        for key, statuses in sorted(direct.checks.items()):
            wanted = statuses[PASSED]
            status = differences.get(key, (PASSED, ""))[0]
            found = self.checks.get(key, Counter())
            is_told = any(name not in (PASSED, REPORTED) for name in found)
            if wanted and found[status] != wanted and not is_told:
                shown = ", ".join(f"{count} {name}" for name, count in found.items()) or "nothing"
                said.append(f"{' / '.join(key)}: {wanted} passed directly; here {shown}, "
                            f"not {wanted} {status}")
        return said


def run(command, folder):
    """Runs one command of a suite, which leaves its checks in the folder."""
    log = folder / "log"
    with open(log, "ab") as output:
        try:
            return subprocess.run(
                [*command, "-o", str(folder)], stdin=subprocess.DEVNULL, stdout=output,
                stderr=output, timeout=SUITE_SECONDS, cwd=HERE,
            ).returncode
        except subprocess.TimeoutExpired:
            return f"none: it was stopped after {SUITE_SECONDS} s"


def rejoin():
    """Rejoin's command, up to what it is in front of."""
    return [peers.rejoin_binary(), "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]


def serve(way, started):
    """Starts the server in one way; its URL."""
    layer = ["--layer"] if way == LAYER else []
    server = started.enter_context(Server([str(SERVER), *layer, "127.0.0.1:0"]))
    if way == GATEWAY:
        return started.enter_context(Server([*rejoin(), "--upstream", server.url])).url
    return server.url


def run_server_suite(suite, way, folder):
    """The suite's scenarios for servers."""
    with ExitStack() as started:
        url = serve(way, started)
        return Outcome(folder, run(suite.command("server", "--url", url, "--suite", "all"), folder))


def run_client_suite(suite, way, folder):
    """The suite's scenarios for clients that a gateway can carry."""
    command = [node(), str(HERE / "client.mjs")]
    if way == GATEWAY:
        command = [sys.executable, str(HERE / "behind.py"), peers.rejoin_binary(), *command]
    statuses = [
        run(suite.command("client", "--command", shlex.join(command), "--scenario", scenario),
            folder)
        for scenario in CLIENT_SCENARIOS
    ]
    return Outcome(folder, next(filter(None, statuses), 0))


class Report:
    """The table, and what is wrong."""

    def __init__(self):
        self.complaints = []
        self.passed = 0
        print(f"{'side':6}  {'suite':26}  {'way':7}  {'passed':>6}  {'failed':>6}  "
              f"{'warned':>6}  {'skipped':>7}  differs", flush=True)

    def note(self, side, suite, way, outcome, complaints, differing):
        """One line of the table."""
        self.passed += outcome.count(PASSED)
        self.complaints += [f"{side} {suite.name} {way}: {said}" for said in complaints]
        counts = [outcome.count(status) for status in ("FAILURE", "WARNING", "SKIPPED")]
        print(f"{side:6}  {suite.name:26}  {way:7}  {outcome.count(PASSED):6}  {counts[0]:6}  "
              f"{counts[1]:6}  {counts[2]:7}  {differing:7}", flush=True)

    def end(self):
        """The number of complaints."""
        for key, (status, why) in sorted({**SERVER_DIFFERENCES, **CLIENT_DIFFERENCES}.items()):
            print(f"known difference: {' / '.join(key)}: {status}: {why}")
        for said in self.complaints:
            print(f"FAIL {said}")
        print(f"\n{self.passed} passed, {len(self.complaints)} failed")
        return len(self.complaints)


def run_side(side, ways, runner, differences, report):
    """All suites for servers, or all for clients."""
    for suite in SUITES:
        wanted = getattr(suite, f"{side}_passed")
        if not wanted:
            continue
        direct = None
        for way in ways:
            with tempfile.TemporaryDirectory(prefix="rejoin-conformance-") as folder:
                outcome = runner(suite, way, Path(folder))
            if way == DIRECT:
                direct = outcome
                complaints = outcome.complaints({})
                if outcome.count(PASSED) != wanted:
                    complaints.append(f"{outcome.count(PASSED)} checks passed, not {wanted}")
                report.note(side, suite, way, outcome, complaints, 0)
                continue
            known = differences if suite.is_guarded else {}
            complaints = outcome.complaints(known) + outcome.compared(direct, known)
            report.note(side, suite, way, outcome, complaints, len(known))


def main():
    """Installs the suites, runs them all."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    try:
        peers.install([peers.CONFORMANCE])
        peers.rejoin_binary()
        if not os.access(SERVER, os.X_OK):
            raise peers.PeersMissing(f"{SERVER.name} is not built: run `cargo xtask conformance`")
        report = Report()
        run_side("server", WAYS, run_server_suite, SERVER_DIFFERENCES, report)
        run_side("client", (DIRECT, GATEWAY), run_client_suite, CLIENT_DIFFERENCES, report)
    except (peers.PeersMissing, subprocess.SubprocessError, OSError, RuntimeError) as missing:
        print(f"The suites cannot be run: {missing}", file=sys.stderr)
        return 2
    return 1 if report.end() else 0


if __name__ == "__main__":
    sys.exit(main())
