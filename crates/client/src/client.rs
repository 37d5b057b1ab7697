//! The machine, driven: what the host and the network say goes in, in order and bounded.
use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{Duration, Instant, sleep_until};

use crate::limits::ClientLimits;
use crate::machine::{Answer, ExchangeId, Input, Machine, Notice, Output, Settings};
use crate::transport::{
    Answered, Answers, Config, CredentialError, SetUpError, TlsError, Transport, UrlError, bytes,
    channel,
};
use crate::waiting::{Waiting, apart};

/// Why there is no client. A server that cannot be reached is no reason: it is tried again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The URL cannot be used.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// There is no credential where one was named.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// The system gives no randomness, without which tokens could be guessed.
    #[error("the system gives no randomness: {what}")]
    NoRandomness {
        /// What it said.
        what: String,
    },
}

/// What comes for the host.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FromServer {
    /// A JSON-RPC message.
    Message(Bytes),
    /// Something a person may want to know.
    Notice(Notice),
}

/// The client has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the client has ended")]
pub struct Closed;

/// Takes messages of the host. When the last one is dropped, the session is ended.
#[derive(Clone, Debug)]
pub struct Sender(mpsc::Sender<Bytes>);

impl Sender {
    /// Hands over one JSON-RPC message, or a batch. Waits while the client has much to do.
    ///
    /// # Errors
    /// [`Closed`] if the client has ended.
    pub async fn send(&self, message: impl Into<Bytes>) -> Result<(), Closed> {
        self.0.send(message.into()).await.map_err(|_| Closed)
    }
}

/// Gives what comes for the host, in order.
#[derive(Debug)]
pub struct Receiver(mpsc::Receiver<FromServer>);

impl Receiver {
    /// The next message or notice. `None`: the client has ended, and so has the session.
    pub async fn recv(&mut self) -> Option<FromServer> {
        self.0.recv().await
    }
}

/// One client of one server.
#[derive(Debug)]
pub struct Client;

impl Client {
    /// Starts a client. Nothing is sent before the host says something. Call it in a tokio runtime.
    ///
    /// # Errors
    /// [`ConnectError`], if the configuration cannot be used.
    pub fn connect(config: &Config) -> Result<(Sender, Receiver), ConnectError> {
        let transport = Transport::new(config).map_err(|error| match error {
            SetUpError::Url(error) => ConnectError::Url(error),
            SetUpError::Tls(error) => ConnectError::Tls(error),
            SetUpError::Credential(error) => ConnectError::Credential(error),
        })?;
        let mut seed = [0_u8; 32];
        getrandom::fill(&mut seed)
            .map_err(|error| ConnectError::NoRandomness { what: error.to_string() })?;
        let settings = Settings {
            limits: config.limits.clone(),
            trusts_annotations: config.trusts_annotations,
            server: config.shown_url().to_owned(),
            credential: config.credential.named(),
            credential_option: config.credential_option.clone(),
        };
        let limits = &config.limits;
        // A message may be large: they wait where their bytes are counted, not in a channel.
        let (to_client, from_host) = mpsc::channel(1);
        let (to_host, from_client) = mpsc::channel(1);
        let (answers, answered) = channel(limits);
        let driver = Driver {
            machine: Machine::new(settings, seed),
            transport: Arc::new(transport),
            limits: limits.clone(),
            begin: Instant::now(),
            running: HashMap::new(),
            answers,
            waiting: Waiting::default(),
            is_done: false,
        };
        tokio::spawn(driver.run(from_host, answered, to_host));
        Ok((Sender(to_client), Receiver(from_client)))
    }
}

struct Driver {
    machine: Machine,
    transport: Arc<Transport>,
    limits: ClientLimits,
    begin: Instant,
    running: HashMap<ExchangeId, AbortHandle>,
    answers: Answers,
    /// What the host has not taken yet.
    waiting: Waiting,
    is_done: bool,
}

/// Waits until then; for ever, if that is never.
async fn sleep(wake: Option<Instant>) {
    match wake {
        Some(wake) => sleep_until(wake).await,
        None => std::future::pending().await,
    }
}

impl Driver {
    async fn run(
        mut self,
        mut from_host: mpsc::Receiver<Bytes>,
        mut answered: Answered,
        to_host: mpsc::Sender<FromServer>,
    ) {
        let mut is_host_here = true;
        let mut has_reader = true;
        while !(self.is_done && (self.waiting.is_empty() || !has_reader)) {
            // A host that does not read stops what comes from the server, not what it says itself.
            let has_room = self.waiting.has_room(&self.limits);
            let hears_host = is_host_here && self.waiting.hears_host(&self.limits);
            let wake = self.machine.wake_ms();
            let wake = wake.and_then(|at_ms| self.begin.checked_add(Duration::from_millis(at_ms)));
            let input = tokio::select! {
                biased;
                () = to_host.closed(), if has_reader => {
                    has_reader = false;
                    self.waiting = Waiting::default();
                    Input::HostGone
                }
                permit = to_host.reserve(), if has_reader && !self.waiting.is_empty() => {
                    let Ok(permit) = permit else { continue };
                    if let Some(next) = self.waiting.pop() {
                        permit.send(next);
                    }
                    continue;
                }
                Some((id, answer)) = answered.recv(), if has_room => {
                    if matches!(
                        answer,
                        Answer::Unsent(_)
                            | Answer::NoCredential(_)
                            | Answer::Body(_)
                            | Answer::Ended
                            | Answer::Broken(_)
                    ) {
                        self.running.remove(&id);
                    }
                    Input::Answer(id, answer)
                }
                message = from_host.recv(), if hears_host && !self.is_done => match message {
                    Some(message) => Input::Host(message),
                    None => {
                        is_host_here = false;
                        Input::HostGone
                    }
                },
                () = sleep(wake), if !self.is_done => Input::Tick,
            };
            self.take(input, has_reader);
        }
        for (_, task) in self.running {
            task.abort();
        }
    }

    fn take(&mut self, input: Input, has_reader: bool) {
        let now_ms = u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX);
        let came_bytes = if let Input::Answer(_, answer) = &input { bytes(answer) } else { 0 };
        for output in self.machine.handle(now_ms, input) {
            match output {
                Output::Open(id, request) => {
                    let sending =
                        Arc::clone(&self.transport).run(id, request, self.answers.clone());
                    self.running.insert(id, tokio::spawn(sending).abort_handle());
                }
                Output::Close(id) => {
                    if let Some(task) = self.running.remove(&id) {
                        task.abort();
                    }
                }
                Output::Deliver(message) if has_reader => {
                    self.waiting.push(FromServer::Message(apart(message, came_bytes)));
                }
                Output::Notice(notice) if has_reader => {
                    self.waiting.push(FromServer::Notice(notice));
                }
                Output::Deliver(_) | Output::Notice(_) => {}
                Output::Done => self.is_done = true,
            }
        }
    }
}
