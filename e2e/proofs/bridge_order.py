"""The second observed case: a call is cut, resumed and replayed while a new one is sent.

In each trial the old call has ended on its server when its client asks for the rest, and the new
one is sent before the old one's answer came. It is an inversion if anything of the new call
reaches the host before that answer. The host reads raw lines: their order is what any host sees.
mcp-remote, which does not hold what is new, shows that a trial can fail.
"""

import contextlib
import json
import os
import queue
import random
import subprocess
import tempfile
import threading
import time
from pathlib import Path as File

import bridge_host
import rejoin
from bridge_outcome import Outcome

import cutter
from compatibility import servers
from compatibility.gateways import Program

# FastMCP keeps 100 events of a stream.
OLD = {"events": 60, "interval_ms": 0, "event_bytes": 500}
NEW = {"events": 3, "interval_ms": 0}
CUT_AFTER_MAX = 20
SERVERS = REJOIN, FASTMCP = "rejoin", "fastmcp"
# Both servers ask for it: the old call has ended by then, on a busy machine too.
RETRY_MS = 400
# The new call leaves so long after the cut was noticed.
SPREAD_SECONDS = 0.5
# A program that does not say when it noticed.
NOTICED_SECONDS = 0.05
ANSWER_SECONDS, HUNG_MAX = 20, 20
# The bridge asks a resumed stream that is silent again, not earlier than this.
SILENCE_SECONDS = 1.5
BROKE_OFF = "broke off"
OPEN, OPEN_SHARE = "the new call left before the old answer came", 0.4
INVERSIONS, HUNG = "inversions", "never ended"
COLUMNS = ("trials", OPEN, INVERSIONS, HUNG)


class Host:
    """A program that stands in for a server over stdio, and all that it says, line by line."""

    def __init__(self, command, folder):
        environment = {**os.environ, "MCP_REMOTE_CONFIG_DIR": str(folder)}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env=environment)
        self._messages, self._last_id = queue.SimpleQueue(), 0
        # How often it said that an answer broke off.
        self.broke_off = 0
        self._readers = [threading.Thread(target=target, daemon=True)
                         for target in (self._read, self._read_log)]
        for reader in self._readers:
            reader.start()

    def __enter__(self):
        params = {"protocolVersion": rejoin.REVISION, "capabilities": {},
                  "clientInfo": {"name": "order", "version": "1"}}
        self._write({"id": 0, "method": "initialize", "params": params})
        while self.next().get("id") != 0:
            pass
        self._write({"method": "notifications/initialized"})
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for reader in self._readers:
            reader.join(5)

    def has_more(self):
        """Whether a message has come that was not taken."""
        return not self._messages.empty()

    def call(self, arguments):
        """Calls `charge`; the id of the request, which is its progress token."""
        self._last_id += 1
        self._write(rejoin.call(self._last_id, "charge", arguments))
        return self._last_id

    def next(self):
        """The next message. Raises TimeoutError."""
        try:
            return self._messages.get(timeout=ANSWER_SECONDS)
        except queue.Empty:
            raise TimeoutError(f"nothing came for {ANSWER_SECONDS} s") from None

    def _write(self, message):
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self._process.stdin.flush()

    def _read(self):
        for line in self._process.stdout:
            self._messages.put(json.loads(line))

    def _read_log(self):
        for line in self._process.stderr:
            self.broke_off += BROKE_OFF in line


def belongs(message, call):
    """Whether a message is a call's answer or progress."""
    token = (message.get("params") or {}).get("progressToken")
    return call in (message.get("id"), token)


def is_inverted(seen, old, new):
    """Whether anything of the new call came before the old one's answer."""
    answered = next(at for at, message in enumerate(seen) if message.get("id") == old)
    return any(belongs(message, new) for message in seen[:answered])


def faults_of(seen, call, events):
    """What is wrong with one call."""
    own = [message for message in seen if belongs(message, call)]
    progress = [message["params"]["progress"] for message in own if "params" in message]
    if progress != list(range(1, events + 1)):
        yield f"progress {progress}, not 1 to {events}"
    if len(own) != len(progress) + 1 or "result" not in own[-1]:
        yield f"no result at its end: {own[-1]}"


