"""The scripted MCP server of the conformance suite, over stdio. Python 3, no packages.

The script language is described in src/upstream/conformance.rs. Beyond it, for stdio alone:
  {"raw": HEX}                      writes these bytes as they are
  {"long": N, "head": A, "tail": B} writes one line: A, N times "x", B
  {"stderr": N}                     writes N bytes without newline to standard error
  {"orphan": PIPES}                 starts a process of the same group that ignores SIGTERM and
                                    holds this one's pipes ("held") or none ("none")
  {"close": "stdout"}               closes its output and stays

Arguments:
  early        two notifications come before the answer to initialize
  mute         initialize is never answered
  quit         exits with status 4 instead of answering initialize
  nameless     answers initialize with an error whose id is null
  deaf         stops reading after initialize
  shut         closes its input after initialize and stays
  stubborn     ignores the end of its input and SIGTERM
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time

OPTIONS = set(sys.argv[1:])
OUT = os.fdopen(os.dup(1), "wb", buffering=0)
WRITING = threading.Lock()
CHANGED = threading.Condition()
SIGNALS = set()
RECEIVED = []
ORPHAN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.close(int(sys.argv[1]))
time.sleep(600)
"""


def put(data):
    with WRITING:
        view = memoryview(data)
        while view:
            view = view[OUT.write(view):]


def put_line(text):
    put(text.encode() + b"\n")


def wait_until(condition):
    with CHANGED:
        CHANGED.wait_for(condition)


def tell(collection, item):
    with CHANGED:
        collection(item)
        CHANGED.notify_all()


def start_orphan(pipes):
    null = subprocess.DEVNULL
    streams = {} if pipes == "held" else {"stdin": null, "stdout": null, "stderr": null}
    ready, starting = os.pipe()
    command = [sys.executable, "-c", ORPHAN, str(starting)]
    subprocess.Popen(command, pass_fds=[starting], **streams)
    os.close(starting)
    os.read(ready, 1)


def step(todo):
    if "write" in todo:
        for number in range(todo.get("times", 1)):
            put_line(todo["write"].replace("#N#", str(number)))
    elif "signal" in todo:
        tell(SIGNALS.add, todo["signal"])
    elif "wait" in todo:
        wait_until(lambda: todo["wait"] in SIGNALS)
    elif "received" in todo:
        wait_until(lambda: any(todo["received"] in line for line in RECEIVED))
    elif "die" in todo:
        os._exit(todo["die"])
    elif "raw" in todo:
        put(bytes.fromhex(todo["raw"]))
    elif "long" in todo:
        put_line(todo["head"] + "x" * todo["long"] + todo["tail"])
    elif "stderr" in todo:
        os.write(2, b"e" * todo["stderr"])
    elif "orphan" in todo:
        start_orphan(todo["orphan"])
    elif todo.get("close") == "stdout":
        OUT.close()
        os.close(1)


def run(steps):
    for todo in steps:
        step(todo)


def initialize(message):
    if "mute" in OPTIONS:
        return
    if "quit" in OPTIONS:
        os._exit(4)
    if "nameless" in OPTIONS:
        error = {"code": -32700, "message": "parse error"}
        put_line(json.dumps({"jsonrpc": "2.0", "id": None, "error": error}))
        return
    if "early" in OPTIONS:
        put_line('{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"one"}}')
        put_line("a banner")
        put_line('{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"two"}}')
    result = {
        "protocolVersion": message["params"]["protocolVersion"],
        "capabilities": {"tools": {}, "logging": {}},
        "serverInfo": {"name": "scripted", "version": "1", "pid": os.getpid()},
    }
    put_line(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}))


def main():
    if "stubborn" in OPTIONS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for line in iter(sys.stdin.buffer.readline, b""):
        text = line.rstrip(b"\n").decode()
        message = json.loads(text)
        method = message.get("method")
        if method == "initialize":
            initialize(message)
            if "shut" in OPTIONS:
                os.close(0)
            if OPTIONS & {"deaf", "shut"}:
                time.sleep(600)
        elif method == "test/script":
            steps = message["params"]["steps"]
            threading.Thread(target=run, args=(steps,), daemon=True).start()
        elif method is None or "id" not in message:
            tell(RECEIVED.append, text)
            echo = {"jsonrpc": "2.0", "method": "test/received", "params": {"line": text}}
            put_line(json.dumps(echo))
    if "stubborn" in OPTIONS:
        time.sleep(600)
    os._exit(0)


main()
