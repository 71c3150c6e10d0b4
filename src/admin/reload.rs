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

#[derive(Clone, Debug, Serialize)]
struct Upstreams {
    started: Vec<Arc<str>>,
    replaced: Vec<Arc<str>>,
    ended: Vec<Arc<str>>,
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

    /// It is in force: these upstreams were started, replaced and ended, and these keys need a restart.
    #[must_use]
    pub fn applied(
        cause: &'static str,
        (started, replaced, ended): (&[Arc<str>], &[Arc<str>], &[Arc<str>]),
        kept: &[&'static str],
    ) -> Self {
        let upstreams =
            Upstreams { started: started.to_vec(), replaced: replaced.to_vec(), ended: ended.to_vec() };
        Self {
            upstreams: Some(upstreams),
            restart_needed: kept.to_vec(),
            ..Self::new(Outcome::Applied, cause)
        }
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
