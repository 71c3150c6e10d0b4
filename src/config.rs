//! The configuration, checked: what the rest of the program sees of `gateway.yaml`.
//!
//! Must not know: sockets, tasks. It reads the files that the configuration names (secrets), nothing else.

#[cfg(test)]
mod cases;
mod compile;
mod effective;
mod expand;
#[cfg(test)]
pub(crate) mod for_test;
mod identity;
mod load;
mod mask;
mod nearest;
#[cfg(test)]
mod pages;
mod pattern;
mod problem;
mod process;
mod reader;
mod reference;
mod resilience;
mod rules;
mod section;
mod source;
mod tree;
mod units;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use url::Url;

use crate::mcp::Era;

pub use effective::Effective;
pub use identity::{Icon, ServerInfo};
pub use load::{Loaded, load, parse, process_env};
pub use pattern::Verdict;
pub use problem::{Place, Problem, Problems, Severity};
pub use process::{Process, ProcessBounds, Start};
pub use reference::page as reference_page;
pub use resilience::{Breaker, Health, Resilience, Retry};
pub use rules::{Layer, RoleConfig, Rules};

/// A checked configuration. Immutable; a changed file makes another one.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where MCP is served.
    pub listen: SocketAddr,
    /// Where health, metrics and status are served.
    pub admin: Option<SocketAddr>,
    /// Whether the file says that, or where.
    pub is_admin_named: bool,
    /// The address of the built-in HTTP demo server, if it is wanted.
    pub demo: Option<SocketAddr>,
    /// The upstreams in the order of the file.
    pub upstreams: Vec<Arc<UpstreamConfig>>,
    /// The roles in the order of the file, those that no client has too.
    pub roles: Vec<Arc<RoleConfig>>,
    /// The clients in the order of the file; the anonymous client last, if there is one.
    pub clients: Vec<ClientConfig>,
    /// Bounds of the gateway itself.
    pub limits: Limits,
    /// How exposed names are made.
    pub naming: Naming,
    /// Legacy sessions and streams.
    pub sessions: Sessions,
    /// Entries on one page of a list; `None` puts all on one page.
    pub page_size: Option<usize>,
    /// Values of `Host` that are served besides the listen address itself (and loopback names, where we
    /// listen on loopback). Host names with or without port; `*` is any.
    pub allowed_hosts: Vec<String>,
    /// Values of `Origin` that are served besides our own and, on loopback, loopback origins. `*` is any.
    pub allowed_origins: Vec<String>,
    /// Whether a refusal says "denied" instead of "unknown".
    pub reveal_denied: bool,
    /// Text that goes before the instructions of the upstreams.
    pub instructions: Option<String>,
    /// What clients are told of the gateway.
    pub server_info: ServerInfo,
    /// How long calls in flight may go on after a signal to stop. Default 30 s.
    pub drain_timeout: Duration,
    /// The log.
    pub log: Log,
    /// The name of the file, as it was given.
    pub file: Arc<str>,
    /// Identifies what the file and its variables said; 16 hex digits.
    pub hash: String,
}

/// One upstream.
#[derive(Clone, Debug)]
pub struct UpstreamConfig {
    /// Its key under `upstreams`.
    pub name: Arc<str>,
    /// Its place in the file.
    pub index: usize,
    /// How it is reached.
    pub transport: Transport,
    /// Its era, where it is not to be found out.
    pub era: Option<Era>,
    /// What goes before its names, separator included; empty for none.
    pub prefix: String,
    /// What of it is offered; native names.
    pub rules: Rules,
    /// Budget of one call. Default 60 s.
    pub timeout: Duration,
    /// Budget of a connection attempt, handshake included. Default 30 s.
    pub connect_timeout: Duration,
    /// Budget of reading its lists. Default 30 s.
    pub list_timeout: Duration,
    /// How long its last known lists are served after it went down. Default 30 s.
    pub grace: Duration,
    /// How often its lists are read again at the least; zero is never. Default 5 min.
    pub refresh: Duration,
    /// Who shares a connection to it.
    pub sharing: Sharing,
    /// How much it is put up with.
    pub resilience: Resilience,
    /// Limits on calls to it, all callers together.
    pub limits: CallLimits,
}

impl UpstreamConfig {
    /// How its process is kept, where it has one.
    #[must_use]
    pub fn process(&self) -> Option<&Process> {
        match &self.transport {
            Transport::Stdio(stdio) => Some(&stdio.process),
            Transport::Http(_) => None,
        }
    }

    /// After how long without a call its process is ended, if ever.
    #[must_use]
    pub fn idle_stop(&self) -> Option<Duration> {
        self.process().and_then(|process| process.idle_stop)
    }
}

/// How the connections of an upstream are shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// Who has one of its own.
    pub isolation: Isolation,
    /// Most connections of one owner each. Default 32 for children, 1,000 over HTTP.
    pub connections: usize,
    /// Calls in flight on one connection. Default and most 4,096.
    pub concurrency: usize,
    /// Calls that wait for their turn on one connection. Default 1,000.
    pub waiting: usize,
}

/// Who has a connection of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Nobody: all calls share one.
    Shared,
    /// Each client of the configuration.
    PerClient,
    /// Each session; each client for its calls without one.
    PerSession,
}

/// How an upstream is reached.
#[derive(Clone, Debug)]
pub enum Transport {
    /// A child process.
    Stdio(Stdio),
    /// An HTTP server.
    Http(Http),
}

