//! The events of child processes: one that rests, one that took more than it may.

use prometheus::IntCounter;
use tracing::{info, warn};

use super::Metrics;

/// The process of an upstream was ended because nobody uses it.
#[derive(Debug)]
pub struct UpstreamIdle<'a> {
    /// The upstream.
    pub upstream: &'a str,
}

/// A child process took more than it may, and is killed.
#[derive(Debug)]
pub struct ProcessOverBounds<'a> {
    /// The upstream.
    pub upstream: &'a str,
    /// The key of the bound.
    pub bound: &'static str,
    /// What it took, with its unit.
    pub taken: &'a str,
    /// What it may take, with its unit.
    pub most: &'a str,
}

impl UpstreamIdle<'_> {
    /// Logs and counts.
    pub fn emit(&self, metrics: &Metrics) {
        metrics.idle.with(&[self.upstream], |cell| cell.set(1));
        metrics.idle_stops.with(&[self.upstream], IntCounter::inc);
        info!(target: "waypost::upstream", event = "upstream_idle", upstream = self.upstream);
    }
}

impl ProcessOverBounds<'_> {
    /// Logs and counts.
    pub fn emit(&self, metrics: &Metrics) {
        metrics.over_bounds.with(&[self.upstream], IntCounter::inc);
        warn!(
            target: "waypost::upstream",
            event = "process_over_bounds",
            upstream = self.upstream,
            bound = self.bound,
            taken = self.taken,
            most = self.most,
        );
    }
}
