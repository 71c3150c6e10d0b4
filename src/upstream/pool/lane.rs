//! The life of one connection that belongs to one owner. One task keeps it from its opening to its end; it wakes
//! for its timer and for what ends the connection, and costs nothing in between.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::{Notify, OwnedSemaphorePermit, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::Pool;
use crate::telemetry::{OwnConnectionEnded, OwnConnectionFailed, OwnConnectionOpened};
use crate::upstream::connection::Connection;
use crate::upstream::failure::Failure;
use crate::upstream::tenancy::{Owner, Tenancy};

/// How close two attempts for one owner may follow each other.
const ATTEMPT_SPACING: Duration = Duration::from_secs(1);

/// A connection of one owner.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) owner: Owner,
    state: watch::Sender<State>,
    users: AtomicUsize,
    last_use: Mutex<Instant>,
    /// Somebody left who was waited for.
    left: Notify,
    retired: CancellationToken,
    reason: Mutex<&'static str>,
}

/// How far it is.
#[derive(Clone, Debug)]
pub(super) enum State {
    /// On its way.
    Opening,
    /// It can be called on.
    Open(Arc<Connection>),
    /// It could not be opened, and is not tried again before this time.
    Failed(Failure, Instant),
    /// It has ended.
    Gone,
}

/// A lane in use; it does not become idle as long as this lives.
#[derive(Debug)]
pub(super) struct LaneUse(Arc<Lane>);

impl LaneUse {
    pub(super) fn new(lane: &Arc<Lane>) -> Self {
        lane.users.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(lane))
    }

    /// What becomes of it.
    pub(super) fn states(&self) -> watch::Receiver<State> {
        self.0.state.subscribe()
    }
}

impl Drop for LaneUse {
    fn drop(&mut self) {
        *self.0.last_use.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.0.users.fetch_sub(1, Ordering::AcqRel);
        if self.0.retired.is_cancelled() {
            self.0.left.notify_one();
        }
    }
}

impl Lane {
    pub(super) fn new(owner: Owner) -> Self {
        Self {
            owner,
            state: watch::Sender::new(State::Opening),
            users: AtomicUsize::new(0),
            last_use: Mutex::new(Instant::now()),
            left: Notify::new(),
            retired: CancellationToken::new(),
            reason: Mutex::new("idle"),
        }
    }

    /// Its connection, if it is open and works.
    pub(super) fn connection(&self) -> Option<Arc<Connection>> {
        match &*self.state.borrow() {
            State::Open(connection) if connection.closed().now_or_never().is_none() => {
                Some(Arc::clone(connection))
            }
            State::Open(_) | State::Opening | State::Failed(..) | State::Gone => None,
        }
    }

    /// Whether it takes no calls, and will not by waiting.
    pub(super) fn is_broken(&self) -> bool {
        match &*self.state.borrow() {
            State::Opening => false,
            State::Open(connection) => connection.closed().now_or_never().is_some(),
            State::Failed(_, retry_at) => *retry_at <= Instant::now(),
            State::Gone => true,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.users.load(Ordering::Acquire) == 0
    }

    pub(super) fn last_use(&self) -> Instant {
        *self.last_use.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends it as soon as nobody uses it.
    pub(super) fn retire(&self, reason: &'static str) {
        *self.reason.lock().unwrap_or_else(PoisonError::into_inner) = reason;
        self.retired.cancel();
    }

    /// Opens the connection, keeps it, and ends it.
    pub(super) async fn live(self: Arc<Self>, pool: Arc<Pool>, tenancy: Tenancy) {
        let began = Instant::now();
        let opened = tokio::select! {
            () = pool.stop.cancelled() => None,
            // Whoever waits for it is still served.
            () = async { self.retired.cancelled().await; self.deserted().await } => None,
            opened = open(&pool, &tenancy) => Some(opened),
        };
        match opened {
            None => {}
            Some(Ok((connection, room))) => {
                let upstream = &pool.config.name;
                let counted = OwnConnectionOpened { upstream, took: began.elapsed() }.emit(&pool.metrics);
                self.state.send_replace(State::Open(Arc::clone(&connection)));
                let reason = self.keep(&pool, &connection).await;
                pool.forget(&self);
                self.state.send_replace(State::Gone);
                Box::pin(connection.stop()).await;
                OwnConnectionEnded { upstream, reason: &reason }.emit();
                drop((counted, room));
            }
            Some(Err(failure)) => self.fail(&pool, failure).await,
        }
        pool.forget(&self);
        self.state.send_replace(State::Gone);
    }

    /// Keeps an open connection until it has to end; says why.
    async fn keep(self: &Arc<Self>, pool: &Pool, connection: &Connection) -> String {
        loop {
            let since = if self.is_idle() { self.last_use() } else { Instant::now() };
            tokio::select! {
                failure = connection.closed() => return failure.reason(),
                () = pool.stop.cancelled() => return "the gateway is stopping".to_owned(),
                () = self.retired.cancelled() => break,
                () = sleep_until(since + pool.idle) => {
                    if pool.give_up(self, pool.idle) {
                        return "idle".to_owned();
                    }
                }
            }
        }
        tokio::select! {
            () = self.deserted() => {}
            _ = connection.closed() => {}
            () = pool.stop.cancelled() => {}
        }
        (*self.reason.lock().unwrap_or_else(PoisonError::into_inner)).to_owned()
    }

    /// Tells everybody that it cannot be opened, for a while.
    async fn fail(&self, pool: &Pool, failure: Failure) {
        OwnConnectionFailed { upstream: &pool.config.name, reason: &failure.reason() }.emit(&pool.metrics);
        let retry_at = Instant::now() + ATTEMPT_SPACING;
        self.state.send_replace(State::Failed(failure, retry_at));
        tokio::select! {
            () = sleep(ATTEMPT_SPACING) => {}
            () = self.retired.cancelled() => {}
            () = pool.stop.cancelled() => {}
        }
    }

    /// Waits until nobody uses it.
    async fn deserted(&self) {
        while !self.is_idle() {
            self.left.notified().await;
        }
    }
}

/// Opens a connection once there is room for it.
async fn open(pool: &Pool, tenancy: &Tenancy) -> Result<(Arc<Connection>, OwnedSemaphorePermit), Failure> {
    let dialing = async {
        let room = Arc::clone(&pool.rooms).acquire_owned().await;
        let room = room.map_err(|_| Failure::unavailable("the gateway is stopping"))?;
        let connection = pool.dialer.connect(tenancy).await?;
        connection.listening().await;
        Ok((Arc::new(connection), room))
    };
    match timeout(pool.config.connect_timeout, Box::pin(dialing)).await {
        Ok(opened) => opened,
        Err(_) => Err(Failure::unavailable("it did not answer the handshake in time")),
    }
}
