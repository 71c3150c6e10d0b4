//! The middle: who may call what, where it goes, and what is offered.
//!
//! [`Gateway::call`] is the road of one call, [`Gateway::list`] that of a list. Start reading there.
//!
//! Must not know: either side's eras, transports, HTTP.

mod access;
mod admit;
mod arguments;
mod breaker;
mod error;
mod expiry;
mod explain;
mod extensions;
mod feed;
mod followed;
mod following;
mod limits;
mod local;
mod port;
mod record;
mod refresh;
mod rewrite;
mod send;
mod statuses;
mod succession;
mod task_list;
mod tasks;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;

use crate::catalog::{ExposedNames, Snapshot};
use crate::config::{Config, EndpointConfig, UpstreamConfig};
use crate::exchange::{Call, Cancel, Outcome, Principal};
use crate::mcp::Method;
use crate::telemetry::{Audit, LimitReached, LimitScope, Metrics, Table};

use admit::admit;
use breaker::Breaker;
use expiry::Expiry;
use limits::CallGuards;
use record::CallRecord;
use succession::Lineage;

pub use crate::catalog::Listed;
pub use admit::{AdmittedCall, Target};
pub use error::{Executed, GatewayError, GatewayErrorKind};
pub use explain::{Explanation, Question, Step, StepOutcome, Topic, Unanswerable, Verdict};
pub use feed::{Change, Seen, Watch};
pub use followed::{Consent, Followed, Wanted};
pub use following::Following;
pub use limits::EdgeCaller;
pub use local::{CacheScope, Page};
pub use port::{Health, List, Offer, Upstream};
pub use succession::Credentials;

/// The gateway between all clients and all upstreams.
pub struct Gateway {
    config: Arc<Config>,
    metrics: Arc<Metrics>,
    upstreams: Vec<Arc<dyn Upstream>>,
    /// How rules know the names of each upstream.
    names: Vec<ExposedNames>,
    /// How each endpoint exposes them.
    exposed: Vec<Vec<ExposedNames>>,
    guards: CallGuards,
    breakers: Vec<Arc<Breaker>>,
    /// What each client is known by.
    credentials: Vec<Credentials>,
    current: ArcSwap<Current>,
    lineage: Arc<Lineage>,
}

/// What is offered at one instant: the merged snapshot of each endpoint, and the offers that they were made of.
#[derive(Debug)]
struct Current {
    snapshots: Vec<Snapshot>,
    /// What an endpoint has that does not exist.
    nothing: Snapshot,
    offers: Vec<Arc<Offer>>,
}

impl Current {
    fn new(snapshots: Vec<Snapshot>, offers: Vec<Arc<Offer>>) -> Self {
        Self { snapshots, nothing: Snapshot::default(), offers }
    }

    /// The snapshot of the endpoint at which somebody calls.
    fn at(&self, principal: &Principal) -> &Snapshot {
        self.snapshots.get(principal.endpoint).unwrap_or(&self.nothing)
    }
}

impl Gateway {
    /// A gateway over `upstreams`, which stand in the order of `config.upstreams`. Nothing is offered until
    /// [`Gateway::refresh`] runs.
    #[must_use]
    pub fn new(config: Arc<Config>, metrics: Arc<Metrics>, upstreams: Vec<Arc<dyn Upstream>>) -> Arc<Self> {
        Self::audited((config, metrics, None), upstreams)
    }

    /// The same, with an audit log that is told of every call.
    #[must_use]
    pub fn audited(
        (config, metrics, audit): (Arc<Config>, Arc<Metrics>, Option<Audit>),
        upstreams: Vec<Arc<dyn Upstream>>,
    ) -> Arc<Self> {
        let lineage = Arc::new(Lineage::new(&config, audit));
        let guards = CallGuards::new(&config);
        let breakers = breakers(&config, |_| None);
        let gateway = Self::build((config, metrics, lineage), upstreams, (guards, breakers));
        gateway.lineage.begin_with(&gateway);
        gateway
    }

    fn build(
        (config, metrics, lineage): (Arc<Config>, Arc<Metrics>, Arc<Lineage>),
        upstreams: Vec<Arc<dyn Upstream>>,
        (guards, breakers): (CallGuards, Vec<Arc<Breaker>>),
    ) -> Arc<Self> {
        Arc::new(Self {
            guards,
            breakers,
            current: ArcSwap::from_pointee(Current::new(
                refresh::empty(&config),
                upstreams.iter().map(|_| Arc::default()).collect(),
            )),
            credentials: succession::credentials(&config),
            names: names(&config, None),
            exposed: config.endpoints.iter().map(|endpoint| names(&config, Some(endpoint))).collect(),
            upstreams,
            metrics,
            config,
            lineage,
        })
    }

    /// How an endpoint exposes the names of an upstream.
    fn names_at(&self, endpoint: usize, upstream: usize) -> Option<&ExposedNames> {
        let is_there = self.config.endpoints.get(endpoint).is_some_and(|endpoint| endpoint.has(upstream));
        self.exposed.get(endpoint)?.get(upstream).filter(|_| is_there)
    }

