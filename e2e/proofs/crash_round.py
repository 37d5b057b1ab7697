"""One round of `crash.py`: calls, a kill, a restart, and clients that come back."""

import itertools
import random
import threading
import time

import rejoin
from crash_gateway import OWED_GRACE_MS, NotStarted
from crash_history import NOT_YET, OUTCOME_UNKNOWN, Attempt, Call, Stream, messages_of
from crash_wire import ANSWER_SECONDS, Cut, Exchange

# A call is settled, by whatever it takes, within this.
SETTLE_SECONDS = 20.0
# A kill that waits for a line of the log waits no longer.
TRIGGER_SECONDS = 0.4
# What Rejoin logs on a call's way: claim decided, durable, sent, finished, handed over.
TRIGGERS = ('verdict="claim"', "a call goes to the server", 'to="sent"', 'to="finished"',
            'to="ending"')
STREAMS_PROBED = 12
# Rounds go to as many gateways in turn: every third of each one's rounds repeats.
LANES = 6
USER_AGENTS = ("crash/1", "crash/1", "python-httpx/0.28.1")


class Client:
    """A session, and the calls that were made in it."""

    def __init__(self, gateway, revision, agent):
        self._gateway, self.life = gateway, gateway.starts
        self.ids = itertools.count(1)
        self.calls, self.streams, self.exchanges = [], {}, []
        self.headers = {"Accept": rejoin.ACCEPT, "User-Agent": agent}
        params = {"protocolVersion": revision, "capabilities": {},
                  "clientInfo": {"name": "crash", "version": "1"}}
        opened = self.request("POST", {"jsonrpc": "2.0", "id": 0, "method": "initialize",
                                       "params": params}).wait()
        if opened.answer(0) is None or "mcp-session-id" not in opened.fields:
            raise NotStarted(f"initialize was not answered: {opened}")
        self.headers["Mcp-Session-Id"] = opened.fields["mcp-session-id"]
        self.headers["Mcp-Protocol-Version"] = revision

    def initialized(self):
        """Tells the server so; the status."""
        body = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        return self.request("POST", body).wait().status

    def request(self, method, body=None, cut=None, stays=False, **headers):
        """Sends a request; its exchange is recorded."""
        exchange = Exchange(self._gateway.port, method, {**self.headers, **headers}, body, cut,
                            stays)
        self.exchanges.append(exchange)
        return exchange

    def call(self, call, cut=None, stays=False):
        """Sends a call, or sends it again."""
        request_id = next(self.ids)
        body = rejoin.call(request_id, "charge", call.arguments)
        headers = {}
        if call.token and request_id % 2:
            headers = {"Idempotency-Key": call.token}
        elif call.token:
            body["params"]["_meta"]["dev.rejoin/dedup-token"] = call.token
        attempt = Attempt(request_id, self.request("POST", body, cut, stays, **headers),
                          self._gateway.starts)
        call.attempts.append(attempt)
        return attempt

    def take(self, attempt):
        """Notes the stream of an attempt whose exchange has ended."""
        events = attempt.exchange.wait().events
        if events and attempt.stream is None:
            name = events[0].stream
            attempt.stream = self.streams.setdefault(name, Stream(name))
            attempt.stream.carried.append(attempt.exchange)

    def get(self, cursor, cut=None):
        """Resumes a stream."""
        accept = {"Accept": "text/event-stream", "Last-Event-ID": cursor}
        return self.request("GET", None, cut, **accept)


