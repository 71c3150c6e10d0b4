//! The one list of metrics.

/// All metrics of one gateway.
#[derive(Debug, Default)]
pub struct Metrics {}
