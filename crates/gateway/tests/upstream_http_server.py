"""The scripted MCP server of the conformance suite, over Streamable HTTP. Python 3, no packages.

The script language is described in src/upstream/conformance.rs. Beyond it, for HTTP alone:
  {"cut": true}      breaks the connection of this call's stream; what is written later is kept
  {"end": true}      ends that connection cleanly; what is written later is kept
  {"retry": MS}      writes a `retry:` event
  {"comment": N}     writes a comment of N bytes
  {"elsewhere": LINE} writes LINE on the standalone stream
  {"raw": TEXT}      writes TEXT as it is into the stream
  {"status": N, "type": T, "body": TEXT, "headers": {}}  answers the POST so; must come first
  {"forget": true}   the server forgets all sessions
  {"require": A}     from here on, GET is answered 401 unless its Authorization is A
  {"pause": MS}      waits so long
  {"drop": "get"}    breaks the connection of the standalone stream

Arguments:
  ids             events have ids, and streams are resumed
  same-ids        ids count from 1 in every stream, and can be resumed all the same
  replay-cursor   a replay begins with the cursor's own event
  replay-foreign  a replay brings the events of all streams
  replay-only     a resumed stream ends its replay with an id of its own, and brings nothing live
  no-session      no session id is issued
  no-get=N        GET is answered with status N
  unknown=N       what belongs to no session is answered with status N, not 404
  unknown-text=T  the error in that answer says T
  unknown-own     that error has the id of the request
  no-ping=N       ping is answered with status N
  close           every answer ends its connection, so that none is used again
  sse             initialize is answered by a stream
  early           there, a notification comes before the answer
  mute            initialize is never answered
  refuse=N        initialize is answered with status N and a challenge
  encoded         initialize is answered in a coding
  port=N          listens on this port
  tls=CERT,KEY    serves TLS

A request `test/stats` is answered with all requests received so far. The paths /moved, /loop,
/other and /found redirect.
"""

import json
import os
import ssl
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FLAGS = {word.partition("=")[0]: word.partition("=")[2] for word in sys.argv[1:]}
CHANGED = threading.Condition()
SIGNALS = set()
RECEIVED = []
REQUESTS = []
REQUIRED = set()
SESSIONS = set()
STREAMS = {}


class Cut(Exception):
    pass


class Stream:
    """The items of one logical stream; connections follow it."""

    def __init__(self, name):
        self.name, self.items, self.done, self.owner, self.at = name, [], False, None, 0
        self.count = 0

    def put(self, kind, text=""):
        with CHANGED:
            event_id = None
            if kind == "event" and ("ids" in FLAGS or "same-ids" in FLAGS):
                self.count += 1
                event_id = f"{self.name}-{self.count}" if "ids" in FLAGS else str(self.count)
            self.items.append({"kind": kind, "text": text, "id": event_id, "done": False})
            CHANGED.notify_all()

    def finish(self):
        with CHANGED:
            self.done = True
            CHANGED.notify_all()


def encode(item):
    head = f"id: {item['id']}\n" if item["id"] else ""
    return f"{head}data: {item['text']}\n\n".encode()


def find(cursor):
    """The stream of a cursor, and the index behind it."""
    for stream in sorted(STREAMS.values(), key=lambda stream: stream.owner is not None):
        for index, item in enumerate(stream.items):
            if item["id"] == cursor:
                return stream, index + 1
    return None, 0


