"""The bridge: a stock host that starts it sees nothing of the connections that are cut behind it.

    python3 e2e/proofs/bridge.py [--calls N] [--seed S]

The client of the Python SDK 2.x, over stdio, starts `rejoin bridge`. Between that and `rejoin
serve` each connection is reset after a number of bytes that the seed decides. The host makes N
calls (100), eight at a time, with progress. Each must run once and end with its result, and its
progress must come once and in order; only behind a result that is marked as recorded may the rest
of the progress be missing. The exit status is 0 if all that holds.
"""

import argparse
import asyncio
import json
import random
import subprocess
import sys
import threading

import rejoin

import cutter

AT_ONCE, EVENTS = 8, 10
# More than the list of tools, for which the SDK asks: an answer that is no stream must come whole.
BYTES_MAX = 16_000
CUTS_MIN = 10
RUN_SECONDS = 240


class Cutter:
    """A forwarder that resets each connection after so many bytes of the server."""

    def __init__(self, port, seed):
        self._target = port
        self._random = random.Random(seed)
        self._ready = threading.Event()
        self.port = 0
        self.cuts = 0
        threading.Thread(target=lambda: asyncio.run(self._listen()), daemon=True).start()
        if not self._ready.wait(10):
            raise RuntimeError("the cutter did not start to listen within 10 s")

    async def _listen(self):
        server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await server.serve_forever()

    async def _carry(self, reader, writer):
        left, ends, tasks = self._random.randint(1, BYTES_MAX), [writer], []
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._target)
            ends.append(up_writer)
            down = asyncio.ensure_future(copy(up_reader, writer, left))
            tasks = [down, asyncio.ensure_future(copy(reader, up_writer))]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if down.done() and down.result():
                self.cuts += 1
                for end in ends:
                    cutter.reset(end)
        except OSError:
            pass  # the server does not listen: the client is told so below
        finally:
            for task in tasks:
                task.cancel()
            for end in ends:
                end.close()


async def copy(reader, writer, left=sys.maxsize):
    """Carries bytes. Whether it was as many as it may."""
    try:
        while left > 0 and (data := await reader.read(min(left, 16 * 1024))):
            writer.write(data)
            await writer.drain()
            left -= len(data)
    except OSError:
        return False  # either side went away
    return left == 0


def faults(calls, all_seen):
    """What is wrong, in words; and how many results came from a record."""
    found, recorded = [], 0
    if [seen["amount"] for seen in all_seen] != list(range(1, calls + 1)):
        found.append(f"{len(all_seen)} calls of {calls} ended")
    for seen in all_seen:
        name, result = f"call {seen['amount']}", seen.get("result")
        if not result or result["amount"] != seen["amount"]:
            found.append(f"{name}: no result: {seen.get('error', result)}")
            continue
        recorded += seen["recorded"]
        whole = list(range(1, EVENTS + 1))
        wanted = whole[:len(seen["progress"])] if seen["recorded"] else whole
        if seen["progress"] != wanted or seen["late"]:
            found.append(f"{name}: progress {seen['progress']}, {seen['late']} of it late")
    executions = sorted(seen["result"]["execution"] for seen in all_seen if seen.get("result"))
    if executions != list(range(1, calls + 1)):
        found.append("two calls got the result of one execution")
    return found, recorded


def main():
    """Runs the host and judges what it saw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rejoin.peers.install(["py2"])
    with rejoin.Gateway("--limit", "retry_ms=20") as gateway:
        path = Cutter(gateway.port, options.seed)
        bridge = [rejoin.peers.rejoin_binary(), "bridge", "--no-proxy",
                  f"http://127.0.0.1:{path.port}/mcp"]
        client = rejoin.peers.python("py2", "py2_bridge.py", str(options.calls), str(AT_ONCE),
                                     str(EVENTS), "--", *bridge)
        done = subprocess.run(client, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=RUN_SECONDS, check=False)
        ran = gateway.executions()
    seen = [json.loads(line) for line in done.stdout.splitlines()]
    found, recorded = faults(options.calls, sorted(seen, key=lambda one: one["amount"]))
    if ran != options.calls:
        found.append(f"{ran} executions of {options.calls} calls")
    if path.cuts < CUTS_MIN:
        found.append(f"only {path.cuts} connections were cut")
    if found or done.returncode != 0:
        print(done.stderr[-4000:])
    for fault in found:
        print(fault)
    print(f"{options.calls} calls, {AT_ONCE} at a time, seed {options.seed}: {ran} executions, "
          f"{path.cuts} cuts, {recorded} results from a record, {len(found)} faults")
    return 1 if found or done.returncode != 0 else 0


if __name__ == "__main__":
    sys.exit(main())
