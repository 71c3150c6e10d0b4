//! The metrics of one gateway, counted by the events and read by the admin listener.
//!
//! Must not know: who scrapes, and who emits.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus::proto::{Counter, Gauge as GaugeValue, Metric, MetricFamily, MetricType};
use prometheus::{Gauge, Histogram, IntCounter, IntGauge, TextEncoder};

use super::family::{Family, Forgetful};
use super::list::{self, Spec};
use super::process;
use super::throttle::Throttle;
use super::writer::{dropped_audit_lines, dropped_lines};
use crate::config::Config;
use crate::exchange::Budget;

/// The content type of [`Metrics::render`].
pub const METRICS_CONTENT_TYPE: &str = prometheus::TEXT_FORMAT;

/// Lines of a kind that a misbehaving peer could repeat for ever: so many per minute and peer.
const LINES_PER_MINUTE: u32 = 20;

/// Lines of stderr that are logged per minute and child.
const STDERR_LINES_PER_MINUTE: u32 = 1_000;

/// All metrics of one gateway; several gateways in one process count apart.
///
/// Counting costs a hash of the labels and a read lock. Also keeps what bounds the log lines of the events.
#[derive(Debug)]
pub struct Metrics {
    pub(super) calls: Family<IntCounter>,
    pub(super) endpoint_calls: Family<IntCounter>,
    pub(super) call_duration: Family<Histogram>,
    pub(super) overhead: Family<Histogram>,
    pub(super) request_bytes: Family<IntCounter>,
    pub(super) response_bytes: Family<IntCounter>,
    calls_in_flight: Family<IntGauge>,
    pub(super) questions: Family<IntCounter>,
    pub(super) parked: Family<IntGauge>,
    pub(super) rate_limited: Family<IntCounter>,
    pub(super) up: Family<IntGauge>,
    pub(super) idle: Family<IntGauge>,
    pub(super) idle_stops: Family<IntCounter>,
    pub(super) over_bounds: Family<IntCounter>,
    pub(super) connects: Family<IntCounter>,
    pub(super) restarts: Family<IntCounter>,
    pub(super) connect_failures: Family<IntCounter>,
    own_connections: Family<IntGauge>,
    own_connections_opened: Family<IntCounter>,
    pub(super) failures: Family<IntGauge>,
    pub(super) breaker: Family<IntGauge>,
    pub(super) tool_breakers: Family<IntGauge>,
    pub(super) repeated: Family<IntCounter>,
    pub(super) checks_missed: Family<IntCounter>,
    pub(super) noise: Family<IntCounter>,
    pub(super) events_missed: Family<IntCounter>,
    pub(super) tools: Family<IntGauge>,
    pub(super) entries_skipped: Family<IntCounter>,
    pub(super) connections: Family<IntGauge>,
    pub(super) accept_failures: Family<IntCounter>,
    entries: Family<IntGauge>,
    pub(super) sessions: Family<IntGauge>,
    pub(super) sessions_opened: Family<IntCounter>,
    streams_open: Family<IntGauge>,
    pub(super) detached: Family<IntGauge>,
    pub(super) kept_events: Family<IntGauge>,
    pub(super) kept_bytes: Family<IntGauge>,
    pub(super) kept_dropped: Family<IntCounter>,
    pub(super) resumed: Family<IntCounter>,
    pub(super) subscriptions: Family<IntGauge>,
    pub(super) subscriptions_lost: Family<IntCounter>,
    pub(super) refused: Family<IntCounter>,
    pub(super) credentials_refused: Family<IntCounter>,
    pub(super) issuer_keys: Family<IntGauge>,
    pub(super) issuer_reads: Family<IntCounter>,
    pub(super) config: Family<IntGauge>,
    pub(super) reloads: Family<IntCounter>,
    pub(super) reload_ok: Family<IntGauge>,
    pub(super) config_changed: Family<Gauge>,
    pub(super) config_kept: Family<IntGauge>,
    build: Family<IntGauge>,
    start: Family<Gauge>,
    budget: Budget,
    pub(super) gap_lines: Throttle,
    pub(super) noise_lines: Throttle,
    pub(super) missed_lines: Throttle,
    pub(super) refusal_lines: Throttle,
    pub(super) entry_lines: Throttle,
    pub(super) stderr_lines: Throttle,
    pub(super) subscription_lines: Throttle,
}

