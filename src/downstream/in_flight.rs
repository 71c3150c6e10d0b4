//! The calls in flight by the ids that their clients gave them, so that a client can cancel its own.
//!
//! Must not know: what a call does.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;

use crate::exchange::Cancel;
use crate::mcp::{Id, Notification};

/// Within what an id of a client is its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Scope {
    /// A session.
    Session(Arc<str>),
    /// A client of the configuration that uses no session.
    Client(usize),
    /// A caller of many that are one client, without session.
    Member(Arc<str>),
    /// Anonymous callers at one address, without session.
    Address(IpAddr),
}

type Key = (Scope, Id);

/// All calls in flight. As many as there are requests being served, which the connections bound.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    calls: DashMap<Key, Vec<(u64, Cancel)>>,
    next: AtomicU64,
}

/// One call in flight; it can be cancelled for as long as this is kept.
#[derive(Debug)]
pub(super) struct Flight {
    all: Arc<InFlight>,
    key: Key,
    serial: u64,
}

impl InFlight {
    /// Notes a call.
    pub(super) fn enter(self: &Arc<Self>, scope: Scope, id: Id, cancel: Cancel) -> Flight {
        let serial = self.next.fetch_add(1, Ordering::Relaxed);
        let key = (scope, id);
        self.calls.entry(key.clone()).or_default().push((serial, cancel));
        Flight { all: Arc::clone(self), key, serial }
    }

    /// Cancels the call that a `notifications/cancelled` names; no other notification means anything. Says
    /// whether there was such a call.
    pub(super) fn notice(&self, scope: Scope, notification: &Notification) -> bool {
        if &*notification.method != "notifications/cancelled" {
            return false;
        }
        let id = notification.param("requestId").and_then(|raw| Id::from_text(raw.bytes().clone()));
        let reason = notification.param_string("reason");
        id.is_some_and(|id| self.cancel(scope, id, reason.as_deref().unwrap_or("cancelled by the client")))
    }

    /// Cancels all calls of a session that ends.
    pub(super) fn end(&self, session: &Arc<str>) {
        let scope = Scope::Session(Arc::clone(session));
        for calls in self.calls.iter().filter(|calls| calls.key().0 == scope) {
            calls
                .value()
                .iter()
                .for_each(|(_, cancel)| cancel.withdraw("its session was ended by the client"));
        }
    }

    /// Cancels the call with this id. Does nothing where there is none any more, or where several have the
    /// id: which one is meant cannot be known, and a wrong one must not end.
    fn cancel(&self, scope: Scope, id: Id, reason: &str) -> bool {
        let meant = self.calls.get(&(scope, id)).and_then(|calls| match calls.as_slice() {
            [(_, cancel)] => Some(cancel.clone()),
            _ => None,
        });
        if let Some(cancel) = &meant {
            cancel.withdraw(reason);
        }
        meant.is_some()
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if let Entry::Occupied(mut calls) = self.all.calls.entry(self.key.clone()) {
            calls.get_mut().retain(|(serial, _)| *serial != self.serial);
            if calls.get().is_empty() {
                calls.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(name: &str) -> Scope {
        Scope::Session(name.into())
    }

    fn id(text: &'static str) -> Id {
        Id::from_text(text.into()).unwrap()
    }

    #[test]
    fn exactly_the_call_meant_is_cancelled() {
        let all = Arc::new(InFlight::default());
        let cancels: Vec<_> = (0..4).map(|_| Cancel::default()).collect();
        let places = [
            (session("a"), id("1")),
            (session("a"), id("\"1\"")),
            (session("b"), id("1")),
            (Scope::Client(0), id("1")),
        ];
        let flights: Vec<_> = places
            .into_iter()
            .zip(&cancels)
            .map(|((scope, id), cancel)| all.enter(scope, id, cancel.clone()))
            .collect();
        assert!(all.cancel(session("a"), id("\"1\""), "enough"));
        assert!(!all.cancel(session("c"), id("1"), "nobody"));
        let reasons: Vec<_> = cancels.iter().map(Cancel::reason).collect();
        assert_eq!(reasons, [None, Some("enough"), None, None]);
        drop(flights);
        assert!(all.calls.is_empty());
    }

    #[test]
    fn the_end_of_a_session_cancels_its_calls_and_no_other() {
        let all = Arc::new(InFlight::default());
        let places = [(session("a"), id("1")), (session("a"), id("2")), (session("b"), id("1"))];
        let cancels: Vec<_> = places.iter().map(|_| Cancel::default()).collect();
        let _flights: Vec<_> = places
            .into_iter()
            .zip(&cancels)
            .map(|((scope, id), cancel)| all.enter(scope, id, cancel.clone()))
            .collect();
        all.end(&"a".into());
        let ended: Vec<_> = cancels.iter().map(|cancel| cancel.reason().is_some()).collect();
        assert_eq!(ended, [true, true, false]);
    }

    #[test]
    fn an_id_in_use_twice_cancels_nobody() {
        let all = Arc::new(InFlight::default());
        let (first, second) = (Cancel::default(), Cancel::default());
        let one = all.enter(session("a"), id("1"), first.clone());
        let two = all.enter(session("a"), id("1"), second.clone());
        assert!(!all.cancel(session("a"), id("1"), "which?"));
        assert_eq!((first.reason(), second.reason()), (None, None));
        drop(one);
        assert!(all.cancel(session("a"), id("1"), "this one"));
        assert_eq!((first.reason(), second.reason()), (None, Some("this one")));
        drop(two);
    }
}
