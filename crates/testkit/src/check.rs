//! What a client received on one or more connections, against what it was owed.

use serde_json::Value;

use crate::raw::Event;

/// What one call owes its client after some point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owed<'a> {
    /// The progress token of the call whose events these are.
    pub progress_token: &'a str,
    /// The JSON-RPC id of its response.
    pub id: u64,
    /// The first progress number that is owed.
    pub first: u64,
    /// The last progress number that is owed.
    pub last: u64,
}

/// What is wrong with what was received.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// An event's data is not JSON.
    #[error("event {id:?} is not JSON: {data:?}")]
    NotJson {
        /// The event's id.
        id: Option<String>,
        /// Its data.
        data: String,
    },
    /// A message that belongs to another call, or to none.
    #[error("foreign event: {message}")]
    Foreign {
        /// The message.
        message: String,
    },
    /// The progress numbers are not the owed ones, each once, in order.
    #[error("owed progress {first}..={last}: lost {lost:?}, duplicated {duplicated:?}, {order}")]
    Progress {
        /// The first owed number.
        first: u64,
        /// The last owed number.
        last: u64,
        /// Owed numbers that did not come.
        lost: Vec<u64>,
        /// Numbers that came more than once, or were not owed.
        duplicated: Vec<u64>,
        /// Whether they came in order.
        order: &'static str,
    },
    /// There is not exactly one response, at the end.
    #[error("{count} responses, and the last message is {last}")]
    Response {
        /// How many responses came.
        count: usize,
        /// The last message.
        last: String,
    },
    /// A message has no event id.
    #[error("message without event id: {message}")]
    NoId {
        /// The message.
        message: String,
    },
    /// An event id is not greater than the one before it.
    #[error("event id {second} after {first}: ids do not grow")]
    Order {
        /// The id before.
        first: String,
        /// The id that should be greater.
        second: String,
    },
}

/// The messages among `events`: empty events carry none.
pub fn messages(events: &[Event]) -> Result<Vec<Value>, CheckError> {
    let message = |event: &Event| {
        event.message().ok_or_else(|| CheckError::NotJson {
            id: event.id.clone(),
            data: event.data.clone().unwrap_or_default(),
        })
    };
    events.iter().filter(|event| !event.is_empty()).map(message).collect()
}

/// The progress numbers among `events`, every one of which must belong to `progress_token`; other
/// messages than progress are left out.
pub fn progress(events: &[Event], progress_token: &str) -> Result<Vec<u64>, CheckError> {
    let mut numbers = Vec::new();
    for message in messages(events)? {
        if message["method"] != "notifications/progress" {
            continue;
        }
        let own = message["params"]["progressToken"] == progress_token;
        let number = message["params"]["progress"].as_f64();
        match number {
            Some(number) if own => numbers.push(number as u64),
            _ => {
                return Err(CheckError::Foreign { message: message.to_string() });
            }
        }
    }
    Ok(numbers)
}

/// Checks that `events` are exactly what is owed: every progress number once and in order, then
/// the response, no message of another call, and growing ids. Gives the response.
pub fn complete(events: &[Event], owed: &Owed<'_>) -> Result<Value, CheckError> {
    let numbers = progress(events, owed.progress_token)?;
    in_order(&numbers, owed)?;
    ids_grow(events)?;
    let mut others: Vec<Value> = messages(events)?;
    let last = others.last().cloned().unwrap_or_default();
    others.retain(|message| message["method"] != "notifications/progress");
    let count = others.iter().filter(|message| message["id"] == owed.id).count();
    if let Some(foreign) = others.iter().find(|message| message["id"] != owed.id) {
        return Err(CheckError::Foreign { message: foreign.to_string() });
    }
    let ends_with_response = last["id"] == owed.id && last.get("method").is_none();
    if count != 1 || !ends_with_response {
        return Err(CheckError::Response { count, last: last.to_string() });
    }
    Ok(last)
}

/// What one of several connections received of a stream they took over from each other.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// The progress number that follows the cursor this connection began with.
    pub first: u64,
    /// Its events.
    pub events: &'a [Event],
}

