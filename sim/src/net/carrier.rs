//! What moves between two kernels, and the clocks that give a silent path up.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use rejoin_gateway::tap::TransportOptions;
use tokio::time::{Instant, sleep};

use super::kernel::{CLIENT, GATEWAY, Link, Next, Segment};
use crate::history::{Mark, What};

/// How often a kernel looks at its clocks.
const LOOK: Duration = Duration::from_secs(1);
/// As long as the longest mark.
const TAIL_BYTES: usize = 64;

/// Takes one segment after the other from one end to the other.
pub async fn carry(link: Arc<Link>, from: usize) {
    let mut moved = link.moved.subscribe();
    loop {
        moved.mark_unchanged();
        let segment = match link.next(from) {
            Next::Stop => return,
            Next::Wait => {
                // The sender lives as long as the link.
                let _moved = moved.changed().await.is_ok();
                continue;
            }
            Next::Carry(segment) => segment,
        };
        sleep(Duration::from_millis(link.latency_ms())).await;
        if !passable(&link, from).await {
            return;
        }
        arrive(&link, from, segment);
    }
}

/// Waits until the path is open; false if nobody is left to carry for.
async fn passable(link: &Link, from: usize) -> bool {
    let mut moved = link.moved.subscribe();
    loop {
        moved.mark_unchanged();
        {
            let inner = link.lock();
            if inner.sides[from].is_broken {
                return false;
            }
            if !inner.sides[from].is_blocked {
                return true;
            }
        }
        let _moved = moved.changed().await.is_ok();
    }
}

fn arrive(link: &Arc<Link>, from: usize, segment: Segment) {
    let to = 1 - from;
    match segment {
        Segment::Data(bytes) => {
            let (is_taken, is_unknown) = {
                let mut inner = link.lock();
                let side = &mut inner.sides[to];
                if side.is_closed {
                    side.reset();
                } else {
                    side.take_in(&bytes);
                }
                (!side.is_closed, side.is_broken && !side.is_dead)
            };
            if is_unknown {
                tokio::spawn(refuse(Arc::clone(link), from));
            }
            let (conn, to_client) = (link.conn, to == CLIENT);
            link.history.record(What::Moved { conn, to_client, bytes: bytes.len() });
            if is_taken {
                if to == CLIENT {
                    recognise(link, &bytes);
                }
                tokio::spawn(acknowledge(Arc::clone(link), from));
            }
        }
        Segment::End => link.lock().sides[to].peer_ended(),
        Segment::Reset => break_side(link, to, ErrorKind::ConnectionReset),
    }
    link.stir();
}

/// Breaks one end's connection.
pub fn break_side(link: &Arc<Link>, side: usize, error: ErrorKind) {
    let is_seen = {
        let mut inner = link.lock();
        let this = &mut inner.sides[side];
        let is_seen = !this.is_broken && !this.is_dead && !this.is_closed;
        this.fail(error);
        is_seen
    };
    if is_seen && side == GATEWAY && error == ErrorKind::ConnectionReset {
        link.history.record(What::ResetSeen { conn: link.conn });
    }
}

/// A kernel that has given the connection up answers what still comes with a reset.
async fn refuse(link: Arc<Link>, from: usize) {
    let to = 1 - from;
    sleep(Duration::from_millis(link.latency_ms())).await;
    let mut moved = link.moved.subscribe();
    while link.lock().sides[to].is_blocked {
        // The sender lives as long as the link.
        let _moved = moved.changed().await.is_ok();
    }
    break_side(&link, from, ErrorKind::ConnectionReset);
    link.stir();
}

/// Says that everything so far has arrived.
async fn acknowledge(link: Arc<Link>, from: usize) {
    let to = 1 - from;
    let received = link.lock().sides[to].received;
    let delay = link.latency_ms() + link.pace.ack_delay_ms;
    sleep(Duration::from_millis(delay)).await;
    if !passable(&link, to).await {
        return;
    }
    let mut inner = link.lock();
    let side = &mut inner.sides[from];
    if received > side.acked {
        side.acked = received;
        side.acked_at = Some(Instant::now());
        side.heard_at = side.acked_at;
        side.wake();
    }
}

