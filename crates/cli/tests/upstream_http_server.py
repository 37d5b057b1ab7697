"""A small MCP server over Streamable HTTP. Python 3, no packages.

Arguments: a file that gets one line for each execution; the port, if not any; the status for a
session that it does not know, if not 404; `close`, if no connection is to be used again. It prints
its URL, and ends with its standard input.

Tools:
  charge   `events` progress events, one each `interval_ms`, then the amount it charged
  tenant   answers with the header X-Tenant
  forget   the server forgets all sessions, then answers

`initialize` needs the header `Authorization: Bearer good` if there is an Authorization at all. A
call with `X-Tenant: nobody` is answered 401.
"""

import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SESSIONS = set()
LOCK = threading.Lock()
CHALLENGE = {"WWW-Authenticate": 'Bearer realm="tools"'}


def count(tool, arguments):
    line = f"{tool} {json.dumps(arguments)} {time.time_ns()}\n"
    with LOCK, open(sys.argv[1], "a", encoding="utf-8") as file:
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def end_headers(self):
        if "close" in sys.argv:
            self.send_header("Connection", "close")
        super().end_headers()

    def plain(self, status, body="", media="application/json", headers=None):
        body = body.encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if body:
            self.send_header("Content-Type", media)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def result(self, message, result, headers=None):
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        self.plain(200, json.dumps(answer), headers=headers)

    def open_stream(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def event(self, message, event_id=None):
        head = f"id: {event_id}\n" if event_id else ""
        data = f"{head}event: message\ndata: {json.dumps(message)}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def end_stream(self):
        self.wfile.write(b"0\r\n\r\n")

    def do_GET(self):
        self.plain(405)

    def do_DELETE(self):
        SESSIONS.discard(self.headers.get("Mcp-Session-Id"))
        self.plain(200)

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if message.get("method") == "initialize":
            return self.initialize(message)
        if self.headers.get("Mcp-Session-Id") not in SESSIONS:
            return self.unknown(message)
        if "id" not in message or "method" not in message:
            self.plain(202)
            return self.hear(message)
        if message["method"] != "tools/call":
            return self.result(message, {})
        tenant = self.headers.get("X-Tenant")
        if tenant == "nobody":
            return self.plain(401, "who are you?", "text/plain", CHALLENGE)
        self.call(message, message["params"]["name"], message["params"]["arguments"], tenant)

    def hear(self, message):
        pass

    def call(self, message, name, arguments, tenant):
        count(name, arguments)
        if name == "charge":
            return self.charge(message, arguments)
        if name == "forget":
            SESSIONS.clear()
        self.result(message, {"content": [{"type": "text", "text": str(tenant)}]})

    def unknown(self, message):
        error = {"code": -32000, "message": "Bad Request: No valid session ID provided"}
        answer = {"jsonrpc": "2.0", "id": message.get("id"), "error": error}
        self.plain(int((sys.argv[3:] or ["404"])[0]), json.dumps(answer))

    def initialize(self, message):
        if self.headers.get("Authorization", "Bearer good") != "Bearer good":
            return self.plain(401, "who are you?", "text/plain", CHALLENGE)
        session = os.urandom(16).hex()
        SESSIONS.add(session)
        self.result(message, {
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "small", "version": "1"},
        }, {"Mcp-Session-Id": session})

    def charge(self, message, arguments):
        self.open_stream()
        for number in range(1, arguments["events"] + 1):
            time.sleep(arguments["interval_ms"] / 1000)
            self.event(progress(message, number))
        self.event(charged(message, arguments))
        self.end_stream()


def progress(message, number):
    token = message["params"]["_meta"]["progressToken"]
    return {"jsonrpc": "2.0", "method": "notifications/progress",
            "params": {"progressToken": token, "progress": number}}


def charged(message, arguments):
    text = f"charged {arguments['amount']}"
    return {"jsonrpc": "2.0", "id": message["id"],
            "result": {"content": [{"type": "text", "text": text}]}}


def main(handler):
    server = ThreadingHTTPServer(("127.0.0.1", int((sys.argv[2:] or ["0"])[0])), handler)
    server.daemon_threads = True
    print(f"serves http://127.0.0.1:{server.server_address[1]}/mcp", flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main(Handler)
