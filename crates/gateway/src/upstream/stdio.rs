//! MCP servers that are commands: one child process per session, one JSON-RPC message a line.
//!
//! Five tasks serve a session, each with one wait of its own, so that none can hold up another:
//! the intake takes commands (`relay::Intake`), the writer owns standard input
//! (`input::Writer`), the reader standard output (`output::Reader`), a drain standard error
//! (`stderr`), and the delivery gives the driver its events (`relay::Delivery`). The supervisor
//! (`child::Supervisor`) owns the process: it outlasts them until nothing is left of its group.
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use rejoin_core::limits::Limits;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::time::{Instant, timeout_at};

pub(super) use self::child::remedy;
use self::child::{EndOnDrop, Supervisor};
use self::input::Writer;
use self::line::Lines;
use self::output::{Incoming, Reader, Sorter};
use self::probe::{Probe, same_id};
use self::program::Program;
use self::relay::{Delivery, Intake};
use super::outlet::{Outlet, events_max};
use super::{CloseReason, Event, OpenError, Opened, Opening, Upstream};

mod child;
mod input;
mod line;
mod output;
mod probe;
mod program;
mod relay;
mod stderr;

/// Time a dead child's pipes are read on when another process keeps them open.
const OUTPUT_DRAIN: Duration = Duration::from_millis(200);

/// A command that is run once for each session. It inherits the environment and the directory of
/// the gateway, and comes from local configuration only.
#[derive(Debug)]
pub struct StdioUpstream {
    program: Program,
    name: Arc<str>,
    limits: Arc<Limits>,
    children: Arc<Semaphore>,
}

/// Places for child processes (`children_max`). Clones are the same places.
#[derive(Clone, Debug)]
pub struct Children(Arc<Semaphore>);

impl Children {
    /// As many places as `limits` allow.
    pub fn new(limits: &Limits) -> Self {
        Self(Arc::new(Semaphore::new(limits.children_max.min(Semaphore::MAX_PERMITS))))
    }
}

impl StdioUpstream {
    /// An upstream that runs `command` with `args`, at most `children_max` times at once.
    pub fn new(
        command: impl Into<String>,
        args: impl IntoIterator<Item = impl Into<OsString>>,
        limits: Arc<Limits>,
    ) -> Self {
        let command = command.into();
        let base = Path::new(&command).file_name().map(|name| name.to_string_lossy().into_owned());
        let name = base.unwrap_or_else(|| command.clone()).into();
        let program = Program::new(command, args.into_iter().map(Into::into).collect());
        let Children(children) = Children::new(&limits);
        Self { program, name, limits, children }
    }

    /// Goes by this name instead of the command's: two servers may run the same command.
    pub fn named(mut self, name: &str) -> Self {
        self.name = name.into();
        self
    }

