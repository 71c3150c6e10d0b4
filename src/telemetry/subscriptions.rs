//! What becomes of subscriptions to resources.

use std::time::Instant;

use prometheus::{IntCounter, IntGauge};
use tracing::warn;

use super::line::clip;
use super::metrics::Metrics;

/// Longest reason shown, in bytes.
const MAX_REASON: usize = 400;

/// An upstream would not renew a subscription that clients rely on. Counted always, logged at most 20 times a
/// minute per upstream.
#[derive(Debug)]
pub struct SubscriptionLost<'a> {
    /// Its name.
    pub upstream: &'a str,
    /// The resource, by the URI that the upstream knows.
    pub uri: &'a str,
    /// Why; for the log.
    pub reason: &'a str,
}

impl SubscriptionLost<'_> {
    /// Logs and counts.
    pub fn emit(&self, metrics: &Metrics) {
        metrics.subscriptions_lost.with(&[self.upstream], IntCounter::inc);
        if metrics.subscription_lines.admit(self.upstream, Instant::now()).is_some() {
            warn!(
                target: "waypost::upstream",
                event = "subscription_lost",
                upstream = self.upstream,
                uri = clip(self.uri, MAX_REASON),
                reason = clip(self.reason, MAX_REASON),
            );
        }
    }
}

/// A resource that somebody follows, as long as this lives.
#[derive(Debug)]
#[must_use = "nobody counts as following it once this is dropped"]
pub struct Subscribed(Option<IntGauge>);

impl Drop for Subscribed {
    fn drop(&mut self) {
        if let Some(gauge) = &self.0 {
            gauge.dec();
        }
    }
}

impl Metrics {
    /// Counts a resource of `upstream` as followed until the guard is dropped.
    pub fn subscribed(&self, upstream: &str) -> Subscribed {
        let gauge = self.subscriptions.cell(&[upstream]);
        if let Some(gauge) = &gauge {
            gauge.inc();
        }
        Subscribed(gauge)
    }
}
