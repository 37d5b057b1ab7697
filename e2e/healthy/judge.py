"""What is right and what is not: the client's view, the gateway's counters, log and executions."""

import collections

import scripts
from gateway import fields, moment_ms
from timing import GatewayTimes

HOLD_MS = 100
# The share of calls that may be slow for reasons of the machine, and how many at least.
SLOW_SHARE, SLOW_MIN = 0.01, 2
LINES_SHOWN = 6
# Clients that close a connection when its answer has come.
KEEPS_NONE = ("py1", "py2", "rmcp")
# Posts that the gateway answered without running them.
RECORDS = ("record", "collect")
# What a client sees of them, and of refusals.
NOT_RUN = ("recorded", "refused")


class Verdict:
    """One script of one client over one upstream."""

    def __init__(self, upstream, client, script):
        self.upstream, self.client, self.script = upstream, client, script
        self.faults = []
        self.explained = []
        # Nothing is wrong but time in the client's view, which a busy machine takes too.
        self.is_slow_only = False
        self.outcomes = collections.Counter()
        self.over = []
        self.latencies = []
        self.sessions = self.resets = self.refusals = 0
        self.waits = []
        self.gateway_ms = self.records = self.holds = 0
        self.ran = None
        self._calls = []

    def take_client(self, lines):
        """What the client's application saw."""
        self._calls = [line for line in lines if line["saw"] == "call"]
        self.sessions = sum(1 for line in lines if line["saw"] == "session")
        self.outcomes.update(line["outcome"] for line in self._calls)
        meant = ("timeout", "aborted")
        whole = [line for line in self._calls if line["outcome"] not in meant]
        self.latencies = sorted(line["ms"] for line in whole)
        self.over = sorted(line["over_ms"] for line in whole)

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

    def take_gateway(self, metrics, log, stalls):
        """Judges what the gateway decided: refusals, records, waits. After `take_client`."""
        posts = collections.Counter()
        for (name, labels), value in metrics.items():
            if name == "rejoin_posts_total":
                posts[dict(labels)["verdict"]] += int(value)
        answered = self.outcomes["ok"] + self.outcomes["recorded"] + self.outcomes["refused"]
        if sum(posts.values()) < answered:
            # What has no session is passed through: that would prove nothing of the guard.
            self.faults.append(f"{answered} calls were answered, {sum(posts.values())} guarded")
        self.refusals = max(self.outcomes["refused"], posts["reject"])
        self.records = max(sum(posts[name] for name in RECORDS), self.outcomes["recorded"])
        decided = [line for line in log if " decided " in line]
        ended = [line for line in log if "a wait ended" in line]
        self.waits = [float(fields(line)["waited_ms"]) for line in ended]
        spans = [(moment_ms(line) - wait, moment_ms(line))
                 for line, wait in zip(ended, self.waits)]
        counted = metrics.get(("rejoin_held_seconds_count", ()), 0)
        if counted != len(self.waits):
            self.faults.append(f"{len(self.waits)} waits in the log, {counted:.0f} in the metrics")
        times = GatewayTimes(log)
        self.gateway_ms = times.most_ms()
        holds, stalled = long_spans(spans, stalls)
        self.holds = holds + stalled
        script, after_reset = self.script, refused_after_collect(decided, self.script)
        right = [
            self._is_explained("holds", holds, script.holds_explained, self.sessions),
            self._is_explained(
                "holds", stalled, f"the machine stalled meanwhile; without that, none was over "
                f"{HOLD_MS} ms", self._slow_most()),
            self._is_explained(
                "recorded answers", self.records, script.records_explained, self.resets),
            self._is_explained(
                "refusals", self.refusals, script.refusals_explained,
                min(after_reset, script.refusals_each * self.records)),
        ]
        if not all(right):
            self.faults += telling(decided, ended)
        self._judge_client()
        for name in ("rejoin_unknown_outcomes_total", "rejoin_upstream_restarts_total"):
            if metrics.get((name, ()), 0):
                self.faults.append(f"{name} is {metrics[name, ()]:.0f}")
        had, had_stalled = long_spans(times.spans_ms, stalls)
        if had > holds or had + had_stalled > self.holds + self._slow_most():
            self.faults.append(
                f"the gateway had {had + had_stalled} calls over {HOLD_MS} ms, at most "
                f"{self.gateway_ms:.0f} ms, and its waits account for {self.holds}")
        self._judge_slow()

    def _is_explained(self, what, number, reason, most):
        """Notes a number that should be 0: as explained up to its bound, else as a fault."""
        if reason and 0 < number <= most:
            self.explained.append(f"{number} {what} (at most {most}): {reason}")
        elif number:
            self.faults.append(f"{number} {what}, explained are {most if reason else 0}")
            return False
        return True

    def _judge_client(self):
        """Every call was answered, but for those that the script gives up or explains."""
        wanted = {
            "timeout": scripts.count(self.script.steps, "timeout"),
            "aborted": scripts.count(self.script.steps, "abort"),
            "refused": self.refusals if self.script.refusals_explained else 0,
        }
        seen = {name: self.outcomes[name] for name in wanted}
        wanted["answered"] = self.script.calls - sum(wanted.values())
        seen["answered"] = self.outcomes["ok"] + self.outcomes["recorded"]
        if seen == wanted:
            return
        self.faults.append(f"the client saw {dict(self.outcomes)}, wanted {wanted}")
        kinds = ("failed", "early") if self.script.refusals_explained else (
            "failed", "early", "refused")
        odd = [line for line in self._calls if line["outcome"] in kinds]
        self.faults += [f"{line['tool']}: {line['outcome']}: {str(line['detail'])[:300]}"
                        for line in odd[:LINES_SHOWN]]

    def _judge_slow(self):
        """Slow calls that the gateway did not hold: a few are the machine's, many are not."""
        slow = self.slow() - self.holds
        if slow > self._slow_most():
            self.is_slow_only = not self.faults
            self.faults.append(
                f"{slow} calls took over {HOLD_MS} ms more than their tool; the gateway had none "
                f"longer than {self.gateway_ms:.0f} ms")

    def _slow_most(self):
        return max(SLOW_MIN, int(SLOW_SHARE * self.script.calls))

    def slow(self):
        """Calls that took over HOLD_MS more than their tool, in the client's view."""
        return sum(1 for over in self.over if over > HOLD_MS)

    def expected(self):
        """How often each tool must have run: once for each call that was not answered without."""
        return dict(collections.Counter(
            line["tool"] for line in self._calls if line["outcome"] not in NOT_RUN))

    def has_ran(self, ran):
        """Whether every call has run by now."""
        return ran is None or sum(ran.values()) >= sum(self.expected().values())

    def take_executions(self, ran):
        """Compares with the count file of the server, if it keeps one."""
        if ran is None:
            return
        self.ran = sum(ran.values())
        if ran != self.expected():
            self.is_slow_only = False
            self.faults.append(f"executions {ran}, expected {self.expected()}")

    def row(self):
        """The cells of the table."""
        last = self.latencies[-1] if self.latencies else 0
        rank = min(len(self.latencies) - 1, int(len(self.latencies) * 0.99))
        p99 = self.latencies[rank] if self.latencies else 0
        expected = sum(self.expected().values())
        ran = "-" if self.ran is None else f"{self.ran}/{expected}"
        return (self.upstream, self.client, self.script.name, self.outcomes.total(),
                self.refusals, self.holds, self.records, self.slow(),
                f"{max(self.waits, default=0):.0f}", f"{self.gateway_ms:.0f}", f"{p99:.1f}",
                f"{last:.1f}", ran,
                "FAIL" if self.faults else "ok")


