"""A gateway for `crash.py`: killed at any point of its work, and started again on its directory."""

import json
import re
import signal
import subprocess
import threading
import time
from collections import Counter, deque

import rejoin
from crash_wire import ANSWER_SECONDS

OWED_GRACE_MS, RESET_WINDOW_MS = 1_000, 5_000
LIMITS = {
    "retry_ms": 250, "hold_max_ms": 1_500, "held_headers_ms": 60, "repeat_wait_ms": 300,
    "gate_settle_ms": 100, "keep_alive_ms": 500, "reset_window_ms": RESET_WINDOW_MS,
}
# Every move of a call and a stream: to kill in the midst of one, and to tell where it was.
LOG = "info,rejoin_gateway::telemetry=debug"
LINES_KEPT = 4_000
# What the last line of a call says of where it was: notes are written after their commit.
POINTS = {
    'verdict="claim"': "claim committed", "a call goes to the server": "claim committed",
    'to="sent"': "sent", 'to="finished"': "result committed",
}
# What no log of a gateway has that is only killed.
FAULTS = ("panicked", " ERROR ")


class NotStarted(Exception):
    """A gateway did not start on its directory."""


class Gateway:
    """`rejoin serve --data` in front of one upstream."""

    def __init__(self, folder, durability, upstream):
        self.count_file = folder / "executions"
        self._data, self._durability = folder / "data", durability
        self._upstream = upstream
        self.port, self._process = None, None
        self.kills = self.starts = 0
        # Lines of its log, those since `watch`, and those that tell of a fault.
        self.lines, self._watched, self.faults = deque(maxlen=LINES_KEPT), [], []
        # What to kill at: (text, delay in seconds).
        self._trigger = None

    def is_running(self):
        """True between a start and a kill."""
        return self._process is not None and self._process.poll() is None

    def start(self, options=()):
        """Starts it, and waits until it takes requests. Raises NotStarted."""
        self.spawn(options)
        process = self._process
        late = threading.Timer(ANSWER_SECONDS, process.kill)
        late.start()
        line = process.stdout.readline()
        late.cancel()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/mcp", line)
        if not found:
            process.kill()
            self._ended()
            raise NotStarted(f"it printed no URL: {line!r} {list(self.lines)[-5:]}")
        self.port = int(found[1])

    def spawn(self, options=()):
        """Starts it, and waits for nothing."""
        limits = [part for name, value in LIMITS.items() for part in ("--limit", f"{name}={value}")]
        command = [
            rejoin.peers.rejoin_binary(), "serve", "--listen", "127.0.0.1:0",
            "--admin", "127.0.0.1:0", "--data", str(self._data), "--durability", self._durability,
            "--owed-grace", str(OWED_GRACE_MS), "--log", LOG, *limits, *options,
            *self._upstream(self.count_file)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True)
        self.starts += 1
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()

    def watch(self):
        """Looks at calls from now on."""
        self._watched = []

    def kill_at(self, text, delay_s):
        """Has it killed this long after a line of its log has this text."""
        self._trigger = (text, delay_s)

    def kill(self):
        """Kills it as nothing else does, and waits until it is gone."""
        self._trigger = None
        self._process.kill()
        self._ended()
        if self._process.returncode != -signal.SIGKILL:
            self.faults.append(f"it ended by itself: status {self._process.returncode}")
        self.kills += 1

    def end(self):
        """Ends it for good."""
        if self._process is None:
            return
        if self.is_running():
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
            if self._process.returncode != 0:
                self.faults.append(f"SIGTERM ended it with {self._process.returncode}")
        self._ended()

    def points(self):
        """Where each call was, of those that the log has named since `watch`."""
        last, handed_over = {}, 0
        for line in self._watched:
            handed_over += 'to="ending"' in line
            call = re.search(r" call=(\d+)", line)
            point = next((point for text, point in POINTS.items() if text in line), None)
            if call and point:
                last[call[1]] = point
        points = Counter(last.values())
        points["answer handed over"] = min(handed_over, points["result committed"])
        points["result committed"] -= points["answer handed over"]
        return points

    def executions(self):
        """How often each amount was charged; a last line that is being written is left out."""
        counts = {}
        text = self.count_file.read_text() if self.count_file.exists() else ""
        for line in text.split("\n")[:-1]:
            tool, arguments = line.split(" ", 1)
            if tool == "charge":
                amount = json.loads(arguments.rsplit(" ", 1)[0])["amount"]
                counts[amount] = counts.get(amount, 0) + 1
        return counts

    def _read(self, process):
        for line in process.stderr:
            self.lines.append(line.rstrip())
            self._watched.append(self.lines[-1])
            if any(fault in line for fault in FAULTS):
                self.faults.append(self.lines[-1])
            trigger = self._trigger
            if trigger and trigger[0] in line:
                self._trigger = None
                time.sleep(trigger[1])
                process.kill()
        process.stderr.close()

    def _ended(self):
        self._process.wait()
        self._reader.join(5)
        self._process.stdout.close()
