"""`rejoin probe` against stock servers, bare and behind Rejoin: the table of docs/landscape.md.

    python3 e2e/proofs/landscape.py [--write] [--only NAME...]

Each server is a published version as it is pinned here, on loopback; the tools are those of
e2e/servers. `--write` puts the table and the date into docs/landscape.md; without it the table is
printed. The exit status is 0 if every server could be probed and nothing bad was found behind
Rejoin.
"""

import argparse
import datetime
import json
import re
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

import rejoin

import peers

HERE = Path(__file__).resolve().parent
SERVERS = HERE.parent / "servers"
PAGE = HERE.parent.parent / "docs" / "landscape.md"
START_SECONDS = 60
PROBE_SECONDS = 600
MARKS = {"safe": "safe", "hazard": "**hazard**", "violation": "**violation**",
         "not_applicable": "n/a", "could_not_tell": "?"}
CHARGE = [
    "--allow-effects", "--tool", "charge",
    "--args", '{"amount":1,"events":20,"interval_ms":50}',
    "--burst-args", '{"amount":2,"events":150,"interval_ms":0}',
]
FLOOD = ["--flood-args", '{"amount":3,"events":2000,"interval_ms":0,"event_bytes":20000}']
STEPS = [
    "--tool", "trigger-long-running-operation", "--args", '{"duration":1,"steps":20}',
    "--burst-args", '{"duration":0.15,"steps":150}',
]


@dataclass
class Server:
    """A stock server: what it is, how it is started, how it is probed."""

    title: str
    part: str
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


def servers():
    """The servers by their short names."""
    everything = "@modelcontextprotocol/server-everything"
    typescript = "@modelcontextprotocol/server"
    tied = "--end-with-stdin"
    return {
        "everything": Server(
            f"npm server-everything {version(everything)}", peers.NPM,
            ["node", str(SERVERS / "everything.mjs"), tied], STEPS),
        "fastmcp": Server(
            f"PyPI fastmcp {pinned('fastmcp', 'fastmcp')}, its EventStore", "fastmcp",
            [peers.venv_bin("fastmcp", "python"), str(SERVERS / "fastmcp_tools.py"), tied],
            [*CHARGE, *FLOOD]),
        "python": Server(
            f"PyPI mcp {pinned('py2', 'mcp')}, no event store", "py2",
            [peers.venv_bin("py2", "python"), str(SERVERS / "python_tools.py")], CHARGE),
        "typescript": Server(
            f"npm server {version(typescript)}, store of the SDK's examples", peers.NPM,
            ["node", str(SERVERS / "typescript_tools.mjs"), "--event-store"], CHARGE),
    }


class Running:
    """A server as a process that ends with its standard input; `with` ends it and waits."""

    def __init__(self, command):
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True)
        self.url = None
        timer = threading.Timer(START_SECONDS, self.process.kill)
        timer.start()
        for line in self.process.stdout:
            if found := re.search(r"http://127\.0\.0\.1:\d+/mcp", line):
                self.url = found[0]
                break
        timer.cancel()
        if self.url is None:
            self.process.kill()
            raise RuntimeError(f"{command} printed no URL")
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def probe(url, arguments):
    """What the probe finds, by hazard."""
    command = [peers.rejoin_binary(), "probe", url, "--json", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=PROBE_SECONDS, check=False)
    if done.returncode == 2:
        raise RuntimeError(f"the probe could not run against {url}")
    return {one["id"]: one for one in json.loads(done.stdout)["findings"]}


def run(names):
    """The columns: (title, findings)."""
    known = servers()
    peers.install(sorted({known[name].part for name in names}))
    columns = []
    for name in names:
        server = known[name]
        with Running(server.command) as running:
            print(f"== {server.title}", file=sys.stderr, flush=True)
            columns.append((server.title, probe(running.url, server.arguments)))
            with rejoin.Gateway(upstream=running.url) as gateway:
                title = f"{name} behind Rejoin"
                print(f"== {title}", file=sys.stderr, flush=True)
                url = f"http://127.0.0.1:{gateway.port}/mcp"
                columns.append((title, probe(url, server.arguments)))
    return columns


def cell(finding):
    """A verdict, with the requirement if one is violated."""
    mark = MARKS[finding["verdict"]]
    return f"{mark} {finding['requirement']}" if finding["requirement"] else mark


def table(columns):
    """The table in Markdown, and below it what was seen."""
    hazards = list(columns[0][1])
    lines = ["| | " + " | ".join(title for title, _ in columns) + " |",
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
    args = parser.parse_args()
    columns = run(args.only or list(servers()))
    text = table(columns)
    if args.write:
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
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
