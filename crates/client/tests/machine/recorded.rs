//! A record is told after what came before it, if that can be had.

use serde_json::{Value, json};

use crate::support::{Kind, Post, World, gone, limits, reopen};

const ORIGIN: &str = "00000001-3-0";

/// The answer to a POST by the record of its call, whose progress is behind `origin`.
fn record(post: &Post, origin: Option<&str>) -> Value {
    let mut meta = json!({ "dev.rejoin/recorded": 7 });
    if let Some(origin) = origin {
        meta["dev.rejoin/origin"] = json!(origin);
    }
    let mut record = post.result("done");
    record["result"]["_meta"] = meta;
    record
}

/// A call whose first answer vanished whole, and whose second POST got the record.
fn recorded(origin: Option<&str>) -> (World, Post, Post) {
    let mut world = World::opened(Kind::Rejoin(9));
    let (first, second) = world.repeated(1, "charge");
    world.stream(second.exchange);
    world.sse(second.exchange, "id: 00000001-4-0\ndata:\n\n");
    world.event(second.exchange, "00000001-4-9", &record(&second, origin));
    (world, first, second)
}

#[test]
fn who_has_read_nothing_reads_the_calls_own_stream_first_and_holds_what_comes_later() {
    let (mut world, first, _) = recorded(Some(ORIGIN));
    world.nothing_delivered();
    world.call(2, "charge");
    let (get, request) = world.get();
    assert_eq!(request.header("last-event-id"), Some(ORIGIN));
    assert_eq!(request.header("mcp-stream-ack"), Some("00000001-4-9"));
    world.replay(get, "00000001-3-8");
    for (id, progress) in [("00000001-3-5", 1), ("00000001-3-6", 2)] {
        world.event(get, id, &first.progress(progress));
        assert_eq!(
            world.delivered()["params"],
            json!({ "progressToken": 1, "progress": progress })
        );
    }
    world.nothing_opened();
    world.event(get, "00000001-3-8", &first.result("done"));
    let result = world.delivered();
    assert_eq!((&result["id"], &result["result"]), (&json!(1), &json!({ "text": "done" })));
    assert_eq!(world.post().body["params"]["arguments"]["n"], 2, "what waited goes on");
    world.nothing_delivered();
}

#[test]
fn a_stream_that_breaks_again_is_resumed_from_where_it_was_read_to() {
    let (mut world, first, _) = recorded(Some(ORIGIN));
    let get = world.get_after(ORIGIN);
    world.replay(get, "00000001-3-8");
    world.event(get, "00000001-3-5", &first.progress(1));
    world.delivered();
    world.cut(get);
    world.pass_until_opened(1_000);
    let get = world.get_after("00000001-3-5");
    world.replay(get, "00000001-3-8");
    world.event(get, "00000001-3-8", &first.result("done"));
    assert_eq!(world.delivered()["id"], 1);
}

#[test]
fn the_record_is_told_where_the_stream_cannot_be_had() {
    let expired = |first: &Post| {
        json!({ "jsonrpc": "2.0", "id": first.id(), "error": { "code": 40906, "message": "gone",
            "data": { "by": "rejoin", "reason": "outcome_unknown", "sendAgain": false } } })
    };
    for case in ["405", "expired", "ends", "silent", "no session"] {
        let (mut world, first, _) = recorded(Some(ORIGIN));
        let get = world.get_after(ORIGIN);
        match case {
            "405" => world.status(get, 405),
            "expired" => {
                world.stream(get);
                world.event(get, "00000001-3-8", &expired(&first));
            }
            "ends" => {
                for _ in 0..limits().resume_attempts_max {
                    world.cut(get);
                    world.pass(limits().recorded_wait_ms);
                }
            }
            "silent" => {
                world.stream(get);
                world.pass(limits().recorded_wait_ms);
            }
            _ => {
                world.status(get, 404);
                let ping = world.post();
                gone(&mut world, &ping);
                let told = world.delivered();
                assert_eq!(told["id"], 1);
                reopen(&mut world, Kind::Rejoin(9));
                world.pass(1_000);
                continue;
            }
        }
        let told = world.delivered();
        assert_eq!((&told["id"], &told["result"]["text"]), (&json!(1), &json!("done")), "{case}");
        assert_eq!(told["result"]["_meta"]["dev.rejoin/recorded"], 7);
        assert_eq!(world.machine.pending_calls(), 0);
        let sent_again = world.opened.iter().any(|(_, request)| !request.body.is_empty());
        assert!(!sent_again, "{case}: it is never sent again");
    }
}

#[test]
fn a_record_without_an_origin_is_told_at_once_and_so_is_a_mark_on_a_first_answer() {
    let (mut world, ..) = recorded(None);
    assert_eq!(world.delivered()["id"], 1);
    for kind in [Kind::Rejoin(9), Kind::Plain] {
        // Not this server's own mark: it may relay what a Rejoin behind it said.
        let mut world = World::opened(kind);
        let post = world.posted(1, "charge");
        world.stream(post.exchange);
        world.event(post.exchange, "a", &record(&post, Some(ORIGIN)));
        assert_eq!(world.delivered()["id"], 1);
        world.nothing_opened();
    }
}

#[test]
fn who_has_read_some_of_it_goes_on_from_there() {
    let mut world = World::opened(Kind::Rejoin(9));
    let (first, get) = world.resuming(1, "charge", "00000001-3-5");
    world.status(get, 405);
    world.pass_until_opened(1_000);
    let second = world.post();
    world.stream(second.exchange);
    world.event(second.exchange, "00000001-4-9", &record(&second, Some(ORIGIN)));
    let get = world.get_after("00000001-3-5");
    world.replay(get, "00000001-3-8");
    world.event(get, "00000001-3-6", &first.progress(2));
    assert_eq!(world.delivered()["params"]["progress"], 2);
    world.event(get, "00000001-3-8", &first.result("done"));
    assert_eq!(world.delivered()["id"], 1);
}

#[test]
fn a_recorded_error_is_told_after_its_progress_too() {
    let mut world = World::opened(Kind::Rejoin(9));
    let (first, second) = world.repeated(1, "charge");
    world.stream(second.exchange);
    let error = |id: &Value, data: Value| {
        json!({ "jsonrpc": "2.0", "id": id,
            "error": { "code": -32603, "message": "broken", "data": data } })
    };
    let marks = json!({ "dev.rejoin/recorded": 7, "dev.rejoin/origin": ORIGIN });
    world.event(second.exchange, "00000001-4-9", &error(second.id(), marks));
    let get = world.get_after(ORIGIN);
    world.replay(get, "00000001-3-8");
    world.event(get, "00000001-3-5", &first.progress(1));
    world.delivered();
    world.event(get, "00000001-3-8", &error(first.id(), json!("why")));
    assert_eq!(world.delivered()["error"]["data"], "why");
}
