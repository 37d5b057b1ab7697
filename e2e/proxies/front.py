"""nginx between the client and Rejoin."""

import time

import nginx
import wire

CLIENT = "nginx between the client and Rejoin"
# A comment each second, so that what takes a minute in operation takes seconds here.
EVERY_SECOND = ("--limit", "keep_alive_ms=1000")
# nginx's defaults, but for the header that Rejoin turns its buffering off with.
BUFFERED = nginx.plain("proxy_ignore_headers X-Accel-Buffering;")
SOON_SECONDS = 1.0


def documented():
    """The settings that docs/operating.md shows."""
    return nginx.documented(CLIENT)


def arrival(servers):
    """A call of five events in 1.5 s: when head, first and last event came, in seconds."""
    with wire.Gateway(*EVERY_SECOND) as gateway, nginx.Nginx(servers, gateway.port) as proxy:
        answer = wire.Session(proxy.port).charge(1, 1, 5, 300)
        events = answer.rest()
        assert wire.numbers(events) == [1, 2, 3, 4, 5], events
        assert "result" in wire.result(events), events
        moments = [event.at for event in events if event.message]
        return [at - answer.sent_at for at in (answer.head_at, moments[0], moments[-1])]


def progress_arrives_while_the_call_runs():
    """Documented settings."""
    head, first, last = arrival(documented())
    assert head < SOON_SECONDS and first < SOON_SECONDS <= last, (head, first, last)


def progress_arrives_with_nginx_defaults_because_of_the_header():
    """HTTP/1.0 to Rejoin, buffering on: `X-Accel-Buffering: no` turns it off for the answer."""
    head, first, last = arrival(nginx.plain())
    assert head < SOON_SECONDS and first < SOON_SECONDS <= last, (head, first, last)


def a_buffering_nginx_delivers_nothing_before_the_end():
    """The header ignored: head, progress and result come together, whole."""
    head, first, last = arrival(BUFFERED)
    assert head > SOON_SECONDS and first > SOON_SECONDS and last >= first, (head, first, last)


def a_second_nginx_does_not_see_the_header():
    """nginx takes `X-Accel-Buffering` out: the one in front of it buffers by default."""
    with wire.Gateway(*EVERY_SECOND) as gateway, nginx.Nginx(nginx.plain(), gateway.port) as inner:
        with nginx.Nginx(nginx.plain(), inner.port) as outer:
            answer = wire.Session(outer.port).charge(1, 1, 5, 300)
            assert wire.numbers(answer.rest()) == [1, 2, 3, 4, 5]
            assert answer.head_at - answer.sent_at > SOON_SECONDS


def cut_and_resumed():
    """The client's reset reaches Rejoin; the rest comes by GET, once and in order."""
    with wire.Gateway() as gateway, nginx.Nginx(documented(), gateway.port) as proxy:
        session = wire.Session(proxy.port)
        answer = session.charge(1, 1, 20, 50)
        seen = answer.messages(5)
        answer.cut()
        gateway.lost()
        tail = session.resume(seen[-1].id)
        assert tail.status == 200, tail.status
        events = tail.rest()
        assert wire.numbers(seen) + wire.numbers(events) == list(range(1, 21)), events
        assert wire.result(events)["id"] == 1 and "result" in wire.result(events)
        assert gateway.executions() == 1


def repeated(servers, read):
    """The status, code and execution count of a blind repeat while the first call runs."""
    with wire.Gateway() as gateway, nginx.Nginx(servers, gateway.port) as proxy:
        session = wire.Session(proxy.port)
        answer = session.charge(1, 1, 20, 100, read=read)
        if read:
            answer.messages(3)
        else:
            gateway.wait_for_executions(1)
        answer.cut()
        gateway.lost()
        again = session.charge(2, 1, 20, 100)
        error = again.json()["error"]
        assert (again.status, error["code"]) == (409, 40902), (again.status, error)
        assert error["message"].startswith("Not run."), error
        events = session.resume(error["data"]["lastEventId"]).rest()
        assert "result" in wire.result(events), events
        assert gateway.executions() == 1


def a_blind_repeat_runs_nothing():
    """Refused with its cursor, which leads to the answer."""
    repeated(documented(), read=True)


def a_blind_repeat_runs_nothing_behind_a_buffering_nginx():
    """The client never saw an id; the refusal has one."""
    repeated(BUFFERED, read=False)


def silent(servers, limits):
    """A call that is silent for 9 s, through an nginx that waits 3 s: (seen, all, comments)."""
    with wire.Gateway(*limits) as gateway, nginx.Nginx(servers, gateway.port, "3s") as proxy:
        session = wire.Session(proxy.port)
        answer = session.charge(1, 1, 1, 9000)
        seen = answer.event()
        try:
            whole = answer.rest()
        except wire.Cut:
            response = wire.resumed(session, seen.id)
            assert "result" in response, response
            whole = None
        assert gateway.executions() == 1
        return whole, answer.comments


def comments_carry_a_silent_call_through_three_read_timeouts():
    """Comments come three times as often as nginx gives up."""
    whole, comments = silent(documented(), EVERY_SECOND)
    assert whole and "result" in wire.result(whole) and comments >= 7, (whole, comments)


def comments_carry_it_through_a_buffering_nginx_too():
    """nginx counts what it reads, not what it passes on."""
    servers = nginx.plain("proxy_ignore_headers X-Accel-Buffering;", "proxy_read_timeout 60s;")
    whole, _ = silent(servers, EVERY_SECOND)
    assert whole and "result" in wire.result(whole), whole


