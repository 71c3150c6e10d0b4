//! Calls that go on though the connection of their client is lost: how many there may be, and the end of them all.
//!
//! Must not know: what a call does, who may come back to it.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::TaskTracker;

use crate::config::Config;
use crate::telemetry::{self, Metrics};

/// The calls that go on without their connection: at most `limits.detached_calls`. Without a bound, a client that
/// hangs up at once could have more calls under way than connections.
#[derive(Debug)]
pub(super) struct Detached {
    places: Arc<Semaphore>,
    tasks: TaskTracker,
    metrics: Arc<Metrics>,
}

/// The place of one such call; given back when dropped.
#[derive(Debug)]
pub(super) struct Place {
    _place: OwnedSemaphorePermit,
    _counted: telemetry::Detached,
}

impl Detached {
    pub(super) fn new(config: &Config, metrics: Arc<Metrics>) -> Self {
        let places = Arc::new(Semaphore::new(config.limits.detached_calls));
        Self { places, tasks: TaskTracker::new(), metrics }
    }

    /// A place for one more; `None` if there are as many as there may be.
    pub(super) fn enter(&self) -> Option<Place> {
        let place = Arc::clone(&self.places).try_acquire_owned().ok()?;
        Some(Place { _place: place, _counted: self.metrics.detached() })
    }

    /// The tasks in which calls go on, or may.
    pub(super) fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }

    /// Waits until all have ended; none may begin any more. Cancel safe.
    pub(super) async fn end(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}
