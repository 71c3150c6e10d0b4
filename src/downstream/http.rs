//! The endpoint as HTTP: paths and methods, Host and Origin, credentials, bodies.
//!
//! The order of refusals is part of the contract: Host and Origin, then credentials, then the session, then
//! everything else. So a bad token is 401 whatever else is wrong, and an unknown session 404.
//!
//! Must not know: what a message asks for.

use std::any::Any;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::any;
use http::header::{ALLOW, CACHE_CONTROL, HeaderValue, ORIGIN, RETRY_AFTER, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderMap, Method as Verb, StatusCode};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use tower_http::catch_panic::CatchPanicLayer;

use super::accept::{self, Bounds, Certified, Notice, Peer};
use super::body::{self, BodyError};
use super::endpoint::{Caller, Endpoint, Presented};
use super::event_id::Position;
use super::face::Face;
use super::listening::Listening;
use super::media::{self, Accepts, single};
use super::reply::{ErrorBody, Reply};
use super::site::Site;
use super::threads::Threads;
use super::{legacy, post, resumption, sse, stream};
use crate::auth::AuthError;
use crate::gateway::EdgeCaller;
#[cfg(test)]
use crate::gateway::Gateway;
use crate::mcp::Code;
use crate::telemetry::{AcceptFailed, AcceptRecovered, CredentialsRefused};
use crate::tls::Acceptor;
use crate::wire::headers::LAST_EVENT_ID;

const ALLOWED: HeaderValue = HeaderValue::from_static("POST, GET, DELETE, OPTIONS");

/// How long a client may keep the metadata of the resource.
const METADATA_AGE: HeaderValue = HeaderValue::from_static("max-age=300");

/// What a client is told that came one connection too late, in seconds.
const RETRY_CONNECTION: HeaderValue = HeaderValue::from_static("1");

/// Serves MCP on `listener` until `shutdown`, then lets requests under way end and returns. How long that
/// may take is the caller's business: dropping the future closes all connections at once.
///
/// # Errors
/// If the listener has no address, or the system no randomness for session ids, or no threads.
pub(crate) async fn serve(
    (listener, tls): (TcpListener, Option<Arc<Acceptor>>),
    face: Arc<Face>,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let first = face.endpoint();
    let config = Arc::clone(first.gateway.config());
    let bounds = Bounds {
        connections: config.limits.connections,
        header_timeout: config.limits.header_timeout,
        stall_timeout: config.limits.body_timeout,
        peer_timeout: config.limits.peer_timeout,
        tick: (config.sessions.idle_timeout / 2).clamp(Duration::from_millis(100), Duration::from_secs(30)),
    };
    let doors = Arc::new(Doors::new(Arc::clone(&face), listener.local_addr()?));
    let serve = move |request| {
        let door = doors.now();
        async move { door.enter(request).await }
    };
    // Ends with this function, whichever way that ends.
    let mut keeping = JoinSet::new();
    keeping.spawn(async move { face.keep().await });
    if let Some(tls) = &tls {
        keeping.spawn(Arc::clone(tls).keep("listen"));
    }
    let told = Arc::clone(&first);
    let threads = Threads::start()?;
    accept::run((listener, tls), (bounds, &threads), serve, move |notice| take(&told, notice), shutdown)
        .await;
    first.detached.end().await;
    Ok(())
}

/// Takes what the listener tells of itself.
fn take(endpoint: &Endpoint, notice: Notice) {
    let metrics = endpoint.gateway.metrics();
    match notice {
        Notice::Tick => endpoint.sweep(),
        Notice::Connections(count) => metrics.set_connections(count),
        Notice::Failed(error, failures) => {
            AcceptFailed { reason: &error.to_string(), failures }.emit(metrics);
        }
        Notice::Recovered(failures) => AcceptRecovered { failures }.emit(),
    }
}

/// What a connection beyond the limit is told.
pub(super) fn too_many_connections() -> Reply {
    Reply::transport(StatusCode::SERVICE_UNAVAILABLE, "too many connections; try again in a moment")
        .header(RETRY_AFTER, RETRY_CONNECTION)
}

/// The door that is open now: that of the face as it is.
struct Doors {
    face: Arc<Face>,
    address: SocketAddr,
    latest: ArcSwap<Door>,
}

