//! What an upstream is given up for, and how it is kept: the part of its configuration that is about bad days.
//!
//! Must not know: how it is written.

use std::time::Duration;

/// How much an upstream is put up with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resilience {
    /// How long an answer may pause in the middle of a message; `None` is as long as the call may take.
    /// Default 10 s.
    pub stream_idle: Option<Duration>,
}

impl Default for Resilience {
    fn default() -> Self {
        Self { stream_idle: Some(Duration::from_secs(10)) }
    }
}
