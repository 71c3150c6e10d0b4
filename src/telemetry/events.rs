//! The events. Each has one `emit`, which writes the log line and counts.

use std::time::Duration;

use super::metrics::Metrics;

/// How a call ended, as a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "docs/metrics.md explains the labels")]
pub enum CallOutcome {
    Ok,
    ToolError,
    Error,
    Denied,
    Unknown,
    Invalid,
    RateLimited,
    Timeout,
    Unavailable,
    Cancelled,
}

/// A call ended, in whichever way.
#[derive(Debug)]
pub struct CallFinished<'a> {
    /// The client's name.
    pub client: &'a str,
    /// The upstream's name, where the call was routed.
    pub upstream: Option<&'a str>,
    /// The exposed name, where the catalog has it.
    pub tool: Option<&'a str>,
    /// The method.
    pub method: &'static str,
    /// How it ended.
    pub outcome: CallOutcome,
    /// From the request read to the answer ready.
    pub duration: Duration,
    /// The part of it that the upstream took.
    pub upstream_time: Duration,
    /// Bytes of the request and of the answer.
    pub bytes: (usize, usize),
    /// What went wrong, for the log.
    pub error: Option<String>,
}

/// An upstream is connected and its lists are read.
#[derive(Debug)]
pub struct UpstreamConnected<'a> {
    /// Its name.
    pub upstream: &'a str,
    /// The revision spoken.
    pub version: &'static str,
    /// `stdio` or `http`.
    pub transport: &'static str,
    /// Tools listed.
    pub tools: usize,
    /// From the start of the attempt.
    pub took: Duration,
    /// Whether it was connected before.
    pub is_restart: bool,
}

/// A connection attempt failed.
#[derive(Debug)]
pub struct UpstreamFailed<'a> {
    /// Its name.
    pub upstream: &'a str,
    /// Why; for the log, may hold what clients must not read (exit code, last stderr line).
    pub reason: &'a str,
    /// When it is tried again.
    pub retry_in: Duration,
}

/// An established connection broke.
#[derive(Debug)]
pub struct UpstreamLost<'a> {
    /// Its name.
    pub upstream: &'a str,
    /// Why; for the log.
    pub reason: &'a str,
}

/// An upstream wrote something that is no message. Logged at most once a minute per upstream, counted always.
#[derive(Debug)]
pub struct UpstreamNoise<'a> {
    /// Its name.
    pub upstream: &'a str,
    /// The beginning of what it wrote.
    pub sample: &'a str,
}

/// A line that a child wrote to stderr.
#[derive(Debug)]
pub struct UpstreamStderr<'a> {
    /// Its name.
    pub upstream: &'a str,
    /// The line, clipped.
    pub line: &'a str,
}

/// An entry of a list is left out.
#[derive(Debug)]
pub struct EntrySkipped<'a> {
    /// Its upstream.
    pub upstream: &'a str,
    /// Its name, as far as it has one.
    pub entry: &'a str,
    /// Why.
    pub reason: &'a str,
}

/// A pattern of the configuration matches no tool, now that the tools are known.
#[derive(Debug)]
pub struct RuleUnmatched<'a> {
    /// Where it stands, as a path of keys.
    pub scope: &'a str,
    /// The pattern.
    pub pattern: &'a str,
}

/// A request was refused before it was a call: credentials, Origin, Host, shape, size, edge limit.
#[derive(Debug)]
pub struct ClientRefused<'a> {
    /// The HTTP status.
    pub status: u16,
    /// Why; holds no credential.
    pub reason: &'a str,
}

/// A legacy session began.
#[derive(Debug)]
pub struct SessionOpened<'a> {
    /// The client's name.
    pub client: &'a str,
    /// The revision agreed on.
    pub version: &'static str,
}

/// A legacy session ended, by its client or by idleness.
#[derive(Debug)]
pub struct SessionClosed<'a> {
    /// Why.
    pub reason: &'a str,
}

macro_rules! emit {
    ($($event:ident)*) => {$(
        impl $event<'_> {
            /// Logs and counts.
            pub fn emit(&self, _metrics: &Metrics) {
                tracing::info!(event = ?self);
            }
        }
    )*};
}
emit!(CallFinished UpstreamConnected UpstreamFailed UpstreamLost UpstreamNoise UpstreamStderr EntrySkipped
      ClientRefused SessionOpened SessionClosed RuleUnmatched);
