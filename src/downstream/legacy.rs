//! Clients of the legacy revisions: a handshake, then requests in a session, or without one.
//!
//! Must not know: HTTP statuses and headers, but those that the session asks for.

use http::{HeaderMap, HeaderValue, StatusCode};

use super::endpoint::{Caller, Endpoint, Step, Terms, quoted};
use super::legacy_session::SessionUse;
use super::level::{Level, Logs};
use super::reply::{Asked, ErrorBody, Reply, object, reply};
use crate::mcp::{Code, Era, ListKind, Message, Method, ProtocolVersion, Request, Routing, TaskMode};
use crate::telemetry::ClientRefused;
use crate::translate::from_legacy::{self, Asking, Handshake};
use crate::wire::headers::{PROTOCOL_VERSION, SESSION_ID};

/// Checks the form of the version header, as it comes after the handshake. A well-formed version that was
/// not agreed on is fine: hosted connectors send newer ones than they negotiated.
///
/// # Errors
/// The refusal, which names the revisions.
pub(super) fn check_version(headers: &HeaderMap) -> Result<(), Reply> {
    let is_good = |value: &HeaderValue| value.to_str().is_ok_and(ProtocolVersion::is_well_formed);
    let values = headers.get_all(PROTOCOL_VERSION);
    if values.iter().count() <= 1 && values.iter().all(is_good) {
        return Ok(());
    }
    let known = ProtocolVersion::ALL.map(ProtocolVersion::as_str).join(", ");
    let text = format!("MCP-Protocol-Version must be one date, YYYY-MM-DD; supported versions: {known}");
    Err(Reply::refuse(StatusCode::BAD_REQUEST, None, &ErrorBody::new(Code::Http(400), text)))
}

/// Serves one message. Its era is legacy, `session` the session that it came in, if it did, and `asking` says
/// whether its answer can be a stream.
pub(super) fn serve(
    endpoint: &Endpoint,
    caller: &Caller,
    session: Option<&SessionUse>,
    message: Message,
    asking: Asking,
) -> Step {
    let request = match message {
        Message::Request(request) => request,
        Message::Notification(notification) => {
            // One that names no call comes too late, which is nobody's fault.
            let _is_known = endpoint.in_flight.notice(caller.scope(session), &notification);
            return Step::Done(Reply::accepted());
        }
        Message::Response(response) => {
            if let Some(session) = session {
                endpoint.questions.answer(&session.id, response);
            }
            // What answers nothing is taken all the same.
            return Step::Done(Reply::accepted());
        }
    };
    let method = Some(Method::of(&request.method))
        .filter(|method| endpoint.gateway.serves(&caller.principal, *method));
    match method.map(|method| (method, method.routing())) {
        Some((Method::Initialize, _)) => Step::Done(initialize(endpoint, caller, &request)),
        Some((Method::Ping, _)) => Step::Done(Reply::result(&request.id, object(&[]))),
        Some((Method::SetLevel, _)) => Step::Done(set_level(session, &request)),
        Some((Method::ResourcesUnsubscribe, _)) => Step::Done(unsubscribe(session, &request)),
        Some((Method::ResourcesSubscribe, _)) if session.is_none() => Step::Done(sessionless(&request)),
        Some((_, Routing::List(kind))) => Step::Done(list(endpoint, caller, kind, &request)),
        Some((method, Routing::Name(_) | Routing::Uri | Routing::Reference | Routing::Extension)) => {
            call(endpoint, caller, session, (method, request, asking))
        }
        Some((method, Routing::Task | Routing::Tasks)) if has_tasks(endpoint, caller, (session, method)) => {
            call(endpoint, caller, session, (method, request, asking))
        }
        Some((_, Routing::Local | Routing::Task | Routing::Tasks)) | None => Step::Done(unknown(&request)),
    }
}

/// Whether the peer may send several messages at once.
pub(super) fn takes_batches(session: Option<&SessionUse>) -> bool {
    session.is_some_and(|session| session.version.has_batches())
}

/// Whether the peer may ask for tasks, and this about them.
fn has_tasks(endpoint: &Endpoint, caller: &Caller, (session, method): (Option<&SessionUse>, Method)) -> bool {
    let is_told = session.is_none_or(|session| session.version.has_tasks_by_caller());
    let mode = TaskMode::ByCaller;
    is_told && method.has_tasks(mode) && endpoint.gateway.has_tasks(&caller.principal, mode)
}

