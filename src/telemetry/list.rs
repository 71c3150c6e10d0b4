//! The one list of metrics: name, kind, labels, and what each says. `docs/metrics.md` is made from it.
//!
//! Must not know: how anything is counted.

use std::fmt::Write as _;

/// One metric.
#[derive(Debug)]
pub(super) struct Spec {
    /// Its name: `waypost_`, then what is measured, then the base unit; `_total` for counters.
    pub(super) name: &'static str,
    /// What it is.
    pub(super) kind: Kind,
    /// The names of its labels, in the order in which values are given.
    pub(super) labels: &'static [&'static str],
    /// What it says, in one sentence or two.
    pub(super) help: &'static str,
}

/// The kinds of metrics.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts into buckets with these upper bounds.
    Histogram(&'static [f64]),
}

/// From a call to a local child to one that a person waits for.
const CALL_SECONDS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];

/// From what the gateway should take to what it never should.
const OVERHEAD_SECONDS: &[f64] =
    &[0.000_025, 0.000_05, 0.0001, 0.000_25, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 1.0];

macro_rules! metrics {
    ($($constant:ident $kind:expr, $name:literal [$($label:literal)*] $help:literal)*) => {
        $(pub(super) static $constant: Spec =
            Spec { name: $name, kind: $kind, labels: &[$($label),*], help: $help };)*

        /// All metrics, in the order of the documentation.
        pub(super) static LIST: &[&Spec] = &[$(&$constant),*];
    };
}

