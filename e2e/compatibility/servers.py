"""The stock servers behind Rejoin: how each is started, and what to call there.

Their tools differ: a `Server` names those that the scenarios need, and says which it lacks.
"""

import json
import re
from dataclasses import dataclass

import peers

HERE = peers.HERE
SERVERS = HERE / "servers"
RUST_SERVER = SERVERS / "rmcp"
# The conformance server's folder: they have the same dependencies.
RUST_BINARY = HERE.parent / "target/e2e-conformance/debug/rmcp-tools"
BUILD_SECONDS = 900
# A stream is ended after the first event, which is only an id, then thrice within the answer. The
# two abrupt ends are apart: after two in a row the Python clients give up.
CUTS = (("clean", 1), ("rst", 4), ("clean", 4), ("truncate", 4))
# The same where the answer is all there is.
CUTS_OF_ONE = (("clean", 1), ("rst", 1), ("clean", 1), ("truncate", 1))
NO_LONG = "it has no tool that runs long"
NO_PROGRESS = "it has no tool that reports progress"
NO_QUESTION = "it has no tool that asks the client"


def version(registry, package):
    """The pinned version of a server's package."""
    if registry == "npm":
        packages = json.loads((HERE / "package-lock.json").read_text())["packages"]
        return packages[f"node_modules/{package}"]["version"]
    if registry == "PyPI":
        venv = "fastmcp" if package == "fastmcp" else "py2"
        pins = (HERE / peers.VENVS[venv]).read_text()
        return re.search(f"(?m)^{package}==(.+)$", pins)[1]
    if registry == "crates.io":
        pins = (RUST_SERVER / "Cargo.lock").read_text()
        return re.search(f'name = "{package}"\nversion = "(.+)"', pins)[1]
    return ""


@dataclass(frozen=True)
class Call:
    """A tool call, and a text that its result must have."""

    tool: str
    arguments: dict
    text: str = ""


@dataclass(frozen=True)
class Question:
    """A call in which the server asks the client once."""

    kind: str
    call: Call

    @property
    def answer(self):
        """What the driver answers, which must be in the result."""
        return {"sampling": "sampled by e2e", "elicitation": "answered by e2e"}[self.kind]


class Server:
    """A published server, or a small one on a published SDK."""

    name = ""
    # The registry and the name there, and what it is if that does not say it.
    package = ("", "")
    words = ""
    # Whether `executions` can tell.
    counts = False
    # Whether Rejoin asks it by HTTP. Else Rejoin starts it, one process for each session.
    is_http = False
    # Whether it answers 2026-07-28 too.
    is_dual_era = False
    # Whether a call of it takes as long as is wanted, and where its stream is cut.
    runs_long = True
    cuts = CUTS
    questions = ()
    # The scenarios that it cannot have a part in, and why.
    lacks = {}

    def __init__(self, folder):
        self.folder = folder
        self.count_file = folder / "executions"

    @classmethod
    def prepare(cls):
        """Builds it if it must be built. Raises peers.PeersMissing."""

    def command(self):
        """What starts it."""
        raise NotImplementedError

    def short(self):
        """A call that answers at once and may be made at any time."""
        raise NotImplementedError

    def failing(self, tag):
        """A call whose result is marked as an error."""
        raise NotImplementedError

    def long(self, tag, count, seconds):
        """A call that nobody else makes, if it can be with `count` progress events."""
        raise NotImplementedError

    def progress(self, count):
        """The progress of such a call."""
        return list(range(1, count + 1))

    def executions(self, tag):
        """How often the calls of this tag ran, or None if that does not show."""
        return None


class Charging(Server):
    """A server with the tools of `rejoin tool-server`."""

    counts = True
    questions = (
        Question("elicitation", Call("ask", {"question": "Go on?"})),
        Question("sampling", Call("sample", {"prompt": "Say something."})),
    )

    def short(self):
        return Call("get", {}, "The account is open.")

    def failing(self, tag):
        return Call("charge", {"amount": tag, "fail": True}, f"could not charge {tag}")

    def long(self, tag, count, seconds):
        arguments = {"amount": tag, "events": count, "interval_ms": round(seconds * 1000)}
        return Call("charge", arguments, f"charged {tag}")

    def executions(self, tag):
        lines = self.count_file.read_text().splitlines() if self.count_file.exists() else []
        charges = [line.split(" ", 1)[1] for line in lines if line.startswith("charge ")]
        amounts = [json.JSONDecoder().raw_decode(charge)[0]["amount"] for charge in charges]
        return amounts.count(tag)


class Tools(Charging):
    name = "tools"
    words = "`rejoin tool-server`"

    def command(self):
        return [peers.rejoin_binary(), "tool-server", "--count-file", str(self.count_file)]


class PythonSdk(Charging):
    name = "python"
    package = ("PyPI", "mcp")
    words = "a small server"
    is_http = True
    is_dual_era = True

    def command(self):
        program = str(SERVERS / "python_tools.py")
        python = peers.venv_bin("py2", "python")
        return [python, program, "--count-file", str(self.count_file)]