impl Default for Metrics {
    fn default() -> Self {
        let minute = Duration::from_secs(60);
        let metrics = Self {
            calls: Family::new(&list::CALLS),
            endpoint_calls: Family::new(&list::ENDPOINT_CALLS),
            call_duration: Family::new(&list::CALL_DURATION),
            overhead: Family::new(&list::GATEWAY_OVERHEAD),
            request_bytes: Family::new(&list::CALL_REQUEST_BYTES),
            response_bytes: Family::new(&list::CALL_RESPONSE_BYTES),
            calls_in_flight: Family::new(&list::CALLS_IN_FLIGHT),
            questions: Family::new(&list::QUESTIONS),
            parked: Family::new(&list::PARKED_CALLS),
            rate_limited: Family::new(&list::RATE_LIMITED),
            up: Family::new(&list::UPSTREAM_UP),
            idle: Family::new(&list::UPSTREAM_IDLE),
            idle_stops: Family::new(&list::UPSTREAM_IDLE_STOPS),
            over_bounds: Family::new(&list::PROCESS_OVER_BOUNDS),
            connects: Family::new(&list::UPSTREAM_CONNECTS),
            restarts: Family::new(&list::UPSTREAM_RESTARTS),
            connect_failures: Family::new(&list::UPSTREAM_CONNECT_FAILURES),
            own_connections: Family::new(&list::OWN_CONNECTIONS),
            own_connections_opened: Family::new(&list::OWN_CONNECTIONS_OPENED),
            failures: Family::new(&list::UPSTREAM_FAILURES),
            breaker: Family::new(&list::BREAKER_OPEN),
            tool_breakers: Family::new(&list::TOOL_BREAKERS_OPEN),
            repeated: Family::new(&list::CALLS_REPEATED),
            checks_missed: Family::new(&list::HEALTH_CHECKS_MISSED),
            noise: Family::new(&list::UPSTREAM_NOISE),
            events_missed: Family::new(&list::EVENTS_MISSED),
            tools: Family::new(&list::UPSTREAM_TOOLS),
            entries_skipped: Family::new(&list::ENTRIES_SKIPPED),
            connections: Family::new(&list::CONNECTIONS),
            accept_failures: Family::new(&list::ACCEPT_FAILURES),
            entries: Family::new(&list::TABLE_ENTRIES),
            sessions: Family::new(&list::SESSIONS),
            sessions_opened: Family::new(&list::SESSIONS_OPENED),
            streams_open: Family::new(&list::STREAMS_OPEN),
            detached: Family::new(&list::CALLS_DETACHED),
            kept_events: Family::new(&list::KEPT_EVENTS),
            kept_bytes: Family::new(&list::KEPT_EVENT_BYTES),
            kept_dropped: Family::new(&list::KEPT_EVENTS_DROPPED),
            resumed: Family::new(&list::STREAMS_RESUMED),
            subscriptions: Family::new(&list::SUBSCRIPTIONS),
            subscriptions_lost: Family::new(&list::SUBSCRIPTIONS_LOST),
            refused: Family::new(&list::REQUESTS_REFUSED),
            credentials_refused: Family::new(&list::CREDENTIALS_REFUSED),
            issuer_keys: Family::new(&list::ISSUER_KEYS),
            issuer_reads: Family::new(&list::ISSUER_READS),
            config: Family::new(&list::CONFIG_INFO),
            reloads: Family::new(&list::CONFIG_RELOADS),
            reload_ok: Family::new(&list::CONFIG_RELOAD_OK),
            config_changed: Family::new(&list::CONFIG_CHANGED),
            config_kept: Family::new(&list::CONFIG_KEPT),
            build: Family::new(&list::BUILD_INFO),
            start: Family::new(&list::START_TIME),
            budget: Budget::new(usize::MAX),
            gap_lines: Throttle::new(LINES_PER_MINUTE, minute),
            noise_lines: Throttle::new(1, minute),
            missed_lines: Throttle::new(1, minute),
            refusal_lines: Throttle::new(LINES_PER_MINUTE, minute),
            entry_lines: Throttle::new(LINES_PER_MINUTE, minute),
            stderr_lines: Throttle::new(STDERR_LINES_PER_MINUTE, minute),
            subscription_lines: Throttle::new(LINES_PER_MINUTE, minute),
        };
        metrics.start_at_zero();
        metrics
    }
}

