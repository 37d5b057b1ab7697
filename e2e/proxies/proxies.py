#!/usr/bin/env python3
"""Rejoin with a real nginx in front of it, and behind it.

    python3 e2e/proxies/proxies.py [--case WORD]

Builds nothing: run `cargo build --release` first. It takes the nginx on the path, else Debian's
package (`nginx.py`), and PyPI `fastmcp` as the server behind. The settings are the blocks of
docs/operating.md, with ports and time-outs replaced: what the page says is what runs here. What is
missing is named and the run fails. The last line is `N passed, N failed`.
"""

import argparse
import concurrent.futures
import subprocess
import sys
import time
import traceback

import behind
import front
import nginx
import peers

WORKERS = 4


def run(case):
    """Runs one case: (its name, seconds, what it failed with)."""
    name = f"{case.__module__}: {case.__name__.replace('_', ' ')}"
    began = time.monotonic()
    failure = None
    try:
        case()
    except Exception:  # whatever it is, it is this case's failure
        failure = traceback.format_exc(limit=-4)
    return name, time.monotonic() - began, failure


def main():
    """The exit status: 0 when all passed, 1 when one failed, 2 when the run could not start."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--case", default="", help="only cases whose name has this word")
    word = parser.parse_args().case
    cases = [case for case in (*front.CASES, *behind.CASES) if word in case.__name__]
    if not cases:
        print(f"No case has {word!r} in its name.", file=sys.stderr)
        return 2
    try:
        peers.install(("fastmcp",))
        peers.rejoin_binary()
        program = nginx.program()
    except (peers.PeersMissing, subprocess.SubprocessError, OSError) as missing:
        print(f"The proxies are not ready: {missing}", file=sys.stderr)
        return 2
    version = subprocess.run([program, "-v"], capture_output=True, text=True, check=True)
    print(version.stderr.strip())
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        for name, seconds, failure in pool.map(run, cases):
            print(f"{'ok  ' if failure is None else 'FAIL'} {seconds:5.1f} s  {name}", flush=True)
            if failure is not None:
                failed += 1
                print(failure, flush=True)
    print(f"{len(cases) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
