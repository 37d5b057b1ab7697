"""The bridge: a stock host that starts it sees nothing of what happens to its connections.

    python3 e2e/proofs/bridge.py [--charge] [--kill] [--plain] [--order] [--calls N] [--trials N]

Stock hosts over stdio, of the Python SDK 2.x and of the Rust SDK, start `rejoin bridge`. Behind it
is a path that resets connections, closes them by half, lets answers or requests vanish and delays
heads (`bridge_path.py`). There are four parts; all run if none is named:

    --charge   behind the path is `rejoin serve`: each call runs once, and ends with its result
    --kill     the same, and `rejoin serve` is killed by SIGKILL again and again
    --plain    behind the path is a server without Rejoin; the same with mcp-remote
    --order    a call is cut, resumed and replayed while a new one is sent: nothing overtakes

Each run prints what it counted and what was wrong; the exit status is 0 if nothing was. `--write`
puts the figures into docs/bridge.md. A seed gives connections the same fates, in their order.
"""

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed

import bridge_charge
import bridge_host
import bridge_kill
import bridge_order
import bridge_outcome
import bridge_plain
import rejoin

PARTS = ("charge", "kill", "plain", "order")
NEEDED = ("npm", "py2", "fastmcp", "rmcp")
# Runs at the same time: most of each is waiting.
WORKERS = 10
SECONDS = 3_000
# A fault for good costs 30 to 45 s, which calls beside it do not wait for.
CALLS_PER_HOLE = {1: 500, 8: 60}
# How many calls, where nobody says it; without others beside them they take longer.
CALLS = {"charge": {1: 20, 8: 60}, "kill": 40, "plain": 16}
HANG_SECONDS, HANG_SECONDS_QUICK = 30, 15


def charge_runs(options):
    """Both hosts, one call at a time and eight."""
    for at_once, quick in CALLS["charge"].items():
        count = options.calls or quick
        for host in bridge_host.HOSTS:
            holes = count // CALLS_PER_HOLE[at_once]
            yield lambda args=(count, at_once, host, options.seed, holes, SECONDS): (
                bridge_charge.run(*args))


def kill_runs(options):
    """A server that ends with the gateway, and one that does not."""
    count = options.calls or CALLS["kill"]
    for at_once, host, kind in ((8, "py2", "stdio"), (8, "rmcp", "HTTP"), (1, "rmcp", "stdio"),
                                (1, "py2", "HTTP")):
        if options.calls or at_once > 1:
            yield lambda args=(count, at_once, host, options.seed, 0, SECONDS, kind): (
                bridge_kill.run(*args))


def plain_runs(options):
    """Each server, with the bridge and with mcp-remote."""
    count = options.calls or CALLS["plain"]
    seconds = HANG_SECONDS if options.calls else HANG_SECONDS_QUICK
    for kind in bridge_plain.KINDS:
        for name in bridge_host.PROGRAMS:
            yield lambda args=(kind, name, count, options.seed, seconds): bridge_plain.run(*args)


def order_runs(options):
    """With Rejoin and without, with the bridge and with mcp-remote."""
    for name in bridge_host.PROGRAMS:
        for server in bridge_order.SERVERS:
            yield lambda args=(name, server, options.trials, options.seed): bridge_order.run(*args)


RUNS = dict(zip(PARTS, (charge_runs, kill_runs, plain_runs, order_runs)))


def run_all(options):
    """Runs the parts; their outcomes, by part."""
    outcomes, runs = {part: {} for part in options.parts}, {}
    begun = time.monotonic()
    with ThreadPoolExecutor(WORKERS) as pool:
        for part in options.parts:
            for position, run in enumerate(RUNS[part](options)):
                runs[pool.submit(run)] = (part, position)
        for ended in as_completed(runs):
            part, position = runs[ended]
            outcome = outcomes[part][position] = ended.result()
            print(f"{part}, {time.monotonic() - begun:.0f} s: " + "\n".join(outcome.lines()),
                  flush=True)
    return {part: [own[position] for position in sorted(own)] for part, own in outcomes.items()}


def command(part, options):
    """What gives these figures again."""
    size = f"--trials {options.trials}" if part == "order" else f"--calls {options.calls}"
    return f"cargo xtask bridge --{part} {size} --seed {options.seed}"


def parse():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for part in PARTS:
        parser.add_argument(f"--{part}", action="store_true", help=f"only the part {part}")
    parser.add_argument("--calls", type=int, help="of each run")
    parser.add_argument("--trials", type=int, default=12, help="of the order")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", action="store_true",
                        help="put the figures of the parts into docs/bridge.md, if all is well")
    options = parser.parse_args()
    options.parts = [part for part in PARTS if getattr(options, part)] or list(PARTS)
    if options.write and not options.calls and options.parts != ["order"]:
        parser.error("--write needs --calls")
    return options


def main():
    """Runs the parts and judges what was seen."""
    options = parse()
    try:
        rejoin.peers.install(NEEDED)
    except rejoin.peers.PeersMissing as missing:
        print(f"The stock peers are not ready: {missing}", file=sys.stderr)
        return 2
    print(f"seed {options.seed}", flush=True)
    outcomes = run_all(options)
    faults = sum(len(outcome.faults) for own in outcomes.values() for outcome in own)
    for part, own in outcomes.items():
        print(f"\n{part}\n{bridge_outcome.table(own)}")
        if options.write and not faults:
            bridge_outcome.write(part, own, command(part, options))
    print(f"\n{sum(map(len, outcomes.values()))} runs, {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