impl Metrics {
    /// The metrics of a gateway with this configuration: every upstream is there from the start, as down,
    /// so that a dead fleet does not look like an idle one.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let upstreams = config.upstreams.iter().map(|upstream| &*upstream.name);
        let clients = config.clients.iter().map(|client| &*client.name);
        let budget = Budget::new(config.limits.memory);
        Self { budget, ..Self::at_start(&config.hash, upstreams, clients) }
    }

    fn at_start<'a>(
        hash: &str,
        upstreams: impl Iterator<Item = &'a str>,
        clients: impl Iterator<Item = &'a str>,
    ) -> Self {
        let metrics = Self::default();
        metrics.config.with(&[hash], |cell| cell.set(1));
        upstreams.for_each(|upstream| metrics.register_upstream(upstream));
        clients.for_each(|client| metrics.register_client(client));
        metrics
    }

    /// Metrics of no configuration, for unit tests.
    #[must_use]
    pub fn for_test() -> Self {
        Self::default()
    }

    fn start_at_zero(&self) {
        self.build.with(&[env!("CARGO_PKG_VERSION")], |cell| cell.set(1));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.start.with(&[], |cell| cell.set(now.as_secs_f64()));
        self.overhead.cell(&[]);
        self.parked.cell(&[]);
        self.connections.cell(&[]);
        Table::ALL.iter().for_each(|table| drop(self.entries.cell(&[table.as_str()])));
        self.accept_failures.cell(&[]);
        self.sessions.cell(&[]);
        self.sessions_opened.cell(&[]);
        for kind in StreamKind::ALL {
            self.streams_open.cell(&[kind.as_str()]);
        }
        self.start_resumption_at_zero();
        self.start_reloads_at_zero();
    }

    pub(super) fn register_upstream(&self, upstream: &str) {
        let labels = [upstream];
        let gauges = [
            &self.up,
            &self.idle,
            &self.tools,
            &self.calls_in_flight,
            &self.own_connections,
            &self.subscriptions,
            &self.failures,
            &self.breaker,
            &self.tool_breakers,
        ];
        for gauge in gauges {
            gauge.cell(&labels);
        }
        let counters = [
            &self.connects,
            &self.idle_stops,
            &self.over_bounds,
            &self.restarts,
            &self.connect_failures,
            &self.own_connections_opened,
            &self.noise,
            &self.repeated,
            &self.checks_missed,
            &self.events_missed,
            &self.entries_skipped,
            &self.request_bytes,
            &self.response_bytes,
            &self.questions,
            &self.subscriptions_lost,
        ];
        for counter in counters {
            counter.cell(&labels);
        }
    }

    /// Forgets every series with these labels.
    pub(super) fn forget(&self, labels: &[(&str, &str)]) {
        let families: [&dyn Forgetful; 26] = [
            &self.calls,
            &self.call_duration,
            &self.request_bytes,
            &self.response_bytes,
            &self.calls_in_flight,
            &self.questions,
            &self.up,
            &self.idle,
            &self.idle_stops,
            &self.over_bounds,
            &self.connects,
            &self.restarts,
            &self.connect_failures,
            &self.own_connections,
            &self.own_connections_opened,
            &self.failures,
            &self.breaker,
            &self.tool_breakers,
            &self.repeated,
            &self.checks_missed,
            &self.noise,
            &self.events_missed,
            &self.tools,
            &self.entries_skipped,
            &self.subscriptions,
            &self.subscriptions_lost,
        ];
        families.into_iter().for_each(|family| family.forget(labels));
    }

    /// What large messages may take of the memory; the gauge shows what they hold.
    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Whether the breaker of an upstream is open.
    #[must_use]
    pub fn is_breaker_open(&self, upstream: &str) -> bool {
        self.breaker.cell(&[upstream]).is_some_and(|cell| cell.get() > 0)
    }

    /// How many calls are with `upstream` now.
    #[must_use]
    pub fn calls_in_flight(&self, upstream: &str) -> u64 {
        let gauge = self.calls_in_flight.cell(&[upstream]);
        gauge.map_or(0, |gauge| u64::try_from(gauge.get()).unwrap_or_default())
    }

    /// An upstream has failed so often in a row; zero once it has lasted.
    pub fn set_failures(&self, upstream: &str, failures: u32) {
        self.failures.with(&[upstream], |cell| cell.set(failures.into()));
    }

    /// Counts a call as being with `upstream` until the guard is dropped.
    pub fn in_flight(&self, upstream: &str) -> InFlight {
        let gauge = self.calls_in_flight.cell(&[upstream]);
        if let Some(gauge) = &gauge {
            gauge.inc();
        }
        InFlight(gauge)
    }

    /// So many connections of clients are open.
    pub fn set_connections(&self, count: usize) {
        self.connections.with(&[], |cell| cell.set(i64::try_from(count).unwrap_or(i64::MAX)));
    }

    /// A table has so many entries.
    pub fn set_entries(&self, table: Table, count: usize) {
        self.entries.with(&[table.as_str()], |cell| cell.set(i64::try_from(count).unwrap_or(i64::MAX)));
    }

    /// Counts an entry of a table until the guard is dropped.
    pub fn enter(&self, table: Table) -> Entered {
        let gauge = self.entries.cell(&[table.as_str()]);
        if let Some(gauge) = &gauge {
            gauge.inc();
        }
        Entered(gauge)
    }

    /// Counts a stream as open until the guard is dropped.
    pub fn open_stream(&self, kind: StreamKind) -> OpenStream {
        let gauge = self.streams_open.cell(&[kind.as_str()]);
        if let Some(gauge) = &gauge {
            gauge.inc();
        }
        OpenStream(gauge)
    }

    /// Counts a connection of one client or session as open until the guard is dropped.
    pub fn own_connection(&self, upstream: &str) -> OwnConnection {
        self.own_connections_opened.with(&[upstream], IntCounter::inc);
        let gauge = self.own_connections.cell(&[upstream]);
        if let Some(gauge) = &gauge {
            gauge.inc();
        }
        OwnConnection(gauge)
    }

    /// How many connections of one client or session each an upstream has now.
    #[must_use]
    pub fn own_connections(&self, upstream: &str) -> u64 {
        let gauge = self.own_connections.cell(&[upstream]);
        gauge.and_then(|gauge| u64::try_from(gauge.get()).ok()).unwrap_or_default()
    }

    /// Everything, as Prometheus text (`version=0.0.4`). Reads files under `/proc`: not for a thread that
    /// serves others meanwhile.
    #[must_use]
    pub fn render(&self) -> String {
        let families: Vec<MetricFamily> =
            self.collect().into_iter().filter(|family| !family.get_metric().is_empty()).collect();
        // Fails only for families without a name or without cells, of which there are none left.
        TextEncoder::new().encode_to_string(&families).unwrap_or_default()
    }

    /// All families in the order of the list.
    fn collect(&self) -> Vec<MetricFamily> {
        let usage = process::usage();
        vec![
            self.calls.collect(),
            self.endpoint_calls.collect(),
            self.call_duration.collect(),
            self.overhead.collect(),
            self.request_bytes.collect(),
            self.response_bytes.collect(),
            self.calls_in_flight.collect(),
            self.questions.collect(),
            self.parked.collect(),
            self.rate_limited.collect(),
            self.up.collect(),
            self.idle.collect(),
            self.idle_stops.collect(),
            self.over_bounds.collect(),
            self.connects.collect(),
            self.restarts.collect(),
            self.connect_failures.collect(),
            self.own_connections.collect(),
            self.own_connections_opened.collect(),
            self.failures.collect(),
            self.breaker.collect(),
            self.tool_breakers.collect(),
            self.repeated.collect(),
            self.checks_missed.collect(),
            self.noise.collect(),
            self.events_missed.collect(),
            self.tools.collect(),
            self.entries_skipped.collect(),
            self.connections.collect(),
            self.accept_failures.collect(),
            self.sessions.collect(),
            self.sessions_opened.collect(),
            self.streams_open.collect(),
            self.detached.collect(),
            self.kept_events.collect(),
            self.kept_bytes.collect(),
            self.kept_dropped.collect(),
            self.resumed.collect(),
            self.entries.collect(),
            gauge(&list::MESSAGE_BYTES, Some(self.budget.held() as u64)),
            self.subscriptions.collect(),
            self.subscriptions_lost.collect(),
            self.refused.collect(),
            self.credentials_refused.collect(),
            self.issuer_keys.collect(),
            self.issuer_reads.collect(),
            counter(&list::LOG_LINES_DROPPED, Some(dropped_lines() as f64)),
            counter(&list::AUDIT_LINES_DROPPED, Some(dropped_audit_lines() as f64)),
            self.config.collect(),
            self.reloads.collect(),
            self.reload_ok.collect(),
            self.config_changed.collect(),
            self.config_kept.collect(),
            self.build.collect(),
            self.start.collect(),
            counter(&list::PROCESS_CPU, usage.cpu_seconds),
            gauge(&list::PROCESS_MEMORY, usage.resident_bytes),
            gauge(&list::PROCESS_FDS, usage.open_fds),
        ]
    }
}

