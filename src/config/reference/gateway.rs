//! The keys at the top of the file.

use std::time::Duration;

use super::{
    AUTH, Bounded, CLIENTS, Choice, DEFAULTS, ENDPOINTS, Flag, Free, Key, Nested, ROLES, SERVER_INFO_KEY,
    Secret, Table, UPSTREAMS,
};
use crate::config::units::Bytes;

/// The whole file.
pub(crate) static TOP: Table = Table {
    path: "",
    about: "What may stand at the top. Only `upstreams` must.",
    keys: &[
        &LISTEN,
        &ADMIN,
        &DEMO,
        &UPSTREAMS,
        &DEFAULTS_KEY,
        &ENDPOINTS,
        &ROLES,
        &CLIENTS,
        &AUTH_KEY,
        &super::PUBLIC_URL,
        &LIMITS_KEY,
        &NAMING_KEY,
        &SESSIONS_KEY,
        &PAGE_SIZE,
        &ALLOWED_HOSTS,
        &ALLOWED_ORIGINS,
        &POLICY_KEY,
        &INSTRUCTIONS,
        &SERVER_INFO_KEY,
        &DRAIN_TIMEOUT,
        &RELOAD_INTERVAL,
        &LOG_KEY,
        &super::AUDIT_KEY,
        &SCHEMA,
    ],
    later: &["trace", "trusted_proxies", "resources", "prompts", "tools"],
    foreign: super::TOP_FOREIGN,
    aliases: &[
        ("servers", "upstreams"),
        ("mcpServers", "upstreams"),
        ("mcp_servers", "upstreams"),
        ("context_servers", "upstreams"),
        ("server", "listen"),
        ("port", "listen"),
        ("host", "listen"),
        ("bind", "listen"),
        ("address", "listen"),
        ("users", "clients"),
        ("tokens", "clients"),
        ("logging", "log"),
        ("rate_limits", "limits"),
        ("metrics", "admin"),
        ("serverInfo", "server_info"),
    ],
    example: "\
upstreams:
  time: {command: uvx, args: [mcp-server-time]}
",
};

pub(crate) static LISTEN: Key<super::Address> = Key {
    name: "listen",
    about: "Where MCP is served: an IP address and a port. `localhost` is 127.0.0.1. A port alone (`8080` or \
            `:8080`) is loopback too, never every interface. Port 0 takes a free one.",
    form: super::Address {
        text: Free {
            written: "address, or mapping with `address` and `tls`",
            default: "`127.0.0.1:8080`",
            bounds: "",
        },
        table: &super::LISTEN_TABLE,
        may_be_off: false,
    },
};

pub(crate) static ADMIN: Key<super::Address> = Key {
    name: "admin",
    about: "Where health, metrics and status are served, without authentication; `false` serves none. \
            `waypost stdio` serves them only where this key stands in the file.",
    form: super::Address {
        text: Free {
            written: "address, mapping as `listen`, or `false`",
            default: "`127.0.0.1:9090`",
            bounds: "",
        },
        table: &super::LISTEN_TABLE,
        may_be_off: true,
    },
};

pub(crate) static DEMO: Key<Nested> = Key {
    name: "demo",
    about: "The built-in HTTP demo server, for trying things out. Not started without this key.",
    form: Nested(&DEMO_TABLE),
};

