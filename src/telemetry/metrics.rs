//! The one list of metrics.

/// All metrics of one gateway.
#[derive(Debug, Default)]
pub struct Metrics {}

impl Metrics {
    /// Counts a call in flight until dropped.
    pub fn in_flight(&self, _upstream: &str) {}
}
