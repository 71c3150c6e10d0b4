//! The requests that are out on a connection that many share: who waits for which answer, and who hears
//! the progress of which call.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::failure::Failure;
use super::listener::{Listener, Logs, progress_token};
use crate::exchange::{Event, EventKind};
use crate::gateway::Executed;
use crate::mcp::{Notification, Response};

/// What the wait for an answer ends with.
type Landing = Result<Response, Failure>;

/// The table of requests in flight. It holds as many as are admitted to the connection.
#[derive(Debug, Default)]
pub(super) struct InFlight(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    waiting: HashMap<u64, Waiting>,
    closed: Option<Failure>,
}

#[derive(Debug)]
struct Waiting {
    answer: oneshot::Sender<Landing>,
    listener: Option<Listener>,
    stage: Arc<Stage>,
}

/// A place in the table; leaves it when dropped.
#[derive(Debug)]
pub(super) struct Flight<'a> {
    table: &'a InFlight,
    id: u64,
    stage: Arc<Stage>,
}

/// Whether a request has been written: decided once, by the writer or by a caller that gives up before.
#[derive(Debug, Default)]
pub(super) struct Stage(AtomicU8);

const QUEUED: u8 = 0;
const WRITTEN: u8 = 1;
const WITHDRAWN: u8 = 2;

impl Stage {
    /// The writer takes the request; `false` if it was withdrawn before.
    pub(super) fn depart(&self) -> bool {
        self.0.compare_exchange(QUEUED, WRITTEN, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// The caller takes the request back; `false` if it is written, or being written.
    pub(super) fn withdraw(&self) -> bool {
        self.0.compare_exchange(QUEUED, WITHDRAWN, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    fn executed(&self) -> Executed {
        if self.0.load(Ordering::Acquire) == WRITTEN { Executed::Unknown } else { Executed::No }
    }
}

impl InFlight {
    /// Enters a request into the table.
    ///
    /// # Errors
    /// What the connection was closed with, if it was.
    pub(super) fn enter(
        &self,
        id: u64,
        listener: Option<Listener>,
    ) -> Result<(Flight<'_>, oneshot::Receiver<Landing>), Failure> {
        let (answer, landing) = oneshot::channel();
        let stage = Arc::new(Stage::default());
        let mut table = self.lock();
        if let Some(failure) = &table.closed {
            return Err(failure.clone());
        }
        table.waiting.insert(id, Waiting { answer, listener, stage: Arc::clone(&stage) });
        Ok((Flight { table: self, id, stage }, landing))
    }

    /// Ends the wait for an answer; `false` if nobody waits for it.
    pub(super) fn finish(&self, id: u64, landing: Landing) -> bool {
        let waiting = self.lock().waiting.remove(&id);
        waiting.is_some_and(|waiting| {
            let landing = landing.map_err(Failure::maybe_executed);
            waiting.answer.send(landing).is_ok()
        })
    }

    /// Passes a notification on to the call that it belongs to; `false` if that cannot be told, and it is no
    /// progress. It is dropped if its call is over, does not want it, or does not read: a reader that serves
    /// many calls waits for none of them.
    pub(super) fn hear(&self, notification: &Notification) -> bool {
        let (listener, event) = match &*notification.method {
            "notifications/progress" => {
                let id = progress_token(notification);
                let Some(listener) = id.and_then(|id| self.lock().waiting.get(&id)?.listener.clone()) else {
                    return true;
                };
                let Some(event) = listener.progress(notification) else { return true };
                (listener, event)
            }
            "notifications/message" => {
                let Some(listener) = self.only_one_that_asked_for_logs() else { return false };
                (listener, Event { kind: EventKind::Log, notification: notification.clone() })
            }
            _ => return false,
        };
        if !listener.events.offer(event) {
            tracing::debug!("a slow reader missed a notification");
        }
        true
    }

    fn only_one_that_asked_for_logs(&self) -> Option<Listener> {
        let table = self.lock();
        let listeners = table.waiting.values().filter_map(|waiting| waiting.listener.as_ref());
        let mut asked = listeners.filter(|listener| listener.logs == Logs::Asked);
        asked.next().filter(|_| asked.next().is_none()).cloned()
    }

    /// Fails everybody who waits, and whoever comes later.
    pub(super) fn close(&self, failure: &Failure) {
        let mut table = self.lock();
        table.closed.get_or_insert_with(|| failure.clone());
        let waiting = std::mem::take(&mut table.waiting);
        drop(table);
        for (_, waiting) in waiting {
            let failure = Failure { executed: waiting.stage.executed(), ..failure.clone() };
            drop(waiting.answer.send(Err(failure)));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Flight<'_> {
    /// The id of the request.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// How far the request has come.
    pub(super) fn stage(&self) -> &Arc<Stage> {
        &self.stage
    }

    /// Takes the request out of the table; says whether it was still there, unanswered.
    pub(super) fn leave(&self) -> bool {
        self.table.lock().waiting.remove(&self.id).is_some()
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}