metrics! {
    CALLS Kind::Counter, "waypost_calls_total" ["client" "upstream" "tool" "method" "outcome"]
        "Calls that ended, by how they ended."
    ENDPOINT_CALLS Kind::Counter, "waypost_endpoint_calls_total" ["endpoint" "client" "outcome"]
        "The same calls, by the endpoint at which they came."
    CALL_DURATION Kind::Histogram(CALL_SECONDS), "waypost_call_duration_seconds" ["upstream" "method"]
        "Time from the request read to the answer ready, upstream included; one observation per call."
    GATEWAY_OVERHEAD Kind::Histogram(OVERHEAD_SECONDS), "waypost_gateway_overhead_seconds" []
        "The part of a call's duration that was not spent waiting for its upstream; one observation per call."
    CALL_REQUEST_BYTES Kind::Counter, "waypost_call_request_bytes_total" ["upstream"]
        "Bytes of the requests of calls, as their clients sent them."
    CALL_RESPONSE_BYTES Kind::Counter, "waypost_call_response_bytes_total" ["upstream"]
        "Bytes of the answers to calls, as the upstreams sent them; answers of Waypost's own count nothing."
    CALLS_IN_FLIGHT Kind::Gauge, "waypost_calls_in_flight" ["upstream"]
        "Calls that are with an upstream now."
    QUESTIONS Kind::Counter, "waypost_questions_total" ["upstream"]
        "Questions that upstreams up to 2025-11-25 asked during a call, and that were put to its client."
    PARKED_CALLS Kind::Gauge, "waypost_parked_calls" []
        "Calls that wait for answers of their clients now."
    RATE_LIMITED Kind::Counter, "waypost_rate_limited_total" ["client" "scope"]
        "Calls and requests refused by a limit, by whose limit it was."
    UPSTREAM_UP Kind::Gauge, "waypost_upstream_up" ["upstream"]
        "1 while the upstream is connected and its lists are read, or idle, else 0. There from the start for each upstream."
    UPSTREAM_IDLE Kind::Gauge, "waypost_upstream_idle" ["upstream"]
        "1 while the upstream's process does not run because nobody uses it, else 0. A call starts it."
    UPSTREAM_IDLE_STOPS Kind::Counter, "waypost_upstream_idle_stops_total" ["upstream"]
        "Times that the upstream's process was ended because nobody used it."
    PROCESS_OVER_BOUNDS Kind::Counter, "waypost_upstream_process_over_bounds_total" ["upstream"]
        "Processes of the upstream that were killed because they took more than they may (`process`)."
    UPSTREAM_CONNECTS Kind::Counter, "waypost_upstream_connects_total" ["upstream"]
        "Connections made, the first one included."
    UPSTREAM_RESTARTS Kind::Counter, "waypost_upstream_restarts_total" ["upstream"]
        "Connections made after an earlier one was lost; one that was ended because nobody used it does not count."
    UPSTREAM_CONNECT_FAILURES Kind::Counter, "waypost_upstream_connect_failures_total" ["upstream"]
        "Attempts to connect that failed."
    OWN_CONNECTIONS Kind::Gauge, "waypost_upstream_own_connections" ["upstream"]
        "Connections that belong to one client or one session each, now; those that are ending included."
    OWN_CONNECTIONS_OPENED Kind::Counter, "waypost_upstream_own_connections_opened_total" ["upstream"]
        "Connections opened for one client or one session."
    UPSTREAM_FAILURES Kind::Gauge, "waypost_upstream_failures" ["upstream"]
        "Failures in a row: attempts that failed, and connections that did not last a minute. Five and more are a crash loop."
    BREAKER_OPEN Kind::Gauge, "waypost_upstream_breaker_open" ["upstream"]
        "1 while the upstream's breaker lets no call through but one to see, else 0."
    TOOL_BREAKERS_OPEN Kind::Gauge, "waypost_tool_breakers_open" ["upstream"]
        "Tools of the upstream that are not called for now, because their last calls did not end in time."
    CALLS_REPEATED Kind::Counter, "waypost_calls_repeated_total" ["upstream"]
        "Calls that were sent a second time because the first was lost and repeating does no harm."
    HEALTH_CHECKS_MISSED Kind::Counter, "waypost_upstream_health_checks_missed_total" ["upstream"]
        "Times that the upstream was asked whether it lives and nothing came from it."
    UPSTREAM_NOISE Kind::Counter, "waypost_upstream_noise_total" ["upstream"]
        "Things an upstream sent that were no message."
    EVENTS_MISSED Kind::Counter, "waypost_events_missed_total" ["upstream"]
        "Progress and log messages of calls that were dropped because the client of the call did not read."
    UPSTREAM_TOOLS Kind::Gauge, "waypost_upstream_tools" ["upstream"]
        "Tools that the upstream listed when it was last connected to."
    ENTRIES_SKIPPED Kind::Counter, "waypost_entries_skipped_total" ["upstream"]
        "Entries of an upstream's lists that were left out because they were malformed or clashed."
    CONNECTIONS Kind::Gauge, "waypost_connections" []
        "Connections of clients over HTTP, now; `limits.connections` bounds them."
    ACCEPT_FAILURES Kind::Counter, "waypost_accept_failures_total" []
        "Times that a connection could not be accepted, for want of file descriptors, say. It waits in the system's queue then."
    SESSIONS Kind::Gauge, "waypost_sessions" []
        "Sessions of clients of the older revisions, now."
    SESSIONS_OPENED Kind::Counter, "waypost_sessions_opened_total" []
        "Sessions opened."
    STREAMS_OPEN Kind::Gauge, "waypost_streams_open" ["kind"]
        "Streams that stay open to tell clients of changes, now."
    CALLS_DETACHED Kind::Gauge, "waypost_calls_detached" []
        "Calls whose client has lost its connection, now; `limits.detached_calls` bounds them."
    KEPT_EVENTS Kind::Gauge, "waypost_kept_events" []
        "Events of streams that are kept now for clients that lose their connection; `limits.kept_events` bounds them."
    KEPT_EVENT_BYTES Kind::Gauge, "waypost_kept_event_bytes" []
        "Bytes of those events; `limits.kept_bytes` bounds them."
    KEPT_EVENTS_DROPPED Kind::Counter, "waypost_kept_events_dropped_total" ["limit"]
        "Events that a limit of one session, or of all, did not let be kept until `sessions.resume_window` was over."
    STREAMS_RESUMED Kind::Counter, "waypost_streams_resumed_total" ["kind" "found"]
        "Streams of calls and of sessions that clients came back to (`Last-Event-ID`)."
    TABLE_ENTRIES Kind::Gauge, "waypost_table_entries" ["table"]
        "Entries of tables that have no gauge of their own, now; see below."
    MESSAGE_BYTES Kind::Gauge, "waypost_message_bytes" []
        "Bytes that messages of more than 64 KiB hold now, of all clients and upstreams; `limits.memory` bounds it."
    SUBSCRIPTIONS Kind::Gauge, "waypost_resource_subscriptions" ["upstream"]
        "Resources that clients have subscribed to now, each counted once for every session or stream."
    SUBSCRIPTIONS_LOST Kind::Counter, "waypost_resource_subscriptions_lost_total" ["upstream"]
        "Subscriptions of clients that the upstream would not renew after a new connection or session."
    REQUESTS_REFUSED Kind::Counter, "waypost_requests_refused_total" ["status"]
        "HTTP requests refused before they were calls: credentials, Host, Origin, shape, size, edge limit."
    CREDENTIALS_REFUSED Kind::Counter, "waypost_credentials_refused_total" ["reason"]
        "HTTP requests refused for their credentials, by what is wrong with them."
    ISSUER_KEYS Kind::Gauge, "waypost_issuer_keys" ["issuer"]
        "Public keys of an issuer of tokens that are known now; none as long as they could not be read."
    ISSUER_READS Kind::Counter, "waypost_issuer_reads_total" ["issuer" "result"]
        "Times that the keys of an issuer of tokens were read."
    LOG_LINES_DROPPED Kind::Counter, "waypost_log_lines_dropped_total" []
        "Lines of the log that are missing there, because 4 MiB of lines waited already for whoever reads it."
    AUDIT_LINES_DROPPED Kind::Counter, "waypost_audit_lines_dropped_total" []
        "Lines of the audit log that are missing there, because 4 MiB of lines waited already, or its file could not be written."
    CONFIG_INFO Kind::Gauge, "waypost_config_info" ["hash"]
        "Always 1; the label identifies the configuration in force."
    CONFIG_RELOADS Kind::Counter, "waypost_config_reloads_total" ["outcome"]
        "Times that the configuration was read again: `applied`, `unchanged` where it says what it said before, or `refused` where something is wrong with it and nothing was changed."
    CONFIG_RELOAD_OK Kind::Gauge, "waypost_config_last_reload_successful" []
        "1 if the configuration could be used when it was read last, 0 if it was refused."
    CONFIG_CHANGED Kind::Gauge, "waypost_config_last_change_timestamp_seconds" []
        "When the configuration in force was taken up, in seconds since 1970."
    CONFIG_KEPT Kind::Gauge, "waypost_config_restart_needed" []
        "1 if the file says something else than what is in force of a key that only a restart can change."
    BUILD_INFO Kind::Gauge, "waypost_build_info" ["version"]
        "Always 1; the label is the version of the program."
    START_TIME Kind::Gauge, "waypost_process_start_time_seconds" []
        "When the process started, in seconds since 1970."
    PROCESS_CPU Kind::Counter, "waypost_process_cpu_seconds_total" []
        "CPU time of the gateway itself, user and system; its children are not in it. Linux only."
    PROCESS_MEMORY Kind::Gauge, "waypost_process_resident_memory_bytes" []
        "Resident memory of the gateway itself. Linux only."
    PROCESS_FDS Kind::Gauge, "waypost_process_open_fds" []
        "Open file descriptors of the gateway. Linux only."
}

