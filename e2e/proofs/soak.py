"""Soak: a day of sessions that nobody deletes, in shortened time; what they used must come back.

    python3 e2e/proofs/soak.py [--sessions N]

The limits that make a day are shortened (an idle session ends after 2 s, not 30 min; repeats are
known for 4 s, not 10 min; what nobody fetched is kept for 8 s, not 24 h). Then N sessions (10,000),
a dozen at a time, each do one of: calls and silence; a cut stream that is resumed; a cut stream
whose call is repeated blindly; a cut stream that nobody comes back for; an open GET that is cut. No
session is ever deleted. Memory, child processes, open files and sessions are taken all the time:
between the second and the last fifth they must not grow, and at the end nothing may be left. No
call may be executed twice.
"""

import argparse
import concurrent.futures
import itertools
import os
import random
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time

import rejoin

WORKERS = 12
OPTIONS = [
    *itertools.chain.from_iterable(("--limit", limit) for limit in (
        "session_idle_ms=2000", "session_unused_ms=2000", "repeat_window_ms=4000",
        "retention_ms=8000", "tombstone_ms=10000", "ending_max_ms=2000",
        "keep_alive_ms=500", "request_head_max_ms=3000", "children_max=256",
    )),
    "--log", "warn,rejoin=info",
]
# More than one page-cache's worth of noise, less than a leak of 1 kB a session.
GROWTH_BYTES_MAX = 8 * 1024 * 1024
LEFT_SECONDS = 60


class Watch:
    """Samples of a process: memory, children, open files, sessions."""

    def __init__(self, gateway):
        self._gateway, self._pid = gateway, gateway.process.pid
        self.samples = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def now(self):
        """(resident bytes, children, open files, sessions)."""
        with open(f"/proc/{self._pid}/status") as status:
            resident = next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
        children = subprocess.run(["ps", "--no-headers", "-o", "pid", "--ppid", str(self._pid)],
                                  capture_output=True, text=True, check=False).stdout.split()
        files = len(os.listdir(f"/proc/{self._pid}/fd"))
        return resident * 1024, len(children), files, self._gateway.metric("rejoin_sessions")

    def _run(self):
        while not self._stop.wait(0.25):
            try:
                self.samples.append(self.now())
            except (OSError, StopIteration):
                return

    def stop(self):
        self._stop.set()
        self._thread.join()

    def fifth(self, number, column):
        """The median of a column in one fifth of the samples."""
        size = len(self.samples) // 5
        rows = self.samples[number * size:(number + 1) * size]
        return statistics.median(row[column] for row in rows)


def cut(connection, answer):
    """Ends a connection by a reset. The socket closes when its answer's file has, too."""
    linger = struct.pack("ii", 1, 0)
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    answer.close()
    connection.close()


def start_call(gateway, session, request_id, amount):
    """A call, read up to its first progress event: its connection, its answer, that event's id."""
    connection = gateway.connect()
    body = rejoin.call(request_id, "charge", {"amount": amount, "events": 10, "interval_ms": 20})
    connection.request("POST", "/mcp", rejoin.json.dumps(body), {
        **session, "Accept": rejoin.ACCEPT, "Content-Type": "application/json"})
    answer = connection.getresponse()
    cursor, raw = None, answer.fp
    while True:
        line = raw.readline()
        if line.startswith(b"id:"):
            cursor = line.split(b":", 1)[1].strip().decode()
        if line.startswith(b"data:") and b"progress" in line or not line:
            return connection, answer, cursor


def one(gateway, number):
    """One session of some kind: (executions it may have caused at most, what went wrong)."""
    kind = ("calls", "resume", "repeat", "leave", "listen")[number % 5]
    connection = gateway.connect()
    session = rejoin.initialize(connection, {"Authorization": f"Bearer {number % 50}"})
    if kind in ("calls", "listen"):
        if kind == "listen":
            listening = gateway.connect()
            listening.request("GET", "/mcp", headers={**session, "Accept": "text/event-stream"})
            stream = listening.getresponse()
        for request_id in range(1, 4):
            body = rejoin.call(request_id, "charge", {"amount": number * 10 + request_id})
            status, _, text = rejoin.exchange(connection, "POST", session, body)
            if status != 200 or b"charged" not in text:
                return 3, f"{kind}: {status} {text[:200]!r}"
        if kind == "listen":
            cut(listening, stream)
        connection.close()
        return 3, None
    running, answer, cursor = start_call(gateway, session, 1, number)
    cut(running, answer)
    if kind == "resume":
        status, _, text = rejoin.exchange(connection, "GET", {
            **session, "Accept": "text/event-stream", "Last-Event-ID": cursor})
        if status != 200 or b"charged" not in text:
            return 1, f"{kind}: {status} {text[:200]!r}"
    elif kind == "repeat":
        body = rejoin.call(2, "charge", {"amount": number, "events": 10, "interval_ms": 20})
        # At once, and when the call is over: refused or collected, and never executed.
        for _ in range(2):
            status, _, text = rejoin.exchange(connection, "POST", session, body)
            if status not in (200, 409):
                return 1, f"{kind}: {status} {text[:200]!r}"
            time.sleep(0.3)
    connection.close()
    return 1, None


def soak(sessions, upstream):
    """Runs the sessions; returns what failed."""
    failures = []
    with rejoin.Gateway(*OPTIONS, upstream=upstream) as gateway:
        idle = Watch(gateway).now()
        watch = Watch(gateway)
        numbers = list(range(sessions))
        random.Random(1).shuffle(numbers)
        begun, allowed = time.monotonic(), 0
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            for caused, wrong in pool.map(lambda number: one(gateway, number), numbers):
                allowed += caused
                if wrong:
                    failures.append(wrong)
        took = time.monotonic() - begun
        watch.stop()
        ran = gateway.executions()
        print(f"{sessions} sessions in {took:.0f} s; {ran} executions of {allowed}")
        if upstream is None and ran != allowed:
            failures.append(f"{ran} executions, not {allowed}")
        failures += judge(watch)
        failures += left(watch, idle)
    return failures


def judge(watch):
    """What grew between the second and the last fifth."""
    failures = []
    print(f"{'':14}{'2nd fifth':>12}{'last fifth':>12}")
    for column, (name, slack) in enumerate((
            ("resident MB", GROWTH_BYTES_MAX), ("children", None), ("open files", None),
            ("sessions", None))):
        early, late = watch.fifth(1, column), watch.fifth(4, column)
        scale = 1024 * 1024 if column == 0 else 1
        print(f"{name:14}{early / scale:>12.1f}{late / scale:>12.1f}")
        if late > early + (early * 0.25 + 8 if slack is None else slack):
            failures.append(f"{name} grew from {early} to {late}")
    return failures


def left(watch, idle):
    """What is left once every session had time to end."""
    deadline = time.monotonic() + LEFT_SECONDS
    while time.monotonic() < deadline:
        resident, children, files, sessions = watch.now()
        if children == 0 and sessions == 0 and files <= idle[2] + 2:
            break
        time.sleep(0.5)
    print(f"{'at the end':14}{resident / 1048576:.1f} MB, {children} children, {files} open files "
          f"({idle[2]} before), {sessions:.0f} sessions")
    if children or sessions or files > idle[2] + 2:
        return ["something is left at the end"]
    return []


def main():
    """Soaks and prints what failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sessions", type=int, default=10_000)
    args = parser.parse_args()
    failures = soak(args.sessions, None)
    for failure in failures[:20]:
        print(f"FAILED: {failure}")
    print(f"{len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
