//! Whether the endpoint takes work.
//!
//! Must not know: HTTP.

use std::sync::atomic::{AtomicU8, Ordering};

use serde_json::{Value, json};

use super::Offers;

/// Where the process is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The endpoint does not listen yet.
    Starting,
    /// It does.
    Serving,
    /// It ends what is under way and takes nothing new.
    Draining,
}

impl Phase {
    /// What pages call it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Serving => "serving",
            Self::Draining => "draining",
        }
    }
}

/// The phase, shared between who knows and who tells. Begins with [`Phase::Starting`].
#[derive(Debug, Default)]
pub struct Readiness(AtomicU8);

impl Readiness {
    /// Says where the process is now.
    pub fn enter(&self, phase: Phase) {
        let number = match phase {
            Phase::Starting => 0,
            Phase::Serving => 1,
            Phase::Draining => 2,
        };
        self.0.store(number, Ordering::Relaxed);
    }

    /// Where the process is.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match self.0.load(Ordering::Relaxed) {
            0 => Phase::Starting,
            1 => Phase::Serving,
            _ => Phase::Draining,
        }
    }
}

/// Which upstreams must be ready for the whole to count as ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// None: an upstream that is down must not take the others with it.
    Endpoint,
    /// One.
    Any,
    /// Each.
    All,
}

impl Wish {
    /// Reads the query; `None` if it says something else.
    pub(super) fn of(query: Option<&str>) -> Option<Self> {
        match query.unwrap_or_default() {
            "" => Some(Self::Endpoint),
            "upstreams=any" => Some(Self::Any),
            "upstreams=all" => Some(Self::All),
            _ => None,
        }
    }
}

/// The answer to "are you ready".
#[derive(Debug)]
pub(super) struct Report {
    pub(super) is_ready: bool,
    pub(super) text: Value,
}

/// Answers from what is known now.
pub(super) fn report(phase: Phase, wish: Wish, offers: &Offers) -> Report {
    let not_ready: Vec<&str> =
        offers.iter().filter(|(_, offer)| !offer.health.takes_calls()).map(|(name, _)| &**name).collect();
    let are_enough_up = match wish {
        Wish::Endpoint => true,
        Wish::Any => not_ready.len() < offers.len(),
        Wish::All => not_ready.is_empty(),
    };
    let is_ready = phase == Phase::Serving && are_enough_up;
    let mut text = json!({"ready": is_ready, "phase": phase.as_str()});
    if let (Some(object), true) = (text.as_object_mut(), wish != Wish::Endpoint) {
        object.insert("upstreams".to_owned(), json!({"total": offers.len(), "not_ready": not_ready}));
    }
    Report { is_ready, text }
}