/// What each label may hold. No value ever comes from a request.
static LABELS: &[(&str, &str)] = &[
    (
        "client",
        "Its key under `clients` in the configuration, `anonymous`, or `jwt:` and an issuer for all callers that only that vouches for; empty where the caller is not known.",
    ),
    ("upstream", "Its key under `upstreams`; empty where a call was routed nowhere."),
    ("endpoint", "Its path, as it stands under `endpoints`; `/mcp` where the file has none."),
    (
        "tool",
        "The exposed name, from the catalog, as rules know it; empty where the catalog has no such name.",
    ),
    ("method", "The MCP method, of those that Waypost knows."),
    ("outcome", "How the call ended; see below."),
    (
        "scope",
        "`client`: the client's own limit. `upstream`: the limit of an upstream, all callers together. `edge`: the limit that guards the gateway itself.",
    ),
    (
        "reason",
        "`missing`, `malformed`: no token. `unknown`: no client has it. `unreadable`, `issuer`, `algorithm`, `key`, `signature`, `expired`, `not_yet_valid`, `audience`, `claims`, `subject`: what is wrong with a JWT. `scopes`, `stranger`: a good one that opens nothing. `unavailable`: the keys of its issuer are not there.",
    ),
    ("issuer", "`jwt:` and the issuer without its scheme, as the configuration has it."),
    ("result", "`ok` or `failed`."),
    ("status", "The HTTP status of the refusal."),
    ("hash", "16 hex digits over what the file and its variables said."),
    ("version", "The version of the program."),
    ("table", "`open_questions`, `departed_sessions`, `edge_callers` or `listed_tasks`; see what grows."),
    (
        "kind",
        "`session`: the GET stream of a session of the older revisions. `subscription`: one of `subscriptions/listen`. `connection`: one of HTTP+SSE. `call`: the stream of a call.",
    ),
    (
        "found",
        "What was found of a stream that a client came back to. `whole`: all that it had not received. `gap`: not all of that. `gone`: nothing.",
    ),
    ("limit", "`session`: a limit of one session. `total`: one of all sessions together."),
];

