"""What `crash.py` recorded of a session, and what must hold of it."""

from collections import Counter
from dataclasses import dataclass, field

from crash_gateway import OWED_GRACE_MS, RESET_WINDOW_MS

RECORDED = "dev.rejoin/recorded"
OUTCOME_UNKNOWN, STATE_LOST, WITHDRAWN = 40_906, 40_907, 40_908
# Refusals that ask to come again: the answer is owed, in flight, or a replay runs.
NOT_YET = (40_901, 40_902, 40_905)
# A restart this soon after a call's end leaves its delivery in doubt.
DOUBT_SECONDS = max(OWED_GRACE_MS, RESET_WINDOW_MS) / 1_000


@dataclass
class Stream:
    """A call's stream: every connection that carried it, and a replay of all of it."""

    name: str
    carried: list = field(default_factory=list)
    replay: object = None

    def read_through(self):
        """The id of the last event that was read."""
        seqs = [event.seq for exchange in self.carried for event in exchange.events]
        return f"{self.name}-{max(seqs)}"

    def origin(self):
        """The cursor before its first event."""
        return f"{self.name}-0"

    def problems(self):
        """What of it was lost, changed, repeated or reordered."""
        if self.replay is None or self.replay.end != "whole" or self.replay.status != 200:
            yield f"stream {self.name} could not be replayed from its origin: {self.replay}"
            return
        whole = messages_of(self.replay, self.name)
        for exchange in self.carried:
            cursor = int(exchange.cursor.rsplit("-", 1)[1]) if exchange.cursor else 0
            read = messages_of(exchange, self.name)
            expected = [event for event in whole if event.seq > cursor][:len(read)]
            if read != expected:
                yield (f"what was read of stream {self.name} is not what is replayed: "
                       f"{[str(event) for event in read]}, then "
                       f"{[str(event) for event in expected]}")


def messages_of(exchange, name):
    """The messages of one stream, without events that only tell a cursor."""
    return [event for event in exchange.events if event.stream == name and event.data]


@dataclass
class Attempt:
    """One POST of a call."""

    request_id: int
    exchange: object
    # How often the gateway had been started before.
    life: int
    stream: Stream = None
    # True if its session is known to have no stream for it.
    has_no_stream: bool = False

    def carried(self):
        """The connections on which its answer may have come."""
        if self.stream is None:
            return [self.exchange]
        return [self.exchange, *self.stream.carried, *filter(None, [self.stream.replay])]

    def answer(self):
        """The JSON-RPC response, by whatever connection it came."""
        return next(filter(None, (one.answer(self.request_id) for one in self.carried())), None)

    def outcome(self):
        """What became of it, in a word."""
        answer = self.answer()
        if answer is None:
            never_sent = self.exchange.end == "refused" or self.exchange.status == 503
            return "not admitted" if never_sent or self.has_no_stream else "lost"
        if "result" in answer:
            return "record" if RECORDED in answer["result"].get("_meta", {}) else "result"
        code = answer["error"]["code"]
        names = {OUTCOME_UNKNOWN: "unknown", STATE_LOST: "state lost", WITHDRAWN: "withdrawn"}
        if code in names:
            return names[code]
        return "refused" if 40_900 < code < 41_000 else f"error {code}"

    def began(self):
        """True if its client read of it before a kill, and not its answer: what a client reads was
        committed, and with it how far the server's own stream was read.
        """
        own = self.stream and messages_of(self.exchange, self.stream.name)
        return bool(own) and self.exchange.answer(self.request_id) is None

    def content(self):
        """The result, without the mark of a record."""
        answer = self.answer()
        return {key: value for key, value in answer["result"].items() if key != "_meta"}


@dataclass
class Call:
    """What is asked for, once or several times, with the same params."""

    amount: int
    arguments: dict
    token: str = None
    attempts: list = field(default_factory=list)
    # Deliberate calls with the same params: each may run.
    twins: int = 1
    # When the gateway was last killed, and when it was back.
    killed: float = None
    restarted: float = None

    def outcomes(self):
        """How often it had which outcome."""
        return Counter(attempt.outcome() for attempt in self.attempts)

    def went_on(self):
        """How many attempts that had begun before a kill ended in a result."""
        return sum(one.began() and one.outcome() == "result" for one in self.attempts)

    def problems(self, ran, outlived):
        """What was done with it that must not be; `ran` is how often it was executed, `outlived`
        is true if its server outlives the gateways and keeps what it said.
        """
        outcomes = self.outcomes()
        if outlived:
            if outcomes["state lost"]:
                yield f"its server has lost nothing: {dict(outcomes)}"
            for attempt in self.attempts:
                if attempt.began() and attempt.outcome() == "unknown":
                    yield f"it had begun, and was not picked up: {attempt.exchange}"
        told = f"{self.token and 'with token'} {dict(outcomes)}, executed {ran} time(s)"
        may_run = outcomes["result"] + outcomes["lost"] + outcomes["unknown"]
        at_most = min(self.twins, max(may_run, 1 if outcomes["record"] else 0))
        if self.may_be_new():
            at_most = max(at_most, may_run)
        if ran > at_most:
            yield f"executed more than {at_most} time(s): {told}"
        if ran < max(outcomes["result"], 1 if outcomes["record"] else 0):
            yield f"answered and not executed: {told}"
        if set(outcomes) == {"lost"}:
            yield f"it has no end: {told}"
        for attempt in self.attempts:
            outcome = attempt.outcome()
            if outcome.startswith("error"):
                yield f"an error that is neither result nor unknown: {attempt.answer()}"
            if outcome == "lost" and attempt.stream is not None:
                yield f"its stream has no end: {attempt.exchange}"
        if self.twins == 1 and not self.may_be_new():
            contents = [attempt.content() for attempt in self.attempts
                        if attempt.outcome() in ("result", "record")]
            if any(content != contents[0] for content in contents):
                yield f"its result changed: {contents}"

    def may_be_new(self):
        """True if a repeat may be a new call, as its answer may count as delivered: a client that
        may have had it closed before the kill, or the restart was too late to put it in doubt.
        """
        if self.token is not None or self.restarted is None:
            return False
        is_late = self.restarted - self.attempts[0].exchange.written > DOUBT_SECONDS
        return is_late or any(
            one.ended < self.killed and one.may_have_answer(attempt.request_id)
            for attempt in self.attempts for one in attempt.carried())
