//! Answers that come in parts have a bound together, and who finds no room is told.

use std::time::Duration;

use rejoin_testkit::deadline::within;
use rejoin_testkit::failure::Failure;
use serde_json::json;

use super::{Act, Host, Played, config, is_call, opening};

/// Far less than a call may be silent.
const SOON: Duration = Duration::from_secs(30);

/// A part of an event, or of a body, much larger than the room.
const PART_BYTES: usize = 400_000;

#[tokio::test]
async fn of_answers_that_are_half_read_one_is_read_on_and_the_others_wait_for_room()
-> Result<(), Failure> {
    for (media, begin) in [("text/event-stream", "data: "), ("application/json", "")] {
        let server = Played::start(move |_, request| {
            opening(request).unwrap_or_else(|| {
                let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {media}\r\n");
                let part = format!("{begin}{}", "x".repeat(PART_BYTES));
                Act::Say(format!("{head}Content-Length: 9000000\r\n\r\n{part}"))
            })
        })
        .await?;
        let mut config = config(&server);
        config.limits.half_read_bytes_max = 100_000;
        config.limits.half_read_wait_max_ms = 200;
        let mut host = Host::open(&config).await?;
        for id in 1..=3 {
            let call = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call",
                "params": { "name": "charge", "arguments": {} } });
            host.sender.send(call.to_string()).await?;
        }
        // Of three that never end two give up, and make room for nobody else.
        for _ in 0..2 {
            let error = within("who finds no room", SOON, host.next()).await??;
            assert_eq!(error["error"]["data"]["mayHaveRun"], true, "{error}");
            let text = error["error"]["message"].as_str().unwrap_or_default();
            assert!(text.contains("half_read_bytes_max"), "{media}: {text}");
        }
        let third = tokio::time::timeout(Duration::from_millis(600), host.next()).await;
        assert!(third.is_err(), "{media}: {third:?}");
        assert_eq!(server.requests(is_call).await.len(), 3, "{media}: none is sent again");
    }
    Ok(())
}
