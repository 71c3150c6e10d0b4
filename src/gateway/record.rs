//! The record of one call: measured while it runs, written once when it ends, also when its caller goes away.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::Gateway;
use super::admit::Findings;
use super::error::{GatewayError, GatewayErrorKind};
use crate::exchange::{Call, Outcome, Principal};
use crate::mcp::task::TASK_ID;
use crate::mcp::{Method, Raw};
use crate::telemetry::{Audit, Audited, CallFinished, CallOutcome};

/// Emits `CallFinished` when it is dropped; `cancelled` unless [`CallRecord::finish`] was called.
pub(super) struct CallRecord<'a> {
    gateway: &'a Gateway,
    principal: Principal,
    method: Method,
    /// What the audit log is told besides, if there is one.
    request: Option<Asked>,
    started: Instant,
    /// What the checks found out.
    pub(super) findings: Findings,
    upstream_time: Duration,
    bytes: (usize, usize),
    outcome: CallOutcome,
    error: Option<String>,
}

/// What the audit log is told of a request.
struct Asked {
    method: Box<str>,
    address: Option<IpAddr>,
    target: Option<String>,
    arguments: Option<Raw>,
    trace: Option<String>,
}

impl Asked {
    fn of(audit: &Audit, call: &Call) -> Self {
        let target = ["name", "uri", TASK_ID].iter().find_map(|key| call.request.param_string(key));
        let meta = call.request.param("_meta").filter(Raw::is_object);
        Self {
            method: (&*call.request.method).into(),
            address: call.hop.address,
            target,
            arguments: call.request.param("arguments").filter(|_| audit.wants_arguments()),
            trace: meta.and_then(|meta| meta.object().string(meta.bytes(), "traceparent")),
        }
    }
}

impl<'a> CallRecord<'a> {
    pub(super) fn start(gateway: &'a Gateway, call: &Call) -> Self {
        Self {
            gateway,
            principal: call.principal.clone(),
            method: call.method,
            request: gateway.lineage.audit().map(|audit| Asked::of(audit, call)),
            started: Instant::now(),
            findings: Findings::default(),
            upstream_time: Duration::ZERO,
            bytes: (call.request.text.len(), 0),
            outcome: CallOutcome::Cancelled,
            error: Some("the caller went away".to_owned()),
        }
    }

    /// Notes how long the upstream had it.
    pub(super) fn upstream_took(&mut self, time: Duration) {
        self.upstream_time = time;
    }

    /// Notes how the call ended.
    pub(super) fn finish(mut self, result: &Result<Outcome, GatewayError>) {
        match result {
            Ok(outcome) => {
                self.outcome = outcome_label(outcome);
                self.bytes.1 = outcome.answer().response.text.len();
                self.error = match outcome {
                    Outcome::Error(answer) => answer.response.error_message(),
                    Outcome::Complete(_) | Outcome::InputRequired(_) => None,
                };
            }
            Err(error) => {
                self.outcome = error_label(error.kind);
                let cause = error.cause.as_ref().map(|cause| format!(" ({cause})"));
                self.error = Some(format!("{}{}", error.text, cause.unwrap_or_default()));
            }
        }
    }
}

impl CallRecord<'_> {
    /// Tells the audit log, if there is one.
    fn audit(&self, (endpoint, upstream, duration): (&str, Option<&str>, Duration)) {
        let (Some(audit), Some(request)) = (self.gateway.lineage.audit(), &self.request) else { return };
        let is_denied = self.outcome == CallOutcome::Denied;
        let denied = self.findings.named.as_ref().filter(|_| is_denied);
        audit.write(&Audited {
            client: self.gateway.config.label(self.principal.client),
            caller: &self.principal.name,
            address: request.address,
            endpoint,
            method: &request.method,
            upstream,
            tool: self.findings.tool.as_deref(),
            target: request.target.as_deref(),
            outcome: self.outcome,
            rule: denied.and_then(|named| self.gateway.denying_rule(&self.principal, named)),
            arguments: request.arguments.as_ref().map(Raw::text),
            duration,
            bytes: self.bytes,
            trace: request.trace.as_deref(),
            error: self.error.as_deref(),
        });
    }
}

impl Drop for CallRecord<'_> {
    fn drop(&mut self) {
        let config = &self.gateway.config;
        let upstream = self.findings.upstream.and_then(|index| config.upstreams.get(index));
        let upstream = upstream.map(|upstream| &*upstream.name);
        let endpoint = config.endpoint_path(self.principal.endpoint);
        let duration = self.started.elapsed();
        self.audit((&endpoint, upstream, duration));
        CallFinished {
            client: config.label(self.principal.client),
            caller: &self.principal.name,
            endpoint: &endpoint,
            upstream,
            tool: self.findings.tool.as_deref(),
            method: self.method.as_str(),
            outcome: self.outcome,
            duration,
            upstream_time: self.upstream_time,
            bytes: self.bytes,
            error: self.error.take(),
        }
        .emit(&self.gateway.metrics);
    }
}

fn outcome_label(outcome: &Outcome) -> CallOutcome {
    match outcome {
        Outcome::Complete(answer) => match answer.response.result("isError") {
            Some(flag) if flag.bytes().as_ref() == b"true" => CallOutcome::ToolError,
            Some(_) | None => CallOutcome::Ok,
        },
        Outcome::InputRequired(_) => CallOutcome::Ok,
        Outcome::Error(_) => CallOutcome::Error,
    }
}

fn error_label(kind: GatewayErrorKind) -> CallOutcome {
    match kind {
        GatewayErrorKind::Unknown | GatewayErrorKind::MethodNotFound => CallOutcome::Unknown,
        GatewayErrorKind::Denied | GatewayErrorKind::MethodDenied => CallOutcome::Denied,
        GatewayErrorKind::InvalidParams | GatewayErrorKind::InvalidArguments => CallOutcome::Invalid,
        GatewayErrorKind::RateLimited | GatewayErrorKind::EdgeLimited => CallOutcome::RateLimited,
        GatewayErrorKind::Unavailable | GatewayErrorKind::UpstreamAuth | GatewayErrorKind::BadUpstream => {
            CallOutcome::Unavailable
        }
        GatewayErrorKind::Timeout => CallOutcome::Timeout,
        GatewayErrorKind::Cancelled => CallOutcome::Cancelled,
        GatewayErrorKind::Internal | GatewayErrorKind::Unanswered => CallOutcome::Error,
    }
}
