"""Servers that say where they listen."""

import queue
import re
import subprocess
import threading
import time

START_SECONDS = 20
STOP_SECONDS = 10
URL = re.compile(r"http://127\.0\.0\.1:\d+/mcp")


class Server:
    """A server process; `url` is where it listens. It ends with the `with` block."""

    def __init__(self, command):
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True,
        )
        # Read to the end: a server whose output nobody takes would stop in a write.
        lines = queue.SimpleQueue()
        threading.Thread(target=self._read, args=(lines,), daemon=True).start()
        try:
            self.url = first_url(lines, command)
        except BaseException:
            self.stop()
            raise

    def _read(self, lines):
        for line in self._process.stdout:
            lines.put(line)
        lines.put(None)

    def stop(self):
        """Ends it, in order if it can."""
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def first_url(lines, command):
    """The address in the first line that has one; a URL that was given to it comes later."""
    deadline = time.monotonic() + START_SECONDS
    while (left := deadline - time.monotonic()) > 0:
        try:
            line = lines.get(timeout=left)
        except queue.Empty:
            break
        if line is None:
            break
        if found := URL.search(line):
            return found[0]
    raise RuntimeError(f"{command[0]} did not say where it listens")
