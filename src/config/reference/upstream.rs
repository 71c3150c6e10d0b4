//! The keys of an upstream.

use std::time::Duration;

use super::{Bounded, Choice, Flag, Free, Key, Named, Nested, Secret, Table};

const EXAMPLE: &str = "\
upstreams:
  time:
    command: uvx
    args: [mcp-server-time]
    env: {TZ: UTC}
  github:
    url: https://api.githubcopilot.com/mcp/
    headers: {Authorization: \"Bearer ${GITHUB_TOKEN}\"}
    tools:
      allow: [\"get_*\", \"list_*\", \"search_*\"]
      deny: [\"*secret*\"]
    timeout: 30s
    limits: {rate: 60/min, concurrency: 8}
";

/// One upstream.
pub(crate) static UPSTREAM: Table = Table {
    path: "upstreams.<name>",
    about: "One MCP server. Exactly one of `command` (a child process) and `url` (an HTTP server) says where it \
            is. A block of Claude Desktop, Cursor, Cline or VS Code can be pasted. Names have letters, digits, `_`, \
            `-` and `.`, at most 64 of them.",
    keys: &[
        &COMMAND,
        &ARGS,
        &ENV,
        &CWD,
        &URL,
        &HEADERS,
        &super::OAUTH,
        &super::CA_FILE,
        &super::CLIENT_CERT,
        &super::CLIENT_KEY,
        &super::DENY_PRIVATE,
        &TRANSPORT,
        &TYPE,
        &DISABLED,
        &ERA,
        &PREFIX,
        &UPSTREAM_TOOLS,
        &UPSTREAM_RESOURCES,
        &UPSTREAM_PROMPTS,
        &UPSTREAM_EXTENSIONS,
        &TIMEOUT,
        &super::MAX_TIMEOUT,
        &super::TIMEOUTS,
        &CONNECT_TIMEOUT,
        &LIST_TIMEOUT,
        &super::STREAM_IDLE,
        &super::HEALTH_KEY,
        &super::BREAKER_KEY,
        &super::RETRY,
        &GRACE,
        &REFRESH,
        &super::PROCESS_KEY,
        &ISOLATION,
        &MAX_CONNECTIONS,
        &MAX_CONCURRENCY,
        &MAX_WAITING,
        &UPSTREAM_LIMITS,
    ],
    later: LATER,
    foreign: super::UPSTREAM_FOREIGN,
    aliases: ALIASES,
    example: EXAMPLE,
};

/// What all upstreams have in common.
pub(crate) static DEFAULTS: Table = Table {
    path: "defaults",
    about: "Keys of an upstream that hold for every upstream that does not say otherwise: all but those that say \
            where it is. Mappings are completed key by key: an upstream with its own `tools.allow` still has the \
            `tools.deny` that stands here.",
    keys: &[
        &super::CA_FILE,
        &super::DENY_PRIVATE,
        &ERA,
        &UPSTREAM_TOOLS,
        &UPSTREAM_RESOURCES,
        &UPSTREAM_PROMPTS,
        &UPSTREAM_EXTENSIONS,
        &TIMEOUT,
        &super::MAX_TIMEOUT,
        &super::TIMEOUTS,
        &CONNECT_TIMEOUT,
        &LIST_TIMEOUT,
        &super::STREAM_IDLE,
        &super::HEALTH_KEY,
        &super::BREAKER_KEY,
        &super::RETRY,
        &GRACE,
        &REFRESH,
        &super::PROCESS_KEY,
        &ISOLATION,
        &MAX_CONNECTIONS,
        &MAX_CONCURRENCY,
        &MAX_WAITING,
        &UPSTREAM_LIMITS,
    ],
    later: LATER,
    foreign: &[],
    aliases: &[("allow", "tools"), ("deny", "tools"), ("rate", "limits"), ("concurrency", "limits")],
    example: "\
defaults:
  timeout: 20s
  limits: {concurrency: 16}
upstreams:
  time: {command: uvx, args: [mcp-server-time]}
  slow: {url: \"http://127.0.0.1:9000/mcp\", timeout: 5m}
",
};

const LATER: &[&str] = &["forward_headers", "validate_arguments"];

const ALIASES: &[(&str, &str)] = &[
    ("cmd", "command"),
    ("endpoint", "url"),
    ("uri", "url"),
    ("serverUrl", "url"),
    ("httpUrl", "url"),
    ("transportType", "type"),
    ("workingDirectory", "cwd"),
    ("environment", "env"),
    ("enviroment", "env"),
    ("workdir", "cwd"),
    ("allow", "tools"),
    ("deny", "tools"),
    ("rate", "limits"),
    ("concurrency", "limits"),
    ("namespace", "prefix"),
];

/// How other programs spell `upstreams`.
pub(crate) const OTHER_SPELLINGS: [&str; 2] = ["mcpServers", "servers"];

pub(crate) static UPSTREAMS: Key<Named> = Key {
    name: "upstreams",
    about: "The MCP servers, by name. Also spelled `mcpServers` or `servers`; one of the three must be there, and may \
            be `{}`.",
    form: Named(&UPSTREAM),
};

pub(crate) static COMMAND: Key<Free> = Key {
    name: "command",
    about: "The program of a stdio server. Found in `PATH` if it has no slash. `${WAYPOST_EXE}` is Waypost itself.",
    form: Free { written: "text", default: "", bounds: "not empty" },
};

pub(crate) static ARGS: Key<Free> = Key {
    name: "args",
    about: "Its arguments, each passed as it is: no shell reads them.",
    form: Free { written: "list of texts", default: "`[]`", bounds: "" },
};

pub(crate) static ENV: Key<Secret> = Key {
    name: "env",
    about: "Variables for the child besides a clean base (`PATH`, `HOME`, `LANG` and the like). Nothing else of \
            Waypost's own environment reaches it. Numbers and `true` are passed as they are written.",
    form: Secret(Free { written: "mapping of names to texts", default: "`{}`", bounds: "" }),
};

pub(crate) static CWD: Key<Free> = Key {
    name: "cwd",
    about: "The child's working directory. A relative path counts from the folder of the file.",
    form: Free { written: "path", default: "Waypost's own", bounds: "not empty" },
};

pub(crate) static URL: Key<Free> = Key {
    name: "url",
    about: "The endpoint of an HTTP server: Streamable HTTP, or HTTP+SSE of 2024-11-05 (often `/sse`).",
    form: Free { written: "URL", default: "", bounds: "`http` or `https`, without credentials or `#`" },
};

pub(crate) static HEADERS: Key<Secret> = Key {
    name: "headers",
    about: "Headers of every request to it. Those of the protocol and the connection are Waypost's own.",
    form: Secret(Free { written: "mapping of names to texts", default: "`{}`", bounds: "" }),
};

pub(crate) static TRANSPORT: Key<Choice> = Key {
    name: "transport",
    about: "How a `url` is spoken with: `http` is Streamable HTTP, `sse` is HTTP+SSE of 2024-11-05. `auto` tries \
            Streamable HTTP first, and HTTP+SSE where that is answered with a status between 400 and 499 that does not \
            say otherwise.",
    form: Choice { words: &["auto", "http", "sse"], default: "auto" },
};

pub(crate) static TYPE: Key<Choice> = Key {
    name: "type",
    about: "The transport, as other programs' files say it. `sse` is `transport: sse`; the others follow from \
            `command` or `url`, and must agree.",
    form: Choice { words: &["stdio", "http", "streamable-http", "streamableHttp", "sse"], default: "" },
};

pub(crate) static DISABLED: Key<Flag> = Key {
    name: "disabled",
    about: "Leaves the upstream out. What stands here is still checked.",
    form: Flag { default: Some(false), otherwise: "" },
};

pub(crate) static ERA: Key<Choice> = Key {
    name: "era",
    about: "The era of the protocol that it speaks: `legacy` is up to 2025-11-25, `modern` from 2026-07-28 on. \
            `auto` finds it out.",
    form: Choice { words: &["auto", "legacy", "modern"], default: "auto" },
};

pub(crate) static PREFIX: Key<Free> = Key {
    name: "prefix",
    about: "What goes before its names, in place of its own name. The separator is put behind it, unless it \
            already ends so. Empty for none at all.",
    form: Free {
        written: "text",
        default: "the upstream's name",
        bounds: "letters, digits, `_`, `-`, `.`; at most 64",
    },
};

pub(crate) static UPSTREAM_TOOLS: Key<Nested> = Key {
    name: "tools",
    about: "Which of its tools are offered, by native names.",
    form: Nested(&super::TOOLS),
};

pub(crate) static UPSTREAM_RESOURCES: Key<Nested> = Key {
    name: "resources",
    about: "Which of its resources are offered, by URI; those of its templates, too.",
    form: Nested(&super::RESOURCES),
};

pub(crate) static UPSTREAM_PROMPTS: Key<Nested> = Key {
    name: "prompts",
    about: "Which of its prompts are offered, by native names.",
    form: Nested(&super::PROMPTS),
};

pub(crate) static UPSTREAM_EXTENSIONS: Key<Nested> = Key {
    name: "extensions",
    about: "Which of its extensions of the protocol are offered, by their identifiers.",
    form: Nested(&super::EXTENSIONS),
};

pub(crate) static TIMEOUT: Key<Bounded<Duration>> = Key {
    name: "timeout",
    about: "How long a call may go without a word of its progress, from when it is admitted until its result is there. \
            The server hears that it was cancelled.",
    form: Bounded {
        default: Some(Duration::from_secs(60)),
        min: Duration::from_millis(10),
        max: Duration::from_secs(86_400),
    },
};

pub(crate) static CONNECT_TIMEOUT: Key<Bounded<Duration>> = Key {
    name: "connect_timeout",
    about: "Budget of one attempt to connect, start of the process and handshake included.",
    form: Bounded {
        default: Some(Duration::from_secs(30)),
        min: Duration::from_millis(10),
        max: Duration::from_secs(3_600),
    },
};

pub(crate) static LIST_TIMEOUT: Key<Bounded<Duration>> = Key {
    name: "list_timeout",
    about: "Budget of reading all pages of its lists.",
    form: Bounded {
        default: Some(Duration::from_secs(30)),
        min: Duration::from_millis(10),
        max: Duration::from_secs(3_600),
    },
};

pub(crate) static GRACE: Key<Bounded<Duration>> = Key {
    name: "grace",
    about: "How long its last known lists are served after it went down.",
    form: Bounded {
        default: Some(Duration::from_secs(30)),
        min: Duration::ZERO,
        max: Duration::from_secs(86_400),
    },
};

pub(crate) static REFRESH: Key<Bounded<Duration>> = Key {
    name: "refresh",
    about: "How often its lists are read again at the least. `0s` is never; else `100ms` or more.",
    form: Bounded {
        default: Some(Duration::from_secs(300)),
        min: Duration::ZERO,
        max: Duration::from_secs(86_400),
    },
};

pub(crate) static ISOLATION: Key<Choice> = Key {
    name: "isolation",
    about: "Who shares a connection to it, and with that a process, or a session over HTTP, and whatever state \
            it keeps there: `shared` is everybody, `per_client` gives each client its own, `per_session` each \
            session; callers without a session have one per client then. Without it: `shared` for a `command`, \
            `per_session` for a `url`. Means nothing over HTTP where the server keeps no sessions, as from \
            2026-07-28 on. Lists are read on a connection of Waypost's own in any case.",
    form: Choice { words: &["shared", "per_client", "per_session"], default: "" },
};

pub(crate) static MAX_CONNECTIONS: Key<Bounded<u64>> = Key {
    name: "max_connections",
    about: "Connections for one client or session each, at the same time. One more ends the one that is not in \
            use for the longest time; if all are in use, its call is refused. Each ends when it was not used for \
            `sessions.idle_timeout`, or with its session. Without it: `32` for a `command`, `1000` for a `url`.",
    form: Bounded { default: None, min: 1, max: 100_000 },
};

pub(crate) static MAX_CONCURRENCY: Key<Bounded<u64>> = Key {
    name: "max_concurrency",
    about: "Calls in flight on one connection; more wait, one client after the other, for as long as their \
            `timeout` lets them. With `1` a server on stdio up to 2025-11-25 can ask questions on a shared \
            connection, too.",
    form: Bounded { default: Some(4096), min: 1, max: 4096 },
};

pub(crate) static MAX_WAITING: Key<Bounded<u64>> = Key {
    name: "max_waiting",
    about: "Calls that wait for `max_concurrency` of one connection; one more is refused.",
    form: Bounded { default: Some(1000), min: 0, max: 100_000 },
};

pub(crate) static UPSTREAM_LIMITS: Key<Nested> = Key {
    name: "limits",
    about: "Limits on calls to it, all callers together.",
    form: Nested(&super::CALL_LIMITS),
};