/// Checks what was received on several connections, in the order they took over: each begins right
/// after its cursor and has no hole, none begins after a hole, and the last one has all the rest
/// with the response. What left on a connection after the cursor of the next one comes twice.
pub fn complete_over(parts: &[Part<'_>], owed: &Owed<'_>) -> Result<Value, CheckError> {
    let mut next = owed.first;
    for part in parts {
        let numbers = progress(part.events, owed.progress_token)?;
        let last = numbers.last().copied().unwrap_or(part.first - 1);
        in_order(&numbers, &Owed { first: part.first.min(next), last, ..owed.clone() })?;
        ids_grow(part.events)?;
        next = next.max(last + 1);
    }
    let last = parts.last().map_or(Part { first: owed.first, events: &[] }, |part| *part);
    complete(last.events, &Owed { first: last.first, ..owed.clone() })
}

fn in_order(numbers: &[u64], owed: &Owed<'_>) -> Result<(), CheckError> {
    if numbers.iter().copied().eq(owed.first..=owed.last) {
        return Ok(());
    }
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    let lost = (owed.first..=owed.last).filter(|n| sorted.binary_search(n).is_err()).collect();
    let owes = |number: &u64| (owed.first..=owed.last).contains(number);
    let extra = |pair: &[u64]| (pair[0] == pair[1]).then_some(pair[0]);
    let mut duplicated: Vec<u64> = sorted.windows(2).filter_map(extra).collect();
    duplicated.extend(sorted.iter().filter(|number| !owes(number)));
    let order = if numbers.is_sorted() { "in order" } else { "out of order" };
    Err(CheckError::Progress { first: owed.first, last: owed.last, lost, duplicated, order })
}

/// Checks that every message has an event id and that the ids grow strictly. Over several
/// connections: in the order the messages were sent, not received.
pub fn ids_grow(events: &[Event]) -> Result<(), CheckError> {
    let mut before: Option<&str> = None;
    for event in events.iter().filter(|event| !event.is_empty()) {
        let Some(id) = event.id.as_deref() else {
            let message = event.data.clone().unwrap_or_default();
            return Err(CheckError::NoId { message });
        };
        if let Some(first) = before.filter(|first| seq(first) >= seq(id)) {
            return Err(CheckError::Order { first: first.into(), second: id.into() });
        }
        before = Some(id);
    }
    Ok(())
}

/// The session-wide number at the end of an event id `<epoch>-<stream>-<seq>` (design section 2).
pub fn seq(id: &str) -> Option<u64> {
    id.rsplit('-').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use serde_json::json;

    use super::*;

    const OWED: Owed<'static> = Owed { progress_token: "p", id: 10, first: 6, last: 8 };

    fn event(id: &str, message: &Value) -> Event {
        let data = Some(if message.is_null() { String::new() } else { message.to_string() });
        let id = Some(id.to_owned());
        Event { id, data, retry: None, name: None, offset: 0, at: Instant::now() }
    }

    fn step(seq: u64, number: u64, token: &str) -> Event {
        let params = json!({"progressToken": token, "progress": number});
        let message = json!({"method": "notifications/progress", "params": params});
        event(&format!("e-s-{seq}"), &message)
    }

    fn result(seq: u64, id: u64) -> Event {
        event(&format!("e-s-{seq}"), &json!({"id": id, "result": {}}))
    }

    fn good() -> Vec<Event> {
        let cursor = event("e-s-15", &Value::Null);
        vec![cursor, step(16, 6, "p"), step(17, 7, "p"), step(18, 8, "p"), result(19, 10)]
    }

    #[test]
    fn what_is_owed_once_and_in_order_is_complete() {
        assert_eq!(complete(&good(), &OWED).unwrap()["id"], 10);
    }

    #[test]
    fn a_lost_event_is_found() {
        let mut events = good();
        events.remove(2);
        let error = complete(&events, &OWED).unwrap_err();
        assert!(matches!(error, CheckError::Progress { lost, .. } if lost == [7]));
    }

    #[test]
    fn a_duplicated_and_an_unowed_event_are_found() {
        let mut events = good();
        events.insert(2, step(16, 6, "p"));
        events.insert(1, step(15, 5, "p"));
        let error = complete(&events, &OWED).unwrap_err();
        assert!(matches!(error, CheckError::Progress { duplicated, .. } if duplicated == [6, 5]));
    }

    #[test]
    fn events_out_of_order_are_found() {
        let mut events = good();
        events.swap(1, 2);
        let error = complete(&events, &OWED).unwrap_err();
        assert!(matches!(error, CheckError::Progress { order: "out of order", .. }));
    }

    #[test]
    fn foreign_events_are_found() {
        let mut events = good();
        events.insert(2, step(17, 7, "q"));
        assert!(matches!(complete(&events, &OWED), Err(CheckError::Foreign { .. })));
        let mut events = good();
        events.insert(2, result(17, 11));
        assert!(complete(&events, &OWED).is_err());
    }

    #[test]
    fn a_missing_or_second_response_is_found() {
        let mut events = good();
        events.pop();
        assert!(matches!(complete(&events, &OWED), Err(CheckError::Response { count: 0, .. })));
        let mut events = good();
        events.push(result(20, 10));
        assert!(matches!(complete(&events, &OWED), Err(CheckError::Response { count: 2, .. })));
    }

    #[test]
    fn ids_that_do_not_grow_are_found() {
        assert!(ids_grow(&[step(2, 1, "p"), step(2, 2, "p")]).is_err());
        assert!(ids_grow(&[step(9, 1, "p"), step(10, 2, "p")]).is_ok());
    }

    #[test]
    fn a_take_over_begins_after_its_cursor_and_loses_nothing() {
        let all = Owed { first: 4, ..OWED };
        let first = [step(14, 4, "p"), step(15, 5, "p"), step(16, 6, "p")];
        let rest = good();
        let over = |before: &[Event], first, after: &[Event]| {
            let parts = [Part { first: 4, events: before }, Part { first, events: after }];
            complete_over(&parts, &all)
        };
        assert!(over(&first, 6, &rest).is_ok());
        assert!(over(&first[..2], 6, &rest).is_ok());
        assert!(over(&first[..1], 6, &rest).is_err(), "5 is lost");
        assert!(over(&first, 5, &rest).is_err(), "5 was owed on the second");
        assert!(over(&first, 7, &rest).is_err(), "6 was not");
        assert!(over(&first, 6, &rest[..3]).is_err(), "the rest is lost");
    }
}
