//! The events of upstreams in trouble: what the gateway does about them.

use std::time::Duration;

use tracing::{info, warn};

use super::Metrics;
use super::events::ms;

/// The breaker of an upstream opened: it is not called for a while.
#[derive(Debug)]
pub struct BreakerOpened<'a> {
    /// Its name.
    pub upstream: &'a str,
    /// How many failures in a row open it.
    pub failures: u32,
    /// How long nothing is let through.
    pub open: Duration,
}

/// The breaker of an upstream closed again: it answered.
#[derive(Debug)]
pub struct BreakerClosed<'a> {
    /// Its name.
    pub upstream: &'a str,
}

/// A call that may have been executed is repeated, because that does no harm.
#[derive(Debug)]
pub struct CallRepeated<'a> {
    /// The upstream.
    pub upstream: &'a str,
    /// Why the first try failed.
    pub reason: &'a str,
}

/// A server did not answer when it was asked whether it lives.
#[derive(Debug)]
pub struct HealthCheckMissed<'a> {
    /// Its name.
    pub upstream: &'a str,
    /// Since when nothing came from it.
    pub silent: Duration,
    /// What follows.
    pub verdict: &'static str,
}

impl BreakerOpened<'_> {
    /// Logs and counts.
    pub fn emit(&self, metrics: &Metrics) {
        metrics.breaker.with(&[self.upstream], |cell| cell.set(1));
        warn!(
            target: "waypost::upstream",
            event = "breaker_opened",
            upstream = self.upstream,
            failures = self.failures,
            retry_in_ms = ms(self.open),
        );
    }
}

impl BreakerClosed<'_> {
    /// Logs and counts.
    pub fn emit(&self, metrics: &Metrics) {
        metrics.breaker.with(&[self.upstream], |cell| cell.set(0));
        info!(target: "waypost::upstream", event = "breaker_closed", upstream = self.upstream);
    }
}

impl CallRepeated<'_> {
    /// Logs and counts.
    pub fn emit(&self, metrics: &Metrics) {
        metrics.repeated.with(&[self.upstream], prometheus::IntCounter::inc);
        info!(
            target: "waypost::call",
            event = "call_repeated",
            upstream = self.upstream,
            reason = self.reason,
        );
    }
}

impl HealthCheckMissed<'_> {
    /// Logs and counts.
    pub fn emit(&self, metrics: &Metrics) {
        metrics.checks_missed.with(&[self.upstream], prometheus::IntCounter::inc);
        warn!(
            target: "waypost::upstream",
            event = "health_check_missed",
            upstream = self.upstream,
            silent_ms = ms(self.silent),
            verdict = self.verdict,
        );
    }
}
