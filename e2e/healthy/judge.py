"""What is right and what is not: the client's view, the gateway's counters, log and executions."""

import collections

import scripts
from gateway import fields

HOLD_MS = 100
# The share of calls that may be slow for reasons of the machine, and how many at least.
SLOW_SHARE, SLOW_MIN = 0.01, 2
LINES_SHOWN = 6
# Clients that close a connection when its answer has come.
KEEPS_NONE = ("py1", "py2", "rmcp")
# Posts that the gateway answered without running them.
RECORDS = ("record", "collect")


class Verdict:
    """One script of one client."""

    def __init__(self, client, script):
        self.client, self.script = client, script
        self.faults = []
        self.explained = []
        self.outcomes = collections.Counter()
        self.tools = collections.Counter()
        self.over = []
        self.latencies = []
        self.sessions = self.resets = self.refusals = 0
        self.waits = []
        self.records = 0
        self.ran = None

    def take_client(self, lines):
        """Judges what the client's application saw."""
        calls = [line for line in lines if line["saw"] == "call"]
        self.sessions = sum(1 for line in lines if line["saw"] == "session")
        self.outcomes.update(line["outcome"] for line in calls)
        self.tools.update(line["tool"] for line in calls)
        meant = ("timeout", "aborted")
        whole = [line for line in calls if line["outcome"] not in meant]
        self.latencies = sorted(line["ms"] for line in whole)
        self.over = sorted(line["over_ms"] for line in whole)
        self.refusals = self.outcomes["refused"]
        wanted = {
            "timeout": scripts.count(self.script.steps, "timeout"),
            "aborted": scripts.count(self.script.steps, "abort"),
        }
        wanted["answered"] = self.script.calls - sum(wanted.values())
        seen = {name: self.outcomes[name] for name in meant}
        seen["answered"] = self.outcomes["ok"] + self.outcomes["recorded"]
        if seen != wanted:
            self.faults.append(f"the client saw {dict(self.outcomes)}, wanted {wanted}")
        odd = [line for line in calls if line["outcome"] in ("failed", "refused", "early")]
        self.faults += [f"{line['tool']}: {line['outcome']}: {str(line['detail'])[:300]}"
                        for line in odd[:LINES_SHOWN]]

    def take_way(self, way):
        """Whether the accidents of the script happened."""
        self.resets = way.resets
        wanted = self.script.resets
        if wanted and self.client in KEEPS_NONE:
            self.explained.append(f"{self.resets} resets: this client closes its connection "
                                  "after each answer, so hardly one is ever idle")
        elif self.resets < wanted:
            self.faults.append(f"{self.resets} idle connections were reset, wanted {wanted}")
        if way.get_cuts < self.script.get_cuts:
            self.faults.append(f"the standalone GET was cut {way.get_cuts} times, "
                               f"wanted {self.script.get_cuts}")

    def take_gateway(self, metrics, log):
        """Judges what the gateway decided: refusals, records, waits."""
        posts = collections.Counter()
        for (name, labels), value in metrics.items():
            if name == "rejoin_posts_total":
                posts[dict(labels)["verdict"]] += int(value)
        self.refusals = max(self.refusals, posts["reject"])
        self.records = max(sum(posts[name] for name in RECORDS), self.outcomes["recorded"])
        decided = [line for line in log if " decided " in line]
        ended = [line for line in log if "a wait ended" in line]
        self.waits = [float(fields(line)["waited_ms"]) for line in ended]
        counted = metrics.get(("rejoin_held_seconds_count", ()), 0)
        if counted != len(self.waits):
            self.faults.append(f"{len(self.waits)} waits in the log, {counted:.0f} in the metrics")
        holds = sum(1 for wait in self.waits if wait > HOLD_MS)
        unexplained = bool(self.refusals)
        for what, number, reason, most in (
            ("holds", holds, self.script.holds_explained, self.sessions),
            ("recorded answers", self.records, self.script.records_explained, self.resets),
        ):
            if reason and 0 < number <= most:
                self.explained.append(f"{number} {what} (at most {most}): {reason}")
            elif number:
                unexplained = True
                self.faults.append(f"{number} {what}, explained are {most if reason else 0}")
        if self.refusals:
            self.faults.append(f"{self.refusals} refusals: {dict(posts)}")
        if unexplained:
            self.faults += telling(decided, ended)
        self._judge_slow(holds)
        for name in ("rejoin_unknown_outcomes_total", "rejoin_upstream_restarts_total"):
            if metrics.get((name, ()), 0):
                self.faults.append(f"{name} is {metrics[name, ()]:.0f}")

    def _judge_slow(self, holds):
        """Slow calls that the gateway did not hold: a few are the machine's, many are not."""
        slow = self.slow() - holds
        if slow > max(SLOW_MIN, SLOW_SHARE * self.script.calls):
            self.faults.append(f"{slow} calls took over {HOLD_MS} ms more than their tool")

    def slow(self):
        """Calls that took over HOLD_MS more than their tool, in the client's view."""
        return sum(1 for over in self.over if over > HOLD_MS)

    def expected(self):
        """How often each tool must have run: once for each call, but for the recorded ones."""
        wanted = collections.Counter(self.tools)
        if self.records:
            wanted[scripts.Tools.charge[0]] -= self.records
        return dict(wanted)

    def has_ran(self, ran):
        """Whether every call has run by now."""
        return ran is None or sum(ran.values()) >= self.tools.total()

    def take_executions(self, ran):
        """Compares with the count file of the server, if it keeps one."""
        if ran is None:
            return
        self.ran = sum(ran.values())
        if ran != self.expected():
            self.faults.append(f"executions {ran}, expected {self.expected()}")

    def row(self):
        """The cells of the table."""
        holds = sum(1 for wait in self.waits if wait > HOLD_MS)
        last = self.latencies[-1] if self.latencies else 0
        rank = min(len(self.latencies) - 1, int(len(self.latencies) * 0.99))
        p99 = self.latencies[rank] if self.latencies else 0
        expected = sum(self.expected().values())
        ran = "-" if self.ran is None else f"{self.ran}/{expected}"
        return (self.client, self.script.name, self.outcomes.total(), self.refusals, holds,
                self.records, self.slow(), f"{max(self.waits, default=0):.0f}", f"{p99:.1f}",
                f"{last:.1f}", ran, "FAIL" if self.faults else "ok")


