//! The life of one upstream: connecting, ready, down, and again. One task for each, so that none waits for
//! another.

mod desk;
mod rest;
mod rounds;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::backoff::Backoff;
use super::connection::Connection;
use super::failure::Failure;
use super::listing::ListReader;
use super::probe::Dialer;
use super::pulse;
use super::tenancy::Tenancy;
use super::until;
use crate::config::UpstreamConfig;
use crate::gateway::{Followed, Health, List, Offer};
use crate::mcp::{ListKind, PerKind, Raw};
use crate::telemetry::{
    Metrics, UpstreamConnected, UpstreamFailed, UpstreamListed, UpstreamLost, UpstreamUnlisted,
};
use crate::translate::hello::Hello;
use crate::wire::mirror::Mirrors;

pub(super) use desk::Desk;
use desk::Outage;
use rounds::{Read, Rounds};

/// The first wait after a failure.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// The longest wait between two attempts.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// How long a connection must have lived for the next wait to be a short one again.
const SUSTAINED: Duration = Duration::from_secs(60);
/// How close two attempts may follow each other, whoever asks for them.
const ATTEMPT_SPACING: Duration = Duration::from_secs(1);

/// Keeps one upstream connected.
#[derive(Debug)]
pub(super) struct Supervisor {
    pub(super) config: Arc<UpstreamConfig>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) dialer: Arc<Dialer>,
    pub(super) lists: Arc<ListReader>,
    pub(super) desk: Arc<Desk>,
    /// What its clients follow.
    pub(super) followed: Arc<Followed>,
    /// Another one has its place: what is lost is not made again, and is nobody's news.
    pub(super) retired: CancellationToken,
    pub(super) stop: CancellationToken,
}

/// What one life of an upstream remembers.
#[derive(Debug)]
struct Course {
    backoff: Backoff,
    connects: u64,
    /// When lists that are no longer true are no longer served.
    grace_ends: Option<Instant>,
    /// Which lists those are.
    is_stale: PerKind<bool>,
    down_since: Option<Instant>,
    /// When the lists of this connection were there.
    announced_at: Option<Instant>,
    /// Something is to be done on this connection until then at the least.
    kept_awake_until: Option<Instant>,
    /// The last connection was ended because nobody used it.
    is_rested: bool,
    /// Which arguments went into headers when the lists were last read.
    mirrors: Arc<Mirrors>,
}

/// Why a connection is served no longer.
#[derive(Debug)]
enum End {
    /// It broke.
    Lost(Failure),
    /// Nobody uses it.
    Unused,
    /// It is time to stop.
    Stopped,
}