def long_spans(spans, stalls):
    """How many spans were over HOLD_MS, and how many more only because the machine stalled."""
    over = [span for span in spans if span[1] - span[0] > HOLD_MS]
    alone = sum(1 for begin, end in over if end - begin - stalls.within_ms(begin, end) > HOLD_MS)
    return alone, len(over) - alone


def refused_after_collect(decided, script):
    """How many refusals the script explains: row 13, of a call whose record was collected after a
    reset less than `owed_grace` before."""
    collected = {}
    explained = 0
    for line in decided:
        known = fields(line)
        call = known["session"], known.get("original")
        if known["verdict"] == "collect" and known["row"] == "11":
            collected[call] = moment_ms(line)
        elif known["verdict"] == "reject" and known["row"] == "13" and call in collected:
            since_ms = moment_ms(line) - collected[call]
            explained += since_ms <= script.refused_ms + HOLD_MS
    return explained


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


HEAD = ("upstream", "client", "script", "calls", "refused", "holds", "records", "slow", "wait ms",
        "gateway ms", "p99 ms", "max ms", "executions", "")


def report(verdicts, stalls):
    """Prints the table and what explains its numbers; how many rows failed."""
    rows = [HEAD, *(tuple(map(str, verdict.row())) for verdict in verdicts)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    print()
    for row in rows:
        cells = (cell.ljust(width) if column < 3 else cell.rjust(width)
                 for column, (cell, width) in enumerate(zip(row, widths)))
        print("  ".join(cells).rstrip())
    print("\nholds: waits over 100 ms in the gateway; records: answers from the record; slow: "
          "calls that took\nover 100 ms more than their tool; wait, gateway: the longest wait, and "
          "the longest time that the\ngateway itself had a call; p99, max: the client's view; "
          "executions: by the server's own count / expected.")
    print(stalls)
    made = collections.Counter()
    for verdict in verdicts:
        made[verdict.upstream, verdict.client] += verdict.outcomes.total()
    print("calls: " + ", ".join(f"{number:,} {client} over {upstream}"
                                for (upstream, client), number in made.items()))
    lines = [f"{verdict.upstream}, {verdict.client}, {verdict.script.name}: {line}"
             for verdict in verdicts for line in verdict.explained]
    print("\nexplained:" if lines else "\nnothing to explain")
    for line in lines:
        print(f"  {line}")
    failed = sum(1 for verdict in verdicts if verdict.faults)
    print(f"\n{len(verdicts) - failed} passed, {failed} failed")
    return failed
