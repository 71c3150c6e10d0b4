//! MCP on a pipe: one client, one message a line, the era that of each message. A connection over HTTP+SSE is one, too,
//! whose messages come and go otherwise.
//!
//! The client is served by the same code as over HTTP. What is different: there are no headers to agree with, a
//! call is cancelled by a notification alone, the stream of a session opens by itself, and the messages of all
//! calls share one way out. A client that does not read stops what it asked for, and is read no further.
//!
//! Spec: basic/transports (stdio) of every revision; 2026-07-28 basic/patterns/subscriptions (stdio).
//!
//! Must not know: whose pipe it is, HTTP.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::batch::{self, Batch};
use super::classify::classify;
use super::endpoint::{Caller, Endpoint, Prepared, Step};
use super::face::Face;
use super::legacy_session::SessionUse;
use super::listening::{Listening, Piece, Place};
use super::outlet::{self, Outlet};
use super::reply::{ErrorBody, Reply};
use super::running::{DISCONNECTED, Next, Running};
use super::{legacy, modern, post};
use crate::exchange::{Cancel, Principal};
use crate::gateway::{Credentials, EdgeCaller};
use crate::mcp::{Code, Era, Id, Message, Method, Notification};
use crate::translate::from_legacy::Asking;
use crate::wire::headers::SESSION_ID;
use crate::wire::json::{self, JsonError};
use crate::wire::ndjson::{Line, Lines};

/// Serves MCP on a pipe as `principal`. The first message waits up to `patience` for upstreams that are being
/// connected: many clients list once, and what a handshake promises is said once. Ends at `shutdown`, at the end of `input`, or once nobody reads `output`. The last
/// two cancel `shutdown`. Then lets calls under way end, however long that takes; where nobody reads any more,
/// they are cancelled.
pub async fn converse<R, W>(
    face: Arc<Face>,
    principal: Principal,
    (input, output): (R, W),
    patience: Duration,
    shutdown: CancellationToken,
) where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let endpoint = face.endpoint();
    let gone = CancellationToken::new();
    let (out, writing) = outlet::open(output, gone.clone());
    let edge = EdgeCaller::Client(principal.client);
    let caller = Caller { principal, edge, pipe: None, credentials: Credentials::default(), address: None };
    let mut pipe = Pipe::new(&endpoint, caller, (Speaks::Both, None), (out, gone));
    let talking = async move {
        tokio::select! {
            _settled = timeout(patience, pipe.endpoint.gateway.settle()) => {}
            () = shutdown.cancelled() => {}
        }
        pipe.read(input, &face, &shutdown).await;
        shutdown.cancel();
        pipe.tasks.close();
        pipe.tasks.wait().await;
    };
    tokio::join!(talking, writing);
}

/// The conversation. Dropped, it ends its session; what is under way ends with `gone`.
pub(super) struct Pipe {
    endpoint: Arc<Endpoint>,
    caller: Caller,
    speaks: Speaks,
    out: Outlet,
    /// The place of the session's stream, where it was taken already.
    place: Option<Arc<Place>>,
    /// The session of the last handshake.
    session: Option<Joined>,
    /// Calls and subscriptions under way.
    tasks: TaskTracker,
    /// Room for more of them.
    places: Arc<Semaphore>,
    /// Cancelled once nobody reads.
    gone: CancellationToken,
}

/// Which eras are spoken on a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speaks {
    /// Both, each message for itself.
    Both,
    /// The one that the pipe itself is of.
    Legacy,
}

/// The session of a pipe, and whether its stream is open.
struct Joined {
    session: SessionUse,
    is_heard: bool,
}

impl Pipe {
    /// A conversation with `caller`, whose messages go to `out` until `gone` says that nobody reads them.
    pub(super) fn new(
        endpoint: &Arc<Endpoint>,
        caller: Caller,
        (speaks, place): (Speaks, Option<Place>),
        (out, gone): (Outlet, CancellationToken),
    ) -> Self {
        Self {
            places: Arc::new(Semaphore::new(endpoint.gateway.config().limits.pipe_calls)),
            endpoint: Arc::clone(endpoint),
            caller: Caller { pipe: Some(endpoint.in_flight.own_scope()), ..caller },
            speaks,
            out,
            place: place.map(Arc::new),
            session: None,
            tasks: TaskTracker::new(),
            gone,
        }
    }

    /// What is under way.
    pub(super) fn tasks(&self) -> TaskTracker {
        self.tasks.clone()
    }

    /// Serves what comes from now on at what `endpoint` is.
    pub(super) fn continue_at(&mut self, endpoint: &Arc<Endpoint>) {
        if !Arc::ptr_eq(&self.endpoint, endpoint) {
            self.endpoint = Arc::clone(endpoint);
        }
    }

