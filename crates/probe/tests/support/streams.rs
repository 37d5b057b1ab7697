//! Streams as they are written and resumed: hazards of cursors, replays and stalled readers.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::sleep;

use super::faults::Fault;
use super::http::{self, Request};
use super::log::{Session, Stream};
use super::server::Shared;

impl Shared {
    /// Writes a stream from this place on until it ends or another connection has it.
    pub(super) async fn write(
        &self,
        socket: &mut TcpStream,
        session: &Session,
        stream: &Arc<Stream>,
        from: usize,
        skipped: usize,
    ) -> io::Result<()> {
        let holder = self.number();
        stream.holder.store(holder, Ordering::SeqCst);
        stream.connected.store(true, Ordering::SeqCst);
        stream.change();
        let written = self.write_events(socket, session, stream, from, skipped, holder).await;
        if stream.holder.load(Ordering::SeqCst) == holder {
            stream.connected.store(false, Ordering::SeqCst);
            stream.change();
        }
        if written? { http::end(socket).await } else { Ok(()) }
    }

    /// Says whether the stream ended, or went to another connection, while this one lived.
    pub(super) async fn write_events(
        &self,
        socket: &mut TcpStream,
        session: &Session,
        stream: &Arc<Stream>,
        mut from: usize,
        mut skipped: usize,
        holder: u64,
    ) -> io::Result<bool> {
        let mut watch = stream.watch();
        loop {
            watch.borrow_and_update();
            let is_taken = stream.holder.load(Ordering::SeqCst) != holder;
            if is_taken && !self.has(Fault::Broadcasts) {
                return Ok(true);
            }
            let done = stream.is_done();
            let mut events = stream.events.lock().unwrap().split_off_copy(from);
            from += events.len();
            if skipped > 0 && !events.is_empty() {
                events.remove(0);
                skipped = 0;
            }
            if !events.is_empty() {
                let blocking = self.has(Fault::BlocksOnStalledReaders);
                let _held = if blocking { Some(session.writing.lock().await) } else { None };
                http::events(socket, &events).await?;
            }
            if done {
                stream.delivered.store(true, Ordering::SeqCst);
                stream.change();
                return Ok(true);
            }
            let mut byte = [0];
            tokio::select! {
                changed = watch.changed() => changed.map_err(io::Error::other)?,
                gone = socket.peek(&mut byte) => if gone? == 0 {
                    return Ok(false);
                },
            }
        }
    }

    pub(super) async fn get(
        &self,
        socket: &mut TcpStream,
        request: &Request,
        session: &Arc<Session>,
    ) -> io::Result<()> {
        let Some(cursor) = request.header("last-event-id") else {
            http::begin(socket).await?;
            return self.write(socket, session, &Arc::clone(&session.standalone), 0, 0).await;
        };
        let mut found = session.find(cursor);
        if found.is_none() && self.has(Fault::ServesForeignIds) {
            let sessions: Vec<_> = self.sessions.lock().unwrap().values().cloned().collect();
            found = sessions.iter().find_map(|session| session.find(cursor));
        }
        let Some((stream, place)) = found else {
            let silent = [Fault::EmptyForUnknownCursors, Fault::EvictsOldEvents];
            if silent.iter().chain([&Fault::ForgetsWhatEnded]).any(|fault| self.has(*fault)) {
                http::begin(socket).await?;
                return http::end(socket).await;
            }
            return http::answer(socket, 405, &[], None).await;
        };
        self.resume(socket, session, &stream, place).await
    }

    pub(super) async fn resume(
        &self,
        socket: &mut TcpStream,
        session: &Arc<Session>,
        stream: &Arc<Stream>,
        place: usize,
    ) -> io::Result<()> {
        session.replays.send_modify(|replays| *replays += 1);
        let replayed = self.replay(socket, stream, place).await;
        session.replays.send_modify(|replays| *replays -= 1);
        let next = replayed?;
        if self.has(Fault::EndsAfterReplay) {
            return http::end(socket).await;
        }
        let skipped = usize::from(self.has(Fault::SkipsAnEventAtHandOver));
        self.write(socket, session, stream, next, skipped).await
    }

    /// Writes what is in the log; gives the place after it.
    pub(super) async fn replay(
        &self,
        socket: &mut TcpStream,
        stream: &Arc<Stream>,
        place: usize,
    ) -> io::Result<usize> {
        http::begin(socket).await?;
        if self.has(Fault::AnswersDuringReplays) {
            sleep(Duration::from_millis(200)).await;
        }
        let first = place - usize::from(self.has(Fault::RepeatsTheCursorEvent));
        let mut events = stream.events.lock().unwrap().split_off_copy(first);
        let next = first + events.len();
        if self.has(Fault::ShufflesReplays) {
            events.sort_by_key(|(id, _)| id.chars().rev().collect::<String>());
        }
        let mixed: fn(&Stream, &Stream) -> bool = match self.fault {
            Some(Fault::KeysLogsByRequestId) => |one, other| one.request == other.request,
            Some(Fault::ReplaysAllOfTheSession) => |one, other| one.session == other.session,
            _ => |_, _| false,
        };
        let sessions: Vec<_> = self.sessions.lock().unwrap().values().cloned().collect();
        let others = sessions.iter().flat_map(|session| session.all());
        let same = others.filter(|one| mixed(one, stream));
        for other in same.filter(|one| !Arc::ptr_eq(one, stream)) {
            events.extend(other.events.lock().unwrap().iter().cloned());
        }
        if !events.is_empty() {
            http::events(socket, &events).await?;
        }
        Ok(next)
    }
}

/// A copy of what follows a place.
trait SplitOffCopy {
    fn split_off_copy(&self, from: usize) -> Vec<(String, String)>;
}

impl SplitOffCopy for Vec<(String, String)> {
    fn split_off_copy(&self, from: usize) -> Vec<(String, String)> {
        self.get(from..).unwrap_or_default().to_vec()
    }
}
