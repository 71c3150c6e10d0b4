//! The feed of changes: who listens is told once a list, as this client sees it, is another one.
//!
//! There is no queue. A listener remembers what it was told last and compares that with what is served, so one
//! that does not read costs nothing, loses nothing, and hears of many changes once. What is announced is served
//! already.
//!
//! Must not know: who listens, and how it is told.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::watch;

use super::{Credentials, Following, Gateway, Health, Offer};
use crate::exchange::Principal;
use crate::mcp::ListKind;

/// Something that a client may want to hear of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A list is another one.
    List(ListKind),
    /// A resource that the client follows was updated, or one below it: its URI as the client knows it.
    Resource(Arc<str>),
    /// A server says how a task of the client is: the whole message.
    Task(Bytes),
}

/// Wakes those who listen, some time after something was swapped.
#[derive(Debug, Default)]
pub(super) struct Feed(watch::Sender<()>);

impl Feed {
    /// Has everybody look.
    pub(super) fn beat(&self) {
        self.0.send_replace(());
    }
}

/// What one client was told of its lists: one short digest for each kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen(Vec<(ListKind, Box<str>)>);

impl Seen {
    /// The digests.
    pub fn digests(&self) -> impl Iterator<Item = (ListKind, &str)> {
        self.0.iter().map(|(kind, digest)| (*kind, &**digest))
    }

    fn of(&self, kind: ListKind) -> Option<&str> {
        self.0.iter().find(|(seen, _)| *seen == kind).map(|(_, digest)| &**digest)
    }

    fn note(&mut self, kind: ListKind, digest: Box<str>) {
        match self.0.iter_mut().find(|(seen, _)| *seen == kind) {
            Some((_, there)) => *there = digest,
            None => self.0.push((kind, digest)),
        }
    }
}

impl FromIterator<(ListKind, Box<str>)> for Seen {
    fn from_iter<T: IntoIterator<Item = (ListKind, Box<str>)>>(digests: T) -> Self {
        Self(digests.into_iter().collect())
    }
}

/// Watches the lists of one client, and the resources that it follows.
pub struct Watch {
    gateway: Arc<Gateway>,
    principal: Principal,
    credentials: Credentials,
    kinds: Vec<ListKind>,
    seen: Seen,
    following: Arc<Following>,
    beats: watch::Receiver<()>,
    /// Whether there was a beat since all lists were last compared.
    is_due: bool,
}

impl Gateway {
    /// Watches the lists of `kinds` as `principal` sees them, from what it was told already, or, where that
    /// is not known, from now on; and whatever is in `following`, which remembers itself what was told.
    #[must_use]
    pub fn watch(
        self: &Arc<Self>,
        (principal, credentials): (&Principal, &Credentials),
        kinds: &[ListKind],
        seen: Option<Seen>,
        following: Arc<Following>,
    ) -> Watch {
        let mut all = self.seen(principal);
        for (kind, digest) in seen.into_iter().flat_map(|seen| seen.0) {
            all.note(kind, digest);
        }
        Watch {
            principal: principal.clone(),
            credentials: credentials.clone(),
            kinds: kinds.to_vec(),
            seen: all,
            following,
            beats: self.lineage.feed.0.subscribe(),
            is_due: true,
            gateway: Arc::clone(self),
        }
    }

    /// Waits until no upstream is being connected for the first time any more: each has been read, or has failed
    /// once. What is offered then is served already.
    ///
    /// Cancel safe.
    pub async fn settle(&self) {
        let mut beats = self.lineage.feed.0.subscribe();
        let is_first = |offer: &Arc<Offer>| matches!(offer.health, Health::Connecting);
        let is_settling = || {
            let current = self.current.load();
            let mut offers = self.config.order.iter().filter_map(|place| current.offers.get(*place));
            offers.any(is_first)
        };
        while is_settling() && beats.changed().await.is_ok() {}
    }

    /// The lists of `principal` as they are now.
    #[must_use]
    pub fn seen(&self, principal: &Principal) -> Seen {
        let mut seen = Seen::default();
        for kind in ListKind::ALL {
            if let Some(digest) = self.digest(kind, principal) {
                seen.note(kind, digest);
            }
        }
        seen
    }

    fn digest(&self, kind: ListKind, principal: &Principal) -> Option<Box<str>> {
        let current = self.current.load();
        current.at(principal).view(kind, principal).map(|view| view.digest().into())
    }
}

impl Watch {
    /// Waits for the next change; for ever once the gateway is gone. `None` is the end: the caller would not be let in
    /// any more. Changes of one list that come close
    /// together, or while nobody asks, are one; a list that is again what it was has not changed.
    ///
    /// Cancel safe.
    pub async fn next(&mut self) -> Option<Change> {
        loop {
            if self.is_due {
                self.gateway = self.gateway.newest();
                if !self.gateway.still_knows(&self.principal, &self.credentials) {
                    return None;
                }
                if let Some(change) = self.take() {
                    return Some(change);
                }
                self.is_due = false;
            }
            if self.beats.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
            self.is_due = true;
        }
    }

    /// What the client has been told, as of the last change given out.
    #[must_use]
    pub fn seen(&self) -> &Seen {
        &self.seen
    }

    /// A change that was not given out yet, lists first. Lists that share a notification change as one.
    fn take(&mut self) -> Option<Change> {
        let mut found = None;
        for kind in &self.kinds {
            let Some(digest) = self.gateway.digest(*kind, &self.principal) else { continue };
            if self.seen.of(*kind) == Some(&*digest) {
                continue;
            }
            let told = *found.get_or_insert(*kind);
            if kind.changed() == told.changed() {
                self.seen.note(*kind, digest);
            }
        }
        let resource = || {
            let current = self.gateway.current.load();
            self.following.next((&*self.gateway.config, &**current), &self.principal)
        };
        let task = || self.following.status(&self.gateway, &self.principal);
        found
            .map(Change::List)
            .or_else(|| resource().map(Change::Resource))
            .or_else(|| task().map(Change::Task))
    }
}
