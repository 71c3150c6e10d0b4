//! Clients of the modern revision: every request stands alone.
//!
//! Spec: 2026-07-28, basic (`_meta`) and basic/transports/streamable-http (request metadata, validation).
//!
//! Must not know: sessions.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, StatusCode};
use serde_json::json;

use super::endpoint::{Caller, Endpoint, Step, Terms, quoted};
use super::filter::Filter;
use super::level::{Level, Logs};
use super::listening::Listening;
use super::media::{Accepts, single};
use super::reply::{Asked, ErrorBody, Reply, object, reply};
use crate::exchange::Hop;
use crate::gateway::{CacheScope, GatewayError};
use crate::mcp::{
    Code, Era, ListKind, Message, Method, ProtocolVersion, Raw, Request, Routing, TaskMode, extension, key,
    task,
};
use crate::telemetry::StreamKind;
use crate::translate::from_legacy::Asking;
use crate::wire::headers;
use crate::wire::mirror::Mirror;

/// How long a client may take what discovery says for fresh: upstreams come and go.
const DISCOVERY_TTL: Duration = Duration::ZERO;

/// The revisions that are served, as JSON: the modern ones first, newest first.
pub(super) fn supported() -> serde_json::Value {
    let newest_first = || ProtocolVersion::ALL.into_iter().rev();
    newest_first().map(ProtocolVersion::as_str).collect::<Vec<_>>().into()
}

/// Serves one message. Its era is modern. On a pipe there are no `headers`.
pub(super) fn serve(
    endpoint: &Endpoint,
    caller: &Caller,
    headers: Option<&HeaderMap>,
    message: Message,
) -> Step {
    let request = match message {
        Message::Request(request) => request,
        // No notification means anything here: over HTTP, closing the stream is what cancels.
        Message::Notification(_) | Message::Response(_) => return Step::Done(Reply::accepted()),
    };
    let hop = match check(headers, &request) {
        Ok(hop) => hop,
        Err(refusal) => {
            return Step::Done(Reply::refuse(StatusCode::BAD_REQUEST, Some(&request.id), &refusal));
        }
    };
    let method = Some(Method::of(&request.method))
        .filter(|method| endpoint.gateway.serves(&caller.principal, *method));
    match method.map(|method| (method, method.routing())) {
        Some((Method::Discover, _)) => Step::Done(discover(endpoint, caller, &request)),
        Some((Method::Listen, _)) if hop.tasks.is_none() && asks_for_tasks(&request) => {
            Step::Done(Reply::error(Era::Modern, &request.id, &missing_tasks()))
        }
        Some((Method::Listen, _)) => listen(endpoint, caller, headers, request),
        Some((_, Routing::List(kind))) => Step::Done(list(endpoint, caller, kind, &request)),
        // Only sessions have it.
        Some((Method::ResourcesSubscribe, _)) => Step::Done(unknown(&request)),
        Some((method, Routing::Task)) if has_tasks(endpoint, caller, method) => match hop.tasks {
            Some(_) => call(endpoint, caller, (method, request, hop)),
            None => Step::Done(Reply::error(Era::Modern, &request.id, &missing_tasks())),
        },
        Some((method, Routing::Name(_) | Routing::Uri | Routing::Reference | Routing::Extension)) => {
            if let Err(refusal) = check_mirrored(endpoint, caller, headers, (method, &request)) {
                return Step::Done(Reply::refuse(StatusCode::BAD_REQUEST, Some(&request.id), &refusal));
            }
            call(endpoint, caller, (method, request, hop))
        }
        Some((_, Routing::Local | Routing::Task | Routing::Tasks)) | None => Step::Done(unknown(&request)),
    }
}

fn unknown(request: &Request) -> Reply {
    let error = ErrorBody::new(Code::MethodNotFound, format!("Method not found: {}", request.method));
    Reply::error(Era::Modern, &request.id, &error)
}

fn call(endpoint: &Endpoint, caller: &Caller, (method, request, hop): (Method, Request, Hop)) -> Step {
    let logs = hop.log_level.as_ref().and_then(Level::read).map_or(Logs::Off, Logs::From);
    let asking = Asking::Impossible;
    let terms = Terms { era: Era::Modern, method, hop, logs, session: None, asking };
    endpoint.prepare(caller, request, terms)
}

/// Whether there are tasks, and this can be asked of them.
fn has_tasks(endpoint: &Endpoint, caller: &Caller, method: Method) -> bool {
    let mode = TaskMode::ByServer;
    method.has_tasks(mode) && endpoint.gateway.has_tasks(&caller.principal, mode)
}

