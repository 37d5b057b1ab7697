"""A stock server with Rejoin in front of it, as the operator would start them."""

import os
import queue
import re
import signal
import socket
import subprocess
import threading
import time
import uuid
from pathlib import Path

import peers

START_SECONDS = 90
# A call that is still running has 30 s to end.
STOP_SECONDS = 45
CHILD_SECONDS = 12
LOG_LINES = 10
MARK = "REJOIN_E2E_MARK"
URL = re.compile(r"http://127\.0\.0\.1:(\d+)/mcp")


class Program:
    """A process that prints its URL."""

    def __init__(self, name, command, log_path, environment):
        self.name = name
        self._log_path = log_path
        self._log = open(log_path, "wb")
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log,
            env=environment, cwd=peers.HERE, text=True,
        )
        # Read to the end: a program whose output nobody takes would stop in a write.
        self._lines = queue.SimpleQueue()
        threading.Thread(target=self._read_lines, daemon=True).start()

    def _read_lines(self):
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def wait_for_port(self):
        """The port of the URL it prints, once it takes connections."""
        deadline = time.monotonic() + START_SECONDS
        port = None
        while port is None and (left := deadline - time.monotonic()) > 0:
            try:
                line = self._lines.get(timeout=left)
            except queue.Empty:
                break
            if line is None:
                break
            if found := URL.search(line):
                port = int(found[1])
        while port is not None and time.monotonic() < deadline and self.process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return port
            except OSError:
                time.sleep(0.05)
        raise RuntimeError(f"{self.name} does not listen: {self.log_tail()}")

    def log(self):
        """All of its log."""
        return self._log_path.read_text(errors="replace")

    def log_tail(self):
        """The end of its log."""
        lines = self.log().splitlines()
        return "".join(f"\n    {line[:240]}" for line in lines[-LOG_LINES:])

    def stop(self, by=signal.SIGTERM):
        """Ends it by a signal; a complaint when it does not end."""
        if self.process.poll() is None:
            self.process.send_signal(by)
        complaint = None
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            complaint = f"{self.name} still ran {STOP_SECONDS} s after {by.name}"
            self.process.kill()
            self.process.wait()
        self.process.stdin.close()
        self._log.close()
        return complaint


class Front:
    """What clients talk to, with its processes: started when it is made, ended by `stop`."""

    def __init__(self, name, folder, direct=False):
        self.name = name
        self.count_file = folder / "executions"
        self._log_path = folder / "server.log"
        self._mark = uuid.uuid4().hex
        self._programs = []
        try:
            self.port = self._start(direct)
        except BaseException:
            self.stop()
            raise

    def _start(self, _direct):
        return self._run("rejoin", self._rejoin_command(), self._log_path)

    def _rejoin_command(self):
        raise NotImplementedError

    def _run(self, name, command, log_path):
        environment = {**os.environ, MARK: self._mark, "NO_COLOR": "1"}
        program = Program(name, command, log_path, environment)
        self._programs.append(program)
        return program.wait_for_port()

    def log(self):
        """The log of what clients talk to."""
        return self._programs[-1].log()

    def log_tail(self):
        """The end of the log of what clients talk to."""
        return self._programs[-1].log_tail()

    def stop(self):
        """Ends them; a complaint when one of them or of their children stays."""
        complaints = [program.stop() for program in reversed(self._programs)]
        complaint = next((said for said in complaints if said), None)
        deadline = time.monotonic() + CHILD_SECONDS
        while (left := self._children()) and time.monotonic() < deadline:
            time.sleep(0.1)
        for child in left:
            complaint = complaint or f"{len(left)} children stayed when the server had ended"
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


class Gateway(Front):
    """A server of the table with Rejoin in front, or without."""

    def __init__(self, server, direct=False):
        self.server = server
        self._behind = []
        super().__init__(server.name, server.folder, direct)

    def _start(self, direct):
        server = self.server
        if not server.is_http:
            self._behind = ["--", *server.command()]
            return super()._start(direct)
        port = self._run(server.name, server.command(), server.folder / "behind.log")
        self._behind = ["--upstream", f"http://127.0.0.1:{port}/mcp"]
        return port if direct else super()._start(direct)

    def _rejoin_command(self):
        listen = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
        return [peers.rejoin_binary(), "serve", *listen, *self._behind]
