//! Keeps the snapshot true to what the upstreams offer.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::select_all;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{Current, Gateway, Offer};
use crate::catalog::{Listed, Snapshot, Source};
use crate::config::{Config, Filter, Pattern, RoleConfig, Rules, Sight, Subject};
use crate::mcp::{Hints, ListKind, PerKind};
use crate::telemetry::{EntrySkipped, RuleUnmatched};

/// How often callers at the edge are swept.
const SWEEP: Duration = Duration::from_secs(60);
/// How long changes are gathered before those who listen are told.
const GATHER: Duration = Duration::from_millis(100);

/// The kinds with a filter of their own, and its key.
const FILTERED: [(ListKind, &str); 3] =
    [(ListKind::Tools, "tools"), (ListKind::Resources, "resources"), (ListKind::Prompts, "prompts")];

/// The filters that hold for each client at an endpoint.
fn filters(config: &Config, endpoint: usize) -> impl Iterator<Item = PerKind<Vec<Filter>>> {
    (0..config.clients.len()).map(move |client| {
        let of = |kind| {
            config
                .layers(endpoint, client, &[])
                .into_iter()
                .flatten()
                .map(|layer| layer.rules.filter(kind).clone())
                .collect()
        };
        PerKind::of(of)
    })
}

/// What the endpoints have before anything is offered.
pub(super) fn empty(config: &Config) -> Vec<Snapshot> {
    let endpoints = 0..config.endpoints.len();
    let roles = || config.roles.iter().map(role_filters);
    endpoints
        .map(|endpoint| Snapshot::merge(std::iter::empty(), filters(config, endpoint), roles()))
        .collect()
}

/// The filters of a role.
fn role_filters(role: &Arc<RoleConfig>) -> PerKind<&Filter> {
    PerKind::of(|kind| role.rules.filter(kind))
}

