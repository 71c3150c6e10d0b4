//! The events. Each has one `emit`, which writes the log line and counts.
//!
//! A call is one line at `info`; what an operator should look at is `warn`. Foreign text is clipped here and
//! escaped by the line format, so that no peer writes lines of its own into the log.
//!
//! Must not know: where lines and numbers go.

use std::time::{Duration, Instant};

use prometheus::{Histogram, IntCounter, IntGauge};
use tracing::{debug, info, warn};

use super::line::clip;
use super::metrics::{LimitScope, Metrics};

/// Bytes of an error or a reason that are logged.
pub(super) const MAX_REASON: usize = 1_000;

/// Bytes of a sample of noise, or of an entry's name, that are logged.
const MAX_SAMPLE: usize = 200;

/// Bytes of a line of stderr that are logged.
const MAX_STDERR: usize = 2_000;

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

impl CallOutcome {
    /// All outcomes.
    pub const ALL: [Self; 10] = [
        Self::Ok,
        Self::ToolError,
        Self::Error,
        Self::Denied,
        Self::Unknown,
        Self::Invalid,
        Self::RateLimited,
        Self::Timeout,
        Self::Unavailable,
        Self::Cancelled,
    ];

    /// The label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::ToolError => "tool_error",
            Self::Error => "error",
            Self::Denied => "denied",
            Self::Unknown => "unknown",
            Self::Invalid => "invalid",
            Self::RateLimited => "rate_limited",
            Self::Timeout => "timeout",
            Self::Unavailable => "unavailable",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A call ended, in whichever way.
#[derive(Debug)]
pub struct CallFinished<'a> {
    /// The client's name.
    pub client: &'a str,
    /// The caller's own; another one where many callers are one client.
    pub caller: &'a str,
    /// The path of the endpoint at which it came.
    pub endpoint: &'a str,
    /// The upstream's name, where the call was routed.
    pub upstream: Option<&'a str>,
    /// The exposed name as rules know it, where the catalog has it.
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
    /// How many attempts in a row failed, or did not last.
    pub failures: u32,
}

/// The tools of a connected upstream were read again.
#[derive(Debug)]
pub struct UpstreamListed<'a> {
    /// Its name.
    pub upstream: &'a str,
    /// Tools listed.
    pub tools: usize,
}

/// The tools of a connected upstream could not be read; the connection stays.
#[derive(Debug)]
pub struct UpstreamUnlisted<'a> {
    /// Its name.
    pub upstream: &'a str,
    /// Why; for the log.
    pub reason: &'a str,
    /// When they are read again.
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

/// The client of a call did not read its events, and missed one. Logged at most once a minute per upstream.
#[derive(Debug)]
pub struct EventMissed<'a> {
    /// The upstream that sent it.
    pub upstream: &'a str,
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

/// A limit refused a call or a request. Counts; the line of the call or of the refusal tells the rest.
#[derive(Debug)]
pub struct LimitReached<'a> {
    /// The client's name; empty where it is not known.
    pub client: &'a str,
    /// Whose limit it was.
    pub scope: LimitScope,
    /// The upstream, where the limit is one of an upstream.
    pub upstream: Option<&'a str>,
    /// How long to wait.
    pub wait: Duration,
}

/// Milliseconds with three decimals.
pub(super) fn ms(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

impl CallFinished<'_> {
    /// Logs and counts.
    pub fn emit(&self, metrics: &Metrics) {
        let upstream = self.upstream.unwrap_or_default();
        let outcome = self.outcome.as_str();
        let overhead = self.duration.saturating_sub(self.upstream_time);
        let (request_bytes, response_bytes) = self.bytes;
        let labels = [self.client, upstream, self.tool.unwrap_or_default(), self.method, outcome];
        metrics.calls.with(&labels, IntCounter::inc);
        metrics.endpoint_calls.with(&[self.endpoint, self.client, outcome], IntCounter::inc);
        let seconds = |time: Duration| move |cell: &Histogram| cell.observe(time.as_secs_f64());
        metrics.call_duration.with(&[upstream, self.method], seconds(self.duration));
        metrics.overhead.with(&[], seconds(overhead));
        metrics.request_bytes.with(&[upstream], |cell| cell.inc_by(request_bytes as u64));
        metrics.response_bytes.with(&[upstream], |cell| cell.inc_by(response_bytes as u64));
        info!(
            target: "waypost::call",
            event = "call",
            client = self.client,
            caller = (self.caller != self.client).then(|| clip(self.caller, MAX_REASON)),
            endpoint = self.endpoint,
            upstream = self.upstream,
            tool = self.tool,
            method = self.method,
            outcome,
            duration_ms = ms(self.duration),
            overhead_ms = ms(overhead),
            request_bytes,
            response_bytes,
            error = self.error.as_deref().map(|text| clip(text, MAX_REASON)),
        );
    }
}

