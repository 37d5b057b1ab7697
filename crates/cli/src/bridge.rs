//! `rejoin bridge`: a stdio MCP server whose calls go to a server over HTTP, and come back whole.

mod envelope;
mod stdio;

use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use nix::unistd::getppid;
use rejoin_client::{
    Client, Config, ConnectError, Credential, FromServer, Proxies, Receiver, Sender,
};
use rejoin_core::message::single_line;
use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tokio::time::interval;

use self::stdio::{Notices, Written};
use crate::args::BridgeArgs;
use crate::signals::Signals;

/// How often it is looked whether the parent is still there: its end closes standard input too,
/// unless another process holds that.
const PARENT_LOOK: Duration = Duration::from_secs(1);

/// Time to end beside what the client takes for its calls and its session. It begins anew with
/// each message that the host reads.
const END_SPARE: Duration = Duration::from_secs(1);

/// Time in which what still runs is dropped.
const RUNTIME_END_MAX: Duration = Duration::from_millis(500);

/// Why there is no bridge.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BridgeError {
    /// The client cannot be set up.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The system refuses what the bridge needs.
    #[error("the system refuses {what}")]
    System {
        /// What is needed.
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
}

/// `rejoin bridge`, from its arguments to the exit status.
///
/// # Errors
/// See [`BridgeError`].
pub(crate) fn run(args: &BridgeArgs) -> Result<ExitCode, BridgeError> {
    let (notices, said) = Notices::start(args.quiet).map_err(refused("a thread"))?;
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(refused("a thread"))?;
    let result = runtime.block_on(bridge(args, notices));
    // A command for the credential is ended with its task. A name that the system still looks up
    // is not waited for: that has no limit.
    runtime.shutdown_timeout(RUNTIME_END_MAX);
    said.wait();
    result
}

fn refused(what: &'static str) -> impl FnOnce(std::io::Error) -> BridgeError {
    move |source| BridgeError::System { what, source }
}

async fn bridge(args: &BridgeArgs, notices: Arc<Notices>) -> Result<ExitCode, BridgeError> {
    let config = config(args);
    let limits = &config.limits;
    let mut signals = Signals::install(true).map_err(refused("a signal handler"))?;
    let (sender, receiver) = Client::connect(&config)?;
    let (output, written) = stdio::output().map_err(refused("a thread"))?;
    let watch = Arc::downgrade(&notices);
    let lines = stdio::lines(limits.message_bytes_max, output.downgrade(), watch)
        .map_err(refused("a thread"))?;
    let mut told = pin!(tell(receiver, output, written.clone(), &notices));
    tokio::select! {
        () = &mut told => return Ok(ExitCode::SUCCESS),
        () = hand_over(lines, sender) => {}
        _ = signals.next() => {}
        () = stdio::closed(written.clone()) => {}
        () = left_unread(written.clone(), Duration::from_millis(limits.unread_max_ms)) => {}
        () = parent_gone() => {}
    }
    // The sender is dropped, and the client ends: its calls, then its session.
    let patience = Duration::from_millis(limits.end_grace_ms + limits.delete_max_ms) + END_SPARE;
    tokio::select! {
        () = told => Ok(ExitCode::SUCCESS),
        signal = signals.next_at_once() => Ok(ExitCode::from(signal.exit_status())),
        () = stdio::stalled(written, patience) => {
            notices.say("it ended before all was told: nobody reads its standard output");
            Ok(ExitCode::from(crate::EXIT_FAILED))
        }
    }
}

fn config(args: &BridgeArgs) -> Config {
    let mut config = Config::new(args.url.clone());
    config.credential = args.auth.clone().map_or(Credential::None, |auth| auth.0);
    config.credential_option = "--auth".to_owned();
    config.headers =
        args.headers.iter().map(|header| (header.0.clone(), header.1.clone())).collect();
    config.ca_file.clone_from(&args.ca);
    config.trusts_annotations = !args.distrust_annotations;
    if args.no_proxy {
        config.proxies = Proxies::None;
    }
    config
}

/// Hands over what the host says. The end of the sender ends the session.
async fn hand_over(mut lines: mpsc::Receiver<Vec<u8>>, sender: Sender) {
    while let Some(line) = lines.recv().await {
        if sender.send(line).await.is_err() {
            return;
        }
    }
}

/// Tells what comes from the server, until all of it was written. The session of a host that reads
/// no more is ended all the same.
async fn tell(
    mut receiver: Receiver,
    output: mpsc::Sender<Bytes>,
    written: Written,
    notices: &Notices,
) {
    while let Some(next) = receiver.recv().await {
        match next {
            FromServer::Message(message) => {
                let _is_deaf = output.send(single_line(message)).await.is_err();
            }
            FromServer::Notice(notice) => notices.say(&notice.to_string()),
            _ => {}
        }
    }
    drop(output);
    stdio::closed(written).await;
}

/// Waits until the host has closed its side and reads nothing any more: then what it still wrote is
/// not waited for, since nothing makes room for it.
async fn left_unread(written: Written, patience: Duration) {
    stdio::hung_up().await;
    stdio::stalled(written, patience).await;
}

async fn parent_gone() {
    let parent = getppid();
    let mut look = interval(PARENT_LOOK);
    while getppid() == parent {
        look.tick().await;
    }
}
