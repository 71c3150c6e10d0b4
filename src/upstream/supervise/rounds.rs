//! The rounds of reading the lists of one connection: each kind by itself, so that one that fails, or never
//! comes, holds no other up.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::time::Instant;

use super::{FIRST_WAIT, LONGEST_WAIT};
use crate::gateway::List;
use crate::mcp::{ListKind, PerKind};
use crate::upstream::backoff::Backoff;
use crate::upstream::connection::Connection;
use crate::upstream::failure::Failure;
use crate::upstream::listing::Listing;

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
/// How long what was read first waits for the other kinds, so that all come at once.
const COMPANY: Duration = Duration::from_secs(1);

/// How reading a list ended.
pub(super) type Read = (ListKind, Result<Listing, Failure>);

/// The readings of one connection.
pub(super) struct Rounds<'a> {
    /// `None` for what the server does not have.
    schedules: PerKind<Option<Schedule>>,
    running: FuturesUnordered<BoxFuture<'a, Read>>,
    is_running: PerKind<bool>,
    /// What was read before the connection counts as ready.
    first: Vec<Read>,
    is_ready: bool,
    /// When it counts as ready, whatever is missing.
    ready_at: Option<Instant>,
}

impl<'a> Rounds<'a> {
    /// Rounds over the kinds that a server may have; all are due at once.
    pub(super) fn new(kinds: &PerKind<bool>, refresh: Duration) -> Self {
        Self {
            schedules: PerKind::of(|kind| kinds.kind(kind).then(|| Schedule::new(refresh))),
            running: FuturesUnordered::new(),
            is_running: PerKind::default(),
            first: Vec::new(),
            is_ready: false,
            ready_at: None,
        }
    }

    /// When the next reading is due.
    pub(super) fn due(&self) -> Instant {
        let idle = ListKind::ALL.into_iter().filter(|kind| !self.is_running.kind(*kind));
        let due = idle.filter_map(|kind| self.schedules.kind(kind).as_ref().map(|schedule| schedule.due));
        due.min().unwrap_or_else(|| Instant::now() + NEVER)
    }

    /// Starts every reading that is due.
    pub(super) fn start(&mut self, read: impl Fn(ListKind) -> BoxFuture<'a, Read>) {
        let now = Instant::now();
        for kind in ListKind::ALL {
            let is_due = self.schedules.kind(kind).as_ref().is_some_and(|schedule| schedule.due <= now);
            if is_due && !std::mem::replace(self.is_running.kind_mut(kind), true) {
                self.running.push(read(kind));
            }
        }
    }

    /// These lists have changed.
    pub(super) fn hurry(&mut self, kinds: &PerKind<bool>) {
        for kind in ListKind::ALL.into_iter().filter(|kind| *kinds.kind(*kind)) {
            if let Some(schedule) = self.schedules.kind_mut(kind) {
                schedule.hurry();
            }
        }
    }

    /// Waits until there is something to publish. What is read first comes when every kind has been read
    /// once, or a second after the tools. Cancel safe.
    pub(super) async fn next(&mut self) -> Vec<Read> {
        loop {
            let read = tokio::select! {
                Some(read) = self.running.next(), if !self.running.is_empty() => read,
                () = crate::upstream::until(self.ready_at) => {
                    self.ready_at = None;
                    self.is_ready = true;
                    return std::mem::take(&mut self.first);
                }
            };
            *self.is_running.kind_mut(read.0) = false;
            if self.is_ready {
                return vec![read];
            }
            // Not due again before it is published.
            if let Some(schedule) = self.schedules.kind_mut(read.0) {
                schedule.due = Instant::now() + NEVER;
            }
            if read.0 == ListKind::Tools {
                self.ready_at = Some(Instant::now() + COMPANY);
            }
            self.first.push(read);
            if self.running.is_empty() && self.ready_at.is_some() {
                self.ready_at = Some(Instant::now());
            }
        }
    }

    /// A list was read: says when it is read next.
    pub(super) fn succeeded(&mut self, kind: ListKind, list: &List) {
        if let Some(schedule) = self.schedules.kind_mut(kind) {
            if list.is_served { schedule.succeeded(list.ttl) } else { schedule.rest() }
        }
    }

    /// A list could not be read: says when it is tried again.
    pub(super) fn failed(&mut self, kind: ListKind) -> Duration {
        self.schedules.kind_mut(kind).as_mut().map_or(NEVER, Schedule::failed)
    }

    /// Whether the server is to be connected to anew, because its tools cannot be had.
    pub(super) fn is_hopeless(&self, connection: &Connection) -> bool {
        self.schedules.tools.as_ref().is_some_and(|schedule| schedule.is_hopeless(connection))
    }
}

/// When a list is read next.
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

    /// It is not there: nothing is read again before it is said to have changed.
    fn rest(&mut self) {
        self.retries.reset();
        self.last = Some(Instant::now());
        self.due = Instant::now() + NEVER;
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
