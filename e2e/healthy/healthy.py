#!/usr/bin/env python3
"""Proof that healthy traffic is left alone: stock clients, 10,000 calls each. See README.md."""

import argparse
import concurrent.futures
import contextlib
import os
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
from stalls import Stalls

CLIENTS = ("ts", "py2", "py1", "rmcp", "raw")
TOTAL_SECONDS, TOTAL_QUICK_SECONDS = 1500, 240
SCRIPT_SECONDS, SCRIPT_QUICK_SECONDS = 900, 30
DRAIN_SECONDS = 5


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


def memory_folder():
    """Where the servers count. They sync each line; a busy disk must not look like a slow call."""
    folder = Path("/dev/shm")
    return folder if os.access(folder, os.W_OK) else None


class Healthy:
    """All scripts of all clients over all upstreams, a few at a time."""

    def __init__(self, options, stalls):
        self._options, self._stalls = options, stalls
        self._lock = threading.Lock()
        self._total = TOTAL_QUICK_SECONDS if options.quick else TOTAL_SECONDS
        self._most = SCRIPT_QUICK_SECONDS if options.quick else SCRIPT_SECONDS
        self._deadline = time.monotonic() + self._total
        self._http = gateway.HttpServers(options.server)

    def all(self):
        """Runs every wanted script; the verdicts in the order of the table."""
        tools = scripts.Everything if self._options.server == "everything" else scripts.Tools
        wanted = [
            (upstream, client, script)
            for upstream in self._options.upstream or gateway.UPSTREAMS
            for client in self._options.client or CLIENTS
            for script in scripts.scripts(client, tools, self._options.quick)
            if not self._options.script or script.name in self._options.script
        ]
        # The longest first, so that the last ones do not run alone.
        ordered = sorted(wanted, key=lambda row: -row[2].calls)
        try:
            with concurrent.futures.ThreadPoolExecutor(self._options.jobs) as pool:
                waiting = {self._name(row): pool.submit(self._one, *row) for row in ordered}
            return [self._again(waiting[self._name(row)].result()) for row in wanted]
        finally:
            self._http.stop()

    @staticmethod
    def _name(row):
        return row[0], row[1], row[2].name

    def _again(self, verdict):
        """Repeats a row alone when nothing was wrong but time: that may be the other rows' load."""
        if not verdict.is_slow_only:
            return verdict
        again = self._one(verdict.upstream, verdict.client, verdict.script)
        again.explained.append(f"run again alone, since: {'; '.join(verdict.faults)}")
        return again

    def _one(self, upstream, client, script):
        began = time.monotonic()
        try:
            verdict = self._script(upstream, client, script)
        except Exception as error:  # a fault of the harness fails its row, not the others
            verdict = judge.Verdict(upstream, client, script)
            verdict.faults.append(f"{type(error).__name__}: {error}")
        with self._lock:
            word = "FAIL" if verdict.faults else "ok"
            print(f"{word:4}  {upstream:5}  {client:4}  {script.name:21}  "
                  f"{time.monotonic() - began:6.1f} s", flush=True)
            for fault in verdict.faults:
                print(f"      {fault}", flush=True)
        return verdict

    def _script(self, upstream, client, script):
        left = min(self._most, self._deadline - time.monotonic())
        if left <= 0:
            raise RuntimeError(f"not started: {self._total} s are over")
        with contextlib.ExitStack() as stack:
            http = None
            if upstream == "http":
                http = stack.enter_context(self._http.one(script.calls))
            folder = stack.enter_context(
                tempfile.TemporaryDirectory(prefix="rejoin-healthy-", dir=memory_folder()))
            front = gateway.Gateway(self._options.server, Path(folder), script.limits, http)
            way = None
            try:
                way = Way("127.0.0.1", front.port, script.refuse_get,
                          script.get_cut_seconds).start()
                verdict = self._drive(upstream, client, script, front, way, left)
            finally:
                if way is not None:
                    way.stop()
                complaint = front.stop()
                self._keep_log(upstream, client, script, front)
            if complaint:
                verdict.faults.append(complaint)
            return verdict

    def _keep_log(self, upstream, client, script, front):
        if self._options.keep_log:
            self._options.keep_log.mkdir(parents=True, exist_ok=True)
            name = f"{upstream}-{client}-{script.name.replace(' ', '-')}.log"
            (self._options.keep_log / name).write_text("\n".join(front.log_lines()))

    def _drive(self, upstream, client, script, front, way, seconds):
        needs_way = script.refuse_get or script.get_cut_seconds or script.resets
        port = way.port if needs_way else front.port
        url, control = f"http://127.0.0.1:{port}/mcp", f"http://127.0.0.1:{way.control_port}"
        command = [*client_command(client), url, control]
        lines, trouble = run.drive(command, script.steps, seconds)
        verdict = judge.Verdict(upstream, client, script)
        if trouble:
            verdict.faults.append(trouble)
        verdict.take_client(lines)
        verdict.take_way(way)
        # Calls that were given up may still run; their end is part of what is judged.
        deadline = time.monotonic() + DRAIN_SECONDS
        while not verdict.has_ran(front.ran()) and time.monotonic() < deadline:
            time.sleep(0.05)
        verdict.take_gateway(front.metrics(), front.log_lines(), self._stalls)
        verdict.take_executions(front.ran())
        return verdict


def main():
    """Parses the command line, installs the clients, runs the scripts, prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="200 calls a client, not 10,000")
    parser.add_argument("--upstream", action="append", choices=gateway.UPSTREAMS,
                        help="how the gateway speaks to its server (default: both)")
    parser.add_argument("--server", choices=gateway.SERVERS, default="tools",
                        help="what stands behind the gateway (default: tools)")
    parser.add_argument("--client", action="append", choices=CLIENTS, help="only this client")
    parser.add_argument("--script", action="append", help="only the script of this name")
    parser.add_argument("--keep-log", type=Path, help="copy the gateways' logs to this folder")
    parser.add_argument("--jobs", type=int, default=3, help="scripts at a time (default: 3)")
    options = parser.parse_args()
    try:
        install(options)
        peers.rejoin_binary()
    except (peers.PeersMissing, subprocess.SubprocessError, OSError) as missing:
        print(f"The clients are not ready: {missing}", file=sys.stderr)
        return 2
    began = time.monotonic()
    stalls = Stalls()
    try:
        verdicts = Healthy(options, stalls).all()
    finally:
        stalls.stop()
    failed = judge.report(verdicts, stalls)
    print(f"{time.monotonic() - began:.0f} s")
    return 1 if failed or not verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
