"""Rejoin is killed, or ended in order, and started again while a client has a session with it."""

import json
import signal
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from compatibility import batches, clients, gateways, outcomes
from compatibility.losses import EVENTS_FINISHED
from compatibility.scenario import (
    PATIENCE_SECONDS, Cell, Scenario, join, run as step,
)
from compatibility.seen import Seen, brief, expect
from cutter import Cutter

# The clients that the table shows.
CLIENTS = ("ts", "py2", "py1", "rmcp")
# How long nobody listens, beyond the start itself.
DOWN_SECONDS = 1
# How long a client may take to come so far that Rejoin may end.
DUE_SECONDS = batches.SCENARIO_SECONDS
# How long a client may take to find out that nobody listens.
MEANWHILE_SECONDS = 5
POLL_SECONDS = 0.02
INTERVAL_SECONDS = 0.05
# Half a second of them.
GAP_EVENTS_MAX = 10
# What Rejoin logs when a result is durable.
FINISHED = 'to="finished"'
STATELESS = "--stateless-upstream"
WAIT = {"do": "await_cuts", "count": 1}
# As applications do. Else the Python SDKs ask for the list right after a call's answer, when a
# Rejoin that was told to end is gone, and show that as the call's failure.
LIST = {"do": "list"}
UNKNOWN_CODE, UNKNOWN = 40906, (
    "The outcome is unknown. The server stopped, or said nothing for too long, while the call ran; "
    "it may have taken effect. Check before you repeat it."
)
STATE_LOST_CODE, STATE_LOST = 40907, (
    "Not run. The server ended, or no longer knows this session, and what it kept for the session "
    "is lost. Rebuild what the call depends on; then it is safe to send it again."
)


class Gateway(gateways.Gateway):
    """A gateway that keeps its log and its port."""

    port = 0

    def __init__(self, server, options):
        self._options = options
        self._starts = 0
        super().__init__(server)

    def _run(self, name, command, log_path):
        self._starts += 1
        return super()._run(name, command, log_path.with_name(f"{self._starts}-{log_path.name}"))

    def _rejoin_command(self):
        command = super()._rejoin_command()
        command[command.index("--listen") + 1] = f"127.0.0.1:{self.port}"
        log = ["--log", "info,rejoin_gateway::telemetry=debug"]
        data = ["--data", str(self.server.folder / "data")]
        at = command.index("serve") + 1
        return [*command[:at], *log, *data, *self._options, *command[at:]]

    def restart(self, by, meanwhile):
        """Ends it by a signal and starts it on the same port."""
        complaint = self._programs[-1].stop(by)
        if complaint:
            raise RuntimeError(complaint)
        meanwhile()
        time.sleep(DOWN_SECONDS)
        self._run("rejoin", self._rejoin_command(), self._log_path)


