"""The stock peers: what they are, where they are installed, how they are started.

Every version is pinned: the package-lock.json files for npm, requirements-*.txt for PyPI,
rmcp-client/Cargo.lock for crates.io.

`python3 e2e/peers.py NAME...` installs some of them and runs nothing.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
NODE_MAJOR = 20
PYTHON = (3, 11)
INSTALL_SECONDS = 240
BUILD_SECONDS = 600
VENVS = {
    "py2": "requirements-py2.txt",
    "py1": "requirements-py1.txt",
    "py112": "requirements-py112.txt",
    # A client, and the server behind `REJOIN_MATRIX_UPSTREAM=fastmcp` (servers/fastmcp_tools.py).
    "fastmcp": "requirements-fastmcp.txt",
}
NPM = "npm"
RMCP = "rmcp"
# The official conformance suites, with the Node they need. Nothing else needs them.
CONFORMANCE = "conformance"
FOLDERS = {NPM: HERE, CONFORMANCE: HERE / "conformance"}
ALL = (NPM, *VENVS, RMCP)
RMCP_BINARIES = HERE.parent / "target" / "e2e-rmcp" / "release"


class PeersMissing(Exception):
    """Something the peers need is not there; the message says what and where to get it."""


def venv_bin(name, program):
    """The path of a program in one of the virtual environments."""
    return str(HERE / f".venv-{name}" / "bin" / program)


@dataclass(frozen=True)
class Client:
    """A stock client: its published package and the driver that makes an application of it."""

    registry: str
    package: str
    # What `install` must have brought, and the driver's command less the two URLs.
    part: str
    command: tuple
    # The name it is installed under, if that is another.
    alias: str = ""

    @property
    def version(self):
        """The pinned version."""
        name = self.alias or self.package
        if self.part == NPM:
            packages = json.loads((HERE / "package-lock.json").read_text())["packages"]
            return packages[f"node_modules/{name}"]["version"]
        if self.part == RMCP:
            lock, pin = HERE / "rmcp-client" / "Cargo.lock", f'name = "{name}"\nversion = "(.+)"'
        else:
            lock, pin = HERE / VENVS[self.part], f"(?m)^{name}==(.+)$"
        return re.search(pin, lock.read_text())[1]


def node(driver, *arguments):
    """The command of a driver in JavaScript."""
    return ("node", str(HERE / "clients" / driver), *arguments)


def python(venv, driver, *arguments):
    """The command of a driver in Python."""
    return (venv_bin(venv, "python"), str(HERE / "clients" / driver), *arguments)


SDK = "@modelcontextprotocol/sdk"
SDK2 = "@modelcontextprotocol/client"
FASTMCP = "fastmcp_client.py"
CLIENTS = {
    "ts": Client("npm", SDK, NPM, node("ts.mjs", "ts")),
    "ts117": Client("npm", SDK, NPM, node("ts.mjs", "ts117"), alias="sdk-1-17"),
    "ts2": Client("npm", SDK2, NPM, node("ts2.mjs", "legacy")),
    "ts2-auto": Client("npm", SDK2, NPM, node("ts2.mjs", "auto")),
    "remote": Client("npm", "mcp-remote", NPM, node("ts.mjs", "remote")),
    "py2": Client("PyPI", "mcp", "py2", python("py2", "py2.py", "legacy")),
    "py2-auto": Client("PyPI", "mcp", "py2", python("py2", "py2.py", "auto")),
    "py1": Client("PyPI", "mcp", "py1", python("py1", "py1.py")),
    "py112": Client("PyPI", "mcp", "py112", python("py112", "py1.py")),
    "fastmcp": Client("PyPI", "fastmcp", "fastmcp", python("fastmcp", FASTMCP, "legacy")),
    "fastmcp-auto": Client("PyPI", "fastmcp", "fastmcp", python("fastmcp", FASTMCP, "auto")),
    "rmcp": Client("crates.io", "rmcp", RMCP, (str(RMCP_BINARIES / "e2e-rmcp-client"),)),
}


def client_command(name):
    """The command that drives a stock client; it takes the URL and the control URL."""
    return list(CLIENTS[name].command)


def everything_stdio():
    """The command a user would type. Run in this folder it finds the pinned install."""
    package = "@modelcontextprotocol/server-everything"
    version = json.loads((HERE / "package.json").read_text())["dependencies"][package]
    return ["npx", "-y", f"{package}@{version}", "stdio"]


def time_stdio():
    """A published Python stdio server that needs no network."""
    return [venv_bin("py2", "mcp-server-time"), "--local-timezone", "UTC"]


def rejoin_binary():
    """The path of `rejoin`: REJOIN_BIN, else the release build, else the debug build."""
    named = os.environ.get("REJOIN_BIN")
    target = HERE.parent / "target"
    for path in [Path(named)] if named else [target / "release/rejoin", target / "debug/rejoin"]:
        if path.is_file() and os.access(path, os.X_OK):
            return str(path.resolve())
    raise PeersMissing(
        f"REJOIN_BIN names {named}, which is not a program" if named else
        "no rejoin binary: run `cargo build --release`, or set REJOIN_BIN"
    )


def install(names=ALL):
    """Installs whatever of these is not installed at its pinned version. Raises PeersMissing."""
    if sys.version_info < PYTHON:
        raise PeersMissing(
            f"Python {PYTHON[0]}.{PYTHON[1]} or newer runs this; found {sys.version.split()[0]}"
        )
    for name, folder in FOLDERS.items():
        if name in names:
            require_node()
            install_npm(folder)
    for name, requirements in VENVS.items():
        if name in names:
            install_venv(name, HERE / requirements)
    if RMCP in names:
        build_rmcp()


def require_node():
    """Node with npm and npx."""
    for program in ("node", "npm", "npx"):
        if shutil.which(program) is None:
            raise PeersMissing(f"{program} is not on the path: install Node {NODE_MAJOR} or newer")
    version = subprocess.run(
        ["node", "--version"], capture_output=True, text=True, timeout=20, check=True
    ).stdout.strip()
    found = re.match(r"v(\d+)\.", version)
    if not found or int(found[1]) < NODE_MAJOR:
        raise PeersMissing(f"Node {NODE_MAJOR} or newer is needed; found {version}")


def install_npm(folder):
    """`npm ci` in a folder, unless its lock file is the one installed last."""
    run_once(
        folder / "node_modules" / ".installed", folder / "package-lock.json",
        [["npm", "ci", "--ignore-scripts"]], folder,
    )


def install_venv(name, requirements):
    """A virtual environment with exactly the pinned packages."""
    folder = HERE / f".venv-{name}"
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "-q"]
    run_once(folder / ".installed", requirements, [
        [sys.executable, "-m", "venv", "--clear", str(folder)],
        [*pip, "install", "--no-deps", "-r", str(requirements)],
        [*pip, "check"],
    ])


def build_rmcp():
    """The Rust SDK's clients; cargo knows what is up to date."""
    if shutil.which("cargo") is None:
        raise PeersMissing("cargo is not on the path: install Rust with rustup")
    run([["cargo", "build", "--release", "--locked", "--quiet"]],
        HERE / "rmcp-client", BUILD_SECONDS)


def run_once(stamp, lock, commands, folder=HERE):
    """Runs the commands unless the stamp says they already ran for this lock file."""
    wanted = hashlib.sha256(lock.read_bytes()).hexdigest()
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    run(commands, folder, INSTALL_SECONDS)
    stamp.write_text(wanted)


def run(commands, folder, seconds):
    """Runs the commands in a folder, each within the seconds. Raises PeersMissing."""
    for command in commands:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=seconds, check=False
        )
        if done.returncode != 0:
            output = (done.stdout + done.stderr).strip()[-2000:]
            raise PeersMissing(f"`{' '.join(command)}` failed:\n{output}")


def main():
    """Installs the named peers; the exit status."""
    parser = argparse.ArgumentParser(description="Installs pinned peers.")
    parser.add_argument("names", nargs="+", choices=(*ALL, CONFORMANCE), metavar="NAME",
                        help=", ".join((*ALL, CONFORMANCE)))
    try:
        install(parser.parse_args().names)
    except (PeersMissing, subprocess.SubprocessError, OSError) as missing:
        print(f"The stock peers are not ready: {missing}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
