//! Writes the answer to one call as HTTP: one JSON document where nothing came before the end, else a stream
//! of events.
//!
//! The status is decided as late as possible, because in the modern revision it follows from the outcome.
//! The client that goes away drops the response; in a session, it can come back to it.

use std::convert::Infallible;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};

use super::endpoint::Endpoint;
use super::media::Accepts;
use super::reply::Reply;
use super::resumption;
use super::running::{Next, Source};
use crate::exchange::Budget;
use crate::wire::sse;

/// A comment that says nothing but that the stream lives.
pub(super) const KEEP_ALIVE: Bytes = Bytes::from_static(b": keep-alive\n\n");
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Carries what a POST has under way to its end, or to the first thing that must be sent before it.
///
/// Cancel safe: dropping the future, or the body of the response, is the client's going away.
pub(super) async fn carry(endpoint: &Endpoint, mut source: Source, accepts: Accepts) -> Response {
    let first = loop {
        match source.next().await {
            Next::Ended(reply) if !accepts.takes_json() && !reply.body.is_empty() => {
                return one_event(reply, source.budget());
            }
            Next::Ended(reply) => return respond(reply),
            Next::Message(_) | Next::Silence if !accepts.takes_stream() => {}
            Next::Message(message) => break Some(message),
            Next::Silence => break None,
        }
    };
    source.stream();
    match source.session().cloned() {
        Some(session) => resumption::carry(endpoint, (source, session), first),
        None => rest(source, first),
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

/// The rest of it as a stream that begins with `first`, and ends with its connection.
pub(super) fn rest(source: Source, first: Option<Bytes>) -> Response {
    let first = first.map_or(KEEP_ALIVE, |message| sse::write_event(None, None, &message));
    let frames = stream::unfold((Some(first), Some(source)), |(first, source)| async move {
        if let Some(first) = first {
            return Some((Ok::<_, Infallible>(first), (None, source)));
        }
        let mut source = source?;
        match source.next().await {
            Next::Message(message) => {
                Some((Ok(sse::write_event(None, None, &message)), (None, Some(source))))
            }
            Next::Silence => Some((Ok(KEEP_ALIVE), (None, Some(source)))),
            Next::Ended(reply) => {
                let frame = source.budget().hold(sse::write_event(None, None, &reply.body));
                Some((Ok(frame), (None, None)))
            }
        }
    });
    event_stream(Body::from_stream(frames))
}

#[cfg(test)]
mod tests;
