//! The ledger itself: numbers, rows, and what is remembered of forgotten calls.

use bytes::Bytes;
use rejoin_core::id::{CallId, StreamId, digest};
use rejoin_core::ledger::{Call, Ledger, Phase};
use rejoin_core::message::IdKey;
use rejoin_core::token::DedupKey;
use rejoin_core::tool::Class;

fn call(id: u64, token: Option<DedupKey>) -> Call {
    Call {
        id: CallId(id),
        request_id: Bytes::from_static(b"1"),
        request_key: IdKey::text("1"),
        progress_token: None,
        method: "tools/call".to_owned(),
        tool: None,
        class: Class::Effectful,
        params: digest(b"params"),
        body: digest(b"body"),
        token,
        scope: None,
        phase: Phase::Claimed,
        stream: Some(StreamId(1)),
        ran_on: None,
        result: None,
        claimed_ms: 0,
        heard_ms: 0,
        ended_ms: None,
        lost_ms: None,
        settled_by: None,
        upstream_cursor: None,
    }
}

#[test]
fn calls_are_numbered_from_the_sessions_own_base_on() {
    let mut ledger = Ledger::starting_after(CallId(41));
    assert_eq!((ledger.last_id(), ledger.next_id()), (CallId(41), CallId(42)));
    ledger.insert(call(42, None));
    assert_eq!((ledger.last_id(), ledger.next_id()), (CallId(42), CallId(43)));
}

#[test]
fn calls_are_counted_and_those_in_flight_apart() {
    let mut ledger = Ledger::default();
    (1..=3).for_each(|id| ledger.insert(call(id, None)));
    assert!(ledger.move_to(CallId(2), Phase::Finished));
    assert_eq!((ledger.count(), ledger.running_count()), (3, 2));
    assert!(ledger.remove(CallId(3)).is_some());
    assert_eq!((ledger.count(), ledger.running_count()), (2, 1));
}

#[test]
fn a_call_that_goes_takes_its_own_row_along_and_no_other() {
    let key = DedupKey(digest(b"token"));
    let mut ledger = Ledger::default();
    (1..=2).for_each(|id| ledger.insert(call(id, Some(key))));
    assert_eq!(ledger.with_key(&key), Some(CallId(2)), "the newest owns the row");
    ledger.remove(CallId(1));
    assert_eq!(ledger.with_key(&key), Some(CallId(2)));
    ledger.remove(CallId(2));
    assert_eq!(ledger.with_key(&key), None);
}

#[test]
fn a_forgotten_call_is_remembered_until_its_time_and_not_at_it() {
    let mut ledger = Ledger::default();
    assert!(ledger.remember_forgotten(digest(b"a"), 1_000, 0, 2));
    assert!(ledger.has_forgotten(&digest(b"a"), 999));
    assert!(!ledger.has_forgotten(&digest(b"a"), 1_000));
}

#[test]
fn what_is_remembered_of_forgotten_calls_is_bounded_and_makes_way_once_it_is_over() {
    let mut ledger = Ledger::default();
    assert!(ledger.remember_forgotten(digest(b"a"), 1_000, 0, 2));
    assert!(ledger.remember_forgotten(digest(b"b"), 2_000, 0, 2));
    assert!(!ledger.remember_forgotten(digest(b"c"), 3_000, 999, 2), "both still count");
    assert!(ledger.remember_forgotten(digest(b"b"), 4_000, 999, 2), "it is there already");
    assert!(ledger.remember_forgotten(digest(b"c"), 3_000, 1_000, 2), "the first is over");
    let kept: Vec<_> = ledger.all_forgotten().map(|(params, _)| params).collect();
    assert!(kept.len() == 2 && !kept.contains(&digest(b"a")));
    assert!(ledger.has_forgotten(&digest(b"b"), 3_999), "the later time counts");
}
