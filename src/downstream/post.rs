//! One POST: a message, or a batch of them where the revision has that.
//!
//! Must not know: connections, paths.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::future::join_all;
use http::{HeaderMap, StatusCode};
use serde_json::value::RawValue;

use super::classify::classify;
use super::endpoint::{Caller, Endpoint, Presented, Step};
use super::http::{answer, read};
use super::legacy_session::SessionUse;
use super::media::Accepts;
use super::reply::{ErrorBody, Reply, too_many};
use super::{legacy, modern, stream};
use crate::mcp::{Code, Era, Id, Message, Method};
use crate::translate::from_legacy::Asking;
use crate::wire::json::{self, JsonError};

/// Most messages of one batch.
const MAX_BATCH: usize = 100;

/// Serves one POST of an authenticated caller.
pub(super) async fn serve(
    endpoint: Arc<Endpoint>,
    caller: Caller,
    session: Presented,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let accepts = Accepts::of(&headers);
    let step = match take(&endpoint, &headers, body, accepts).await {
        Ok(Parcel::One(message)) => one(&endpoint, &caller, &session, &headers, message),
        Ok(Parcel::Many(text)) => {
            let reply = match joined(&session, &headers) {
                Ok(session) => batch(&endpoint, &caller, session, &text).await,
                Err(refusal) => Err(refusal),
            };
            return answer(&endpoint, reply.unwrap_or_else(|refusal| refusal), accepts);
        }
        // What cannot be read counts, too: it costs the same.
        Err(refusal) => Step::Done(match (admit(&endpoint, &caller, None), &session) {
            (Err(limited), _) => limited,
            (Ok(()), Presented::Unknown) => Presented::gone(),
            (Ok(()), Presented::Live(_) | Presented::Absent) => refusal,
        }),
    };
    match step {
        Step::Done(reply) => answer(&endpoint, reply, accepts),
        Step::Carry(prepared) => stream::carry(&endpoint, *prepared, accepts).await,
        Step::Listen(listening) => listening.into_response(),
    }
}

/// What a body holds.
enum Parcel {
    One(Message),
    /// An array, valid as JSON.
    Many(Bytes),
}

async fn take(
    endpoint: &Endpoint,
    headers: &HeaderMap,
    body: Body,
    accepts: Accepts,
) -> Result<Parcel, Reply> {
    if accepts == Accepts::Nothing {
        let text = "answers come as application/json or text/event-stream; Accept covers neither";
        return Err(Reply::transport(StatusCode::NOT_ACCEPTABLE, text));
    }
    let text = read(endpoint, headers, body).await?;
    match json::parse(text.clone()) {
        Ok(message) => Ok(Parcel::One(message)),
        Err(JsonError::Batch) => Ok(Parcel::Many(text)),
        Err(error) => Err(Reply::refuse(StatusCode::BAD_REQUEST, None, &unreadable(&error))),
    }
}

pub(super) fn unreadable(error: &JsonError) -> ErrorBody {
    let code = match error {
        JsonError::Syntax(_) => Code::ParseError,
        JsonError::Shape(_) | JsonError::Batch => Code::InvalidRequest,
    };
    ErrorBody::new(code, error.to_string())
}

pub(super) fn admit(endpoint: &Endpoint, caller: &Caller, id: Option<&Id>) -> Result<(), Reply> {
    endpoint.gateway.admit_edge(&caller.principal, &caller.edge).map_err(|error| too_many(id, &error))
}

fn one(
    endpoint: &Endpoint,
    caller: &Caller,
    session: &Presented,
    headers: &HeaderMap,
    message: Message,
) -> Step {
    if let Err(limited) = admit(endpoint, caller, id_of(&message)) {
        return Step::Done(limited);
    }
    let asking = match Accepts::of(headers).takes_stream() {
        true => Asking::Possible,
        false => Asking::Impossible,
    };
    match classify(headers, &message) {
        Era::Modern => modern::serve(endpoint, caller, Some(headers), message),
        // The handshake opens a session, whatever the header says of an older one.
        Era::Legacy if is_handshake(&message) => legacy::serve(endpoint, caller, None, message, asking),
        Era::Legacy => match joined(session, headers) {
            Ok(session) => legacy::serve(endpoint, caller, session, message, asking),
            Err(refusal) => Step::Done(refusal),
        },
    }
}

