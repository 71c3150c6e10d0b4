//! The life of one upstream: connecting, ready, down, and again. One task for each, so that none waits for
//! another.

mod desk;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::backoff::Backoff;
use super::connection::Connection;
use super::failure::Failure;
use super::listing::{ListReader, Listing};
use super::probe::Dialer;
use crate::config::UpstreamConfig;
use crate::gateway::{Health, Offer};
use crate::telemetry::{
    Metrics, UpstreamConnected, UpstreamFailed, UpstreamListed, UpstreamLost, UpstreamUnlisted,
};
use crate::wire::mirror::Mirrors;

pub(super) use desk::Desk;
use desk::Outage;

/// The first wait after a failure.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// The longest wait between two attempts.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// How long a connection must have lived for the next wait to be a short one again.
const SUSTAINED: Duration = Duration::from_secs(60);
/// How close two attempts may follow each other, whoever asks for them.
const ATTEMPT_SPACING: Duration = Duration::from_secs(1);
/// How long changes of a list are gathered before it is read again.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// How close two readings of a list may follow each other.
const LIST_SPACING: Duration = Duration::from_millis(500);
/// How often in a row a list may fail before the connection over HTTP is made anew.
const LIST_TRIES: u32 = 3;
/// The shortest lifetime of a list that is believed.
const SHORTEST_TTL: Duration = Duration::from_secs(5);
/// A time that does not come.
const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// Keeps one upstream connected.
#[derive(Debug)]
pub(super) struct Supervisor {
    pub(super) config: Arc<UpstreamConfig>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) dialer: Arc<Dialer>,
    pub(super) lists: Arc<ListReader>,
    pub(super) desk: Arc<Desk>,
    pub(super) stop: CancellationToken,
}

/// What one life of an upstream remembers.
#[derive(Debug)]
struct Course {
    backoff: Backoff,
    connects: u64,
    /// When the last known lists are no longer served.
    grace_ends: Option<Instant>,
    down_since: Option<Instant>,
    /// Which arguments went into headers when the lists were last read.
    mirrors: Arc<Mirrors>,
}

impl Supervisor {
    /// Runs until it is told to stop.
    pub(super) async fn run(self) {
        let mut course = Course {
            backoff: Backoff::new(FIRST_WAIT, LONGEST_WAIT),
            connects: 0,
            grace_ends: None,
            down_since: None,
            mirrors: Arc::default(),
        };
        while !self.stop.is_cancelled() {
            let began = Instant::now();
            self.desk.begin_attempt();
            let failure = match self.attempt(&mut course).await {
                None => break,
                Some(Err(failure)) => failure,
                Some(Ok(connection)) => {
                    let Some(failure) = self.serve(&connection, &mut course, began).await else {
                        Box::pin(connection.stop()).await;
                        break;
                    };
                    UpstreamLost { upstream: &self.config.name, reason: &failure.reason() }
                        .emit(&self.metrics);
                    course.grace_ends = Some(Instant::now() + self.config.grace);
                    if began.elapsed() >= SUSTAINED {
                        course.backoff.reset();
                    }
                    failure
                }
            };
            self.back_off(failure, &mut course, began).await;
        }
        self.desk.close();
    }

    /// One attempt to connect; `None` if it is time to stop.
    async fn attempt(&self, course: &mut Course) -> Option<Result<Arc<Connection>, Failure>> {
        let dialer = Arc::clone(&self.dialer);
        let limit = self.config.connect_timeout;
        let dialing = async move {
            match timeout(limit, Box::pin(dialer.connect())).await {
                Ok(connection) => connection.map(Arc::new),
                Err(_) => Err(Failure::unavailable("it did not answer the handshake in time")),
            }
        };
        self.while_in_grace(course, dialing).await
    }

