//! The keys of a child process: when it runs, and what it may take.

use std::time::Duration;

use super::{Bounded, Choice, Key, Nested, Table};
use crate::config::units::Bytes;

pub(crate) static PROCESS_KEY: Key<Nested> = Key {
    name: "process",
    about: "When the process of a `command` runs, and what it may take of the machine.",
    form: Nested(&PROCESS),
};

/// How a child process is kept.
pub(crate) static PROCESS: Table = Table {
    path: "upstreams.<name>.process",
    about: "When the process of a `command` runs, and what it may take of the machine. One that is not running because \
            nobody uses it is `idle`: its lists are served as they were read last, and a call starts it, once for all \
            who call meanwhile, and waits for that within its `timeout`. A followed resource keeps it running. What \
            it kept in memory is gone when it ends. All of this holds for the processes of single clients and sessions \
            (`isolation`) likewise: those are started by calls in any case.",
    keys: &[&START, &IDLE_STOP, &MAX_MEMORY, &MAX_CPU_TIME],
    later: &[],
    foreign: &[],
    aliases: &[("memory", "max_memory"), ("cpu", "max_cpu_time"), ("idle_timeout", "idle_stop")],
    example: "\
upstreams:
  files:
    command: npx
    args: [-y, \"@modelcontextprotocol/server-filesystem\", /srv/shared]
    process: {start: lazy, idle_stop: 10m, max_memory: 512MiB}
",
};

pub(crate) static START: Key<Choice> = Key {
    name: "start",
    about: "`eager` runs it from the start of Waypost on. `lazy` runs it at the start for as long as it takes to read \
            its lists, and from then on when it is called.",
    form: Choice { words: &["eager", "lazy"], default: "eager" },
};

pub(crate) static IDLE_STOP: Key<Bounded<Duration>> = Key {
    name: "idle_stop",
    about: "After how long without a call it is ended; `100ms` or more. `0s` is never. Without it: `10m` with \
            `start: lazy`, else never.",
    form: Bounded { default: None, min: Duration::ZERO, max: Duration::from_secs(30 * 86_400) },
};

pub(crate) static MAX_MEMORY: Key<Bounded<Bytes>> = Key {
    name: "max_memory",
    about: "Memory of its own that it may have, with all that it has started. It is looked at twice a second; one that \
            has more is killed, its calls are told why, and it is started anew. Files that are mapped do not count. Linux \
            only. Without it: no bound.",
    form: Bounded { default: None, min: Bytes(1 << 20), max: Bytes(1 << 44) },
};

pub(crate) static MAX_CPU_TIME: Key<Bounded<Duration>> = Key {
    name: "max_cpu_time",
    about: "Time on processors that it may take in one life, with all that it has started. It is looked at twice a \
            second; one that has taken more is killed, its calls are told why, and it is started anew. Linux only. \
            Without it: no bound.",
    form: Bounded { default: None, min: Duration::from_secs(1), max: Duration::from_secs(365 * 86_400) },
};
