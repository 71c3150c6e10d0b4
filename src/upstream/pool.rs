//! The connections that belong to one client or one session each: opened by its first call, ended when they are
//! not used, when their session ends, or to make room.
//!
//! Must not know: what calls do on a connection.

mod gate;
mod lane;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::connection::Connection;
use super::failure::Failure;
use super::probe::Dialer;
use super::seats::Seat;
use super::tenancy::{Owner, Tenancy};
use super::usage::InUse;
use crate::config::{Isolation, UpstreamConfig};
use crate::exchange::Call;
use crate::telemetry::Metrics;

use gate::Gate;
use lane::{Lane, State};

/// When a call that found no room may try again, as far as one can say.
const RETRY: Duration = Duration::from_secs(1);

/// The own connections of one upstream: `max_connections` at the most, those that are ending included.
#[derive(Debug)]
pub(super) struct Pool {
    config: Arc<UpstreamConfig>,
    metrics: Arc<Metrics>,
    dialer: Arc<Dialer>,
    tasks: TaskTracker,
    /// Where connections live: that of a call may end before them.
    runtime: Handle,
    stop: CancellationToken,
    /// How long a connection is kept that nobody uses.
    idle: Duration,
    /// The client that many people may be.
    anonymous: Option<usize>,
    /// One for each connection, until it has ended.
    rooms: Arc<Semaphore>,
    gate: Gate,
    lanes: Mutex<HashMap<Owner, Arc<Lane>>>,
}

/// What a pool needs of its upstream.
#[derive(Debug)]
pub(super) struct Grounds {
    pub(super) config: Arc<UpstreamConfig>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) dialer: Arc<Dialer>,
    pub(super) tasks: TaskTracker,
    pub(super) stop: CancellationToken,
    pub(super) idle: Duration,
    pub(super) anonymous: Option<usize>,
}

/// A connection to call on, with a seat on it. It is in use as long as this lives.
#[derive(Debug)]
pub(super) struct Checkout {
    pub(super) connection: Arc<Connection>,
    _seat: Option<Seat>,
    _in_use: Option<InUse>,
    _counted: Option<TaskTrackerToken>,
}

impl Checkout {
    /// One on a connection that all share.
    pub(super) fn shared(connection: Arc<Connection>, in_use: Option<InUse>) -> Self {
        Self { connection, _seat: None, _in_use: in_use, _counted: None }
    }

    /// Counts as under way for as long as it lives.
    pub(super) fn counted(self, token: TaskTrackerToken) -> Self {
        Self { _counted: Some(token), ..self }
    }

    /// Takes a seat, or waits for one until `deadline`.
    ///
    /// # Errors
    /// If too many wait already, or none becomes free in time.
    pub(super) async fn sit(mut self, client: usize, deadline: Instant) -> Result<Self, Failure> {
        self._seat = Some(self.connection.seat(client, deadline).await?);
        Ok(self)
    }
}

impl Pool {
    /// An empty pool; `None` where all share one connection. Must be called within the runtime that its
    /// connections are to live in.
    pub(super) fn new(grounds: Grounds) -> Option<Arc<Self>> {
        let Grounds { config, metrics, dialer, tasks, stop, idle, anonymous } = grounds;
        if config.sharing.isolation == Isolation::Shared {
            return None;
        }
        let rooms = Arc::new(Semaphore::new(config.sharing.connections.min(Semaphore::MAX_PERMITS)));
        let (lanes, gate, runtime) = (Mutex::default(), Gate::new(), Handle::current());
        Some(Arc::new(Self {
            config,
            metrics,
            dialer,
            tasks,
            runtime,
            stop,
            idle,
            anonymous,
            rooms,
            gate,
            lanes,
        }))
    }

    /// The connection that this call's owner has already, if it works.
    pub(super) fn find(&self, call: &Call) -> Option<Checkout> {
        let owner = Owner::of(call, self.config.sharing.isolation)?;
        let lanes = self.lock();
        let lane = lanes.get(&owner)?;
        let connection = lane.connection()?;
        Some(Checkout { connection, _seat: None, _in_use: Some(lane.usage.enter()), _counted: None })
    }