def wait_until(holds):
    """Polls. Raises TimeoutError."""
    deadline = time.monotonic() + ANSWER_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing was cut for {ANSWER_SECONDS} s")
        time.sleep(0.001)


class Trials:
    """The trials of one program in front of one server, in one session."""

    def __init__(self, name, server, count, seed):
        self._name, self._server, self._count = name, server, count
        self._chance = random.Random(f"{name} {server} {seed}")
        self.outcome = Outcome(f"`{name}` before `{server}`", COLUMNS)
        self._plans = [self._plan(number) for number in range(count)]
        self._host = None

    def _plan(self, number):
        kind = self._chance.choice(cutter.KINDS)
        cut = {"kind": kind, "events": self._chance.randint(2, CUT_AFTER_MAX)}
        return cutter.Plan("charge", {"amount": 2 * number}, [cut])

    def run(self):
        """All of them; an Outcome."""
        with tempfile.TemporaryDirectory() as folder, self._port(File(folder)) as port:
            path = cutter.Cutter("127.0.0.1", port, self._plans).start()
            command, trials = bridge_host.command(self._name, path.port), iter(range(self._count))
            try:
                while self.outcome.figures[HUNG] < HUNG_MAX and self._session(
                        command, folder, trials):
                    pass
            finally:
                path.stop()
        return self.outcome

    def _session(self, command, folder, trials):
        """Makes trials with one host, until a call of it hangs. Whether there are more."""
        with Host(command, folder) as self._host:
            for number in trials:
                try:
                    self._trial(number)
                except TimeoutError as error:
                    self.outcome.faults.append(f"trial {number}: {error}")
                    self.outcome.figures[HUNG] += 1
                    return True
        return False

    @contextlib.contextmanager
    def _port(self, folder):
        if self._server == REJOIN:
            with rejoin.Gateway("--limit", f"retry_ms={RETRY_MS}") as gateway:
                yield gateway.port
            return
        server = servers.Fastmcp(folder)
        command = [*server.command(), "--retry-ms", str(RETRY_MS)]
        program = Program(server.name, command, folder / "log", None)
        try:
            yield program.wait_for_port()
        finally:
            program.stop()

    def _trial(self, number):
        host, figures, broke_off = self._host, self.outcome.figures, self._host.broke_off
        figures["trials"] += 1
        old = host.call({"amount": 2 * number, **OLD})
        wait_until(lambda: self._plans[number].done)
        if self._name == bridge_host.BRIDGE:
            wait_until(lambda: host.broke_off > broke_off)
        else:
            time.sleep(NOTICED_SECONDS)
        time.sleep(self._chance.uniform(0, SPREAD_SECONDS))
        seen = []
        while host.has_more():
            seen.append(host.next())
        sent = time.monotonic()
        new = host.call({"amount": 2 * number + 1, **NEW})
        is_open = all(message.get("id") != old for message in seen)
        while not {old, new} <= {message.get("id") for message in seen}:
            seen.append(host.next())
        # On a busy machine an old call may still run when it is resumed. What then falls between
        # the replay and what comes live the SDK of FastMCP does not send: it comes when it is asked
        # again, and nobody can know that the new call is to wait for it.
        is_late = self._server == FASTMCP and time.monotonic() - sent > SILENCE_SECONDS
        figures[OPEN] += is_open
        figures[INVERSIONS] += is_inverted(seen, old, new) and not is_late
        for call, events in ((old, OLD["events"]), (new, NEW["events"])):
            self.outcome.faults += [
                f"trial {number}: {fault}" for fault in faults_of(seen, call, events)]


def run(name, server, count, seed):
    """The trials of one pair; an Outcome."""
    outcome = Trials(name, server, count, seed).run()
    figures = outcome.figures
    if name != bridge_host.BRIDGE:
        # What others do is no fault; that nothing is ever seen would be one of the trial.
        shows = server != FASTMCP or figures[INVERSIONS]
        outcome.faults = [] if shows else ["no inversion: the trial shows nothing"]
        return outcome
    if figures[INVERSIONS] or figures["trials"] < count:
        outcome.faults.append(f"{figures[INVERSIONS]} inversions in {figures['trials']} trials")
    if figures[OPEN] < count * OPEN_SHARE:
        outcome.faults.append("too few new calls left early enough to overtake")
    return outcome
