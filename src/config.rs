//! The configuration, checked: what the rest of the program sees of `gateway.yaml`.
//!
//! Must not know: sockets, tasks. It reads the files that the configuration names (secrets), nothing else.

mod audit;
mod auth;
#[cfg(test)]
mod cases;
mod compile;
mod effective;
mod endpoint;
mod expand;
#[cfg(test)]
pub(crate) mod for_test;
mod identity;
pub mod import;
mod load;
mod mask;
mod narrow;
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
mod succession;
mod tree;
mod units;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use secrecy::SecretString;
use url::Url;

use crate::mcp::{Era, Hints};

pub use audit::{Arguments, Audit};
pub use auth::{JwtAlgorithm, JwtIssuer};
pub use effective::Effective;
pub use endpoint::EndpointConfig;
pub use identity::{Icon, ServerInfo};
pub use load::{Loaded, load, parse, process_env};
pub use narrow::Narrow;
pub use pattern::{Sight, Subject, Verdict};
pub use problem::{Place, Problem, Problems, Severity};
pub use process::{Process, ProcessBounds, Start};
pub use reference::{page as reference_page, schema};
pub use resilience::{Breaker, Health, Patience, Resilience, Retry};
pub use rules::{Layer, RoleConfig, Rules};
pub use succession::TooMany;

/// A checked configuration. Immutable; a changed file makes another one.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where MCP is served.
    pub listen: SocketAddr,
    /// Certificates of that listener; none is plain HTTP.
    pub listen_tls: Option<ServerTls>,
    /// Where health, metrics and status are served.
    pub admin: Option<SocketAddr>,
    /// Certificates of that listener; none is plain HTTP.
    pub admin_tls: Option<ServerTls>,
    /// Whether the file says that, or where.
    pub is_admin_named: bool,
    /// The address of the built-in HTTP demo server, if it is wanted.
    pub demo: Option<SocketAddr>,
    /// The upstreams by their places.
    pub upstreams: Vec<Arc<UpstreamConfig>>,
    /// The places of those upstreams that there are, in the order of the file.
    pub order: Vec<usize>,
    /// The endpoints in the order of the file; one at least.
    pub endpoints: Vec<Arc<EndpointConfig>>,
    /// The roles in the order of the file, those that no client has too.
    pub roles: Vec<Arc<RoleConfig>>,
    /// The clients in the order of the file; the anonymous client last, if there is one.
    pub clients: Vec<ClientConfig>,
    /// Issuers of JWTs whose tokens are taken.
    pub jwt: Vec<Arc<JwtIssuer>>,
    /// Where clients reach the endpoint, as the file says it.
    pub public_url: Option<Url>,
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
    /// The audit log, if there is to be one.
    pub audit: Option<Audit>,
    /// How often it is looked whether the file, or one that it names, is another one; zero is never. Default 1 s.
    pub reload_interval: Duration,
    /// The name of the file, as it was given.
    pub file: Arc<str>,
    /// The files that it names and whose text is part of what it says: secrets.
    pub files: Vec<PathBuf>,
    /// Identifies what the file and its variables said; 16 hex digits.
    pub hash: String,
}

/// One upstream.
#[derive(Clone, Debug)]
pub struct UpstreamConfig {
    /// Its key under `upstreams`; empty for one that is no more.
    pub name: Arc<str>,
    /// Its place in [`Config::upstreams`].
    pub index: usize,
    /// How it is reached.
    pub transport: Transport,
    /// Its era, where it is not to be found out.
    pub era: Option<Era>,
    /// What goes before its names, separator included; empty for none.
    pub prefix: String,
    /// What of it is offered; native names.
    pub rules: Rules,
    /// How long a call may go without a word of its progress. Default 60 s.
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
    /// Access tokens of our own, if it wants them.
    pub oauth: Option<Box<ClientCredentials>>,
    /// What is asked of the way to it.
    pub way: Way,
}

/// How we get access tokens of our own for a server.
#[derive(Clone, Debug)]
pub struct ClientCredentials {
    /// Where.
    pub token_url: Url,
    /// Who we are there.
    pub client_id: String,
    /// And how that is believed.
    pub client_secret: SecretString,
    /// What is asked for; empty asks for nothing.
    pub scope: String,
    /// For which resource. RFC 8707.
    pub resource: Option<String>,
    /// For which audience, where that is asked for.
    pub audience: Option<String>,
    /// What is asked of the way there.
    pub way: Way,
}

/// What is asked of the way to an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// Authorities that its certificate is believed by, in the place of the system's; PEM.
    pub ca_file: Option<PathBuf>,
    /// What it is shown: a chain of certificates and their key; PEM.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Where it may be.
    pub reach: Reach,
}

/// Where a server may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// Anywhere.
    #[default]
    Anywhere,
    /// At addresses of the public internet only.
    Public,
}

/// Certificates of a listener, each a file in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerTls {
    /// Our chain, the certificate for ourselves first.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// Authorities that certificates of clients are believed by; without it, nobody is asked for one.
    pub client_ca: Option<PathBuf>,
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
#[derive(Clone, Debug, Default)]
pub struct ClientConfig {
    /// Its key under `clients`; `anonymous` for callers without credentials; empty for one that is no more.
    pub name: Arc<str>,
    /// Its tokens; empty for the anonymous client, and for those that are known otherwise.
    pub tokens: Vec<Token>,
    /// Names in certificates that make their bearers this client, each with its kind: `DNS:…`, `URI:…`, `email:…`,
    /// `CN:…`.
    pub certificates: Vec<String>,
    /// Whether this is the client that callers without credentials are.
    pub is_anonymous: bool,
    /// Whether many callers are this client, each with a name and roles of its own.
    pub is_group: bool,
    /// Its roles, whose rules hold besides its own.
    pub roles: Vec<Arc<RoleConfig>>,
    /// What it sees and may use; exposed names.
    pub rules: Rules,
    /// Limits on its calls.
    pub limits: CallLimits,
}

/// A bearer token of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// Its SHA-256 digest.
    pub digest: [u8; 32],
    /// From when on it is good no more.
    pub expires: Option<SystemTime>,
}

/// Which names are let through: all without `allow`, and never what `deny` matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Patterns of which one must match; `None` is everything, empty is nothing.
    pub allow: Option<Vec<Pattern>>,
    /// Patterns of which none may match.
    pub deny: Vec<Pattern>,
    /// What the arguments of tools have to fit; of tools only.
    pub narrow: Vec<Narrow>,
}

/// A pattern over names: `*` is any run of characters, `?` is one, all else is itself; and over what tools say of
/// themselves. Equal if both are.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// As it is shown.
    text: Arc<str>,
    /// What the name must be like.
    name: Arc<str>,
    /// What must be said.
    hints: Hints,
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
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Calls that go on though their connection is lost. Default 1,000.
    pub detached_calls: usize,
    /// Events of streams that are kept to be sent again. Default 100,000.
    pub kept_events: usize,
    /// The same of one session. Default 1,000.
    pub kept_events_per_session: usize,
    /// Bytes of those events. Default 64 MiB.
    pub kept_bytes: usize,
    /// The same of one session. Default 8 MiB.
    pub kept_bytes_per_session: usize,
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
    /// How long a client may take to come back to a stream. Default 5 min.
    pub resume_window: Duration,
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
