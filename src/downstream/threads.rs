//! The threads that serve connections. Each has a runtime of its own, so that a call is carried by one thread
//! from its first byte to its last, and wakes no other one on the way.
//!
//! Must not know: what is served.

use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Threads that serve connections. Dropped, they end with whatever they serve.
#[derive(Debug)]
pub(super) struct Threads {
    all: Vec<Thread>,
    _end: DropGuard,
}

#[derive(Debug)]
struct Thread {
    runtime: Handle,
    /// One count for each connection, and one for the thread.
    seats: Arc<()>,
}

/// A place on one of the threads, until it is dropped.
#[derive(Debug)]
pub(super) struct Seat {
    runtime: Handle,
    _seat: Arc<()>,
}

impl Threads {
    /// Starts as many threads as the process may use processors.
    ///
    /// # Errors
    /// If the system gives us no thread, or none of what a runtime needs.
    pub(super) fn start() -> io::Result<Self> {
        let count = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let end = CancellationToken::new();
        let start = |number: usize| {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let handle = runtime.handle().clone();
            let end = end.clone();
            let name = format!("serve-{number}");
            thread::Builder::new().name(name).spawn(move || runtime.block_on(end.cancelled_owned()))?;
            Ok(Thread { runtime: handle, seats: Arc::default() })
        };
        let all = (0..count).map(start).collect::<io::Result<_>>()?;
        Ok(Self { all, _end: end.drop_guard() })
    }

    /// The runtime of the caller as the only one.
    #[cfg(test)]
    pub(super) fn here() -> Self {
        let here = Thread { runtime: Handle::current(), seats: Arc::default() };
        Self { all: vec![here], _end: CancellationToken::new().drop_guard() }
    }

    /// A place on the thread that serves the fewest connections; `None` only without threads.
    pub(super) fn seat(&self) -> Option<Seat> {
        let idlest = self.all.iter().min_by_key(|thread| Arc::strong_count(&thread.seats))?;
        Some(Seat { runtime: idlest.runtime.clone(), _seat: Arc::clone(&idlest.seats) })
    }
}

impl Seat {
    /// The runtime of the thread.
    pub(super) fn runtime(&self) -> &Handle {
        &self.runtime
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connections_spread_evenly_and_give_their_places_back() {
        let threads = Threads::start().unwrap();
        let count = threads.all.len();
        let seats: Vec<_> = (0..3 * count).map(|_| threads.seat().unwrap()).collect();
        assert!(threads.all.iter().all(|thread| Arc::strong_count(&thread.seats) == 4));
        drop(seats);
        assert!(threads.all.iter().all(|thread| Arc::strong_count(&thread.seats) == 1));
    }

    #[tokio::test]
    async fn what_runs_on_a_thread_ends_with_it() {
        let threads = Threads::start().unwrap();
        let seat = threads.seat().unwrap();
        let (alive, gone) = tokio::sync::oneshot::channel::<()>();
        let task = async move {
            let _alive = alive;
            std::future::pending::<()>().await;
        };
        let task = tokio_util::task::TaskTracker::new().spawn_on(task, seat.runtime());
        drop(threads);
        assert!(gone.await.is_err());
        assert!(task.await.is_err());
    }
}
