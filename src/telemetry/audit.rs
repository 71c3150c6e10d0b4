//! The audit log: one line for each call and each refusal.
//!
//! Must not know: how it is decided who may do what.

mod file;
mod redact;

use std::io::{self, stderr};
use std::net::IpAddr;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use serde::Serialize;
use tracing::error;

use super::events::{CallOutcome, ms};
use super::line::timestamp;
use super::writer::{LineQueue, Lines};
use crate::config::{Arguments, Audit as Settings};

use file::Rotating;
use redact::redacted;

/// Longest value that is copied from a request, in bytes.
const LONGEST: usize = 1024;

/// Lines of the audit log are missing.
#[derive(Debug)]
pub(super) struct AuditUnwritten<'a> {
    /// Why.
    pub(super) reason: &'a str,
    /// How many.
    pub(super) lines: u64,
}

impl AuditUnwritten<'_> {
    /// Logs.
    pub(super) fn emit(&self) {
        error!(target: "waypost", event = "audit_unwritten", reason = self.reason, lines = self.lines);
    }
}

/// The audit log. Dropping it waits until what was said is written, for a second at the most.
#[derive(Debug)]
pub struct Audit {
    queue: LineQueue,
    settings: Settings,
}

/// What a line says of a call.
#[derive(Debug)]
pub struct Audited<'a> {
    /// The client, and the caller where that is another name.
    pub client: &'a str,
    /// See there.
    pub caller: &'a str,
    /// Where it came from, if over a network.
    pub address: Option<IpAddr>,
    /// The path of the endpoint.
    pub endpoint: &'a str,
    /// The method, as it was sent.
    pub method: &'a str,
    /// The upstream, where it was routed.
    pub upstream: Option<&'a str>,
    /// The tool or prompt, as the catalog has it.
    pub tool: Option<&'a str>,
    /// The name or URI that was asked for.
    pub target: Option<&'a str>,
    /// How it ended.
    pub outcome: CallOutcome,
    /// For a denial: the rule, and where it stands.
    pub rule: Option<(String, Option<String>)>,
    /// The arguments, as text.
    pub arguments: Option<&'a str>,
    /// From the request read to the answer ready.
    pub duration: Duration,
    /// Bytes of the request and of the answer.
    pub bytes: (usize, usize),
    /// Its `traceparent`.
    pub trace: Option<&'a str>,
    /// What went wrong.
    pub error: Option<&'a str>,
}

#[derive(Serialize)]
struct Line<'a> {
    ts: String,
    client: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    caller: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<IpAddr>,
    endpoint: &'a str,
    method: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<&'a str>,
    outcome: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments_sha256: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<serde_json::Value>,
    duration_ms: f64,
    request_bytes: usize,
    response_bytes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

impl Audit {
    /// Opens the audit log that the configuration asks for.
    ///
    /// # Errors
    /// If its file cannot be opened, or there can be no more threads.
    pub fn open(settings: &Settings) -> io::Result<Self> {
        let queue = match &settings.file {
            Some(path) => {
                let file = Rotating::open(path, settings.max_size, settings.keep)?;
                LineQueue::start(Lines::Audit, file)?
            }
            None => LineQueue::start(Lines::Audit, stderr())?,
        };
        Ok(Self { queue, settings: settings.clone() })
    }

    /// Whether lines have anything of the arguments of a call.
    #[must_use]
    pub fn wants_arguments(&self) -> bool {
        self.settings.arguments != Arguments::Off
    }

    /// Writes a line. Never waits: one that finds no room is counted, and missing.
    pub fn write(&self, call: &Audited<'_>) {
        let arguments = call.arguments.filter(|_| self.wants_arguments());
        let line = Line {
            ts: timestamp(),
            client: call.client,
            caller: (call.caller != call.client).then_some(call.caller),
            address: call.address,
            endpoint: call.endpoint,
            method: clip(call.method),
            upstream: call.upstream,
            tool: call.tool,
            target: call.target.map(clip),
            outcome: call.outcome.as_str(),
            rule: call.rule.as_ref().map(|(rule, _)| rule.as_str()),
            place: call.rule.as_ref().and_then(|(_, place)| place.as_deref()),
            arguments_sha256: arguments.filter(|_| self.settings.arguments == Arguments::Hash).map(sha256),
            arguments: arguments
                .filter(|_| self.settings.arguments == Arguments::Redacted)
                .map(|text| redacted(text, &self.settings.redact, LONGEST)),
            duration_ms: ms(call.duration),
            request_bytes: call.bytes.0,
            response_bytes: call.bytes.1,
            trace: call.trace.map(clip),
            error: call.error.map(clip),
        };
        if let Ok(mut text) = serde_json::to_vec(&line) {
            text.push(b'\n');
            self.queue.put(&text);
        }
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        self.queue.flush();
    }
}

fn sha256(text: &str) -> String {
    digest(&SHA256, text.as_bytes()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn clip(text: &str) -> &str {
    text.get(..text.floor_char_boundary(LONGEST)).unwrap_or_default()
}