    /// Takes lines until there are no more, or nobody wants the answers.
    async fn read<R: AsyncRead + Unpin>(&mut self, mut input: R, face: &Face, shutdown: &CancellationToken) {
        let limit = self.endpoint.gateway.config().limits.body;
        let mut lines = Lines::new(limit);
        loop {
            let read = tokio::select! {
                biased;
                () = self.gone.cancelled() => return,
                () = shutdown.cancelled() => return,
                read = input.read_buf(lines.room()) => read,
            };
            self.continue_at(&face.endpoint());
            // However long a line is, little of it is kept, and its end will come.
            while let Some(line) = lines.next_line().unwrap_or_default() {
                self.take_line(line, limit).await;
            }
            if !matches!(read, Ok(1..)) {
                let rest = Bytes::copy_from_slice(lines.rest());
                return self.take(rest).await;
            }
        }
    }

    async fn take_line(&mut self, line: Line, limit: usize) {
        match line {
            Line::Whole(text) => self.take(text).await,
            Line::TooLong { head, tail, .. } => {
                let id = json::glimpse_id(&head, &tail).map(Id::from);
                let text = format!("the message is longer than {limit} bytes (`limits.body`)");
                let error = ErrorBody::new(Code::Http(StatusCode::PAYLOAD_TOO_LARGE.as_u16()), text);
                self.say(Reply::refuse(StatusCode::PAYLOAD_TOO_LARGE, id.as_ref(), &error)).await;
            }
        }
    }

    /// Takes one message, or a batch. Waits for room where the client does not read.
    pub(super) async fn take(&mut self, text: Bytes) {
        if text.trim_ascii().is_empty() {
            return;
        }
        match json::parse(text.clone()) {
            Ok(message) => self.serve(message).await,
            Err(JsonError::Batch) => self.batch(text).await,
            Err(error) => {
                let refusal = Reply::refuse(StatusCode::BAD_REQUEST, None, &post::unreadable(&error));
                let admitted = post::admit(&self.endpoint, &self.caller, None);
                self.say(admitted.err().unwrap_or(refusal)).await;
            }
        }
    }

    async fn serve(&mut self, message: Message) {
        let id = post::id_of(&message).cloned();
        let admitted = post::admit(&self.endpoint, &self.caller, id.as_ref());
        // What expects no answer counts, but nobody would hear that it is refused.
        if let (Err(limited), Some(_)) = (admitted, &id) {
            return self.say(limited).await;
        }
        if !post::is_handshake(&message) && !is_ping(&message) {
            self.hear();
        }
        let endpoint = Arc::clone(&self.endpoint);
        let era = match self.speaks {
            Speaks::Both => classify(&HeaderMap::new(), &message),
            Speaks::Legacy => Era::Legacy,
        };
        let step = match (era, message) {
            (era, Message::Notification(notification)) => return self.notice(era, &notification),
            (Era::Modern, message) => modern::serve(&endpoint, &self.caller, None, message),
            (Era::Legacy, message) => {
                let session = self.session.as_ref().filter(|_| !post::is_handshake(&message));
                let session = session.map(|joined| &joined.session);
                legacy::serve(&endpoint, &self.caller, session, message, Asking::Possible)
            }
        };
        match (step, id) {
            (Step::Done(reply), _) => {
                self.join(&reply);
                self.say(reply).await;
            }
            (Step::Carry(prepared), id) => self.start(id.as_ref(), |pipe| pipe.carry(*prepared)).await,
            (Step::Listen(listening), Some(id)) => {
                let cancel = Cancel::default();
                let scope = self.caller.scope(None);
                let flight = endpoint.in_flight.enter(scope, id.clone(), cancel.clone());
                self.start(Some(&id), |pipe| {
                    let telling = pipe.tell(*listening, cancel);
                    async move {
                        let _kept = flight;
                        telling.await;
                    }
                })
                .await;
            }
            (Step::Listen(_), None) => {}
        }
    }

    /// A notification of the client: the only ones that mean anything cancel what is under way. Of two calls with
    /// one id in both eras, that of its own is meant.
    fn notice(&self, era: Era, notification: &Notification) {
        let session = self.session.as_ref().map(|joined| &joined.session).filter(|_| era == Era::Legacy);
        let scopes = [session.map(|session| self.caller.scope(Some(session))), Some(self.caller.scope(None))];
        let _found =
            scopes.into_iter().flatten().any(|scope| self.endpoint.in_flight.notice(scope, notification));
    }

    async fn batch(&mut self, text: Bytes) {
        let endpoint = Arc::clone(&self.endpoint);
        let (caller, out) = (self.caller.clone(), self.out.clone());
        let session = self.session.as_ref().map(|joined| joined.session.clone());
        let count = batch::count(&text);
        self.start_many(count, None, |_| async move {
            let batch = Batch::start(&endpoint, (&caller, session.as_ref()), &text, Asking::Possible);
            let reply = match batch {
                Ok(mut batch) => loop {
                    match batch.next().await {
                        Next::Message(message) => out.send(message).await,
                        Next::Silence => {}
                        Next::Ended(reply) => break reply,
                    }
                },
                Err(refusal) => refusal,
            };
            endpoint.note(&reply);
            out.send(reply.body).await;
        })
        .await;
    }

