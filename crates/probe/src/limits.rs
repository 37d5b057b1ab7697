//! How much the probe asks of a server, and how long it waits. All bounds of a run are here.

use std::time::Duration;

/// Requests of a whole run.
pub(crate) const REQUESTS_MAX: u64 = 1_000;
/// Time for one hazard, its sessions included.
pub(crate) const HAZARD_MAX_SECONDS: u64 = 120;
/// Time to choose a tool and to see how its calls look when nothing breaks.
pub(crate) const PREPARE_MAX_SECONDS: u64 = 300;
/// Time for a whole run.
pub(crate) const RUN_MAX_SECONDS: u64 = 1_800;
/// Time to connect.
pub(crate) const CONNECT_MAX_MS: u64 = 5_000;
/// Time for the head of an answer.
pub(crate) const HEAD_MAX_MS: u64 = 10_000;
/// Time for the end of one undisturbed call.
pub(crate) const CALL_MAX_MS: u64 = 60_000;
/// Time that `--count-cmd` and `--restart-cmd` may take.
pub(crate) const COMMAND_MAX_MS: u64 = 60_000;
/// Read-only tools that are tried while one that sends progress is looked for.
pub(crate) const TOOLS_TRIED_MAX: usize = 4;
/// Pages of the list of tools.
pub(crate) const TOOL_PAGES_MAX: usize = 20;
/// Time for the first event of a tool that is only tried.
pub(crate) const TRIAL_MAX_MS: u64 = 15_000;
/// Shortest call that can be interrupted for sure.
pub(crate) const LASTING_MIN_MS: u64 = 250;
/// Longest call of a tool that counts as answering at once.
pub(crate) const QUICK_MAX_MS: u64 = 1_000;
/// Shortest call that makes a run long enough to say so.
pub(crate) const SLOW_MIN_MS: u64 = 2_000;
/// What a hazard takes on average, in quarters of a call's length, measured: 29 hazards took 43 s
/// with calls of 1 s, and 510 s with calls of 10 s.
pub(crate) const CALL_QUARTERS_A_HAZARD: u64 = 7;
/// Fewest progress events of a call whose tail is judged.
pub(crate) const STEPS_MIN: usize = 4;
/// Time after a reset until the client comes back.
pub(crate) const COMEBACK_MS: u64 = 50;
/// Time beyond the length of an undisturbed call in which its end must have come.
pub(crate) const SPARE_MS: u64 = 1_500;
/// Time for what may still follow a response.
pub(crate) const AFTERMATH_MS: u64 = 300;
/// Time in which a stream that says nothing counts as silent.
pub(crate) const SILENCE_MS: u64 = 1_000;
/// Time in which a session with a stalled reader must answer `ping`.
pub(crate) const STALLED_PING_MAX_MS: u64 = 4_000;
/// Trials of what depends on a race.
pub(crate) const TRIALS: usize = 3;
/// Calls whose resumes are timed to meet the moment in which an event is made.
pub(crate) const AIMED_CALLS: usize = 3;
/// How long before that moment the first of these resumes is sent.
pub(crate) const LEAD_MS: u64 = 3;
/// By how much the next is sent earlier or later.
pub(crate) const AIM_STEP_MICROS: u64 = 500;
/// What the runtime's timers may be late.
pub(crate) const TIMER_MS: u64 = 2;
/// Trials of a new call during a replay.
pub(crate) const OVERTAKING_TRIALS: usize = 10;
/// Trials without the old answer after which a log counts as too small for it.
pub(crate) const MISSING_MAX: usize = 2;
/// Events that a small log still has.
pub(crate) const SHORT_TAIL_EVENTS: usize = 80;
/// New calls during one replay.
pub(crate) const QUICK_CALLS: usize = 4;
/// Time from one of them to the next.
pub(crate) const QUICK_CALL_EVERY_MS: u64 = 1;
/// Time in which a GET must have begun to be answered before a POST follows it.
pub(crate) const GET_FIRST_MS: u64 = 50;
/// Time for an old answer to come after a new one.
pub(crate) const REST_MAX_MS: u64 = 5_000;
/// Receive buffer of a reader that stalls.
pub(crate) const STALLED_RECEIVE_BYTES: usize = 4_096;
/// Time for which a reader stalls before the session is asked for something.
pub(crate) const STALL_MS: u64 = 3_000;
/// Resumes of one call that is cut after each event.
pub(crate) const CUTS_MAX: usize = 20;
/// Bytes of one event, or of a body that is no stream.
pub(crate) const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Bytes of a head, and of one line of the chunked coding.
pub(crate) const HEAD_BYTES_MAX: usize = 256 * 1024;
/// Events of one answer.
pub(crate) const EVENTS_MAX: usize = 100_000;
/// Bytes of all events of one answer.
pub(crate) const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Elements of the JSON of one answer.
pub(crate) const ELEMENTS_MAX: usize = 500_000;
/// Time to end the sessions of a hazard.
pub(crate) const DELETE_MAX_SECONDS: u64 = 20;
/// Hazards in a row without a session after which the server counts as lost.
pub(crate) const LOST_AFTER: usize = 3;
/// Characters of a message that the transcript keeps.
pub(crate) const SHOWN_CHARS_MAX: usize = 400;
/// Characters of a name or a message of the server in a sentence.
pub(crate) const QUOTED_CHARS_MAX: usize = 120;
/// Bytes of a message that are looked through for session ids before it is shortened.
pub(crate) const MASKED_BYTES_MAX: usize = 64 * 1024;
/// Shortest value of a header field of the user's that is looked for in what a server says.
pub(crate) const SECRET_BYTES_MIN: usize = 6;
/// Entries of one hazard's transcript; the rest is counted.
pub(crate) const ENTRIES_MAX: usize = 400;

/// Milliseconds as a duration.
pub(crate) const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}
