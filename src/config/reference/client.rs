//! The keys of a client, and what clients and upstreams share.

use super::{Bounded, Free, Key, Named, Nested, Schemas, Secret, Table};

/// One client.
pub(crate) static CLIENT: Table = Table {
    path: "clients.<name>",
    about: "One caller, known by its bearer tokens. Names have letters, digits, `_`, `-`, `.` and `@`, at most 64 \
            of them, and become a label of the metrics. The name `anonymous` is that of callers without \
            credentials: it has no tokens, and its filters and `limits` hold where `auth.anonymous` lets them in.",
    keys: &[
        &TOKENS,
        &super::CERTIFICATES,
        &CLIENT_ROLES,
        &CLIENT_TOOLS,
        &CLIENT_RESOURCES,
        &CLIENT_PROMPTS,
        &CLIENT_EXTENSIONS,
        &CLIENT_LIMITS,
    ],
    later: &["upstreams", "endpoints"],
    foreign: &[],
    aliases: &[
        ("token", "tokens"),
        ("allow", "tools"),
        ("deny", "tools"),
        ("rate", "limits"),
        ("role", "roles"),
        ("groups", "roles"),
    ],
    example: "\
upstreams:
  github: {url: \"https://api.githubcopilot.com/mcp/\"}
clients:
  alice:
    tokens:
      - sha256:05564704124c3f494944ace23c63930a4796392c9e5857858600d6e2ca234a63
      - {env: ALICE_TOKEN}
  ci:
    tokens: [{file: /run/secrets/ci_token}]
    tools: {allow: [\"github__get_*\"]}
    limits: {rate: 30/min}
",
};

pub(crate) static CLIENTS: Key<Named> = Key {
    name: "clients",
    about: "The callers, by name. With clients, a caller without a valid token gets 401.",
    form: Named(&CLIENT),
};

pub(crate) static TOKENS: Key<Secret> = Key {
    name: "tokens",
    about: "Its bearer tokens; several, so that one can be replaced without a gap. A token itself must not stand \
            in the file: `sha256:` and its digest (`printf %s \"$TOKEN\" | sha256sum`), or `{env: NAME}`, or \
            `{file: PATH}`, where a relative path counts from the folder of the file. A source may say until when \
            its token is good: `{env: NAME, expires: 2027-01-01}`, or with a time, `2027-01-01T12:00:00Z`; so may \
            a digest, `{digest: \"sha256:…\", expires: …}`. A client that `auth.jwt` names by its `client_claim` \
            needs none.",
    form: Secret(Free {
        written: "list of digests or sources",
        default: "",
        bounds: "one or more; each token once",
    }),
};

pub(crate) static CLIENT_ROLES: Key<Free> = Key {
    name: "roles",
    about: "Roles whose rules hold besides its own.",
    form: Free { written: "list of names", default: "`[]`", bounds: "keys of `roles`" },
};

/// One role.
pub(crate) static ROLE: Table = Table {
    path: "roles.<name>",
    about: "Rules that several clients share. Layers only narrow: a client sees what the upstream offers, and each \
            of its roles lets through, and its own rules let through. So a client with two roles sees no more than \
            with either. Names are as those of clients.",
    keys: &[&CLIENT_TOOLS, &CLIENT_RESOURCES, &CLIENT_PROMPTS, &CLIENT_EXTENSIONS],
    later: &["limits", "upstreams", "endpoints"],
    foreign: &[],
    aliases: &[("allow", "tools"), ("deny", "tools")],
    example: "\
upstreams:
  github: {url: \"https://api.githubcopilot.com/mcp/\"}
roles:
  reader:
    tools: {allow: [\"github__get_*\", \"github__list_*\"]}
clients:
  alice: {tokens: [{env: ALICE_TOKEN}], roles: [reader]}
  ci:
    tokens: [{file: /run/secrets/ci_token}]
    roles: [reader]
    tools: {deny: [\"*_secret*\"]}
",
};

pub(crate) static ROLES: Key<Named> =
    Key { name: "roles", about: "Sets of rules that clients share, by name.", form: Named(&ROLE) };

pub(crate) static CLIENT_TOOLS: Key<Nested> = Key {
    name: "tools",
    about: "What is seen and may be called, by exposed names, within what the upstreams offer.",
    form: Nested(&TOOLS),
};

pub(crate) static CLIENT_RESOURCES: Key<Nested> = Key {
    name: "resources",
    about: "What is seen and may be read, by URI, within what the upstreams offer.",
    form: Nested(&RESOURCES),
};

pub(crate) static CLIENT_PROMPTS: Key<Nested> = Key {
    name: "prompts",
    about: "Which prompts are seen, by exposed names, within what the upstreams offer.",
    form: Nested(&PROMPTS),
};

pub(crate) static CLIENT_EXTENSIONS: Key<Nested> = Key {
    name: "extensions",
    about: "Which extensions of the protocol may be used, by their identifiers, within what the upstreams offer.",
    form: Nested(&EXTENSIONS),
};

pub(crate) static CLIENT_LIMITS: Key<Nested> =
    Key { name: "limits", about: "Limits on its calls, whatever it calls.", form: Nested(&CALL_LIMITS) };

const FILTER_ALIASES: &[(&str, &str)] = &[
    ("include", "allow"),
    ("only", "allow"),
    ("allowlist", "allow"),
    ("whitelist", "allow"),
    ("exclude", "deny"),
    ("block", "deny"),
    ("denylist", "deny"),
    ("blacklist", "deny"),
];

/// Which tools.
pub(crate) static TOOLS: Table = Table {
    path: "tools",
    about: "Which tools, of an upstream by native names, elsewhere by exposed names (`github__get_issue`). In a \
            pattern `*` is any run of characters and `?` is one; every other character stands for itself, and \
            case matters. A mapping in place of a pattern looks at what tools say of themselves in their \
            annotations: `{readOnlyHint: true}`, also `destructiveHint`, `idempotentHint`, `openWorldHint`, and \
            with `name` at their names too; all of it must match, and a tool without the annotation does not. \
            They are the words of the server: allow by them what you trust. `deny` wins over `allow`.",
    keys: &[&TOOLS_ALLOW, &TOOLS_DENY, &TOOLS_NARROW],
    later: &["override"],
    foreign: &[],
    aliases: FILTER_ALIASES,
    example: "\
upstreams:
  files:
    command: mcp-server-filesystem
    args: [/srv/shared]
    tools:
      allow: [\"read_*\", \"list_*\"]
      deny: [read_media_file]
",
};

/// Which resources.
pub(crate) static RESOURCES: Table = Table {
    path: "resources",
    about: "Which resources, of an upstream or a client, by the URIs that the servers give them (without the \
            `#@upstream` that tells equal URIs of two upstreams apart). Patterns are those of `tools`. A URI that \
            is read through a template passes the same rules, and so does what it says with its percent \
            escapes decoded and its `..` resolved: every spelling of a denied URI is denied. A template is \
            listed where its own text passes them.",
    keys: &[&ALLOW, &DENY],
    later: &[],
    foreign: &[],
    aliases: FILTER_ALIASES,
    example: "\
upstreams:
  files:
    command: my-file-server
    resources:
      allow: [\"file:///srv/shared/*\"]
      deny: [\"*.key\"]
",
};

/// Which prompts.
pub(crate) static PROMPTS: Table = Table {
    path: "prompts",
    about: "Which prompts, of an upstream by native names, of a client by exposed names. Patterns are those of \
            `tools`.",
    keys: &[&ALLOW, &DENY],
    later: &[],
    foreign: &[],
    aliases: FILTER_ALIASES,
    example: "",
};

/// Which extensions.
pub(crate) static EXTENSIONS: Table = Table {
    path: "extensions",
    about: "Which extensions of the protocol, by identifiers like `com.example/search`: whether the extension is \
            promised to clients, and whether its methods pass. Patterns are those of `tools`. What the methods of \
            an extension do is not known here, so filters of tools, resources and prompts cannot judge them: an \
            upstream or a client that has such a filter has no extensions without this key, and one that has none \
            has all. `io.modelcontextprotocol/ui` and `io.modelcontextprotocol/tasks` are known: the filters \
            judge each of their uses, and they are there unless this key takes them away.",
    keys: &[&ALLOW, &DENY],
    later: &[],
    foreign: &[],
    aliases: FILTER_ALIASES,
    example: "\
upstreams:
  index:
    command: my-index-server
    tools: {deny: [\"drop_*\"]}
    extensions: {allow: [\"com.example/search\"]}
",
};

pub(crate) static TOOLS_NARROW: Key<Schemas> = Key {
    name: "narrow",
    about: "What the arguments of tools have to fit besides the tools' own schemas: JSON Schemas, by patterns of names. \
            Those of all layers hold together; they are shown to clients in the tool's `inputSchema` (`allOf`) and \
            enforced on every call: one that does not fit is answered with what is wrong, and does not reach the server. \
            A member that is not there is not judged, unless the schema `required`s it.",
    form: Schemas,
};

pub(crate) static TOOLS_ALLOW: Key<Free> = Key {
    name: ALLOW.name,
    about: ALLOW.about,
    form: Free {
        written: "list of patterns and annotations",
        default: "everything",
        bounds: "no empty pattern",
    },
};

pub(crate) static TOOLS_DENY: Key<Free> = Key {
    name: DENY.name,
    about: DENY.about,
    form: Free { written: "list of patterns and annotations", default: "`[]`", bounds: "no empty pattern" },
};

pub(crate) static ALLOW: Key<Free> = Key {
    name: "allow",
    about: "Patterns of which one must match. Without the key, everything; `[]` is nothing.",
    form: Free { written: "list of patterns", default: "everything", bounds: "no empty pattern" },
};

pub(crate) static DENY: Key<Free> = Key {
    name: "deny",
    about: "Patterns of which none may match.",
    form: Free { written: "list of patterns", default: "`[]`", bounds: "no empty pattern" },
};

/// Limits on calls.
pub(crate) static CALL_LIMITS: Table = Table {
    path: "limits (of an upstream or a client)",
    about: "Limits on calls. Only calls count: no lists, no pings. A refused call says when to try again.",
    keys: &[&RATE, &BURST, &CONCURRENCY],
    later: &["on_limit", "max_wait"],
    foreign: &[],
    aliases: &[("max_concurrency", "concurrency"), ("rps", "rate")],
    example: "\
upstreams:
  github:
    url: https://api.githubcopilot.com/mcp/
    limits: {rate: 60/min, burst: 10, concurrency: 8}
",
};

pub(crate) static RATE: Key<Free> = Key {
    name: "rate",
    about: "How many per period: a count, a slash, and the period, like `60/min` or `1/10s`. The tokens come back \
            evenly over the period.",
    form: Free { written: "rate", default: "no limit", bounds: "`1` to `1000000`, in at most `31d`" },
};

pub(crate) static BURST: Key<Bounded<u64>> = Key {
    name: "burst",
    about: "How many may come at once. Without the key, the count of the rate. Needs `rate`.",
    form: Bounded { default: None, min: 1, max: 1_000_000 },
};

pub(crate) static CONCURRENCY: Key<Bounded<u64>> = Key {
    name: "concurrency",
    about: "How many may be in flight. Without the key, no limit.",
    form: Bounded { default: None, min: 1, max: 1_000_000 },
};
