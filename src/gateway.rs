//! The middle: who may call what, where it goes, and what is offered.
//!
//! Must not know: either side's eras, transports, HTTP.

mod access;
mod admit;
mod error;
mod port;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::config::Config;
use crate::exchange::{Call, Outcome, Principal};
use crate::mcp::{ListKind, Raw};
use crate::telemetry::Metrics;

pub use admit::{AdmittedCall, Target};
pub use error::{Executed, GatewayError, GatewayErrorKind};
pub use port::{Health, ListedTool, Offer, Upstream};

/// The gateway between all clients and all upstreams.
pub struct Gateway {
    config: Arc<Config>,
    metrics: Arc<Metrics>,
}

/// One page of a list, as one principal may see it.
#[derive(Clone, Debug)]
pub struct Page {
    /// The entries as one JSON array, names exposed.
    pub entries: Bytes,
    /// Where the next page begins, if there is one.
    pub next_cursor: Option<String>,
    /// How long it may be taken for fresh.
    pub ttl: Duration,
    /// Whether it is the same for everybody.
    pub scope: CacheScope,
}

/// Who may share a cached list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheScope {
    /// Everybody.
    Public,
    /// Requests with the same credentials.
    Private,
}

/// Whom the edge limit counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EdgeCaller {
    /// A client of the configuration, by its place.
    Client(usize),
    /// An anonymous caller, by its address.
    Address(IpAddr),
}

impl Gateway {
    /// The configuration in force.
    #[must_use]
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// The metrics.
    #[must_use]
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Carries one call: access, route, limits, deadline, upstream. Emits `CallFinished`.
    ///
    /// Cancel safe: dropping the future ends the call upstream.
    ///
    /// # Errors
    /// Whatever the gateway refuses or cannot do. An error of the upstream itself is an [`Outcome`].
    pub async fn call(&self, _call: Call) -> Result<Outcome, GatewayError> {
        std::future::pending().await
    }

    /// One page of what `principal` may see, from the snapshot; asks no upstream.
    ///
    /// # Errors
    /// `InvalidParams` if the cursor is none of ours, or the list has changed since it was given out.
    pub fn list(
        &self,
        _kind: ListKind,
        _principal: &Principal,
        _cursor: Option<&str>,
    ) -> Result<Page, GatewayError> {
        Err(GatewayError::new(GatewayErrorKind::Internal, "not built"))
    }

    /// What the gateway as a whole can do: `ServerCapabilities`.
    #[must_use]
    pub fn capabilities(&self) -> Raw {
        Raw::trusted(Bytes::from_static(b"{}"))
    }

    /// The instructions of the configuration and of the upstreams, bounded.
    #[must_use]
    pub fn instructions(&self) -> Option<String> {
        None
    }

    /// Counts one request at the edge.
    ///
    /// # Errors
    /// `EdgeLimited` with the wait once the caller's limit is reached.
    pub fn admit_edge(&self, _caller: EdgeCaller) -> Result<(), GatewayError> {
        Ok(())
    }
}
