//! What one decision costs in a session with few and with many calls in its ledger: a POST with a
//! call goes into the state machine, and what is to be committed and done comes out.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use rejoin_bench::DECISION_CALLS;
use rejoin_core::effect::{Effect, Output, ToUpstream};
use rejoin_core::id::{CallId, ConnectionId, Epoch, digest};
use rejoin_core::input::{Channel, FromUpstream, Input, Post, Request, WireEvent};
use rejoin_core::message::{Incoming, Message, parse};
use rejoin_core::revision::Revision;
use rejoin_core::session::{Session, SessionStart};
use rejoin_core::settings::Settings;

const NOW_MS: u64 = 1_000_000;
/// Decisions on one copy of a session: few, so that its ledger hardly grows.
const DECISIONS: u64 = 10;
const JSON_DEPTH_MAX: usize = 128;

fn message(text: String) -> Message {
    match parse(Bytes::from(text), JSON_DEPTH_MAX) {
        Ok(Incoming::One(message)) => message,
        other => panic!("not one message: {other:?}"),
    }
}

fn post(number: u64) -> Input {
    let text = format!(
        r#"{{"jsonrpc":"2.0","id":{number},"method":"tools/call","params":{{"name":"get","arguments":{{"account":{number}}}}}}}"#
    );
    let body = digest(text.as_bytes());
    let request = Request { message: message(text), token: None, record: None, scope: None };
    let connection = ConnectionId(number);
    Input::Post(Post { connection, observed: true, requests: vec![request], batch: false, body })
}

/// A session with so many calls, each answered and delivered.
fn session(calls: u64) -> Session {
    let mut settings = Settings::default();
    settings.limits.session_streams_max = usize::MAX;
    let start = SessionStart {
        session: digest(b"session"),
        ledger_epoch: 1,
        call_base: CallId(0),
        epoch: Epoch(1),
        asked: Revision::new("2025-11-25"),
        agreed: Revision::new("2025-11-25"),
        origin: Bytes::new(),
        continuation: None,
        settings: Arc::new(settings),
    };
    let mut session = Session::new(start, NOW_MS);
    for number in 1..=calls {
        let mut out = Output::default();
        session.handle(post(number), NOW_MS, &mut out);
        let call = out.effects.iter().find_map(|effect| match effect {
            Effect::Upstream(ToUpstream::Call { call, .. }) => Some(*call),
            _ => None,
        });
        let call = call.expect("the call is claimed");
        let answer = message(format!(r#"{{"jsonrpc":"2.0","id":{call},"result":{{}}}}"#));
        let channel = Channel::Call(call);
        let answer = FromUpstream::Message { channel, message: answer, cursor: None };
        let connection = ConnectionId(number);
        for input in [
            Input::Upstream(answer),
            Input::Wire(connection, WireEvent::FinalHanded),
            Input::Wire(connection, WireEvent::FinalAcknowledged),
        ] {
            session.handle(input, NOW_MS, &mut Output::default());
        }
    }
    session
}

fn decide(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decision");
    for calls in DECISION_CALLS {
        let ready = session(calls);
        assert_eq!(ready.view().calls.len() as u64, calls, "all are in the ledger");
        group.bench_function(BenchmarkId::from_parameter(calls), |bencher| {
            bencher.iter_custom(|iterations| timed(&ready, calls, iterations));
        });
    }
    group.finish();
}

/// How long so many decisions take; copying the session and reading the POST do not count.
fn timed(ready: &Session, calls: u64, iterations: u64) -> Duration {
    let mut time = Duration::ZERO;
    for first in (0..iterations).step_by(DECISIONS as usize) {
        let mut session = ready.clone();
        let count = DECISIONS.min(iterations - first);
        let posts: Vec<Input> = (1..=count).map(|number| post(calls + number)).collect();
        let mut outputs: Vec<Output> = posts.iter().map(|_| Output::default()).collect();
        let began = Instant::now();
        for (post, out) in posts.into_iter().zip(&mut outputs) {
            session.handle(black_box(post), NOW_MS, out);
        }
        time += began.elapsed();
        black_box((session, outputs));
    }
    time
}

criterion_group!(decisions, decide);
criterion_main!(decisions);
