//! Who may see and call what: one decision for the list and for the call.

use std::sync::Arc;

use super::admit::Target;
use super::error::{GatewayError, GatewayErrorKind};
use crate::catalog::{Entry, Snapshot, admits};
use crate::config::Config;
use crate::exchange::Principal;
use crate::mcp::ListKind;

/// The evidence that a principal may call something.
#[derive(Clone, Debug)]
pub(super) struct Grant {
    /// Where it is.
    pub(super) target: Target,
}

impl Grant {
    /// That of an upstream as such: nothing of it is named.
    pub(super) fn whole(upstream: usize) -> Self {
        Self { target: Target { upstream, native: "".into() } }
    }
}

/// Looks something up by its exposed name as `principal` sees it.
///
/// # Errors
/// `Unknown` if nobody offers the name, `Denied` if it is there but not for this principal. Both have the
/// same words unless `reveal_denied`.
pub(super) fn grant(
    snapshot: &Snapshot,
    principal: &Principal,
    (kind, name): (ListKind, &str),
    reveal: Reveal,
) -> Result<Grant, GatewayError> {
    let (index, entry) = snapshot.find(kind, name).ok_or_else(|| unknown(kind, name))?;
    if !is_shown(snapshot, kind, principal, index) {
        return Err(denied(kind, name, reveal));
    }
    Ok(granted(entry))
}

fn is_shown(snapshot: &Snapshot, kind: ListKind, principal: &Principal, index: usize) -> bool {
    snapshot.view(kind, principal).is_some_and(|view| view.shows(index))
}

fn granted(entry: &Entry) -> Grant {
    Grant { target: Target { upstream: entry.upstream, native: Arc::clone(&entry.native) } }
}

/// Looks up where a URI leads, for a principal that wants to read it. What is listed and what a template
/// makes pass the same rules, which are those of the list.
///
/// # Errors
/// As [`grant`].
pub(super) fn grant_uri(
    (snapshot, config): (&Snapshot, &Config),
    principal: &Principal,
    uri: &str,
    reveal: Reveal,
) -> Result<Grant, GatewayError> {
    let kind = ListKind::Resources;
    let found = snapshot.locate(uri).ok_or_else(|| unknown(kind, uri))?;
    let native = &*found.native;
    if !is_admitted(config, principal, found.upstream, (kind, native, native)) {
        return Err(denied(kind, uri, reveal));
    }
    Ok(Grant { target: Target { upstream: found.upstream, native: found.native } })
}

/// Looks up the template, or else the resource, that a completion is for.
///
/// # Errors
/// As [`grant`].
pub(super) fn grant_reference(
    (snapshot, config): (&Snapshot, &Config),
    principal: &Principal,
    uri: &str,
    reveal: Reveal,
) -> Result<Grant, GatewayError> {
    match snapshot.find(ListKind::Templates, uri) {
        Some(_) => grant(snapshot, principal, (ListKind::Templates, uri), reveal),
        None if snapshot.find(ListKind::Resources, uri).is_some() => {
            grant_uri((snapshot, config), principal, uri, reveal)
        }
        None => Err(unknown(ListKind::Templates, uri)),
    }
}

/// Whether every layer lets something through that an upstream has, or would have: its own, and those of the
/// principal. `exposed` and `native` are its names.
pub(super) fn is_admitted(
    config: &Config,
    principal: &Principal,
    upstream: usize,
    (kind, exposed, native): (ListKind, &str, &str),
) -> bool {
    let (Some(upstream), Some(mut layers)) =
        (config.upstreams.get(upstream), config.layers(principal.client, &principal.roles))
    else {
        return false;
    };
    admits(upstream.rules.filter(kind), kind, (native, native))
        && layers.all(|layer| admits(layer.rules.filter(kind), kind, (exposed, native)))
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
pub(super) fn unknown(kind: ListKind, name: &str) -> GatewayError {
    let error = |text: String| GatewayError::new(GatewayErrorKind::Unknown, text);
    match kind {
        ListKind::Resources => error(format!("Resource not found: {name}")).about(name),
        ListKind::Tools | ListKind::Prompts | ListKind::Templates => {
            error(format!("Unknown {}: {name}", kind.noun()))
        }
    }
}

/// The refusal of a task that this caller does not have.
pub(super) fn unknown_task(id: &str) -> GatewayError {
    GatewayError::new(GatewayErrorKind::Unknown, format!("Unknown task: {id}"))
}

/// The refusal of a task whose tool this caller may not call.
pub(super) fn denied_task(id: &str, reveal: Reveal) -> GatewayError {
    let hidden = GatewayError { kind: GatewayErrorKind::Denied, ..unknown_task(id) };
    match reveal {
        Reveal::Denied => GatewayError { text: "Denied by policy: the tool of this task".into(), ..hidden },
        Reveal::Nothing => hidden,
    }
}

/// The refusal of a method that nobody has.
pub(super) fn unknown_method(method: &str) -> GatewayError {
    GatewayError::new(GatewayErrorKind::MethodNotFound, format!("Method not found: {method}"))
}

fn denied(kind: ListKind, name: &str, reveal: Reveal) -> GatewayError {
    let hidden = GatewayError { kind: GatewayErrorKind::Denied, ..unknown(kind, name) };
    match reveal {
        Reveal::Denied => GatewayError { text: format!("Denied by policy: {name}").into(), ..hidden },
        Reveal::Nothing => hidden,
    }
}
