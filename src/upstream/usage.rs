//! Whether anybody uses a connection, and since when nobody does.
//!
//! Must not know: what it is used for.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

/// Who uses a connection.
#[derive(Debug)]
pub(super) struct Usage {
    users: AtomicUsize,
    last_use: Mutex<Instant>,
    /// Somebody left.
    left: Notify,
}

/// One use of a connection, as long as this lives.
#[derive(Debug)]
pub(super) struct InUse(Arc<Usage>);

impl Usage {
    /// Nobody uses it, as of now.
    pub(super) fn new() -> Arc<Self> {
        let last_use = Mutex::new(Instant::now());
        Arc::new(Self { users: AtomicUsize::new(0), last_use, left: Notify::new() })
    }

    /// Uses it.
    pub(super) fn enter(self: &Arc<Self>) -> InUse {
        self.users.fetch_add(1, Ordering::AcqRel);
        InUse(Arc::clone(self))
    }

    /// Whether nobody uses it.
    pub(super) fn is_idle(&self) -> bool {
        self.users.load(Ordering::Acquire) == 0
    }

    /// Since when nobody uses it: now, if somebody does.
    pub(super) fn idle_since(&self) -> Instant {
        match self.is_idle() {
            true => *self.last_use.lock().unwrap_or_else(PoisonError::into_inner),
            false => Instant::now(),
        }
    }

    /// Waits until nobody uses it. For one who waits at a time.
    pub(super) async fn deserted(&self) {
        while !self.is_idle() {
            self.left.notified().await;
        }
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        *self.0.last_use.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        if self.0.users.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.left.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn idleness_begins_when_the_last_user_leaves() {
        let usage = Usage::new();
        let (first, second) = (usage.enter(), usage.enter());
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(usage.idle_since(), Instant::now(), "it is in use");
        drop(first);
        assert!(usage.deserted().now_or_never().is_none());
        drop(second);
        let left = Instant::now();
        tokio::time::advance(Duration::from_secs(7)).await;
        usage.deserted().await;
        assert_eq!(usage.idle_since(), left);
    }
}
