//! Back-pressure: a stream that brings much waits while the session's log has no room for it.
use rejoin_core::id::CallId;
use rejoin_core::limits::Limits;
use rejoin_core::session::BackPressure;
use rejoin_gateway::upstream::conformance::{Session, progress, response, write};
use serde_json::json;

use crate::support::served;

/// Events of the flood, each of a little more than a kilobyte.
const FLOOD: u64 = 16_000;

#[tokio::test]
async fn a_paused_flood_waits_while_other_calls_are_answered_and_then_goes_on_whole() {
    let upstream = served(&[]);
    let mut session = Session::open(&upstream).await;
    let pressure = session.pressure.clone().expect("an HTTP upstream can wait");
    pressure.send_replace(BackPressure::Calls(vec![CallId(1)]));
    let padding = "p".repeat(1_000);
    let event_bytes = progress(1, &padding).len();
    let flood = json!({ "write": progress(1, &format!("\"#N#{padding}\"")), "times": FLOOD });
    session.script(1, [flood, write(response(1, "{}"))]).await;
    let free_bytes = usize::try_from(Limits::default().back_pressure_free_bytes).unwrap();
    let at_most = 2 * free_bytes / event_bytes;
    let mut next = 0;
    let mut answered = 0;
    session.script(10, [write(response(10, "{}"))]).await;
    // Each answer comes although the flood waits: after the third nothing else is to be read.
    while answered < 3 || next < free_bytes / event_bytes / 2 {
        let text = session.message().await;
        if text == response(10 + answered, "{}") {
            answered += 1;
            session.script(10 + answered, [write(response(10 + answered, "{}"))]).await;
        } else {
            assert_eq!(text, progress(1, &format!("\"{next}{padding}\"")));
            next += 1;
        }
        assert!(next <= at_most, "{next} events of a paused flood");
    }
    pressure.send_replace(BackPressure::None);
    let mut ended = false;
    while !ended || answered < 4 {
        let text = session.message().await;
        if text == response(10 + answered, "{}") {
            answered += 1;
        } else if text == response(1, "{}") {
            ended = true;
        } else {
            assert_eq!(text, progress(1, &format!("\"{next}{padding}\"")));
            next += 1;
        }
    }
    assert_eq!(next as u64, FLOOD, "nothing is lost");
    session.end().await;
}
