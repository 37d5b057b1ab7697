//! `rejoin demo`: two failures, live in a terminal, without Rejoin and through it (design
//! section 8). Everything is real: processes, sockets, resets, and a file that counts executions.
//! A story that does not come out as told is an error, so the demo is a test too.

mod bare;
mod client;
mod narration;
mod overtake;
mod retry;
mod side;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;

use crate::args::DemoArgs;
use crate::guarded::GuardedError;
use client::ClientError;
use narration::{Narration, Tone};
use side::{Kind, Stage};

/// Longest time for everything.
const DEMO_MAX: Duration = Duration::from_secs(240);

/// Why the demo did not come to its good end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DemoError {
    /// Something happened that the story does not tell.
    #[error("the story did not come out as told: {told}. Seen: {seen}")]
    Story {
        /// What was to be seen.
        told: &'static str,
        /// What was seen.
        seen: String,
    },
    /// It took too long.
    #[error("the demo did not end within {} seconds", DEMO_MAX.as_secs())]
    TimedOut,
    /// An exchange failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The gateway did not start.
    #[error(transparent)]
    Guarded(#[from] GuardedError),
    /// The terminal, a file, or a process failed.
    #[error("the demo cannot go on")]
    System(#[from] io::Error),
}

/// Standard output as the demo writes to it.
type Story = Narration<io::Stdout>;

/// Checks that what was told is what was seen.
fn told(
    true_to_it: bool,
    told: &'static str,
    seen: &impl std::fmt::Debug,
) -> Result<(), DemoError> {
    if true_to_it { Ok(()) } else { Err(DemoError::Story { told, seen: format!("{seen:?}") }) }
}

/// `rejoin demo`, from its arguments to the exit status.
///
/// # Errors
/// See [`DemoError`].
pub(crate) fn run_from(args: &DemoArgs) -> Result<ExitCode, DemoError> {
    let allowed = !args.no_color && std::env::var_os("NO_COLOR").is_none();
    let colour = allowed && io::stdout().is_terminal();
    let mut story = Narration::new(io::stdout(), colour, args.fast);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        let playing = Box::pin(play(&mut story, args.bare_only));
        tokio::time::timeout(DEMO_MAX, playing).await.unwrap_or(Err(DemoError::TimedOut))
    });
    runtime.shutdown_background();
    result.map(|()| ExitCode::SUCCESS)
}

async fn play(story: &mut Story, bare_only: bool) -> Result<(), DemoError> {
    let stage = Stage::set()?;
    story.text(
        "Two failures of an MCP conversation whose connection breaks. Everything below happens \
         now, on this machine. The left column counts how often the tool really ran.",
    )?;
    let retries = play_retry(&stage, story, bare_only).await?;
    let overtakings = play_overtake(&stage, story, bare_only).await?;
    if let ((bare, Some(guarded)), (bare_order, Some(guarded_order))) = (retries, overtakings) {
        summarise(story, [&bare, &guarded], [&bare_order, &guarded_order])?;
    }
    Ok(())
}

async fn play_retry(
    stage: &Stage,
    story: &mut Story,
    bare_only: bool,
) -> Result<(retry::Outcome, Option<retry::Outcome>), DemoError> {
    story.title("1. THE ANSWER IS CUT OFF, AND THE CALL IS SENT AGAIN")?;
    let bare = side::play(stage, Kind::Bare, story, async |side, story| {
        let outcome = retry::play(side, story).await?;
        retry::check_bare(&outcome)?;
        story.line("", Tone::Bad, "=> charged twice, and no error anywhere")?;
        Ok(outcome)
    });
    let bare = bare.await?;
    if bare_only {
        return Ok((bare, None));
    }
    let guarded = side::play(stage, Kind::Guarded, story, async |side, story| {
        let outcome = retry::play(side, story).await?;
        retry::check_guarded(&outcome)?;
        story.line("", Tone::Good, "=> charged once, and the answer arrived")?;
        Ok(outcome)
    });
    Ok((bare, Some(guarded.await?)))
}

async fn play_overtake(
    stage: &Stage,
    story: &mut Story,
    bare_only: bool,
) -> Result<(overtake::Outcome, Option<overtake::Outcome>), DemoError> {
    story.title("2. THE STREAM IS RESUMED WHILE A NEW CALL IS SENT")?;
    let bare = side::play(stage, Kind::Bare, story, async |side, story| {
        let outcome = overtake::play(side, story).await?;
        overtake::check_bare(&outcome)?;
        story.line("", Tone::Bad, "=> the new answer overtook the old events")?;
        Ok(outcome)
    });
    let bare = bare.await?;
    if bare_only {
        return Ok((bare, None));
    }
    let guarded = side::play(stage, Kind::Guarded, story, async |side, story| {
        let outcome = overtake::play(side, story).await?;
        overtake::check_guarded(&outcome)?;
        story.line("", Tone::Good, "=> the new call waited until all old events had arrived")?;
        Ok(outcome)
    });
    Ok((bare, Some(guarded.await?)))
}

fn summarise(
    story: &mut Story,
    retries: [&retry::Outcome; 2],
    overtakings: [&overtake::Outcome; 2],
) -> Result<(), DemoError> {
    let verdicts = [Tone::Bad, Tone::Good];
    let [bare, guarded] = retries.map(|outcome| outcome.executions.to_string());
    let [bare_order, guarded_order] =
        overtakings.map(|outcome| format!("after {} old events", outcome.replayed_before_new));
    let [_, first] = retries.map(|outcome| outcome.answers.join(", "));
    story.title("SUMMARY")?;
    story.row(["", "without Rejoin", "through Rejoin"], [Tone::Plain; 2])?;
    story.row(["1. executions", &bare, &guarded], verdicts)?;
    story.row(["1. first answer", "never delivered", &first], verdicts)?;
    story.row(["2. new call's events", &bare_order, &guarded_order], verdicts)?;
    Ok(())
}
