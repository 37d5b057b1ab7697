"""nginx between Rejoin and a stock server (PyPI `fastmcp`, the tools of `rejoin tool-server`)."""

import contextlib
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import nginx
import wire

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "healthy"))

import gateway as stock  # noqa: E402

SERVER = "nginx between Rejoin and the server"
BUFFERED = nginx.plain("proxy_ignore_headers X-Accel-Buffering;")
SOON_SECONDS = 1.0


@contextlib.contextmanager
def chain(servers, read_timeout=None):
    """A gateway in front of nginx in front of the server: its session, it, and the count."""
    server = stock.HttpServer("tools")
    try:
        with tempfile.TemporaryDirectory() as folder:
            count = Path(folder) / "executions"
            url = urlsplit(server.url(count))
            with nginx.Nginx(servers, url.port, read_timeout) as proxy:
                upstream = url._replace(netloc=f"127.0.0.1:{proxy.port}").geturl()
                with wire.Gateway(upstream=upstream) as gateway:
                    gateway.count_file = count
                    yield wire.Session(gateway.port), gateway
    finally:
        server.stop()


def progress_passes_while_the_call_runs():
    """Documented settings."""
    with chain(nginx.documented(SERVER)) as (session, _):
        answer = session.charge(1, 1, 5, 300)
        events = answer.rest()
        assert wire.numbers(events) == [1, 2, 3, 4, 5], events
        first = next(event.at for event in events if event.message)
        assert first - answer.sent_at < SOON_SECONDS <= events[-1].at - answer.sent_at


def cut_resumed_and_repeated():
    """The client's connection is cut: the repeat is refused, the rest comes, one execution."""
    with chain(nginx.documented(SERVER)) as (session, gateway):
        answer = session.charge(1, 1, 20, 100)
        seen = answer.messages(5)
        answer.cut()
        gateway.lost()
        assert session.charge(2, 1, 20, 100).json()["error"]["code"] == 40902
        events = session.resume(seen[-1].id).rest()
        assert wire.numbers(seen) + wire.numbers(events) == list(range(1, 21)), events
        assert "result" in wire.result(events) and gateway.executions() == 1


def a_buffering_nginx_delays_and_loses_nothing():
    """Progress comes with the answer; the client has had its cursor from Rejoin at once."""
    with chain(BUFFERED) as (session, gateway):
        answer = session.charge(1, 1, 5, 300)
        assert answer.head_at - answer.sent_at < SOON_SECONDS
        events = answer.rest()
        assert wire.numbers(events) == [1, 2, 3, 4, 5], events
        first = next(event.at for event in events if event.message)
        assert first - answer.sent_at > SOON_SECONDS and gateway.executions() == 1


def a_read_timeout_behind_costs_no_second_execution():
    """nginx gives up on a silent server after 2 s of 5; Rejoin resumes there, and sends nothing
    again."""
    with chain(nginx.documented(SERVER), "2s") as (session, gateway):
        events = session.charge(1, 1, 1, 5000).rest()
        assert "result" in wire.result(events), events
        assert gateway.executions() == 1


CASES = (
    progress_passes_while_the_call_runs,
    cut_resumed_and_repeated,
    a_buffering_nginx_delays_and_loses_nothing,
    a_read_timeout_behind_costs_no_second_execution,
)
