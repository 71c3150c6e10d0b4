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
mod probe;
mod supervise;
mod transport;
mod unsolicited;
mod wire;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::{Config, Limits, UpstreamConfig};
use crate::exchange::Outcome;
use crate::gateway::{AdmittedCall, GatewayError, Offer, Upstream};
use crate::telemetry::Metrics;

use listing::{Bounds, ListReader};
use probe::Dialer;
use supervise::{Desk, Supervisor};

/// An upstream that is kept connected in the background. Dropping it ends its connection, [`Self::stop`]
/// does so in good order.
#[derive(Debug)]
pub struct Connector {
    name: Arc<str>,
    desk: Arc<Desk>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// Starts to keep every upstream of a configuration connected; see [`start`].
#[must_use]
pub fn start_all(config: &Config, metrics: &Arc<Metrics>) -> Vec<Arc<Connector>> {
    let start =
        |upstream: &Arc<UpstreamConfig>| start(Arc::clone(upstream), &config.limits, Arc::clone(metrics));
    config.upstreams.iter().map(start).collect()
}

/// Starts to keep an upstream connected. Returns at once, whatever the state of the server. Must be called
/// within a runtime.
///
/// Bounds: `limits.message` for one message, `limits.list_pages` and `limits.list_items` for its lists; the
/// rest is in `config`.
#[must_use]
pub fn start(config: Arc<UpstreamConfig>, limits: &Limits, metrics: Arc<Metrics>) -> Arc<Connector> {
    let tasks = TaskTracker::new();
    let stop = CancellationToken::new();
    let desk = Arc::new(Desk::new());
    let dialer = Dialer::new(Arc::clone(&config), limits.message, Arc::clone(&metrics), tasks.clone());
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
        stop: stop.clone(),
    };
    tasks.spawn(supervisor.run());
    Arc::new(Connector { name, desk, stop, tasks })
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

    fn call(&self, call: AdmittedCall) -> BoxFuture<'_, Result<Outcome, GatewayError>> {
        Box::pin(async move {
            let deadline = Instant::from_std(call.deadline());
            let carried = async {
                let connection = self.desk.checkout(deadline).await?;
                connection.call(call.call(), &call.target().native).await
            };
            carried.await.map_err(|failure| failure.into_error(&self.name))
        })
    }
}
