//! Events about connections that belong to one client or session each.

use std::time::Duration;

use prometheus::IntCounter;
use tracing::{info, warn};

use super::events::{MAX_REASON, ms};
use super::line::clip;
use super::metrics::{Metrics, OwnConnection};

/// A connection was opened for one client or session.
#[derive(Debug)]
pub struct OwnConnectionOpened<'a> {
    /// The upstream.
    pub upstream: &'a str,
    /// How long it took.
    pub took: Duration,
}

/// A connection for one client or session could not be opened.
#[derive(Debug)]
pub struct OwnConnectionFailed<'a> {
    /// The upstream.
    pub upstream: &'a str,
    /// Why; for the log.
    pub reason: &'a str,
}

/// A connection of one client or session has ended.
#[derive(Debug)]
pub struct OwnConnectionEnded<'a> {
    /// The upstream.
    pub upstream: &'a str,
    /// Why; for the log.
    pub reason: &'a str,
}

impl OwnConnectionOpened<'_> {
    /// Logs and counts, until the guard is dropped.
    pub fn emit(&self, metrics: &Metrics) -> OwnConnection {
        info!(
            target: "waypost::upstream",
            event = "own_connection_opened",
            upstream = self.upstream,
            took_ms = ms(self.took),
        );
        metrics.own_connection(self.upstream)
    }
}

impl OwnConnectionFailed<'_> {
    /// Logs and counts.
    pub fn emit(&self, metrics: &Metrics) {
        metrics.connect_failures.with(&[self.upstream], IntCounter::inc);
        warn!(
            target: "waypost::upstream",
            event = "own_connection_failed",
            upstream = self.upstream,
            reason = clip(self.reason, MAX_REASON),
        );
    }
}

impl OwnConnectionEnded<'_> {
    /// Logs.
    pub fn emit(&self) {
        info!(
            target: "waypost::upstream",
            event = "own_connection_ended",
            upstream = self.upstream,
            reason = clip(self.reason, MAX_REASON),
        );
    }
}
