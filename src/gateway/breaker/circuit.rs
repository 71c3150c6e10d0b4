//! One circuit of a breaker: closed, open, or tried again. Pure: the time comes with each step.
//!
//! Must not know: of what it is the circuit.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Turn;
use crate::config::Breaker as Settings;

/// What a call is to a circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// One of many.
    Plain,
    /// The one that is let through to see.
    Probe,
}

/// What the end of a call says to a circuit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    /// There was an answer.
    Answered,
    /// There was none; and the tool, if it may be its fault alone.
    Failed(Option<Arc<str>>),
    /// It does not say.
    Nothing,
}

/// The state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Circuit {
    /// Everything is let through.
    Closed(Row),
    /// Nothing is let through until then; after that one call is.
    Open(Instant),
    /// The one call is under way.
    Probing,
}

/// Failures in a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    failures: u32,
    /// The one tool whose fault all of them may be.
    suspect: Option<Arc<str>>,
}

impl Default for Circuit {
    fn default() -> Self {
        Self::Closed(Row::default())
    }
}

impl Row {
    fn and(&self, suspect: Option<Arc<str>>) -> Self {
        let is_one = self.failures == 0 || self.suspect == suspect;
        Self { failures: self.failures.saturating_add(1), suspect: suspect.filter(|_| is_one) }
    }
}

/// When to try again while the one call is under way.
pub(super) const PROBE_WAIT: Duration = Duration::from_secs(1);

impl Circuit {
    /// How long nothing is let through, if nothing is now.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        match self {
            Self::Closed(_) => None,
            Self::Open(until) => until.checked_duration_since(now).filter(|wait| !wait.is_zero()),
            Self::Probing => Some(PROBE_WAIT),
        }
    }

    /// Lets a call through that does not have to wait.
    pub(super) fn enter(&mut self) -> Role {
        match self {
            Self::Closed(_) => Role::Plain,
            Self::Open(_) | Self::Probing => {
                *self = Self::Probing;
                Role::Probe
            }
        }
    }

    /// Whether everything is let through.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self, Self::Closed(_))
    }

    /// Whether there is nothing to remember.
    pub(super) fn is_fresh(&self) -> bool {
        *self == Self::default()
    }

    /// Takes the end of a call. What was let through before it opened decides nothing any more: it was sent to
    /// the upstream as it was then.
    pub(super) fn take(&mut self, role: Role, sign: Sign, now: Instant, settings: &Settings) -> Option<Turn> {
        let (next, turn) = match (&*self, sign) {
            (Self::Closed(_), Sign::Answered) => (Self::default(), None),
            (Self::Closed(row), Sign::Failed(suspect)) => {
                let row = row.and(suspect);
                let is_full = settings.failures != 0 && row.failures >= settings.failures;
                match (is_full, &row.suspect) {
                    (false, _) => (Self::Closed(row), None),
                    // It has a circuit of its own, which opens now.
                    (true, Some(_)) => (Self::default(), None),
                    (true, None) => (Self::Open(now + settings.open), Some(Turn::Opened)),
                }
            }
            (Self::Probing, Sign::Answered) if role == Role::Probe => (Self::default(), Some(Turn::Closed)),
            (Self::Probing, Sign::Failed(_)) if role == Role::Probe => {
                (Self::Open(now + settings.open), Some(Turn::Opened))
            }
            // Its caller went away: the next call is the one to see.
            (Self::Probing, Sign::Nothing) if role == Role::Probe => (Self::Open(now), None),
            (Self::Closed(_) | Self::Open(_) | Self::Probing, _) => return None,
        };
        *self = next;
        turn
    }
}