    /// The upstreams of the endpoint at which somebody calls, and what they offer.
    fn offers_at<'a>(
        &'a self,
        current: &'a Current,
        principal: &Principal,
    ) -> impl Iterator<Item = (&'a Arc<UpstreamConfig>, &'a Arc<Offer>)> + use<'a> {
        let endpoint = self.config.endpoints.get(principal.endpoint);
        let all = self.config.upstreams_in_order();
        let all = all.filter_map(|upstream| Some((upstream, current.offers.get(upstream.index)?)));
        all.filter(move |(upstream, _)| endpoint.is_some_and(|endpoint| endpoint.has(upstream.index)))
    }

    /// The configuration in force.
    #[must_use]
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// The metrics.
    #[must_use]
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Carries one call: access, route, limits, deadline, upstream. Emits `CallFinished`, once, in any case.
    ///
    /// Cancel safe: dropping the future ends the call upstream.
    ///
    /// # Errors
    /// Whatever the gateway refuses or cannot do. An error of the upstream itself is an [`Outcome`].
    pub async fn call(&self, call: Call) -> Result<Outcome, GatewayError> {
        let mut record = CallRecord::start(self, &call);
        let result = match admit(self, call, &mut record.findings) {
            Ok(call) => self.carry(call, &mut record).await,
            Err(refusal) => Err(refusal),
        };
        record.finish(&result);
        result
    }

    /// Takes an admitted call to its upstream, until it ends, its caller ends it, or its time is up.
    async fn carry(
        &self,
        mut call: AdmittedCall,
        record: &mut CallRecord<'_>,
    ) -> Result<Outcome, GatewayError> {
        let Some(upstream) = self.upstreams.get(call.target().upstream) else {
            return Err(GatewayError::new(GatewayErrorKind::Internal, "the upstream does not exist"));
        };
        let _in_flight = self.metrics.in_flight(upstream.name());
        let cancel = call.call().cancel.clone();
        let (place, method) = (call.target().upstream, call.call().method);
        let principal = call.principal().clone();
        let expiry = call.expiry();
        let (used, relay) = (call.tasks().clone(), call.relay());
        let started = Instant::now();
        let called = record.findings.tool.clone().filter(|_| method == Method::ToolsCall);
        let carried = async {
            match relay {
                Some(relay) => relay.until((self, &used), upstream.call(call)).await,
                None => Box::pin(self.send(upstream, call)).await,
            }
        };
        let ended = async {
            tokio::select! {
                // What the upstream says at the deadline says more than that time is up.
                biased;
                result = carried => result,
                () = cancel.cancelled() => {
                    Err(GatewayError::upstream(GatewayErrorKind::Cancelled, upstream.name(), "the call was cancelled"))
            }
                error = expire(&cancel, upstream.name(), expiry) => Err(error),
            }
        };
        let result = self.past_breaker(place, called, ended).await;
        record.upstream_took(started.elapsed());
        self.expose_tasks(&used, self.rewrite(&principal, (place, method), result?))
    }

    /// Tells the upstreams that a session has ended.
    pub fn end_session(&self, session: &Arc<str>) {
        self.upstreams.iter().for_each(|upstream| upstream.end_session(session));
    }

    /// Forgets what makes no difference any more. To be called about once a minute.
    fn sweep(&self) {
        self.guards.sweep();
        self.metrics.set_entries(Table::EdgeCallers, self.guards.edge_callers());
    }

    /// Counts one request of `principal` at the edge, under the name that the limit counts it by.
    ///
    /// # Errors
    /// `EdgeLimited` with the wait once the caller's limit is reached.
    pub fn admit_edge(&self, principal: &Principal, caller: &EdgeCaller) -> Result<(), GatewayError> {
        let refused = self.guards.admit_edge(caller);
        refused.map_err(|error| self.limit_reached(principal, LimitScope::Edge, None, error))
    }

    fn limit_reached(
        &self,
        principal: &Principal,
        scope: LimitScope,
        target: Option<&Target>,
        error: GatewayError,
    ) -> GatewayError {
        let upstream = target.and_then(|target| self.config.upstreams.get(target.upstream));
        LimitReached {
            client: self.config.label(principal.client),
            scope,
            upstream: upstream.map(|upstream| &*upstream.name),
            wait: error.retry_after.unwrap_or_default(),
        }
        .emit(&self.metrics);
        error
    }
}

/// The breaker of each upstream: the one that is `known` at its place, or a new one.
fn breakers(config: &Config, known: impl Fn(usize) -> Option<Arc<Breaker>>) -> Vec<Arc<Breaker>> {
    let breaker = |upstream: &Arc<UpstreamConfig>| {
        known(upstream.index).unwrap_or_else(|| Arc::new(Breaker::new(upstream.resilience.breaker)))
    };
    config.upstreams.iter().map(breaker).collect()
}

/// How the names of each upstream are exposed: at an endpoint, or, without one, as rules know them.
fn names(config: &Config, endpoint: Option<&EndpointConfig>) -> Vec<ExposedNames> {
    let prefixes = || {
        config.upstreams.iter().map(|upstream| match endpoint {
            None => (!upstream.name.is_empty()).then_some(upstream.prefix.as_str()),
            Some(endpoint) => endpoint.has(upstream.index).then(|| endpoint.prefix(upstream)),
        })
    };
    let exposed =
        |own: Option<&str>| ExposedNames::new(own.unwrap_or_default(), prefixes().flatten(), &config.naming);
    prefixes().map(exposed).collect()
}

/// Ends the call when its time is over. The reason is set before anything is dropped, so that the upstream hears it.
async fn expire(cancel: &Cancel, upstream: &Arc<str>, expiry: Expiry) -> GatewayError {
    let text = expiry.wait().await;
    cancel.cancel(&format!("timed out: {text}"));
    GatewayError::upstream(GatewayErrorKind::Timeout, upstream, text).maybe_executed()
}
