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
    /// When it is asked whether it lives.
    pub health: Health,
    /// When it is not called for a while.
    pub breaker: Breaker,
    /// Which calls are sent a second time.
    pub retry: Retry,
}

/// When an upstream is asked whether it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// After how long a silence; `None` is never. Default 30 s for a child process, else never.
    pub interval: Option<Duration>,
    /// How long it may take to answer. Default 10 s.
    pub timeout: Duration,
}

/// When an upstream is not called for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Breaker {
    /// After so many failures in a row; 0 is never. Default 10.
    pub failures: u32,
    /// For how long. Default 10 s.
    pub open: Duration,
}

/// Which calls are sent a second time that were lost and may have been executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Retry {
    /// Those that change nothing, or the same once as twice: reads, and tools that say so of themselves.
    #[default]
    Hinted,
    /// None.
    Never,
    /// All.
    Always,
}

impl Default for Resilience {
    fn default() -> Self {
        Self {
            stream_idle: Some(Duration::from_secs(10)),
            health: Health { interval: None, timeout: Duration::from_secs(10) },
            breaker: Breaker { failures: 10, open: Duration::from_secs(10) },
            retry: Retry::Hinted,
        }
    }
}