class Round:
    """What one round does: chosen by its seed alone."""

    def __init__(self, lane, number, seed):
        self.lane, self.number, self.gateway = lane, number, lane.gateway
        self.chance = random.Random(f"{seed}/{number}")
        self.client, self.findings = None, []
        # The connection of the session's standalone stream, in some rounds.
        self.listener = None
        # When the next kill is due, once that is chosen.
        self.delay_s, self.at_line = None, False
        self.repeats = number // LANES % 3 == 2

    def run(self):
        """Runs it; findings are in `findings`."""
        chance, gateway = self.chance, self.gateway
        if not gateway.is_running():
            gateway.start(self.options())
        gateway.lines.clear()
        revision = chance.choice([rejoin.REVISION] * 4 + ["2025-06-18"])
        self.client = Client(gateway, revision, chance.choice(USER_AGENTS))
        kind = chance.choices(("calls", "fresh", "deleted"), (90, 5, 5))[0]
        if kind == "fresh":
            time.sleep(chance.uniform(0, 0.005))
            self.kill_and_restart()
        self.expect(202, self.client.initialized(), "notifications/initialized")
        for _ in range(chance.choices((0, 1, 2), (30, 50, 20))[0]):
            self.post([self.new_call(quick=True)])
        if kind == "deleted":
            return self.delete_and_kill()
        if chance.random() < 0.25:
            self.listen()
        self.make_calls()
        self.kill_and_restart()
        if chance.random() < 0.25:
            self.come_back_and_be_killed()
        self.settle()
        self.go_on()
        return None

    def options(self):
        """Options of a start: an operator may change them whenever Rejoin is started again."""
        chance = self.chance
        return [*(["--stateless-upstream"] if chance.random() < 0.5 else []),
                *(["--on-repeat", "join"] if chance.random() < 0.2 else []),
                *(["--repeat-scope", "principal"] if chance.random() < 0.2 else [])]

    def find(self, text):
        """Records a finding."""
        self.findings.append(text)

    def expect(self, status, found, what):
        """Finds fault with another status."""
        if found != status:
            self.find(f"{what} was answered {found}, not {status}")

    # Before the kill.

    def new_call(self, quick=False, twins=1):
        """A call of its own amount."""
        chance, amount = self.chance, next(self.lane.amounts)
        arguments = {"amount": amount, "events": chance.randrange(3 if quick else 9),
                     "interval_ms": 0 if quick else chance.choice((0, 1, 3, 8))}
        if not quick and chance.random() < 0.2:
            arguments["event_bytes"] = chance.choice((100, 4_000, 60_000))
        has_token = chance.random() < 0.5 and twins == 1
        token = f"token-{self.lane.name}-{amount}" if has_token else None
        call = Call(amount, arguments, token, twins=twins)
        self.client.calls.append(call)
        return call

    def post(self, calls):
        """Makes calls one after the other, and reads their answers."""
        for call in calls:
            attempt = self.client.call(call, stays=self.chance.random() < 0.5)
            self.client.take(attempt)
            while attempt.outcome() == "state lost" and len(call.attempts) < 3:
                attempt = self.client.call(call)
                self.client.take(attempt)
            if attempt.outcome() != "result":
                self.find(f"a call in peace was not answered: {attempt.exchange}")

    def listen(self):
        """Opens the standalone stream, and has the server say something there."""
        self.listener = self.client.request("GET")
        self.listener.was_written.wait(ANSWER_SECONDS)
        arguments, answer = {"count": self.chance.randrange(1, 20)}, None
        for _ in range(2):
            # The first may be told that the server's state was lost.
            request_id = next(self.client.ids)
            if "result" not in (answer or {}):
                posted = self.client.request("POST", rejoin.call(request_id, "notify", arguments))
                answer = posted.wait().answer(request_id)
        if "result" not in (answer or {}):
            self.find(f"notify was not answered: {posted}")

    def listen_again(self):
        """What was read of the standalone stream is still there."""
        if self.listener is None or not self.listener.wait().events:
            return
        name = self.listener.events[0].stream
        read = messages_of(self.listener, name)
        again = self.client.get(f"{name}-0", Cut(len(read) + 1, "close")).wait()
        if again.end != "cut" or messages_of(again, name) != read:
            self.find(f"what was read of the standalone stream is not what is replayed: "
                      f"{self.listener}, then {again}")
        self.lane.figures["standalone events"] += len(read)

    def cut(self):
        """How a client of this round leaves, if it does."""
        chance = self.chance
        if chance.random() < 0.4:
            return None
        after = chance.choice((0, 0, 1, 1, 2, 3, 5, 9))
        return Cut(after, chance.choice(("reset", "close", "stall")))

    def make_calls(self):
        """The calls in whose midst it is killed: some distinct, or some with the same params."""
        chance = self.chance
        count = chance.choices((1, 2, 3), (60, 25, 15))[0]
        self.arm_kill()
        if count > 1 and chance.random() < 0.4:
            calls = [self.new_call(twins=count)] * count
        else:
            calls = [self.new_call() for _ in range(count)]
        for call in calls:
            attempt = self.client.call(call, self.cut(), chance.random() < 0.5)
            attempt.exchange.was_written.wait(ANSWER_SECONDS)
            if chance.random() < 0.3:
                time.sleep(chance.uniform(0, 0.005))

    def arm_kill(self):
        """Chooses the point of the kill: some time from now, or a line of its log."""
        chance = self.chance
        self.gateway.watch()
        self.delay_s = chance.choice((0.003, 0.03, 0.03, 0.12)) * chance.random()
        self.at_line = chance.random() < 0.5
        if self.at_line:
            delay_s = chance.choice((0, 0, 0.001 * chance.random()))
            self.gateway.kill_at(chance.choice(TRIGGERS), delay_s)

    def kill_and_restart(self):
        """Kills it, reads what is left on the connections, and starts it again."""
        gateway, chance = self.gateway, self.chance
        if self.delay_s is not None:
            deadline = time.monotonic() + (TRIGGER_SECONDS if self.at_line else self.delay_s)
            while gateway.is_running() and (left := deadline - time.monotonic()) > 0:
                time.sleep(min(left, 0.002))
            self.delay_s = None
        gateway.kill()
        killed = time.monotonic()
        for exchange in self.client.exchanges:
            exchange.leave()
        for call in self.client.calls:
            for attempt in call.attempts:
                self.client.take(attempt)
        for exchange in self.client.exchanges:
            if exchange.wait().end in ("hang", "garbled"):
                self.find(f"{exchange.end}: {exchange}")
        self.lane.count_points(gateway.points())
        if chance.random() < 0.15:
            # Killed while it starts.
            gateway.spawn()
            time.sleep(chance.uniform(0, 0.06))
            gateway.kill()
        gateway.start(self.options())
        for call in self.client.calls:
            call.killed, call.restarted = killed, time.monotonic()

    def delete_and_kill(self):
        """A session whose end was acknowledged is gone after the restart."""
        self.expect(204, self.client.request("DELETE").wait().status, "DELETE")
        self.kill_and_restart()
        ping = {"jsonrpc": "2.0", "id": next(self.client.ids), "method": "ping"}
        self.expect(404, self.client.request("POST", ping).wait().status, "a deleted session")
        self.client = None

    # After the restart.

    def come_back_and_be_killed(self):
        """Clients come back, and it is killed once more in the midst of that."""
        self.arm_kill()
        for call in self.client.calls:
            if self.repeats:
                self.client.call(call, self.cut())
            elif call.attempts[-1].stream is not None and call.attempts[-1].answer() is None:
                stream = call.attempts[-1].stream
                stream.carried.append(self.client.get(stream.read_through(), self.cut()))
        self.kill_and_restart()

    def settle(self):
        """Every stream is resumed to its end; in a third of the rounds all calls are repeated."""
        works = [(self.resume, attempt) for call in self.client.calls for attempt in call.attempts
                 if attempt.stream is not None and attempt.answer() is None]
        repeats = [(self.repeat, call) for call in self.client.calls] if self.repeats else []
        if self.repeats and self.chance.random() < 0.5:
            side_by_side(repeats)
            side_by_side(works)
        else:
            self.chance.shuffle(repeats)
            side_by_side(works + repeats)

    def resume(self, attempt):
        """Resumes a stream from what was read of it, until its answer is there."""
        deadline, stream = time.monotonic() + SETTLE_SECONDS, attempt.stream
        while attempt.answer() is None:
            if time.monotonic() > deadline:
                return self.find(f"stream {stream.name} had no end in {SETTLE_SECONDS} s: "
                                 f"{stream.carried[-1]}")
            exchange = self.client.get(stream.read_through()).wait()
            if exchange.status == 503:
                time.sleep(0.1)
                continue
            if exchange.status != 200 or exchange.end != "whole":
                return self.find(f"a cursor of stream {stream.name} was not resumed: {exchange}")
            if not exchange.events or exchange.events[0].id != exchange.cursor:
                self.find(f"a resumed stream does not begin with its cursor: {exchange}")
            stream.carried.append(exchange)
        return None

    def repeat(self, call):
        """Sends a call again until it has an answer, as a client that knows nothing does."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < deadline:
            attempt = self.client.call(call)
            self.client.take(attempt)
            exchange, answer = attempt.exchange, attempt.answer()
            if exchange.status == 503:
                time.sleep(0.1)
                continue
            if exchange.end != "whole" or answer is None:
                return self.find(f"a repeat was not answered: {exchange}")
            code = answer.get("error", {}).get("code")
            if "result" in answer or code == OUTCOME_UNKNOWN:
                return None
            is_read = any("result" in (one.answer() or {}) for one in call.attempts)
            if is_read and call.token is None and code in NOT_YET:
                # From now on it would be a deliberate new call.
                return None
            time.sleep(min(answer.get("error", {}).get("data", {}).get("retryAfterMs", 100),
                           OWED_GRACE_MS / 4) / 1_000)
        return self.find(f"a repeat was not settled in {SETTLE_SECONDS} s: "
                         f"{[str(attempt.exchange) for attempt in call.attempts[-2:]]}")

    def go_on(self):
        """Looks for streams of which nothing was read, replays all, and makes one more call."""
        client = self.client
        self.listen_again()
        if self.chance.random() < 0.5 or not client.streams:
            self.post([self.new_call(quick=True)])
        if client.streams:
            self.probe(next(iter(client.streams)).rsplit("-", 1)[0])
        for call in client.calls:
            # Only a repeat tells what became of it.
            if set(call.outcomes()) == {"lost"}:
                self.repeat(call)
        for stream in client.streams.values():
            stream.replay = client.get(stream.origin()).wait()

    def probe(self, epoch):
        """Tries the origins of streams that may be there: what was never read has an end too."""
        client = self.client
        lost = [attempt for call in client.calls for attempt in call.attempts
                if attempt.outcome() == "lost" and attempt.stream is None]
        unread = {attempt.request_id: attempt for attempt in lost}
        # Streams are numbered one by one, from further on after each start.
        known = [int(name.rsplit("-", 1)[1]) for name in client.streams]
        near = [number + step for number in known for step in range(-4, 5)]
        for number in sorted({*range(1, STREAMS_PROBED), *near} - set(known)):
            name = f"{epoch}-{number}"
            if number < 1 or not unread:
                continue
            exchange = client.get(f"{name}-0").wait()
            if exchange.end != "whole":
                self.find(f"an origin was not answered: {exchange}")
            answered = next((message["id"] for message in exchange.messages()
                             if message.get("id") in unread and "method" not in message), None)
            if answered is not None:
                stream = client.streams.setdefault(name, Stream(name))
                stream.carried.append(exchange)
                unread.pop(answered).stream = stream
        for attempt in unread.values():
            # All numbers that its session ever gave out before the first kill were tried.
            attempt.has_no_stream = attempt.life == client.life


def side_by_side(works):
    """Runs each in a thread of its own, and waits for all."""
    threads = [threading.Thread(target=work, args=(what,)) for work, what in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