impl Supervisor {
    /// Runs until it is told to stop.
    pub(super) async fn run(self) {
        let mut course = Course {
            backoff: Backoff::new(FIRST_WAIT, LONGEST_WAIT),
            connects: 0,
            // What is offered already was offered in its place.
            grace_ends: Some(Instant::now() + self.config.grace),
            is_stale: PerKind::of(|_| true),
            down_since: None,
            announced_at: None,
            kept_awake_until: None,
            is_rested: false,
            mirrors: Arc::default(),
        };
        while !self.stop.is_cancelled() {
            let began = Instant::now();
            self.desk.begin_attempt();
            let failure = match self.attempt(&mut course).await {
                None => break,
                Some(Err(failure)) => {
                    if std::mem::take(&mut course.is_rested) {
                        self.doubt_lists(&mut course);
                    }
                    failure
                }
                Some(Ok(connection)) => {
                    let failure = match self.serve(&connection, &mut course, began).await {
                        End::Lost(_) if self.retired.is_cancelled() => break,
                        End::Lost(failure) => failure,
                        End::Stopped => {
                            Box::pin(connection.stop()).await;
                            break;
                        }
                        End::Unused => {
                            Box::pin(connection.stop()).await;
                            self.rest(&connection, &mut course).await;
                            continue;
                        }
                    };
                    UpstreamLost { upstream: &self.config.name, reason: &failure.reason() }
                        .emit(&self.metrics);
                    self.doubt_lists(&mut course);
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

    /// From now on the lists may not be true any more.
    fn doubt_lists(&self, course: &mut Course) {
        course.grace_ends = Some(Instant::now() + self.config.grace);
        course.is_stale = PerKind::of(|_| true);
    }

    /// One attempt to connect; `None` if it is time to stop.
    async fn attempt(&self, course: &mut Course) -> Option<Result<Arc<Connection>, Failure>> {
        let dialer = Arc::clone(&self.dialer);
        let tenancy = Tenancy::shared(self.config.sharing);
        let limit = self.config.connect_timeout;
        let dialing = async move {
            match timeout(limit, Box::pin(dialer.connect(&tenancy))).await {
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
        let reason = outage.failure.reason();
        UpstreamFailed {
            upstream: &self.config.name,
            reason: &reason,
            retry_in: wait,
            failures: outage.failures,
        }
        .emit(&self.metrics);
        let health = Health::Down {
            reason: outage.failure.text.clone().into(),
            since: outage.since.into_std(),
            retry_at: outage.retry_at.into_std(),
            failures: outage.failures,
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

    /// Serves a ready connection until it breaks, nobody uses it any more, or it is time to stop.
    async fn serve(&self, connection: &Arc<Connection>, course: &mut Course, began: Instant) -> End {
        course.connects += 1;
        course.down_since = None;
        (course.announced_at, course.kept_awake_until) = (None, None);
        let since = Instant::now();
        connection.mirror(Arc::clone(&course.mirrors));
        self.desk.open(connection);
        let mut rounds = Rounds::new(&kinds(connection.hello()), self.config.refresh);
        let mut lasts_at = Some(began + SUSTAINED);
        let mut pulse = pin!(pulse::watch(connection.as_ref(), &self.config, &self.metrics).fuse());
        let mut following = Box::pin(connection.follow(&self.followed));
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return End::Stopped,
                failure = connection.closed() => return End::Lost(failure),
                () = until(self.bored_at(course, since)) => {
                    if self.try_to_rest(course, since) {
                        return End::Unused;
                    }
                }
                () = until(course.grace_ends) => self.forget_lists(course),
                () = until(lasts_at) => {
                    lasts_at = None;
                    course.backoff.reset();
                    self.metrics.set_failures(&self.config.name, 0);
                }
                failure = &mut pulse => connection.wire().transport.give_up(failure),
                () = &mut following => {}
                () = sleep_until(rounds.due()) => rounds.start(|kind| self.read(kind, connection).boxed()),
                changed = connection.wire().unsolicited.changed() => rounds.hurry(&changed),
                read = rounds.next() => {
                    let failure = self.publish(connection, course, &mut rounds, read);
                    if course.announced_at.replace(Instant::now()).is_none() {
                        self.announce(connection, course, began);
                    }
                    if let Some(failure) = failure.filter(|_| rounds.is_hopeless(connection)) {
                        return End::Lost(failure);
                    }
                }
            }
        }
    }

    async fn read(&self, kind: ListKind, connection: &Connection) -> Read {
        let result = match timeout(self.config.list_timeout, self.lists.read(kind, connection)).await {
            Ok(result) => result,
            Err(_) => Err(Failure::unavailable(format!("it did not list its {}s in time", kind.noun()))),
        };
        (kind, result)
    }

    /// Publishes what was read. For what could not be, that which was known is served on for as long as it is
    /// in grace; gives back why the tools could not.
    fn publish(
        &self,
        connection: &Connection,
        course: &mut Course,
        rounds: &mut Rounds<'_>,
        read: Vec<Read>,
    ) -> Option<Failure> {
        let hello = connection.hello();
        let known = kinds(hello);
        let mut lists: PerKind<Option<List>> = PerKind::of(|kind| (!known.kind(kind)).then(List::default));
        let mut failed = None;
        for (kind, result) in read {
            match result {
                Ok(listing) => {
                    rounds.succeeded(kind, &listing.list);
                    *course.is_stale.kind_mut(kind) = false;
                    if kind == ListKind::Tools {
                        course.mirrors = Arc::clone(&listing.mirrors);
                        connection.mirror(listing.mirrors);
                        UpstreamListed { upstream: &self.config.name, tools: listing.list.entries.len() }
                            .emit(&self.metrics);
                    }
                    *lists.kind_mut(kind) = Some(listing.list);
                }
                Err(failure) => {
                    let retry_in = rounds.failed(kind);
                    *course.is_stale.kind_mut(kind) = true;
                    course.grace_ends.get_or_insert_with(|| Instant::now() + self.config.grace);
                    UpstreamUnlisted { upstream: &self.config.name, reason: &failure.reason(), retry_in }
                        .emit(&self.metrics);
                    failed = failed.or((kind == ListKind::Tools).then_some(failure));
                }
            }
        }
        if !ListKind::ALL.iter().any(|kind| *course.is_stale.kind(*kind) && *known.kind(*kind)) {
            course.grace_ends = None;
        }
        self.desk.change_offer(|offer| {
            offer.health = Health::Ready;
            offer.server_info.clone_from(&hello.server_info);
            offer.instructions.clone_from(&hello.instructions);
            offer.protocol_version = Some(hello.version.as_str());
            offer.connects = course.connects;
            for kind in ListKind::ALL {
                if let Some(list) = lists.kind_mut(kind).take() {
                    *offer.lists.kind_mut(kind) = list;
                }
            }
            offer.tasks = hello.tasks();
            offer.capabilities = hello.capabilities.clone().or_else(|| Some(shown(&offer.lists)));
        });
        failed
    }

    fn announce(&self, connection: &Connection, course: &mut Course, began: Instant) {
        let is_rested = std::mem::take(&mut course.is_rested);
        UpstreamConnected {
            upstream: &self.config.name,
            version: connection.hello().version.as_str(),
            transport: connection.wire().transport.label(),
            tools: self.desk.offer().borrow().lists.tools.entries.len(),
            took: began.elapsed(),
            is_restart: course.connects > 1 && !is_rested,
        }
        .emit(&self.metrics);
    }

    fn forget_lists(&self, course: &mut Course) {
        course.grace_ends = None;
        let is_stale = std::mem::take(&mut course.is_stale);
        self.desk.change_offer(|offer: &mut Offer| {
            for kind in ListKind::ALL.into_iter().filter(|kind| *is_stale.kind(*kind)) {
                *offer.lists.kind_mut(kind) = List::default();
            }
        });
    }
}

/// Which lists a server may have: tools, and what it declares; all where it said nothing about itself.
fn kinds(hello: &Hello) -> PerKind<bool> {
    PerKind::of(|kind| {
        kind == ListKind::Tools || hello.capabilities.is_none() || hello.has(kind.capability())
    })
}

/// The capabilities that a server shows which said nothing about itself.
fn shown(lists: &PerKind<List>) -> Raw {
    let served = ListKind::ALL.into_iter().filter(|kind| lists.kind(*kind).is_served);
    let members = served.map(|kind| (kind.capability().to_owned(), serde_json::json!({})));
    Raw::from_value(&serde_json::Value::Object(members.collect()))
}
