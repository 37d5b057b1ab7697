//! `rejoin bridge`: a stdio MCP server whose calls go to a server over HTTP, and come back whole.

mod stdio;

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use nix::unistd::getppid;
use rejoin_client::{Client, Config, ConnectError, Credential, FromServer, Proxies, Sender};
use rejoin_core::message::single_line;
use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tokio::time::interval;

use crate::args::BridgeArgs;
use crate::signals::Signals;

/// How often it is looked whether the parent is still there: its end closes standard input too,
/// unless another process holds that.
const PARENT_LOOK: Duration = Duration::from_secs(1);

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
    let config = config(args);
    let failed = |what| move |source| BridgeError::System { what, source };
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(failed("a thread"))?;
    runtime.block_on(async {
        let signals = Signals::install(true).map_err(failed("a signal handler"))?;
        let lines = stdio::lines(config.limits.message_bytes_max).map_err(failed("a thread"))?;
        let (sender, mut receiver) = Client::connect(&config)?;
        let (stop, stopped) = mpsc::channel(1);
        tokio::spawn(hear(lines, sender, stopped, signals));
        while let Some(next) = receiver.recv().await {
            match next {
                FromServer::Message(message) => {
                    let is_deaf = stdio::write(&single_line(message)).is_err();
                    // The session of a host that reads no more is ended all the same.
                    let _ending = is_deaf && stop.try_send(()).is_err();
                }
                FromServer::Notice(notice) if !args.quiet => say(&notice.to_string()),
                _ => {}
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn config(args: &BridgeArgs) -> Config {
    let mut config = Config::new(args.url.clone());
    config.credential = args.auth.clone().map_or(Credential::None, |auth| auth.0);
    config.headers =
        args.headers.iter().map(|header| (header.0.clone(), header.1.clone())).collect();
    config.ca_file.clone_from(&args.ca);
    config.trusts_annotations = !args.distrust_annotations;
    if args.no_proxy {
        config.proxies = Proxies::None;
    }
    config
}

/// Hands over what the host says, until it, its process or this one is to end. The end of the
/// sender ends the session.
async fn hear(
    mut lines: mpsc::Receiver<Vec<u8>>,
    sender: Sender,
    mut stopped: mpsc::Receiver<()>,
    mut signals: Signals,
) {
    let parent = getppid();
    let mut look = interval(PARENT_LOOK);
    loop {
        tokio::select! {
            line = lines.recv() => {
                let Some(line) = line else { return };
                if sender.send(line).await.is_err() {
                    return;
                }
            }
            _ = signals.next() => return,
            _ = stopped.recv() => return,
            _ = look.tick() => if getppid() != parent { return },
        }
    }
}

/// Tells a person; if nobody reads that, nothing is lost.
pub(crate) fn say(text: &str) {
    let _unread = writeln!(std::io::stderr(), "rejoin bridge: {text}").is_err();
}