    /// Has something run beside what comes next, if there is room.
    async fn start<F>(&self, id: Option<&Id>, task: impl FnOnce(&Self) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.start_many(1, id, task).await;
    }

    /// The same for something that is as many requests.
    async fn start_many<F>(&self, count: u32, id: Option<&Id>, task: impl FnOnce(&Self) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Ok(place) = Arc::clone(&self.places).try_acquire_many_owned(count) else {
            let most = self.endpoint.gateway.config().limits.pipe_calls;
            let text = format!("{most} requests are under way already (`limits.pipe_calls`)");
            let error = ErrorBody::new(Code::RateLimited, text);
            return self.say(Reply::refuse(StatusCode::TOO_MANY_REQUESTS, id, &error)).await;
        };
        let (task, gone) = (task(self), self.gone.clone());
        self.tasks.spawn(async move {
            let _place = place;
            tokio::select! {
                biased;
                () = gone.cancelled() => {}
                () = task => {}
            }
        });
    }

    /// Carries a call. Once its client has withdrawn it, nothing is said of it any more.
    fn carry(&self, prepared: Prepared) -> impl Future<Output = ()> + Send + use<> {
        let (endpoint, out) = (Arc::clone(&self.endpoint), self.out.clone());
        async move {
            let cancel = prepared.call.cancel.clone();
            let _unheard = EndUnheard(cancel.clone());
            let mut running = Running::start(&endpoint, prepared, Duration::MAX);
            loop {
                let (message, is_last) = match running.next().await {
                    Next::Message(message) => (message, false),
                    Next::Ended(reply) => (reply.body, true),
                    Next::Silence => continue,
                };
                if !cancel.is_withdrawn() {
                    out.send(message).await;
                }
                if is_last {
                    return;
                }
            }
        }
    }

    /// Tells what a stream that stays open tells, until it ends or `cancel` says so.
    fn tell(&self, mut listening: Listening, cancel: Cancel) -> impl Future<Output = ()> + Send + use<> {
        let out = self.out.clone();
        async move {
            loop {
                let piece = tokio::select! {
                    biased;
                    () = cancel.cancelled() => return,
                    piece = listening.next() => piece,
                };
                match piece {
                    Some(Piece::Message(message)) => out.send(message).await,
                    Some(Piece::Silence) => {}
                    None => return,
                }
            }
        }
    }

    /// Opens the stream of the session, once the handshake is over.
    fn hear(&mut self) {
        let Some(joined) = self.session.as_mut().filter(|joined| !joined.is_heard) else { return };
        let taken = match &self.place {
            Some(place) => Ok(Arc::clone(place)),
            None => self.endpoint.session_place(&self.caller, &joined.session),
        };
        let place = match taken {
            Ok(place) => place,
            Err(refusal) => return self.endpoint.note(&refusal),
        };
        joined.is_heard = true;
        // The next session on this pipe takes it over.
        self.place = Some(Arc::clone(&place));
        let listening = Listening::session(&self.endpoint, (&self.caller, &joined.session), None, place);
        self.tasks.spawn(self.tell(listening, Cancel::default()));
    }

    /// Enters the session that a handshake began, and leaves the one before.
    fn join(&mut self, reply: &Reply) {
        let Some((_, id)) = reply.headers.iter().find(|(name, _)| *name == SESSION_ID) else { return };
        let id = id.to_str().unwrap_or_default();
        let session = self.endpoint.sessions.find(id, &self.caller.principal);
        let joined = session.map(|session| Joined { session, is_heard: false });
        if let Some(left) = std::mem::replace(&mut self.session, joined) {
            self.endpoint.sessions.end(&left.session);
        }
    }

    async fn say(&self, reply: Reply) {
        self.endpoint.note(&reply);
        self.out.send(reply.body).await;
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        if let Some(left) = self.session.take() {
            self.endpoint.sessions.end(&left.session);
        }
    }
}

impl std::fmt::Debug for Pipe {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Pipe").field("caller", &self.caller).finish_non_exhaustive()
    }
}

/// Ends a call whose client has gone, whatever its era: on a pipe nobody comes back.
struct EndUnheard(Cancel);

impl Drop for EndUnheard {
    fn drop(&mut self) {
        self.0.cancel(DISCONNECTED);
    }
}

fn is_ping(message: &Message) -> bool {
    matches!(message, Message::Request(request) if Method::known(&request.method) == Some(Method::Ping))
}

#[cfg(test)]
mod tests;
