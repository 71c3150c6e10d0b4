//! All upstreams of a configuration, and of the next one: what is the same goes on, what is another one begins while
//! the one before ends its calls.
//!
//! Must not know: clients, policy.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::watch;

use super::{Connector, Parking, start};
use crate::config::{Config, UpstreamConfig};
use crate::exchange::Outcome;
use crate::gateway::{AdmittedCall, Followed, GatewayError, GatewayErrorKind, Offer, Upstream};
use crate::telemetry::Metrics;

/// The upstreams of a configuration, by their places. The default has none.
#[derive(Debug, Default)]
pub struct Fleet {
    parking: Option<Arc<Parking>>,
    members: Vec<Arc<Member>>,
}

/// One upstream, and what it was made of.
#[derive(Debug)]
struct Member {
    config: Arc<UpstreamConfig>,
    /// `None` for one that is no more.
    connector: Option<Arc<Connector>>,
}

/// Stands in the place of an upstream that is no more. No endpoint has it, so nothing is offered and nothing comes.
#[derive(Debug)]
struct Absent {
    name: Arc<str>,
    offer: watch::Sender<Arc<Offer>>,
    followed: Arc<Followed>,
}

impl Upstream for Absent {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn offer(&self) -> watch::Receiver<Arc<Offer>> {
        self.offer.subscribe()
    }

    fn followed(&self) -> &Arc<Followed> {
        &self.followed
    }

    fn call(&self, _call: AdmittedCall) -> BoxFuture<'_, Result<Outcome, GatewayError>> {
        let gone = GatewayError::new(GatewayErrorKind::Unavailable, "the upstream is no more");
        Box::pin(std::future::ready(Err(gone)))
    }
}

/// What became of the upstreams with another configuration.
#[derive(Debug, Default)]
pub struct Turnover {
    /// Those that are new.
    pub started: Vec<Arc<str>>,
    /// Those that are another one now.
    pub replaced: Vec<Arc<str>>,
    /// Those that are no more.
    pub ended: Vec<Arc<str>>,
    /// Connections that nothing new is sent on, to be [retired](Connector::retire).
    pub retired: Vec<Arc<Connector>>,
}

impl Fleet {
    /// Starts to keep every upstream of a configuration connected; see [`start`]. Must be called within a runtime.
    #[must_use]
    pub fn start(config: &Config, metrics: &Arc<Metrics>) -> Self {
        let parking = Arc::new(Parking::new(config, Arc::clone(metrics)));
        let empty = Self { parking: Some(parking), members: Vec::new() };
        empty.renew(config, &[]).0
    }

    /// The upstreams of `config`, which came of [`Config::in_place_of`] that of this one. Connections are kept where
    /// nothing of them has changed; all are made anew where `anew` names another place of anonymous callers, whom
    /// connections tell from others.
    #[must_use]
    pub fn succeed(&self, before: &Config, config: &Config) -> (Self, Turnover) {
        let anonymous = |config: &Config| config.clients.iter().position(|client| client.is_anonymous);
        let known = if anonymous(before) == anonymous(config) { self.members.as_slice() } else { &[] };
        let (next, mut turnover) = self.renew(config, known);
        for (place, member) in self.members.iter().enumerate() {
            let is_kept = next.members.get(place).is_some_and(|next| Arc::ptr_eq(next, member));
            let Some(connector) = member.connector.as_ref().filter(|_| !is_kept) else { continue };
            turnover.retired.push(Arc::clone(connector));
            let is_there = next.members.get(place).is_some_and(|next| next.connector.is_some());
            let name = Arc::clone(&member.config.name);
            if is_there { turnover.replaced.push(name) } else { turnover.ended.push(name) }
        }
        (next, turnover)
    }

    fn renew(&self, config: &Config, known: &[Arc<Member>]) -> (Self, Turnover) {
        let mut turnover = Turnover::default();
        let member = |upstream: &Arc<UpstreamConfig>| {
            let same = known.get(upstream.index).filter(|known| upstream.has_connection_of(&known.config));
            if let Some(same) = same {
                return Arc::clone(same);
            }
            let before = self.members.get(upstream.index).and_then(|before| before.connector.as_ref());
            let is_there = !upstream.name.is_empty();
            if is_there && before.is_none() {
                turnover.started.push(Arc::clone(&upstream.name));
            }
            let parking = self.parking.as_ref().filter(|_| is_there);
            let connector =
                parking.map(|parking| start(Arc::clone(upstream), config, (Arc::clone(parking), before)));
            Arc::new(Member { config: Arc::clone(upstream), connector })
        };
        let members = config.upstreams.iter().map(member).collect();
        (Self { parking: self.parking.clone(), members }, turnover)
    }

    /// Each as the middle sees it, by their places.
    #[must_use]
    pub fn ports(&self) -> Vec<Arc<dyn Upstream>> {
        let port = |member: &Arc<Member>| match &member.connector {
            Some(connector) => Arc::clone(connector) as Arc<dyn Upstream>,
            None => Arc::new(Absent {
                name: Arc::clone(&member.config.name),
                offer: watch::Sender::new(Arc::default()),
                followed: Arc::default(),
            }),
        };
        self.members.iter().map(port).collect()
    }

    /// Ends all connections in good order; see [`Connector::stop`].
    pub async fn stop(&self) {
        let connectors = self.members.iter().filter_map(|member| member.connector.as_ref());
        futures_util::future::join_all(connectors.map(|connector| connector.stop())).await;
    }
}
