"""`rejoin probe` against stock servers, bare and behind Rejoin: the table of docs/landscape.md.

    python3 e2e/proofs/landscape.py [--write] [--only NAME...] [--hazard HAZARD...]

Each server is a published version as it is pinned here, on loopback; the tools are those of
e2e/servers. `--write` puts the table and the date into docs/landscape.md, which takes all servers
and all hazards; without it the table is printed. `--only` and `--hazard` choose some. One probe
runs at a time, so that none disturbs the races of another. The exit status is 0 if every server
could be probed and nothing bad was found behind Rejoin; a table with a gap is not written.
"""

import argparse
import datetime
import http.server
import json
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import rejoin

import peers

HERE = Path(__file__).resolve().parent
SERVERS = HERE.parent / "servers"
PAGE = HERE.parent.parent / "docs" / "landscape.md"
START_SECONDS = 60
PROBE_SECONDS = 600
BUILD_SECONDS = 900
# For all probes together, without what is installed and built before them.
TOTAL_SECONDS = 1200
# Built beside the conformance server: they have the same dependencies.
RMCP_BINARY = HERE.parent.parent / "target/e2e-conformance/debug/rmcp-tools"
MARKS = {"safe": "safe", "hazard": "**hazard**", "violation": "**violation**",
         "not_applicable": "n/a", "could_not_tell": "?"}
# Those that say whether a call that is sent again runs twice.
REPEATS = ["repeat-in-flight-same-id", "repeat-in-flight-new-id", "repeat-after-end-same-id",
           "repeat-after-end-unseen", "drop-before-first-event"]


def charge(burst):
    """Calls of a second, and as many events as its log keeps and more at once."""
    burst_args = json.dumps({"amount": 2, "events": burst, "interval_ms": 0})
    return ["--allow-effects", "--tool", "charge",
            "--args", '{"amount":1,"events":20,"interval_ms":50}', "--burst-args", burst_args]


FLOOD = ["--flood-args", '{"amount":3,"events":2000,"interval_ms":0,"event_bytes":20000}']
STEPS = [
    "--tool", "trigger-long-running-operation", "--args", '{"duration":1,"steps":20}',
    "--burst-args", '{"duration":0.15,"steps":150}',
]


@dataclass
class Server:
    """A stock server: what it is, how it is started, how it is probed."""

    title: str
    # What `peers` must install for it; with none it is built.
    part: str | None
    # It is started with a port as one argument more.
    command: list
    arguments: list = field(default_factory=list)


def version(package):
    """The pinned version of an npm package."""
    packages = json.loads((HERE.parent / "package-lock.json").read_text())["packages"]
    return packages[f"node_modules/{package}"]["version"]


def pinned(venv, package):
    """The pinned version of a Python package."""
    text = (HERE.parent / peers.VENVS[venv]).read_text()
    return re.search(rf"(?m)^{package}==(\S+)", text)[1]


def locked(package):
    """The pinned version of a crate of the server in Rust."""
    text = (SERVERS / "rmcp" / "Cargo.lock").read_text()
    return re.search(rf'name = "{package}"\nversion = "(.+)"', text)[1]