fn family(spec: &Spec, kind: MetricType, metric: Option<Metric>) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(spec.name.to_owned());
    family.set_help(spec.help.to_owned());
    family.set_field_type(kind);
    family.set_metric(metric.into_iter().collect());
    family
}

fn counter(spec: &Spec, value: Option<f64>) -> MetricFamily {
    let metric = value.map(|number| {
        let mut value = Counter::default();
        value.set_value(number);
        let mut metric = Metric::default();
        metric.set_counter(value);
        metric
    });
    family(spec, MetricType::COUNTER, metric)
}

fn gauge(spec: &Spec, value: Option<u64>) -> MetricFamily {
    let metric = value.map(|number| {
        let mut value = GaugeValue::default();
        value.set_value(number as f64);
        Metric::from_gauge(value)
    });
    family(spec, MetricType::GAUGE, metric)
}

/// A call that is with an upstream, as long as this lives.
#[derive(Debug)]
#[must_use = "the call counts as ended once this is dropped"]
pub struct InFlight(Option<IntGauge>);

impl Drop for InFlight {
    fn drop(&mut self) {
        if let Some(gauge) = &self.0 {
            gauge.dec();
        }
    }
}

/// A connection of one client or session that is open, as long as this lives.
#[derive(Debug)]
#[must_use = "the connection counts as ended once this is dropped"]
pub struct OwnConnection(Option<IntGauge>);