impl UpstreamConnected<'_> {
    /// Logs and counts.
    pub fn emit(&self, metrics: &Metrics) {
        let labels = [self.upstream];
        metrics.up.with(&labels, |cell| cell.set(1));
        metrics.idle.with(&labels, |cell| cell.set(0));
        metrics.connects.with(&labels, IntCounter::inc);
        if self.is_restart {
            metrics.restarts.with(&labels, IntCounter::inc);
        }
        metrics.tools.with(&labels, |cell| cell.set(i64::try_from(self.tools).unwrap_or(i64::MAX)));
        info!(
            target: "waypost::upstream",
            event = "upstream_connected",
            upstream = self.upstream,
            transport = self.transport,
            version = self.version,
            tools = self.tools,
            took_ms = ms(self.took),
            restart = self.is_restart,
        );
    }
}

impl UpstreamFailed<'_> {
    /// Logs and counts.
    pub fn emit(&self, metrics: &Metrics) {
        metrics.up.with(&[self.upstream], |cell| cell.set(0));
        metrics.idle.with(&[self.upstream], |cell| cell.set(0));
        metrics.connect_failures.with(&[self.upstream], IntCounter::inc);
        metrics.set_failures(self.upstream, self.failures);
        warn!(
            target: "waypost::upstream",
            event = "upstream_failed",
            upstream = self.upstream,
            reason = clip(self.reason, MAX_REASON),
            retry_in_ms = ms(self.retry_in),
            failures = self.failures,
        );
    }
}

impl UpstreamListed<'_> {
    /// Logs and counts.
    pub fn emit(&self, metrics: &Metrics) {
        let tools = i64::try_from(self.tools).unwrap_or(i64::MAX);
        metrics.tools.with(&[self.upstream], |cell| cell.set(tools));
        debug!(
            target: "waypost::upstream",
            event = "upstream_listed",
            upstream = self.upstream,
            tools = self.tools,
        );
    }
}

impl UpstreamUnlisted<'_> {
    /// Logs.
    pub fn emit(&self, _metrics: &Metrics) {
        warn!(
            target: "waypost::upstream",
            event = "upstream_unlisted",
            upstream = self.upstream,
            reason = clip(self.reason, MAX_REASON),
            retry_in_ms = ms(self.retry_in),
        );
    }
}

impl UpstreamLost<'_> {
    /// Logs and counts.
    pub fn emit(&self, metrics: &Metrics) {
        metrics.up.with(&[self.upstream], |cell| cell.set(0));
        warn!(
            target: "waypost::upstream",
            event = "upstream_lost",
            upstream = self.upstream,
            reason = clip(self.reason, MAX_REASON),
        );
    }
}

impl UpstreamNoise<'_> {
    /// Counts, and logs at most once a minute per upstream.
    pub fn emit(&self, metrics: &Metrics) {
        metrics.noise.with(&[self.upstream], IntCounter::inc);
        if let Some(suppressed) = metrics.noise_lines.admit(self.upstream, Instant::now()) {
            warn!(
                target: "waypost::upstream",
                event = "upstream_noise",
                upstream = self.upstream,
                sample = clip(self.sample, MAX_SAMPLE),
                suppressed = some(suppressed),
            );
        }
    }
}