impl Doors {
    fn new(face: Arc<Face>, address: SocketAddr) -> Self {
        let latest = ArcSwap::from_pointee(Door::of(face.endpoint(), address));
        Self { face, address, latest }
    }

    fn now(&self) -> Door {
        let endpoint = self.face.endpoint();
        let latest = self.latest.load();
        if Arc::ptr_eq(&latest.endpoint, &endpoint) {
            return Door::clone(&latest);
        }
        let next = Door::of(endpoint, self.address);
        self.latest.store(Arc::new(next.clone()));
        next
    }
}

/// Everything that a request passes before it is routed.
#[derive(Clone)]
pub(super) struct Door {
    site: Arc<Site>,
    endpoint: Arc<Endpoint>,
    router: Router,
}

impl Door {
    /// The door of an endpoint that listens on `address`.
    fn of(endpoint: Arc<Endpoint>, address: SocketAddr) -> Self {
        let site = Arc::new(Site::new(endpoint.gateway.config(), address));
        Self { site, router: router(Arc::clone(&endpoint)), endpoint }
    }

    /// A door for tests, without a listener.
    #[cfg(test)]
    pub(super) fn new(gateway: Arc<Gateway>, address: SocketAddr) -> Self {
        Self::of(Arc::new(Endpoint::new(gateway, CancellationToken::new()).unwrap()), address)
    }

    /// Tells all streams to end.
    #[cfg(test)]
    pub(super) fn close(&self) {
        self.endpoint.closing.cancel();
    }

    /// Serves one request.
    pub(super) async fn enter(self, request: http::Request<Body>) -> Response {
        // Probes of health know an address, and no name.
        if request.uri().path() == "/healthz" {
            return route(self.router, request).await;
        }
        if let Err(foreign) = self.site.admit(request.uri(), request.headers()) {
            let refusal = Reply::transport(StatusCode::FORBIDDEN, foreign.to_string());
            return answer(&self.endpoint, refusal, Accepts::Both);
        }
        let sharing = self.site.sharing(request.headers());
        let is_preflight = request.method() == Verb::OPTIONS && request.headers().contains_key(ORIGIN);
        let mut response = match is_preflight && sharing.is_some() {
            true => {
                let mut response = stream::respond(Reply::no_content());
                response.headers_mut().extend(Site::preflight(request.headers()));
                response
            }
            false => route(self.router, request).await,
        };
        response.headers_mut().extend(sharing.unwrap_or_default());
        response
    }
}

