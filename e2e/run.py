#!/usr/bin/env python3
"""Stock MCP clients against stock MCP servers with Rejoin in front. See README.md."""

import argparse
import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path

import peers
import scenarios
from cutter import Cutter

CLIENTS = ("ts", "py2", "py1")
SERVERS = ("everything", "time", "tools")
TOTAL_SECONDS = 240
DRIVER_SECONDS = 30
START_SECONDS = 20
STOP_SECONDS = 20
CHILD_SECONDS = 12
LOG_LINES = 10
MARK = "REJOIN_E2E_MARK"


class Front:
    """A server under test, started for one client: Rejoin, or the bare HTTP server."""

    def __init__(self, server, folder, direct):
        self.name = server
        self.count_file = folder / "executions"
        self._log_path = folder / "server.log"
        self._log = open(self._log_path, "wb")
        self._mark = uuid.uuid4().hex
        self._environment = {**os.environ, MARK: self._mark, "NO_COLOR": "1"}
        command = self._direct_command() if direct else self._rejoin_command()
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._log,
            env=self._environment, cwd=peers.HERE, text=True,
        )
        # Read to the end: a server whose output nobody takes would stop in a write.
        self._lines = queue.SimpleQueue()
        threading.Thread(target=self._read_lines, daemon=True).start()
        try:
            if not direct:
                self.port = self._read_port()
            self._wait_until_open()
        except BaseException:
            self.stop()
            raise

    def _direct_command(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._environment["PORT"] = str(self.port)
        return peers.everything_http()

    def _rejoin_command(self):
        binary = peers.rejoin_binary()
        behind = {
            "everything": peers.everything_stdio,
            "time": peers.time_stdio,
            "tools": lambda: [binary, "tool-server", "--count-file", str(self.count_file)],
        }[self.name]()
        listen = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
        return [binary, "serve", *listen, "--", *behind]

    def _read_port(self):
        deadline = time.monotonic() + START_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            try:
                line = self._lines.get(timeout=left)
            except queue.Empty:
                break
            if line is None:
                break
            if found := re.search(r"http://127\.0\.0\.1:(\d+)/mcp", line):
                return int(found[1])
        raise RuntimeError(f"rejoin serve printed no URL: {self.log_tail()}")

    def _read_lines(self):
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _wait_until_open(self):
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError(f"the server does not listen: {self.log_tail()}")

    def executions(self):
        """How often the counting tool ran so far."""
        if not self.count_file.exists():
            return 0
        lines = self.count_file.read_text().splitlines()
        return sum(1 for line in lines if line.startswith("charge "))

    def log_tail(self):
        """The end of the server's log."""
        lines = self._log_path.read_text(errors="replace").splitlines()
        return "".join(f"\n    {line[:240]}" for line in lines[-LOG_LINES:])

    def stop(self):
        """Ends the server; a complaint when it or one of its children stays."""
        complaint = None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            complaint = f"the server still ran {STOP_SECONDS} s after SIGTERM"
            self._process.kill()
            self._process.wait()
        self._log.close()
        deadline = time.monotonic() + CHILD_SECONDS
        while (left := self._children()) and time.monotonic() < deadline:
            time.sleep(0.1)
        for child in left:
            complaint = f"{len(left)} children stayed when the server had ended"
            try:
                os.kill(child, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it ended by itself just now
        return complaint

    def _children(self):
        """The processes that inherited this server's mark."""
        wanted = f"{MARK}={self._mark}".encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
        return found


class Run:
    """All rows, one thread for each client."""

    def __init__(self, options):
        self.options = options
        self.rows = []
        self._lock = threading.Lock()
        self._deadline = time.monotonic() + TOTAL_SECONDS

    def all(self):
        """Runs every wanted row; the number of failures."""
        wanted = scenarios.direct() if self.options.direct else scenarios.through_rejoin()
        threads = []
        for client in self.options.client or CLIENTS:
            thread = threading.Thread(target=self._client, args=(client, wanted))
            thread.start()
            threads.append(thread)
        for thread in threads:
            thread.join()
        return self._report()

    def _client(self, client, wanted):
        for server in self.options.server or SERVERS:
            rows = [
                row for row in wanted if row.server == server
                and (not self.options.scenario or row.name in self.options.scenario)
            ]
            if rows:
                self._server(client, server, rows)

    def _server(self, client, server, rows):
        with tempfile.TemporaryDirectory(prefix="rejoin-e2e-") as folder:
            try:
                if time.monotonic() > self._deadline:
                    raise RuntimeError(f"{TOTAL_SECONDS} s are over")
                front = Front(server, Path(folder), self.options.direct)
            except (RuntimeError, OSError, peers.PeersMissing) as error:
                for row in rows:
                    self._note(row.name, client, server, 0, f"not started: {error}")
                return
            for row in rows:
                began = time.monotonic()
                try:
                    reason = self._scenario(client, front, row)
                except Exception as error:  # a fault of the harness fails its row, not the others
                    reason = f"{type(error).__name__}: {error}"
                self._note(row.name, client, server, time.monotonic() - began, reason)
            began = time.monotonic()
            complaint = front.stop()
            if not self.options.direct:
                self._note("shutdown", client, server, time.monotonic() - began, complaint)

    def _scenario(self, client, front, row):
        left = min(DRIVER_SECONDS, self._deadline - time.monotonic())
        if left <= 0:
            return f"not started: {TOTAL_SECONDS} s are over"
        cutter = Cutter("127.0.0.1", front.port).start()
        before = front.executions()
        try:
            cutter.set_plan(row.tool, row.cuts)
            url = f"http://127.0.0.1:{cutter.port}/mcp"
            control = f"http://127.0.0.1:{cutter.control_port}"
            lines, trouble = drive([*peers.client_command(client), url, control], row.steps, left)
            state = cutter.state()
        finally:
            cutter.stop()
        if self.options.verbose:
            for line in lines:
                print(f"    {client} {front.name} {row.name}: {scenarios.brief(line)}", flush=True)
        try:
            if trouble:
                raise AssertionError(f"{trouble}; saw {scenarios.brief(lines[-3:])}")
            row.check(scenarios.Seen(client, lines, state))
            if front.name == "tools":
                ran = front.executions() - before
                scenarios.expect(ran == row.executions,
                                 f"the tool ran {ran} times, not {row.executions}")
        except AssertionError as failed:
            return f"{failed}\n  cutter: {scenarios.brief(state)}\n  log: {front.log_tail()}"
        return None

    def _note(self, scenario, client, server, seconds, reason):
        with self._lock:
            self.rows.append((scenario, client, server, reason))
            verdict = "ok" if reason is None else "FAIL"
            print(f"{verdict:4}  {scenario:16}  {client:3}  {server:10}  {seconds:5.1f} s"
                  + ("" if reason is None else f"  {reason}"), flush=True)

    def _report(self):
        clients = [name for name in CLIENTS if any(row[1] == name for row in self.rows)]
        print(f"\n{'server':10}  {'scenario':16}  " + "  ".join(f"{name:4}" for name in clients))
        lines = {}
        for scenario, client, server, reason in self.rows:
            lines.setdefault((server, scenario), {})[client] = "FAIL" if reason else "ok"
        for (server, scenario), cells in sorted(lines.items(), key=lambda line: line[0][0]):
            shown = "  ".join(f"{cells.get(name, '-'):4}" for name in clients)
            print(f"{server:10}  {scenario:16}  {shown}")
        failed = sum(1 for row in self.rows if row[3] is not None)
        print(f"\n{len(self.rows) - failed} passed, {failed} failed")
        return failed


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
        tail = " / ".join(errors.strip().splitlines()[-4:])
        trouble = f"the client ended early with status {process.returncode}: {tail}"
    return lines, trouble


def main():
    """Parses the command line, installs the peers, runs the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="every row (also the default)")
    parser.add_argument("--install", action="store_true", help="install the peers, run nothing")
    parser.add_argument("--direct", action="store_true", help="without Rejoin: prove the harness")
    parser.add_argument("--client", action="append", choices=CLIENTS, help="only this client")
    parser.add_argument("--server", action="append", choices=SERVERS, help="only this server")
    parser.add_argument("--scenario", action="append", help="only the scenario of this name")
    parser.add_argument("--verbose", action="store_true", help="print what each client saw")
    options = parser.parse_args()
    try:
        peers.install()
        if not options.install and not options.direct:
            peers.rejoin_binary()
    except (peers.PeersMissing, subprocess.SubprocessError, OSError) as missing:
        print(f"The stock peers are not ready: {missing}", file=sys.stderr)
        return 2
    if options.install:
        return 0
    run = Run(options)
    failed = run.all()
    return 1 if failed or not run.rows else 0


if __name__ == "__main__":
    sys.exit(main())