    /// Has these variables beside those of the gateway, and in place of those of the same name.
    pub fn with_environment(
        mut self,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Self {
        self.program.environment.extend(variables);
        self
    }

    /// Does not have these variables of the gateway's: they may be secrets of another server. One
    /// that [`with_environment`](Self::with_environment) gives it stays.
    pub fn without_variables(mut self, names: impl IntoIterator<Item = String>) -> Self {
        self.program.withheld.extend(names);
        self
    }

    /// Runs in this directory instead of the gateway's.
    pub fn in_directory(mut self, directory: PathBuf) -> Self {
        self.program.directory = Some(directory);
        self
    }

    /// Takes its place for each child from here: the cap holds for all that do.
    pub fn sharing(mut self, children: &Children) -> Self {
        self.children = Arc::clone(&children.0);
        self
    }

    /// Looks for the command and its directory without starting it: both may still come later.
    ///
    /// # Errors
    ///
    /// [`OpenError::Directory`] or [`OpenError::Spawn`], as [`Upstream::open`] would now have it.
    pub fn find(&self) -> Result<(), OpenError> {
        if let Some(directory) = &self.program.directory {
            child::enter(directory).map_err(|source| OpenError::Directory {
                command: self.program.command.clone(),
                directory: directory.clone(),
                source,
            })?;
        }
        child::find(&self.program).map_err(|source| self.not_started(source))
    }

    fn not_started(&self, source: io::Error) -> OpenError {
        OpenError::Spawn { command: self.program.command.clone(), source }
    }

    /// Messages in one queue. A channel cannot hold more than the runtime can count.
    fn queue_max(&self) -> usize {
        self.limits.upstream_queue_max.clamp(1, Semaphore::MAX_PERMITS / 4)
    }

    /// Starts the child and the tasks that own it.
    fn start(&self, permit: OwnedSemaphorePermit) -> Result<Starting, OpenError> {
        let limits = &self.limits;
        // The system does not tell a missing directory from a missing program.
        let (process, pipes) = child::start(&self.program)
            .map_err(|source| self.find().err().unwrap_or_else(|| self.not_started(source)))?;
        let queue_max = self.queue_max();
        let queued_bytes_max = limits.body_bytes_max.saturating_mul(2);
        let (queue, queued) = input::queue(queue_max, queued_bytes_max);
        // Outcomes that may wait while the driver receives nothing: more than can be commanded.
        let (notices, noticed) = mpsc::channel(queue_max * 4);
        let (batches, batched) = mpsc::channel(1);
        let (causes, caused) = mpsc::channel(4);
        let (over, is_over) = watch::channel(false);
        let (reason, reasoned) = oneshot::channel();
        let line_bytes_max = limits.line_bytes_max;

        let stderr = tokio::spawn(stderr::drain(pipes.stderr, self.name.clone()));
        let supervisor = Supervisor {
            process,
            causes: caused,
            over,
            reason,
            eof_grace: Duration::from_millis(limits.child_eof_grace_ms),
            term_grace: Duration::from_millis(limits.child_term_grace_ms),
            stderr,
            permit,
        };
        let writer = Writer {
            stdin: pipes.stdin,
            queued,
            notices: notices.clone(),
            causes: causes.clone(),
            over: is_over.clone(),
        };
        let reader = Reader {
            stdout: pipes.stdout,
            lines: Lines::new(line_bytes_max),
            sorter: Sorter::new(self.name.clone(), line_bytes_max),
            batches,
            causes: causes.clone(),
            over: is_over.clone(),
        };
        tokio::spawn(supervisor.run());
        tokio::spawn(writer.run());
        tokio::spawn(reader.run());
        let end = EndOnDrop(causes);
        Ok(Starting { queue, notices, noticed, batched, reasoned, over: is_over, end })
    }

    /// Waits for the answer to `initialize`. Returns it with what came before and with it.
    async fn answer(
        &self,
        starting: &mut Starting,
        id: &str,
    ) -> Result<(Bytes, Vec<Incoming>), OpenError> {
        let mut others = Vec::new();
        let mut others_bytes = 0_usize;
        let mut answer = None;
        while answer.is_none() {
            let Some(batch) = starting.batched.recv().await else {
                let lost = |_| CloseReason::Lost { what: "its supervision stopped".to_owned() };
                let status = (&mut starting.reasoned).await.unwrap_or_else(lost);
                let upstream = self.name.to_string();
                return Err(OpenError::ExitedBeforeAnswer { upstream, status });
            };
            for incoming in batch {
                if answer.is_none() && self.is_answer(&incoming, id)? {
                    answer = Some(incoming.message);
                } else {
                    others_bytes = others_bytes.saturating_add(incoming.message.len());
                    others.push(incoming);
                }
            }
            let limits = &self.limits;
            let too_much =
                others.len() > limits.upstream_queue_max || others_bytes > limits.line_bytes_max;
            if too_much && answer.is_none() {
                return Err(self.bad_answer("sent too much before it answered initialize"));
            }
        }
        Ok((answer.unwrap_or_default(), others))
    }

    fn is_answer(&self, incoming: &Incoming, id: &str) -> Result<bool, OpenError> {
        let text = std::str::from_utf8(&incoming.message).unwrap_or_default();
        match Probe::read(text) {
            Some(Probe { method: false, id: Some(answered), .. }) if same_id(answered, id) => {
                Ok(true)
            }
            // Spec B-3: a server that could not read the request's id.
            Some(Probe { method: false, error: true, id: None | Some("null") }) => {
                Err(self.bad_answer("answered initialize with an error that names no request"))
            }
            _ => Ok(false),
        }
    }

    fn bad_answer(&self, what: &'static str) -> OpenError {
        OpenError::BadAnswer { upstream: self.name.to_string(), what }
    }
}

/// A session whose child runs and has not answered `initialize`. Dropped, it ends the child.
struct Starting {
    queue: input::Queue,
    notices: mpsc::Sender<Event>,
    noticed: mpsc::Receiver<Event>,
    batched: mpsc::Receiver<Vec<Incoming>>,
    reasoned: oneshot::Receiver<CloseReason>,
    over: watch::Receiver<bool>,
    end: EndOnDrop,
}

#[async_trait]
impl Upstream for StdioUpstream {
    async fn open(&self, opening: Opening) -> Result<Opened, OpenError> {
        let initialize = opening.initialize;
        let limits = &self.limits;
        let request = std::str::from_utf8(&initialize).ok().and_then(Probe::read);
        let Some(Probe { method: true, id: Some(id), .. }) = request else {
            return Err(OpenError::NotARequest);
        };
        let too_many = |_| OpenError::TooManyChildren { children_max: limits.children_max };
        let permit = self.children.clone().try_acquire_owned().map_err(too_many)?;
        let deadline = Instant::now() + Duration::from_millis(limits.initialize_max_ms);
        let mut starting = self.start(permit)?;
        // An empty queue takes any message.
        let _ = starting.queue.push_other(initialize.clone());
        let (answer, early) =
            timeout_at(deadline, self.answer(&mut starting, id)).await.map_err(|_| {
                let upstream = self.name.to_string();
                let log = "its standard error in the log";
                OpenError::TimedOut { upstream, limit_ms: limits.initialize_max_ms, log }
            })??;

        let queue_max = self.queue_max();
        let (commands, commanded) = mpsc::channel(queue_max);
        let (events, received) = mpsc::channel(events_max(&self.limits));
        let Starting { queue, notices, noticed, batched, reasoned, over, end } = starting;
        let intake = Intake {
            name: self.name.clone(),
            commands: commanded,
            events: events.clone(),
            notices,
            queue,
            over,
            end,
        };
        let delivery = Delivery {
            outlet: Outlet::new(events, limits.line_bytes_max.saturating_mul(2)),
            notices: noticed,
            early,
            batches: batched,
            reason: reasoned,
        };
        tokio::spawn(intake.run());
        tokio::spawn(delivery.run());
        Ok(Opened { answer, continuation: None, commands, events: received, pressure: None })
    }

    fn name(&self) -> &str {
        &self.name
    }
}
