//! How the child process of an upstream is kept: when it runs, and what it may take of the machine.
//!
//! Must not know: how it is written.

use std::time::Duration;

/// How a child process is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// When it runs.
    pub start: Start,
    /// After how long without a call it is ended; `None` is never. Default 10 min where it is started by calls,
    /// else never.
    pub idle_stop: Option<Duration>,
    /// What it may take of the machine.
    pub bounds: ProcessBounds,
}

/// When a child process runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// From the start of Waypost on.
    #[default]
    Eager,
    /// For its lists once, and from then on when it is called.
    Lazy,
}

/// What a child process may take, with everything that it has started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessBounds {
    /// Bytes of memory that are its own; `None` is no bound, the default.
    pub memory: Option<u64>,
    /// Time on a processor in one life; `None` is no bound, the default.
    pub cpu_time: Option<Duration>,
}

impl ProcessBounds {
    /// Whether there is any.
    #[must_use]
    pub fn is_any(&self) -> bool {
        *self != Self::default()
    }
}
