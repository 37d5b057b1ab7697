"""What is known of the stock clients: who resumes, which revisions they speak, what they show."""

import json
from dataclasses import dataclass

from compatibility.seen import brief, expect


@dataclass(frozen=True)
class Refusal:
    """How an application reads that its call was refused."""

    # The class of the error and what its message begins with.
    error: str
    prefix: str = ""
    # Whether the rest of the message is the answer's body. Else the error has code and data.
    is_body: bool = False
    # An HTTP client shows the status as code; the Python SDK 1.x loses its session on any but 200.
    status: int = 409
    code: int | None = None

    @property
    def words(self):
        """The same for a person."""
        if self.is_body:
            return f"`{self.error}`: `{self.prefix}` and the answer's body, which is JSON"
        return f"`{self.error}` with message, code and data"

    def read(self, line):
        """The JSON-RPC error behind the one an application caught."""
        expect(line["type"] == self.error, f"the error is no {self.error}: {brief(line)}")
        message = line["message"]
        expect(message.startswith(self.prefix), f"the text is {message!r}")
        rest = message[len(self.prefix):]
        if not self.is_body:
            return {"code": line.get("code"), "message": rest, "data": line.get("data")}
        expect(self.code is None or line.get("code") == self.code, f"the code: {brief(line)}")
        body = json.loads(rest)
        expect(isinstance(body.get("id"), int), f"the refusal lacks the request's own id: {body}")
        return body["error"]


@dataclass(frozen=True)
class Application:
    """A stock client as the table knows it; `peers.CLIENTS` has its package and driver."""

    name: str
    refusal: Refusal
    resumes: bool = True
    # Whether its revision (2025-11-25) has a first event that is only an id.
    is_primed: bool = True
    # Whether it takes the revision of 2026-07-28 where a server offers it.
    is_modern: bool = False
    # The exception as which it shows a result that is marked as an error, if it does.
    raises: str | None = None
    # Whether progress that comes in one piece with the answer, right before it, may be dropped.
    drops_last_progress: bool = False
    # What tells it from another client of the same package.
    words: str = ""


POSTING = "Error POSTing to endpoint"
BODY_1 = Refusal("StreamableHTTPError", f"Streamable HTTP error: {POSTING}: ", True, code=409)
BODY_117 = Refusal("Error", f"{POSTING} (HTTP 409): ", True)
BODY_2 = Refusal("SdkHttpError", f"{POSTING}: ", True)
REMOTE = Refusal("McpError", f"MCP error -32001: mcp-remote: {POSTING}: ", True, code=-32001)
PYTHON_2 = Refusal("MCPError")
PYTHON_1 = Refusal("McpError", status=200)
RUST = Refusal("McpError")

LEGACY = "told to keep to sessions (`mode`)"
AUTO = "takes 2026-07-28 where the server offers it"
ALL = {
    client.name: client
    for client in (
        Application("ts", BODY_1),
        Application("ts117", BODY_117, resumes=False, is_primed=False),
        Application("ts2", BODY_2, words="with sessions, its default"),
        Application("ts2-auto", BODY_2, is_modern=True, words=AUTO),
        Application(
            "remote", REMOTE, drops_last_progress=True,
            words="between an application on stdio (npm `sdk` 1.32.2) and the URL",
        ),
        Application("py2", PYTHON_2, words=LEGACY),
        Application("py2-auto", PYTHON_2, is_modern=True, words=f"its default: {AUTO}"),
        Application("py1", PYTHON_1),
        Application("py112", PYTHON_1, resumes=False, is_primed=False),
        Application("fastmcp", PYTHON_2, raises="ToolError", words=LEGACY),
        Application(
            "fastmcp-auto", PYTHON_2, raises="ToolError", is_modern=True,
            words=f"its default: {AUTO}",
        ),
        Application("rmcp", RUST),
    )
}
