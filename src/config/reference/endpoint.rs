//! The keys of an endpoint.

use super::{CLIENT_EXTENSIONS, CLIENT_PROMPTS, CLIENT_RESOURCES, CLIENT_TOOLS, Free, Key, Named, Table};

pub(crate) static ENDPOINTS: Key<Named> = Key {
    name: "endpoints",
    about: "Views on the upstreams, by their paths. Without the key there is `/mcp`, with everything; with it there \
            are those that it names, and no other path.",
    form: Named(&ENDPOINT),
};

/// One endpoint.
pub(crate) static ENDPOINT: Table = Table {
    path: "endpoints.<path>",
    about: "A view on the upstreams at a path of its own, like `/mcp/readonly`: segments of letters, digits, `_`, \
            `-`, `.` and `~`, at most 128 bytes. It is one more layer of rules and only narrows: whoever calls here \
            may use what the upstreams, this endpoint, and its own roles and rules let through. Sessions belong to \
            the endpoint at which they began. Clients of HTTP+SSE find it at `<path>/sse` (that of `/mcp` at \
            `/sse`), programs that launch Waypost with `waypost stdio --endpoint <path>`.",
    keys: &[
        &ENDPOINT_UPSTREAMS,
        &ENDPOINT_PREFIXES,
        &CLIENT_TOOLS,
        &CLIENT_RESOURCES,
        &CLIENT_PROMPTS,
        &CLIENT_EXTENSIONS,
        &ENDPOINT_INSTRUCTIONS,
    ],
    later: &["limits"],
    foreign: &[],
    aliases: &[("allow", "tools"), ("deny", "tools"), ("prefix", "prefixes"), ("servers", "upstreams")],
    example: "\
upstreams:
  time: {command: uvx, args: [mcp-server-time]}
  github: {url: \"https://api.githubcopilot.com/mcp/\"}
endpoints:
  /mcp: {}
  /mcp/readonly:
    tools: {allow: [{readOnlyHint: true}]}
  /mcp/github:
    upstreams: [github]
    prefixes: {github: \"\"}
    tools: {deny: [\"github__delete_*\"]}
",
};

pub(crate) static ENDPOINT_UPSTREAMS: Key<Free> = Key {
    name: "upstreams",
    about: "Which upstreams it has.",
    form: Free { written: "list of names", default: "all", bounds: "keys of `upstreams`" },
};

pub(crate) static ENDPOINT_PREFIXES: Key<Free> = Key {
    name: "prefixes",
    about: "What goes before the names of an upstream here, by upstreams, in place of its `prefix`; `\"\"` is \
            nothing. Rules know tools and prompts by the names that the `prefix` of the upstream makes, here too, so \
            that no rule is lost by another name.",
    form: Free { written: "mapping of names to texts", default: "`{}`", bounds: "as `prefix`" },
};

pub(crate) static ENDPOINT_INSTRUCTIONS: Key<Free> = Key {
    name: "instructions",
    about: "Text that goes before the instructions of the upstreams here, in place of the `instructions` at the top.",
    form: Free { written: "text", default: "", bounds: "at most 64 KiB" },
};