class Control:
    """Where a driver waits for the restart. By asking it says that it has come so far."""

    def __init__(self):
        self.asked = 0
        self._cuts = []
        control = self

        class Handler(BaseHTTPRequestHandler):
            """Answers `/state`, as the cutter does."""

            def do_GET(self):
                control.asked += 1
                body = json.dumps({"cuts": control._cuts}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def tell(self):
        """The driver goes on."""
        self._cuts.append(True)

    def stop(self):
        self._server.shutdown()
        self._server.server_close()


class Restart(Scenario):
    """What an application does before and after one restart."""

    # By which signal Rejoin ends, what it is started with, and in front of what.
    by = signal.SIGKILL
    options = (STATELESS,)
    servers = ("tools",)
    events = 0

    def call(self, cell):
        return cell.server.long(cell.tag, self.events, INTERVAL_SECONDS)

    def plan(self, cell):
        return None

    def is_due(self, gateway, plan):
        """Whether Rejoin may end now that the driver waits for that."""
        return True

    def meanwhile(self, control):
        """What the driver does while nobody listens."""


class Idle(Restart):
    name = "killed, idle"
    words = "Rejoin is killed (SIGKILL) between two calls"

    def steps(self, cell):
        before = step("before", cell.server.short())
        return [LIST, before, WAIT, step("A", self.call(cell), seconds=PATIENCE_SECONDS)]

    def outcome(self, cell, seen):
        seen.result("before", cell.server.short().text)
        seen.result("A", self.call(cell).text)
        return outcomes.OK


class Stateful(Idle):
    name = "killed, a server with state"
    words = "as *killed, idle*, but without `--stateless-upstream`, which is the default"
    options = ()

    def steps(self, cell):
        again = step("B", self.call(cell), seconds=PATIENCE_SECONDS)
        return [*super().steps(cell), again]

    def outcome(self, cell, seen):
        error = cell.client.refusal.read(seen.one("error", "A"))
        expect((error["code"], error["message"]) == (STATE_LOST_CODE, STATE_LOST), brief(error))
        seen.result("B", self.call(cell).text)
        return outcomes.STATE_LOST


class Meanwhile(Idle):
    name = "killed, a call meanwhile"
    words = "as *killed, idle*, and a call is made before Rejoin is started again"

    def steps(self, cell):
        up_again = {**WAIT, "count": 2}
        return [*super().steps(cell), up_again, step("B", self.call(cell))]

    def meanwhile(self, control):
        asked = control.asked
        control.tell()
        # It sees that, makes its call, and asks for the next, if it still lives.
        deadline = time.monotonic() + MEANWHILE_SECONDS
        while control.asked < asked + 2 and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)

    def outcome(self, cell, seen):
        expect(not seen.all("result", "A"), "the call was answered although nobody listened")
        if not seen.all("end"):
            expect(not seen.all("result", "B"), "the client ended after its last call")
            return outcomes.CLIENT_ENDS
        seen.one("error", "A")
        seen.result("B", self.call(cell).text)
        return outcomes.CANNOT_CONNECT


class Running(Restart):
    name = "killed, a call runs"
    words = "Rejoin is killed while a call runs and sends progress"
    events = 400

    def steps(self, cell):
        return [
            LIST,
            step("A", self.call(cell), "start", PATIENCE_SECONDS),
            {"do": "await_progress", "call": "A", "count": 3},
            WAIT,
            join("A"),
            step("B", cell.server.short(), seconds=PATIENCE_SECONDS),
        ]

    def outcome(self, cell, seen):
        seen.result("B", cell.server.short().text)
        if seen.all("result", "A"):
            seen.result("A", self.call(cell).text)
            return outcomes.OK
        error = seen.one("error", "A")
        message = error["message"].removeprefix(f"MCP error {UNKNOWN_CODE}: ")
        expect((error.get("code"), message) == (UNKNOWN_CODE, UNKNOWN), brief(error))
        came = seen.progress("A")
        expect(sorted(set(came)) == list(range(1, len(set(came)) + 1)), f"progress: {came}")
        return outcomes.UNKNOWN


class RunningAtUrl(Running):
    name = "killed, a call runs at a URL"
    words = ("as *killed, a call runs*, in front of `fastmcp` at a URL, which keeps its events: it "
             "outlives Rejoin, and the call is picked up where it was (PyPI `mcp` may drop "
             "progress itself)")
    options = ()
    servers = ("fastmcp",)
    events = 80

    def outcome(self, cell, seen):
        seen.result("A", self.call(cell).text)
        wanted, came = cell.server.progress(self.events), seen.progress("A")
        expect(has_at_most_one_gap(wanted, came), f"progress: {came}")
        seen.result("B", cell.server.short().text)
        return outcomes.OK


def has_at_most_one_gap(wanted, came):
    """Where this server's replay meets what it sends live, it may drop what comes meanwhile, which
    on a busy machine is more than one event: PyPI mcp. It replays once; nothing else is missing."""
    missing = len(wanted) - len(came)
    gaps = (wanted[:at] + wanted[at + missing:] for at in range(len(wanted)))
    return 0 <= missing <= GAP_EVENTS_MAX and came in gaps


