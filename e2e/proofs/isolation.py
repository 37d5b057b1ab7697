"""Isolation: a second principal that knows everything of a session learns and disturbs nothing.

    python3 e2e/proofs/isolation.py [--tries N]

It knows the session id, event ids and dedup tokens of another principal, and presents them on
POST, GET and DELETE. Each answer must have the bytes of the answer to a made-up session, and take
as long: the medians of N tries (1,000), taken turn about, must be within 10 % of each other. The
owner's call, which runs meanwhile, must end whole, once. The exit status is 0 if all that holds.
"""

import argparse
import secrets
import statistics
import sys
import time

import rejoin

OWNER = {"Authorization": "Bearer owner"}
SECOND = {"Authorization": "Bearer second"}
TOKEN = "token-of-the-owner"
EVENTS, INTERVAL_MS = 3_000, 20
RATIO_MAX = 1.10


def requests_with(session, cursor):
    """What a principal may try: (name, method, header fields, body)."""
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
    answer = {"jsonrpc": "2.0", "id": 1, "result": {}}
    charge = rejoin.call(7, "charge", {"amount": 7})
    stream = {"Accept": "text/event-stream"}
    return [
        ("POST call", "POST", session, charge),
        ("POST call with token", "POST", {**session, "Idempotency-Key": TOKEN}, charge),
        ("POST call with ack", "POST", {**session, "Mcp-Stream-Ack": cursor}, charge),
        ("POST ping", "POST", session, ping),
        ("POST cancel", "POST", session, cancel),
        ("POST response", "POST", session, answer),
        ("GET", "GET", {**session, **stream}, None),
        ("GET with cursor", "GET", {**session, **stream, "Last-Event-ID": cursor}, None),
        ("DELETE", "DELETE", session, None),
    ]


def compare(gateway, known, made_up, tries):
    """Answers and medians of one request to a known and to a made-up session."""
    connection = gateway.connect()
    name, method, headers, body = known
    answers, times = {}, {True: [], False: []}
    for attempt in range(tries + 20):
        for is_known in (True, False) if attempt % 2 else (False, True):
            headers = known[2] if is_known else made_up[2]
            start = time.perf_counter_ns()
            answer = rejoin.exchange(connection, method, headers, body)
            if attempt >= 20:
                times[is_known].append(time.perf_counter_ns() - start)
            if answers.setdefault(is_known, answer) != answer:
                return name, "answers differ from try to try", None
    connection.close()
    if answers[True] != answers[False]:
        return name, f"known {answers[True]}, made up {answers[False]}", None
    medians = [statistics.median(times[is_known]) / 1000 for is_known in (True, False)]
    ratio = max(medians) / min(medians)
    verdict = "ok" if ratio <= RATIO_MAX else f"medians differ by more than {RATIO_MAX}"
    return name, verdict, (answers[True][0], *medians, ratio)


def main():
    """Runs the tries and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tries", type=int, default=1_000)
    tries = parser.parse_args().tries
    failures = 0
    with rejoin.Gateway() as gateway:
        owner = rejoin.initialize(gateway.connect(), OWNER)
        running = gateway.connect()
        running.request("POST", "/mcp", rejoin.json.dumps(rejoin.call(
            7, "charge", {"amount": 7, "events": EVENTS, "interval_ms": INTERVAL_MS})),
            {**owner, "Idempotency-Key": TOKEN, "Accept": rejoin.ACCEPT,
             "Content-Type": "application/json"})
        stream = running.getresponse()
        cursor = next(line for line in iter(stream.readline, b"") if line.startswith(b"id:"))
        cursor = cursor.decode().split(":", 1)[1].strip()
        # Its own session, so that it is a principal like any other.
        second = rejoin.initialize(gateway.connect(), SECOND)
        known = {**SECOND, "Mcp-Session-Id": owner["Mcp-Session-Id"],
                 "Mcp-Protocol-Version": rejoin.REVISION}
        made_up_id = owner["Mcp-Session-Id"][:-16] + secrets.token_hex(8)
        made_up = {**known, "Mcp-Session-Id": made_up_id}
        print(f"{'request':24} {'status':>6} {'known us':>9} {'made up':>9} {'ratio':>6}")
        pairs = zip(requests_with(known, cursor), requests_with(made_up, cursor))
        for pair in pairs:
            name, verdict, figures = compare(gateway, *pair, tries)
            failures += verdict != "ok"
            row = "{:>6} {:>9.1f} {:>9.1f} {:>6.3f}".format(*figures) if figures else ""
            print(f"{name:24} {row} {verdict}", flush=True)
        failures += in_its_own_session(gateway, second, cursor, tries)
        failures += undisturbed(gateway, owner, stream)
    print(f"{failures} failed")
    return 1 if failures else 0


def in_its_own_session(gateway, second, cursor, tries):
    """The owner's cursor in the second principal's session is any unknown cursor."""
    stream = {"Accept": "text/event-stream"}
    epoch, number, seq = cursor.split("-")
    unknown = "-".join((f"{int(epoch, 16) ^ 1:0{len(epoch)}x}", number, seq))
    pair = [("GET, own session", "GET", {**second, **stream, "Last-Event-ID": a_cursor}, None)
            for a_cursor in (cursor, unknown)]
    name, verdict, figures = compare(gateway, *pair, tries)
    row = "{:>6} {:>9.1f} {:>9.1f} {:>6.3f}".format(*figures) if figures else ""
    print(f"{name:24} {row} {verdict}", flush=True)
    return verdict != "ok"


def undisturbed(gateway, owner, stream):
    """The owner's call goes on to its end, whole and once, and its session lives."""
    numbers, result = [], None
    for line in iter(stream.readline, b""):
        if line.startswith(b"data:") and line.strip() != b"data:":
            message = rejoin.json.loads(line[5:])
            if message.get("method") == "notifications/progress":
                numbers.append(message["params"]["progress"])
            elif message.get("id") == 7:
                result = message.get("result")
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    status, _, _ = rejoin.exchange(gateway.connect(), "POST", owner, ping)
    # The cursor was the origin's: the first event is behind it.
    whole = numbers == list(range(1, EVENTS + 1)) and result is not None
    ran = gateway.executions()
    print(f"the owner's call: {len(numbers)} of {EVENTS} events, "
          f"{'a result' if result else 'no result'}, executed {ran} time(s); ping {status}")
    return not whole or ran != 1 or status != 200


if __name__ == "__main__":
    sys.exit(main())