/// The built-in demo server.
pub(crate) static DEMO_TABLE: Table = Table {
    path: "demo",
    about: "The built-in HTTP demo server.",
    keys: &[&DEMO_LISTEN],
    later: &[],
    foreign: &[],
    aliases: &[],
    example: "\
demo: {listen: \"127.0.0.1:8180\"}
upstreams:
  demo: {url: \"http://127.0.0.1:8180/mcp\"}
",
};

pub(crate) static DEMO_LISTEN: Key<Free> = Key {
    name: "listen",
    about: "Where it listens, as the `listen` at the top.",
    form: Free { written: "address", default: "`127.0.0.1:8180`", bounds: "" },
};

pub(crate) static DEFAULTS_KEY: Key<Nested> =
    Key { name: "defaults", about: "What all upstreams have in common.", form: Nested(&DEFAULTS) };

pub(crate) static AUTH_KEY: Key<Nested> =
    Key { name: "auth", about: "Who is let in besides the `clients` with tokens.", form: Nested(&AUTH) };

pub(crate) static LIMITS_KEY: Key<Nested> =
    Key { name: "limits", about: "Bounds of the gateway itself.", form: Nested(&LIMITS) };

/// Bounds of the gateway itself.
pub(crate) static LIMITS: Table = Table {
    path: "limits",
    about: "Bounds of the gateway itself. Limits on calls stand with the upstream or the client that they are for.",
    keys: &[
        &BODY,
        &MESSAGE,
        &super::MEMORY,
        &CONNECTIONS,
        &super::PEER_TIMEOUT,
        &SESSIONS_MAX,
        &STREAMS,
        &PIPE_CALLS,
        &DETACHED_CALLS,
        &KEPT_EVENTS,
        &KEPT_EVENTS_PER_SESSION,
        &KEPT_BYTES,
        &KEPT_BYTES_PER_SESSION,
        &HEADER_TIMEOUT,
        &BODY_TIMEOUT,
        &LIST_ITEMS,
        &LIST_PAGES,
        &ANSWER_TIMEOUT,
        &PARKED_CALLS,
        &PARKED_CALLS_PER_CLIENT,
        &SUBSCRIPTIONS,
        &SUBSCRIPTIONS_PER_SESSION,
        &LISTED_TASKS,
        &EDGE,
    ],
    later: &[],
    foreign: &[],
    aliases: &[("rate", "edge"), ("burst", "edge"), ("max_body", "body")],
    example: "\
upstreams:
  time: {command: uvx, args: [mcp-server-time]}
limits:
  body: 4MiB
  connections: 512
  edge: {rate: 600/min, burst: 100}
",
};

pub(crate) static BODY: Key<Bounded<Bytes>> = Key {
    name: "body",
    about: "Size of a request's body; a larger one gets 413.",
    form: Bounded { default: Some(Bytes(16 << 20)), min: Bytes(1 << 10), max: Bytes(1 << 30) },
};

pub(crate) static MESSAGE: Key<Bounded<Bytes>> = Key {
    name: "message",
    about: "Size of one message of an upstream; a larger one fails the call that it answers.",
    form: Bounded { default: Some(Bytes(64 << 20)), min: Bytes(1 << 10), max: Bytes(1 << 30) },
};

pub(crate) static CONNECTIONS: Key<Bounded<u64>> = Key {
    name: "connections",
    about: "Connections at the same time, all clients together.",
    form: Bounded { default: Some(4_096), min: 1, max: 1_000_000 },
};

pub(crate) static SESSIONS_MAX: Key<Bounded<u64>> = Key {
    name: "sessions",
    about: "Legacy sessions at the same time.",
    form: Bounded { default: Some(10_000), min: 1, max: 10_000_000 },
};

pub(crate) static STREAMS: Key<Bounded<u64>> = Key {
    name: "streams",
    about: "Streams of one client (of one address, without a token) that stay open at the same time to be told of \
            changes; one more gets 429.",
    form: Bounded { default: Some(1_000), min: 1, max: 1_000_000 },
};

pub(crate) static PIPE_CALLS: Key<Bounded<u64>> = Key {
    name: "pipe_calls",
    about: "Requests of the client of `waypost stdio`, or of one connection over HTTP+SSE, that are under way at the same \
            time; one more is refused.",
    form: Bounded { default: Some(1_000), min: 1, max: 1_000_000 },
};

pub(crate) static DETACHED_CALLS: Key<Bounded<u64>> = Key {
    name: "detached_calls",
    about: "Calls of clients up to 2025-11-25 that go on though their connection is lost, all together; of one more, \
            the loss ends it.",
    form: Bounded { default: Some(1_000), min: 1, max: 1_000_000 },
};

pub(crate) static KEPT_EVENTS: Key<Bounded<u64>> = Key {
    name: "kept_events",
    about: "Events of streams that are kept, all sessions together, for clients that lose their connection; of more, \
            the oldest go.",
    form: Bounded { default: Some(100_000), min: 1, max: 100_000_000 },
};

pub(crate) static KEPT_EVENTS_PER_SESSION: Key<Bounded<u64>> = Key {
    name: "kept_events_per_session",
    about: "The same, of one session.",
    form: Bounded { default: Some(1_000), min: 1, max: 1_000_000 },
};

pub(crate) static KEPT_BYTES: Key<Bounded<Bytes>> = Key {
    name: "kept_bytes",
    about: "Size of those events, all sessions together.",
    form: Bounded { default: Some(Bytes(64 << 20)), min: Bytes(1 << 10), max: Bytes(1 << 36) },
};

pub(crate) static KEPT_BYTES_PER_SESSION: Key<Bounded<Bytes>> = Key {
    name: "kept_bytes_per_session",
    about: "The same, of one session. In place of an answer that is larger, an error is kept.",
    form: Bounded { default: Some(Bytes(8 << 20)), min: Bytes(1 << 10), max: Bytes(1 << 30) },
};

pub(crate) static HEADER_TIMEOUT: Key<Bounded<Duration>> = Key {
    name: "header_timeout",
    about: "Time for the head of a request to arrive.",
    form: Bounded {
        default: Some(Duration::from_secs(10)),
        min: Duration::from_millis(100),
        max: Duration::from_secs(600),
    },
};

pub(crate) static BODY_TIMEOUT: Key<Bounded<Duration>> = Key {
    name: "body_timeout",
    about: "Time for the body of a request to arrive.",
    form: Bounded {
        default: Some(Duration::from_secs(30)),
        min: Duration::from_millis(100),
        max: Duration::from_secs(3_600),
    },
};

pub(crate) static LIST_ITEMS: Key<Bounded<u64>> = Key {
    name: "list_items",
    about: "Entries of one list of one upstream; what comes after is left out, with a warning.",
    form: Bounded { default: Some(10_000), min: 1, max: 1_000_000 },
};

pub(crate) static LIST_PAGES: Key<Bounded<u64>> = Key {
    name: "list_pages",
    about: "Pages of one list of one upstream; what comes after is left out, with a warning.",
    form: Bounded { default: Some(1_000), min: 1, max: 100_000 },
};

pub(crate) static ANSWER_TIMEOUT: Key<Bounded<Duration>> = Key {
    name: "answer_timeout",
    about: "Time for a client to answer a question of an upstream: elicitation, sampling, roots. The `timeout` of \
            the call stands still meanwhile.",
    form: Bounded {
        default: Some(Duration::from_secs(300)),
        min: Duration::from_secs(1),
        max: Duration::from_secs(86_400),
    },
};

pub(crate) static PARKED_CALLS: Key<Bounded<u64>> = Key {
    name: "parked_calls",
    about: "Calls to upstreams up to 2025-11-25 that wait for an answer of their client at the same time. One more \
            that asks is ended.",
    form: Bounded { default: Some(1_000), min: 1, max: 1_000_000 },
};

pub(crate) static LISTED_TASKS: Key<Bounded<u64>> = Key {
    name: "listed_tasks",
    about: "How many tasks of one client are remembered as its own, to list them (`tasks/list` of 2025-11-25); of \
            more, those that were used last.",
    form: Bounded { default: Some(1_000), min: 1, max: 1_000_000 },
};

pub(crate) static PARKED_CALLS_PER_CLIENT: Key<Bounded<u64>> = Key {
    name: "parked_calls_per_client",
    about: "The same, of one client.",
    form: Bounded { default: Some(100), min: 1, max: 1_000_000 },
};

pub(crate) static SUBSCRIPTIONS: Key<Bounded<u64>> = Key {
    name: "subscriptions",
    about: "Resources that clients have subscribed to, all together; a subscription to one more is refused.",
    form: Bounded { default: Some(10_000), min: 1, max: 1_000_000 },
};

pub(crate) static SUBSCRIPTIONS_PER_SESSION: Key<Bounded<u64>> = Key {
    name: "subscriptions_per_session",
    about: "The same, of one session or of one `subscriptions/listen`.",
    form: Bounded { default: Some(100), min: 1, max: 100_000 },
};

pub(crate) static EDGE: Key<Nested> = Key {
    name: "edge",
    about: "Limit on POSTs per caller, whatever they ask, once they are authenticated and read. By client, or \
            by address where there is no token.",
    form: Nested(&EDGE_TABLE),
};

/// The limit at the edge.
pub(crate) static EDGE_TABLE: Table = Table {
    path: "limits.edge",
    about: "Limit on requests per caller, whatever they are; a refused one gets 429. Without it, no limit.",
    keys: &[&super::RATE, &super::BURST],
    later: &[],
    foreign: &[],
    aliases: &[],
    example: "",
};

pub(crate) static NAMING_KEY: Key<Nested> =
    Key { name: "naming", about: "How exposed names are made.", form: Nested(&NAMING) };

/// How exposed names are made.
pub(crate) static NAMING: Table = Table {
    path: "naming",
    about: "How exposed names are made: prefix, separator, native name. What does not fit is mapped or shortened \
            with a hash of the whole, the same in every run.",
    keys: &[&SEPARATOR, &MAX_LENGTH, &CHARSET],
    later: &[],
    foreign: &[],
    aliases: &[],
    example: "\
upstreams:
  time: {command: uvx, args: [mcp-server-time]}
naming: {separator: \"-\", max_length: 128, charset: any}
",
};

pub(crate) static SEPARATOR: Key<Free> = Key {
    name: "separator",
    about: "Stands between the upstream's prefix and the native name.",
    form: Free {
        written: "text",
        default: "`__`",
        bounds: "1 to 8 of letters, digits, `_`, `-`; with `charset: any` also `.` and `/`",
    },
};

pub(crate) static MAX_LENGTH: Key<Bounded<u64>> = Key {
    name: "max_length",
    about: "Longest exposed name, in characters.",
    form: Bounded { default: Some(64), min: 24, max: 1_024 },
};

pub(crate) static CHARSET: Key<Choice> = Key {
    name: "charset",
    about: "Which characters exposed names keep: `strict` is `a-zA-Z0-9_-`, which every client takes; `any` is any.",
    form: Choice { words: &["strict", "any"], default: "strict" },
};

pub(crate) static SESSIONS_KEY: Key<Nested> =
    Key { name: "sessions", about: "Legacy sessions and streams.", form: Nested(&SESSIONS) };

/// Legacy sessions and streams.
pub(crate) static SESSIONS: Table = Table {
    path: "sessions",
    about: "Sessions of clients up to 2025-11-25, and open streams.",
    keys: &[&IDLE_TIMEOUT, &KEEP_ALIVE, &RESUME_WINDOW, &SESSION_KEY],
    later: &[],
    foreign: &[],
    aliases: &[("ttl", "idle_timeout"), ("timeout", "idle_timeout"), ("secret", "key")],
    example: "\
upstreams:
  time: {command: uvx, args: [mcp-server-time]}
sessions: {idle_timeout: 10m, key: {env: WAYPOST_SESSION_KEY}}
",
};

pub(crate) static RESUME_WINDOW: Key<Bounded<Duration>> = Key {
    name: "resume_window",
    about: "How long a client may take to come back to a call whose connection was lost (`Last-Event-ID`): so long the \
            events of its stream are kept, and the call goes on with nobody there to hear its end.",
    form: Bounded {
        default: Some(Duration::from_secs(300)),
        min: Duration::from_millis(100),
        max: Duration::from_secs(86_400),
    },
};

pub(crate) static IDLE_TIMEOUT: Key<Bounded<Duration>> = Key {
    name: "idle_timeout",
    about: "How long an unused session lives.",
    form: Bounded {
        default: Some(Duration::from_secs(1_800)),
        min: Duration::from_secs(1),
        max: Duration::from_secs(30 * 86_400),
    },
};

pub(crate) static KEEP_ALIVE: Key<Bounded<Duration>> = Key {
    name: "keep_alive",
    about: "How often an open stream says that it lives.",
    form: Bounded {
        default: Some(Duration::from_secs(15)),
        min: Duration::from_millis(100),
        max: Duration::from_secs(3_600),
    },
};

pub(crate) static SESSION_KEY: Key<Secret> = Key {
    name: "key",
    about: "Seals session ids and ids of tasks, so that every replica with the same key knows them, also after a restart. Without \
            it each start makes its own. A text (with `${…}`), `{env: NAME}` or `{file: PATH}`.",
    form: Secret(Free { written: "secret", default: "random", bounds: "16 characters or more" }),
};

pub(crate) static PAGE_SIZE: Key<Bounded<u64>> = Key {
    name: "page_size",
    about: "Entries on one page of a list. Without the key, all are on one page.",
    form: Bounded { default: None, min: 1, max: 100_000 },
};

pub(crate) static ALLOWED_HOSTS: Key<Free> = Key {
    name: "allowed_hosts",
    about: "Values of `Host` that are served besides the listen address itself and, on loopback, loopback names: \
            names with or without a port, or `*` for any. Where `listen` is not loopback, an empty list is any, too.",
    form: Free { written: "list of hosts", default: "`[]`", bounds: "" },
};

pub(crate) static ALLOWED_ORIGINS: Key<Free> = Key {
    name: "allowed_origins",
    about: "Values of `Origin` that are served besides our own and, on loopback, loopback origins: scheme and \
            host, like `https://app.example.com`, or `*` for any.",
    form: Free { written: "list of origins", default: "`[]`", bounds: "" },
};

pub(crate) static POLICY_KEY: Key<Nested> =
    Key { name: "policy", about: "How refusals are worded.", form: Nested(&POLICY) };

/// How refusals are worded.
pub(crate) static POLICY: Table = Table {
    path: "policy",
    about: "How refusals are worded.",
    keys: &[&REVEAL_DENIED],
    later: &[],
    foreign: &[],
    aliases: &[("reveal", "reveal_denied")],
    example: "",
};

pub(crate) static REVEAL_DENIED: Key<Flag> = Key {
    name: "reveal_denied",
    about: "Whether a caller is told that a tool is denied. Else a denied tool is as unknown as one that is not \
            there.",
    form: Flag { default: Some(false), otherwise: "" },
};

pub(crate) static INSTRUCTIONS: Key<Free> = Key {
    name: "instructions",
    about: "Text for the model that goes before the instructions of the upstreams.",
    form: Free { written: "text", default: "", bounds: "at most 64 KiB" },
};

pub(crate) static RELOAD_INTERVAL: Key<Bounded<Duration>> = Key {
    name: "reload_interval",
    about: "How often it is looked whether this file, or a file with a secret that it names, is another one; it is \
            read again then, as on SIGHUP. `0s` never looks.",
    form: Bounded {
        default: Some(Duration::from_secs(1)),
        min: Duration::ZERO,
        max: Duration::from_secs(3_600),
    },
};

pub(crate) static DRAIN_TIMEOUT: Key<Bounded<Duration>> = Key {
    name: "drain_timeout",
    about: "How long calls in flight may go on after a signal to stop, and those to an upstream that a changed file \
            has no more.",
    form: Bounded {
        default: Some(Duration::from_secs(30)),
        min: Duration::ZERO,
        max: Duration::from_secs(3_600),
    },
};

pub(crate) static LOG_KEY: Key<Nested> =
    Key { name: "log", about: "The log, on stderr.", form: Nested(&LOG) };

/// The log.
pub(crate) static LOG: Table = Table {
    path: "log",
    about: "The log, on stderr.",
    keys: &[&LOG_FORMAT, &LOG_LEVEL],
    later: &[],
    foreign: &[],
    aliases: &[],
    example: "\
upstreams:
  time: {command: uvx, args: [mcp-server-time]}
log: {format: json, level: \"info,waypost=debug\"}
",
};

pub(crate) static LOG_FORMAT: Key<Choice> = Key {
    name: "format",
    about: "The form of its lines: for people, or one JSON object each. `auto` is `human` on a terminal, else `json`.",
    form: Choice { words: &["auto", "human", "json"], default: "auto" },
};

pub(crate) static LOG_LEVEL: Key<Free> = Key {
    name: "level",
    about: "`error`, `warn`, `info`, `debug`, `trace` or `off`, or a filter like `info,waypost=debug`.",
    form: Free { written: "text", default: "`info`", bounds: "" },
};

pub(crate) static SCHEMA: Key<Free> = Key {
    name: "$schema",
    about: "For editors. Ignored.",
    form: Free { written: "text", default: "", bounds: "" },
};
