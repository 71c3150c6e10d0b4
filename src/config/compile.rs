//! Tree → checked configuration. Nothing stops at the first problem.
//!
//! Must not know: how the text is parsed, how problems are shown.

mod access;
mod audit;
mod auth;
mod client;
mod command;
mod endpoint;
mod identity;
mod listen;
mod narrow;
mod oauth;
mod process;
mod resilience;
mod role;
mod secret;
mod transport;
mod upstream;
mod way;

pub(crate) use transport::is_own_header;

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::sync::Arc;

use secrecy::SecretString;

use super::effective::{self, Block, Origin};
use super::problem::SECRET;
use super::reader::{Reader, Text};
use super::reference as keys;
use super::section::{Section, quoted};
use super::source::Finding;
use super::tree::{Name, Node, Span};
use super::{Charset, Config, Limits, Log, LogFormat, Naming, Sessions};

/// Reads the whole file. Its name and the hash are the caller's to fill in.
pub(crate) fn compile<'a>(reader: &'a Reader<'a>, entries: &'a [(Name, Node)]) -> (Config, Block) {
    let mut top = Section::open(reader, &keys::TOP, entries, Span { line: 1, column: 1, ..Span::default() });
    let (listen, listen_tls) = listen::listen(&mut top);
    let (admin, admin_tls) = listen::admin(&mut top).map_or((None, None), |(admin, tls)| (Some(admin), tls));
    let is_admin_named = top.has(keys::ADMIN.name);
    let demo = listen::demo(&mut top);
    listen::check_distinct(&top, listen, admin, demo);
    let naming = naming(&mut top);
    let upstreams = upstream::upstreams(&mut top, &naming);
    let prefixes = upstreams.prefixes(&naming);
    let endpoints = endpoint::endpoints(&mut top, &upstreams, &naming);
    let mut roles = role::roles(&mut top, &prefixes, &naming);
    let mut auth = auth::auth(&mut top, listen);
    if auth.names_roles() {
        roles.use_all();
    }
    let clients = client::clients(&mut top, &mut auth, &mut roles, (&prefixes, &naming));
    let roles = roles.finish(&top);
    let config = Config {
        listen,
        listen_tls,
        admin,
        admin_tls,
        is_admin_named,
        demo,
        order: (0..upstreams.enabled.len()).collect(),
        upstreams: upstreams.enabled,
        endpoints,
        roles,
        clients,
        jwt: auth.jwt.into_iter().map(Arc::new).collect(),
        public_url: auth.public_url,
        limits: limits(&mut top),
        naming,
        sessions: sessions(&mut top),
        page_size: top.count(&keys::PAGE_SIZE),
        allowed_hosts: listen::allowed_hosts(&mut top),
        allowed_origins: listen::allowed_origins(&mut top),
        reveal_denied: top
            .within(&keys::POLICY_KEY, |policy| policy.flag(&keys::REVEAL_DENIED))
            .unwrap_or_default(),
        instructions: instructions(&mut top, &keys::INSTRUCTIONS),
        server_info: identity::server_info(&mut top),
        drain_timeout: top.bounded(&keys::DRAIN_TIMEOUT).unwrap_or_default(),
        log: log(&mut top),
        audit: audit::audit(&mut top),
        reload_interval: top.bounded(&keys::RELOAD_INTERVAL).unwrap_or_default(),
        file: "".into(),
        files: Vec::new(),
        hash: String::new(),
    };
    (config, top.finish())
}

