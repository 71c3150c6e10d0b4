//! Access, route, limits, deadline, in that order: the only maker of an [`AdmittedCall`].

use std::sync::Arc;
use std::time::Instant;

use super::access::{self, Grant, Reveal};
use super::error::{GatewayError, GatewayErrorKind};
use super::limits::Permit;
use super::{Current, Gateway, Health};
use crate::exchange::{Call, Principal};

/// A call that passed every check. Only this module makes one, so no path to an upstream skips them.
#[derive(Debug)]
pub struct AdmittedCall {
    call: Call,
    target: Target,
    deadline: Instant,
    _permit: Permit,
}

/// Where a call goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The place of the upstream in the configuration.
    pub upstream: usize,
    /// The name under which the upstream knows what is called.
    pub native: Arc<str>,
}

impl AdmittedCall {
    /// The call.
    #[must_use]
    pub fn call(&self) -> &Call {
        &self.call
    }

    /// Where it goes.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Takes it apart: the call, where it goes, and what holds its place within the limits until it is dropped.
    #[must_use]
    pub fn into_parts(self) -> (Call, Target, impl Send + Sync + 'static) {
        (self.call, self.target, self._permit)
    }

    /// When its caller stops waiting.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.deadline
    }
}

#[cfg(test)]
impl AdmittedCall {
    /// A call past every check, for tests of what lies behind them.
    pub(crate) fn for_test(call: Call, target: Target, deadline: Instant) -> Self {
        Self { call, target, deadline, _permit: Permit::default() }
    }

    /// The same call with another deadline.
    pub(crate) fn due_at(self, deadline: Instant) -> Self {
        Self { deadline, ..self }
    }
}

/// What has been found out about a call by the time it was admitted or refused; for the record.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// The place of the upstream.
    pub(super) upstream: Option<usize>,
    /// The exposed name, as the catalog has it.
    pub(super) tool: Option<Arc<str>>,
}

/// Runs every check on a call. `findings` is filled in as far as the checks came.
///
/// # Errors
/// The first check that says no.
pub(super) fn admit(
    gateway: &Gateway,
    call: Call,
    findings: &mut Findings,
) -> Result<AdmittedCall, GatewayError> {
    let name = call.request.param_string("name").ok_or_else(|| {
        GatewayError::new(GatewayErrorKind::InvalidParams, "`params.name` must be a string")
    })?;
    let current = gateway.current.load();
    if let Some((_, entry)) = current.snapshot.find(&name) {
        findings.upstream = Some(entry.upstream);
        findings.tool = Some(Arc::clone(&entry.exposed));
    }
    let grant = grant(gateway, &current, &call.principal, &name, findings)?;
    let permit =
        gateway.guards.admit(call.principal.client, grant.target.upstream).map_err(|(scope, error)| {
            gateway.limit_reached(&call.principal, scope, Some(&grant.target), error)
        })?;
    let timeout = gateway.config.upstreams.get(grant.target.upstream).map(|upstream| upstream.timeout);
    let deadline = Instant::now() + timeout.unwrap_or_default();
    Ok(AdmittedCall { call, target: grant.target, deadline, _permit: permit })
}

fn grant(
    gateway: &Gateway,
    current: &Current,
    principal: &Principal,
    name: &str,
    findings: &mut Findings,
) -> Result<Grant, GatewayError> {
    let reveal = if gateway.config.reveal_denied { Reveal::Denied } else { Reveal::Nothing };
    let refusal = match access::grant(&current.snapshot, principal, name, reveal) {
        Ok(grant) => return Ok(grant),
        Err(refusal) => refusal,
    };
    if refusal.kind != GatewayErrorKind::Unknown {
        return Err(refusal);
    }
    match absent_owner(gateway, current, principal, name) {
        Some((upstream, error)) => {
            findings.upstream = Some(upstream);
            Err(error)
        }
        None => Err(refusal),
    }
}

/// The upstream under whose prefix `name` stands, if its tools are unknown because it is not there, and if
/// policy would let the principal see the tool.
fn absent_owner(
    gateway: &Gateway,
    current: &Current,
    principal: &Principal,
    name: &str,
) -> Option<(usize, GatewayError)> {
    let client = gateway.config.clients.get(principal.client)?;
    if !client.tools.admits(name) {
        return None;
    }
    gateway.upstreams.iter().zip(&current.offers).enumerate().find_map(|(index, (upstream, offer))| {
        let native = gateway.names.get(index)?.under_prefix(name)?;
        let is_admitted = gateway.config.upstreams.get(index)?.tools.admits(native);
        let text = match &offer.health {
            Health::Ready => return None,
            Health::Connecting => "is still connecting; its tools are not known yet".to_owned(),
            Health::Down { reason, .. } => format!("is down: {reason}"),
        };
        let error = GatewayError::upstream(GatewayErrorKind::Unavailable, upstream.name(), text);
        let wait = match &offer.health {
            Health::Down { retry_at, .. } => retry_at.saturating_duration_since(Instant::now()),
            Health::Ready | Health::Connecting => std::time::Duration::from_secs(1),
        };
        is_admitted.then(|| (index, error.retry_after(wait)))
    })
}
