//! Access, route, limits, deadline, in that order: the only maker of an [`AdmittedCall`].

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::access::{self, Grant, Reveal};
use super::error::{GatewayError, GatewayErrorKind};
use super::expiry::Expiry;
use super::limits::Permit;
use super::tasks::{self, Relay, Used};
use super::{Current, Gateway, Health};
use crate::catalog::{Candidate, split_tag};
use crate::config::{Patience, Sight};
use crate::exchange::{Call, EventSink, Principal};
use crate::mcp::task::TASK_ID;
use crate::mcp::{ListKind, Method, Routing};

/// A call that passed every check. Only this module makes one, so no path to an upstream skips them.
#[derive(Debug)]
pub struct AdmittedCall {
    call: Call,
    target: Target,
    tasks: Used,
    began: Instant,
    patience: Patience,
    _permit: Arc<Permit>,
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

    /// Who calls, and where.
    pub(super) fn principal(&self) -> &Principal {
        &self.call.principal
    }

    /// What it has to do with tasks.
    pub(super) fn tasks(&self) -> &Used {
        &self.tasks
    }

    /// Stands between the upstream and the client with what comes before the end, where that may name a task.
    pub(super) fn relay(&mut self) -> Option<Relay> {
        if !self.tasks.has_events() {
            return None;
        }
        let (sink, from) = EventSink::new();
        Some(Relay { from, to: std::mem::replace(&mut self.call.events, sink) })
    }

    /// Takes it apart: the call, where it goes, and what holds its place within the limits until it is dropped.
    #[must_use]
    pub fn into_parts(self) -> (Call, Target, impl Send + Sync + 'static) {
        (self.call, self.target, self._permit)
    }

    /// The same call, admitted once: it holds the same place within the limits, and has the same deadline.
    pub(super) fn again(&self) -> Self {
        Self {
            call: self.call.clone(),
            target: self.target.clone(),
            tasks: self.tasks.clone(),
            began: self.began,
            patience: self.patience,
            _permit: Arc::clone(&self._permit),
        }
    }

    /// When its caller stops waiting, and why, if nothing more is heard of it.
    pub(super) fn expiry(&self) -> Expiry {
        Expiry { began: self.began, patience: self.patience, events: self.call.events.clone() }
    }

    /// When its caller stops waiting, if it says nothing of its progress.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.began + self.patience.silence
    }
}

#[cfg(test)]
impl AdmittedCall {
    /// A call past every check, for tests of what lies behind them.
    pub(crate) fn for_test(call: Call, target: Target, deadline: Instant) -> Self {
        let tasks = Used::of(&call, &target, None);
        let call = Self {
            call,
            target,
            tasks,
            began: Instant::now(),
            patience: Patience::default(),
            _permit: Arc::default(),
        };
        call.due_at(deadline)
    }

    /// The same call with another deadline.
    pub(crate) fn due_at(self, deadline: Instant) -> Self {
        let silence = deadline.saturating_duration_since(self.began);
        Self { patience: Patience { silence, most: silence }, ..self }
    }
}

/// What has been found out about a call by the time it was admitted or refused; for the record.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// The place of the upstream.
    pub(super) upstream: Option<usize>,
    /// The name by which rules know a tool or prompt, as the catalog has it. URIs have no bound, so they are no label.
    pub(super) tool: Option<Arc<str>>,
    /// What was refused because of a rule.
    pub(super) named: Option<Named>,
}

/// What a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Subject {
    /// What policy judges by its name.
    Named(Named),
    /// A task, by the id that its client has.
    Task(String),
    /// A page of the caller's own tasks.
    Tasks(Option<String>),
}

/// What a request names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// An entry of a list, by its exposed name.
    Name(ListKind, String),
    /// A resource to read.
    Uri(String),
    /// A template, or a resource, whose variables are to be completed.
    Reference(String),
    /// Nothing but a method, of an extension.
    Method(String),
}

