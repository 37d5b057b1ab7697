"""Checks that end otherwise with Rejoin, on purpose: the status with it, and why."""

# (scenario, check): (status, why). A check that does not end in this status fails the run, also
# when it ends as it does without Rejoin.
SERVER_DIFFERENCES = {
    ("server-sse-polling", "server-sse-disconnect-resume"): (
        "INFO",
        "the server ends the stream in the midst of the call; Rejoin resumes it, and its client "
        "gets the answer on the stream it has, with no reason to come back",
    ),
    ("server-sse-multiple-streams", "server-sse-streams-functional"): (
        "INFO",
        "the three requests are tools/list, which Rejoin answers with JSON, not with streams",
    ),
}

CLIENT_DIFFERENCES = {}
