//! What clients follow of one upstream, resources and tasks: where the middle says what is wanted, and the upstream
//! what became of it and what has changed.
//!
//! Each resource is counted, and asked for once however many follow it. An update is a number that grows; who
//! follows remembers the last one it was told, so nothing is queued and nothing is lost.
//!
//! Must not know: clients, and how an upstream is asked.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::error::GatewayError;
use super::statuses::Statuses;
use crate::exchange::Outcome;
use crate::mcp::Notification;

/// How long a resource that nobody follows any more is kept: a client that changes its mind, or comes back,
/// costs the server nothing.
const LINGER: Duration = Duration::from_secs(1);
/// How long after a server would not have a resource followed it is asked again, for those who still wait.
const AGAIN: Duration = Duration::from_secs(30);
/// Resources below one that is followed whose updates are told by their own URI. Those of more are told as
/// updates of the one above.
const BELOW: usize = 32;

/// Bytes of a URI up to which it is looked for what is above it: a longer one is told as itself alone. Looking costs
/// the square of the length at worst.
const DEEP: usize = 2048;

/// What an upstream said when it was asked to tell of a resource.
pub type Consent = Result<Outcome, GatewayError>;

/// The resources of one upstream that clients follow, by their native URIs. As large as the limits on what
/// clients may follow.
#[derive(Debug)]
pub struct Followed {
    table: Mutex<Table>,
    wishes: watch::Sender<()>,
    verdicts: watch::Sender<()>,
    news: watch::Sender<()>,
    statuses: Mutex<Statuses>,
    /// The tasks that clients follow; none of tasks themselves.
    tasks: Option<Arc<Self>>,
}

#[derive(Debug, Default)]
struct Table {
    /// The number of the last update.
    last: u64,
    entries: HashMap<Arc<str>, Entry>,
}

#[derive(Debug, Default)]
struct Entry {
    followers: usize,
    /// Since when nobody follows it.
    left_at: Option<Instant>,
    /// What the upstream said; `None` while it is being asked.
    verdict: Option<Consent>,
    /// When it is asked again after a refusal.
    again_at: Option<Instant>,
    /// Whether updates may have been missed since it was last told of.
    has_gap: bool,
    /// The last update of it, and of what is below it.
    updates: Vec<(Arc<str>, u64)>,
}

/// What an upstream is to be asked for.
#[derive(Debug, Default)]
pub struct Wanted {
    /// All resources that it should tell of.
    pub all: HashSet<Arc<str>>,
    /// Those of them that it has not been asked for, as far as is known here.
    pub open: HashSet<Arc<str>>,
    /// When this changes by itself.
    pub due: Option<Instant>,
}

/// One follower of one resource; leaves when dropped.
#[derive(Debug)]
pub(super) struct Follow {
    followed: Arc<Followed>,
    uri: Arc<str>,
    /// The last update that it was told.
    told: u64,
}

impl Default for Followed {
    fn default() -> Self {
        let wishes = watch::Sender::new(());
        let tasks = Self::table(wishes.clone(), None);
        Self::table(wishes, Some(Arc::new(tasks)))
    }
}

impl Followed {
    fn table(wishes: watch::Sender<()>, tasks: Option<Arc<Self>>) -> Self {
        let channel = || watch::Sender::new(());
        let (table, statuses) = (Mutex::default(), Mutex::default());
        Self { table, statuses, wishes, verdicts: channel(), news: channel(), tasks }
    }
}

/// The side of the upstream.
impl Followed {
    /// Changes whenever [`Self::wanted`] may have.
    #[must_use]
    pub fn wishes(&self) -> watch::Receiver<()> {
        self.wishes.subscribe()
    }

