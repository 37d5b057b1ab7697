#!/usr/bin/env python3
"""Proof that healthy traffic is left alone: stock clients, 10,000 calls each. See README.md."""

import argparse
import concurrent.futures
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import gateway
import judge
import scripts
from gateway import HERE, peers, run
from path import Path as Way

CLIENTS = ("ts", "py2", "py1", "rmcp", "raw")
TOTAL_SECONDS, TOTAL_QUICK_SECONDS = 850, 50
SCRIPT_SECONDS, SCRIPT_QUICK_SECONDS = 200, 20
DRAIN_SECONDS = 5
STALL_SLEEP_SECONDS, STALL_SECONDS = 0.01, 0.05


def client_command(client):
    """The command that drives a client."""
    if client == "ts":
        return ["node", str(HERE / "client_ts.mjs")]
    if client == "rmcp":
        return [str(HERE.parents[1] / "target/e2e-rmcp/release/healthy-rmcp-client")]
    python = sys.executable if client == "raw" else peers.venv_bin(client, "python")
    return [python, str(HERE / f"client_{client}.py")]


def install(options):
    """What the wanted clients and servers need, at its pinned version."""
    peers.install()
    if "rmcp" in (options.client or CLIENTS):
        done = subprocess.run(["cargo", "build", "--release", "--locked", "--quiet"],
                              cwd=HERE.parent / "rmcp-client", timeout=600, check=False)
        if done.returncode != 0:
            raise peers.PeersMissing("the Rust SDK's client could not be built")


class Stalls(threading.Thread):
    """Notes how late a short sleep ends: a busy machine makes calls slow that nothing held."""

    def __init__(self):
        super().__init__(daemon=True)
        self._late = []

    def run(self):
        while True:
            began = time.monotonic()
            time.sleep(STALL_SLEEP_SECONDS)
            late = time.monotonic() - began - STALL_SLEEP_SECONDS
            if late > STALL_SECONDS:
                self._late.append(late)

    def __str__(self):
        return (f"the machine stalled {len(self._late)} times over {STALL_SECONDS * 1000:.0f} ms, "
                f"at most {max(self._late, default=0) * 1000:.0f} ms")


class Healthy:
    """All scripts of all clients, a few at a time."""

    def __init__(self, options):
        self._options = options
        self._lock = threading.Lock()
        self._total = TOTAL_QUICK_SECONDS if options.quick else TOTAL_SECONDS
        self._most = SCRIPT_QUICK_SECONDS if options.quick else SCRIPT_SECONDS
        self._deadline = time.monotonic() + self._total
        self._everything = options.server.startswith("everything")

    def all(self):
        """Runs every wanted script; the verdicts in the order of the table."""
        tools = scripts.Everything if self._everything else scripts.Tools
        wanted = [
            (client, script) for client in self._options.client or CLIENTS
            for script in scripts.scripts(client, tools, self._options.quick)
            if not self._options.script or script.name in self._options.script
        ]
        # The longest first, so that the last ones do not run alone.
        ordered = sorted(wanted, key=lambda pair: -pair[1].calls)
        with concurrent.futures.ThreadPoolExecutor(self._options.jobs) as pool:
            waiting = {pair[0] + pair[1].name: pool.submit(self._one, *pair) for pair in ordered}
        return [waiting[client + script.name].result() for client, script in wanted]

    def _one(self, client, script):
        began = time.monotonic()
        try:
            verdict = self._script(client, script)
        except Exception as error:  # a fault of the harness fails its row, not the others
            verdict = judge.Verdict(client, script)
            verdict.faults.append(f"{type(error).__name__}: {error}")
        with self._lock:
            word = "FAIL" if verdict.faults else "ok"
            print(f"{word:4}  {client:4}  {script.name:20}  {time.monotonic() - began:6.1f} s",
                  flush=True)
            for fault in verdict.faults:
                print(f"      {fault}", flush=True)
        return verdict

    def _script(self, client, script):
        left = min(self._most, self._deadline - time.monotonic())
        if left <= 0:
            raise RuntimeError(f"not started: {self._total} s are over")
        with tempfile.TemporaryDirectory(prefix="rejoin-healthy-") as folder:
            front = gateway.Gateway(self._options.server, Path(folder), script.limits)
            way = None
            try:
                way = Way("127.0.0.1", front.port, script.refuse_get,
                          script.get_cut_seconds).start()
                verdict = self._drive(client, script, front, way, left)
            finally:
                if way is not None:
                    way.stop()
                complaint = front.stop()
                self._keep_log(client, script, front)
            if complaint:
                verdict.faults.append(complaint)
            return verdict

    def _keep_log(self, client, script, front):
        if self._options.keep_log:
            self._options.keep_log.mkdir(parents=True, exist_ok=True)
            name = f"{client}-{script.name.replace(' ', '-')}.log"
            (self._options.keep_log / name).write_text("\n".join(front.log_lines()))

    def _drive(self, client, script, front, way, seconds):
        needs_way = script.refuse_get or script.get_cut_seconds or script.resets
        port = way.port if needs_way else front.port
        url, control = f"http://127.0.0.1:{port}/mcp", f"http://127.0.0.1:{way.control_port}"
        command = [*client_command(client), url, control]
        lines, trouble = run.drive(command, script.steps, seconds)
        verdict = judge.Verdict(client, script)
        if trouble:
            verdict.faults.append(trouble)
        verdict.take_client(lines)
        verdict.take_way(way)
        # Calls that were given up may still run; their end is part of what is judged.
        deadline = time.monotonic() + DRAIN_SECONDS
        while not verdict.has_ran(front.ran()) and time.monotonic() < deadline:
            time.sleep(0.05)
        verdict.take_gateway(front.metrics(), front.log_lines())
        verdict.take_executions(front.ran())
        return verdict


def main():
    """Parses the command line, installs the clients, runs the scripts, prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="200 calls a client, not 10,000")
    parser.add_argument("--server", choices=gateway.KINDS, default="tools",
                        help="what stands behind the gateway (default: tools, over stdio)")
    parser.add_argument("--client", action="append", choices=CLIENTS, help="only this client")
    parser.add_argument("--script", action="append", help="only the script of this name")
    parser.add_argument("--keep-log", type=Path, help="copy the gateways' logs to this folder")
    parser.add_argument("--jobs", type=int, 
                        help="scripts at a time (default: 2, quick: 4)")
    options = parser.parse_args()
    options.jobs = options.jobs or (4 if options.quick else 2)
    try:
        install(options)
        peers.rejoin_binary()
    except (peers.PeersMissing, subprocess.SubprocessError, OSError) as missing:
        print(f"The clients are not ready: {missing}", file=sys.stderr)
        return 2
    stalls = Stalls()
    stalls.start()
    verdicts = Healthy(options).all()
    failed = judge.report(verdicts, stalls)
    return 1 if failed or not verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
