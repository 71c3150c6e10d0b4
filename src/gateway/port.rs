//! What the middle needs of an upstream, and what it gives to it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use tokio::sync::watch;

use super::admit::AdmittedCall;
use super::error::GatewayError;
use super::followed::Followed;
use crate::catalog::Listed;
use crate::exchange::Outcome;
use crate::mcp::{PerKind, Raw, TaskMode};

/// One MCP server that the gateway connects to.
pub trait Upstream: Send + Sync + 'static {
    /// Its name in the configuration.
    fn name(&self) -> &Arc<str>;

    /// What it offers now; changes as it comes, goes, and changes its lists.
    fn offer(&self) -> watch::Receiver<Arc<Offer>>;

    /// Those of its resources that clients follow. It keeps itself subscribed to what is wanted there, and tells
    /// there what it hears.
    fn followed(&self) -> &Arc<Followed>;

    /// Ends what is kept for a session alone, now that it has ended. Does not wait for that.
    fn end_session(&self, _session: &Arc<str>) {}

    /// Carries one call and waits for its end. Deadlines are the caller's business.
    ///
    /// Cancel safe: dropping the future cancels the call upstream, with the reason in `Call::cancel`, and
    /// disturbs no other call.
    fn call(&self, call: AdmittedCall) -> BoxFuture<'_, Result<Outcome, GatewayError>>;
}

/// What an upstream offers at one instant.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Whether it can be called.
    pub health: Health,
    /// Its lists. Those of the last good connection while it is down within `grace`.
    pub lists: PerKind<List>,
    /// Its `ServerCapabilities`, once it was connected.
    pub capabilities: Option<Raw>,
    /// The kind of tasks that it has.
    pub tasks: Option<TaskMode>,
    /// Its `Implementation`.
    pub server_info: Option<Raw>,
    /// Its instructions to the model.
    pub instructions: Option<String>,
    /// The revision that it speaks, for status pages.
    pub protocol_version: Option<&'static str>,
    /// How often it was connected to.
    pub connects: u64,
}

/// One list of an upstream.
#[derive(Clone, Debug, Default)]
pub struct List {
    /// Its entries, in the upstream's own order.
    pub entries: Vec<Listed>,
    /// Whether the upstream has such a list at all.
    pub is_served: bool,
    /// How long it may be taken for fresh, if the upstream says.
    pub ttl: Option<Duration>,
    /// Whether the upstream calls it private.
    pub is_private: bool,
}

impl Default for Offer {
    fn default() -> Self {
        Self {
            health: Health::Connecting,
            lists: PerKind::default(),
            capabilities: None,
            tasks: None,
            server_info: None,
            instructions: None,
            protocol_version: None,
            connects: 0,
        }
    }
}

impl Health {
    /// Whether it can be called, and its lists are known.
    #[must_use]
    pub fn takes_calls(&self) -> bool {
        match self {
            Self::Ready | Self::Idle => true,
            Self::Connecting | Self::Down { .. } => false,
        }
    }
}

/// Whether an upstream can be called.
#[derive(Clone, Debug)]
pub enum Health {
    /// The first connection is on its way.
    Connecting,
    /// It answers.
    Ready,
    /// It does not run because nobody uses it; a call starts it.
    Idle,
    /// It does not.
    Down {
        /// Why, in words that anybody may read.
        reason: Arc<str>,
        /// Since when.
        since: Instant,
        /// When the next try is due.
        retry_at: Instant,
        /// How many attempts in a row failed, or did not last.
        failures: u32,
    },
}
