//! The middle: who may call what, where it goes, and what is offered.
//!
//! [`Gateway::call`] is the road of one call, [`Gateway::list`] that of a list. Start reading there.
//!
//! Must not know: either side's eras, transports, HTTP.

mod access;
mod admit;
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
mod task_list;
mod tasks;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;

use crate::catalog::{ExposedNames, Snapshot};
use crate::config::Config;
use crate::exchange::{Call, Cancel, Outcome, Principal};
use crate::mcp::Method;
use crate::telemetry::{LimitReached, LimitScope, Metrics, Table};

use admit::admit;
use breaker::Breaker;
use expiry::Expiry;
use feed::Feed;
use following::Places;
use limits::CallGuards;
use record::CallRecord;
use task_list::OwnTasks;
use tasks::TaskIds;

pub use crate::catalog::Listed;
pub use admit::{AdmittedCall, Target};
pub use error::{Executed, GatewayError, GatewayErrorKind};
pub use explain::{Explanation, NoSuchClient, Question, Step, StepOutcome, Verdict};
pub use feed::{Change, Seen, Watch};
pub use followed::{Consent, Followed, Wanted};
pub use following::Following;
pub use limits::EdgeCaller;
pub use local::{CacheScope, Page};
pub use port::{Health, List, Offer, Upstream};

/// The gateway between all clients and all upstreams.
pub struct Gateway {
    config: Arc<Config>,
    metrics: Arc<Metrics>,
    upstreams: Vec<Arc<dyn Upstream>>,
    names: Vec<ExposedNames>,
    guards: CallGuards,
    breakers: Vec<Breaker>,
    task_ids: TaskIds,
    own_tasks: OwnTasks,
    current: ArcSwap<Current>,
    feed: Feed,
    /// Places for the resources that clients follow.
    places: Places,
}

/// What is offered at one instant: the merged snapshot, and the offers that it was made of.
#[derive(Debug)]
struct Current {
    snapshot: Snapshot,
    offers: Vec<Arc<Offer>>,
}

impl Gateway {
    /// A gateway over `upstreams`, which stand in the order of `config.upstreams`. Nothing is offered until
    /// [`Gateway::refresh`] runs.
    #[must_use]
    pub fn new(config: Arc<Config>, metrics: Arc<Metrics>, upstreams: Vec<Arc<dyn Upstream>>) -> Arc<Self> {
        let prefixes = || config.upstreams.iter().map(|upstream| upstream.prefix.as_str());
        let names = prefixes().map(|prefix| ExposedNames::new(prefix, prefixes(), &config.naming)).collect();
        let filters = config.clients.iter().map(refresh::filters);
        Arc::new(Self {
            guards: CallGuards::new(&config),
            breakers: config
                .upstreams
                .iter()
                .map(|upstream| Breaker::new(upstream.resilience.breaker))
                .collect(),
            task_ids: TaskIds::new(&config),
            own_tasks: OwnTasks::new(config.limits.listed_tasks),
            current: ArcSwap::from_pointee(Current {
                snapshot: Snapshot::merge(
                    std::iter::empty(),
                    filters,
                    config.roles.iter().map(refresh::role_filters),
                ),
                offers: upstreams.iter().map(|_| Arc::default()).collect(),
            }),
            feed: Feed::default(),
            places: Places::new(&config.limits),
            names,
            upstreams,
            metrics,
            config,
        })
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
        let mut record = CallRecord::start(&self.config, &self.metrics, &call);
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
        let expiry = call.expiry();
        let (used, relay) = (call.tasks().clone(), call.relay());
        let started = Instant::now();
        let tool = record.findings.tool.clone();
        let called = tool.clone().filter(|_| method == Method::ToolsCall);
        let carried = async {
            match relay {
                Some(relay) => relay.until((self, &used), upstream.call(call)).await,
                None => Box::pin(self.send(upstream, call, tool)).await,
            }
        };
        let ended = async {
            tokio::select! {
                result = carried => result,
                () = cancel.cancelled() => {
                    Err(GatewayError::upstream(GatewayErrorKind::Cancelled, upstream.name(), "the call was cancelled"))
            }
                error = expire(&cancel, upstream.name(), expiry) => Err(error),
            }
        };
        let result = self.past_breaker(place, called, ended).await;
        record.upstream_took(started.elapsed());
        self.expose_tasks(&used, self.rewrite(place, method, result?))
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

/// Ends the call when its time is over. The reason is set before anything is dropped, so that the upstream hears it.
async fn expire(cancel: &Cancel, upstream: &Arc<str>, expiry: Expiry) -> GatewayError {
    let text = expiry.wait().await;
    cancel.cancel(&format!("timed out: {text}"));
    GatewayError::upstream(GatewayErrorKind::Timeout, upstream, text).maybe_executed()
}