fn unknown(request: &Request) -> Reply {
    let text = format!("Method not found: {}", request.method);
    Reply::error(Era::Legacy, &request.id, &ErrorBody::new(Code::MethodNotFound, text))
}

fn initialize(endpoint: &Endpoint, caller: &Caller, request: &Request) -> Reply {
    let asked = request.param_string("protocolVersion").unwrap_or_default();
    let version = ProtocolVersion::negotiate(&asked);
    let object_of = |key: &str| request.param(key).filter(crate::mcp::Raw::is_object);
    let handshake =
        Handshake { client_info: object_of("clientInfo"), capabilities: object_of("capabilities") };
    let tasks = version.has_tasks_by_caller().then_some(TaskMode::ByCaller);
    let instructions = endpoint.gateway.instructions(&caller.principal);
    let result = object(&[
        ("protocolVersion", Some(quoted(version.as_str()))),
        ("capabilities", Some(endpoint.gateway.capabilities(&caller.principal, tasks).bytes().clone())),
        ("serverInfo", Some(endpoint.identity.at(version))),
        ("instructions", instructions.as_deref().map(quoted)),
    ]);
    let reply = Reply::result(&request.id, result);
    let seen = endpoint.gateway.seen(&caller.principal);
    let id = endpoint.sessions.begin(&caller.principal, version, handshake, seen);
    match id.ok().and_then(|id| HeaderValue::from_str(&id).ok()) {
        Some(id) => reply.header(SESSION_ID, id),
        // The client is served without a session, then.
        None => {
            ClientRefused { status: 200, reason: "a session id could not be made" }
                .emit(endpoint.gateway.metrics());
            reply
        }
    }
}

fn set_level(session: Option<&SessionUse>, request: &Request) -> Reply {
    let Some(level) = request.param("level").as_ref().and_then(Level::read) else {
        let text = format!("`params.level` must be one of {}", Level::NAMES);
        return Reply::error(Era::Legacy, &request.id, &ErrorBody::new(Code::InvalidParams, text));
    };
    // Without a session there is nothing that could keep it.
    if let Some(session) = session {
        session.set_level(level);
    }
    Reply::result(&request.id, object(&[]))
}

/// The answer is the same whatever the URI: it does not tell who has it.
fn unsubscribe(session: Option<&SessionUse>, request: &Request) -> Reply {
    let Some(uri) = request.param_string("uri") else {
        let error = ErrorBody::new(Code::InvalidParams, "`params.uri` must be a string");
        return Reply::error(Era::Legacy, &request.id, &error);
    };
    if let Some(session) = session {
        session.following().leave(&uri);
    }
    Reply::result(&request.id, object(&[]))
}

/// Without a session there is no stream on which anything could be told.
fn sessionless(request: &Request) -> Reply {
    let text =
        "a subscription belongs to a session; send `initialize`, and its Mcp-Session-Id with every request";
    Reply::error(Era::Legacy, &request.id, &ErrorBody::new(Code::InvalidRequest, text))
}

fn list(endpoint: &Endpoint, caller: &Caller, kind: ListKind, request: &Request) -> Reply {
    match endpoint.list(caller, kind, request) {
        Ok(page) => {
            let next = page.next_cursor.as_deref().map(quoted);
            let result = object(&[(kind.entries_key(), Some(page.entries)), ("nextCursor", next)]);
            Reply::result(&request.id, result)
        }
        Err(error) => {
            let asked = Asked { era: Era::Legacy, method: kind.method(), id: request.id.clone() };
            reply(&asked, Err(error))
        }
    }
}

fn call(
    endpoint: &Endpoint,
    caller: &Caller,
    session: Option<&SessionUse>,
    (method, request, asking): (Method, Request, Asking),
) -> Step {
    let level = session.and_then(|session| session.level());
    let handshake = session.map(|session| &session.handshake);
    let mut hop = from_legacy::hop(&request, handshake, level.map(Level::raw), asking);
    let is_told = session.is_none_or(|session| session.version.has_tasks_by_caller());
    hop.tasks = hop.tasks.filter(|_| is_told);
    let logs = level.map_or(Logs::All, Logs::From);
    endpoint.prepare(
        caller,
        request,
        Terms { era: Era::Legacy, method, hop, logs, session: session.cloned(), asking },
    )
}

#[cfg(test)]
mod tests;
