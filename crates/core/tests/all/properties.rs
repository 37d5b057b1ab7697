//! Random conversations: whatever clients, wires and servers do, in whatever order, the invariants
//! of the session hold after every input.

use crate::support::conversation::{Op, PASSES_MS, ROOMS, run, settings};
use proptest::prelude::*;
use rejoin_core::settings::{Delivery, OnRepeat, RepeatScope, Settings};

fn ops() -> impl Strategy<Value = Op> {
    let n = 0..6u8;
    prop_oneof![
        6 => (0..3u8, 1..4u8, 0..5u8).prop_map(|(tool, id, token)| Op::Post { tool, id, token }),
        1 => (0..3u8, 0..3u8).prop_map(|(first, second)| Op::Batch { first, second }),
        1 => any::<bool>().prop_map(|progress| Op::Read { progress }),
        3 => (n.clone(), 0..4u8).prop_map(|(stream, back)| Op::Get { stream, back }),
        1 => Just(Op::Standalone),
        1 => (n.clone(), 0..4u8).prop_map(|(stream, back)| Op::Acknowledge { stream, back }),
        8 => (n.clone(), 0..10u8).prop_map(|(connection, event)| Op::Wire { connection, event }),
        3 => n.clone().prop_map(|connection| Op::Deliver { connection }),
        5 => (n.clone(), prop::bool::weighted(0.1))
            .prop_map(|(call, error)| Op::Answer { call, error }),
        2 => (n.clone(), any::<bool>()).prop_map(|(call, stands)| Op::Progress { call, stands }),
        1 => n.clone().prop_map(|call| Op::Ask { call }),
        1 => n.clone().prop_map(|number| Op::Respond { number }),
        2 => n.clone().prop_map(|call| Op::Sent { call }),
        1 => n.clone().prop_map(|call| Op::NotSent { call }),
        1 => n.clone().prop_map(|call| Op::Lost { call }),
        1 => n.prop_map(|post| Op::Leave { post }),
        1 => (0..11u8, any::<u64>()).prop_map(|(what, number)| Op::Stray { what, number }),
        1 => Just(Op::Closed),
        1 => any::<bool>().prop_map(|continues| Op::Reopened { continues }),
        2 => (1..4u8).prop_map(|id| Op::Cancel { id }),
        1 => (0..3u8, 0..6u8).prop_map(|(tool, outcome)| Op::Elsewhere { tool, outcome }),
        1 => prop::sample::select(&ROOMS[..]).prop_map(|bytes| Op::Room { bytes }),
        5 => prop::sample::select(&PASSES_MS[..]).prop_map(|ms| Op::Pass { ms }),
        1 => Just(Op::Restart),
    ]
}

fn chosen() -> impl Strategy<Value = Settings> {
    let repeat = prop::sample::select(vec![OnRepeat::Collect, OnRepeat::Join, OnRepeat::Reject]);
    let delivery = prop::sample::select(vec![Delivery::Presumed, Delivery::Proved]);
    let scope = prop::sample::select(vec![RepeatScope::Session, RepeatScope::Principal]);
    let strict = prop::bool::weighted(0.2);
    (repeat, delivery, scope, strict)
        .prop_map(|(repeat, delivery, scope, strict)| settings(repeat, delivery, scope, strict))
}

/// How many conversations; `PROPTEST_CASES` asks for more.
fn cases() -> u32 {
    let asked = std::env::var("PROPTEST_CASES").ok();
    asked.and_then(|cases| cases.parse().ok()).unwrap_or(300)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_invariants_hold_after_every_input(
        settings in chosen(),
        observed in prop::bool::weighted(0.8),
        ops in prop::collection::vec(ops(), 1..60),
    ) {
        run(settings, observed, &ops);
    }
}
