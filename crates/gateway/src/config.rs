//! What a gateway is made of, and what its operator chooses about HTTP.

use std::sync::Arc;

use rejoin_core::settings::Settings;
use rejoin_store::Store;

use crate::subjects::Subjects;
use crate::upstream::Upstream;

/// Beginnings of the `User-Agent` of clients that lose their session on any status but 2xx: every
/// Python SDK 1.x (1.9.4 to 1.30.0 were tried).
const FRAGILE_AGENTS: [&str; 1] = ["python-httpx/"];

/// HTTP status of refusals (design section 5, "A refusal on the wire").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RejectStatus {
    /// 409, but 200 to clients that lose their session on it.
    #[default]
    Auto,
    /// 409 to everybody.
    Conflict,
    /// 200 to everybody.
    Ok,
}

/// Everything a [`Gateway`](crate::gateway::Gateway) needs.
#[derive(Clone)]
pub struct GatewayConfig {
    /// What shapes decisions, with all limits.
    pub settings: Arc<Settings>,
    /// Where sessions are opened.
    pub upstream: Arc<dyn Upstream>,
    /// The log and the ledger.
    pub store: Arc<dyn Store>,
    /// `Host` values accepted beside the loopback names; without a port, any port is accepted.
    pub allowed_hosts: Vec<String>,
    /// `Origin` values accepted beside the loopback origins.
    pub allowed_origins: Vec<String>,
    /// HTTP status of refusals.
    pub reject_status: RejectStatus,
    /// Beginnings of `User-Agent` values that get 200 under [`RejectStatus::Auto`].
    pub fragile_agents: Vec<String>,
    /// Which credentials belong to one subject; see also `Gateway::set_subjects`.
    pub subjects: Subjects,
    /// Path of the MCP endpoint, without a slash at its end.
    pub path: String,
}

impl GatewayConfig {
    /// A gateway for loopback clients at `/mcp`.
    pub fn new(
        settings: Arc<Settings>,
        upstream: Arc<dyn Upstream>,
        store: Arc<dyn Store>,
    ) -> Self {
        Self {
            settings,
            upstream,
            store,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            reject_status: RejectStatus::default(),
            fragile_agents: FRAGILE_AGENTS.map(str::to_owned).to_vec(),
            subjects: Subjects::default(),
            path: "/mcp".to_owned(),
        }
    }
}