def without_comments_nginx_cuts_it_and_resumes_have_the_answer():
    """The control of the two above: comments slower than the timeout do not help, and each resume
    is cut as well until the call has ended."""
    whole, comments = silent(documented(), ("--limit", "keep_alive_ms=30000"))
    assert whole is None and comments <= 1, (whole, comments)


def pooled_calls_share_a_connection():
    """Twenty calls, each on the client's own connection, need one or two to Rejoin."""
    def left_behind(servers):
        with wire.Gateway() as gateway, nginx.Nginx(servers, gateway.port) as proxy:
            session = wire.Session(proxy.port)
            for number in range(20):
                assert "result" in wire.result(session.charge(number, number).rest())
            return wire.sockets_to(gateway.port)
    pooled, single = left_behind(documented()), left_behind(nginx.plain())
    assert pooled <= 6 and single >= 20, (pooled, single)


def nginx_sends_no_post_twice():
    """A server that takes a POST and resets its pooled connection has had it once; a GET comes
    again."""
    for method, times in (("POST", 1), ("GET", 2)):
        with wire.Resetting(after=1) as server, nginx.Nginx(documented(), server.port) as proxy:
            warm = wire.Answer(proxy.port, "GET", {}, None)
            assert warm.status == 200, warm.status
            answer = wire.Answer(proxy.port, method, {}, {} if method == "POST" else None)
            assert answer.status == 502, answer.status
            assert server.taken[1:] == [method] * times, server.taken


def unread(*options, direct=False, **headers):
    """A short answer that the client never reads, then the same call: (executions, response)."""
    with wire.Gateway(*options) as gateway, nginx.Nginx(documented(), gateway.port) as proxy:
        session = wire.Session(gateway.port if direct else proxy.port)
        answer = session.charge(1, 1, 3, 100, read=False, **headers)
        gateway.wait_for("a stream moved", 'from="live"', 'to="ending"')
        if "proved" not in options:
            gateway.wait_for("a stream moved", 'to="presumed"')
        time.sleep(0.2)  # for nginx to hand it on; nothing tells when it has
        answer.cut()
        if direct:
            gateway.wait_for("a stream moved", 'to="doubtful"')
        events = session.charge(2, 1, 3, 100, **headers).rest()
        return gateway.executions(), wire.result(events)


def is_record(response):
    """Whether a response is the record of an earlier execution."""
    return "dev.rejoin/recorded" in response["result"].get("_meta", {})


def presumed_means_that_nginx_has_it():
    """An answer lost between nginx and the client makes the same call a new call."""
    executions, response = unread()
    assert executions == 2 and not is_record(response), (executions, response)
    executions, response = unread(direct=True)
    assert executions == 1 and is_record(response), (executions, response)


def proved_closes_that_gap():
    """`--delivery proved`: the record."""
    executions, response = unread("--delivery", "proved")
    assert executions == 1 and is_record(response), (executions, response)


def proved_has_a_price():
    """A client that read everything and confirmed nothing gets the record of its own call."""
    for options, executions in (((), 2), (("--delivery", "proved"), 1)):
        with wire.Gateway(*options) as gateway, nginx.Nginx(documented(), gateway.port) as proxy:
            session = wire.Session(proxy.port)
            answers = [wire.result(session.charge(number, 1).rest()) for number in (1, 2)]
            assert gateway.executions() == executions, (options, gateway.executions())
            assert is_record(answers[1]) == (executions == 1), (options, answers)


def a_token_closes_that_gap():
    """`Idempotency-Key`: the record, which passes nginx."""
    executions, response = unread(**{"Idempotency-Key": "b7c1"})
    assert executions == 1 and is_record(response), (executions, response)


def large_requests_pass():
    """2 MiB, which is more than nginx takes by default."""
    with wire.Gateway() as gateway:
        for servers, status in ((documented(), 200), (nginx.plain(), 413)):
            with nginx.Nginx(servers, gateway.port) as proxy:
                answer = wire.Session(proxy.port).echo(1, "x" * 2 * 1024 * 1024)
                assert answer.status == status, (answer.status, status)
                if status == 200:
                    answer.rest()


def the_public_name_reaches_rejoin():
    """`Host` as the client sent it: let in by `--allow-host`, refused without. Without its line
    in the block, Rejoin is asked for under the name of the `upstream`."""
    line = "proxy_set_header Host $http_host;"
    nameless = documented().replace(line, "")
    assert nameless != documented(), f"no {line}"
    allowed = ("--allow-host", "mcp.example.com")
    for options, servers, status in (
        (allowed, documented(), 200), ((), documented(), 403), (allowed, nameless, 403),
    ):
        with wire.Gateway(*options) as gateway, nginx.Nginx(servers, gateway.port) as proxy:
            found = wire.opening_status(proxy.port, Host="mcp.example.com")
            assert found == status, (found, status)


CASES = (
    progress_arrives_while_the_call_runs,
    progress_arrives_with_nginx_defaults_because_of_the_header,
    a_buffering_nginx_delivers_nothing_before_the_end,
    a_second_nginx_does_not_see_the_header,
    cut_and_resumed,
    a_blind_repeat_runs_nothing,
    a_blind_repeat_runs_nothing_behind_a_buffering_nginx,
    comments_carry_a_silent_call_through_three_read_timeouts,
    comments_carry_it_through_a_buffering_nginx_too,
    without_comments_nginx_cuts_it_and_resumes_have_the_answer,
    pooled_calls_share_a_connection,
    nginx_sends_no_post_twice,
    presumed_means_that_nginx_has_it,
    proved_closes_that_gap,
    proved_has_a_price,
    a_token_closes_that_gap,
    large_requests_pass,
    the_public_name_reaches_rejoin,
)
