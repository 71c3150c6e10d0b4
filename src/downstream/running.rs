//! A call under way: what comes before its end, in order, and its end.
//!
//! The client that goes away drops it. In the modern era that cancels the call; in the legacy one it says
//! nothing, and the call goes on to its end.
//!
//! Must not know: how messages are carried.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::task::TaskTracker;

use super::ask;
use super::endpoint::{Endpoint, Prepared};
use super::level::Logs;
use super::reply::{Asked, Reply, reply};
use crate::exchange::{Budget, Cancel, Event, EventKind, Outcome};
use crate::gateway::GatewayError;
use crate::mcp::Era;

/// Why a call ends whose response nobody reads any more.
pub(super) const DISCONNECTED: &str = "client disconnected";

/// Calls that go on though their connection is gone; beyond, a lost connection ends a call in either era.
/// Without a bound, a client that hangs up at once could have more calls under way than connections.
const MAX_ABANDONED: usize = 1024;

/// A call under way, and what has come of it.
pub(super) struct Running {
    call: Carried,
    events: mpsc::Receiver<Event>,
    questions: mpsc::Receiver<Bytes>,
    asked: Asked,
    logs: Logs,
    budget: Budget,
    /// How the call ended, while events that came before still wait.
    ended: Option<Reply>,
    keep_alive: Duration,
    quiet_until: Option<Instant>,
}

/// What comes next of a call.
pub(super) enum Next {
    /// A message before the end.
    Message(Bytes),
    /// Nothing for a while.
    Silence,
    /// The end, once.
    Ended(Reply),
}

impl Running {
    /// Starts a call. After each `keep_alive` without a message there is a [`Next::Silence`].
    pub(super) fn start(endpoint: &Endpoint, prepared: Prepared, keep_alive: Duration) -> Self {
        let Prepared { call, asked, events, logs, asks, questions, flight, session } = prepared;
        let (gateway, cancel) = (Arc::clone(&endpoint.gateway), call.cancel.clone());
        let running = async move {
            let _kept = (flight, session);
            ask::carry(&gateway, call, asks).await
        };
        let budget = endpoint.gateway.metrics().budget().clone();
        let abandoned = endpoint.abandoned.clone();
        let call = Carried { call: Some(running.boxed()), cancel, era: asked.era, abandoned };
        let quiet_until = Instant::now().checked_add(keep_alive);
        Self { call, events, questions, asked, logs, budget, ended: None, keep_alive, quiet_until }
    }

    /// What its answer holds of the memory for large messages.
    pub(super) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Waits for what comes next. Events that were sent before the end come before it.
    ///
    /// Cancel safe.
    pub(super) async fn next(&mut self) -> Next {
        loop {
            if self.ended.is_some() {
                while let Ok(event) = self.events.try_recv() {
                    if let Some(message) = message(&event, self.logs) {
                        return Next::Message(message);
                    }
                }
            }
            if self.ended.is_some()
                && let Ok(question) = self.questions.try_recv()
            {
                return Next::Message(question);
            }
            if let Some(reply) = self.ended.take() {
                return Next::Ended(reply);
            }
            let quiet_until = self.quiet_until;
            tokio::select! {
                biased;
                Some(event) = self.events.recv() => {
                    if let Some(message) = message(&event, self.logs) {
                        self.quiet_until = Instant::now().checked_add(self.keep_alive);
                        return Next::Message(message);
                    }
                }
                Some(question) = self.questions.recv() => {
                    self.quiet_until = Instant::now().checked_add(self.keep_alive);
                    return Next::Message(question);
                }
                ended = self.call.end() => {
                    let reply = reply(&self.asked, ended);
                    self.ended = Some(Reply { body: self.budget.hold(reply.body), ..reply });
                }
                () = until(quiet_until) => {
                    self.quiet_until = Instant::now().checked_add(self.keep_alive);
                    return Next::Silence;
                }
            }
        }
    }
}

async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

/// The text of an event, if it is for this client.
fn message(event: &Event, logs: Logs) -> Option<Bytes> {
    let notification = &event.notification;
    let is_wanted = match event.kind {
        EventKind::Progress => true,
        EventKind::Log => logs.want(notification.param("level").as_ref()),
        EventKind::Other => belongs_to_a_call(&notification.method),
    };
    is_wanted.then(|| notification.text.clone())
}

/// Whether a notification can be about one call. The others are about a server as a whole, whose names and
/// lists a client of the gateway does not know.
fn belongs_to_a_call(method: &str) -> bool {
    !method.ends_with("/list_changed")
        && !matches!(method, "notifications/resources/updated" | "notifications/cancelled")
}

/// A call that has not ended. Dropped, it does what its era says of a client that goes away.
struct Carried {
    call: Option<BoxFuture<'static, Result<Outcome, GatewayError>>>,
    cancel: Cancel,
    era: Era,
    abandoned: TaskTracker,
}

impl Carried {
    /// Waits for the end; for ever after it. Cancel safe.
    async fn end(&mut self) -> Result<Outcome, GatewayError> {
        let Some(call) = &mut self.call else { return std::future::pending().await };
        let ended = call.await;
        self.call = None;
        ended
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        let Some(call) = self.call.take() else { return };
        match (self.era, Handle::try_current()) {
            // Its events find nobody and are dropped. Its deadline bounds it.
            (Era::Legacy, Ok(runtime)) if self.abandoned.len() < MAX_ABANDONED => {
                drop(self.abandoned.spawn_on(call, &runtime));
            }
            (Era::Legacy | Era::Modern, _) => self.cancel.cancel(DISCONNECTED),
        }
    }
}