impl EventMissed<'_> {
    /// Counts, and logs at most once a minute per upstream.
    pub fn emit(&self, metrics: &Metrics) {
        metrics.events_missed.with(&[self.upstream], IntCounter::inc);
        if let Some(suppressed) = metrics.missed_lines.admit(self.upstream, Instant::now()) {
            warn!(
                target: "waypost::call",
                event = "event_missed",
                upstream = self.upstream,
                reason = "the client does not read",
                suppressed = some(suppressed),
            );
        }
    }
}

/// How many lines were kept back, if any were.
fn some(suppressed: u64) -> Option<u64> {
    (suppressed > 0).then_some(suppressed)
}

impl UpstreamStderr<'_> {
    /// Logs, at most a thousand lines a minute per upstream.
    pub fn emit(&self, metrics: &Metrics) {
        if let Some(suppressed) = metrics.stderr_lines.admit(self.upstream, Instant::now()) {
            info!(
                target: "waypost::stderr",
                event = "upstream_stderr",
                upstream = self.upstream,
                line = clip(self.line, MAX_STDERR),
                suppressed = some(suppressed),
            );
        }
    }
}

impl EntrySkipped<'_> {
    /// Counts, and logs at most twenty a minute per upstream.
    pub fn emit(&self, metrics: &Metrics) {
        metrics.entries_skipped.with(&[self.upstream], IntCounter::inc);
        if let Some(suppressed) = metrics.entry_lines.admit(self.upstream, Instant::now()) {
            warn!(
                target: "waypost::upstream",
                event = "entry_skipped",
                upstream = self.upstream,
                entry = clip(self.entry, MAX_SAMPLE),
                reason = clip(self.reason, MAX_REASON),
                suppressed = some(suppressed),
            );
        }
    }
}

impl ClientRefused<'_> {
    /// Counts, and logs at most twenty a minute per status.
    pub fn emit(&self, metrics: &Metrics) {
        let status = self.status.to_string();
        metrics.refused.with(&[&status], IntCounter::inc);
        if let Some(suppressed) = metrics.refusal_lines.admit(&status, Instant::now()) {
            info!(
                target: "waypost::client",
                event = "client_refused",
                status = self.status,
                reason = clip(self.reason, MAX_REASON),
                suppressed = some(suppressed),
            );
        }
    }
}

impl SessionOpened<'_> {
    /// Logs and counts.
    pub fn emit(&self, metrics: &Metrics) {
        metrics.sessions.with(&[], IntGauge::inc);
        metrics.sessions_opened.with(&[], IntCounter::inc);
        debug!(
            target: "waypost::client",
            event = "session_opened",
            client = self.client,
            version = self.version,
        );
    }
}

impl SessionClosed<'_> {
    /// Logs and counts. Only for a session whose opening was emitted to the same metrics.
    pub fn emit(&self, metrics: &Metrics) {
        metrics.sessions.with(&[], IntGauge::dec);
        debug!(target: "waypost::client", event = "session_closed", reason = clip(self.reason, MAX_REASON));
    }
}

