//! What a hazard has to work with: sessions that are ended for it, calls that it can cut.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::command;
use crate::hazard::Seen;
use crate::limits::{COMEBACK_MS, SPARE_MS, ms};
use crate::reading::{Reading, Until};
use crate::session::{REVISION, Session, Target, Trouble};
use crate::subject::{Call, Subject, Tool};
use crate::tail::Tail;
use crate::transcript::Transcript;
use crate::wire::Exchange;

/// What is probed with.
pub(crate) struct Plan {
    /// The tool of most calls.
    pub(crate) subject: Subject,
    /// The same tool, or its like, as fast as it can.
    pub(crate) burst: Option<Subject>,
    /// The same with megabytes of events.
    pub(crate) flood: Option<Tool>,
    /// A read-only tool that answers at once.
    pub(crate) quick: Option<Tool>,
    /// Prints how often tools ran.
    pub(crate) count_command: Option<String>,
    /// Restarts the server.
    pub(crate) restart_command: Option<String>,
}

/// What one hazard works with.
pub(crate) struct Bench<'a> {
    pub(crate) target: &'a Target,
    pub(crate) plan: &'a Plan,
    pub(crate) transcript: Transcript,
    sessions: Arc<Mutex<Vec<Session>>>,
    /// Sessions on their way. Whoever waits for one may be stopped: the server has it all the same.
    openings: Mutex<JoinSet<()>>,
}

impl<'a> Bench<'a> {
    pub(crate) fn new(target: &'a Target, plan: &'a Plan, transcript: Transcript) -> Self {
        Self { target, plan, transcript, sessions: Arc::default(), openings: Mutex::default() }
    }

    /// A new session, ended with the hazard.
    pub(crate) async fn session(&self) -> Result<Session, Trouble> {
        self.session_of(REVISION).await
    }

    /// The same of an older revision.
    pub(crate) async fn session_of(&self, revision: &str) -> Result<Session, Trouble> {
        let (target, transcript) = (self.target.clone(), self.transcript.clone());
        let (revision, sessions) = (revision.to_owned(), Arc::clone(&self.sessions));
        let (told, opened) = oneshot::channel();
        let opening = async move {
            let opened = Session::open(&target, &transcript, &revision).await;
            if let Ok(session) = &opened {
                held(&sessions).push(session.clone());
            }
            let _nobody_waits = told.send(opened);
        };
        held(&self.openings).spawn(opening);
        let lost = || Err(Trouble::Unexpected("the opening of a session broke off".to_owned()));
        opened.await.unwrap_or_else(|_| lost())
    }

    /// Whether the server opened one.
    pub(crate) fn has_sessions(&self) -> bool {
        !held(&self.sessions).is_empty()
    }

    /// Ends all of its sessions, those on their way too.
    pub(crate) async fn end(&self) {
        let mut openings = std::mem::take(&mut *held(&self.openings));
        while openings.join_next().await.is_some() {}
        let sessions = std::mem::take(&mut *held(&self.sessions));
        for session in sessions {
            session.delete().await;
        }
    }

    /// How often tools ran so far, if a command tells.
    pub(crate) async fn count(&self) -> Result<Option<u64>, Trouble> {
        match &self.plan.count_command {
            Some(line) => command::count(line).await.map(Some),
            None => Ok(None),
        }
    }

    /// The subject, if a call of it can be interrupted.
    pub(crate) fn lasting(&self) -> Result<&'a Subject, Seen> {
        let subject = &self.plan.subject;
        if subject.lasts() {
            return Ok(subject);
        }
        let (name, took) = (&subject.tool.name, subject.duration_ms);
        Err(Seen::not_applicable(format!(
            "`{name}` answers in {took} ms: name a tool or --args that take a second"
        )))
    }

    /// The subject, if its streams can be resumed and their tails judged.
    pub(crate) fn resumable(&self) -> Result<&'a Subject, Seen> {
        let subject = self.lasting()?;
        if !subject.has_tail() {
            return Err(Seen::not_applicable(format!(
                "`{}` sends {} progress events: name a tool or --args with more",
                subject.tool.name,
                subject.steps.len()
            )));
        }
        with_ids(subject)
    }

    /// The fast subject, if there is one and its streams can be resumed.
    pub(crate) fn bursting(&self) -> Result<&'a Subject, Seen> {
        match &self.plan.burst {
            Some(subject) => with_ids(subject),
            None => Err(Seen::not_applicable(
                "give --burst-args: arguments with which the tool sends a hundred events at once",
            )),
        }
    }

    /// Posts a call, reads so many steps, resets the connection, and lets a moment pass.
    pub(crate) async fn cut(
        &self,
        session: &Session,
        subject: &Subject,
        call: &Call,
        steps: usize,
    ) -> Result<Reading, Trouble> {
        let mut exchange = session.post(&call.message).await?;
        let reading = if subject.has_tail() {
            Reading::of(&mut exchange, Until::steps(subject, steps)).await?
        } else {
            // Nothing comes that could be read: a third of the time is a good moment.
            tokio::time::sleep(ms(subject.duration_ms / 3)).await;
            Reading::default()
        };
        exchange.reset();
        if reading.response(&call.id).is_some() {
            let text = "the call ended before it could be interrupted".to_owned();
            return Err(Trouble::Unexpected(text));
        }
        tokio::time::sleep(ms(COMEBACK_MS)).await;
        Ok(reading)
    }

    /// Lets a call end that nobody reads.
    pub(crate) async fn let_end(&self, subject: &Subject) {
        tokio::time::sleep(ms(subject.duration_ms + subject.duration_ms / 4 + SPARE_MS / 3)).await;
    }

    /// Resumes the stream of a call after this event, and reads it to its end.
    pub(crate) async fn resume(
        &self,
        session: &Session,
        subject: &Subject,
        call: &Call,
        cursor: &str,
    ) -> Result<Reading, Trouble> {
        let mut exchange = session.get(Some(cursor)).await?;
        read_resumed(&mut exchange, subject, call).await
    }

    /// What one resume gives of a call that nothing else disturbs, made at once or after its end.
    pub(crate) async fn resumed_alone(
        &self,
        subject: &Subject,
        after_end: bool,
    ) -> Result<Tail, Trouble> {
        let session = self.session().await?;
        let call = Call::new(&subject.tool);
        let before = self.cut(&session, subject, &call, 2).await?;
        if after_end {
            self.let_end(subject).await;
        }
        let after = self.resume(&session, subject, &call, &cursor(&before)?).await?;
        Ok(Tail::of(subject, &call, &before, &[&after]))
    }
}

/// Locked; nobody who holds one of these locks can panic half-way.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads the resumed stream of a call to its end.
pub(crate) async fn read_resumed(
    exchange: &mut Exchange,
    subject: &Subject,
    call: &Call,
) -> Result<Reading, Trouble> {
    Ok(Reading::of(exchange, Until::end_of(subject, call)).await?)
}

/// The cursor of what was read.
pub(crate) fn cursor(reading: &Reading) -> Result<String, Trouble> {
    let none = || Trouble::Unexpected("no event with an id came before the cut".to_owned());
    reading.cursor().ok_or_else(none)
}

fn with_ids(subject: &Subject) -> Result<&Subject, Seen> {
    if subject.ids {
        return Ok(subject);
    }
    Err(Seen::not_applicable("its events have no ids: streams cannot be resumed"))
}