/// Whether a subscription is to tell of tasks.
fn asks_for_tasks(request: &Request) -> bool {
    let filter = request.param("notifications");
    filter.is_some_and(|filter| filter.object().get(filter.bytes(), "taskIds").is_some())
}

/// The refusal of a client that uses tasks without declaring that it knows them.
fn missing_tasks() -> ErrorBody {
    let text = format!("Missing required client capability: {}", extension::TASKS);
    ErrorBody::new(Code::MissingCapability, text)
        .with_data(json!({"requiredCapabilities": {"extensions": {extension::TASKS: {}}}}))
}

/// Checks what each request must carry, and that headers and body agree.
fn check(headers: Option<&HeaderMap>, request: &Request) -> Result<Hop, ErrorBody> {
    let malformed = |text: String| ErrorBody::new(Code::InvalidParams, text);
    let required = |key: &str| {
        request
            .meta(key)
            .ok_or_else(|| malformed(format!("`params._meta` must hold {key:?} in every request")))
    };
    let version = required(key::PROTOCOL_VERSION)?;
    let capabilities = required(key::CLIENT_CAPABILITIES)?;
    let version =
        version.string().ok_or_else(|| malformed(format!("{:?} must be a string", key::PROTOCOL_VERSION)))?;
    let client_info = request.meta(key::CLIENT_INFO);
    let objects = [(key::CLIENT_CAPABILITIES, Some(&capabilities)), (key::CLIENT_INFO, client_info.as_ref())];
    for (key, raw) in objects {
        if raw.is_some_and(|raw| !raw.is_object()) {
            return Err(malformed(format!("{key:?} must be an object")));
        }
    }
    let log_level = request.meta(key::LOG_LEVEL);
    if log_level.as_ref().is_some_and(|raw| Level::read(raw).is_none()) {
        return Err(malformed(format!("{:?} must be one of {}", key::LOG_LEVEL, Level::NAMES)));
    }
    if let Some(headers) = headers {
        agree(headers, headers::PROTOCOL_VERSION, &version, Encoding::Plain)?;
    }
    if ProtocolVersion::known(&version).is_none_or(|version| version.era() != Era::Modern) {
        let text = format!("Unsupported protocol version: {version}");
        return Err(ErrorBody::new(Code::UnsupportedVersion, text)
            .with_data(json!({"supported": supported(), "requested": version})));
    }
    if let Some(headers) = headers {
        agree(headers, headers::METHOD, &request.method, Encoding::Plain)?;
        if let Some(name) = named(request) {
            agree(headers, headers::NAME, &name, Encoding::Marked)?;
        }
    }
    let tasks = extension::declares(&capabilities, extension::TASKS).then_some(TaskMode::ByServer);
    let (capabilities, progress_token) = (Some(capabilities), request.meta(key::PROGRESS_TOKEN));
    Ok(Hop {
        client_info,
        capabilities,
        log_level,
        progress_token,
        tasks,
        refused_inputs: Vec::new(),
        address: None,
    })
}

/// What `Mcp-Name` has to say.
fn named(request: &Request) -> Option<String> {
    let method = Method::known(&request.method).filter(|method| *method != Method::ResourcesSubscribe)?;
    match method.routing() {
        Routing::Name(_) => request.param_string("name"),
        Routing::Uri => request.param_string("uri"),
        Routing::Task if method.has_tasks(TaskMode::ByServer) => request.param_string(task::TASK_ID),
        Routing::Task
        | Routing::Tasks
        | Routing::Reference
        | Routing::List(_)
        | Routing::Local
        | Routing::Extension => None,
    }
}

/// How a header carries text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    /// As it is.
    Plain,
    /// As it is, or marked as Base64.
    Marked,
}

/// Checks that a header is there, once, and says what the body says.
fn agree(headers: &HeaderMap, name: HeaderName, body: &str, encoding: Encoding) -> Result<(), ErrorBody> {
    let mismatch =
        |what: String| ErrorBody::new(Code::HeaderMismatch, format!("Header mismatch: {name} {what}"));
    if !headers.contains_key(&name) {
        return Err(mismatch(format!("is missing; the body says {body:?}")));
    }
    let Some(value) = single(headers, name.clone()) else {
        return Err(mismatch("must stand once, in visible ASCII".to_owned()));
    };
    let said = match encoding {
        Encoding::Plain => std::borrow::Cow::Borrowed(value),
        Encoding::Marked => {
            headers::decode_value(value).map_err(|bad| mismatch(format!("is malformed: {bad}")))?
        }
    };
    if said == body || is_same_integer(&said, body) {
        return Ok(());
    }
    Err(mismatch(format!("value {said:?} does not match the body's {body:?}")))
}

