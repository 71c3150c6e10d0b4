//! We are the client: connections to MCP servers of either era, over pipes and HTTP.
//!
//! Must not know: the rest of the gateway, who calls, and what callers may.

mod backoff;
mod connection;
mod credentials;
mod failure;
mod fleet;
mod inflight;
mod legacy;
mod listener;
mod listing;
mod modern;
mod outside;
mod parked;
mod pool;
mod probe;
mod pulse;
mod question;
mod seats;
mod supervise;
mod tenancy;
mod transport;
mod unsolicited;
mod usage;
mod wire;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::{Config, UpstreamConfig};
use crate::exchange::{Call, Outcome};
use crate::gateway::{AdmittedCall, Followed, GatewayError, GatewayErrorKind, Offer, Upstream};
use crate::mcp::Method;
use crate::translate::input::{self, REQUEST_STATE};

use connection::Connection;
use failure::Failure;
use listing::{Bounds, ListReader};
use outside::Patience;
use parked::{Carried, Place};
use pool::{Checkout, Grounds, Pool};
use probe::Dialer;
use supervise::{Desk, Supervisor};
use usage::Usage;

pub use fleet::{Fleet, Turnover};
pub use parked::Parking;
pub(crate) use transport::child::{guard, orphans};

/// An upstream that is kept connected in the background. Dropping it ends its connection, [`Self::stop`]
/// does so in good order.
#[derive(Debug)]
pub struct Connector {
    name: Arc<str>,
    desk: Arc<Desk>,
    followed: Arc<Followed>,
    /// The connections that belong to one client or session each, where there are any.
    pool: Option<Arc<Pool>>,
    parking: Arc<Parking>,
    /// Calls under way, those that are parked too.
    calls: TaskTracker,
    /// Another one has its place: nothing is begun anew.
    retired: CancellationToken,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// How long a call may be on its way to a connection that is retired.
const ON_ITS_WAY: Duration = Duration::from_secs(1);

/// Starts to keep an upstream connected. Returns at once, whatever the state of the server. Must be called
/// within a runtime.
///
/// Bounds: `limits.message` for one message, `limits.list_pages` and `limits.list_items` for its lists, and
/// `sessions.idle_timeout` for connections that nobody uses, of `gateway`; the rest is in `config`.
///
/// One that comes in the place of `before` is told what clients follow, and offers what that one offered until it has
/// read its own lists, for `grace` at the most.
#[must_use]
pub fn start(
    config: Arc<UpstreamConfig>,
    gateway: &Config,
    (parking, before): (Arc<Parking>, Option<&Arc<Connector>>),
) -> Arc<Connector> {
    let limits = &gateway.limits;
    let metrics = Arc::clone(parking.metrics());
    let tasks = TaskTracker::new();
    let stop = CancellationToken::new();
    let before_it = before.map(|before| Offer::clone(&before.offer().borrow()));
    let desk = Arc::new(Desk::new(config.idle_stop().map(|_| Usage::new()), before_it));
    let followed = before.map(|before| Arc::clone(&before.followed)).unwrap_or_default();
    let patience = Patience {
        time: limits.answer_timeout,
        stop: stop.clone(),
        tasks: tasks.clone(),
        runtime: Handle::current(),
    };
    let dialer = Dialer::new(
        Arc::clone(&config),
        limits.message,
        Arc::clone(&metrics),
        (patience, Arc::clone(&followed)),
    );
    let lists = ListReader {
        upstream: Arc::clone(&config.name),
        metrics: Arc::clone(&metrics),
        bounds: Bounds::from(limits),
    };
    let name = Arc::clone(&config.name);
    let idle_timeout = gateway.sessions.idle_timeout;
    let dialer = Arc::new(dialer);
    let pool = Pool::new(Grounds {
        config: Arc::clone(&config),
        metrics: Arc::clone(&metrics),
        dialer: Arc::clone(&dialer),
        tasks: tasks.clone(),
        stop: stop.clone(),
        idle: config.idle_stop().map_or(idle_timeout, |idle| idle.min(idle_timeout)),
        anonymous: gateway.clients.iter().position(|client| client.is_anonymous),
    });
    let retired = CancellationToken::new();
    let supervisor = Supervisor {
        config,
        metrics,
        dialer,
        lists: Arc::new(lists),
        desk: Arc::clone(&desk),
        followed: Arc::clone(&followed),
        retired: retired.clone(),
        stop: stop.clone(),
    };
    tasks.spawn(supervisor.run());
    let calls = TaskTracker::new();
    Arc::new(Connector { name, desk, followed, pool, parking, calls, retired, stop, tasks })
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

    /// Lets the calls that are under way end, for `patience` at the most, and [stops](Self::stop). Nothing new is to
    /// be sent to it.
    pub async fn retire(&self, patience: Duration) {
        self.retired.cancel();
        sleep(ON_ITS_WAY.min(patience)).await;
        self.calls.close();
        let _late = timeout(patience, self.calls.wait()).await;
        self.stop().await;
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
        if call.method == Method::ResourcesSubscribe {
            return self.agree(&self.desk.checkout(deadline).await?.connection, native).await;
        }
        let checkout = self.checkout(&call, deadline).await?.sit(call.principal.client, deadline).await?;
        let checkout = checkout.counted(self.calls.token());
        let connection = &checkout.connection;
        if !connection.knows_retries() && call.request.param(REQUEST_STATE).is_some() {
            return Err(parked::unknown_state());
        }
        let is_askable = input::can_be_asked(call.hop.capabilities.as_ref());
        if !is_askable || !connection.asks_by_request() {
            return connection.call(&call, native, None).await;
        }
        let carried = Carried::start(checkout, call, &place);
        self.parking.go_on(carried, &place).await
    }
}

impl Connector {
    /// The connection that a call goes to: its owner's, or the one that all share. Where another connection
    /// would mean nothing to the server, all share it.
    async fn checkout(&self, call: &Call, deadline: Instant) -> Result<Checkout, Failure> {
        if let Some(own) = self.pool.as_ref().and_then(|pool| pool.find(call)) {
            return Ok(own);
        }
        match &self.pool {
            // The process that the lists are read from is not needed.
            Some(pool) if self.desk.is_idle() => return pool.open(call, deadline).await,
            Some(_) | None => {}
        }
        let shared = self.desk.checkout(deadline).await?;
        match &self.pool {
            Some(pool) if shared.connection.has_state() => pool.open(call, deadline).await,
            Some(_) | None => Ok(shared),
        }
    }

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

    fn end_session(&self, session: &Arc<str>) {
        if let Some(pool) = &self.pool {
            pool.end_session(session);
        }
    }

    fn call(&self, call: AdmittedCall) -> BoxFuture<'_, Result<Outcome, GatewayError>> {
        Box::pin(async move {
            let deadline = call.deadline();
            let _under_way = self.calls.token();
            let (call, target, _permit) = call.into_parts();
            let carried = self.carry(call, &target.native, deadline).await;
            carried.map_err(|failure| failure.into_error(&self.name))
        })
    }
}
