//! The life of one connection that belongs to one owner. One task keeps it from its opening to its end; it wakes
//! for its timer and for what ends the connection, and costs nothing in between.

use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::Pool;
use crate::telemetry::{OwnConnectionEnded, OwnConnectionFailed, OwnConnectionOpened};
use crate::upstream::connection::Connection;
use crate::upstream::failure::Failure;
use crate::upstream::pulse;
use crate::upstream::tenancy::{Owner, Tenancy};
use crate::upstream::usage::Usage;

/// How close two attempts for one owner may follow each other. It doubles with each connection that does not last.
const ATTEMPT_SPACING: Duration = Duration::from_secs(1);
/// The longest wait between two attempts for one owner.
const LONGEST_SPACING: Duration = Duration::from_secs(60);
/// How long a connection must live for the next wait to be a short one again.
const SUSTAINED: Duration = Duration::from_secs(60);

/// A connection of one owner.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) owner: Owner,
    state: watch::Sender<State>,
    pub(super) usage: Arc<Usage>,
    retired: CancellationToken,
    reason: Mutex<&'static str>,
    /// How many of this owner's connections before this one did not last, one after the other.
    losses: AtomicU32,
}

/// Why a connection is kept no longer.
#[derive(Debug)]
enum End {
    /// It broke.
    Lost(Failure),
    /// It was ended, for this reason.
    Ended(&'static str),
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

impl Lane {
    pub(super) fn new(owner: Owner, losses: u32) -> Self {
        Self {
            owner,
            state: watch::Sender::new(State::Opening),
            usage: Usage::new(),
            retired: CancellationToken::new(),
            reason: Mutex::new("idle"),
            losses: AtomicU32::new(losses),
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

    /// How many of this owner's connections did not last, this one included.
    pub(super) fn losses(&self) -> u32 {
        self.losses.load(Ordering::Relaxed)
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

    /// What becomes of it.
    pub(super) fn states(&self) -> watch::Receiver<State> {
        self.state.subscribe()
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
            () = async { self.retired.cancelled().await; self.usage.deserted().await } => None,
            opened = open(&pool, &tenancy) => Some(opened),
        };
        match opened {
            None => {}
            Some(Ok((connection, room))) => self.serve(&pool, (connection, room), began).await,
            Some(Err(NotOpened::Failed(failure, retry_at))) => {
                OwnConnectionFailed { upstream: &pool.config.name, reason: &failure.reason() }
                    .emit(&pool.metrics);
                let retry_at = retry_at.max(self.next_attempt(began));
                self.state.send_replace(State::Failed(failure, retry_at));
                self.linger(&pool, retry_at).await;
            }
            Some(Err(NotOpened::NotTried(failure, retry_at))) => {
                self.state.send_replace(State::Failed(failure, retry_at));
                self.linger(&pool, retry_at).await;
            }
        }
        pool.forget(&self);
        self.state.send_replace(State::Gone);
    }

    /// Keeps an open connection until it has to end, and ends it.
    async fn serve(
        self: &Arc<Self>,
        pool: &Pool,
        (connection, room): (Arc<Connection>, OwnedSemaphorePermit),
        began: Instant,
    ) {
        let upstream = &pool.config.name;
        let counted = OwnConnectionOpened { upstream, took: began.elapsed() }.emit(&pool.metrics);
        let opened_at = Instant::now();
        self.state.send_replace(State::Open(Arc::clone(&connection)));
        let end = self.keep(pool, &connection).await;
        let reason = match &end {
            End::Lost(failure) => failure.reason(),
            End::Ended(reason) => (*reason).to_owned(),
        };
        let retry_at = match end {
            // Its owner must not be given one after the other that is lost like it.
            End::Lost(failure) if opened_at.elapsed() < SUSTAINED => {
                let retry_at = self.next_attempt(opened_at);
                self.state.send_replace(State::Failed(failure, retry_at));
                Some(retry_at)
            }
            End::Lost(_) | End::Ended(_) => {
                pool.forget(self);
                self.state.send_replace(State::Gone);
                None
            }
        };
        Box::pin(connection.stop()).await;
        OwnConnectionEnded { upstream, reason: &reason }.emit();
        drop((counted, room, connection));
        if let Some(retry_at) = retry_at {
            self.linger(pool, retry_at).await;
        }
    }

    /// Keeps an open connection until it has to end; says why.
    async fn keep(self: &Arc<Self>, pool: &Pool, connection: &Connection) -> End {
        let mut pulse = pin!(pulse::watch(connection, &pool.config, &pool.metrics).fuse());
        loop {
            tokio::select! {
                failure = connection.closed() => return End::Lost(failure),
                () = pool.stop.cancelled() => return End::Ended("the gateway is stopping"),
                () = self.retired.cancelled() => break,
                failure = &mut pulse => connection.wire().transport.give_up(failure),
                () = sleep_until(self.usage.idle_since() + pool.idle) => {
                    if pool.give_up(self, pool.idle) {
                        return End::Ended("idle");
                    }
                }
            }
        }
        tokio::select! {
            () = self.usage.deserted() => {}
            _ = connection.closed() => {}
            () = pool.stop.cancelled() => {}
        }
        End::Ended(*self.reason.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts a connection that was begun at that time and did not last or could not be opened; says when its owner
    /// may have another. The first may be made up for at once: a call that was lost with it may be repeated.
    fn next_attempt(&self, began: Instant) -> Instant {
        match self.losses.fetch_add(1, Ordering::Relaxed) {
            0 => Instant::now(),
            losses => began + ATTEMPT_SPACING.saturating_mul(1 << (losses - 1).min(16)).min(LONGEST_SPACING),
        }
    }

    /// Stays for a while behind the time of the next attempt, so that it is remembered how many failed.
    async fn linger(&self, pool: &Pool, retry_at: Instant) {
        tokio::select! {
            () = sleep_until(retry_at + LONGEST_SPACING) => {}
            () = self.retired.cancelled() => {}
            () = pool.stop.cancelled() => {}
        }
    }
}

/// Why there is no connection.
#[derive(Debug)]
enum NotOpened {
    /// It could not be opened; not to be tried before then.
    Failed(Failure, Instant),
    /// It was not tried, as it could not be opened for others; not to be tried before then.
    NotTried(Failure, Instant),
}

/// Opens a connection once there is room for it, and its turn has come.
async fn open(pool: &Pool, tenancy: &Tenancy) -> Result<(Arc<Connection>, OwnedSemaphorePermit), NotOpened> {
    let stopping = |_| NotOpened::NotTried(Failure::unavailable("the gateway is stopping"), Instant::now());
    let room = Arc::clone(&pool.rooms).acquire_owned().await.map_err(stopping)?;
    let opening =
        pool.gate.pass().await.map_err(|(failure, retry_at)| NotOpened::NotTried(failure, retry_at))?;
    let dialing = async {
        let connection = pool.dialer.connect(tenancy).await?;
        connection.listening().await;
        Ok(connection)
    };
    let opened = match timeout(pool.config.connect_timeout, Box::pin(dialing)).await {
        Ok(opened) => opened,
        Err(_) => Err(Failure::unavailable("it did not answer the handshake in time")),
    };
    match opened {
        Ok(connection) => {
            opening.succeeded();
            Ok((Arc::new(connection), room))
        }
        Err(failure) => {
            let retry_at = opening.failed(&failure);
            Err(NotOpened::Failed(failure, retry_at))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn connections_of_one_owner_that_do_not_last_grow_apart() {
        let lane = Lane::new(Owner::Client(0), 0);
        let began = Instant::now();
        tokio::time::advance(Duration::from_millis(300)).await;
        assert_eq!(lane.next_attempt(began), Instant::now(), "the first is made up for at once");
        let waits: Vec<u64> = (0..8).map(|_| (lane.next_attempt(began) - began).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        let next = Lane::new(Owner::Client(0), lane.losses());
        assert_eq!(next.next_attempt(began) - began, LONGEST_SPACING, "the next one remembers");
        assert_eq!(Lane::new(Owner::Client(0), u32::MAX - 1).next_attempt(began) - began, LONGEST_SPACING);
    }
}
