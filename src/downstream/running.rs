//! A call under way: what comes before its end, in order, and its end.
//!
//! The client that goes away drops it, unless it can come back. In the modern era that cancels the call; in the
//! legacy one it says nothing, and the call goes on to its end.
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

use super::ask;
use super::batch::Batch;
use super::detached::Detached;
use super::endpoint::{Endpoint, Prepared};
use super::legacy_session::SessionUse;
use super::level::Logs;
use super::reply::{Asked, Reply, reply};
use crate::exchange::{Budget, Cancel, Event, EventKind, Outcome};
use crate::gateway::GatewayError;
use crate::mcp::{Era, Id};

/// Why a call ends whose response nobody reads any more.
pub(super) const DISCONNECTED: &str = "client disconnected";

/// How long a call in a session may take until it gets a stream, which its client can come back to.
const PROMPT: Duration = Duration::from_millis(500);

/// A call under way, and what has come of it.
pub(super) struct Running {
    call: Carried,
    events: mpsc::Receiver<Event>,
    questions: mpsc::Receiver<Bytes>,
    asked: Asked,
    session: Option<SessionUse>,
    logs: Logs,
    budget: Budget,
    /// How the call ended, while events that came before still wait.
    ended: Option<Reply>,
    keep_alive: Duration,
    quiet_until: Option<Instant>,
}

/// What one POST has under way.
pub(super) enum Source {
    /// A call.
    One(Running),
    /// Those of a batch.
    Many(Batch),
}

impl Source {
    /// Waits for what comes next. Cancel safe.
    pub(super) async fn next(&mut self) -> Next {
        match self {
            Self::One(running) => running.next().await,
            Self::Many(batch) => batch.next().await,
        }
    }

    /// The session that it came in.
    pub(super) fn session(&self) -> Option<&SessionUse> {
        match self {
            Self::One(running) => running.session.as_ref(),
            Self::Many(batch) => batch.session(),
        }
    }

    /// The id of its request, if it is one.
    pub(super) fn id(&self) -> Option<&Id> {
        match self {
            Self::One(running) => Some(&running.asked.id),
            Self::Many(_) => None,
        }
    }

    /// The response has become a stream.
    pub(super) fn stream(&mut self) {
        match self {
            Self::One(_) => {}
            Self::Many(batch) => batch.stream(),
        }
    }

    /// Ends it early.
    pub(super) fn cancel(&self, reason: &str) {
        match self {
            Self::One(running) => running.cancel(reason),
            Self::Many(batch) => batch.cancel(reason),
        }
    }

    /// What its answers hold of the memory for large messages.
    pub(super) fn budget(&self) -> &Budget {
        match self {
            Self::One(running) => &running.budget,
            Self::Many(batch) => batch.budget(),
        }
    }
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
    /// Starts a call. After each `keep_alive` without a message there is a [`Next::Silence`]; in a session, there is
    /// a first one earlier.
    pub(super) fn start(endpoint: &Endpoint, prepared: Prepared, keep_alive: Duration) -> Self {
        let Prepared { call, asked, events, logs, asks, questions, flight, session } = prepared;
        let (gateway, cancel) = (Arc::clone(&endpoint.gateway), call.cancel.clone());
        let kept = session.clone();
        let running = async move {
            let _kept = (flight, kept);
            ask::carry(&gateway, call, asks).await
        };
        let budget = endpoint.gateway.metrics().budget().clone();
        let detached = Arc::clone(&endpoint.detached);
        let call = Carried { call: Some(running.boxed()), cancel, era: asked.era, detached };
        // One that a client can come back to becomes a stream before long.
        let patience = if session.is_some() { keep_alive.min(PROMPT) } else { keep_alive };
        let quiet_until = Instant::now().checked_add(patience);
        Self { call, events, questions, asked, session, logs, budget, ended: None, keep_alive, quiet_until }
    }

    /// Ends the call early.
    pub(super) fn cancel(&self, reason: &str) {
        self.call.cancel.cancel(reason);
    }

    /// Whether its client has withdrawn it.
    pub(super) fn is_withdrawn(&self) -> bool {
        self.call.cancel.is_withdrawn()
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

pub(super) async fn until(instant: Option<Instant>) {
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
    detached: Arc<Detached>,
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
        let place = (self.era == Era::Legacy).then(|| self.detached.enter()).flatten();
        match (place, Handle::try_current()) {
            // Its events find nobody and are dropped. Its deadline bounds it.
            (Some(place), Ok(runtime)) => {
                let call = async move {
                    let _kept = place;
                    call.await
                };
                drop(self.detached.tasks().spawn_on(call, &runtime));
            }
            _ => self.cancel.cancel(DISCONNECTED),
        }
    }
}
