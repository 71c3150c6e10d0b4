//! The rest of a process that nobody uses: when it begins, and what ends it.
//!
//! Must not know: how a process is started, or ended.

use std::time::Duration;

use tokio::time::Instant;

use super::{Course, Supervisor};
use crate::config::Start;
use crate::gateway::Health;
use crate::telemetry::UpstreamIdle;
use crate::upstream::connection::Connection;

/// How long a process runs that was started for its lists alone: some tell of more tools once the handshake is done.
const LINGER: Duration = Duration::from_secs(2);

impl Supervisor {
    /// When it is time to see whether the process is still used; `None` where that does not matter, or it has not
    /// been learned yet what it offers. `since` is when its connection began.
    pub(super) fn bored_at(&self, course: &Course, since: Instant) -> Option<Instant> {
        let idle = self.config.idle_stop()?;
        let announced_at = course.announced_at?;
        let is_lazy = self.config.process().is_some_and(|process| process.start == Start::Lazy);
        let idle_since = self.desk.idle_since()?;
        match is_lazy && idle_since <= since {
            // It was started for its lists.
            true => Some(announced_at + LINGER.min(idle)),
            false => Some(idle_since.max(since) + idle),
        }
        .map(|due| course.kept_awake_until.map_or(due, |kept| kept.max(due)))
    }

    /// Lets the process rest, if nothing keeps it awake: a call, a resource that somebody follows, a list that could
    /// not be read. Looks again later if something does.
    pub(super) fn try_to_rest(&self, course: &mut Course, since: Instant) -> bool {
        if self.bored_at(course, since).is_none_or(|due| due > Instant::now()) {
            return false;
        }
        let is_stale = course.grace_ends.is_some();
        let is_awake = is_stale || !self.followed.is_idle() || !self.desk.rest();
        if is_awake {
            course.kept_awake_until =
                Some(Instant::now() + LINGER.min(self.config.idle_stop().unwrap_or(LINGER)));
        }
        !is_awake
    }

    /// Rests until somebody needs the process: a call, somebody who follows a resource, a process of somebody's own
    /// that says that lists have changed. `connection` is the one that has ended.
    pub(super) async fn rest(&self, connection: &Connection, course: &mut Course) {
        UpstreamIdle { upstream: &self.config.name }.emit(&self.metrics);
        self.desk.change_offer(|offer| offer.health = Health::Idle);
        course.rest();
        let mut wishes = self.followed.wishes();
        loop {
            wishes.mark_unchanged();
            if !self.followed.is_idle() {
                return;
            }
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = self.desk.woken() => return,
                _ = connection.wire().unsolicited.changed() => return,
                Ok(()) = wishes.changed() => {}
            }
        }
    }
}

impl Course {
    /// It ended in good order, and what is known of it holds.
    fn rest(&mut self) {
        self.backoff.reset();
        self.is_rested = true;
        self.announced_at = None;
        self.kept_awake_until = None;
    }
}
