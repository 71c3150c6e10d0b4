//! A demo server over Streamable HTTP, in both eras at one endpoint: sessions for the legacy one, headers
//! that repeat the body for the modern one.
//!
//! Must not know: the tools.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::serve::ListenerExt as _;
use base64::Engine as _;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, Stream};
use http::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE, HOST, ORIGIN};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request as HttpRequest, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::protocol::{Failure, Server, SlowCall, Step, missing};
use crate::mcp::{Code, Era, Message, ProtocolVersion, Request, key};
use crate::wire::json::{JsonError, parse};

/// Bytes of one request.
const MAX_BODY: usize = 64 << 20;

/// Sessions at the same time; a new one ends the oldest.
const MAX_SESSIONS: usize = 1_000;

/// Progress messages that wait for a slow reader before the call has to.
const QUEUE: usize = 16;

/// What requests under way get at the end.
const DRAIN: Duration = Duration::from_secs(2);

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

struct Shared {
    server: &'static Server,
    sessions: Sessions,
}

/// Serves until `shutdown`, and then what is under way for at most [`DRAIN`].
pub(super) async fn serve(
    server: &'static Server,
    listener: TcpListener,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let shared = Arc::new(Shared { server, sessions: Sessions::default() });
    let router = Router::new().route("/mcp", axum::routing::any(answer)).with_state(shared);
    // An answer in two small writes must not wait for an acknowledgement of the first.
    let listener = listener.tap_io(|socket| drop(socket.set_nodelay(true)));
    let serving = axum::serve(listener, router).with_graceful_shutdown(shutdown.clone().cancelled_owned());
    tokio::select! {
        served = serving.into_future() => served,
        () = async { shutdown.cancelled().await; tokio::time::sleep(DRAIN).await; } => Ok(()),
    }
}

async fn answer(State(shared): State<Arc<Shared>>, request: HttpRequest<Body>) -> Response<Body> {
    let (head, body) = request.into_parts();
    if !is_local(&head.headers) {
        return refuse(&transport(403, "This Host or Origin is not served here"));
    }
    match head.method {
        Method::POST => post(&shared, &head.headers, body).await.unwrap_or_else(|failure| refuse(&failure)),
        Method::DELETE => match session_id(&head.headers).is_some_and(|id| shared.sessions.end(id)) {
            true => empty(204),
            false => refuse(&no_session()),
        },
        _ => {
            let mut response = refuse(&transport(405, "Messages are sent by POST"));
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST, DELETE"));
            response
        }
    }
}

/// What the transport itself refuses.
fn transport(status: u16, text: &str) -> Failure {
    Failure::new(Code::Http(status), text).with_status(status)
}

fn no_session() -> Failure {
    transport(404, "There is no such session")
}

/// Whether the request means this machine: pages from elsewhere reach a local server by rebinding a name.
fn is_local(headers: &HeaderMap) -> bool {
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let is_loopback = |url: &str| match Url::parse(url).ok().as_ref().and_then(Url::host) {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.to_canonical().is_loopback(),
        None => false,
    };
    text(HOST).is_none_or(|host| is_loopback(&format!("http://{host}/")))
        && text(ORIGIN).is_none_or(is_loopback)
}

async fn post(shared: &Shared, headers: &HeaderMap, body: Body) -> Result<Response<Body>, Failure> {
    check_media_types(headers)?;
    let body = Limited::new(body, MAX_BODY).collect().await;
    let body = body.map_err(|_| transport(413, "The body is too large"))?;
    let message = parse(body.to_bytes()).map_err(|error| {
        let code = match error {
            JsonError::Syntax(_) => Code::ParseError,
            JsonError::Shape(_) | JsonError::Batch => Code::InvalidRequest,
        };
        Failure::new(code, error.to_string()).with_status(400)
    })?;
    match message {
        Message::Request(request) => Ok(begin(shared, headers, &request)
            .unwrap_or_else(|failure| json_response(failure.status, failure.message(Some(&request.id))))),
        Message::Notification(_) | Message::Response(_) => {
            match session_id(headers).is_some_and(|id| !shared.sessions.has(id)) {
                true => Err(no_session()),
                false => Ok(empty(202)),
            }
        }
    }
}