    /// Waits for a future, lets the last known lists go when their time is over, and ends when it is time to
    /// stop (`None`).
    async fn while_in_grace<T>(&self, course: &mut Course, future: impl Future<Output = T>) -> Option<T> {
        let mut future = Box::pin(future);
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return None,
                output = &mut future => return Some(output),
                () = until(course.grace_ends) => self.forget_lists(course),
            }
        }
    }

    /// Waits for the next attempt to be due: by time, or because a caller wants one.
    async fn back_off(&self, failure: Failure, course: &mut Course, began: Instant) {
        let wait = course.backoff.next().max(failure.retry_after.unwrap_or_default().min(LONGEST_WAIT));
        let now = Instant::now();
        let outage = Outage {
            since: *course.down_since.get_or_insert(now),
            retry_at: now + wait,
            may_wake_at: began + ATTEMPT_SPACING,
            failures: course.backoff.failures(),
            failure,
        };
        UpstreamFailed { upstream: &self.config.name, reason: &outage.failure.reason(), retry_in: wait }
            .emit(&self.metrics);
        let health = Health::Down {
            reason: outage.failure.text.clone().into(),
            since: outage.since.into_std(),
            retry_at: outage.retry_at.into_std(),
        };
        let may_wake_at = outage.may_wake_at;
        self.desk.report(outage);
        self.desk.change_offer(|offer| offer.health = health);
        let waiting = async {
            tokio::select! {
                () = sleep(wait) => {}
                () = async { sleep_until(may_wake_at).await; self.desk.woken().await } => {}
            }
        };
        let _stopped = self.while_in_grace(course, waiting).await;
    }

    /// Serves a ready connection until it breaks; `None` if it is time to stop.
    async fn serve(
        &self,
        connection: &Arc<Connection>,
        course: &mut Course,
        began: Instant,
    ) -> Option<Failure> {
        course.connects += 1;
        course.down_since = None;
        connection.mirror(Arc::clone(&course.mirrors));
        self.desk.open(connection);
        let mut schedule = Schedule::new(self.config.refresh);
        let mut reading: Option<BoxFuture<'_, Result<Listing, Failure>>> = None;
        let mut is_announced = false;
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return None,
                failure = connection.closed() => return Some(failure),
                () = until(course.grace_ends) => self.forget_lists(course),
                () = sleep_until(schedule.due), if reading.is_none() => {
                    reading = Some(Box::pin(self.read(connection)));
                }
                () = connection.wire().unsolicited.tools_changed(), if reading.is_none() => schedule.hurry(),
                result = async { reading.as_mut()?.await.into() }, if reading.is_some() => {
                    reading = None;
                    let Some(result) = result else { continue };
                    let failure = self.publish(connection, course, &mut schedule, result);
                    if !std::mem::replace(&mut is_announced, true) {
                        self.announce(connection, course, began);
                    }
                    if let Some(failure) = failure.filter(|_| schedule.is_hopeless(connection)) {
                        return Some(failure);
                    }
                }
            }
        }
    }

    async fn read(&self, connection: &Connection) -> Result<Listing, Failure> {
        match timeout(self.config.list_timeout, self.lists.read_tools(connection)).await {
            Ok(result) => result,
            Err(_) => Err(Failure::unavailable("it did not list its tools in time")),
        }
    }

    /// Publishes what was read. If nothing could be, what was known is served on for as long as it is in
    /// grace; gives back why.
    fn publish(
        &self,
        connection: &Connection,
        course: &mut Course,
        schedule: &mut Schedule,
        result: Result<Listing, Failure>,
    ) -> Option<Failure> {
        let hello = connection.hello();
        let (listing, failure) = match result {
            Ok(listing) => {
                schedule.succeeded(listing.ttl);
                course.grace_ends = None;
                course.mirrors = Arc::clone(&listing.mirrors);
                connection.mirror(Arc::clone(&listing.mirrors));
                UpstreamListed { upstream: &self.config.name, tools: listing.tools.len() }
                    .emit(&self.metrics);
                (Some(listing), None)
            }
            Err(failure) => {
                let retry_in = schedule.failed();
                course.grace_ends.get_or_insert_with(|| Instant::now() + self.config.grace);
                UpstreamUnlisted { upstream: &self.config.name, reason: &failure.reason(), retry_in }
                    .emit(&self.metrics);
                (None, Some(failure))
            }
        };
        self.desk.change_offer(|offer| {
            offer.health = Health::Ready;
            offer.capabilities.clone_from(&hello.capabilities);
            offer.server_info.clone_from(&hello.server_info);
            offer.instructions.clone_from(&hello.instructions);
            offer.protocol_version = Some(hello.version.as_str());
            offer.connects = course.connects;
            if let Some(listing) = listing {
                offer.tools = listing.tools;
                offer.ttl = listing.ttl;
                offer.is_private = listing.is_private;
            }
        });
        failure
    }

    fn announce(&self, connection: &Connection, course: &Course, began: Instant) {
        UpstreamConnected {
            upstream: &self.config.name,
            version: connection.hello().version.as_str(),
            transport: connection.wire().transport.label(),
            tools: self.desk.offer().borrow().tools.len(),
            took: began.elapsed(),
            is_restart: course.connects > 1,
        }
        .emit(&self.metrics);
    }

    fn forget_lists(&self, course: &mut Course) {
        course.grace_ends = None;
        self.desk.change_offer(|offer: &mut Offer| offer.tools.clear());
    }
}

/// When the lists are read next.
#[derive(Debug)]
struct Schedule {
    due: Instant,
    last: Option<Instant>,
    refresh: Duration,
    retries: Backoff,
}

impl Schedule {
    fn new(refresh: Duration) -> Self {
        let refresh = if refresh.is_zero() { NEVER } else { refresh };
        let retries = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
        Self { due: Instant::now(), last: None, refresh, retries }
    }

    /// The list has changed.
    fn hurry(&mut self) {
        let spaced = self.last.map(|last| last + LIST_SPACING);
        let due = (Instant::now() + DEBOUNCE).max(spaced.unwrap_or_else(Instant::now));
        self.due = self.due.min(due);
    }

    /// It was read, and is fresh for so long.
    fn succeeded(&mut self, ttl: Option<Duration>) {
        let now = Instant::now();
        let ttl = ttl.filter(|ttl| !ttl.is_zero()).map(|ttl| ttl.max(SHORTEST_TTL));
        self.retries.reset();
        self.last = Some(now);
        self.due = now + self.refresh.min(ttl.unwrap_or(NEVER));
    }

    /// Whether the list has failed so often that the server may have become another one. A new connection
    /// over HTTP costs little; a child is not ended for it.
    fn is_hopeless(&self, connection: &Connection) -> bool {
        self.retries.failures() >= LIST_TRIES && connection.wire().is_http()
    }

    /// It could not be read: says when it is tried again.
    fn failed(&mut self) -> Duration {
        let wait = self.retries.next();
        self.last = Some(Instant::now());
        self.due = Instant::now() + wait;
        wait
    }
}

/// Waits for a time that may not come.
async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