/// Whether a header like `42.0` means the body's `42`.
fn is_same_integer(said: &str, body: &str) -> bool {
    let Some((whole, fraction)) = said.split_once('.') else { return false };
    whole == body
        && whole.parse::<i64>().is_ok()
        && !fraction.is_empty()
        && fraction.bytes().all(|digit| digit == b'0')
}

/// Checks the headers that mirror arguments of a tool, as far as the tool is there and its annotations can
/// be followed.
fn check_mirrored(
    endpoint: &Endpoint,
    caller: &Caller,
    headers: Option<&HeaderMap>,
    (method, request): (Method, &Request),
) -> Result<(), ErrorBody> {
    let Some(headers) = headers.filter(|_| method == Method::ToolsCall) else { return Ok(()) };
    let tool = request.param_string("name");
    let tool = tool.and_then(|name| endpoint.gateway.listed_tool(&caller.principal, &name));
    let Some(mirror) = tool.and_then(|tool| Mirror::of(&tool).ok()) else { return Ok(()) };
    mirror.values(request).try_for_each(|(name, value)| match value {
        Some(value) => agree(headers, name.clone(), &value, Encoding::Marked),
        None if headers.contains_key(name) => {
            let text = format!("Header mismatch: {name} mirrors an argument that the body does not have");
            Err(ErrorBody::new(Code::HeaderMismatch, text))
        }
        None => Ok(()),
    })
}

fn discover(endpoint: &Endpoint, caller: &Caller, request: &Request) -> Reply {
    let instructions = endpoint.gateway.instructions(&caller.principal);
    let result = object(&[
        ("resultType", Some(quoted("complete"))),
        ("supportedVersions", Some(Raw::from_value(&supported()).bytes().clone())),
        (
            "capabilities",
            Some(endpoint.gateway.capabilities(&caller.principal, Some(TaskMode::ByServer)).bytes().clone()),
        ),
        ("instructions", instructions.as_deref().map(quoted)),
        ("ttlMs", Some(milliseconds(DISCOVERY_TTL))),
        ("cacheScope", Some(quoted("private"))),
        ("_meta", Some(meta(endpoint))),
    ]);
    Reply::result(&request.id, result)
}

fn list(endpoint: &Endpoint, caller: &Caller, kind: ListKind, request: &Request) -> Reply {
    let page = match endpoint.list(caller, kind, request) {
        Ok(page) => page,
        Err(error) => return refuse(kind, request, error),
    };
    let scope = match page.scope {
        CacheScope::Public => "public",
        CacheScope::Private => "private",
    };
    let result = object(&[
        ("resultType", Some(quoted("complete"))),
        (kind.entries_key(), Some(page.entries)),
        ("nextCursor", page.next_cursor.as_deref().map(quoted)),
        ("ttlMs", Some(milliseconds(page.ttl))),
        ("cacheScope", Some(quoted(scope))),
        ("_meta", Some(meta(endpoint))),
    ]);
    Reply::result(&request.id, result)
}

/// Opens a subscription to what the filter asks for and Waypost tells.
fn listen(endpoint: &Endpoint, caller: &Caller, headers: Option<&HeaderMap>, request: Request) -> Step {
    let filter = match Filter::read(&request) {
        Ok(filter) => filter,
        Err(error) => {
            return Step::Done(Reply::refuse(StatusCode::BAD_REQUEST, Some(&request.id), &error));
        }
    };
    if headers.is_some_and(|headers| !Accepts::of(headers).takes_stream()) {
        let text = "subscriptions/listen answers with text/event-stream; Accept does not cover it";
        let error = ErrorBody::new(Code::Http(StatusCode::NOT_ACCEPTABLE.as_u16()), text);
        return Step::Done(Reply::refuse(StatusCode::NOT_ACCEPTABLE, Some(&request.id), &error));
    }
    match endpoint.stream_place(caller, StreamKind::Subscription, Some(&request.id)) {
        Ok(place) => {
            let listening = Listening::subscription(endpoint, caller, (request.id, filter), place);
            Step::Listen(Box::new(listening))
        }
        Err(refusal) => Step::Done(refusal),
    }
}

fn refuse(kind: ListKind, request: &Request, error: GatewayError) -> Reply {
    reply(&Asked { era: Era::Modern, method: kind.method(), id: request.id.clone() }, Err(error))
}

fn meta(endpoint: &Endpoint) -> Bytes {
    object(&[(key::SERVER_INFO, Some(endpoint.identity.newest()))])
}

fn milliseconds(time: Duration) -> Bytes {
    Bytes::from(time.as_millis().to_string())
}

#[cfg(test)]
mod tests;