def running():
    """The call streams that can be written to."""
    return [stream for stream in STREAMS.values()
            if stream.name != "standalone" and not stream.done and stream.owner]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def note(self, method):
        headers = {name.lower(): value for name, value in self.headers.items()}
        REQUESTS.append({"http": self.command, "method": method, "headers": headers})

    def plain(self, status, body=b"", media=None, headers=None):
        if isinstance(body, str):
            body = body.encode()
        self.send_response(status)
        if media:
            self.send_header("Content-Type", media)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def redirected(self):
        port = self.server.server_address[1]
        target = {
            "/moved": (307, "/mcp"),
            "/loop": (307, "/loop"),
            "/found": (302, "/mcp"),
            "/other": (307, f"http://localhost:{port}/mcp"),
        }.get(self.path)
        if target:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.plain(target[0], headers={"Location": target[1]})
        return target is not None

    def unknown_session(self, request_id=None):
        if "no-session" in FLAGS or self.headers.get("Mcp-Session-Id") in SESSIONS:
            return False
        error = {"code": -32001, "message": FLAGS.get("unknown-text", "x")}
        request_id = request_id if "unknown-own" in FLAGS else None
        answer = {"jsonrpc": "2.0", "id": request_id, "error": error}
        self.plain(int(FLAGS.get("unknown", 404)), json.dumps(answer), "application/json")
        return True

    def end_headers(self):
        if "close" in FLAGS:
            self.send_header("Connection", "close")
        super().end_headers()

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def start(self, headers=None):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()

    def hang_up(self):
        self.close_connection = True
        raise Cut

    def follow(self, stream, index, eager):
        """Writes a stream to this connection until it ends here."""
        started = False
        try:
            with CHANGED:
                stream.owner, stream.at = self, index
                CHANGED.notify_all()
            while True:
                with CHANGED:
                    CHANGED.wait_for(lambda: stream.owner is not self or eager and not started
                                     or index < len(stream.items) or stream.done)
                    items, done = stream.items[index:index + 500], stream.done
                    if stream.owner is not self:
                        break
                if not items and done and not started and not eager:
                    started = True
                    self.start()
                if not started and (eager or items and items[0]["kind"] != "status"):
                    started = True
                    self.start()
                    continue
                if not items and done:
                    break
                for item in items:
                    index += 1
                    self.write_item(item)
                with CHANGED:
                    stream.at = index
                    CHANGED.notify_all()
            self.wfile.write(b"0\r\n\r\n")
        except EOFError:
            # Before the client can know of the end and follow the stream on another connection:
            # steps wait until this one has let go.
            self.let_go(stream, index)
            if started:
                self.wfile.write(b"0\r\n\r\n")
        finally:
            self.let_go(stream, index)

    def let_go(self, stream, index):
        with CHANGED:
            if stream.owner is self:
                stream.owner, stream.at = None, index
            CHANGED.notify_all()

    def write_item(self, item):
        if item["kind"] == "event":
            self.chunk(encode(item))
        elif item["kind"] == "raw":
            self.chunk(item["text"].encode())
        elif not item["done"]:
            item["done"] = True
            if item["kind"] == "cut":
                self.hang_up()
            elif item["kind"] == "status":
                todo = item["text"]
                self.plain(todo["status"], todo.get("body", ""), todo.get("type"),
                           todo.get("headers"))
                raise EOFError
            raise EOFError

    def do_GET(self):
        self.serve(self.get)

    def do_POST(self):
        self.serve(self.post)

    def do_DELETE(self):
        self.serve(self.delete)

    def serve(self, method):
        try:
            if not self.redirected():
                method()
        except Cut:
            self.close_connection = True
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def delete(self):
        self.note(None)
        SESSIONS.discard(self.headers.get("Mcp-Session-Id"))
        self.plain(200)

    def get(self):
        self.note(None)
        if "no-get" in FLAGS:
            return self.plain(int(FLAGS["no-get"]))
        if self.unknown_session():
            return
        if REQUIRED and self.headers.get("Authorization") not in REQUIRED:
            return self.plain(401)
        cursor = self.headers.get("Last-Event-ID")
        if cursor is None:
            stream = STREAMS["standalone"]
            return self.follow(stream, stream.at, True)
        stream, index = find(cursor)
        if stream is None:
            return self.plain(400)
        if "replay-cursor" in FLAGS:
            index -= 1
        if "replay-only" in FLAGS:
            return self.replay(stream, index)
        if "replay-foreign" in FLAGS:
            self.start()
            for other in list(STREAMS.values()):
                if other is not stream:
                    for item in other.items:
                        if item["kind"] == "event":
                            self.chunk(encode(item))
            self.start = lambda: None
        self.follow(stream, index, True)

    def replay(self, stream, index):
        with CHANGED:
            items, stream.owner = stream.items[index:], None
        self.start()
        for item in items:
            if item["kind"] == "event":
                self.chunk(encode(item))
        self.chunk(b"id: behind\ndata:\n\n")
        # Until the peer leaves.
        self.rfile.read(1)
        self.hang_up()

    def post(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        message = json.loads(body)
        method = message.get("method")
        self.note(method)
        if method == "initialize":
            return self.initialize(message)
        if self.unknown_session(message.get("id")):
            return
        if method == "ping" and "no-ping" in FLAGS:
            return self.plain(int(FLAGS["no-ping"]))
        if method == "ping":
            answer = {"jsonrpc": "2.0", "id": message["id"], "result": {}}
            return self.plain(200, json.dumps(answer), "application/json")
        if method == "test/stats":
            answer = {"jsonrpc": "2.0", "id": message["id"], "result": {"requests": REQUESTS}}
            return self.plain(200, json.dumps(answer), "application/json; charset=utf-8")
        if method == "test/script":
            return self.script(message)
        echo = {"jsonrpc": "2.0", "method": "test/received", "params": {"line": body}}
        standalone = STREAMS["standalone"]
        target = standalone
        if method != "notifications/initialized":
            # Another POST that was sent before may still be on its way.
            with CHANGED:
                CHANGED.wait_for(lambda: standalone.owner or running(), timeout=10)
            target = standalone if standalone.owner else (running() + [standalone])[0]
        target.put("event", json.dumps(echo))
        with CHANGED:
            RECEIVED.append(body)
            CHANGED.notify_all()
        self.plain(202)

    def script(self, message):
        stream = Stream(f"s{message['id']}")
        STREAMS[message["id"]] = stream
        steps = message["params"]["steps"]
        runner = threading.Thread(target=run, args=(stream, message["id"], steps), daemon=True)
        runner.start()
        self.follow(stream, 0, False)

    def initialize(self, message):
        if "mute" in FLAGS:
            time.sleep(600)
        if "refuse" in FLAGS:
            challenge = {"WWW-Authenticate": 'Bearer realm="tools"', "X-Other": "no"}
            return self.plain(int(FLAGS["refuse"]), "denied", "text/plain", challenge)
        result = {
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {}, "logging": {}},
            "serverInfo": {"name": "scripted", "version": "1", "pid": os.getpid()},
        }
        headers = {}
        if "no-session" not in FLAGS:
            headers["Mcp-Session-Id"] = f"session-{os.getpid()}-{len(REQUESTS)}"
            SESSIONS.add(headers["Mcp-Session-Id"])
        answer = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result})
        if "encoded" in FLAGS:
            headers["Content-Encoding"] = "br"
        if "sse" not in FLAGS:
            return self.plain(200, answer, "application/json", headers)
        early = '{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"early"}}'
        self.start(headers)
        self.chunk(b": hello\n\nretry: 100\nid: i-0\ndata:\n\n")
        if "early" in FLAGS:
            self.chunk(f"data: {early}\n\n".encode())
        self.chunk(f"event: message\ndata: {answer}\n\n".encode())
        self.wfile.write(b"0\r\n\r\n")