def servers():
    """The servers by their short names."""
    everything = "@modelcontextprotocol/server-everything"
    typescript, sdk = "@modelcontextprotocol/server", "@modelcontextprotocol/sdk"
    tied = "--end-with-stdin"
    python = [peers.venv_bin("py2", "python"), str(SERVERS / "python_tools.py")]
    # Logs of a hundred events a stream, and logs without such a bound.
    small, large = [*charge(150), *FLOOD], [*charge(1500), *FLOOD]
    return {
        "everything": Server(
            f"npm server-everything {version(everything)}", peers.NPM,
            ["node", str(SERVERS / "everything.mjs"), tied, "--port"], STEPS),
        "fastmcp": Server(
            f"PyPI fastmcp {pinned('fastmcp', 'fastmcp')}, its EventStore", "fastmcp",
            [peers.venv_bin("fastmcp", "python"), str(SERVERS / "fastmcp_tools.py"), tied,
             "--port"], small),
        "python": Server(
            f"PyPI mcp {pinned('py2', 'mcp')}, no event store", "py2", [*python, "--port"], small),
        "python-store": Server(
            f"PyPI mcp {pinned('py2', 'mcp')}, store of 100 events a stream", "py2",
            [*python, "--event-store", "--port"], small),
        "typescript1": Server(
            f"npm sdk {version(sdk)}, store of its examples", peers.NPM,
            ["node", str(SERVERS / "typescript1_tools.mjs"), "--port"], large),
        "typescript": Server(
            f"npm server {version(typescript)}, store of the SDK's examples", peers.NPM,
            ["node", str(SERVERS / "typescript_tools.mjs"), "--event-store", "--port"], large),
        "rmcp": Server(
            f"crates.io rmcp {locked('rmcp')}, no event store", None,
            [str(RMCP_BINARY), str(RMCP_BINARY.parent / "executions")], large),
    }


