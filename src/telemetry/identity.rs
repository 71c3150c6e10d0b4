//! The events of telling callers apart.

use prometheus::IntCounter;
use tracing::{info, warn};

use super::Metrics;
use super::events::MAX_REASON;
use super::line::clip;

/// A request was refused for its credentials. Counts; the line of the refusal tells the rest.
#[derive(Debug)]
pub struct CredentialsRefused {
    /// What is wrong with them, in a word.
    pub reason: &'static str,
}

/// The keys of an issuer were read.
#[derive(Debug)]
pub struct KeysRead<'a> {
    /// The name of the client that its callers are.
    pub issuer: &'a str,
    /// How many it has.
    pub keys: usize,
}

/// The keys of an issuer could not be read.
#[derive(Debug)]
pub struct KeysFailed<'a> {
    /// The name of the client that its callers are.
    pub issuer: &'a str,
    /// Why.
    pub reason: &'a str,
    /// Whether those known before hold on.
    pub is_stale: bool,
}

impl CredentialsRefused {
    /// Counts.
    pub fn emit(&self, metrics: &Metrics) {
        metrics.credentials_refused.with(&[self.reason], IntCounter::inc);
    }
}

impl KeysRead<'_> {
    /// Logs and counts.
    pub fn emit(&self, metrics: &Metrics) {
        metrics.issuer_reads.with(&[self.issuer, "ok"], IntCounter::inc);
        metrics
            .issuer_keys
            .with(&[self.issuer], |cell| cell.set(i64::try_from(self.keys).unwrap_or(i64::MAX)));
        info!(target: "waypost::auth", event = "issuer_keys_read", issuer = self.issuer, keys = self.keys);
    }
}

impl KeysFailed<'_> {
    /// Logs and counts.
    pub fn emit(&self, metrics: &Metrics) {
        metrics.issuer_reads.with(&[self.issuer, "failed"], IntCounter::inc);
        warn!(
            target: "waypost::auth",
            event = "issuer_keys_failed",
            issuer = self.issuer,
            reason = clip(self.reason, MAX_REASON),
            stale = self.is_stale,
        );
    }
}
