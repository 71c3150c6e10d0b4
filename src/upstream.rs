//! We are the client: connections to MCP servers of either era, over pipes and HTTP.
//!
//! Must not know: the rest of the gateway, who calls, and what callers may.

mod backoff;
mod connection;
mod failure;
mod inflight;
mod legacy;
mod listener;
mod listing;
mod modern;
mod parked;
mod probe;
mod question;
mod supervise;
mod transport;
mod unsolicited;
mod wire;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::{Config, Limits, UpstreamConfig};
use crate::exchange::{Call, Outcome};
use crate::gateway::{AdmittedCall, Followed, GatewayError, GatewayErrorKind, Offer, Upstream};
use crate::mcp::Method;
use crate::telemetry::Metrics;
use crate::translate::input::{self, REQUEST_STATE};

use connection::Connection;
use failure::Failure;
use listing::{Bounds, ListReader};
use parked::{Carried, Place};
use probe::Dialer;
use supervise::{Desk, Supervisor};

pub use parked::Parking;
pub(crate) use transport::child::{guard, orphans};

/// An upstream that is kept connected in the background. Dropping it ends its connection, [`Self::stop`]
/// does so in good order.
#[derive(Debug)]
pub struct Connector {
    name: Arc<str>,
    desk: Arc<Desk>,
    followed: Arc<Followed>,
    parking: Arc<Parking>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// Starts to keep every upstream of a configuration connected; see [`start`].
#[must_use]
pub fn start_all(config: &Config, metrics: &Arc<Metrics>) -> Vec<Arc<Connector>> {
    let parking = Arc::new(Parking::new(config, Arc::clone(metrics)));
    let start =
        |upstream: &Arc<UpstreamConfig>| start(Arc::clone(upstream), &config.limits, Arc::clone(&parking));
    config.upstreams.iter().map(start).collect()
}

/// Starts to keep an upstream connected. Returns at once, whatever the state of the server. Must be called
/// within a runtime.
///
/// Bounds: `limits.message` for one message, `limits.list_pages` and `limits.list_items` for its lists; the
/// rest is in `config`.
#[must_use]
pub fn start(config: Arc<UpstreamConfig>, limits: &Limits, parking: Arc<Parking>) -> Arc<Connector> {
    let metrics = Arc::clone(parking.metrics());
    let tasks = TaskTracker::new();
    let stop = CancellationToken::new();
    let desk = Arc::new(Desk::new());
    let followed: Arc<Followed> = Arc::default();
    let told = Arc::clone(&followed);
    let dialer = Dialer::new(Arc::clone(&config), limits.message, Arc::clone(&metrics), tasks.clone(), told);
    let lists = ListReader {
        upstream: Arc::clone(&config.name),
        metrics: Arc::clone(&metrics),
        bounds: Bounds::from(limits),
    };
    let name = Arc::clone(&config.name);
    let supervisor = Supervisor {
        config,
        metrics,
        dialer: Arc::new(dialer),
        lists: Arc::new(lists),
        desk: Arc::clone(&desk),
        followed: Arc::clone(&followed),
        stop: stop.clone(),
    };
    tasks.spawn(supervisor.run());
    Arc::new(Connector { name, desk, followed, parking, stop, tasks })
}

impl Connector {
    /// Ends the connection and waits for its end: a child's stdin is closed, then it gets SIGTERM, then
    /// SIGKILL, and so does all of its process group; a session is deleted. Takes some ten seconds at the
    /// most. Calls that are still in flight to a child fail; those over HTTP are left to their callers.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Connector {
    /// Carries a call on the connection that there is, or goes on with the one whose retry it is.
    async fn carry(&self, call: Call, native: &Arc<str>, deadline: Instant) -> Result<Outcome, Failure> {
        let place = Place {
            upstream: Arc::clone(&self.name),
            native: Arc::clone(native),
            stop: &self.stop,
            tasks: &self.tasks,
        };
        if let Some(resumed) = self.parking.take(&call, &self.name, native)? {
            return self.parking.resume(resumed, call, &place).await;
        }
        let connection = self.desk.checkout(deadline).await?;
        if call.method == Method::ResourcesSubscribe {
            return self.agree(&connection, native).await;
        }
        if !connection.knows_retries() && call.request.param(REQUEST_STATE).is_some() {
            return Err(parked::unknown_state());
        }
        let is_askable = input::can_be_asked(call.hop.capabilities.as_ref());
        if !is_askable || !connection.asks_by_request() {
            return connection.call(&call, native, None).await;
        }
        let carried = Carried::start(connection, call, &place);
        self.parking.go_on(carried, &place).await
    }
}

impl Connector {
    /// Waits until the server has agreed to tell of a resource, or would not.
    async fn agree(&self, connection: &Connection, native: &Arc<str>) -> Result<Outcome, Failure> {
        if !connection.tells_of_resources() {
            let text = "it does not tell of changes of its resources";
            return Err(Failure { kind: GatewayErrorKind::MethodNotFound, ..Failure::unavailable(text) });
        }
        tokio::select! {
            verdict = self.followed.verdict(native) => verdict.map_err(Failure::from),
            failure = connection.closed() => Err(failure),
        }
    }
}

/// Waits for a time that may not come.
async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

impl Drop for Connector {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Upstream for Connector {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn offer(&self) -> watch::Receiver<Arc<Offer>> {
        self.desk.offer()
    }

    fn followed(&self) -> &Arc<Followed> {
        &self.followed
    }

    fn call(&self, call: AdmittedCall) -> BoxFuture<'_, Result<Outcome, GatewayError>> {
        Box::pin(async move {
            let deadline = call.deadline();
            let (call, target, _permit) = call.into_parts();
            let carried = self.carry(call, &target.native, deadline).await;
            carried.map_err(|failure| failure.into_error(&self.name))
        })
    }
}