/// Runs every check on a call. `findings` is filled in as far as the checks came.
///
/// # Errors
/// The first check that says no.
pub(super) fn admit(
    gateway: &Gateway,
    mut call: Call,
    findings: &mut Findings,
) -> Result<AdmittedCall, GatewayError> {
    let subject = subject(&call)?;
    let current = gateway.current.load();
    let grant = match &subject {
        Subject::Named(named) => grant(gateway, &current, &call.principal, named, findings)?,
        Subject::Task(id) => {
            let (grant, tool) = gateway.task(&current, &call, id, reveal(gateway))?;
            findings.tool = Some(tool);
            grant
        }
        Subject::Tasks(cursor) => gateway.task_page(&current, &call, cursor.as_deref())?,
    };
    findings.upstream = Some(grant.target.upstream);
    if call.method == Method::ToolsCall {
        gateway.check_arguments(&current, &call, &grant.target)?;
    }
    let permit =
        gateway.guards.admit(call.principal.client, grant.target.upstream).map_err(|(scope, error)| {
            gateway.limit_reached(&call.principal, scope, Some(&grant.target), error)
        })?;
    let tool = (call.method == Method::ToolsCall).then_some(&*grant.target.native);
    let upstream = gateway.config.upstreams.get(grant.target.upstream);
    let patience = upstream.map(|upstream| upstream.patience(tool)).unwrap_or_default();
    if let Subject::Tasks(cursor) = &subject {
        call.request = gateway.turn_to(&call.request, cursor.as_deref()).unwrap_or(call.request);
    }
    let exposed = match subject {
        Subject::Task(id) => Some(id),
        Subject::Named(_) | Subject::Tasks(_) => None,
    };
    if let Some(id) = &exposed {
        call.request = tasks::inward(&call.request, id, &grant.target.native).unwrap_or(call.request);
    }
    Ok(AdmittedCall {
        tasks: Used::of(&call, &grant.target, exposed),
        call,
        target: grant.target,
        began: Instant::now(),
        patience,
        _permit: Arc::new(permit),
    })
}

/// What a call is about.
fn subject(call: &Call) -> Result<Subject, GatewayError> {
    let invalid = |text: &'static str| GatewayError::new(GatewayErrorKind::InvalidParams, text);
    match call.method.routing() {
        Routing::Name(kind) => {
            let name = call.request.param_string("name");
            name.map(|name| Subject::Named(Named::Name(kind, name)))
                .ok_or_else(|| invalid("`params.name` must be a string"))
        }
        Routing::Uri => {
            let uri = call.request.param_string("uri");
            uri.map(|uri| Subject::Named(Named::Uri(uri)))
                .ok_or_else(|| invalid("`params.uri` must be a string"))
        }
        Routing::Reference => reference(call).map(Subject::Named),
        Routing::Task => {
            let id = call.request.param_string(TASK_ID);
            id.map(Subject::Task).ok_or_else(|| invalid("`params.taskId` must be a string"))
        }
        Routing::Tasks => match call.request.param("cursor") {
            Some(raw) if raw.text() != "null" => {
                let cursor = raw.string().ok_or_else(|| invalid("`params.cursor` must be a string"))?;
                Ok(Subject::Tasks(Some(cursor)))
            }
            Some(_) | None => Ok(Subject::Tasks(None)),
        },
        Routing::Extension => Ok(Subject::Named(Named::Method(call.request.method.to_string()))),
        Routing::Local | Routing::List(_) => {
            Err(GatewayError::new(GatewayErrorKind::Internal, "the method goes to no upstream"))
        }
    }
}

fn reference(call: &Call) -> Result<Named, GatewayError> {
    let invalid = |text: &'static str| GatewayError::new(GatewayErrorKind::InvalidParams, text);
    let raw = call.request.param("ref").ok_or_else(|| invalid("`params.ref` is missing"))?;
    let view = raw.object();
    view.unique(raw.bytes()).map_err(|_| invalid("`params.ref` names a key twice"))?;
    let member = |key: &str| view.string(raw.bytes(), key);
    match member("type").as_deref() {
        Some("ref/prompt") => member("name")
            .map(|name| Named::Name(ListKind::Prompts, name))
            .ok_or_else(|| invalid("`params.ref.name` must be a string")),
        Some("ref/resource") => {
            member("uri").map(Named::Reference).ok_or_else(|| invalid("`params.ref.uri` must be a string"))
        }
        Some(_) | None => Err(invalid("`params.ref.type` must be `ref/prompt` or `ref/resource`")),
    }
}

