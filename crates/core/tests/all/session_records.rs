//! Every record is marked with when its original ended (design section 5), and every error goes to
//! the request id that its client sent (section 6).

use crate::support::{Rig, call};
use rejoin_core::id::{ConnectionId, Seq, StreamId};
use rejoin_core::token::{ORIGIN_META, RECORDED_META};
use serde_json::{Value, json};

fn stream(rig: &Rig, connection: ConnectionId) -> StreamId {
    rig.opened(connection).expect("it streams").stream
}

fn last_event(rig: &Rig, post: ConnectionId) -> Value {
    let events = rig.events_after(stream(rig, post), Seq::ORIGIN);
    serde_json::from_str(&events.last().expect("an event").1).expect("JSON")
}

/// The record of a call that was answered with `member` and then given up.
fn record(member: &str, token: bool) -> Value {
    let mut rig = Rig::plain();
    let post = |rig: &mut Rig, id: &str| {
        let body = call(id, "a", "{}");
        if token { rig.post_token(&body, "t") } else { rig.post(&body) }
    };
    let first = post(&mut rig, "1");
    rig.pass(5);
    rig.upstream(&format!(r#"{{"jsonrpc":"2.0","id":1,{member}}}"#));
    rig.lose(first, Seq::ORIGIN);
    rig.pass(8_000);
    let again = post(&mut rig, r#""again""#);
    assert_eq!(rig.executed().len(), 1);
    let record = last_event(&rig, again);
    assert_eq!(record["id"], "again");
    assert_eq!(record["jsonrpc"], "2.0");
    record
}

const ENDED_MS: u64 = 1_000_005;

#[test]
fn results_are_marked_in_their_meta_those_of_failed_tools_too() {
    for (result, expected) in [
        ("{}", json!({})),
        (r#"{"content":[],"isError":true}"#, json!({"content": [], "isError": true})),
        (r#"{"n":12345678901234567890123}"#, json!({})),
        (r#"{"_meta":{"k":1},"b":2}"#, json!({"b": 2})),
        (r#"{"_meta":null,"b":[1, 2]}"#, json!({"b": [1, 2]})),
    ] {
        for token in [false, true] {
            let record = record(&format!(r#""result":{result}"#), token);
            assert_eq!(record["result"]["_meta"][RECORDED_META], ENDED_MS, "{result}");
            for (key, value) in expected.as_object().expect("an object") {
                assert_eq!(record["result"][key], *value, "{result}");
            }
        }
    }
}

#[test]
fn errors_are_marked_in_their_data_whether_they_had_any_or_not() {
    for (data, kept) in [
        ("", None),
        (r#","data":{"k":1}"#, None),
        (r#","data":null"#, None),
        (r#","data":"why""#, Some(json!("why"))),
        (r#","data":[1]"#, Some(json!([1]))),
    ] {
        for token in [false, true] {
            let error = format!(r#""error":{{"code":-32603,"message":"broken"{data}}}"#);
            let record = record(&error, token);
            assert_eq!(record["error"]["data"][RECORDED_META], ENDED_MS, "{data}");
            assert_eq!(record["error"]["code"], -32_603);
            assert_eq!(record["error"]["message"], "broken");
            if let Some(kept) = kept.clone() {
                assert_eq!(record["error"]["data"]["value"], kept);
            }
            if data.contains("{") {
                assert_eq!(record["error"]["data"]["k"], 1);
            }
        }
    }
}

#[test]
fn a_number_in_replaced_data_stays_as_it_was_written() {
    let mut rig = Rig::plain();
    let first = rig.post(&call("1", "a", "{}"));
    let error = r#"{"code":-32603,"message":"m","data":[1.50,12345678901234567890123]}"#;
    rig.upstream(&format!(r#"{{"jsonrpc":"2.0","id":1,"error":{error}}}"#));
    rig.lose(first, Seq::ORIGIN);
    rig.pass(8_000);
    let again = rig.post(&call("2", "a", "{}"));
    let events = rig.events_after(stream(&rig, again), Seq::ORIGIN);
    assert!(events[0].1.contains(r#""value":[1.50,12345678901234567890123]"#), "{events:?}");
}

#[test]
fn every_record_of_a_batch_is_marked_and_what_runs_with_it_is_not() {
    let mut rig = Rig::plain();
    let posts = [rig.post(&call("1", "a", "{}")), rig.post(&call("2", "b", "{}"))];
    for post in posts {
        rig.lose(post, Seq::ORIGIN);
    }
    rig.upstream(r#"{"jsonrpc":"2.0","id":1,"result":{"isError":true}}"#);
    rig.upstream(r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"broken"}}"#);
    rig.pass(8_000);
    let (a, b, c) = (call("7", "a", "{}"), call("8", "b", "{}"), call("9", "c", "{}"));
    let batch = rig.post_with(&[&a, &b, &c], None);
    assert_eq!(rig.executed().len(), 3);
    rig.answer(rig.executed()[2]);
    let events = rig.events_after(stream(&rig, batch), Seq::ORIGIN);
    let of = |id: u64| {
        let events = events.iter().map(|(_, text)| text.as_str());
        let mut parsed = events.map(|text| serde_json::from_str::<Value>(text).expect("JSON"));
        parsed.find(|event| event["id"] == id).expect("it is answered")
    };
    assert!(of(7)["result"]["_meta"][RECORDED_META].is_u64());
    assert!(of(8)["error"]["data"][RECORDED_META].is_u64());
    assert!(!of(9).to_string().contains(RECORDED_META));
}

/// The retention passes, while the session's first call runs.
fn outlive(rig: &mut Rig) {
    for _ in 0..25 {
        rig.progress(rig.executed()[0], 1);
        rig.pass(3_500_000);
    }
}

fn expired_word(rig: &mut Rig, stream: StreamId) -> Value {
    let origin = rig.event_id(stream, 0);
    let get = rig.get(Some(origin));
    let word = rig.opened(get).expect("never 404").last_word.clone();
    serde_json::from_slice(&word.expect("the answer is gone")).expect("JSON")
}

#[test]
fn the_first_client_of_a_collected_call_is_told_under_its_own_id_that_its_answer_is_gone() {
    let mut rig = Rig::plain();
    let keeps = rig.post(&call(r#""keeps""#, "runs", "{}"));
    let first = rig.post(&call(r#""first""#, "a", "{}"));
    let id = rig.executed()[1];
    rig.answer(id);
    rig.lose(first, Seq::ORIGIN);
    rig.pass(8_000);
    let second = rig.post(&call(r#""second""#, "a", "{}"));
    rig.lose(second, Seq::ORIGIN);
    let (one, two) = (stream(&rig, first), stream(&rig, second));
    outlive(&mut rig);
    expired(&mut rig, one, "first");
    expired(&mut rig, two, "second");
    assert_eq!(rig.state(stream(&rig, keeps)), "live");
    rig.session.check().expect("consistent");
}

fn expired(rig: &mut Rig, stream: StreamId, id: &str) {
    let word = expired_word(rig, stream);
    assert_eq!(word["id"], id);
    assert_eq!(word["error"]["code"], 40_906);
}

#[test]
fn an_expired_batch_is_told_under_every_id_of_it() {
    let mut rig = Rig::plain();
    rig.post(&call(r#""keeps""#, "runs", "{}"));
    let batch = rig.post_with(&[&call("7", "a", "{}"), &call("8", "b", "{}")], None);
    for call in rig.executed()[1..].to_vec() {
        rig.answer(call);
    }
    rig.lose(batch, Seq::ORIGIN);
    outlive(&mut rig);
    let batch = stream(&rig, batch);
    let words = expired_word(&mut rig, batch);
    let ids: Vec<_> = words.as_array().expect("a batch").iter().map(|e| e["id"].clone()).collect();
    assert_eq!(ids, [json!(7), json!(8)]);
}

/// A call with a token and progress that ended while nobody read a word of it.
fn unread(rig: &mut Rig, progress: u64) -> StreamId {
    let first = rig.post_token(&call("1", "a", "{}"), "t");
    let id = rig.executed()[0];
    for step in 1..=progress {
        rig.progress(id, step);
    }
    rig.answer(id);
    rig.lose(first, Seq::ORIGIN);
    rig.pass(8_000);
    stream(rig, first)
}

#[test]
fn a_record_by_token_names_the_origin_from_which_all_that_was_unread_can_be_had() {
    for restarts in [false, true] {
        let mut rig = Rig::plain();
        let ran_on = unread(&mut rig, 3);
        let origin = rig.event_id(ran_on, 0);
        // The record itself may be lost, and the next one is made of it.
        for id in ["2", "3"] {
            let again = rig.post_token(&call(id, "a", "{}"), "t");
            let record = last_event(&rig, again);
            assert_eq!(record["result"]["_meta"][ORIGIN_META], origin.to_string());
            rig.lose(again, Seq::ORIGIN);
            rig.pass(8_000);
            if restarts {
                rig.restart();
            }
        }
        let get = rig.get(Some(origin));
        assert_eq!(rig.opened(get).expect("it is kept").after, Seq::ORIGIN);
        let read = rig.events_after(ran_on, Seq::ORIGIN);
        assert_eq!(read.len(), 4);
        assert!(read[3].1.contains(r#""id":1,"result""#), "{read:?}");
        assert_eq!(rig.state(ran_on), "released", "to read it moves nothing");
        // Nor does it make the call run again.
        let again = rig.post_token(&call("4", "a", "{}"), "t");
        rig.deliver(get);
        assert_eq!(rig.executed().len(), 1);
        assert!(rig.refused(again).is_none());
        rig.session.check().expect("consistent");
    }
}

#[test]
fn a_record_names_no_origin_where_there_is_no_progress_to_be_had() {
    let named = |rig: &mut Rig, token: bool| {
        let body = call("2", "a", "{}");
        let again = if token { rig.post_token(&body, "t") } else { rig.post(&body) };
        let record = last_event(rig, again);
        assert!(record["result"]["_meta"][RECORDED_META].is_u64());
        !record["result"]["_meta"][ORIGIN_META].is_null()
    };
    let mut rig = Rig::plain();
    unread(&mut rig, 0);
    assert!(!named(&mut rig, true), "there never was any");
    let mut rig = Rig::plain();
    unread(&mut rig, 1);
    assert!(!named(&mut rig, false), "without a token nobody can tell whose it is");
    // A cancelled call's stream cannot be resumed.
    let mut rig = Rig::plain();
    rig.post_token(&call("1", "a", "{}"), "t");
    rig.progress(rig.executed()[0], 1);
    rig.notify(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    rig.answer(rig.executed()[0]);
    assert!(!named(&mut rig, true));
}

#[test]
fn the_origin_of_an_error_is_named_in_its_data() {
    for (data, kept) in [("", Value::Null), (r#","data":"why""#, json!("why"))] {
        let mut rig = Rig::plain();
        let first = rig.post_token(&call("1", "a", "{}"), "t");
        rig.progress(rig.executed()[0], 1);
        let error = format!(r#"{{"code":-32603,"message":"broken"{data}}}"#);
        rig.upstream(&format!(r#"{{"jsonrpc":"2.0","id":1,"error":{error}}}"#));
        rig.lose(first, Seq::ORIGIN);
        rig.pass(8_000);
        let again = rig.post_token(&call("2", "a", "{}"), "t");
        let record = last_event(&rig, again);
        let origin = rig.event_id(stream(&rig, first), 0).to_string();
        assert_eq!(record["error"]["data"][ORIGIN_META], origin);
        assert_eq!(record["error"]["data"]["value"], kept);
    }
}

#[test]
fn an_answer_with_a_null_error_beside_its_result_is_a_result_and_passed_on_as_it_is() {
    let mut rig = Rig::plain();
    let post = rig.post_token(&call("1", "a", "{}"), "t");
    rig.upstream(r#"{"jsonrpc":"2.0","id":1,"result":{"n":1},"error":null}"#);
    let text = rig.events_after(stream(&rig, post), Seq::ORIGIN).remove(0).1;
    assert_eq!(text, r#"{"jsonrpc":"2.0","id":1,"result":{"n":1},"error":null}"#);
    rig.deliver(post);
    let again = rig.post_token(&call("2", "a", "{}"), "t");
    assert_eq!(last_event(&rig, again)["result"]["_meta"][RECORDED_META], 1_000_000);
    assert_eq!(rig.executed().len(), 1);
}