impl LimitReached<'_> {
    /// Logs at `debug`, and counts.
    pub fn emit(&self, metrics: &Metrics) {
        metrics.rate_limited.with(&[self.client, self.scope.as_str()], IntCounter::inc);
        debug!(
            target: "waypost::client",
            event = "limit_reached",
            client = self.client,
            scope = self.scope.as_str(),
            upstream = self.upstream,
            wait_ms = ms(self.wait),
        );
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::config::{Log, LogFormat};
    use crate::telemetry::log::{Colour, subscriber};

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// What `act` logs.
    fn logged(format: LogFormat, act: impl FnOnce()) -> String {
        let buffer = Buffer::default();
        let writer = buffer.clone();
        let log = Log { format, level: "debug".to_owned() };
        let subscriber = subscriber(&log, Colour::None, move || writer.clone()).unwrap();
        tracing::subscriber::with_default(subscriber, act);
        let bytes = buffer.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    fn call(outcome: CallOutcome) -> CallFinished<'static> {
        CallFinished {
            client: "alice",
            caller: "alice",
            endpoint: "/mcp",
            upstream: Some("time"),
            tool: Some("time__now"),
            method: "tools/call",
            outcome,
            duration: Duration::from_micros(12_500),
            upstream_time: Duration::from_micros(12_000),
            bytes: (100, 200),
            error: None,
        }
    }

    #[test]
    fn met_01_every_outcome_counts_under_its_own_label() {
        let metrics = Metrics::for_test();
        for outcome in CallOutcome::ALL {
            call(outcome).emit(&metrics);
        }
        let text = metrics.render();
        for outcome in CallOutcome::ALL {
            let line = format!(
                "waypost_calls_total{{client=\"alice\",upstream=\"time\",tool=\"time__now\",method=\"tools/call\",outcome=\"{}\"}} 1",
                outcome.as_str()
            );
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
        for line in [
            "waypost_call_duration_seconds_count{upstream=\"time\",method=\"tools/call\"} 10",
            "waypost_gateway_overhead_seconds_count 10",
            "waypost_gateway_overhead_seconds_bucket{le=\"0.0005\"} 10",
            "waypost_gateway_overhead_seconds_bucket{le=\"0.00025\"} 0",
            "waypost_call_request_bytes_total{upstream=\"time\"} 1000",
            "waypost_call_response_bytes_total{upstream=\"time\"} 2000",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
    }

    #[test]
    fn met_03_up_and_down_are_counted() {
        let metrics = Metrics::for_test();
        let connected = |is_restart| UpstreamConnected {
            upstream: "u",
            version: "2025-11-25",
            transport: "stdio",
            tools: 7,
            took: Duration::from_millis(5),
            is_restart,
        };
        UpstreamFailed { upstream: "u", reason: "exit 1", retry_in: Duration::from_secs(1), failures: 1 }
            .emit(&metrics);
        assert!(metrics.render().contains("waypost_upstream_up{upstream=\"u\"} 0"));
        connected(false).emit(&metrics);
        assert!(metrics.render().contains("waypost_upstream_up{upstream=\"u\"} 1"));
        UpstreamLost { upstream: "u", reason: "end of file" }.emit(&metrics);
        assert!(metrics.render().contains("waypost_upstream_up{upstream=\"u\"} 0"));
        connected(true).emit(&metrics);
        let text = metrics.render();
        for line in [
            "waypost_upstream_up{upstream=\"u\"} 1",
            "waypost_upstream_tools{upstream=\"u\"} 7",
            "waypost_upstream_connects_total{upstream=\"u\"} 2",
            "waypost_upstream_restarts_total{upstream=\"u\"} 1",
            "waypost_upstream_connect_failures_total{upstream=\"u\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
    }

    #[test]
    fn sessions_refusals_and_limits_are_counted() {
        let metrics = Metrics::for_test();
        SessionOpened { client: "a", version: "2025-11-25" }.emit(&metrics);
        SessionOpened { client: "a", version: "2025-11-25" }.emit(&metrics);
        SessionClosed { reason: "deleted" }.emit(&metrics);
        ClientRefused { status: 401, reason: "no token" }.emit(&metrics);
        let wait = Duration::from_secs(2);
        LimitReached { client: "a", scope: LimitScope::Edge, upstream: None, wait }.emit(&metrics);
        let text = metrics.render();
        for line in [
            "waypost_sessions 1",
            "waypost_sessions_opened_total 2",
            "waypost_requests_refused_total{status=\"401\"} 1",
            "waypost_rate_limited_total{client=\"a\",scope=\"edge\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
    }

    #[test]
    fn a_call_is_one_flat_json_line() {
        let metrics = Metrics::for_test();
        let text = logged(LogFormat::Json, || call(CallOutcome::Ok).emit(&metrics));
        assert_eq!(text.lines().count(), 1, "{text}");
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["event"], "call");
        assert_eq!(line["level"], "info");
        assert_eq!(line["target"], "waypost::call");
        assert_eq!(line["client"], "alice");
        assert_eq!(line["upstream"], "time");
        assert_eq!(line["tool"], "time__now");
        assert_eq!(line["outcome"], "ok");
        assert_eq!(line["duration_ms"], 12.5);
        assert_eq!(line["overhead_ms"], 0.5);
        assert_eq!(line["response_bytes"], 200);
        assert!(line.get("error").is_none(), "what is absent is not written");
        assert!(line["ts"].as_str().unwrap().ends_with('Z'));
    }

    #[test]
    fn a_call_is_one_line_for_people() {
        let metrics = Metrics::for_test();
        let text = logged(LogFormat::Human, || call(CallOutcome::Ok).emit(&metrics));
        let expected = " INFO call client=alice endpoint=/mcp upstream=time tool=time__now method=tools/call outcome=ok \
                        duration_ms=12.5 overhead_ms=0.5 request_bytes=100 response_bytes=200\n";
        assert!(text.ends_with(expected), "{text}");
        let plain =
            logged(LogFormat::Human, || tracing::info!(target: "waypost::app", port = 1, "ready: {}", 2));
        assert!(plain.ends_with(" INFO waypost::app: ready: 2 port=1\n"), "{plain}");
    }

    #[test]
    fn foreign_text_cannot_forge_a_line() {
        let metrics = Metrics::for_test();
        let line = "x\n2026-01-01T00:00:00Z INFO call client=admin\r\x1b[31m\u{2028}\u{202e}";
        let act = || UpstreamStderr { upstream: "u", line }.emit(&metrics);
        for format in [LogFormat::Human, LogFormat::Json] {
            let text = logged(format, act);
            assert_eq!(text.lines().count(), 1, "{text}");
            let body = text.trim_end_matches('\n');
            assert!(!body.chars().any(|c| c.is_control() || c == '\u{2028}' || c == '\u{202e}'), "{text:?}");
        }
        let read: serde_json::Value = serde_json::from_str(&logged(LogFormat::Json, act)).unwrap();
        assert_eq!(read["line"], line);
    }

    #[test]
    fn events_that_a_client_missed_are_counted_always() {
        let metrics = Metrics::for_test();
        for _ in 0..3 {
            EventMissed { upstream: "u" }.emit(&metrics);
        }
        assert!(metrics.render().contains("waypost_events_missed_total{upstream=\"u\"} 3"));
    }

    #[test]
    fn std_04_noise_is_logged_once_a_minute_clipped_and_counted_always() {
        let metrics = Metrics::for_test();
        let sample = "z".repeat(100_000);
        let text = logged(LogFormat::Json, || {
            for _ in 0..5 {
                UpstreamNoise { upstream: "u", sample: &sample }.emit(&metrics);
            }
            UpstreamNoise { upstream: "other", sample: "hello" }.emit(&metrics);
        });
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.len() < 1_000, "{}", text.len());
        assert!(metrics.render().contains("waypost_upstream_noise_total{upstream=\"u\"} 5"));
    }

    #[test]
    fn severities_are_those_of_an_operator() {
        let metrics = Metrics::for_test();
        let level = |act: &dyn Fn()| {
            let line: serde_json::Value = serde_json::from_str(&logged(LogFormat::Json, act)).unwrap();
            line["level"].as_str().unwrap().to_owned()
        };
        let reason = "r";
        let retry_in = Duration::ZERO;
        assert_eq!(level(&|| call(CallOutcome::Unavailable).emit(&metrics)), "info");
        assert_eq!(
            level(&|| UpstreamFailed { upstream: "u", reason, retry_in, failures: 1 }.emit(&metrics)),
            "warn"
        );
        assert_eq!(level(&|| UpstreamLost { upstream: "u", reason }.emit(&metrics)), "warn");
        assert_eq!(level(&|| UpstreamStderr { upstream: "u", line: "l" }.emit(&metrics)), "info");
        assert_eq!(level(&|| EntrySkipped { upstream: "u", entry: "e", reason }.emit(&metrics)), "warn");
        assert_eq!(level(&|| ClientRefused { status: 403, reason }.emit(&metrics)), "info");
        assert_eq!(level(&|| SessionClosed { reason }.emit(&metrics)), "debug");
    }
}