    /// The connection of this call's owner; opens it where there is none, once for all who wait for it. What
    /// one call has begun to open others may use, even if that call is cancelled.
    ///
    /// # Errors
    /// If it cannot be opened, not in time, or there is no room for it.
    pub(super) async fn open(self: &Arc<Self>, call: &Call, deadline: Instant) -> Result<Checkout, Failure> {
        let Some(owner) = Owner::of(call, self.config.sharing.isolation) else {
            return Err(Failure::unavailable("it has no connections for one client alone"));
        };
        let (lane, in_use) = self.enter(owner, call)?;
        let mut states = lane.states();
        let opened = timeout_at(deadline, states.wait_for(|state| !matches!(state, State::Opening))).await;
        let state = opened.ok().and_then(Result::ok).map(|state| state.clone());
        match state {
            Some(State::Open(connection)) => {
                Ok(Checkout { connection, _seat: None, _in_use: Some(in_use), _counted: None })
            }
            Some(State::Failed(failure, retry_at)) => {
                Err(failure.of_unsent(retry_at.saturating_duration_since(Instant::now())))
            }
            Some(State::Gone) => Err(Failure::unavailable("its connection was closed before the call")),
            Some(State::Opening) | None => {
                Err(Failure::unavailable("it is still connecting").retry_after(Some(RETRY)))
            }
        }
    }

    /// Ends the connection of a session that has ended: at once, or after the calls that are on it.
    pub(super) fn end_session(&self, session: &Arc<str>) {
        let ended = self.lock().remove(&Owner::Session(Arc::clone(session)));
        if let Some(lane) = ended {
            lane.retire("its session ended");
        }
    }

    /// The lane of an owner, in use; a new one where there is none, or a broken one.
    fn enter(self: &Arc<Self>, owner: Owner, call: &Call) -> Result<(Arc<Lane>, InUse), Failure> {
        let mut lanes = self.lock();
        let mut losses = 0;
        match lanes.get(&owner) {
            Some(lane) if lane.is_broken() => {
                losses = lane.losses();
                lane.retire("broken");
                lanes.remove(&owner);
            }
            Some(lane) => return Ok((Arc::clone(lane), lane.usage.enter())),
            None => {}
        }
        if lanes.len() >= self.config.sharing.connections {
            let idle = lanes.values().filter(|lane| lane.usage.is_idle());
            // Those that are of no use first.
            let by_use = |lane: &&Arc<Lane>| (lane.connection().is_some(), lane.usage.idle_since());
            let Some(longest) = idle.min_by_key(by_use).cloned() else {
                return Err(self.full());
            };
            lanes.remove(&longest.owner);
            longest.retire("made room for another");
        }
        let tenancy = Tenancy::owned(call, self.config.sharing, self.anonymous);
        let lane = Arc::new(Lane::new(owner.clone(), losses));
        let in_use = lane.usage.enter();
        self.tasks.spawn_on(Arc::clone(&lane).live(Arc::clone(self), tenancy), &self.runtime);
        lanes.insert(owner, Arc::clone(&lane));
        Ok((lane, in_use))
    }

    /// Takes a lane out, if it is idle for as long as that; says whether it did.
    fn give_up(&self, lane: &Arc<Lane>, idle: Duration) -> bool {
        let mut lanes = self.lock();
        let is_over = lane.usage.is_idle() && lane.usage.idle_since() + idle <= Instant::now();
        if is_over && lanes.get(&lane.owner).is_some_and(|found| Arc::ptr_eq(found, lane)) {
            lanes.remove(&lane.owner);
        }
        is_over
    }

    /// Takes a lane out that is of no use any more.
    fn forget(&self, lane: &Arc<Lane>) {
        let mut lanes = self.lock();
        if lanes.get(&lane.owner).is_some_and(|found| Arc::ptr_eq(found, lane)) {
            lanes.remove(&lane.owner);
        }
    }

    fn full(&self) -> Failure {
        let most = self.config.sharing.connections;
        let text = format!(
            "all of its {most} connections for one client or session each are in use (`max_connections`)"
        );
        Failure::unavailable(text).retry_after(Some(RETRY))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Owner, Arc<Lane>>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
