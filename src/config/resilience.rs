//! What an upstream is given up for, and how it is kept: the part of its configuration that is about bad days.
//!
//! Must not know: how it is written.

use std::time::Duration;

use super::{Pattern, UpstreamConfig};

/// How much an upstream is put up with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resilience {
    /// How long an answer may pause in the middle of a message; `None` is as long as the call may take.
    /// Default 10 s.
    pub stream_idle: Option<Duration>,
    /// How long a call may take altogether, whatever it says of its progress; `None` is ten times as long as
    /// it may be silent.
    pub max_timeout: Option<Duration>,
    /// How long calls of single tools may be silent, in place of the upstream's `timeout`: the first whose
    /// pattern matches the native name.
    pub timeouts: Vec<(Pattern, Duration)>,
    /// When it is asked whether it lives.
    pub health: Health,
    /// When it is not called for a while.
    pub breaker: Breaker,
    /// Which calls are sent a second time.
    pub retry: Retry,
}

/// How much longer a call that tells of its progress may take than one that is silent, where the file does not say.
const FACTOR: u32 = 10;

/// How long a call is waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Patience {
    /// Without a word of its progress.
    pub silence: Duration,
    /// Altogether; never less.
    pub most: Duration,
}

impl UpstreamConfig {
    /// How long a call is waited for; `tool` is the native name of the tool, if it is a call of one.
    #[must_use]
    pub fn patience(&self, tool: Option<&str>) -> Patience {
        let own = tool.and_then(|tool| {
            let mut timeouts = self.resilience.timeouts.iter();
            timeouts.find(|(pattern, _)| pattern.matches(tool)).map(|(_, timeout)| *timeout)
        });
        let silence = own.unwrap_or(self.timeout);
        let most = self.resilience.max_timeout.unwrap_or_else(|| silence.saturating_mul(FACTOR));
        Patience { silence, most: most.max(silence) }
    }

    /// For how long it may say nothing while calls are with it.
    #[must_use]
    pub fn longest_silence(&self) -> Duration {
        self.resilience.timeouts.iter().map(|(_, timeout)| *timeout).fold(self.timeout, Duration::max)
    }
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
            max_timeout: None,
            timeouts: vec![],
            health: Health { interval: None, timeout: Duration::from_secs(10) },
            breaker: Breaker { failures: 10, open: Duration::from_secs(10) },
            retry: Retry::Hinted,
        }
    }
}