def telling(decided, ended):
    """The log lines of the first refusals, records and holds."""
    stopped = [line for line in decided
               if fields(line).get("verdict") in ("reject", *RECORDS)]
    held = []
    for end in ended:
        known = fields(end)
        if float(known["waited_ms"]) > HOLD_MS:
            same = (known["session"], known["connection"])
            held += [line for line in decided
                     if (fields(line).get("session"), fields(line).get("connection")) == same]
            held.append(end)
        if len(held) > LINES_SHOWN:
            break
    return [line[:300] for line in stopped[:LINES_SHOWN] + held[:LINES_SHOWN]]


HEAD = ("client", "script", "calls", "refused", "holds", "records", "slow", "wait ms",
        "p99 ms", "max ms", "executions", "")


def report(verdicts, stalls):
    """Prints the table and what explains its numbers; how many rows failed."""
    rows = [HEAD, *(tuple(map(str, verdict.row())) for verdict in verdicts)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    print()
    for row in rows:
        cells = (cell.ljust(width) if column < 2 else cell.rjust(width)
                 for column, (cell, width) in enumerate(zip(row, widths)))
        print("  ".join(cells).rstrip())
    print("\nholds: waits over 100 ms in the gateway; records: answers from the record; slow: "
          "calls that took\nover 100 ms more than their tool; executions: by the server's own "
          "count / expected.")
    print(stalls)
    lines = [f"{verdict.client}, {verdict.script.name}: {line}"
             for verdict in verdicts for line in verdict.explained]
    print("\nexplained:" if lines else "\nnothing to explain")
    for line in lines:
        print(f"  {line}")
    failed = sum(1 for verdict in verdicts if verdict.faults)
    print(f"\n{len(verdicts) - failed} passed, {failed} failed")
    return failed
