//! Carries one call and writes its answer: one JSON document where nothing came before the end, else a
//! stream of events.
//!
//! The status is decided as late as possible, because in the modern revision it follows from the outcome.
//! The client that goes away drops the response. In the modern era that cancels the call; in the legacy one it
//! says nothing, and the call goes on to its end.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, stream};
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::task::TaskTracker;

use super::ask;
use super::endpoint::{Endpoint, Prepared};
use super::level::Logs;
use super::media::Accepts;
use super::reply::{Asked, Reply, reply};
use crate::exchange::{Cancel, Event, EventKind, Outcome};
use crate::gateway::GatewayError;
use crate::mcp::Era;
use crate::wire::sse;

/// A comment that says nothing but that the stream lives.
pub(super) const KEEP_ALIVE: Bytes = Bytes::from_static(b": keep-alive\n\n");
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Why a call ends whose response nobody reads any more.
pub(super) const DISCONNECTED: &str = "client disconnected";

/// Calls that go on though their connection is gone; beyond, a lost connection ends a call in either era.
/// Without a bound, a client that hangs up at once could have more calls under way than connections.
const MAX_ABANDONED: usize = 1024;

/// Carries a call to its end, or to the first thing that must be sent before it.
///
/// Cancel safe: dropping the future, or the body of the response, is the client's going away.
pub(super) async fn carry(endpoint: &Endpoint, prepared: Prepared, accepts: Accepts) -> Response {
    let keep_alive = endpoint.gateway.config().sessions.keep_alive;
    let mut running = Running::start(endpoint, prepared, keep_alive);
    loop {
        match running.next().await {
            Next::Ended(reply) if !accepts.takes_json() => return one_event(reply),
            Next::Ended(reply) => return respond(reply),
            Next::Event(_) | Next::Silence if !accepts.takes_stream() => {}
            Next::Event(frame) => return running.into_response(frame),
            Next::Silence => return running.into_response(KEEP_ALIVE),
        }
    }
}

/// Carries a call to its end and drops its events.
pub(super) async fn finish(endpoint: &Endpoint, prepared: Prepared) -> Reply {
    let mut running = Running::start(endpoint, prepared, Duration::MAX);
    loop {
        if let Next::Ended(reply) = running.next().await {
            return reply;
        }
    }
}

/// A reply as one document.
pub(super) fn respond(reply: Reply) -> Response {
    let mut response = Response::new(Body::from(reply.body.clone()));
    *response.status_mut() = reply.status;
    if !reply.body.is_empty() {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    response.headers_mut().extend(reply.headers);
    response
}

/// A reply as a stream with one event, for clients that take nothing else. An error keeps its status, and
/// comes as JSON whatever the client takes.
pub(super) fn one_event(reply: Reply) -> Response {
    if reply.status != StatusCode::OK {
        return respond(reply);
    }
    let frame = sse::write_event(None, None, &reply.body);
    let mut response = event_stream(Body::from(frame));
    response.headers_mut().extend(reply.headers);
    response
}

pub(super) fn event_stream(body: Body) -> Response {
    let mut response = Response::new(body);
    response.headers_mut().extend([
        (CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (BUFFERING, HeaderValue::from_static("no")),
    ]);
    response
}

/// A call under way, and what has come of it.
struct Running {
    call: Carried,
    events: mpsc::Receiver<Event>,
    questions: mpsc::Receiver<Bytes>,
    asked: Asked,
    logs: Logs,
    /// How the call ended, while events that came before still wait.
    ended: Option<Reply>,
    keep_alive: Duration,
    quiet_until: Option<Instant>,
    is_over: bool,
}

/// What comes next of a call.
enum Next {
    Event(Bytes),
    Silence,
    Ended(Reply),
}

impl Running {
    fn start(endpoint: &Endpoint, prepared: Prepared, keep_alive: Duration) -> Self {
        let Prepared { call, asked, events, logs, asks, questions, flight, session } = prepared;
        let (gateway, cancel) = (Arc::clone(&endpoint.gateway), call.cancel.clone());
        let running = async move {
            let _kept = (flight, session);
            ask::carry(&gateway, call, asks).await
        };
        let abandoned = endpoint.abandoned.clone();
        let call = Carried { call: Some(running.boxed()), cancel, era: asked.era, abandoned };
        let quiet_until = Instant::now().checked_add(keep_alive);
        let (ended, is_over) = (None, false);
        Self { call, events, questions, asked, logs, ended, keep_alive, quiet_until, is_over }
    }

    /// Waits for what comes next. Events that were sent before the end come before it.
    async fn next(&mut self) -> Next {
        loop {
            if self.ended.is_some() {
                while let Ok(event) = self.events.try_recv() {
                    if let Some(frame) = frame(&event, self.logs) {
                        return Next::Event(frame);
                    }
                }
            }
            if self.ended.is_some()
                && let Ok(question) = self.questions.try_recv()
            {
                return Next::Event(sse::write_event(None, None, &question));
            }
            if let Some(reply) = self.ended.take() {
                return Next::Ended(reply);
            }
            let quiet_until = self.quiet_until;
            tokio::select! {
                biased;
                Some(event) = self.events.recv() => {
                    if let Some(frame) = frame(&event, self.logs) {
                        self.quiet_until = Instant::now().checked_add(self.keep_alive);
                        return Next::Event(frame);
                    }
                }
                Some(question) = self.questions.recv() => {
                    self.quiet_until = Instant::now().checked_add(self.keep_alive);
                    return Next::Event(sse::write_event(None, None, &question));
                }
                ended = self.call.end() => {
                    self.ended = Some(reply(&self.asked, ended));
                }
                () = until(quiet_until) => {
                    self.quiet_until = Instant::now().checked_add(self.keep_alive);
                    return Next::Silence;
                }
            }
        }
    }

    /// The rest of the call as a stream that begins with `first`.
    fn into_response(self, first: Bytes) -> Response {
        let frames = stream::unfold((Some(first), self), |(first, mut running)| async move {
            if let Some(first) = first {
                return Some((Ok::<_, Infallible>(first), (None, running)));
            }
            if running.is_over {
                return None;
            }
            let frame = match running.next().await {
                Next::Event(frame) => frame,
                Next::Silence => KEEP_ALIVE,
                Next::Ended(reply) => {
                    running.is_over = true;
                    sse::write_event(None, None, &reply.body)
                }
            };
            Some((Ok(frame), (None, running)))
        });
        event_stream(Body::from_stream(frames))
    }
}

async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

/// The frame of an event, if it is for this client.
fn frame(event: &Event, logs: Logs) -> Option<Bytes> {
    let notification = &event.notification;
    let is_wanted = match event.kind {
        EventKind::Progress => true,
        EventKind::Log => logs.want(notification.param("level").as_ref()),
        EventKind::Other => belongs_to_a_call(&notification.method),
    };
    is_wanted.then(|| sse::write_event(None, None, &notification.text))
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

#[cfg(test)]
mod tests;