fn check_media_types(headers: &HeaderMap) -> Result<(), Failure> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let is_json = text(CONTENT_TYPE)
        .and_then(|value| value.split(';').next())
        .is_some_and(|value| value.trim().eq_ignore_ascii_case("application/json"));
    if !is_json {
        return Err(transport(415, "The body must be application/json"));
    }
    let accepted = text(ACCEPT).unwrap_or("*/*").to_ascii_lowercase();
    let accepts = |wanted: &str| {
        let mut types = accepted.split(',').filter_map(|part| part.split(';').next()).map(str::trim);
        types.any(|part| part == wanted || part == "*/*")
    };
    if !accepts("application/json") || !accepts("text/event-stream") {
        return Err(transport(406, "The client must accept application/json and text/event-stream"));
    }
    Ok(())
}

/// Answers a request, in the era that it belongs to. A failure carries its HTTP status.
fn begin(shared: &Shared, headers: &HeaderMap, request: &Request) -> Result<Response<Body>, Failure> {
    let version = headers.get(&VERSION).map(|value| value.to_str().unwrap_or_default());
    let says_modern = version.and_then(ProtocolVersion::known).is_some_and(|it| it.era() == Era::Modern);
    match request.meta(key::PROTOCOL_VERSION) {
        Some(in_body) => check_header(version, "MCP-Protocol-Version", in_body.string().as_deref())?,
        None if says_modern => return Err(missing(key::PROTOCOL_VERSION)),
        None => {}
    }
    let era = shared.server.era(request)?;
    if era == Era::Modern {
        check_modern_headers(headers, request)?;
        return Ok(respond(shared.server.begin(request, era), None));
    }
    if version.is_some_and(|version| ProtocolVersion::known(version).is_none()) {
        return Err(Failure::new(Code::InvalidRequest, "Unsupported MCP-Protocol-Version").with_status(400));
    }
    let session = match (&*request.method, session_id(headers)) {
        ("initialize", _) => {
            let made = shared.sessions.make();
            let broken = || Failure::new(Code::Internal, "No randomness for a session id").with_status(500);
            Some(made.ok_or_else(broken)?)
        }
        (_, Some(id)) if shared.sessions.has(id) => None,
        (_, Some(_)) => {
            return Err(Failure::new(Code::Http(404), "There is no such session").with_status(404));
        }
        (_, None) => {
            return Err(Failure::new(Code::InvalidRequest, "Mcp-Session-Id is missing").with_status(400));
        }
    };
    let step = match shared.server.begin(request, era) {
        Step::Answer { message, status: _ } => Step::Answer { message, status: 200 },
        slow @ Step::Slow(_) => slow,
    };
    Ok(respond(step, session))
}

fn check_modern_headers(headers: &HeaderMap, request: &Request) -> Result<(), Failure> {
    let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    check_header(text(&METHOD), "Mcp-Method", Some(&request.method))?;
    if &*request.method == "tools/call" {
        let decoded = text(&NAME).map(decode_value);
        check_header(decoded.as_deref(), "Mcp-Name", request.param_string("name").as_deref())?;
    }
    Ok(())
}

fn check_header(found: Option<&str>, name: &str, in_body: Option<&str>) -> Result<(), Failure> {
    if found.is_some() && found == in_body {
        return Ok(());
    }
    let text = match found {
        Some(_) => format!("Header mismatch: {name} does not say what the body says"),
        None => format!("Header mismatch: {name} is missing"),
    };
    Err(Failure::new(Code::HeaderMismatch, text).with_status(400))
}

