"""How long the gateway itself had each call, from the moments in its log.

A client's clock also counts the client: its event loop, its new connections, its share of a busy
processor. What the gateway did between two of its own lines is its own, busy processor included.
"""

import collections

from gateway import fields, moment_ms


class GatewayTimes:
    """Follows the calls of one gateway through its log."""

    def __init__(self, log):
        # Pairs of moments: from the first decision on a request to its call being sent, waits
        # included; and from a call's result being known to its last byte being handed over.
        self.spans_ms = []
        self._decided = {}
        self._calls = {}
        # The newest is taken first: a result answered as JSON moves no stream and stays behind.
        self._finished = collections.defaultdict(list)
        self._records = collections.Counter()
        for line in log:
            if " decided " in line:
                self._take_decision(moment_ms(line), fields(line))
            elif "a call moved" in line:
                self._take_call(moment_ms(line), fields(line))
            elif 'from="live" to="ending"' in line:
                self._take_ending(moment_ms(line), fields(line)["session"])

    def most_ms(self):
        """The longest time of any call in either direction."""
        return max((end - begin for begin, end in self.spans_ms), default=0)

    def _take_decision(self, now_ms, known):
        request = known["session"], known["connection"]
        began_ms = self._decided.setdefault(request, now_ms)
        if known["verdict"] == "claim":
            self._calls[known["session"], known["call"]] = began_ms
        elif known["verdict"] in ("record", "collect"):
            self._records[known["session"]] += 1

    def _take_call(self, now_ms, known):
        session = known["session"]
        began_ms = self._calls.get((session, known["call"]))
        if known["to"] == "sent" and began_ms is not None:
            self.spans_ms.append((began_ms, now_ms))
        elif known["to"] == "finished":
            self._finished[session].append(now_ms)

    def _take_ending(self, now_ms, session):
        if self._records[session]:
            self._records[session] -= 1
        elif self._finished[session]:
            self.spans_ms.append((self._finished[session].pop(), now_ms))