async fn route(router: Router, request: http::Request<Body>) -> Response {
    match router.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

fn router(endpoint: Arc<Endpoint>) -> Router {
    let config = Arc::clone(endpoint.gateway.config());
    let mut router = Router::new();
    for (place, served) in config.endpoints_there() {
        let serve = any(move |State(endpoint), request| mcp(endpoint, place, request));
        let open = any(move |State(endpoint), request| old_stream(endpoint, place, request));
        let take = any(move |State(endpoint), request| old_message(endpoint, place, request));
        let stream = served.stream_path();
        router = router
            .route(&served.path, serve.clone())
            .route(&format!("{}/", served.path), serve)
            .route(&stream, open.clone())
            .route(&format!("{stream}/"), open)
            .route(&served.messages_path(), take);
    }
    router
        .route("/healthz", any(healthz))
        .fallback(elsewhere)
        .layer(CatchPanicLayer::custom(panicked))
        .with_state(endpoint)
}

async fn healthz() -> Response {
    Response::new(Body::from("ok\n"))
}

async fn elsewhere(State(endpoint): State<Arc<Endpoint>>, request: Request) -> Response {
    let is_read = matches!(*request.method(), Verb::GET | Verb::HEAD);
    let metadata = endpoint.resource.metadata(request.uri().path(), request.headers()).filter(|_| is_read);
    if let Some(metadata) = metadata {
        let reply = Reply::json(StatusCode::OK, metadata.into());
        return stream::respond(reply.header(CACHE_CONTROL, METADATA_AGE));
    }
    // Of several, a stranger need not know which there are.
    let mut served = endpoint.gateway.config().endpoints_there();
    let text = match (served.next(), served.next()) {
        (Some((_, only)), None) => format!("there is nothing here; the MCP endpoint is {}", only.path),
        _ => "there is no endpoint at this path; whoever runs this gateway knows which there are".to_owned(),
    };
    stream::respond(Reply::transport(StatusCode::NOT_FOUND, text))
}

fn panicked(_payload: Box<dyn Any + Send + 'static>) -> Response {
    let error = ErrorBody::new(Code::Internal, "an error inside the gateway");
    stream::respond(Reply::json(StatusCode::INTERNAL_SERVER_ERROR, error.message(None)))
}

/// Writes a reply in a type that the client takes, and logs it if it is a refusal.
pub(super) fn answer(endpoint: &Endpoint, reply: Reply, accepts: Accepts) -> Response {
    endpoint.note(&reply);
    match accepts.takes_json() || reply.body.is_empty() {
        true => stream::respond(reply),
        false => stream::one_event(reply, endpoint.gateway.metrics().budget()),
    }
}

async fn mcp(endpoint: Arc<Endpoint>, place: usize, request: Request) -> Response {
    if request.method() == Verb::OPTIONS {
        return stream::respond(Reply::no_content().header(ALLOW, ALLOWED));
    }
    let (parts, body) = request.into_parts();
    let caller = match caller(&endpoint, place, &parts).await {
        Ok(caller) => caller,
        Err(refusal) => return answer(&endpoint, refusal, Accepts::Both),
    };
    let session = endpoint.present(&parts.headers, &caller);
    match parts.method {
        Verb::POST => post::serve(endpoint, caller, session, parts.headers, body).await,
        Verb::GET => match get(&endpoint, &caller, &parts.headers, &session) {
            Ok(stream) => stream,
            Err(reply) => answer(&endpoint, reply, Accepts::Both),
        },
        Verb::DELETE => answer(&endpoint, delete(&endpoint, &parts.headers, &session), Accepts::Both),
        _ => stream::respond(not_allowed()),
    }
}

/// Who sent a request to the endpoint at this place.
async fn caller(endpoint: &Endpoint, place: usize, parts: &Parts) -> Result<Caller, Reply> {
    let names = parts.extensions.get::<Certified>().map(|certified| &*certified.0).unwrap_or_default();
    let authenticated = endpoint.authenticator.authenticate(&parts.headers, names).await;
    let principal = authenticated.map_err(|error| refuse(endpoint, parts, &error))?.at(place);
    let address = parts.extensions.get::<Peer>().map(|peer| peer.0);
    let is_member = endpoint.authenticator.is_member(&principal);
    let edge = match address.filter(|_| endpoint.authenticator.is_anonymous(&principal)) {
        Some(address) => EdgeCaller::Address(address),
        None if is_member => EdgeCaller::Member(Arc::clone(&principal.name)),
        None => EdgeCaller::Client(principal.client),
    };
    let credentials = endpoint.gateway.credentials(&principal);
    Ok(Caller { principal, edge, pipe: None, credentials, address })
}

/// The refusal of credentials: what is wrong with them stands in our log only.
fn refuse(endpoint: &Endpoint, parts: &Parts, error: &AuthError) -> Reply {
    CredentialsRefused { reason: error.label() }.emit(endpoint.gateway.metrics());
    let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::UNAUTHORIZED);
    let mut reply = Reply::transport(status, error.to_string());
    reply.refusal = Some(error.reason().into());
    if status == StatusCode::SERVICE_UNAVAILABLE {
        return reply.header(RETRY_AFTER, RETRY_CONNECTION);
    }
    match endpoint.resource.challenge(error, parts.uri.path(), &parts.headers) {
        Some(challenge) => reply.header(WWW_AUTHENTICATE, challenge),
        None => reply,
    }
}

/// HTTP+SSE: the stream that is a connection.
async fn old_stream(endpoint: Arc<Endpoint>, place: usize, request: Request) -> Response {
    let (parts, _body) = request.into_parts();
    let opened = match (parts.method == Verb::GET, caller(&endpoint, place, &parts).await) {
        (_, Err(refusal)) => Err(refusal),
        (true, Ok(caller)) => sse::open(&endpoint, &caller, &parts.headers),
        (false, Ok(_)) => {
            Err(only(Verb::GET, "GET opens a stream of HTTP+SSE; Streamable HTTP is at the endpoint itself"))
        }
    };
    opened.unwrap_or_else(|refusal| answer(&endpoint, refusal, Accepts::Both))
}

