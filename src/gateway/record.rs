//! The record of one call: measured while it runs, written once when it ends, also when its caller goes away.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::admit::Findings;
use super::error::{GatewayError, GatewayErrorKind};
use crate::config::Config;
use crate::exchange::{Call, Outcome, Principal};
use crate::mcp::Method;
use crate::telemetry::{CallFinished, CallOutcome, Metrics};

/// Emits `CallFinished` when it is dropped; `cancelled` unless [`CallRecord::finish`] was called.
pub(super) struct CallRecord<'a> {
    config: &'a Config,
    metrics: &'a Metrics,
    principal: Principal,
    method: Method,
    started: Instant,
    /// What the checks found out.
    pub(super) findings: Findings,
    upstream_time: Duration,
    bytes: (usize, usize),
    outcome: CallOutcome,
    error: Option<String>,
}

impl<'a> CallRecord<'a> {
    pub(super) fn start(config: &'a Arc<Config>, metrics: &'a Arc<Metrics>, call: &Call) -> Self {
        Self {
            config,
            metrics,
            principal: call.principal.clone(),
            method: call.method,
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

impl Drop for CallRecord<'_> {
    fn drop(&mut self) {
        let upstream = self.findings.upstream.and_then(|index| self.config.upstreams.get(index));
        let endpoint = self.config.endpoint_path(self.principal.endpoint);
        CallFinished {
            client: self.config.label(self.principal.client),
            caller: &self.principal.name,
            endpoint: &endpoint,
            upstream: upstream.map(|upstream| &*upstream.name),
            tool: self.findings.tool.as_deref(),
            method: self.method.as_str(),
            outcome: self.outcome,
            duration: self.started.elapsed(),
            upstream_time: self.upstream_time,
            bytes: self.bytes,
            error: self.error.take(),
        }
        .emit(self.metrics);
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
        GatewayErrorKind::InvalidParams => CallOutcome::Invalid,
        GatewayErrorKind::RateLimited | GatewayErrorKind::EdgeLimited => CallOutcome::RateLimited,
        GatewayErrorKind::Unavailable | GatewayErrorKind::UpstreamAuth | GatewayErrorKind::BadUpstream => {
            CallOutcome::Unavailable
        }
        GatewayErrorKind::Timeout => CallOutcome::Timeout,
        GatewayErrorKind::Cancelled => CallOutcome::Cancelled,
        GatewayErrorKind::Internal | GatewayErrorKind::Unanswered => CallOutcome::Error,
    }
}