def free_port():
    """A port that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


class Running:
    """A server as a process that ends with its standard input; `with` ends it and waits."""

    def __init__(self, command):
        self.command = [*command, str(free_port())]
        self.start()

    def start(self):
        """Starts it, and waits until it serves."""
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True)
        timer = threading.Timer(START_SECONDS, self.process.kill)
        timer.start()
        found = None
        for line in self.process.stdout:
            if found := re.search(r"http://127\.0\.0\.1:\d+/mcp", line):
                break
        timer.cancel()
        if not found:
            self.process.kill()
            raise RuntimeError(f"{self.command} printed no URL")
        self.url = found[0]
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def restart(self):
        """Kills it, and starts it anew at the same port."""
        self.process.kill()
        self.process.wait()
        self.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Guarding:
    """Rejoin in front of a server, with a log in files."""

    def __init__(self, upstream, folder):
        self.upstream = upstream
        self.options = ["--data", folder, "--listen", f"127.0.0.1:{free_port()}"]
        self.start()

    def start(self):
        """Starts it, and waits until it serves."""
        self.gateway = rejoin.Gateway(*self.options, upstream=self.upstream)
        self.url = f"http://127.0.0.1:{self.gateway.port}/mcp"

    def restart(self):
        """Kills it, and starts it anew with the same log at the same port."""
        self.gateway.process.kill()
        self.gateway.__exit__()
        self.start()


class Restarts:
    """Restarts something whenever the command `self.command` is run."""

    def __init__(self, restarted):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                restarted.restart()
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_):
                """Nothing."""

        self.server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        code = "import urllib.request as r; r.urlopen(r.Request('%s', method='POST'), timeout=50)"
        url = f"http://127.0.0.1:{self.server.server_port}"
        self.command = f'{sys.executable} -c "{code % url}"'

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def probe(title, target, arguments):
    """What the probe finds, by hazard."""
    print(f"== {title}", file=sys.stderr, flush=True)
    with Restarts(target) as restarts:
        command = [peers.rejoin_binary(), "probe", target.url, "--json", *arguments,
                   "--restart-cmd", restarts.command]
        done = subprocess.run(command, stdout=subprocess.PIPE, timeout=PROBE_SECONDS, check=False)
    report = json.loads(done.stdout) if done.stdout else {}
    if done.returncode == 2 or report.get("lost", True):
        raise RuntimeError(f"the probe could not run against {target.url}")
    return title, {one["id"]: one for one in report["findings"]}


def both(name, server, chosen):
    """Two columns: a server bare, and behind Rejoin."""
    arguments = [*server.arguments, *chosen]
    with Running(server.command) as running, tempfile.TemporaryDirectory() as folder:
        bare = probe(server.title, running, arguments)
        guarding = Guarding(running.url, folder)
        try:
            return [bare, probe(f"{name} behind Rejoin", guarding, arguments)]
        finally:
            guarding.gateway.__exit__()


def run(names, chosen):
    """The columns: (title, findings); and the names of servers that could not be probed."""
    known = servers()
    peers.install(sorted({known[name].part for name in names} - {None}))
    if "rmcp" in names:
        peers.run([["cargo", "build", "--locked", "--quiet"]], SERVERS / "rmcp", BUILD_SECONDS)
    columns, failed, began = [], [], time.monotonic()
    for name in names:
        try:
            if time.monotonic() - began > TOTAL_SECONDS:
                raise RuntimeError(f"{TOTAL_SECONDS} s are over")
            columns += both(name, known[name], chosen)
        except (RuntimeError, OSError, ValueError, subprocess.SubprocessError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            failed.append(name)
    return columns, failed


def twice(columns):
    """On how many servers a call that was sent again ran twice."""
    def count(chosen):
        bad = [findings for findings in chosen
               if any("2 executions" in findings[one]["seen"] for one in REPEATS)]
        return f"{len(bad)} of {len(chosen)}"

    guarded = [findings for title, findings in columns if title.endswith("behind Rejoin")]
    bare = [findings for title, findings in columns if not title.endswith("behind Rejoin")]
    return (f"A call that is sent again runs twice on **{count(bare)}** servers, and on "
            f"**{count(guarded)}** behind Rejoin.")


def cell(finding):
    """A verdict, with the requirement if one is violated."""
    mark = MARKS[finding["verdict"]]
    return f"{mark} {finding['requirement']}" if finding["requirement"] else mark


def table(columns):
    """The table in Markdown, and below it what was seen."""
    hazards = list(columns[0][1])
    lines = [twice(columns), ""] if set(REPEATS) <= set(hazards) else []
    lines += ["| | " + " | ".join(title for title, _ in columns) + " |",
             "|---" * (len(columns) + 1) + "|"]
    for hazard in hazards:
        cells = [cell(findings[hazard]) for _, findings in columns]
        lines.append(f"| `{hazard}` | " + " | ".join(cells) + " |")
    lines += ["", "What was seen where the table says hazard, violation or ?:", ""]
    for title, findings in columns:
        for hazard, finding in findings.items():
            if finding["verdict"] in ("hazard", "violation", "could_not_tell"):
                lines.append(f"- {title}, `{hazard}`: {finding['seen']}")
    return "\n".join(lines)


def main():
    """Runs it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write docs/landscape.md")
    parser.add_argument("--only", nargs="+", choices=sorted(servers()), help="some servers")
    parser.add_argument("--hazard", nargs="+", default=[], metavar="HAZARD",
                        help="some hazards (`rejoin probe --list`)")
    args = parser.parse_args()
    if args.write and (args.only or args.hazard):
        parser.error("--write takes all servers and all hazards")
    chosen = [word for hazard in args.hazard for word in ("--only", hazard)]
    columns, failed = run(args.only or list(servers()), chosen)
    if not columns:
        return 1
    text = table(columns)
    if args.write and not failed:
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        head, _, rest = PAGE.read_text().partition("<!-- table -->\n")
        tail = rest.partition("<!-- end of table -->\n")[2]
        text = f"Measured on {today}.\n\n{text}\n"
        PAGE.write_text(f"{head}<!-- table -->\n{text}<!-- end of table -->\n{tail}")
    else:
        print(text)
    guarded = [findings for title, findings in columns if title.endswith("behind Rejoin")]
    bad = [finding for findings in guarded for finding in findings.values()
           if finding["verdict"] in ("hazard", "violation")]
    for finding in bad:
        print(f"behind Rejoin: {finding['id']}: {finding['seen']}", file=sys.stderr)
    return 1 if bad or failed else 0


if __name__ == "__main__":
    sys.exit(main())