    /// What the upstream should tell of now. What nobody has followed for a second is forgotten.
    #[must_use]
    pub fn wanted(&self) -> Wanted {
        let now = Instant::now();
        let mut wanted = Wanted::default();
        let mut table = self.lock();
        table.entries.retain(|_, entry| entry.left_at.is_none_or(|left_at| left_at + LINGER > now));
        for (uri, entry) in &mut table.entries {
            if entry.again_at.is_some_and(|again_at| again_at <= now) {
                (entry.again_at, entry.verdict) = (None, None);
            }
            wanted.all.insert(Arc::clone(uri));
            if entry.verdict.is_none() {
                wanted.open.insert(Arc::clone(uri));
            }
            let lapses = entry.left_at.map(|left_at| left_at + LINGER);
            wanted.due = [wanted.due, lapses, entry.again_at].into_iter().flatten().min();
        }
        wanted
    }

    /// Notes what the upstream said about a resource. Where updates may have been missed before, one is told.
    /// Says whether somebody lost by it what was promised before.
    #[must_use]
    pub fn settle(&self, uri: &str, verdict: Consent) -> bool {
        let is_kept = matches!(verdict, Ok(Outcome::Complete(_)));
        let mut table = self.lock();
        let last = table.last + 1;
        let Some(entry) = table.entries.get_mut(uri) else { return false };
        let is_lost = !is_kept && entry.has_gap && entry.followers > 0;
        entry.again_at = (!is_kept).then(|| Instant::now() + AGAIN);
        entry.verdict = Some(verdict);
        let is_news = is_kept && std::mem::take(&mut entry.has_gap);
        if is_news {
            entry.note(uri, uri, last);
            table.last = last;
        }
        drop(table);
        self.verdicts.send_replace(());
        if is_news {
            self.news.send_replace(());
        }
        is_lost
    }

    /// The tasks that clients follow, by the server's own ids, in the place of resources. What is said of them is in
    /// [`Self::task_status`].
    #[must_use]
    pub fn tasks(&self) -> Option<&Arc<Self>> {
        self.tasks.as_ref()
    }

    /// Whether nobody follows anything.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.wanted().all.is_empty() && self.tasks.as_ref().is_none_or(|tasks| tasks.is_idle())
    }

    /// The upstream has forgotten what it was asked for: its connection or session is another one.
    pub fn unsettle(&self) {
        let mut table = self.lock();
        for entry in table.entries.values_mut() {
            entry.has_gap |= matches!(entry.verdict, Some(Ok(Outcome::Complete(_))));
            (entry.verdict, entry.again_at) = (None, None);
        }
    }

    /// A resource was updated: tells those who follow it, or what it is below of.
    pub fn updated(&self, uri: &str) {
        let mut table = self.lock();
        let last = table.last + 1;
        let mut is_followed = false;
        for above in lineage(uri) {
            if let Some(entry) = table.entries.get_mut(above) {
                entry.note(above, uri, last);
                is_followed = true;
            }
        }
        if is_followed {
            table.last = last;
            drop(table);
            self.news.send_replace(());
        }
    }

    /// The server says how one of its tasks is. What it said of that task before is forgotten.
    pub fn task_status(&self, task: &str, said: Notification) {
        self.statuses.lock().unwrap_or_else(PoisonError::into_inner).note(task, said);
        self.news.send_replace(());
    }

    /// Updates may have been missed, though the upstream still tells: one of each resource is told.
    pub fn doubt(&self) {
        let mut table = self.lock();
        let last = table.last + 1;
        table.last = last;
        let kept = |entry: &Entry| matches!(entry.verdict, Some(Ok(Outcome::Complete(_))));
        for (uri, entry) in table.entries.iter_mut().filter(|(_, entry)| kept(entry)) {
            entry.note(uri, uri, last);
        }
        drop(table);
        self.news.send_replace(());
    }

    /// Waits for what the upstream says about a resource that somebody follows; for ever once nobody does.
    /// Cancel safe.
    pub async fn verdict(&self, uri: &str) -> Consent {
        let mut verdicts = self.verdicts.subscribe();
        loop {
            let verdict = self.lock().entries.get(uri).and_then(|entry| entry.verdict.clone());
            match verdict {
                Some(verdict) => return verdict,
                None if verdicts.changed().await.is_err() => std::future::pending().await,
                None => {}
            }
        }
    }
}

