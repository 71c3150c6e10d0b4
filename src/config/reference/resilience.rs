//! The keys of an upstream that are about its bad days.

use std::time::Duration;

use super::{Bounded, Choice, Durations, Key, Nested, Table};
use crate::config::units::Bytes;

pub(crate) static MAX_TIMEOUT: Key<Bounded<Duration>> = Key {
    name: "max_timeout",
    about: "How long a call may take altogether, whatever it tells of its progress. Never less than its `timeout`. \
            Without the key, ten times that.",
    form: Bounded { default: None, min: Duration::from_millis(10), max: Duration::from_secs(7 * 86_400) },
};

pub(crate) static TIMEOUTS: Key<Durations> = Key {
    name: "timeouts",
    about: "The `timeout` of single tools, by patterns of their native names: `{build: 10m, \"search_*\": 5s}`. The \
            first that matches holds; those of an upstream go before those of `defaults`.",
    form: Durations(Bounded {
        default: None,
        min: Duration::from_millis(10),
        max: Duration::from_secs(86_400),
    }),
};

pub(crate) static STREAM_IDLE: Key<Bounded<Duration>> = Key {
    name: "stream_idle",
    about: "How long it may pause in the middle of a message: a half-read body, event or line. The calls that wait \
            for it fail then; a pipe is closed. Pauses between messages are the business of `timeout`. `0s` is no \
            such limit.",
    form: Bounded {
        default: Some(Duration::from_secs(10)),
        min: Duration::ZERO,
        max: Duration::from_secs(3_600),
    },
};

pub(crate) static MEMORY: Key<Bounded<Bytes>> = Key {
    name: "memory",
    about: "What messages of more than 64 KiB may take of the memory altogether, from their first byte until they are \
            passed on. Requests find room in the first half only, and get 503 beyond it, so that answers to calls that \
            were made already find room; an answer that does not fit fails its call.",
    form: Bounded { default: Some(Bytes(512 << 20)), min: Bytes(1 << 20), max: Bytes(1 << 40) },
};

pub(crate) static PEER_TIMEOUT: Key<Bounded<Duration>> = Key {
    name: "peer_timeout",
    about: "How long a client may leave unacknowledged what is sent to it, or the probes of a connection on which \
            nothing is sent, before its connection counts as dead and is closed.",
    form: Bounded {
        default: Some(Duration::from_secs(60)),
        min: Duration::from_secs(3),
        max: Duration::from_secs(3_600),
    },
};

pub(crate) static HEALTH_KEY: Key<Nested> =
    Key { name: "health", about: "When it is asked whether it lives.", form: Nested(&HEALTH) };

/// When an upstream is asked whether it lives.
pub(crate) static HEALTH: Table = Table {
    path: "upstreams.<name>.health",
    about: "When it is asked whether it lives: by `ping`, or `server/discover` from 2026-07-28 on. Anything that it \
            says counts as an answer. One that is silent without a call is connected to anew after two questions; \
            one that is busy with calls only once it has been silent for longer than a call may take.",
    keys: &[&HEALTH_INTERVAL, &HEALTH_TIMEOUT],
    later: &[],
    foreign: &[],
    aliases: &[("period", "interval")],
    example: "\
upstreams:
  time: {command: uvx, args: [mcp-server-time], health: {interval: 10s, timeout: 5s}}
",
};

pub(crate) static HEALTH_INTERVAL: Key<Bounded<Duration>> = Key {
    name: "interval",
    about: "After how long a silence it is asked. `0s` is never. Without the key, `30s` for a `command` and never for a \
            `url`.",
    form: Bounded { default: None, min: Duration::ZERO, max: Duration::from_secs(86_400) },
};

pub(crate) static HEALTH_TIMEOUT: Key<Bounded<Duration>> = Key {
    name: "timeout",
    about: "How long it may take to answer.",
    form: Bounded {
        default: Some(Duration::from_secs(10)),
        min: Duration::from_millis(10),
        max: Duration::from_secs(3_600),
    },
};

pub(crate) static BREAKER_KEY: Key<Nested> =
    Key { name: "breaker", about: "When it is not called for a while.", form: Nested(&BREAKER) };

/// When an upstream is not called for a while.
pub(crate) static BREAKER: Table = Table {
    path: "upstreams.<name>.breaker",
    about: "When it is not called for a while: after failures in a row. A failure is a call that was sent and not \
            answered: timed out, or lost with its connection. Any answer, errors of tools too, is none. After that \
            while one call is let through to see. A single tool whose calls time out is spared in the same way, and \
            the others are called on: only failures of several tools, or lost connections, are those of the upstream. \
            It counts the calls of all clients together.",
    keys: &[&BREAKER_FAILURES, &BREAKER_OPEN],
    later: &[],
    foreign: &[],
    aliases: &[("threshold", "failures"), ("cooldown", "open")],
    example: "\
upstreams:
  slow: {url: \"http://127.0.0.1:9000/mcp\", breaker: {failures: 3, open: 30s}}
",
};

pub(crate) static BREAKER_FAILURES: Key<Bounded<u64>> = Key {
    name: "failures",
    about: "How many failures in a row open it. `0` is never.",
    form: Bounded { default: Some(10), min: 0, max: 1_000_000 },
};

pub(crate) static BREAKER_OPEN: Key<Bounded<Duration>> = Key {
    name: "open",
    about: "How long nothing is let through.",
    form: Bounded {
        default: Some(Duration::from_secs(10)),
        min: Duration::from_millis(10),
        max: Duration::from_secs(3_600),
    },
};

pub(crate) static RETRY: Key<Choice> = Key {
    name: "retry",
    about: "Which calls are sent once more that were lost and may have been executed (their connection broke, or an \
            HTTP error came that is no answer of the server's, such as 502): `hinted` \
            is reads, and tools with `readOnlyHint` or `idempotentHint`; `always` is all, `never` none. The caller of \
            any other is told that the outcome is unknown. What was certainly not executed does not count.",
    form: Choice { words: &["hinted", "never", "always"], default: "hinted" },
};
