//! Which cases of the wire matrix need something of the server that not every server has.
//!
//! One table for both who read it: the cases, which fail where they do not apply, and
//! `cargo xtask matrix`, which leaves those out by name. Hence it uses `std` alone.

/// The environment variable that names the server.
pub(crate) const VARIABLE: &str = "REJOIN_MATRIX_UPSTREAM";

/// Which server stands behind the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `rejoin tool-server`, one process per session.
    Stdio,
    /// FastMCP with the same tools, over Streamable HTTP.
    Fastmcp,
    /// server-everything over its own Streamable HTTP.
    Everything,
}

/// What a case needs and not every server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// A call that was cancelled and answers all the same.
    LateAnswer,
    /// Notifications that belong to no call, when the test wants them.
    Notes,
    /// Progress events of many bytes.
    LargeEvents,
    /// A process for each session.
    OwnProcess,
    /// 404 for a session the server does not know any more.
    NotFound,
}

/// A case that needs something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    /// Its name, as the test runner prints it.
    pub(crate) name: &'static str,
    /// What it needs.
    pub(crate) need: Need,
}

/// Every case that needs something; all others apply to every server.
pub(crate) const CASES: [Case; 5] = [
    Case {
        name: "http::the_standalone_stream_carries_notifications_and_holds_nothing",
        need: Need::Notes,
    },
    Case {
        name: "load::j_a_stalled_reader_costs_no_memory_and_delays_nobody",
        need: Need::LargeEvents,
    },
    Case {
        name: "loss::l_a_cancelled_call_that_answers_late_is_collected_not_run_again",
        need: Need::LateAnswer,
    },
    Case {
        name: "upstream::the_first_call_after_a_crash_is_told_once_that_state_was_lost",
        need: Need::NotFound,
    },
    Case {
        name: "upstream::a_server_that_dies_in_one_session_leaves_the_others_alone",
        need: Need::OwnProcess,
    },
];

impl Kind {
    /// Every server.
    pub(crate) const ALL: [Self; 3] = [Self::Stdio, Self::Fastmcp, Self::Everything];

    /// What [`VARIABLE`] calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Stdio => "stdio",
            Self::Fastmcp => "fastmcp",
            Self::Everything => "everything",
        }
    }

    /// The server of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Why a case that needs `need` does not apply to this server.
    pub(crate) fn lacks(self, need: Need) -> Option<&'static str> {
        match (self, need) {
            (Self::Stdio, _) => None,
            (Self::Fastmcp, Need::Notes | Need::LargeEvents | Need::NotFound) => None,
            (_, Need::LateAnswer) => Some("it gives no result of a call that was cancelled"),
            (_, Need::OwnProcess) => Some("one process serves all its sessions, and all lose it"),
            (_, Need::Notes) => Some("it sends notifications by a timer of 5 s only"),
            (_, Need::LargeEvents) => Some("its progress events are small and 1 ms apart"),
            (_, Need::NotFound) => Some("it answers 400 to a session it does not know, not 404"),
        }
    }
}

impl Case {
    /// What this case fails with on a server it does not apply to; `None` where it applies.
    pub(crate) fn failure(&self, kind: Kind) -> Option<String> {
        let reason = kind.lacks(self.need)?;
        let (name, server) = (self.name, kind.name());
        Some(format!(
            "{name} does not apply to {server}: {reason}; \
             `cargo xtask matrix {server}` leaves it out, by hand `-- --exact --skip {name}` does"
        ))
    }
}
