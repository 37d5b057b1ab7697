"""Stock hosts that start a server over stdio, and what they may start: the bridge or another."""

import json
import os
import subprocess

import rejoin

HOSTS = {
    "py2": rejoin.peers.python("py2", "py2_bridge.py"),
    "rmcp": (str(rejoin.peers.RMCP_BINARIES / "bridge-rmcp-client"),),
}
PROGRAMS = BRIDGE, REMOTE = "rejoin bridge", "mcp-remote"
# What a host has to start its server, and to end it, beside its calls.
MARGIN_SECONDS = 60


def command(name, port, options=()):
    """The command that stands in for the server on this port."""
    url = f"http://127.0.0.1:{port}/mcp"
    if name == BRIDGE:
        return [rejoin.peers.rejoin_binary(), "bridge", "--no-proxy", *options, url]
    program = str(rejoin.peers.HERE / "node_modules/.bin/mcp-remote")
    return ["node", program, url, "--allow-http", "--transport", "http-only"]


def run(host, server, calls, at_once, seconds, call_seconds, folder):
    """Has a stock host make the calls: (what it saw of each, in their order; its log)."""
    plan = {"at_once": at_once, "seconds": seconds, "call_seconds": call_seconds,
            "calls": [{"tool": tool, "arguments": arguments} for tool, arguments in calls]}
    # Else mcp-remote keeps its files in the home of whoever runs this.
    environment = {**os.environ, "MCP_REMOTE_CONFIG_DIR": str(folder)}
    process = subprocess.Popen(
        [*HOSTS[host], *server], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, env=environment)
    try:
        out, log = process.communicate(json.dumps(plan), timeout=seconds + MARGIN_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        out, log = process.communicate()
    lines = [json.loads(line) for line in out.splitlines()]
    if len(lines) != len(calls):
        raise RuntimeError(f"the host {host} ended early, with {process.returncode}: {log[-3000:]}")
    return lines, log