fn limits(top: &mut Section<'_>) -> Limits {
    top.within(&keys::LIMITS_KEY, |limits| Limits {
        body: bytes(limits, &keys::BODY),
        message: bytes(limits, &keys::MESSAGE),
        memory: bytes(limits, &keys::MEMORY),
        peer_timeout: limits.bounded(&keys::PEER_TIMEOUT).unwrap_or_default(),
        connections: limits.count(&keys::CONNECTIONS).unwrap_or_default(),
        sessions: limits.count(&keys::SESSIONS_MAX).unwrap_or_default(),
        streams: limits.count(&keys::STREAMS).unwrap_or_default(),
        pipe_calls: limits.count(&keys::PIPE_CALLS).unwrap_or_default(),
        detached_calls: limits.count(&keys::DETACHED_CALLS).unwrap_or_default(),
        kept_events: limits.count(&keys::KEPT_EVENTS).unwrap_or_default(),
        kept_events_per_session: limits.count(&keys::KEPT_EVENTS_PER_SESSION).unwrap_or_default(),
        kept_bytes: bytes(limits, &keys::KEPT_BYTES),
        kept_bytes_per_session: bytes(limits, &keys::KEPT_BYTES_PER_SESSION),
        depth: 128,
        header_timeout: limits.bounded(&keys::HEADER_TIMEOUT).unwrap_or_default(),
        body_timeout: limits.bounded(&keys::BODY_TIMEOUT).unwrap_or_default(),
        list_items: limits.count(&keys::LIST_ITEMS).unwrap_or_default(),
        list_pages: limits.count(&keys::LIST_PAGES).unwrap_or_default(),
        answer_timeout: limits.bounded(&keys::ANSWER_TIMEOUT).unwrap_or_default(),
        parked_calls: limits.count(&keys::PARKED_CALLS).unwrap_or_default(),
        parked_calls_per_client: limits.count(&keys::PARKED_CALLS_PER_CLIENT).unwrap_or_default(),
        subscriptions: limits.count(&keys::SUBSCRIPTIONS).unwrap_or_default(),
        subscriptions_per_session: limits.count(&keys::SUBSCRIPTIONS_PER_SESSION).unwrap_or_default(),
        listed_tasks: limits.count(&keys::LISTED_TASKS).unwrap_or_default(),
        edge: edge(limits),
    })
}

/// The limit at the edge; without a rate there is none.
fn edge(limits: &mut Section<'_>) -> Option<super::CallLimits> {
    if !limits.has(keys::EDGE.name) {
        limits.out.put_unset(keys::EDGE.name);
        return None;
    }
    let edge = limits.within(&keys::EDGE, |edge| {
        let read = access::rate_limits(edge);
        if !edge.has(keys::RATE.name) && !edge.has(keys::BURST.name) {
            edge.report(
                Finding::error("`edge` needs a `rate`").at(edge.at).help("write `edge: {rate: 600/min}`"),
            );
        }
        read
    });
    edge.rate.is_some().then_some(edge)
}

fn bytes(limits: &mut Section<'_>, key: &'static keys::Key<keys::Bounded<super::units::Bytes>>) -> usize {
    limits.bounded(key).map_or(0, |bytes| usize::try_from(bytes.0).unwrap_or(usize::MAX))
}

fn naming(top: &mut Section<'_>) -> Naming {
    top.within(&keys::NAMING_KEY, |naming| {
        let charset = match naming.choice(&keys::CHARSET) {
            "any" => Charset::Any,
            _ => Charset::Strict,
        };
        let separator = match naming.find(keys::SEPARATOR.name) {
            Some(_) => naming.text(&keys::SEPARATOR).map(|text| check_separator(naming, text, charset)),
            None => {
                naming.out.put(keys::SEPARATOR.name, DEFAULT_SEPARATOR.to_owned(), Origin::Default);
                None
            }
        };
        Naming {
            separator: separator.unwrap_or_else(|| DEFAULT_SEPARATOR.to_owned()),
            max_length: naming.count(&keys::MAX_LENGTH).unwrap_or_default(),
            charset,
        }
    })
}

const DEFAULT_SEPARATOR: &str = "__";

