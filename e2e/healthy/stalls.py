"""Notes when the machine itself stalled: how late a short sleep ends.

A process of its own, so that it competes for a processor exactly as the gateway does and waits for
nothing else. `python stalls.py` prints a line `BEGIN END`, both in ms since 1970, for each stall.
"""

import subprocess
import sys
import threading
import time

SLEEP_SECONDS = 0.005
STALL_MS = 10


class Stalls:
    """The stalls since `start`, as long as this process lives or until `stop`."""

    def __init__(self):
        self._seen = []
        self._process = subprocess.Popen(
            [sys.executable, "-u", __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True)
        threading.Thread(target=self._read, daemon=True).start()

    def stop(self):
        """Ends the watching process."""
        self._process.stdin.close()
        self._process.wait(5)

    def within_ms(self, begin_ms, end_ms):
        """For how long the machine stalled between two moments."""
        return sum(max(0, min(end_ms, end) - max(begin_ms, begin)) for begin, end in self._seen)

    def __str__(self):
        late = [end - begin for begin, end in self._seen]
        return (f"the machine stalled {len(late)} times over {STALL_MS} ms, {sum(late) / 1000:.1f} "
                f"s together, at most {max(late, default=0):.0f} ms")

    def _read(self):
        for line in self._process.stdout:
            begin, end = line.split()
            self._seen.append((float(begin), float(end)))


def main():
    """Watches until the standard input ends."""
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    while not ended.is_set():
        began = time.time()
        time.sleep(SLEEP_SECONDS)
        due, now = began + SLEEP_SECONDS, time.time()
        if (now - due) * 1000 > STALL_MS:
            print(f"{due * 1000:.1f} {now * 1000:.1f}")


if __name__ == "__main__":
    main()