/// Records the marks that have just come into the client's kernel.
fn recognise(link: &Link, bytes: &[u8]) {
    let found = new_marks(&mut link.lock().sides[CLIENT].tail, bytes);
    for mark in found {
        link.history.record(What::InKernel { conn: link.conn, mark });
    }
}

/// Records the answers that the gateway has just written.
pub fn written(link: &Link, bytes: &[u8]) {
    let found = new_marks(&mut link.lock().sides[GATEWAY].tail, bytes);
    for mark in found.into_iter().filter(|mark| matches!(mark, Mark::Answer(_))) {
        link.history.record(What::Written { conn: link.conn, mark });
    }
}

/// The marks that are complete with `bytes`, after those that ended in `tail`.
fn new_marks(tail: &mut Vec<u8>, bytes: &[u8]) -> Vec<Mark> {
    let before = tail.len();
    tail.extend_from_slice(bytes);
    let text = String::from_utf8_lossy(tail).into_owned();
    tail.drain(..tail.len().saturating_sub(TAIL_BYTES));
    // What ended in the bytes before was told then.
    marks(&text).into_iter().filter(|(_, end)| *end > before).map(|(mark, _)| mark).collect()
}

/// The marks in a text, each with where it ends.
pub fn marks(text: &str) -> Vec<(Mark, usize)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = text[at..].find(['<', ':']).map(|offset| at + offset) {
        let rest = &text[start..];
        at = start + 1;
        if rest.starts_with(": replay-end") {
            found.push((Mark::ReplayEnd, start + ": replay-end".len()));
            continue;
        }
        let Some(end) = rest.find('>') else { continue };
        if let Some(mark) = mark_of(&rest[1..end]) {
            found.push((mark, start + end + 1));
        }
    }
    found
}

fn mark_of(text: &str) -> Option<Mark> {
    let (kind, number) = text.split_once(' ')?;
    match kind {
        "ran" => number.parse().ok().map(Mark::Answer),
        "ask" => number.parse().ok().map(Mark::Ask),
        "step" => {
            let (exec, step) = number.split_once('/')?;
            Some(Mark::Progress(exec.parse().ok()?, step.parse().ok()?))
        }
        "note" => {
            let (session, note) = number.split_once('/')?;
            Some(Mark::Note(session.parse().ok()?, note.parse().ok()?))
        }
        _ => None,
    }
}

/// Gives the connection up when what was written stays unacknowledged, or probes unanswered.
pub async fn watch(link: Arc<Link>, options: TransportOptions) {
    let probing = options.keepalive_interval * options.keepalive_probes;
    let idle_max = options.keepalive_time + probing;
    let began = Instant::now();
    loop {
        sleep(LOOK).await;
        let silent = {
            let inner = link.lock();
            let [client, gateway] = &inner.sides;
            if gateway.is_broken || gateway.is_dead || (gateway.is_closed && client.is_closed) {
                return;
            }
            let is_cut = client.is_blocked || gateway.is_blocked;
            let heard_at = gateway.heard_at.unwrap_or(began);
            let sent_at = gateway.acked_at.unwrap_or(began);
            let unacked = gateway.written > gateway.acked;
            (unacked && sent_at.elapsed() >= options.user_timeout)
                || (!unacked && is_cut && heard_at.elapsed() >= idle_max)
        };
        if silent {
            break_side(&link, GATEWAY, ErrorKind::TimedOut);
            return link.stir();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_found_in_what_stands_around_them() {
        let text = "x<step 3/2>\n: replay-end e1\n<ran 3><ran x>< <ran 4";
        let found: Vec<_> = marks(text).into_iter().map(|(mark, _)| mark).collect();
        assert_eq!(found, [Mark::Progress(3, 2), Mark::ReplayEnd, Mark::Answer(3)]);
    }
}