impl Drop for OwnConnection {
    fn drop(&mut self) {
        if let Some(gauge) = &self.0 {
            gauge.dec();
        }
    }
}

/// A stream that is open, as long as this lives.
#[derive(Debug)]
#[must_use = "the stream counts as closed once this is dropped"]
pub struct OpenStream(Option<IntGauge>);

impl Drop for OpenStream {
    fn drop(&mut self) {
        if let Some(gauge) = &self.0 {
            gauge.dec();
        }
    }
}

/// A table that grows with what clients do, and has no gauge of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// Questions that clients have on a stream.
    OpenQuestions,
    /// Ids of sessions that are no more.
    DepartedSessions,
    /// Callers that the edge limit counts.
    EdgeCallers,
    /// Tasks that are remembered as those of a client.
    ListedTasks,
}

impl Table {
    /// All of them.
    pub(super) const ALL: [Self; 4] =
        [Self::OpenQuestions, Self::DepartedSessions, Self::EdgeCallers, Self::ListedTasks];

    /// As the label says it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OpenQuestions => "open_questions",
            Self::DepartedSessions => "departed_sessions",
            Self::EdgeCallers => "edge_callers",
            Self::ListedTasks => "listed_tasks",
        }
    }
}

/// An entry of a table, as long as this lives.
#[derive(Debug)]
#[must_use = "the entry counts as gone once this is dropped"]
pub struct Entered(Option<IntGauge>);

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(gauge) = &self.0 {
            gauge.dec();
        }
    }
}

/// What a stream that stays open belongs to, as a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    /// A session of the older revisions.
    Session,
    /// A subscription.
    Subscription,
    /// A connection over HTTP+SSE.
    Connection,
}

impl StreamKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Session, Self::Subscription, Self::Connection];

    /// The label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Subscription => "subscription",
            Self::Connection => "connection",
        }
    }
}

/// Whose limit refused a call or a request, as a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LimitScope {
    /// The client's own.
    Client,
    /// That of an upstream, all callers together.
    Upstream,
    /// The one that guards the gateway itself.
    Edge,
}