fn check_separator(naming: &Section<'_>, text: Text, charset: Charset) -> String {
    let is_fit = |c: char| {
        c.is_ascii_alphanumeric() || "_-".contains(c) || (charset == Charset::Any && "./".contains(c))
    };
    if !(1..=8).contains(&text.value.len()) || !text.value.chars().all(is_fit) {
        let finding = Finding::error(format!("`{}` cannot be a separator", text.written)).at(text.span);
        naming
            .report(finding.help("1 to 8 letters, digits, `_` or `-`; with `charset: any` also `.` and `/`"));
        return DEFAULT_SEPARATOR.to_owned();
    }
    text.value
}

fn sessions(top: &mut Section<'_>) -> Sessions {
    top.within(&keys::SESSIONS_KEY, |sessions| Sessions {
        idle_timeout: sessions.bounded(&keys::IDLE_TIMEOUT).unwrap_or_default(),
        keep_alive: sessions.bounded(&keys::KEEP_ALIVE).unwrap_or_default(),
        resume_window: sessions.bounded(&keys::RESUME_WINDOW).unwrap_or_default(),
        key: session_key(sessions),
    })
}

fn session_key(sessions: &mut Section<'_>) -> Option<SecretString> {
    let name = keys::SESSION_KEY.name;
    let Some(node) = sessions.find(name) else {
        sessions.out.put_unset(name);
        return None;
    };
    sessions.out.put(name, SECRET.to_owned(), Origin::Line(node.span.line));
    let secret = secret::read_secret(sessions.reader, node, &quoted(name))?;
    if secret.chars().count() < MIN_SESSION_KEY {
        let finding = Finding::error(format!("`{name}` is too short: {MIN_SESSION_KEY} characters or more"));
        sessions.report(finding.at(node.span).help("make one with `openssl rand -base64 32`"));
        return None;
    }
    Some(secret.into())
}

const MIN_SESSION_KEY: usize = 16;

fn instructions(top: &mut Section<'_>, key: &'static keys::Key<keys::Free>) -> Option<String> {
    let text = top.text(key)?;
    if text.value.len() > MAX_INSTRUCTIONS {
        top.report(Finding::error("`instructions` is longer than 64 KiB").at(text.span));
    }
    (!text.value.trim().is_empty()).then_some(text.value)
}

const MAX_INSTRUCTIONS: usize = 64 << 10;

fn log(top: &mut Section<'_>) -> Log {
    top.within(&keys::LOG_KEY, |log| {
        let format = match log.choice(&keys::LOG_FORMAT) {
            "human" => LogFormat::Human,
            "json" => LogFormat::Json,
            _ if std::io::stderr().is_terminal() => LogFormat::Human,
            _ => LogFormat::Json,
        };
        Log { format, level: log_level(log) }
    })
}

fn log_level(log: &mut Section<'_>) -> String {
    let default = "info".to_owned();
    if log.find(keys::LOG_LEVEL.name).is_none() {
        log.out.put(keys::LOG_LEVEL.name, effective::scalar(&default), Origin::Default);
        return default;
    }
    let Some(text) = log.text(&keys::LOG_LEVEL) else {
        return default;
    };
    if tracing_subscriber::EnvFilter::builder().parse(&text.value).is_err() || !names_levels(&text.value) {
        let finding = Finding::error(format!("`{}` is no log level or filter", text.written)).at(text.span);
        log.report(
            finding.help(
                "`error`, `warn`, `info`, `debug`, `trace`, `off`, or a filter like `info,waypost=debug`",
            ),
        );
        return default;
    }
    text.value
}

/// Whether each bare word of a filter is a level. The parser takes any other for the name of a module, and so a
/// misspelled level for a filter that lets nothing through.
fn names_levels(filter: &str) -> bool {
    filter.split(',').map(str::trim).all(|directive| {
        let is_bare = !directive.contains(['=', '[', ':']);
        !is_bare || directive.parse::<tracing_subscriber::filter::LevelFilter>().is_ok()
    })
}

/// The socket address of a configuration that names none that can be used.
pub(crate) const DEFAULT_LISTEN: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8080);
