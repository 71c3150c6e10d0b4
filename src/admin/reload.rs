//! What came of reading the configuration again, as a page.
//!
//! Must not know: how it is read.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use http::StatusCode;
use serde::Serialize;

/// What came of reading the configuration again.
#[derive(Clone, Debug, Serialize)]
pub struct Reload {
    outcome: Outcome,
    /// What it was read for: `SIGHUP`, `file`, `admin`.
    cause: &'static str,
    /// When, in seconds since 1970.
    at: f64,
    /// What is wrong with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    upstreams: Option<Upstreams>,
    /// Keys that say something else than what is in force, and that only a restart can change.
    restart_needed: Vec<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    Applied,
    Unchanged,
    Refused,
}

/// What became of upstreams, by their names.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Upstreams {
    /// They are new.
    pub started: Vec<Arc<str>>,
    /// They are others now.
    pub replaced: Vec<Arc<str>>,
    /// They are no more.
    pub ended: Vec<Arc<str>>,
}

impl Reload {
    fn new(outcome: Outcome, cause: &'static str) -> Self {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        Self { outcome, cause, at, reason: None, upstreams: None, restart_needed: Vec::new() }
    }

    /// It cannot be used, for this reason.
    #[must_use]
    pub fn refused(cause: &'static str, reason: String) -> Self {
        Self { reason: Some(reason), ..Self::new(Outcome::Refused, cause) }
    }

    /// It says what it said before.
    #[must_use]
    pub fn unchanged(cause: &'static str) -> Self {
        Self::new(Outcome::Unchanged, cause)
    }

    /// It is in force: this became of the upstreams, and these keys need a restart.
    #[must_use]
    pub fn applied(cause: &'static str, upstreams: Upstreams, kept: &[&'static str]) -> Self {
        let applied = Self::new(Outcome::Applied, cause);
        Self { upstreams: Some(upstreams), restart_needed: kept.to_vec(), ..applied }
    }

    /// Whether another configuration is in force now.
    #[must_use]
    pub fn is_applied(&self) -> bool {
        self.outcome == Outcome::Applied
    }

    /// The status of an answer that says this.
    pub(super) fn status(&self) -> StatusCode {
        match self.outcome {
            Outcome::Applied | Outcome::Unchanged => StatusCode::OK,
            Outcome::Refused => StatusCode::UNPROCESSABLE_ENTITY,
        }
    }
}