/// The session in which a legacy message comes, if it names one.
fn joined<'a>(session: &'a Presented, headers: &HeaderMap) -> Result<Option<&'a SessionUse>, Reply> {
    let session = match session {
        Presented::Live(session) => Some(session),
        Presented::Absent => None,
        Presented::Unknown => return Err(Presented::gone()),
    };
    legacy::check_version(headers)?;
    Ok(session)
}

pub(super) fn id_of(message: &Message) -> Option<&Id> {
    match message {
        Message::Request(request) => Some(&request.id),
        Message::Notification(_) | Message::Response(_) => None,
    }
}

pub(super) fn is_handshake(message: &Message) -> bool {
    matches!(message, Message::Request(request) if Method::known(&request.method) == Some(Method::Initialize))
}

/// Serves the messages of a batch, each as if it had come alone, and joins the answers.
///
/// # Errors
/// The refusal of what is no batch, or nothing that the revision of `session` has.
pub(super) async fn batch(
    endpoint: &Endpoint,
    caller: &Caller,
    session: Option<&SessionUse>,
    text: &Bytes,
) -> Result<Reply, Reply> {
    let refuse = |error: &ErrorBody| Reply::refuse(StatusCode::BAD_REQUEST, None, error);
    if !legacy::takes_batches(session) {
        admit(endpoint, caller, None)?;
        return Err(refuse(&unreadable(&JsonError::Batch)));
    }
    let elements: Vec<&RawValue> = serde_json::from_slice(text)
        .map_err(|error| refuse(&unreadable(&JsonError::Syntax(error.to_string()))))?;
    if elements.is_empty() || elements.len() > MAX_BATCH {
        admit(endpoint, caller, None)?;
        let error = format!("a batch holds 1 to {MAX_BATCH} messages");
        return Err(refuse(&ErrorBody::new(Code::InvalidRequest, error)));
    }
    let answers = elements.into_iter().map(|element| {
        let step = element_step(endpoint, caller, session, text.slice_ref(element.get().as_bytes()));
        async move {
            match step {
                Step::Done(reply) => reply.body,
                Step::Carry(prepared) => stream::finish(endpoint, *prepared).await.body,
                // No revision has both batches and subscriptions.
                Step::Listen(_) => Bytes::new(),
            }
        }
    });
    let answers = join_all(answers.collect::<Vec<_>>()).await;
    Ok(array(answers.into_iter().filter(|answer| !answer.is_empty())))
}

fn element_step(endpoint: &Endpoint, caller: &Caller, session: Option<&SessionUse>, text: Bytes) -> Step {
    let message = match json::parse(text) {
        Ok(message) => message,
        Err(error) => {
            return Step::Done(match admit(endpoint, caller, None) {
                Ok(()) => Reply::refuse(StatusCode::BAD_REQUEST, None, &unreadable(&error)),
                Err(limited) => limited,
            });
        }
    };
    if let Err(limited) = admit(endpoint, caller, id_of(&message)) {
        return Step::Done(limited);
    }
    if is_handshake(&message) {
        let error = ErrorBody::new(Code::InvalidRequest, "`initialize` must not be part of a batch");
        return Step::Done(Reply::refuse(StatusCode::BAD_REQUEST, id_of(&message), &error));
    }
    legacy::serve(endpoint, caller, session, message, Asking::Impossible)
}

/// The answers as one array; nothing at all where there is no answer.
fn array(answers: impl Iterator<Item = Bytes>) -> Reply {
    let mut array = BytesMut::new();
    for answer in answers {
        array.put_u8(if array.is_empty() { b'[' } else { b',' });
        array.extend_from_slice(&answer);
    }
    if array.is_empty() {
        return Reply::accepted();
    }
    array.put_u8(b']');
    Reply::json(StatusCode::OK, array.freeze())
}

#[cfg(test)]
mod tests;
