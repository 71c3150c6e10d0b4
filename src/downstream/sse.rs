//! HTTP+SSE of 2024-11-05: a GET opens a stream that is the connection, and messages come as POSTs to the address
//! that it begins with. What comes is served as on a pipe; when the stream ends, so do the session and its calls.
//!
//! A stream is the body of its response and nothing else: no task. Its queue is that of the pipe.
//!
//! Spec: 2024-11-05, basic/transports, "HTTP with SSE".
//!
//! Must not know: Host, Origin, credentials; what a message asks for.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use dashmap::DashMap;
use futures_util::stream;
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use tokio::sync::{Mutex, mpsc};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::endpoint::{Caller, Endpoint};
use super::http::read;
use super::media::Accepts;
use super::pipe::{Pipe, Speaks};
use super::reply::{ErrorBody, Reply};
use super::stream::{KEEP_ALIVE, event_stream};
use super::{legacy, outlet, post};
use crate::exchange::Principal;
use crate::mcp::Code;
use crate::telemetry::StreamKind;
use crate::wire::sse;

/// The member of the query that names the connection.
const SESSION: &str = "session=";

/// The open connections by their ids. As many as there are open streams, which `limits.streams` and
/// `limits.connections` bound.
#[derive(Debug, Default)]
pub(super) struct Connections(DashMap<Arc<str>, Connection>);

/// One connection.
#[derive(Clone, Debug)]
struct Connection {
    /// The name of the client that it belongs to.
    principal: Arc<str>,
    /// The place of the endpoint at which it was opened.
    endpoint: usize,
    /// Messages are taken one after the other, as they came.
    pipe: Arc<Mutex<Pipe>>,
}

impl Connections {
    /// The connection that a query names, if it is open belongs to `principal`, and was opened at the same
    /// endpoint.
    fn find(&self, query: Option<&str>, principal: &Principal) -> Option<Connection> {
        let mut members = query.unwrap_or_default().split('&');
        let id = members.find_map(|member| member.strip_prefix(SESSION))?;
        let connection = self.0.get(id)?.clone();
        let is_own = connection.principal == principal.name && connection.endpoint == principal.endpoint;
        is_own.then_some(connection)
    }
}

/// An open stream. Dropping it ends the connection, its session, and its calls.
struct Open {
    endpoint: Arc<Endpoint>,
    id: Arc<str>,
    queue: mpsc::Receiver<Bytes>,
    /// What is sent at once.
    opening: Option<Bytes>,
    /// Calls under way, and what tells of changes.
    tasks: TaskTracker,
    keep_alive: Duration,
    quiet_until: Option<Instant>,
    _gone: DropGuard,
}

/// Opens a connection: the response to a GET.
///
/// # Errors
/// The refusal: by `Accept`, by a limit, or if the system has no randomness for an id.
pub(super) fn open(
    endpoint: &Arc<Endpoint>,
    caller: &Caller,
    headers: &HeaderMap,
) -> Result<Response, Reply> {
    if !Accepts::of(headers).takes_stream() {
        let text = "GET answers with text/event-stream only";
        return Err(Reply::transport(StatusCode::NOT_ACCEPTABLE, text));
    }
    post::admit(endpoint, caller, None)?;
    let place = endpoint.stream_place(caller, StreamKind::Connection, None)?;
    let id = fresh_id()?;
    let messages = endpoint
        .gateway
        .config()
        .endpoints
        .get(caller.principal.endpoint)
        .map(|own| own.messages_path())
        .unwrap_or_default();
    let gone = CancellationToken::new();
    let (out, queue) = outlet::queue();
    let pipe = Pipe::new(endpoint, caller.clone(), (Speaks::Legacy, Some(place)), (out, gone.clone()));
    let open = Open {
        endpoint: Arc::clone(endpoint),
        id: Arc::clone(&id),
        queue,
        opening: Some(sse::write_event(
            Some("endpoint"),
            None,
            format!("{messages}?{SESSION}{id}").as_bytes(),
        )),
        tasks: pipe.tasks(),
        keep_alive: endpoint.gateway.config().sessions.keep_alive,
        quiet_until: None,
        _gone: gone.drop_guard(),
    };
    let (principal, place) = (Arc::clone(&caller.principal.name), caller.principal.endpoint);
    let pipe = Arc::new(Mutex::new(pipe));
    endpoint.connections.0.insert(id, Connection { principal, endpoint: place, pipe });
    Ok(open.into_response())
}

/// Takes a message for a connection. Its answer goes to the stream.
pub(super) async fn take(endpoint: &Arc<Endpoint>, caller: &Caller, parts: &Parts, body: Body) -> Reply {
    let Some(connection) = endpoint.connections.find(parts.uri.query(), &caller.principal) else {
        let text = "the connection is unknown or has ended; open another one with GET";
        return Reply::transport(StatusCode::NOT_FOUND, text);
    };
    if let Err(refusal) = legacy::check_version(&parts.headers) {
        return refusal;
    }
    match read(endpoint, &parts.headers, body).await {
        Ok(text) => {
            let mut pipe = connection.pipe.lock().await;
            pipe.continue_at(endpoint);
            pipe.take(text).await;
            Reply::accepted()
        }
        // What cannot be read counts, too: it costs the same.
        Err(refusal) => post::admit(endpoint, caller, None).err().unwrap_or(refusal),
    }
}

/// An id that nobody can guess.
fn fresh_id() -> Result<Arc<str>, Reply> {
    let mut random = [0_u8; 16];
    if aws_lc_rs::rand::fill(&mut random).is_err() {
        let error = ErrorBody::new(Code::Internal, "an id could not be made");
        return Err(Reply::refuse(StatusCode::INTERNAL_SERVER_ERROR, None, &error));
    }
    Ok(format!("{:032x}", u128::from_be_bytes(random)).into())
}

impl Open {
    fn into_response(self) -> Response {
        let frames = stream::unfold(self, |mut open| async move {
            let frame = open.frame().await?;
            Some((Ok::<_, Infallible>(frame), open))
        });
        event_stream(Body::from_stream(frames))
    }

    /// The next piece of the stream; `None` at its end. Cancel safe.
    async fn frame(&mut self) -> Option<Bytes> {
        let frame = match self.opening.take() {
            Some(opening) => opening,
            None => tokio::select! {
                biased;
                message = self.queue.recv() => frame(&message?),
                // What was said last may have come meanwhile.
                () = finished(&self.endpoint.closing, &self.tasks) => frame(&self.queue.try_recv().ok()?),
                () = until(self.quiet_until) => KEEP_ALIVE,
            },
        };
        self.quiet_until = Instant::now().checked_add(self.keep_alive);
        Some(frame)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.endpoint.connections.0.remove(&self.id);
    }
}

fn frame(message: &Bytes) -> Bytes {
    sse::write_event(Some("message"), None, message)
}

/// Waits until the gateway stops and everything under way has ended.
async fn finished(closing: &CancellationToken, tasks: &TaskTracker) {
    closing.cancelled().await;
    tasks.close();
    tasks.wait().await;
}

async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}