/// HTTP+SSE: a message for a connection.
async fn old_message(endpoint: Arc<Endpoint>, place: usize, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let reply = match (parts.method == Verb::POST, caller(&endpoint, place, &parts).await) {
        (_, Err(refusal)) => refusal,
        (true, Ok(caller)) => sse::take(&endpoint, &caller, &parts, body).await,
        (false, Ok(_)) => only(Verb::POST, "messages of HTTP+SSE come as POSTs"),
    };
    answer(&endpoint, reply, Accepts::Both)
}

/// The refusal of another method than the one that there is. It is what clients that try transports wait for.
fn only(verb: Verb, text: &'static str) -> Reply {
    let refusal = Reply::transport(StatusCode::METHOD_NOT_ALLOWED, text);
    let allowed = HeaderValue::from_str(verb.as_str()).unwrap_or(ALLOWED);
    Reply { refusal: None, ..refusal }.header(ALLOW, allowed)
}

fn not_allowed() -> Reply {
    let refusal = Reply::transport(
        StatusCode::METHOD_NOT_ALLOWED,
        "send messages with POST; GET opens the stream of a session",
    );
    Reply { refusal: None, ..refusal }.header(ALLOW, ALLOWED)
}

/// The stream of a session, or one of a call in it that the client comes back to. Outside of a session there is
/// none: nobody would be told anything.
fn get(
    endpoint: &Endpoint,
    caller: &Caller,
    headers: &HeaderMap,
    session: &Presented,
) -> Result<Response, Reply> {
    if let Presented::Unknown = session {
        return Err(Presented::gone());
    }
    legacy::check_version(headers)?;
    if !Accepts::of(headers).takes_stream() {
        let text = "GET answers with text/event-stream only";
        return Err(Reply::transport(StatusCode::NOT_ACCEPTABLE, text));
    }
    let Presented::Live(session) = session else { return Err(not_allowed()) };
    post::admit(endpoint, caller, None)?;
    let last = headers.get(LAST_EVENT_ID).filter(|id| !id.is_empty());
    let last = last.map(|_| single(headers, LAST_EVENT_ID).unwrap_or_default());
    let since = match last.map(|last| endpoint.resumption.find(session, last)).transpose()? {
        Some(Position::Call(last)) => return resumption::resume(endpoint, caller, session, last),
        Some(Position::Session(last)) => Some(last),
        None => None,
    };
    let place = endpoint.session_place(caller, session)?;
    Ok(Listening::session(endpoint, (caller, session), since, place).into_response())
}

fn delete(endpoint: &Endpoint, headers: &HeaderMap, session: &Presented) -> Reply {
    let session = match session {
        Presented::Live(session) => session,
        Presented::Unknown => return Presented::gone(),
        Presented::Absent => {
            return Reply::transport(
                StatusCode::BAD_REQUEST,
                "DELETE ends a session: name it in Mcp-Session-Id",
            );
        }
    };
    if let Err(refusal) = legacy::check_version(headers) {
        return refusal;
    }
    endpoint.in_flight.end(&session.id);
    endpoint.resumption.shelf.forget(&session.id);
    endpoint.sessions.end(session);
    Reply::no_content()
}

/// Reads the body of a message, within the bounds of the configuration.
pub(super) async fn read(
    endpoint: &Endpoint,
    headers: &HeaderMap,
    body: Body,
) -> Result<bytes::Bytes, Reply> {
    if !media::is_json(headers) {
        let text = "the Content-Type of a message is application/json";
        return Err(Reply::transport(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    }
    if media::is_encoded(headers) {
        let text = "compressed bodies are not taken: leave Content-Encoding out";
        return Err(Reply::transport(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    }
    let limits = &endpoint.gateway.config().limits;
    let share = endpoint.gateway.metrics().budget().share_of_arrival();
    let read = body::read(headers, body, (limits.body, share), limits.body_timeout).await;
    read.map_err(|error| match error {
        BodyError::NoRoom => Reply::transport(
            StatusCode::SERVICE_UNAVAILABLE,
            "too many large messages are under way (`limits.memory`); try again in a moment",
        )
        .header(RETRY_AFTER, RETRY_CONNECTION),
        BodyError::TooLarge => Reply::transport(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body is longer than {} bytes (`limits.body`)", limits.body),
        ),
        BodyError::Slow => Reply::transport(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time"),
        BodyError::Broken => Reply::transport(StatusCode::BAD_REQUEST, "the body ended early"),
    })
}

#[cfg(test)]
mod tests;
