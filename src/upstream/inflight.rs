//! The requests that are out on a connection that many share: who waits for which answer, and who hears
//! the progress of which call.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::failure::Failure;
use super::listener::{Listener, Logs, progress_token};
use super::question::{Taken, WayBack};
use super::tenancy::Attribution;
use crate::exchange::{Event, EventKind};
use crate::gateway::Executed;
use crate::mcp::{Notification, Request, Response};
use crate::translate::input::{Question, is_question};

/// What the wait for an answer ends with.
type Landing = Result<Response, Failure>;

/// How many calls that were dropped, and may still run, are known by their ids.
const ABANDONED: usize = 1024;

/// The table of requests in flight. It holds as many as are admitted to the connection.
#[derive(Debug)]
pub(super) struct InFlight {
    attribution: Attribution,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    waiting: HashMap<u64, Waiting>,
    closed: Option<Failure>,
    /// Calls that nobody waits for, and that the server has not answered.
    abandoned: HashSet<u64>,
    /// More of them than are known.
    has_more_abandoned: bool,
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

impl Table {
    /// The call that a message belongs to which names none: the oldest that is `wanted`.
    fn attribute(&self, attribution: Attribution, wanted: impl Fn(&Listener) -> bool) -> Option<&Listener> {
        let calls = self.waiting.iter().filter_map(|(id, waiting)| Some((id, waiting.listener.as_ref()?)));
        let oldest = || calls.clone().filter(|(_, call)| wanted(call)).min_by_key(|(id, _)| **id);
        let is_certain = match attribution {
            Attribution::Unknown => false,
            Attribution::OneUser => true,
            // What a dropped call still asks is not for the call of another client.
            Attribution::OneCall => {
                self.abandoned.is_empty() && !self.has_more_abandoned && calls.clone().count() == 1
            }
        };
        oldest().filter(|_| is_certain).map(|(_, call)| call)
    }
}

impl InFlight {
    pub(super) fn new(attribution: Attribution) -> Self {
        Self { attribution, table: Mutex::default() }
    }

    /// Whose a message is that names no call.
    pub(super) fn attribution(&self) -> Attribution {
        self.attribution
    }

    /// Takes a request of the server: a question to the client of one of the calls, if it is one and it can be
    /// told of which.
    pub(super) fn ask(&self, request: Request, way_back: impl FnOnce() -> WayBack) -> Taken {
        if !is_question(&request.method) {
            return Taken::Left(request);
        }
        let question = Question::of(&request);
        let call = self.lock().attribute(self.attribution, |call| call.suits(&question)).cloned();
        match call {
            Some(call) => call.ask(request, way_back),
            None => Taken::Left(request),
        }
    }

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
        let waiting = {
            let mut table = self.lock();
            table.abandoned.remove(&id);
            table.waiting.remove(&id)
        };
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
                let owner = match self.attribution {
                    Attribution::Unknown => self.only_one_that_asked_for_logs(),
                    known @ (Attribution::OneUser | Attribution::OneCall) => {
                        self.lock().attribute(known, |_| true).cloned()
                    }
                };
                let Some(listener) = owner else { return Heard::Unattributed };
                (listener, Event { kind: EventKind::Log, notification: notification.clone() })
            }
            "notifications/elicitation/complete" => {
                let owner = self.lock().attribute(self.attribution, |_| true).cloned();
                let Some(listener) = owner else { return Heard::Unattributed };
                (listener, Event { kind: EventKind::Other, notification: notification.clone() })
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
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Notes that nobody waits for the answer to a call that the server has seen.
    pub(super) fn abandon(&self) {
        let mut table = self.table.lock();
        match table.abandoned.len() < ABANDONED {
            true => drop(table.abandoned.insert(self.id)),
            false => table.has_more_abandoned = true,
        }
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
        let table = InFlight::new(Attribution::Unknown);
        let _subscription = table.enter(1, None).unwrap();
        assert!(table.only_one_that_asked_for_logs().is_none());
        let _call = table.enter(2, listener()).unwrap();
        assert!(table.only_one_that_asked_for_logs().is_some());
        assert!(!matches!(table.hear(&log).await, Heard::Unattributed));
        let _other = table.enter(3, listener()).unwrap();
        assert!(matches!(table.hear(&log).await, Heard::Unattributed));
    }
}