/// Looks up where what is named leads, and whether `principal` may go there.
///
/// # Errors
/// `Unknown`, `Denied`, or `Unavailable` where the upstream that it belongs to is not there.
pub(super) fn grant(
    gateway: &Gateway,
    current: &Current,
    principal: &Principal,
    named: &Named,
    findings: &mut Findings,
) -> Result<Grant, GatewayError> {
    let reveal = reveal(gateway);
    let snapshot = current.at(principal);
    let known = (snapshot, &*gateway.config);
    let granted = match named {
        Named::Name(kind, name) => {
            if let Some((_, entry)) = snapshot.find(*kind, name) {
                findings.upstream = Some(entry.upstream);
                findings.tool = Some(Arc::clone(&entry.known));
            }
            access::grant(snapshot, principal, (*kind, name), reveal)
        }
        Named::Uri(uri) => access::grant_uri(known, principal, uri, reveal),
        Named::Reference(uri) => access::grant_reference(known, principal, uri, reveal),
        Named::Method(method) => {
            gateway.extended(current, (principal, reveal), method, findings).map(Grant::whole)
        }
    };
    let refusal = match granted {
        Ok(grant) => return Ok(grant),
        Err(refusal) => refusal,
    };
    if refusal.kind != GatewayErrorKind::Unknown {
        findings.named = Some(named.clone());
        return Err(refusal);
    }
    match absent_owner(gateway, current, principal, named) {
        Some((upstream, error)) => {
            findings.upstream = Some(upstream);
            Err(error)
        }
        None => Err(refusal),
    }
}

fn reveal(gateway: &Gateway) -> Reveal {
    if gateway.config.reveal_denied { Reveal::Denied } else { Reveal::Nothing }
}

/// The upstream under whose prefix or tag what is named stands, if its lists are unknown because it is not
/// there, and if policy would let the principal see it.
fn absent_owner(
    gateway: &Gateway,
    current: &Current,
    principal: &Principal,
    named: &Named,
) -> Option<(usize, GatewayError)> {
    gateway.upstreams.iter().zip(&current.offers).enumerate().find_map(|(index, (upstream, offer))| {
        let config = gateway.config.upstreams.get(index)?;
        let is_admitted = match named {
            Named::Name(kind, name) => {
                let native = gateway.names_at(principal.endpoint, index)?.under_prefix(name)?;
                let known = gateway.names.get(index)?.expose(native);
                let (kind, known, hints) = (*kind, &*known, Sight::Unseen);
                let candidate = Candidate { kind, native, known, hints };
                access::may_be_admitted(&gateway.config, principal, index, candidate)
            }
            Named::Method(_) => return None,
            Named::Uri(uri) | Named::Reference(uri) => {
                let (native, _) = split_tag(uri).filter(|(_, label)| *label == &*config.name)?;
                let candidate = Candidate::uri(ListKind::Resources, native);
                access::is_admitted(&gateway.config, principal, index, candidate)
            }
        };
        let text = match &offer.health {
            Health::Ready | Health::Idle => return None,
            Health::Connecting => {
                let what = if matches!(named, Named::Name(ListKind::Tools, _)) { "tools" } else { "lists" };
                format!("is still connecting; its {what} are not known yet")
            }
            Health::Down { reason, .. } => format!("is down: {reason}"),
        };
        let error = GatewayError::upstream(GatewayErrorKind::Unavailable, upstream.name(), text);
        let wait = match &offer.health {
            Health::Down { retry_at, .. } => retry_at.saturating_duration_since(Instant::now().into_std()),
            Health::Ready | Health::Idle | Health::Connecting => Duration::from_secs(1),
        };
        is_admitted.then(|| (index, error.retry_after(wait)))
    })
}
