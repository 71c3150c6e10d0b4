//! Speaking with a legacy server: the handshake, the session, and requests without the metadata that it
//! has agreed on once.
//!
//! Must not know: how the era was found out.

mod following;
mod level;
mod stream;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use tokio::sync::{Mutex as AsyncMutex, watch};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use level::AskedLevel;
use stream::Course;

use super::failure::Failure;
use super::listener::{Listener, Logs};
use super::question::QuestionSink;
use super::transport::{Farewell, Outgoing, Reply, Resumption, Transport};
use super::wire::Wire;
use crate::exchange::{Call, Outcome};
use crate::mcp::{Id, ListKind, Raw, Response};
use crate::translate::hello::{
    Hello, NoHandshake, read_initialize, write_initialize, write_initialized, write_request,
};
use crate::translate::to_legacy::{self, Onward};
use crate::wire::headers::{PROTOCOL_VERSION, SESSION_ID};

/// A connection to a legacy server, its handshake done.
#[derive(Debug)]
pub(super) struct Legacy {
    wire: Arc<Wire>,
    hello: Hello,
    session: watch::Sender<Session>,
    renewing: AsyncMutex<()>,
    level: AskedLevel,
    _stream: DropGuard,
}

/// The session on a server behind HTTP. On a pipe there is the one without an id.
#[derive(Clone, Debug)]
struct Session {
    /// Counts how often it was made.
    generation: u64,
    id: Option<HeaderValue>,
    /// What every request in it carries over HTTP.
    headers: Arc<HeaderMap>,
}

/// What a handshake gave.
#[derive(Debug)]
pub(super) struct Handshake {
    hello: Hello,
    session: Session,
}

/// Why a handshake did not come about.
#[derive(Debug)]
pub(super) enum NotOpened {
    /// The server said so, with this HTTP status, where that was not 200.
    Answer(NoHandshake, Option<u16>),
    /// It could not be asked.
    Failure(Failure),
}

/// Shakes hands: `initialize`, and `notifications/initialized` once it is answered.
pub(super) async fn shake_hands(wire: &Wire) -> Result<Handshake, NotOpened> {
    let capabilities = wire.tenancy.declared(&wire.transport);
    let write = |id: &Id| write_initialize(id, &capabilities);
    let reply = wire.ask(write, Arc::default()).await.map_err(NotOpened::Failure)?;
    let hello = read_initialize(&reply.response).map_err(|said| NotOpened::Answer(said, reply.status))?;
    let session = Session::first(&hello, reply.session);
    let headers = Arc::clone(&session.headers);
    wire.transport.notify(write_initialized(), headers).await.map_err(NotOpened::Failure)?;
    Ok(Handshake { hello, session })
}

impl Session {
    fn first(hello: &Hello, id: Option<HeaderValue>) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(PROTOCOL_VERSION, HeaderValue::from_static(hello.version.as_str()));
        if let Some(id) = &id {
            headers.insert(SESSION_ID, id.clone());
        }
        Self { generation: 1, id, headers: Arc::new(headers) }
    }
}

impl NotOpened {
    /// The HTTP status that it came with, where there was one and it was not 200.
    pub(super) fn status(&self) -> Option<u16> {
        match self {
            Self::Answer(_, status) => *status,
            Self::Failure(failure) => failure.status,
        }
    }

    /// The same as a failure of the connection attempt.
    pub(super) fn into_failure(self) -> Failure {
        match self {
            Self::Failure(failure) => failure,
            Self::Answer(NoHandshake::Modern, _) => {
                Failure::broken("it speaks only revisions without a handshake")
            }
            Self::Answer(NoHandshake::Refused(code, message), _) => {
                Failure::broken(format!("it refused the handshake with error {code}")).because(message)
            }
            Self::Answer(NoHandshake::UnknownVersion(version), _) => {
                Failure::broken("it answered the handshake with an unknown protocol version").because(version)
            }
        }
    }
}

impl Legacy {
    /// Takes over a connection whose handshake is done. Over HTTP, listens to what the server says by
    /// itself, if it has a stream for that, and may have something to say there.
    pub(super) fn new(wire: Arc<Wire>, handshake: Handshake, tasks: &TaskTracker) -> Self {
        let session = watch::Sender::new(handshake.session);
        let ended = CancellationToken::new();
        // A list that a call has changed is told of in the call's own session.
        let listens = wire.tenancy.listens || handshake.hello.tells_of_lists();
        if let (Transport::Http(endpoint), true) = (&wire.transport, listens) {
            let course = if wire.tenancy.is_own { Course::own() } else { Course::shared() };
            let listening = stream::listen(endpoint.clone(), session.subscribe(), course);
            let ended = ended.clone();
            tasks.spawn(async move { ended.run_until_cancelled(listening).await });
        }
        Self {
            wire,
            hello: handshake.hello,
            session,
            renewing: AsyncMutex::new(()),
            level: AskedLevel::default(),
            _stream: ended.drop_guard(),
        }
    }

    pub(super) fn hello(&self) -> &Hello {
        &self.hello
    }

