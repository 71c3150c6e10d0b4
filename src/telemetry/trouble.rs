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

/// The breaker of a tool opened: it is not called for a while; other tools of its upstream are.
#[derive(Debug)]
pub struct ToolBreakerOpened<'a> {
    /// The upstream.
    pub upstream: &'a str,
    /// The exposed name of the tool.
    pub tool: &'a str,
    /// How many calls in a row that do not end in time open it.
    pub failures: u32,
    /// How long nothing is let through.
    pub open: Duration,
    /// How many tools of the upstream are not called now.
    pub open_tools: usize,
}

/// The breaker of a tool closed again: it answered.
#[derive(Debug)]
pub struct ToolBreakerClosed<'a> {
    /// The upstream.
    pub upstream: &'a str,
    /// The exposed name of the tool.
    pub tool: &'a str,
    /// How many tools of the upstream are not called now.
    pub open_tools: usize,
}

/// A connection could not be accepted.
#[derive(Debug)]
pub struct AcceptFailed<'a> {
    /// Why.
    pub reason: &'a str,
    /// How many in a row, this one among them. Only the first is logged.
    pub failures: u64,
}

/// Connections are accepted again.
#[derive(Debug)]
pub struct AcceptRecovered {
    /// How many in a row could not be.
    pub failures: u64,
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

impl ToolBreakerOpened<'_> {
    /// Logs and counts.
    pub fn emit(&self, metrics: &Metrics) {
        set_open(metrics, self.upstream, self.open_tools);
        warn!(
            target: "waypost::upstream",
            event = "tool_breaker_opened",
            upstream = self.upstream,
            tool = self.tool,
            failures = self.failures,
            retry_in_ms = ms(self.open),
        );
    }
}

impl ToolBreakerClosed<'_> {
    /// Logs and counts.
    pub fn emit(&self, metrics: &Metrics) {
        set_open(metrics, self.upstream, self.open_tools);
        info!(
            target: "waypost::upstream",
            event = "tool_breaker_closed",
            upstream = self.upstream,
            tool = self.tool,
        );
    }
}

fn set_open(metrics: &Metrics, upstream: &str, count: usize) {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    metrics.tool_breakers.with(&[upstream], |cell| cell.set(count));
}

impl AcceptFailed<'_> {
    /// Logs and counts.
    pub fn emit(&self, metrics: &Metrics) {
        metrics.accept_failures.with(&[], prometheus::IntCounter::inc);
        if self.failures == 1 {
            warn!(target: "waypost::http", event = "accept_failed", reason = self.reason);
        }
    }
}

impl AcceptRecovered {
    /// Logs.
    pub fn emit(&self) {
        info!(target: "waypost::http", event = "accept_recovered", failures = self.failures);
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
