//! Who may see and call what: one decision for the list and for the call.

use std::sync::Arc;

use super::admit::Target;
use super::error::{GatewayError, GatewayErrorKind};
use crate::catalog::{Candidate, Entry, Snapshot};
use crate::config::{Config, Filter};
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
    if !is_admitted(config, principal, found.upstream, Candidate::uri(kind, native)) {
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

/// Whether every layer lets something through that an upstream has, or would have: its own, that of the endpoint,
/// and those of the principal.
pub(super) fn is_admitted(
    config: &Config,
    principal: &Principal,
    upstream: usize,
    candidate: Candidate<'_>,
) -> bool {
    let within = |filter: &Filter| candidate.passes_within(filter);
    passes((config, principal), (upstream, candidate.kind), within, |filter| candidate.passes(filter))
}

/// Whether every layer may let through what nobody has seen yet; for what is said about it, never for a call.
pub(super) fn may_be_admitted(
    config: &Config,
    principal: &Principal,
    upstream: usize,
    candidate: Candidate<'_>,
) -> bool {
    let native = Candidate { known: candidate.native, ..candidate };
    let within = |filter: &Filter| native.may_pass(filter);
    passes((config, principal), (upstream, candidate.kind), within, |filter| candidate.may_pass(filter))
}

fn passes(
    (config, principal): (&Config, &Principal),
    (upstream, kind): (usize, ListKind),
    within: impl Fn(&Filter) -> bool,
    beyond: impl Fn(&Filter) -> bool,
) -> bool {
    let (Some(owner), Some(endpoint)) =
        (config.upstreams.get(upstream), config.endpoints.get(principal.endpoint))
    else {
        return false;
    };
    let Some(mut layers) = config.layers(principal.endpoint, principal.client, &principal.roles) else {
        return false;
    };
    endpoint.has(upstream)
        && within(owner.rules.filter(kind))
        && layers.all(|layer| beyond(layer.rules.filter(kind)))
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

/// The refusal of a method of an extension that this caller may not use.
pub(super) fn denied_method(method: &str, reveal: Reveal) -> GatewayError {
    let hidden = GatewayError { kind: GatewayErrorKind::MethodDenied, ..unknown_method(method) };
    match reveal {
        Reveal::Denied => GatewayError { text: format!("Denied by policy: {method}").into(), ..hidden },
        Reveal::Nothing => hidden,
    }
}

fn denied(kind: ListKind, name: &str, reveal: Reveal) -> GatewayError {
    let hidden = GatewayError { kind: GatewayErrorKind::Denied, ..unknown(kind, name) };
    match reveal {
        Reveal::Denied => GatewayError { text: format!("Denied by policy: {name}").into(), ..hidden },
        Reveal::Nothing => hidden,
    }
}