/// Undoes the encoding of values that do not fit a header. What is badly encoded matches nothing.
fn decode_value(value: &str) -> String {
    let Some(encoded) = value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) else {
        return value.to_owned();
    };
    let bytes = base64::engine::general_purpose::STANDARD.decode(encoded).unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_default()
}

fn respond(step: Step, session: Option<String>) -> Response<Body> {
    let mut response = match step {
        Step::Answer { message, status } => json_response(status, message),
        Step::Slow(call) if call.wants_progress() => stream_response(call),
        Step::Slow(call) => {
            let (sink, _nobody) = mpsc::channel(1);
            let whole = stream::once(call.finish(sink)).map(Ok::<_, io::Error>);
            with_type(200, "application/json", Body::from_stream(whole))
        }
    };
    if let Some(value) = session.and_then(|id| HeaderValue::from_str(&id).ok()) {
        response.headers_mut().insert(SESSION_ID, value);
    }
    response
}

fn stream_response(call: SlowCall) -> Response<Body> {
    let mut response = with_type(200, "text/event-stream", Body::from_stream(events(call)));
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// A call as events: its progress, then its answer. Ends with the call; dropping it ends the call.
struct Events {
    progress: mpsc::Receiver<Bytes>,
    call: BoxFuture<'static, Bytes>,
    answer: Option<Bytes>,
    is_over: bool,
}

fn events(call: SlowCall) -> impl Stream<Item = Result<Bytes, io::Error>> {
    let (sink, progress) = mpsc::channel(QUEUE);
    let events = Events { progress, call: Box::pin(call.finish(sink)), answer: None, is_over: false };
    stream::unfold(events, async |mut events| {
        let message = events.next().await?;
        Some((Ok(frame(&message)), events))
    })
}

impl Events {
    async fn next(&mut self) -> Option<Bytes> {
        if self.is_over {
            return None;
        }
        if self.answer.is_none() {
            tokio::select! {
                biased;
                Some(message) = self.progress.recv() => return Some(message),
                answer = &mut self.call => self.answer = Some(answer),
            }
        }
        // What was reported last may still be on its way.
        if let Ok(message) = self.progress.try_recv() {
            return Some(message);
        }
        self.is_over = true;
        self.answer.take()
    }
}

/// One message as an event. Messages are one line each.
fn frame(message: &[u8]) -> Bytes {
    Bytes::from([b"event: message\ndata: ", message, b"\n\n"].concat())
}

fn session_id(headers: &HeaderMap) -> Option<&str> {
    headers.get(&SESSION_ID).map(|value| value.to_str().unwrap_or_default())
}

/// Refuses what could not be read, or is no request.
fn refuse(failure: &Failure) -> Response<Body> {
    json_response(failure.status, failure.message(None))
}

fn json_response(status: u16, message: Bytes) -> Response<Body> {
    with_type(status, "application/json", Body::from(message))
}

fn with_type(status: u16, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

fn empty(status: u16) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}

/// The sessions of legacy clients. They hold nothing; having one is all there is to it.
#[derive(Default)]
struct Sessions(Mutex<Ids>);

#[derive(Default)]
struct Ids {
    known: HashSet<String>,
    /// Oldest first. Holds ended ones, too, until they come up.
    order: VecDeque<String>,
}

impl Sessions {
    /// A new session; `None` if the system has no randomness to give.
    fn make(&self) -> Option<String> {
        let mut random = [0_u8; 16];
        aws_lc_rs::rand::fill(&mut random).ok()?;
        let id: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut ids = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if ids.order.len() >= MAX_SESSIONS
            && let Some(oldest) = ids.order.pop_front()
        {
            ids.known.remove(&oldest);
        }
        ids.order.push_back(id.clone());
        ids.known.insert(id.clone());
        Some(id)
    }

    fn has(&self, id: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).known.contains(id)
    }

    /// Ends a session; false if there is none.
    fn end(&self, id: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).known.remove(id)
    }
}

#[cfg(test)]
mod tests;
