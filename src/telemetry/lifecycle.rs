//! The events of the gateway's own life: start, end, and what its configuration turns out to mean.

use std::net::SocketAddr;
use std::time::Duration;

use tracing::{info, warn};

use super::events::ms;

/// The endpoint is up.
#[derive(Debug)]
pub struct Listening {
    /// Where MCP is served.
    pub mcp: SocketAddr,
    /// Where health, metrics and status are served.
    pub admin: Option<SocketAddr>,
    /// How many upstreams are being connected.
    pub upstreams: usize,
}

/// The gateway serves the client that launched it.
#[derive(Debug)]
pub struct Launched<'a> {
    /// The name of the client.
    pub client: &'a str,
    /// Where health, metrics and status are served.
    pub admin: Option<SocketAddr>,
    /// How many upstreams are being connected.
    pub upstreams: usize,
}

/// An address that is not needed could not be listened on.
#[derive(Debug)]
pub struct ListenFailed<'a> {
    /// Its key in the configuration.
    pub key: &'static str,
    /// The address.
    pub address: SocketAddr,
    /// Why.
    pub reason: &'a str,
}

/// A signal, or the end of its input, asks the gateway to end.
#[derive(Debug)]
pub struct Stopping {
    /// The signal, or what else it was.
    pub signal: &'static str,
    /// How long calls in flight may take.
    pub drain: Duration,
}

/// A signal that the gateway does not act upon.
#[derive(Debug)]
pub struct SignalIgnored {
    /// The signal.
    pub signal: &'static str,
}

/// The service manager that started the gateway could not be told where it is.
#[derive(Debug)]
pub struct ServiceUntold<'a> {
    /// Why.
    pub reason: &'a str,
}

/// Lines of the log found no room, as nobody took those before them.
#[derive(Debug)]
pub(super) struct LogLinesDropped {
    /// How many.
    pub(super) lines: u64,
}

/// The gateway has ended.
#[derive(Debug)]
pub struct Stopped {
    /// Why it did not wait any longer.
    pub reason: &'static str,
}

/// A pattern of the configuration matches no tool, now that the tools are known.
#[derive(Debug)]
pub struct RuleUnmatched<'a> {
    /// Where it stands, as a path of keys.
    pub scope: &'a str,
    /// The pattern.
    pub pattern: &'a str,
}

impl Listening {
    /// Logs.
    pub fn emit(&self) {
        info!(
            target: "waypost",
            event = "listening",
            mcp = format!("http://{}/mcp", self.mcp),
            admin = self.admin.map(|address| format!("http://{address}")),
            upstreams = self.upstreams,
            version = env!("CARGO_PKG_VERSION"),
        );
    }
}

impl Launched<'_> {
    /// Logs.
    pub fn emit(&self) {
        info!(
            target: "waypost",
            event = "launched",
            client = self.client,
            admin = self.admin.map(|address| format!("http://{address}")),
            upstreams = self.upstreams,
            version = env!("CARGO_PKG_VERSION"),
        );
    }
}

impl ListenFailed<'_> {
    /// Logs.
    pub fn emit(&self) {
        warn!(
            target: "waypost",
            event = "listen_failed",
            key = self.key,
            address = %self.address,
            reason = self.reason,
        );
    }
}

impl Stopping {
    /// Logs.
    pub fn emit(&self) {
        info!(target: "waypost", event = "stopping", signal = self.signal, drain_ms = ms(self.drain));
    }
}

impl SignalIgnored {
    /// Logs.
    pub fn emit(&self) {
        warn!(
            target: "waypost",
            event = "signal_ignored",
            signal = self.signal,
            reason = "the configuration is read at start; restart to change it",
        );
    }
}

impl ServiceUntold<'_> {
    /// Logs.
    pub fn emit(&self) {
        warn!(target: "waypost", event = "service_untold", reason = self.reason);
    }
}

impl LogLinesDropped {
    /// Logs.
    pub(super) fn emit(&self) {
        warn!(
            target: "waypost",
            event = "log_lines_dropped",
            lines = self.lines,
            reason = "nobody read the log for too long, so these lines are missing here",
        );
    }
}

impl Stopped {
    /// Logs.
    pub fn emit(&self) {
        info!(target: "waypost", event = "stopped", reason = self.reason);
    }
}

impl RuleUnmatched<'_> {
    /// Logs.
    pub fn emit(&self) {
        warn!(
            target: "waypost::config",
            event = "rule_unmatched",
            scope = self.scope,
            pattern = self.pattern,
            reason = "matches no tool",
        );
    }
}
