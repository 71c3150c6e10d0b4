//! How messages reach a server and come back: one request and its answer, whatever the pipe.
//!
//! Must not know: eras, sessions, lists. What differs by era comes with each request.

pub(super) mod child;
pub(super) mod http;
mod inbox;
pub(super) mod sse;
pub(super) mod stdio;

use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderMap, HeaderValue};
use bytes::Bytes;

use super::failure::Failure;
use super::listener::Listener;
use crate::exchange::Cancel;
use crate::mcp::{Id, Look, ObjectView, Response};
use crate::wire::json::JsonError;

/// One request on its way out.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// Its id on this hop.
    pub(super) id: u64,
    /// The message.
    pub(super) text: Bytes,
    /// Headers of this request, where there are any.
    pub(super) headers: Arc<HeaderMap>,
    /// Who hears what precedes the answer.
    pub(super) listener: Option<Listener>,
    /// What is said when the request is dropped before its end.
    pub(super) farewell: Farewell,
    /// What happens when its stream ends before the answer.
    pub(super) resumption: Resumption,
}

/// What happens when the stream of an answer ends before the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resumption {
    /// The request fails.
    Never,
    /// If its events had ids, the stream is taken up again behind the last one.
    ByEventId,
}

/// What is said to the server when a request is dropped before its end.
#[derive(Clone, Debug)]
pub(super) enum Farewell {
    /// Nothing: where a stream of its own is closed, that says it.
    Silent,
    /// `notifications/cancelled`, with the reason of the caller.
    Cancelled(Cancel),
}

/// An answer.
#[derive(Debug)]
pub(super) struct Reply {
    /// The response.
    pub(super) response: Response,
    /// The HTTP status that it came with, where that was not 200.
    pub(super) status: Option<u16>,
    /// The session that it opens.
    pub(super) session: Option<HeaderValue>,
}

/// A way to a server.
#[derive(Debug)]
pub(super) enum Transport {
    /// A child process.
    Stdio(stdio::Pipe),
    /// A Streamable HTTP endpoint.
    Http(http::Endpoint),
    /// An HTTP+SSE stream.
    Sse(sse::Stream),
}

impl Transport {
    /// Sends a request and waits for its answer. Cancel safe: see [`Farewell`].
    ///
    /// # Errors
    /// Whatever keeps the answer from coming. An error of the server is an answer.
    pub(super) async fn request(&self, outgoing: Outgoing) -> Result<Reply, Failure> {
        match self {
            Self::Stdio(pipe) => pipe.request(outgoing).await,
            Self::Http(endpoint) => Box::pin(endpoint.request(outgoing)).await,
            Self::Sse(stream) => Box::pin(stream.request(outgoing)).await,
        }
    }

    /// Sends a notification.
    ///
    /// # Errors
    /// If it could not be sent, or was refused.
    pub(super) async fn notify(&self, text: Bytes, headers: Arc<HeaderMap>) -> Result<(), Failure> {
        match self {
            Self::Stdio(pipe) => pipe.notify(text).await,
            Self::Http(endpoint) => Box::pin(endpoint.notify(text, headers)).await,
            Self::Sse(stream) => Box::pin(stream.notify(text, headers)).await,
        }
    }

    /// Waits until the connection as a whole is of no use any more, and says why. Cancel safe.
    pub(super) async fn closed(&self) -> Failure {
        match self {
            Self::Stdio(pipe) => pipe.closed().await,
            Self::Http(endpoint) => endpoint.closed().await,
            Self::Sse(stream) => stream.closed().await,
        }
    }

    /// Ends the connection with this failure, and so every call on it.
    pub(super) fn give_up(&self, failure: Failure) {
        match self {
            Self::Stdio(pipe) => pipe.give_up(failure),
            Self::Http(endpoint) => endpoint.note(&failure),
            Self::Sse(stream) => stream.give_up(failure),
        }
    }

    /// Ends the connection in good order and waits for its end.
    pub(super) async fn stop(&self) {
        match self {
            Self::Stdio(pipe) => pipe.stop().await,
            Self::Http(_) => {}
            Self::Sse(stream) => stream.stop(),
        }
    }

    /// Whether a question of the server shows to which call it belongs.
    pub(super) fn attributes_questions(&self) -> bool {
        match self {
            Self::Stdio(pipe) => pipe.attributes_questions(),
            Self::Sse(stream) => stream.attributes_questions(),
            // It comes on the stream of the call.
            Self::Http(_) => true,
        }
    }

    /// How it is called in logs.
    pub(super) fn label(&self) -> &'static str {
        match self {
            Self::Stdio(_) => "stdio",
            Self::Http(_) => "http",
            Self::Sse(_) => "sse",
        }
    }
}

/// `notifications/cancelled` for one of our requests.
pub(super) fn cancelled(id: u64, reason: Option<&str>) -> Bytes {
    let params = match reason {
        Some(reason) => serde_json::json!({"requestId": id, "reason": reason}),
        None => serde_json::json!({"requestId": id}),
    };
    let message =
        serde_json::json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
    Bytes::from(message.to_string())
}

/// Whether a response is the one to our request.
fn answers(response: &Response, id: u64) -> bool {
    response.id.as_ref().and_then(Id::number) == Some(id)
}

/// The id of our request that an unreadable answer is for, if it can be seen.
fn salvage_id(text: &Bytes) -> Option<u64> {
    let view = ObjectView::read(std::str::from_utf8(text).ok()?, Look::Members).ok()?;
    view.get(text, "method").is_none().then_some(())?;
    Id::from_text(view.raw(text, "id")?.bytes().clone())?.number()
}

/// What a call fails with whose answer does not fit into the memory for large messages now.
fn no_room() -> Failure {
    let text = "its answer does not fit beside the other large messages that are under way";
    Failure::unavailable(text).because("limits.memory").retry_after(Some(Duration::from_secs(1)))
}

/// What a call fails with whose answer is no message.
fn unreadable(error: &JsonError) -> Failure {
    Failure::broken("its answer is not a valid message").because(error).maybe_executed()
}