class ToCome(Restart):
    name = "killed, an answer to come"
    words = ("a call's stream is cut, the call ends, and Rejoin is killed before the client has "
             "come back for the answer")
    events = EVENTS_FINISHED

    def plan(self, cell):
        return Scenario.plan(self, cell)

    def cuts(self, cell):
        return (("clean", 1),)

    def is_due(self, gateway, plan):
        # The list has a result, too.
        return bool(plan.done) and gateway.log().count(FINISHED) >= 2

    def steps(self, cell):
        return [
            LIST,
            step("A", self.call(cell), "start", PATIENCE_SECONDS),
            WAIT,
            join("A"),
            step("B", cell.server.short(), seconds=PATIENCE_SECONDS),
        ]

    def outcome(self, cell, seen):
        expect(seen.cut() == ["clean"], f"the stream was cut {seen.cut()}")
        seen.result("A", self.call(cell).text)
        wanted = cell.server.progress(self.events)
        expect(seen.progress("A") == wanted, f"progress: {seen.progress('A')}")
        seen.result("B", cell.server.short().text)
        return outcomes.OK


class IdleEnd(Idle):
    name = "ended, idle"
    words = "Rejoin is ended in order (SIGTERM) between two calls"
    by = signal.SIGTERM


class RunningEnd(Running):
    name = "ended, a call runs"
    words = "Rejoin is told to end while a call runs: it lets the call finish first"
    by = signal.SIGTERM
    events = 60


class ToComeEnd(ToCome):
    name = "ended, an answer to come"
    words = "Rejoin is told to end when a call has ended and its client has yet to come back"
    by = signal.SIGTERM


ALL = {
    scenario.name: scenario
    for scenario in (
        Idle(), Meanwhile(), Stateful(), Running(), RunningAtUrl(), ToCome(), IdleEnd(),
        RunningEnd(), ToComeEnd(),
    )
}


def cell(client, server, scenario):
    """The cell of a scenario; its gateway is its own, and so is its tag."""
    return Cell(clients.ALL[client], server, 1 + list(ALL).index(scenario))


def run(gateway, batch):
    """Runs one scenario: a list with its result."""
    (own, scenario), = batch
    plan, control, trouble = scenario.plan(own), Control(), []
    cutter = Cutter("127.0.0.1", gateway.port, [plan]).start() if plan else None
    restarter = threading.Thread(target=restart, args=(gateway, scenario, plan, control, trouble))
    restarter.start()
    try:
        port = cutter.port if cutter else gateway.port
        urls = [f"http://127.0.0.1:{port}/mcp", f"http://127.0.0.1:{control.port}"]
        command = [*batches.peers.client_command(own.client.name), *urls]
        lines, fault = batches.drive(command, scenario.steps(own), batches.SCENARIO_SECONDS)
    finally:
        restarter.join()
        control.stop()
        if cutter:
            cutter.stop()
    trouble = "; ".join([*trouble, *([fault] if fault else [])])
    return [batches.judge(gateway, own, scenario, Seen(lines, plan), trouble)]


def restart(gateway, scenario, plan, control, trouble):
    """Restarts Rejoin once the driver waits for it, and lets the driver go on."""
    deadline = time.monotonic() + DUE_SECONDS
    try:
        while not (control.asked and scenario.is_due(gateway, plan)):
            if time.monotonic() > deadline:
                raise RuntimeError(f"it was not time for the restart within {DUE_SECONDS} s")
            time.sleep(POLL_SECONDS)
        gateway.restart(scenario.by, lambda: scenario.meanwhile(control))
    except (RuntimeError, OSError) as error:
        trouble.append(str(error))
    finally:
        control.tell()
