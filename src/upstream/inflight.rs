//! The requests that are out on a connection that many share: who waits for which answer, and who hears
//! the progress of which call.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

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

/// How long the reader of a connection waits for the client of one call to read its events.
const PATIENCE: Duration = Duration::from_millis(100);

/// What became of a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// Its call has it, or it is nobody's.
    Done,
    /// Its call's client does not read, and will not get it.
    Missed,
    /// Whose it is cannot be told, and it is no progress.
    Unattributed,
}

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

    /// Passes a notification on to the call that it belongs to. It is dropped if its call is over or does not
    /// want it, and missed if the call's client does not read: a reader that serves many calls waits for one
    /// of them a moment, and not again until that one reads.
    pub(super) async fn hear(&self, notification: &Notification) -> Heard {
        let (listener, event) = match &*notification.method {
            "notifications/progress" => {
                let id = progress_token(notification);
                let Some(listener) = id.and_then(|id| self.lock().waiting.get(&id)?.listener.clone()) else {
                    return Heard::Done;
                };
                let Some(event) = listener.progress(notification) else { return Heard::Done };
                (listener, event)
            }
            "notifications/message" => {
                let Some(listener) = self.only_one_that_asked_for_logs() else { return Heard::Unattributed };
                (listener, Event { kind: EventKind::Log, notification: notification.clone() })
            }
            _ => return Heard::Unattributed,
        };
        match listener.events.send_within(event, PATIENCE).await {
            true => Heard::Done,
            false => Heard::Missed,
        }
    }

    /// The only call in flight, if it has asked for log messages. With another one beside it, nobody is
    /// given any: a server that logs unasked would show one client what another one's call is about. What we
    /// ask for ourselves, and the subscription that is always open, are no calls: they have no listener.
    fn only_one_that_asked_for_logs(&self) -> Option<Listener> {
        let table = self.lock();
        let mut calls = table.waiting.values().filter_map(|waiting| waiting.listener.as_ref());
        let (only, None) = (calls.next()?, calls.next()) else { return None };
        Some(only).filter(|listener| listener.logs == Logs::Asked).cloned()
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

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::exchange::EventSink;
    use crate::mcp::Message;
    use crate::wire::json;

    #[tokio::test]
    async fn an_open_subscription_keeps_no_log_message_from_the_only_call() {
        let text = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}"#;
        let Ok(Message::Notification(log)) = json::parse(Bytes::from(text)) else { panic!() };
        let listener = || {
            Some(Listener {
                events: EventSink::new().0,
                caller_token: None,
                logs: Logs::Asked,
                questions: None,
            })
        };
        let table = InFlight::default();
        let _subscription = table.enter(1, None).unwrap();
        assert!(table.only_one_that_asked_for_logs().is_none());
        let _call = table.enter(2, listener()).unwrap();
        assert!(table.only_one_that_asked_for_logs().is_some());
        assert!(!matches!(table.hear(&log).await, Heard::Unattributed));
        let _other = table.enter(3, listener()).unwrap();
        assert!(matches!(table.hear(&log).await, Heard::Unattributed));
    }
}