/// A child process.
#[derive(Clone, Debug)]
pub struct Stdio {
    /// The program.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables besides the clean base.
    pub env: Vec<(String, SecretString)>,
    /// Its working directory.
    pub cwd: Option<PathBuf>,
    /// How it is kept.
    pub process: Process,
}

/// An HTTP endpoint.
#[derive(Clone, Debug)]
pub struct Http {
    /// Its address.
    pub url: Url,
    /// Headers of every request to it.
    pub headers: Vec<(http::HeaderName, SecretString)>,
    /// Which transport it has, where that is not to be found out.
    pub kind: Option<HttpKind>,
}

/// A transport over HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpKind {
    /// Streamable HTTP, from 2025-03-26 on.
    Streamable,
    /// HTTP+SSE of 2024-11-05.
    Sse,
}

/// One caller.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Its key under `clients`; `anonymous` for callers without credentials.
    pub name: Arc<str>,
    /// SHA-256 digests of its tokens; empty for the anonymous client.
    pub tokens: Vec<[u8; 32]>,
    /// Whether this is the client that callers without credentials are.
    pub is_anonymous: bool,
    /// Its roles, whose rules hold besides its own.
    pub roles: Vec<Arc<RoleConfig>>,
    /// What it sees and may use; exposed names.
    pub rules: Rules,
    /// Limits on its calls.
    pub limits: CallLimits,
}

/// Which names are let through: all without `allow`, and never what `deny` matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Patterns of which one must match; `None` is everything, empty is nothing.
    pub allow: Option<Vec<Pattern>>,
    /// Patterns of which none may match.
    pub deny: Vec<Pattern>,
}

/// A pattern over names: `*` is any run of characters, `?` is one, all else is itself. Equal if the texts are.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// As it is written.
    text: Arc<str>,
    /// The line of the file on which it stands; 0 for one that is in none.
    line: usize,
}

/// Limits on calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallLimits {
    /// Calls per period.
    pub rate: Option<Rate>,
    /// Calls that may come at once; the rate's count if absent.
    pub burst: Option<u32>,
    /// Calls in flight.
    pub concurrency: Option<u32>,
}

/// So many per period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// How many; at least one.
    pub count: u32,
    /// In which time.
    pub period: Duration,
}

/// Bounds of the gateway itself.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of a request body. Default 16 MiB.
    pub body: usize,
    /// Bytes of one message of an upstream. Default 64 MiB.
    pub message: usize,
    /// Bytes of large messages at the same time. Default 512 MiB.
    pub memory: usize,
    /// How long a client may give no sign of life on the level of TCP. Default 60 s.
    pub peer_timeout: Duration,
    /// Connections at the same time. Default 4096.
    pub connections: usize,
    /// Requests per caller at the edge, whatever they are; `None` is no limit.
    pub edge: Option<CallLimits>,
    /// Legacy sessions at the same time. Default 10,000.
    pub sessions: usize,
    /// Streams of one caller that stay open at the same time. Default 1,000.
    pub streams: usize,
    /// Requests of the client of a pipe that are under way at the same time. Default 1,000.
    pub pipe_calls: usize,
    /// How deep JSON may nest. 128; not to be raised.
    pub depth: usize,
    /// Time for the head of a request to arrive. Default 10 s.
    pub header_timeout: Duration,
    /// Time for the body of a request to arrive. Default 30 s.
    pub body_timeout: Duration,
    /// Entries of one list of one upstream. Default 10,000.
    pub list_items: usize,
    /// Pages of one list of one upstream. Default 1,000.
    pub list_pages: usize,
    /// Time for a client to answer a question of an upstream. Default 5 min.
    pub answer_timeout: Duration,
    /// Calls that wait for answers of their clients, all together. Default 1,000.
    pub parked_calls: usize,
    /// The same of one client. Default 100.
    pub parked_calls_per_client: usize,
    /// Resources that clients follow, all together. Default 10,000.
    pub subscriptions: usize,
    /// The same of one session, or of one subscription. Default 100.
    pub subscriptions_per_session: usize,
    /// Tasks of one client that its list of tasks can have. Default 1,000.
    pub listed_tasks: usize,
}

/// How exposed names are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Naming {
    /// Stands between the upstream's name and the tool's. Default `__`.
    pub separator: String,
    /// Longest exposed name, in characters. Default 64.
    pub max_length: usize,
    /// Which characters exposed names keep; others are mapped. Default `a-zA-Z0-9_-`.
    pub charset: Charset,
}

/// A set of characters of exposed names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charset {
    /// `a-zA-Z0-9_-`
    Strict,
    /// Any.
    Any,
}

/// Legacy sessions and streams.
#[derive(Clone, Debug)]
pub struct Sessions {
    /// How long an unused session lives. Default 30 min.
    pub idle_timeout: Duration,
    /// How often an open stream says that it lives. Default 15 s.
    pub keep_alive: Duration,
    /// Seals session ids; the same on every replica. Random where absent.
    pub key: Option<SecretString>,
}

/// The log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// Its form.
    pub format: LogFormat,
    /// A level (`info`) or a filter (`waypost=debug,hyper=warn`). Default `info`.
    pub level: String,
}

/// The form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Human,
    /// One JSON object a line.
    Json,
}
