//! Nothing owed is lost, nothing runs twice; and what of that needs a socket that can be seen.

use rejoin_testkit::deadline::{WAIT, until};
use rejoin_testkit::failure::{Failure, TestResult};

use crate::support::{
    Bench, LISTENERS, Listener, answered, charge, is_record, refused, resume_complete, text,
};

/// What is logged once where no socket can be seen.
const BLIND: &str = "no sockets are seen";

#[tokio::test]
async fn a_call_that_is_cut_gives_its_whole_tail_once_while_it_runs_and_after() -> TestResult {
    for listener in LISTENERS {
        let bench = Bench::start(listener).await?;
        let session = bench.session().await?;
        let call = charge(10, 1, 20, 30);
        let cursor = bench.drop_after(&session, &call, 5).await?;
        for _ in 0..2 {
            let answer = resume_complete(&session, &cursor, &call, 6).await?;
            assert_eq!(text(&answer), "charge number 1", "{listener:?}");
        }
        assert_eq!(bench.charges.executed(), 1, "{listener:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_blind_retry_is_refused_and_runs_once() -> TestResult {
    for listener in LISTENERS {
        let bench = Bench::start(listener).await?;
        let session = bench.session().await?;
        let call = charge(10, 1, 20, 50);
        let cursor = bench.drop_after(&session, &call, 3).await?;
        for again in [call.clone(), call.again(11)] {
            let refusal = refused(&session, &again).await?;
            assert_eq!(refusal.reason, "request_in_flight", "{listener:?}");
            assert!(refusal.cursor().is_some(), "{refusal:?}");
        }
        resume_complete(&session, &cursor, &call, 4).await?;
        assert_eq!(bench.charges.executed(), 1, "{listener:?}");
    }
    Ok(())
}

/// The final event and the end of the body leave in one write, through the router as without it:
/// else a client that leaves as soon as it has its answer would look like one that lost it.
#[tokio::test]
async fn an_answer_that_was_read_is_presumed_however_soon_its_client_leaves() -> TestResult {
    const CALLS: u64 = 20;
    for listener in LISTENERS {
        let bench = Bench::start(listener).await?;
        let session = bench.session().await?;
        for id in 0..CALLS {
            session.answer(&charge(id, id, 1, 1)).await?;
        }
        until::<_, Failure>("all answers to be presumed", WAIT, async || {
            let presumed = bench.log.count(&["a stream moved", "to=\"presumed\""]);
            Ok((presumed as u64 == CALLS).then_some(()))
        })
        .await?;
        assert_eq!(bench.log.count(&["to=\"doubtful\""]), 0, "{listener:?}");
    }
    Ok(())
}

/// The answer reaches the client's kernel, and the client dies before it reads it.
#[tokio::test]
async fn an_answer_that_was_never_read_is_collected_where_the_reset_is_seen() -> TestResult {
    for listener in LISTENERS {
        let bench = Bench::start(listener).await?;
        let session = bench.session().await?;
        let call = charge(10, 1, 2, 20);
        let connection = session.call(&call).await?;
        connection.unread_contains("charge number 1", 64 * 1024).await?;
        connection.cut_rst()?;
        if listener == Listener::Rejoin {
            bench.log.more(0, &["a stream moved", "to=\"doubtful\""]).await?;
        }
        let answer = session.answer(&call.again(11)).await?;
        // Without the socket the repeat looks like a new call: that is what cannot be seen.
        let seen = (text(&answer), is_record(&answer), bench.charges.executed());
        let expected = match listener {
            Listener::Rejoin => ("charge number 1", true, 1),
            Listener::Axum => ("charge number 2", false, 2),
        };
        assert_eq!(seen, expected, "{listener:?}");
        // A token closes that, wherever it is served.
        let call = charge(20, 2, 2, 20).with_dedup_token("one-charge");
        let connection = session.call(&call).await?;
        connection.unread_contains("charge number", 64 * 1024).await?;
        connection.cut_rst()?;
        let before = bench.charges.executed();
        assert!(is_record(&answered(&session, &call.again(21)).await?), "{listener:?}");
        assert_eq!(bench.charges.executed(), before, "{listener:?}");
    }
    Ok(())
}

#[tokio::test]
async fn that_no_socket_is_seen_is_said_once_and_only_then() -> TestResult {
    for (listener, said) in [(Listener::Rejoin, 0), (Listener::Axum, 1)] {
        let bench = Bench::start(listener).await?;
        for _ in 0..2 {
            let session = bench.session().await?;
            session.answer(&charge(10, 1, 0, 0)).await?;
        }
        assert_eq!(bench.log.count(&[BLIND]), said, "{listener:?}");
        let with_time = ["presume_ms=1000", "rejoin_gateway::serve"];
        assert_eq!(bench.log.count(&with_time), said, "{listener:?}");
    }
    Ok(())
}

#[tokio::test]
async fn two_sessions_have_nothing_of_each_other() -> TestResult {
    for listener in LISTENERS {
        let bench = Bench::start(listener).await?;
        let (one, other) = (bench.session().await?, bench.session().await?);
        let call = charge(10, 1, 20, 30);
        let cursor = bench.drop_after(&one, &call, 5).await?;
        let ran = other.answer(&call).await?;
        assert_eq!(text(&ran), "charge number 2", "another session's call is no repeat");
        let mut foreign = other.get(Some(&cursor)).await?;
        assert_eq!(foreign.head().await?.status, 405, "{listener:?}");
        resume_complete(&one, &cursor, &call, 6).await?;
        assert_eq!(bench.charges.executed(), 2, "{listener:?}");
    }
    Ok(())
}
