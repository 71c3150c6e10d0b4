//! Writes the answer to one call as HTTP: one JSON document where nothing came before the end, else a stream
//! of events.
//!
//! The status is decided as late as possible, because in the modern revision it follows from the outcome.
//! The client that goes away drops the response.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};

use super::endpoint::{Endpoint, Prepared};
use super::media::Accepts;
use super::reply::Reply;
use super::running::{Next, Running};
use crate::exchange::Budget;
use crate::wire::sse;

/// A comment that says nothing but that the stream lives.
pub(super) const KEEP_ALIVE: Bytes = Bytes::from_static(b": keep-alive\n\n");
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Carries a call to its end, or to the first thing that must be sent before it.
///
/// Cancel safe: dropping the future, or the body of the response, is the client's going away.
pub(super) async fn carry(endpoint: &Endpoint, prepared: Prepared, accepts: Accepts) -> Response {
    let keep_alive = endpoint.gateway.config().sessions.keep_alive;
    let mut running = Running::start(endpoint, prepared, keep_alive);
    loop {
        match running.next().await {
            Next::Ended(reply) if !accepts.takes_json() => return one_event(reply, running.budget()),
            Next::Ended(reply) => return respond(reply),
            Next::Message(_) | Next::Silence if !accepts.takes_stream() => {}
            Next::Message(message) => return rest(running, sse::write_event(None, None, &message)),
            Next::Silence => return rest(running, KEEP_ALIVE),
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
pub(super) fn one_event(reply: Reply, budget: &Budget) -> Response {
    if reply.status != StatusCode::OK {
        return respond(reply);
    }
    let frame = budget.hold(sse::write_event(None, None, &reply.body));
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

/// The rest of a call as a stream that begins with `first`.
fn rest(running: Running, first: Bytes) -> Response {
    let frames = stream::unfold((Some(first), Some(running)), |(first, running)| async move {
        if let Some(first) = first {
            return Some((Ok::<_, Infallible>(first), (None, running)));
        }
        let mut running = running?;
        match running.next().await {
            Next::Message(message) => {
                Some((Ok(sse::write_event(None, None, &message)), (None, Some(running))))
            }
            Next::Silence => Some((Ok(KEEP_ALIVE), (None, Some(running)))),
            Next::Ended(reply) => {
                let frame = running.budget().hold(sse::write_event(None, None, &reply.body));
                Some((Ok(frame), (None, None)))
            }
        }
    });
    event_stream(Body::from_stream(frames))
}

#[cfg(test)]
mod tests;