class Fastmcp(Charging):
    name = "fastmcp"
    package = ("PyPI", "fastmcp")
    words = "a small server"
    is_http = True
    is_dual_era = True

    def command(self):
        program = str(SERVERS / "fastmcp_tools.py")
        count = ["--count-file", str(self.count_file)]
        return [peers.venv_bin("fastmcp", "python"), program, "--end-with-stdin", *count]


class TypescriptSdk(Charging):
    name = "typescript"
    package = ("npm", "@modelcontextprotocol/server")
    words = "a small server"
    is_http = True
    is_dual_era = True

    def command(self):
        program = str(SERVERS / "typescript_tools.mjs")
        return ["node", program, "--count-file", str(self.count_file)]


class RustSdk(Charging):
    name = "rmcp"
    package = ("crates.io", "rmcp")
    words = "a small server"
    is_http = True
    is_dual_era = True

    @classmethod
    def prepare(cls):
        peers.run([["cargo", "build", "--locked", "--quiet"]], RUST_SERVER, BUILD_SECONDS)

    def command(self):
        return [str(RUST_BINARY), str(self.count_file)]


class Everything(Server):
    name = "everything"
    package = ("npm", "@modelcontextprotocol/server-everything")
    questions = (
        Question("elicitation", Call("trigger-elicitation-request", {})),
        Question("sampling", Call("trigger-sampling-request", {"prompt": "Say something."})),
    )

    def command(self):
        return peers.everything_stdio()

    def short(self):
        return Call("echo", {"message": "still here"}, "still here")

    def failing(self, tag):
        return Call("get-resource-reference", {"resourceId": -1 - tag}, "Invalid resourceId")

    def long(self, tag, count, seconds):
        # The last digits tell the calls apart.
        arguments = {"duration": round(count * seconds + tag / 1e6, 6), "steps": count}
        return Call("trigger-long-running-operation", arguments, "operation completed")


class EverythingHttp(Everything):
    name = "everything-http"
    is_http = True

    def command(self):
        return ["node", str(SERVERS / "everything.mjs"), "--end-with-stdin"]


class Instant(Server):
    """A stdio server whose tools answer at once and ask nothing."""

    runs_long = False
    cuts = CUTS_OF_ONE
    lacks = {
        "progress": NO_PROGRESS,
        "server request": NO_QUESTION,
        "cancel": NO_LONG,
        "repeat, running": NO_LONG,
    }

    def progress(self, count):
        return []


class Time(Instant):
    name = "time"
    package = ("PyPI", "mcp-server-time")

    def command(self):
        return peers.time_stdio()

    def _convert(self, minute, text, zone="Asia/Tokyo"):
        time = f"{minute // 60:02}:{minute % 60:02}"
        arguments = {"source_timezone": "UTC", "time": time, "target_timezone": zone}
        return Call("convert_time", arguments, text)

    def short(self):
        return self._convert(23 * 60, "08:00")

    def failing(self, tag):
        return self._convert(tag, "Invalid timezone", "Nowhere/Land")

    def long(self, tag, count, seconds):
        return self._convert(tag, f"{tag // 60 + 9:02}:{tag % 60:02}")


class Memory(Instant):
    name = "memory"
    package = ("npm", "@modelcontextprotocol/server-memory")

    def command(self):
        # Each session's process keeps its own file: two that write one would break it.
        program = HERE / "node_modules/.bin/mcp-server-memory"
        return ["sh", "-c", f'MEMORY_FILE_PATH="{self.folder}/$$.json" exec "{program}"']

    def _create(self, tag):
        entity = {"name": f"entity-{tag}", "entityType": "test", "observations": []}
        return Call("create_entities", {"entities": [entity]}, f"entity-{tag}")

    def short(self):
        return Call("read_graph", {}, "entities")

    def failing(self, tag):
        missing = {"observations": [{"entityName": f"missing-{tag}", "contents": []}]}
        return Call("add_observations", missing, f"missing-{tag}")

    def long(self, tag, count, seconds):
        return self._create(tag)


class Filesystem(Instant):
    name = "filesystem"
    counts = True
    package = ("npm", "@modelcontextprotocol/server-filesystem")

    def __init__(self, folder):
        super().__init__(folder)
        self.files = folder / "files"
        self.files.mkdir()

    def command(self):
        return [str(HERE / "node_modules/.bin/mcp-server-filesystem"), str(self.files)]

    def short(self):
        return Call("list_allowed_directories", {}, str(self.files))

    def failing(self, tag):
        return Call("read_text_file", {"path": f"/etc/passwd-{tag}"}, "Access denied")

    def long(self, tag, count, seconds):
        # Each execution adds a mark.
        path = self.files / f"{tag}.txt"
        if not path.exists():
            path.write_text("end\n")
        edits = [{"oldText": "end", "newText": "+end"}]
        return Call("edit_file", {"path": str(path), "edits": edits}, f"{tag}.txt")

    def executions(self, tag):
        path = self.files / f"{tag}.txt"
        return path.read_text().count("+") if path.exists() else None


ALL = {
    server.name: server
    for server in (
        Everything, EverythingHttp, PythonSdk, Fastmcp, TypescriptSdk, RustSdk, Tools, Time, Memory,
        Filesystem,
    )
}