impl Gateway {
    /// Rebuilds the snapshot whenever an upstream's offer changes, and has those who listen look when a resource
    /// that somebody follows was updated, until `stop`.
    pub async fn refresh(self: Arc<Self>, stop: CancellationToken) {
        let mut offers: Vec<_> = self.upstreams.iter().map(|upstream| upstream.offer()).collect();
        let mut news: Vec<_> = self.upstreams.iter().map(|upstream| upstream.followed().news()).collect();
        let mut reported = HashSet::new();
        let mut sweep = tokio::time::interval(SWEEP);
        let mut told_at = None;
        loop {
            let seen =
                offers.iter_mut().map(|offer| Arc::clone(&offer.borrow_and_update())).collect::<Vec<_>>();
            self.rebuild(&seen, &mut reported);
            told_at.get_or_insert_with(|| Instant::now() + GATHER);
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    _ = sweep.tick() => self.sweep(),
                    () = until(told_at) => {
                        told_at = None;
                        self.lineage.feed.beat();
                    }
                    () = any_change(&mut news) => {
                        news.iter_mut().for_each(|news| news.mark_unchanged());
                        told_at.get_or_insert_with(|| Instant::now() + GATHER);
                    }
                    () = any_change(&mut offers) => break,
                }
            }
        }
    }

    /// Serves what the upstreams offer now, without a word about it.
    pub(super) fn take_stock(&self) {
        let offers: Vec<_> =
            self.upstreams.iter().map(|upstream| Arc::clone(&upstream.offer().borrow())).collect();
        let snapshots = self.merge_all(&offers);
        self.current.store(Arc::new(Current::new(snapshots, offers)));
    }

    fn merge_all(&self, offers: &[Arc<Offer>]) -> Vec<Snapshot> {
        (0..self.config.endpoints.len()).map(|endpoint| self.merge(endpoint, offers)).collect()
    }

    fn rebuild(&self, offers: &[Arc<Offer>], reported: &mut HashSet<String>) {
        let snapshots = self.merge_all(offers);
        self.report(&snapshots, offers, &mut Reported { before: std::mem::take(reported), now: reported });
        self.current.store(Arc::new(Current::new(snapshots, offers.to_vec())));
    }

    fn merge(&self, endpoint: usize, offers: &[Arc<Offer>]) -> Snapshot {
        let sources = self.config.upstreams_in_order().filter_map(|upstream| {
            let (known_names, offer) = (self.names.get(upstream.index)?, offers.get(upstream.index)?);
            Some(Source {
                upstream: upstream.index,
                label: &upstream.name,
                names: self.names_at(endpoint, upstream.index)?,
                known_names,
                filters: PerKind::of(|kind| upstream.rules.filter(kind)),
                lists: PerKind::of(|kind| offer.lists.kind(kind).entries.as_slice()),
            })
        });
        Snapshot::merge(sources, filters(&self.config, endpoint), self.config.roles.iter().map(role_filters))
    }

    /// Says once what was left out, and which rules match nothing now that the tools are known.
    fn report(&self, snapshots: &[Snapshot], offers: &[Arc<Offer>], reported: &mut Reported<'_>) {
        for finding in snapshots.iter().flat_map(|snapshot| &snapshot.findings) {
            let upstream = self.config.upstreams.get(finding.upstream).map(|u| &*u.name).unwrap_or_default();
            if reported.is_new(format!("{upstream}/{}/{}", finding.native, finding.reason)) {
                EntrySkipped { upstream, entry: &finding.native, reason: &finding.reason }
                    .emit(&self.metrics);
            }
        }
        let is_ready = |offer: &Arc<Offer>| offer.health.takes_calls();
        let known = self.config.upstreams_in_order();
        let known = known.filter_map(|upstream| Some((upstream, offers.get(upstream.index)?)));
        for (upstream, offer) in known.clone().filter(|(_, offer)| is_ready(offer)) {
            for (kind, key) in FILTERED {
                let scope = format!("upstreams.{}.{key}", upstream.name);
                let entries = &offer.lists.kind(kind).entries;
                // What a template can make is not known.
                let is_open = kind == ListKind::Resources && !offer.lists.templates.entries.is_empty();
                let subjects: Vec<Subject<'_>> = entries.iter().map(|listed| subject(kind, listed)).collect();
                for pattern in unmatched(upstream.rules.filter(kind), &subjects).filter(|_| !is_open) {
                    self.report_rule(&scope, pattern, reported);
                }
            }
        }
        if known.map(|(_, offer)| offer).all(is_ready) {
            for (place, endpoint) in self.config.endpoints_there() {
                let Some(snapshot) = snapshots.get(place) else { continue };
                let scope = format!("endpoints.{}", endpoint.path);
                self.report_rules(&scope, &endpoint.rules, std::slice::from_ref(snapshot), reported);
            }
            let roles = self.config.roles.iter().filter(|role| !role.name.is_empty());
            let roles = roles.map(|role| (format!("roles.{}", role.name), &role.rules));
            let clients = self.config.clients_there();
            let clients = clients.map(|(_, client)| (format!("clients.{}", client.name), &client.rules));
            for (scope, rules) in roles.chain(clients) {
                self.report_rules(&scope, rules, snapshots, reported);
            }
        }
    }

    fn report_rules(&self, scope: &str, rules: &Rules, snapshots: &[Snapshot], reported: &mut Reported<'_>) {
        for (kind, key) in FILTERED {
            let has_templates = |snapshot: &Snapshot| !snapshot.entries(ListKind::Templates).is_empty();
            let is_open = kind == ListKind::Resources && snapshots.iter().any(has_templates);
            let entries = snapshots.iter().flat_map(|snapshot| snapshot.entries(kind));
            let subjects: Vec<Subject<'_>> = entries.map(|entry| entry.candidate(kind).subject()).collect();
            for pattern in unmatched(rules.filter(kind), &subjects).filter(|_| !is_open) {
                self.report_rule(&format!("{scope}.{key}"), pattern, reported);
            }
        }
    }

    fn report_rule(&self, scope: &str, pattern: &str, reported: &mut Reported<'_>) {
        if reported.is_new(format!("{scope}/{pattern}")) {
            RuleUnmatched { scope, pattern }.emit();
        }
    }
}

/// What has been said of the last snapshot, and what of this one: a finding is said when it is new, and only
/// those of one snapshot are kept.
struct Reported<'a> {
    before: HashSet<String>,
    now: &'a mut HashSet<String>,
}

impl Reported<'_> {
    fn is_new(&mut self, finding: String) -> bool {
        let is_new = !self.before.contains(&finding) && !self.now.contains(&finding);
        self.now.insert(finding);
        is_new
    }
}

/// An entry as the rules of its upstream see it.
fn subject(kind: ListKind, listed: &Listed) -> Subject<'_> {
    let hints = if kind == ListKind::Tools { Hints::of(listed.text.bytes()) } else { Hints::default() };
    Subject { name: &listed.name, hints: Sight::Seen(hints) }
}

/// The patterns that match none of `subjects`.
fn unmatched<'a>(filter: &'a Filter, subjects: &'a [Subject<'_>]) -> impl Iterator<Item = &'a str> {
    let is_unmatched = |pattern: &&Pattern| !subjects.iter().any(|subject| pattern.matches(*subject));
    filter.patterns().filter(is_unmatched).map(Pattern::as_str)
}

/// Waits for a time that may not come.
async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Waits until one of the values changes; for ever if there are none, or all upstreams have ended.
async fn any_change<T: Send + Sync>(values: &mut [tokio::sync::watch::Receiver<T>]) {
    let changes = values.iter_mut().map(|value| {
        async {
            if value.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
        .boxed()
    });
    let changes: Vec<_> = changes.collect();
    if changes.is_empty() {
        return std::future::pending().await;
    }
    select_all(changes).await;
}
