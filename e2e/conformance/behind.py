#!/usr/bin/env python3
"""Runs a client of the suites behind Rejoin: `behind.py REJOIN COMMAND... URL`.

Starts `rejoin serve --upstream URL`, runs `COMMAND... URL-OF-REJOIN`, and ends both.
"""

import subprocess
import sys

from processes import Server

CLIENT_SECONDS = 25


def main():
    """The client's exit status."""
    rejoin, *command, url = sys.argv[1:]
    with Server([rejoin, "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0",
                 "--upstream", url]) as gateway:
        try:
            return subprocess.run([*command, gateway.url], timeout=CLIENT_SECONDS).returncode
        except subprocess.TimeoutExpired:
            print(f"the client did not finish in {CLIENT_SECONDS} s", file=sys.stderr)
            return 1


if __name__ == "__main__":
    sys.exit(main())
