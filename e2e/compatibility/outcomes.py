"""What can come of a scenario, in words. Anything else that a client sees is a failure."""

from dataclasses import dataclass

WORKS = "works"
DEGRADES = "degrades"
CANNOT = "cannot"
RECORD = (
    "Sent again 8 s after the cut (`--owed-grace`), the same call gets the recorded answer and "
    "does not run."
)
NO_ID = "Nothing had an id yet, so there is nothing to resume from"


@dataclass(frozen=True)
class Outcome:
    """How a scenario ends for the application."""

    verdict: str
    # A few words, and all that a user of that client has to know.
    name: str
    words: str = ""
    # How often the scenario's call runs.
    executions: int = 1


OK = Outcome(WORKS, "works")
AGAIN = Outcome(
    DEGRADES, "some progress twice",
    "It resumes and gets the rest. After an abrupt end it asks again from the cursor with which "
    "its last connection began, so some progress comes twice; none is missing, and the answer "
    "comes once.",
)
LAST_PROGRESS_LOST = Outcome(
    DEGRADES, "the last progress may be lost",
    "The application's SDK reads from mcp-remote in pieces, and drops progress that is in one "
    "piece with the answer. So the last events before the answer may be missing, and after a "
    "resume, which sends all at once, more of them. The answer comes, once. It is the same without "
    "Rejoin.",
)
NEVER_RESUMES = Outcome(
    CANNOT, "never resumes",
    "It never asks for the rest of a call's stream: the application waits for its own time-out. "
    f"{RECORD}",
)
WAITS_THEN_RECORD = Outcome(
    DEGRADES, "waits, then the record",
    f"{NO_ID}: the application waits for its own time-out. {RECORD}",
)
ERROR_THEN_RECORD = Outcome(
    DEGRADES, "an error, then the record",
    f"{NO_ID}: the application gets an error at once. {RECORD}",
)
REFUSED_FIRST_LOST = Outcome(
    DEGRADES, "refused, but the first one is lost",
    "The repeat does not run. But this client never resumes, so the first call waits for the "
    f"application's own time-out. {RECORD}",
)
FORM_UNKNOWN = Outcome(
    CANNOT, "the form is refused",
    "The form that this server asks its users to fill in has a field of 2025-11-25 (a choice of "
    "several), and the client refuses it. Sampling works. It is the same without Rejoin.",
)
CANNOT_ASK = Outcome(
    CANNOT, "cannot ask",
    "In 2026-07-28 a server cannot send requests, and tools that do (FastMCP's `ctx.elicit` and "
    "`create_message`) fail; the new way is an answer that says what is needed. It is the same "
    "without Rejoin.",
)
UNGUARDED_LOST = Outcome(
    CANNOT, "lost",
    "2026-07-28 has no sessions and no resuming, and Rejoin passes it through as it is: the call "
    "is lost with its connection, and the application gets an error.",
)
UNGUARDED_TWICE = Outcome(
    CANNOT, "runs twice",
    "2026-07-28 has no sessions and no resuming, and Rejoin passes it through as it is: a call "
    "that is sent again **runs again**. A client that can be told to speak 2025-11-25 is guarded.",
    executions=2,
)
UNKNOWN = Outcome(
    DEGRADES, "ends as unknown",
    "The server ends with Rejoin, and nobody knows how far the call had come. Once the client "
    "resumes it, it ends with error 40906: *The outcome is unknown. ...* It ran once, is not sent "
    "again, and the session goes on.",
)
STATE_LOST = Outcome(
    DEGRADES, "told once that state is lost",
    "The server ended with Rejoin, and what it kept for the session is gone. The next call that is "
    "not idempotent is refused with 40907, which says so; sent again, it runs, in a new process.",
)
CANNOT_CONNECT = Outcome(
    DEGRADES, "an error of its own",
    "The application gets the error of a connection that could not be made. The call did not run; "
    "made again once Rejoin listens, it runs, in the same session.",
)
CLIENT_ENDS = Outcome(
    CANNOT, "the client ends",
    "A connection that could not be made ends the SDK's client, and with it the session: the "
    "application has to open another. The call did not run. It is the same at any server.",
    executions=0,
)

ALL = (
    OK, AGAIN, LAST_PROGRESS_LOST, NEVER_RESUMES, WAITS_THEN_RECORD, ERROR_THEN_RECORD,
    REFUSED_FIRST_LOST, FORM_UNKNOWN, CANNOT_ASK, UNGUARDED_LOST, UNGUARDED_TWICE,
    UNKNOWN, STATE_LOST, CANNOT_CONNECT, CLIENT_ENDS,
)