/// What grows with what clients and upstreams do: what it is, what bounds it, and the gauge that shows it.
static GROWING: &[(&str, &str, &str)] = &[
    ("Connections of clients", "`limits.connections`", "waypost_connections"),
    (
        "Calls with upstreams, and their requests in flight",
        "`limits` of clients and upstreams",
        "waypost_calls_in_flight",
    ),
    ("Sessions of the older revisions", "`limits.sessions`, `sessions.idle_timeout`", "waypost_sessions"),
    (
        "Streams that stay open, connections over HTTP+SSE among them",
        "`limits.streams` of one caller",
        "waypost_streams_open",
    ),
    (
        "Calls that wait for answers of their clients",
        "`limits.parked_calls`, `limits.answer_timeout`",
        "waypost_parked_calls",
    ),
    ("Calls whose client has lost its connection", "`limits.detached_calls`", "waypost_calls_detached"),
    (
        "Events that are kept for clients that lose their connection",
        "`limits.kept_events`, `sessions.resume_window`",
        "waypost_kept_events",
    ),
    ("Bytes of those", "`limits.kept_bytes`", "waypost_kept_event_bytes"),
    ("Resources that clients have subscribed to", "`limits.subscriptions`", "waypost_resource_subscriptions"),
    ("Bytes of large messages", "`limits.memory`", "waypost_message_bytes"),
    ("Tools that are not called for now", "1,024 of one upstream", "waypost_tool_breakers_open"),
    (
        "`open_questions`: questions that clients of the older revisions have on a stream",
        "16 of one call, `limits.answer_timeout`",
        "waypost_table_entries",
    ),
    (
        "`departed_sessions`: ids of sessions that have ended or made room, until they would have ended anyway",
        "16 times `limits.sessions`, twice; `sessions.idle_timeout`",
        "waypost_table_entries",
    ),
    (
        "`edge_callers`: callers that `limits.edge` counts, until their allowance is whole again",
        "100,000 addresses",
        "waypost_table_entries",
    ),
    (
        "`listed_tasks`: tasks that are remembered as those of a client",
        "`limits.listed_tasks` of one client",
        "waypost_table_entries",
    ),
    ("File descriptors: all of the connections, pipes and files", "the system", "waypost_process_open_fds"),
    ("Memory, all of the above included", "the system", "waypost_process_resident_memory_bytes"),
];

/// What each value of `outcome` means.
static OUTCOMES: &[(&str, &str)] = &[
    ("ok", "The upstream answered, and its result is no error."),
    ("tool_error", "The upstream answered, and its result says `isError`."),
    ("error", "The upstream answered with a JSON-RPC error of its own."),
    ("denied", "Refused: the tool is there, but not for this client."),
    ("unknown", "Refused: no such tool."),
    ("invalid", "Refused: the parameters are wrong."),
    ("rate_limited", "Refused: a limit was reached."),
    ("timeout", "The upstream did not answer in time."),
    ("unavailable", "The upstream is down, connecting, or broke the protocol."),
    ("cancelled", "The client ended the call, or went away."),
];

