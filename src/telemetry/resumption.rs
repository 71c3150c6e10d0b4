//! What becomes of streams whose clients lose their connections.

use std::time::Instant;

use prometheus::{IntCounter, IntGauge};
use tracing::{debug, warn};

use super::metrics::Metrics;

/// A client came back to a stream. Counted always; a gap is logged at most 20 times a minute per client.
#[derive(Clone, Copy, Debug)]
pub struct StreamResumed<'a> {
    /// The client.
    pub client: &'a str,
    /// What the stream belongs to: `call` or `session`.
    pub kind: &'static str,
    /// What was found of it.
    pub found: Resumption,
}

/// What was found of a stream that a client came back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resumption {
    /// All that the client had not received.
    Whole,
    /// Not all: so many events are no longer kept.
    Gap(u64),
    /// Nothing.
    Gone,
}

/// How many events are kept has changed.
#[derive(Clone, Copy, Debug)]
pub struct EventsKept {
    /// How many there are now.
    pub count: usize,
    /// How many bytes they have.
    pub bytes: usize,
}

/// Events were dropped, or not kept at all, because of a limit.
#[derive(Clone, Copy, Debug)]
pub struct EventsDropped {
    /// Whose limit it is: one of [`Self::LIMITS`].
    pub limit: &'static str,
    /// How many.
    pub count: u64,
}

/// A call whose client has lost its connection, as long as this lives.
#[derive(Debug)]
#[must_use = "the call counts as heard again once this is dropped"]
pub struct Detached(Option<IntGauge>);

impl Metrics {
    pub(super) fn start_resumption_at_zero(&self) {
        for gauge in [&self.detached, &self.kept_events, &self.kept_bytes] {
            gauge.cell(&[]);
        }
        for limit in EventsDropped::LIMITS {
            self.kept_dropped.cell(&[limit]);
        }
        for (kind, found) in Resumption::ALL {
            self.resumed.cell(&[kind, found.as_str()]);
        }
    }

    /// Counts a call as one whose client has lost its connection until the guard is dropped.
    pub fn detached(&self) -> Detached {
        let gauge = self.detached.cell(&[]);
        if let Some(gauge) = &gauge {
            gauge.inc();
        }
        Detached(gauge)
    }
}

impl Drop for Detached {
    fn drop(&mut self) {
        if let Some(gauge) = &self.0 {
            gauge.dec();
        }
    }
}

impl Resumption {
    /// All labels of both kinds.
    pub(super) const ALL: [(&str, Self); 4] =
        [("call", Self::Whole), ("call", Self::Gap(0)), ("call", Self::Gone), ("session", Self::Whole)];

    /// The label.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Gap(_) => "gap",
            Self::Gone => "gone",
        }
    }
}

impl StreamResumed<'_> {
    /// Logs and counts.
    pub fn emit(&self, metrics: &Metrics) {
        let Self { client, kind, found } = *self;
        metrics.resumed.with(&[kind, found.as_str()], IntCounter::inc);
        match found {
            Resumption::Whole => {
                debug!(target: "waypost::client", event = "stream_resumed", client, kind);
            }
            Resumption::Gap(missed) => {
                if metrics.gap_lines.admit(client, Instant::now()).is_some() {
                    warn!(target: "waypost::client", event = "stream_resumed_with_gap", client, kind, missed);
                }
            }
            Resumption::Gone => {
                if metrics.gap_lines.admit(client, Instant::now()).is_some() {
                    warn!(target: "waypost::client", event = "stream_gone", client, kind);
                }
            }
        }
    }
}

impl EventsKept {
    /// Counts.
    pub fn emit(&self, metrics: &Metrics) {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        metrics.kept_events.with(&[], |cell| cell.set(number(self.count)));
        metrics.kept_bytes.with(&[], |cell| cell.set(number(self.bytes)));
    }
}

impl EventsDropped {
    /// The limits.
    pub const LIMITS: [&str; 2] = ["session", "total"];

    /// Logs at `debug`, and counts.
    pub fn emit(&self, metrics: &Metrics) {
        let Self { limit, count } = *self;
        metrics.kept_dropped.with(&[limit], |cell| cell.inc_by(count));
        debug!(target: "waypost::client", event = "kept_events_dropped", limit, count);
    }
}
