"""Crash: a gateway that is killed at any point of its work loses nothing and runs nothing twice.

    python3 e2e/proofs/crash.py [--rounds N] [--seed S] [--only ROUND [--times N]] [--keep DIR]

Each round (100) makes real calls from raw clients that are cut or stall, some of them with the same
params, kills the gateway by SIGKILL at a point that is chosen at random (a time after the POST was
written, or a line of its log: claim decided, claim durable, sent, result durable, handed over),
starts it again with the same directory, and resumes every stream from the last event that was read.
In a third of the rounds each call is also repeated blindly by POST, with and without token; in a
quarter it is killed once more while they come back. Six gateways run side by side: every
durability, a stdio server and one over HTTP.

What was recorded must show: no call executed twice (the servers count in a synced file); what a
client read is what a replay from the stream's origin gives, byte for byte; every request answered
within 20 s; every call ended by a result or by an error that says its outcome is unknown. The
server over HTTP outlives the gateways and keeps its events: a call that its client had read of ends
by its result, and no state is lost. There is one line for each finding, with its round and seed:
`--only ROUND --seed S` runs that round again. The exit status is 0 if there is none.
"""

import argparse
import itertools
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import rejoin
from crash_gateway import Gateway, NotStarted
from crash_round import LANES, Round

DURABILITIES = ("calls", "events", "memory")
FASTMCP = Path(rejoin.__file__).resolve().parent.parent / "servers" / "fastmcp_tools.py"
# Sessions of earlier rounds that each gateway keeps: they must survive every later kill, too.
KEPT_MAX = 6
OUTPUT = threading.Lock()


class Lane:
    """One gateway with its directory, and the rounds that are run with it, one after the other."""

    def __init__(self, folder, durability, kind, upstream, seed, keep):
        self.name = f"{durability}/{kind}"
        folder = folder / self.name.replace("/", "-")
        folder.mkdir()
        self.gateway = Gateway(folder, durability, upstream)
        self._seed, self._keep = seed, keep
        # Its server is a process of its own, with an event store.
        self._outlived = kind == "http"
        # Every call's own, so that its executions can be counted.
        self.amounts = itertools.count(1)
        self.figures, self.points, self.findings = Counter(), Counter(), 0
        # Streams of sessions that were not deleted, and calls with the round they belong to.
        self._kept, self._calls = [], []

    def run(self, numbers):
        """Runs rounds, then looks at all executions once more."""
        try:
            for number in numbers:
                self._run(Round(self, number, self._seed))
        finally:
            self.gateway.end()
        executions = self.gateway.executions()
        for a_round, call in self._calls:
            for problem in call.problems(executions.get(call.amount, 0), self._outlived):
                self._report(a_round, f"at the end: {problem}")
        self.figures["executions"] = sum(executions.values())
        self.figures["kills"], self.figures["starts"] = self.gateway.kills, self.gateway.starts

    def count_points(self, points):
        """Notes where calls were when it was killed."""
        self.points.update(points)

    def _run(self, a_round):
        try:
            a_round.run()
            self._check(a_round)
            self._look_back(a_round)
        except NotStarted as problem:
            a_round.find(str(problem))
        a_round.findings += self.gateway.faults
        self.gateway.faults.clear()
        for finding in a_round.findings:
            self._report(a_round, finding)
        if a_round.findings:
            self._write(a_round)
        self.figures["rounds"] += 1

    def _check(self, a_round):
        """Checks the history of a round, and keeps its session or deletes it."""
        client = a_round.client
        if client is None:
            return
        for exchange in client.exchanges:
            exchange.leave()
        executions = self.gateway.executions()
        for call in client.calls:
            found = list(call.problems(executions.get(call.amount, 0), self._outlived))
            a_round.findings += [f"call {call.amount}: {problem}" for problem in found]
            if not found:
                self._calls.append((a_round, call))
            self.figures["calls"] += 1
            self.figures["calls that went on after a kill"] += call.went_on()
            self.figures["calls repeated"] += len(call.attempts) > call.twins
            self.figures["repeats that may be new calls"] += (
                len(call.attempts) > call.twins and call.may_be_new())
            self.figures.update(f"answer: {outcome}" for outcome in call.outcomes().elements())
        for stream in client.streams.values():
            a_round.findings += stream.problems()
        self.figures["streams"] += len(client.streams)
        self.figures["requests"] += len(client.exchanges)
        if a_round.chance.random() < 0.2 and len(self._kept) < KEPT_MAX and client.streams:
            self._kept.append(client)
        else:
            a_round.expect(204, client.request("DELETE").wait().status, "DELETE")

    def _look_back(self, a_round):
        """A session of an earlier round has all it had."""
        if not self._kept:
            return
        chance = random.Random(a_round.number)
        client = chance.choice(self._kept)
        stream = chance.choice(list(client.streams.values()))
        before, stream.replay = stream.replay, client.get(stream.origin()).wait()
        if stream.replay.events != before.events:
            a_round.find(f"an earlier session's stream changed: {before}, then {stream.replay}")
        self.figures["looked back"] += 1

    def _report(self, a_round, finding):
        self.findings += 1
        line = " | ".join(finding.split("\n    "))
        with OUTPUT:
            print(f"FINDING round={a_round.number} seed={self._seed} {self.name}: {line}",
                  flush=True)

    def _write(self, a_round):
        """Keeps the history of a round with findings."""
        path = self._keep / f"round-{self._seed}-{a_round.number}.txt"
        exchanges = a_round.client.exchanges if a_round.client else []
        parts = [*a_round.findings, *map(str, exchanges), *self.gateway.lines]
        path.write_text("\n".join(parts) + "\n")


