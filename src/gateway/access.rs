//! Who may see and call what: one decision for the list and for the call.

use std::sync::Arc;

use super::admit::Target;
use super::error::{GatewayError, GatewayErrorKind};
use crate::catalog::Snapshot;
use crate::exchange::Principal;

/// The evidence that a principal may call something.
#[derive(Clone, Debug)]
pub(super) struct Grant {
    /// Where it is.
    pub(super) target: Target,
}

/// Looks a tool up as `principal` sees it.
///
/// # Errors
/// `Unknown` if nobody offers the name, `Denied` if it is there but not for this principal. Both have the
/// same words unless `reveal_denied`.
pub(super) fn grant(
    snapshot: &Snapshot,
    principal: &Principal,
    name: &str,
    reveal: Reveal,
) -> Result<Grant, GatewayError> {
    let (index, entry) = snapshot.find(name).ok_or_else(|| unknown(name))?;
    let is_shown = snapshot.view(principal.client).is_some_and(|view| view.shows(index));
    if !is_shown {
        return Err(denied(name, reveal));
    }
    let target = Target { upstream: entry.upstream, native: Arc::clone(&entry.native) };
    Ok(Grant { target })
}

/// Whether a refusal admits that the tool exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reveal {
    /// It says "denied".
    Denied,
    /// It says what it says of a name that nobody offers.
    Nothing,
}

/// The refusal of a name that nobody offers.
pub(super) fn unknown(name: &str) -> GatewayError {
    GatewayError::new(GatewayErrorKind::Unknown, format!("Unknown tool: {name}"))
}

fn denied(name: &str, reveal: Reveal) -> GatewayError {
    match reveal {
        Reveal::Denied => GatewayError::new(GatewayErrorKind::Denied, format!("Denied by policy: {name}")),
        Reveal::Nothing => GatewayError { kind: GatewayErrorKind::Denied, ..unknown(name) },
    }
}