/// The page that documents the metrics, as Markdown.
#[must_use]
pub fn metrics_reference() -> String {
    let mut page = String::from(
        "# Metrics\n\n\
         Served as Prometheus text at `/metrics` on the admin listener. This page is made from the list in the \
         code; change it there, and run the tests with `BLESS=1`.\n\n\
         Label values come from the configuration and the catalog only, never from a request, and one metric \
         has at most 10,000 combinations of them; what comes later is counted under `(other)`.\n\n\
         | metric | kind | labels | what it says |\n| --- | --- | --- | --- |\n",
    );
    for spec in LIST {
        let kind = match spec.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram(_) => "histogram",
        };
        let labels: Vec<String> = spec.labels.iter().map(|label| format!("`{label}`")).collect();
        row(&mut page, &[&format!("`{}`", spec.name), kind, &labels.join(", "), spec.help]);
    }
    page.push_str("\n## Labels\n\n| label | values |\n| --- | --- |\n");
    for (label, values) in LABELS {
        row(&mut page, &[&format!("`{label}`"), values]);
    }
    page.push_str(
        "\n## What grows\n\nEverything that grows with what clients and upstreams do has a bound and a gauge.\n\n\
         | what | bound | gauge |\n| --- | --- | --- |\n",
    );
    for (what, bound, gauge) in GROWING {
        row(&mut page, &[what, bound, &format!("`{gauge}`")]);
    }
    page.push_str("\n## Outcomes\n\n| `outcome` | meaning |\n| --- | --- |\n");
    for (outcome, meaning) in OUTCOMES {
        row(&mut page, &[&format!("`{outcome}`"), meaning]);
    }
    page.push_str("\n## Buckets\n\n");
    for spec in LIST {
        if let Kind::Histogram(buckets) = spec.kind {
            let bounds: Vec<String> = buckets.iter().map(f64::to_string).collect();
            let _infallible = writeln!(page, "- `{}`: {}", spec.name, bounds.join(", "));
        }
    }
    page
}

fn row(page: &mut String, cells: &[&str]) {
    let _infallible = writeln!(page, "| {} |", cells.join(" | "));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::CallOutcome;

    #[test]
    fn names_follow_the_rules_of_prometheus() {
        for spec in LIST {
            let name = spec.name;
            assert!(name.starts_with("waypost_"), "{name}");
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
            assert_eq!(spec.kind == Kind::Counter, name.ends_with("_total"), "{name}");
            for unit in ["_ms", "milliseconds", "_kib", "minutes"] {
                assert!(!name.contains(unit), "{name}: base units only");
            }
            if let Kind::Histogram(buckets) = spec.kind {
                assert!(buckets.is_sorted() && !buckets.is_empty(), "{name}");
                assert!(name.ends_with("_seconds"), "{name}");
            }
            assert!(spec.help.ends_with('.') && spec.labels.len() <= 8, "{name}");
        }
        let mut names: Vec<_> = LIST.iter().map(|spec| spec.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), LIST.len());
    }

    #[test]
    fn what_grows_has_a_gauge_that_there_is() {
        for (what, bound, gauge) in GROWING {
            let spec = LIST.iter().find(|spec| spec.name == *gauge);
            assert!(spec.is_some_and(|spec| spec.kind == Kind::Gauge), "{what}: {gauge}");
            assert!(!bound.is_empty(), "{what}");
        }
        for table in crate::telemetry::Table::ALL {
            let named = format!("`{}`:", table.as_str());
            assert_eq!(GROWING.iter().filter(|(what, _, _)| what.starts_with(&named)).count(), 1, "{named}");
        }
    }

    #[test]
    fn every_label_and_outcome_is_explained() {
        for label in LIST.iter().flat_map(|spec| spec.labels) {
            assert!(LABELS.iter().any(|(name, _)| name == label), "{label}");
        }
        let explained: Vec<_> = OUTCOMES.iter().map(|(name, _)| *name).collect();
        let labels: Vec<_> = CallOutcome::ALL.iter().map(|outcome| outcome.as_str()).collect();
        assert_eq!(explained, labels);
    }

    #[test]
    fn the_documentation_is_that_of_the_list() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/metrics.md");
        let page = metrics_reference();
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(path, &page).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        assert!(committed == page, "docs/metrics.md is stale: run the tests with BLESS=1 and commit it");
    }
}