def over_stdio(count_file):
    """The built-in server."""
    return ["--", rejoin.peers.rejoin_binary(), "tool-server", "--count-file", str(count_file)]


class Fastmcp:
    """FastMCP over HTTP, in a process that outlives the gateways; `with` ends it."""

    def __enter__(self):
        rejoin.peers.install(["fastmcp"])
        python = rejoin.peers.venv_bin("fastmcp", "python")
        self._process = subprocess.Popen(
            [python, str(FASTMCP), "--end-with-stdin"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        line = self._process.stdout.readline()
        self._url = line.split()[-1].removesuffix("/mcp")
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.wait(20)
        self._process.stdout.close()

    def upstream(self, count_file):
        """Its URL, with the file where it counts."""
        return ["--upstream", f"{self._url}/count{count_file}/mcp"]


def crash(args):
    """Runs the rounds; the number of findings."""
    rounds = [args.only] * args.times if args.only is not None else range(args.rounds)
    Path(args.keep).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, Fastmcp() as fastmcp:
        kinds = (("stdio", over_stdio), ("http", fastmcp.upstream))
        lanes = [Lane(Path(folder).resolve(), durability, kind, upstream, args.seed,
                      Path(args.keep))
                 for durability, (kind, upstream) in itertools.product(DURABILITIES, kinds)]
        begun = time.monotonic()
        with ThreadPoolExecutor(LANES) as pool:
            runs = [pool.submit(lane.run, [n for n in rounds if n % LANES == index])
                    for index, lane in enumerate(lanes)]
            for run in runs:
                run.result()
        took = time.monotonic() - begun
    print_figures(lanes, took)
    return sum(lane.findings for lane in lanes)


def print_figures(lanes, took):
    """What was done, and where the kills hit."""
    total, points = Counter(), Counter()
    for lane in lanes:
        total.update(lane.figures)
        points.update(lane.points)
        figures = lane.figures
        if not figures["rounds"]:
            continue
        print(f"{lane.name:14} {figures['rounds']} rounds, {figures['kills']} kills, "
              f"{figures['calls']} calls, {figures['executions']} executions, "
              f"{lane.findings} findings")
    print("killed when a call was: " + ", ".join(f"{point} {n}" for point, n in points.items()))
    print(", ".join(f"{name} {number}" for name, number in sorted(total.items())))
    print(f"{total['rounds']} rounds in {took:.0f} s, {took / max(total['rounds'], 1):.2f} s each")


def main():
    """Crashes it and prints what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--only", type=int, help="run this round alone")
    parser.add_argument("--times", type=int, default=1, help="how often, with --only")
    parser.add_argument("--keep", default=str(Path(tempfile.gettempdir()) / "rejoin-crash"),
                        help="where histories of rounds with findings are kept")
    args = parser.parse_args()
    print(f"seed {args.seed}; histories of rounds with findings go to {args.keep}", flush=True)
    findings = crash(args)
    print(f"{findings} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