    pub(super) fn wire(&self) -> &Wire {
        &self.wire
    }

    /// Whether the server keeps something for this connection that another one does not have.
    pub(super) fn has_session(&self) -> bool {
        !self.wire.is_http() || self.session.borrow().id.is_some()
    }

    /// Asks something of our own.
    pub(super) async fn ask(&self, method: &str, params: &[(&str, Raw)]) -> Result<Response, Failure> {
        let write = |id: &Id| write_request(id, method, params, &[]);
        self.exchange(&write, None, Farewell::Silent).await
    }

    /// Carries one call.
    pub(super) async fn call(
        &self,
        call: &Call,
        native: &str,
        questions: Option<QuestionSink>,
    ) -> Result<Outcome, Failure> {
        self.raise_level(call).await;
        let wants_progress = call.hop.progress_token.is_some();
        let write = |id: &Id| {
            let token = wants_progress.then(|| Raw::trusted(id.bytes().clone()));
            let (progress_token, tasks) = (token.as_ref(), call.hop.tasks);
            to_legacy::write_request(&call.request, Onward { id, native, progress_token, tasks })
        };
        let listener = Listener { questions, ..Listener::of(call, Logs::Unknown) };
        let farewell = Farewell::Cancelled(call.cancel.clone());
        self.exchange(&write, Some(listener), farewell).await.map(to_legacy::read_response)
    }

    /// Ends the session, where there is one, and the connection.
    pub(super) async fn stop(&self) {
        let session = self.session.borrow().clone();
        if let (Transport::Http(endpoint), Some(_)) = (&self.wire.transport, &session.id) {
            endpoint.delete(&session.headers).await;
        }
        self.wire.transport.stop().await;
    }

    /// Sends a request, once more under a new session if the server has lost the old one: it refused the
    /// request then, so nothing is executed twice.
    async fn exchange(
        &self,
        write: &(dyn Fn(&Id) -> Bytes + Sync),
        listener: Option<Listener>,
        farewell: Farewell,
    ) -> Result<Response, Failure> {
        let session = self.session.borrow().clone();
        let first = self.send(&session, write, listener.clone(), farewell.clone()).await;
        if !is_session_lost(&session, &first) {
            return first.inspect(|reply| self.wire.note(reply)).map(|reply| reply.response);
        }
        self.renew(session.generation).await?;
        let session = self.session.borrow().clone();
        let second = self.send(&session, write, listener, farewell).await;
        if is_session_lost(&session, &second) {
            return Err(self.broken(Failure::unavailable("it does not keep its sessions")));
        }
        second.map(|reply| reply.response)
    }

    async fn send(
        &self,
        session: &Session,
        write: &(dyn Fn(&Id) -> Bytes + Sync),
        listener: Option<Listener>,
        farewell: Farewell,
    ) -> Result<Reply, Failure> {
        let id = self.wire.mint();
        let text = write(&Id::from(id));
        let headers = Arc::clone(&session.headers);
        let resumption = Resumption::ByEventId;
        self.wire.transport.request(Outgoing { id, text, headers, listener, farewell, resumption }).await
    }

    /// Makes a new session in the place of a lost one, unless somebody else has done so meanwhile.
    async fn renew(&self, lost: u64) -> Result<(), Failure> {
        let _turn = self.renewing.lock().await;
        if self.session.borrow().generation != lost {
            return Ok(());
        }
        tracing::info!("an upstream has lost its session: making a new one");
        let handshake = Box::pin(shake_hands(&self.wire)).await;
        let handshake = handshake.map_err(|error| self.broken(error.into_failure()))?;
        if handshake.hello.version != self.hello.version {
            return Err(self.broken(Failure::unavailable("it changed its protocol version")));
        }
        let session = Session { generation: lost + 1, ..handshake.session };
        Box::pin(self.renew_level(&session)).await;
        self.session.send_replace(session);
        // It may have been restarted as something else.
        self.wire.unsolicited.doubt(&ListKind::ALL);
        Ok(())
    }

    /// Marks the whole connection as broken.
    fn broken(&self, failure: Failure) -> Failure {
        let failure = failure.of_connection();
        if let Transport::Http(endpoint) = &self.wire.transport {
            endpoint.note(&failure);
        }
        failure
    }
}

/// Whether a server has lost the session that a request was for: 404, or an error that speaks of it.
fn is_session_lost(session: &Session, reply: &Result<Reply, Failure>) -> bool {
    if session.id.is_none() {
        return false;
    }
    match reply {
        Err(failure) => failure.status == Some(404),
        Ok(Reply { status: Some(404), .. }) => true,
        Ok(Reply { status: Some(400), response, .. }) => {
            // What answers our id has read the request, and may have run it, unless it speaks as the transport
            // does. The other look-alikes in the wild have `null`, or a text of their own, for an id.
            let is_foreign = response.id.as_ref().and_then(Id::number).is_none();
            response.error_message().is_some_and(|message| {
                let is_about_it = message.to_ascii_lowercase().contains("session");
                is_about_it && (is_foreign || message.starts_with("Bad Request"))
            })
        }
        Ok(_) => false,
    }
}