impl LimitScope {
    /// All scopes.
    pub const ALL: [Self; 3] = [Self::Client, Self::Upstream, Self::Edge];

    /// The label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Upstream => "upstream",
            Self::Edge => "edge",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_rendered_is_what_is_listed() {
        let metrics = Metrics::for_test();
        metrics.register_upstream("u");
        metrics.config.cell(&["0"]);
        metrics.calls.cell(&["c", "u", "t", "tools/call", "ok"]);
        metrics.endpoint_calls.cell(&["/mcp", "c", "ok"]);
        metrics.call_duration.cell(&["u", "tools/call"]);
        metrics.rate_limited.cell(&["c", "client"]);
        metrics.refused.cell(&["401"]);
        metrics.credentials_refused.cell(&["missing"]);
        metrics.issuer_keys.cell(&["jwt:as.example"]);
        metrics.issuer_reads.cell(&["jwt:as.example", "ok"]);
        let text = metrics.render();
        let rendered: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE ").and_then(|rest| rest.split(' ').next()))
            .collect();
        let listed: Vec<&str> = list::LIST
            .iter()
            .map(|spec| spec.name)
            .filter(|name| cfg!(target_os = "linux") || !name.contains("process_"))
            .collect();
        assert_eq!(rendered, listed);
    }

    #[test]
    fn met_03_of_an_upstream_that_is_no_more_nothing_is_left() {
        let metrics = Metrics::for_test();
        metrics.register_upstream("gone");
        metrics.register_upstream("kept");
        metrics.calls.cell(&["c", "gone", "t", "tools/call", "ok"]);
        metrics.call_duration.cell(&["gone", "tools/call"]);
        let known = metrics.render().matches("upstream=\"kept\"").count();
        metrics.forget_upstream("gone");
        let text = metrics.render();
        assert!(!text.contains("upstream=\"gone\""), "{text}");
        assert_eq!(text.matches("upstream=\"kept\"").count(), known);
    }

    #[test]
    fn met_03_an_upstream_is_there_before_it_ever_was_up() {
        let text = Metrics::at_start("0123", ["dead"].into_iter(), ["ci"].into_iter()).render();
        for line in [
            "waypost_config_info{hash=\"0123\"} 1",
            "waypost_rate_limited_total{client=\"ci\",scope=\"client\"} 0",
            "waypost_upstream_up{upstream=\"dead\"} 0",
            "waypost_upstream_connects_total{upstream=\"dead\"} 0",
            "waypost_upstream_connect_failures_total{upstream=\"dead\"} 0",
            "waypost_calls_in_flight{upstream=\"dead\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
    }

    #[test]
    fn calls_in_flight_end_with_their_guard() {
        let metrics = Metrics::for_test();
        let one = metrics.in_flight("u");
        let other = metrics.in_flight("u");
        assert!(metrics.render().contains("waypost_calls_in_flight{upstream=\"u\"} 2"));
        drop((one, other));
        assert!(metrics.render().contains("waypost_calls_in_flight{upstream=\"u\"} 0"));
    }

    #[test]
    fn open_streams_are_there_at_zero_and_end_with_their_guard() {
        let metrics = Metrics::for_test();
        let one = metrics.open_stream(StreamKind::Session);
        let text = metrics.render();
        assert!(text.contains("waypost_streams_open{kind=\"session\"} 1"), "{text}");
        assert!(text.contains("waypost_streams_open{kind=\"subscription\"} 0"), "{text}");
        drop(one);
        assert!(metrics.render().contains("waypost_streams_open{kind=\"session\"} 0"));
    }

    #[test]
    fn label_values_are_escaped() {
        let metrics = Metrics::for_test();
        metrics.up.cell(&["a\"\n\\b"]);
        assert!(metrics.render().contains(r#"waypost_upstream_up{upstream="a\"\n\\b"} 0"#));
    }

    #[test]
    fn two_gateways_count_apart() {
        let (one, other) = (Metrics::for_test(), Metrics::for_test());
        one.sessions_opened.with(&[], IntCounter::inc);
        assert!(one.render().contains("waypost_sessions_opened_total 1"));
        assert!(other.render().contains("waypost_sessions_opened_total 0"));
    }
}
