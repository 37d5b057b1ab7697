//! What the server can be made to do wrong.

/// What a server can be made to do wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    RunsRepeatsInFlight,
    RunsRepeatsAfterTheEnd,
    EndsAfterReplay,
    ForgetsWhatEnded,
    SkipsAnEventAtHandOver,
    ShufflesReplays,
    EvictsOldEvents,
    AnswersDuringReplays,
    ServesForeignIds,
    KeysLogsByRequestId,
    /// Runs repeats, too, and replays what follows the cursor on any stream.
    ReplaysAllOfTheSession,
    Broadcasts,
    EmptyForUnknownCursors,
    RepeatsTheCursorEvent,
    CancelsOnDisconnect,
    AnswersOnTheStandaloneStream,
    BlocksOnStalledReaders,
    GivesIdsTwice,
    DoesNotPrime,
    Answers400ForEndedSessions,
    IgnoresTheVersion,
    IgnoresAccept,
    AnswersNotifications,
    /// Which is none, but leaves a client time to change its mind.
    AnswersNotificationsLate,
    LetsEveryOriginIn,
    CountsItsSessions,
    RefusesWithoutReason,
    ForgetsSessionsAtRestart,
}
