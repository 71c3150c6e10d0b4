//! Events about questions of upstreams to clients.

use super::metrics::Metrics;

/// Questions of an upstream were put to the client of their call.
#[derive(Clone, Copy, Debug)]
pub struct QuestionsAsked<'a> {
    /// The upstream.
    pub upstream: &'a str,
    /// How many.
    pub count: usize,
}

/// The number of calls that wait for answers has changed.
#[derive(Clone, Copy, Debug)]
pub struct ParkedCalls {
    /// How many there are now.
    pub count: usize,
}

impl QuestionsAsked<'_> {
    /// Logs at `debug`, and counts.
    pub fn emit(&self, metrics: &Metrics) {
        let count = u64::try_from(self.count).unwrap_or(u64::MAX);
        metrics.questions.with(&[self.upstream], |cell| cell.inc_by(count));
        tracing::debug!(
            target: "waypost::call",
            event = "questions_asked",
            upstream = self.upstream,
            count,
        );
    }
}

impl ParkedCalls {
    /// Counts.
    pub fn emit(&self, metrics: &Metrics) {
        metrics.parked.with(&[], |cell| cell.set(i64::try_from(self.count).unwrap_or(i64::MAX)));
    }
}
