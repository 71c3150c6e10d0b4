//! The keys of the audit log.

use super::{Bounded, Choice, Free, Key, Nested, Table};
use crate::config::units::Bytes;

pub(crate) static AUDIT_KEY: Key<Nested> = Key {
    name: "audit",
    about: "Who called what, and what became of it: a JSON line for each call and each refusal. Without the key there \
            is none.",
    form: Nested(&AUDIT),
};

/// The audit log.
pub(crate) static AUDIT: Table = Table {
    path: "audit",
    about: "Who called what, and what became of it. A line has `ts`, `client`, `caller` where many are one client, \
            `address`, `endpoint`, `method`, `upstream`, `tool`, `target` (the name or URI that was asked for), \
            `outcome`, for a denial the `rule` and its place in the file, `duration_ms`, `request_bytes`, \
            `response_bytes`, `trace` (the `traceparent` of the call), and `error`. No call waits for it: lines that \
            find no room (4 MiB of them) are missing, and counted.",
    keys: &[&AUDIT_FILE, &AUDIT_ARGUMENTS, &AUDIT_REDACT, &AUDIT_MAX_SIZE, &AUDIT_KEEP],
    later: &[],
    foreign: &[],
    aliases: &[("path", "file"), ("args", "arguments"), ("max_files", "keep")],
    example: "\
upstreams:
  time: {command: uvx, args: [mcp-server-time]}
audit: {file: /var/log/waypost/audit.jsonl, arguments: redacted, max_size: 100MiB, keep: 10}
",
};

pub(crate) static AUDIT_FILE: Key<Free> = Key {
    name: "file",
    about: "The file that it goes to, made where it is missing, readable by its owner alone. A relative path counts \
            from the working directory. `-` is stderr, between the lines of the log.",
    form: Free { written: "path", default: "`-`", bounds: "" },
};

pub(crate) static AUDIT_ARGUMENTS: Key<Choice> = Key {
    name: "arguments",
    about: "What of a call's arguments is in its line: nothing, the `hash` of their text (SHA-256, which tells whether \
            two calls had the same ones), or all, `redacted`.",
    form: Choice { words: &["off", "hash", "redacted"], default: "off" },
};

pub(crate) static AUDIT_REDACT: Key<Free> = Key {
    name: "redact",
    about: "Names of members, at any depth, whose values are `***` in what is `redacted`; in any case of letters. What \
            is longer than 1 KiB is cut.",
    form: Free {
        written: "list of patterns",
        default: "`[\"*token*\", \"*secret*\", \"*password*\", \"*passwd*\", \"*authorization*\", \"*api*key*\", \
                  \"*credential*\"]`",
        bounds: "",
    },
};

pub(crate) static AUDIT_MAX_SIZE: Key<Bounded<Bytes>> = Key {
    name: "max_size",
    about: "A file that is larger is put aside as `.1`, the one before as `.2`, and so on.",
    form: Bounded { default: Some(Bytes(100 << 20)), min: Bytes(4 << 10), max: Bytes(1 << 40) },
};

pub(crate) static AUDIT_KEEP: Key<Bounded<u64>> = Key {
    name: "keep",
    about: "How many files are kept that were put aside.",
    form: Bounded { default: Some(5), min: 0, max: 1_000 },
};