def wait_until(condition):
    with CHANGED:
        CHANGED.wait_for(condition)


def step(stream, todo):
    if "write" in todo:
        for number in range(todo.get("times", 1)):
            stream.put("event", todo["write"].replace("#N#", str(number)))
    elif "signal" in todo:
        with CHANGED:
            SIGNALS.add(todo["signal"])
            CHANGED.notify_all()
    elif "wait" in todo:
        wait_until(lambda: todo["wait"] in SIGNALS)
    elif "received" in todo:
        wait_until(lambda: any(todo["received"] in line for line in RECEIVED))
    elif "die" in todo:
        wait_until(lambda: all(other.at == len(other.items)
                               for other in STREAMS.values() if other.name != "standalone"))
        os._exit(todo["die"])
    elif "elsewhere" in todo:
        STREAMS["standalone"].put("event", todo["elsewhere"])
    elif "drop" in todo:
        STREAMS["standalone"].put("cut")
    elif "require" in todo:
        REQUIRED.add(todo["require"])
    elif "pause" in todo:
        time.sleep(todo["pause"] / 1000)
    elif "forget" in todo:
        SESSIONS.clear()
    elif "status" in todo:
        stream.put("status", todo)
    elif "retry" in todo:
        stream.put("raw", f"retry: {todo['retry']}\n\n")
    elif "comment" in todo:
        stream.put("raw", ": " + "c" * todo["comment"] + "\n\n")
    elif "raw" in todo:
        stream.put("raw", todo["raw"])
    elif "cut" in todo or "end" in todo:
        stream.put("cut" if "cut" in todo else "end")
        wait_until(lambda: stream.items[-1]["done"] and stream.owner is None)


def run(stream, call, steps):
    for todo in steps:
        step(stream, todo)
    answered = any(f'"id":{call},' in item["text"] or f'"id" : {call},' in item["text"]
                   for item in stream.items if item["kind"] == "event")
    if answered:
        stream.finish()


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024
    allow_reuse_address = True

    def handle_error(self, *_):
        pass


def main():
    STREAMS["standalone"] = Stream("standalone")
    server = Server(("127.0.0.1", int(FLAGS.get("port", 0))), Handler)
    scheme = "http"
    if "tls" in FLAGS:
        certificate, key = FLAGS["tls"].split(",")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        scheme = "https"
    print(f"{scheme}://127.0.0.1:{server.server_address[1]}", flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()
    os._exit(0)


main()