/// The side of the middle.
impl Followed {
    /// The number of what was said last of a task.
    pub(super) fn last_status(&self) -> u64 {
        self.statuses.lock().unwrap_or_else(PoisonError::into_inner).last()
    }

    /// What was said of a task first after that with the number `seen`, and its own number.
    pub(super) fn status_after(&self, seen: u64) -> Option<(u64, Notification)> {
        self.statuses.lock().unwrap_or_else(PoisonError::into_inner).after(seen)
    }

    /// Changes whenever a resource that is followed was updated.
    pub(super) fn news(&self) -> watch::Receiver<()> {
        self.news.subscribe()
    }

    /// One more follower, which is told of what is updated from now on.
    pub(super) fn enter(self: &Arc<Self>, uri: &Arc<str>) -> Follow {
        let mut table = self.lock();
        let told = table.last;
        let entry = table.entries.entry(Arc::clone(uri)).or_default();
        entry.followers += 1;
        entry.left_at = None;
        // Who comes after a refusal has the upstream asked again.
        if !matches!(entry.verdict, Some(Ok(Outcome::Complete(_)))) {
            (entry.verdict, entry.again_at) = (None, None);
        }
        drop(table);
        self.wishes.send_replace(());
        Follow { followed: Arc::clone(self), uri: Arc::clone(uri), told }
    }

    fn leave(&self, uri: &str) {
        let mut table = self.lock();
        let Some(entry) = table.entries.get_mut(uri) else { return };
        entry.followers = entry.followers.saturating_sub(1);
        if entry.followers > 0 {
            return;
        }
        match entry.verdict {
            Some(Ok(Outcome::Complete(_))) => entry.left_at = Some(Instant::now()),
            Some(_) | None => drop(table.entries.remove(uri)),
        }
        drop(table);
        self.wishes.send_replace(());
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    /// Notes an update of `uri`, which is `own` or below it, under a new number.
    fn note(&mut self, own: &str, uri: &str, number: u64) {
        if let Some((_, last)) = self.updates.iter_mut().find(|(known, _)| **known == *uri) {
            *last = number;
            return;
        }
        let is_full = self.updates.len() > BELOW;
        match is_full && uri != own {
            true => self.note_own(own, number),
            false => self.updates.push((uri.into(), number)),
        }
    }

    fn note_own(&mut self, own: &str, number: u64) {
        match self.updates.iter_mut().find(|(known, _)| **known == *own) {
            Some((_, last)) => *last = number,
            None => self.updates.push((own.into(), number)),
        }
    }
}

impl Follow {
    /// The next resource whose update was not given out yet. One that was updated again meanwhile comes once.
    pub(super) fn next(&mut self) -> Option<Arc<str>> {
        let table = self.followed.lock();
        let entry = table.entries.get(&self.uri)?;
        let (uri, number) = entry
            .updates
            .iter()
            .filter(|(_, number)| *number > self.told)
            .min_by_key(|(_, number)| number)?;
        self.told = *number;
        Some(Arc::clone(uri))
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        self.followed.leave(&self.uri);
    }
}

/// A URI, and every one that it is below of.
fn lineage(uri: &str) -> impl Iterator<Item = &str> {
    let searched = if uri.len() > DEEP { "" } else { uri };
    let ends = searched.char_indices().filter(|(_, char)| matches!(char, '/' | '?' | '#'));
    let above = ends.flat_map(|(at, char)| {
        let with_end = (char == '/').then_some(at + 1).filter(|end| *end < uri.len());
        [Some(at), with_end].into_iter().flatten()
    });
    above.filter_map(|end| uri.get(..end)).chain(std::iter::once(uri))
}

#[cfg(test)]
mod tests;
