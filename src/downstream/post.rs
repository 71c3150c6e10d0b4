//! One POST: a message, or a batch of them where the revision has that.
//!
//! Must not know: connections, paths.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use super::batch::Batch;
use super::classify::classify;
use super::endpoint::{Caller, Endpoint, Presented, Step};
use super::http::{answer, read};
use super::legacy_session::SessionUse;
use super::media::Accepts;
use super::reply::{ErrorBody, Reply, too_many};
use super::running::{Running, Source};
use super::{legacy, modern, stream};
use crate::mcp::{Code, Era, Id, Message, Method};
use crate::wire::json::{self, JsonError};

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
            let batch = joined(&session, &headers)
                .and_then(|session| Batch::start(&endpoint, (&caller, session), &text, accepts.asking()));
            return match batch {
                Ok(batch) => stream::carry(&endpoint, Source::Many(batch), accepts).await,
                Err(refusal) => answer(&endpoint, refusal, accepts),
            };
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
        Step::Carry(prepared) => {
            let keep_alive = endpoint.gateway.config().sessions.keep_alive;
            let running = Running::start(&endpoint, *prepared, keep_alive);
            stream::carry(&endpoint, Source::One(running), accepts).await
        }
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
    let asking = Accepts::of(headers).asking();
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

#[cfg(test)]
mod tests;
