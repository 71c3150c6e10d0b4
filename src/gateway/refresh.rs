//! Keeps the snapshot true to what the upstreams offer.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::select_all;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{Current, Gateway, Offer};
use crate::catalog::{Snapshot, Source};
use crate::config::{ClientConfig, Filter, Pattern, Rules};
use crate::mcp::{ListKind, PerKind};
use crate::telemetry::{EntrySkipped, RuleUnmatched};

/// How often callers at the edge are swept.
const SWEEP: Duration = Duration::from_secs(60);
/// How long changes are gathered before those who listen are told.
const GATHER: Duration = Duration::from_millis(100);

/// The kinds with a filter of their own, and its key.
const FILTERED: [(ListKind, &str); 3] =
    [(ListKind::Tools, "tools"), (ListKind::Resources, "resources"), (ListKind::Prompts, "prompts")];

/// The filters of a client's layers.
pub(super) fn filters(client: &ClientConfig) -> PerKind<Vec<Filter>> {
    PerKind::of(|kind| client.layers().map(|layer| layer.rules.filter(kind).clone()).collect())
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
                    _ = sweep.tick() => self.guards.sweep(),
                    () = until(told_at) => {
                        told_at = None;
                        self.feed.beat();
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

    fn rebuild(&self, offers: &[Arc<Offer>], reported: &mut HashSet<String>) {
        let sources = self.config.upstreams.iter().zip(&self.names).zip(offers);
        let sources = sources.map(|((upstream, names), offer)| Source {
            upstream: upstream.index,
            label: &upstream.name,
            names,
            filters: PerKind::of(|kind| upstream.rules.filter(kind)),
            lists: PerKind::of(|kind| offer.lists.kind(kind).entries.as_slice()),
        });
        let clients = self.config.clients.iter().map(filters);
        let snapshot = Snapshot::merge(sources, clients);
        self.report(&snapshot, offers, &mut Reported { before: std::mem::take(reported), now: reported });
        self.current.store(Arc::new(Current { snapshot, offers: offers.to_vec() }));
    }

    /// Says once what was left out, and which rules match nothing now that the tools are known.
    fn report(&self, snapshot: &Snapshot, offers: &[Arc<Offer>], reported: &mut Reported<'_>) {
        for finding in &snapshot.findings {
            let upstream = self.config.upstreams.get(finding.upstream).map(|u| &*u.name).unwrap_or_default();
            if reported.is_new(format!("{upstream}/{}/{}", finding.native, finding.reason)) {
                EntrySkipped { upstream, entry: &finding.native, reason: &finding.reason }
                    .emit(&self.metrics);
            }
        }
        let is_ready = |offer: &Arc<Offer>| offer.health.takes_calls();
        for (upstream, offer) in self.config.upstreams.iter().zip(offers).filter(|(_, offer)| is_ready(offer))
        {
            for (kind, key) in FILTERED {
                let scope = format!("upstreams.{}.{key}", upstream.name);
                let entries = &offer.lists.kind(kind).entries;
                // What a template can make is not known.
                let is_open = kind == ListKind::Resources && !offer.lists.templates.entries.is_empty();
                let names: Vec<&str> = entries.iter().map(|listed| &*listed.name).collect();
                for pattern in unmatched(upstream.rules.filter(kind), &names).filter(|_| !is_open) {
                    self.report_rule(&scope, pattern, reported);
                }
            }
        }
        if offers.iter().all(is_ready) {
            let roles = self.config.roles.iter().map(|role| (format!("roles.{}", role.name), &role.rules));
            let clients = self.config.clients.iter();
            let clients = clients.map(|client| (format!("clients.{}", client.name), &client.rules));
            for (scope, rules) in roles.chain(clients) {
                self.report_rules(&scope, rules, snapshot, reported);
            }
        }
    }

    fn report_rules(&self, scope: &str, rules: &Rules, snapshot: &Snapshot, reported: &mut Reported<'_>) {
        for (kind, key) in FILTERED {
            let is_open = kind == ListKind::Resources && !snapshot.entries(ListKind::Templates).is_empty();
            let names: Vec<&str> = snapshot
                .entries(kind)
                .iter()
                .map(|entry| if kind == ListKind::Resources { &*entry.native } else { &*entry.exposed })
                .collect();
            for pattern in unmatched(rules.filter(kind), &names).filter(|_| !is_open) {
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

/// The patterns that match none of `names`.
fn unmatched<'a>(filter: &'a Filter, names: &'a [&str]) -> impl Iterator<Item = &'a str> {
    let is_unmatched = |pattern: &&Pattern| !names.iter().any(|name| pattern.matches(name));
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
