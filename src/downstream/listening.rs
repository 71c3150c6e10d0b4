//! Streams that stay open, on which a client is told of changes: the stream of a legacy session, and the
//! subscriptions of modern clients.
//!
//! A stream is the body of its response and nothing else: no task, no queue. It ends when its client closes
//! it, its session ends or opens another one, the gateway stops, or a changed configuration would not let the client
//! in as it came in.
//!
//! Must not know: how a stream is asked for.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::ask::Questions;
use super::endpoint::{Caller, Endpoint, quoted};
use super::event_id::{Position, SessionPosition};
use super::filter::Filter;
use super::legacy_session::SessionUse;
use super::reply::{Reply, object};
use super::resumption::Resumption;
use super::stream::{KEEP_ALIVE, event_stream};
use crate::exchange::Inquiry;
use crate::gateway::{Change, EdgeCaller, Following, Watch};
use crate::mcp::{Draft, Id, ListKind, Message, Raw, key};
use crate::telemetry::Resumption::Whole;
use crate::telemetry::{Metrics, OpenStream, StreamKind, StreamResumed};
use crate::translate::input::Question;
use crate::wire::{json, sse};

/// The streams that are open, counted by caller. As large as there are callers with open streams.
#[derive(Debug, Default)]
pub(super) struct Streams(Mutex<HashMap<EdgeCaller, usize>>);

/// The place of one open stream; given back when dropped.
#[derive(Debug)]
pub(super) struct Place {
    all: Arc<Streams>,
    caller: EdgeCaller,
    _counted: OpenStream,
}

impl Streams {
    /// Takes a place; `None` if the caller has as many as it may.
    pub(super) fn enter(
        self: &Arc<Self>,
        caller: &EdgeCaller,
        most: usize,
        (metrics, kind): (&Metrics, StreamKind),
    ) -> Option<Place> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(caller.clone()).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(Place { all: Arc::clone(self), caller: caller.clone(), _counted: metrics.open_stream(kind) })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut count) = open.entry(self.caller.clone()) {
            *count.get_mut() = count.get().saturating_sub(1);
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

/// A stream that stays open.
pub(super) struct Listening {
    watch: Watch,
    voice: Voice,
    /// Questions outside of any call, where the stream is a session's.
    inquiries: Option<mpsc::Receiver<Inquiry>>,
    questions: Arc<Questions>,
    /// What is sent first, as soon as it is there.
    opening: Option<BoxFuture<'static, Piece>>,
    keep_alive: Duration,
    /// `Implementation` of the gateway.
    server_info: Bytes,
    quiet_until: Option<Instant>,
    /// The gateway stops.
    closing: CancellationToken,
    is_over: bool,
    _place: Arc<Place>,
}

/// What is sent on a stream that stays open.
pub(super) enum Piece {
    Message(Bytes),
    /// Nothing, but that the stream lives.
    Silence,
}

/// On whose behalf a stream speaks.
enum Voice {
    /// A session's, until the token says that it is no longer the session's stream.
    Session { session: SessionUse, kept: CancellationToken, resumption: Arc<Resumption> },
    /// That of the subscription with this id.
    Subscription(Id),
}

/// What comes next on a stream.
enum Next {
    /// What it begins with.
    Opening(Piece),
    Change(Change),
    Inquiry(Inquiry),
    Silence,
    /// The gateway stops, or would not let the client in any more.
    Closing,
    /// The session ended, or opened another stream.
    Ended,
}

impl Listening {
    /// The stream of a session, in the place of one that it may have open. It begins with what changed since
    /// the session was told last, or since the event that its client comes back to.
    pub(super) fn session(
        endpoint: &Endpoint,
        (caller, session): (&Caller, &SessionUse),
        since: Option<SessionPosition>,
        place: Arc<Place>,
    ) -> Self {
        let kept = session.open_stream();
        session.set_stream_place(&place);
        let following = Arc::clone(session.following());
        if let Some(since) = &since {
            let (client, kind) = (&*caller.principal.name, "session");
            StreamResumed { client, kind, found: Whole }.emit(endpoint.gateway.metrics());
            following.rewind(since.updates);
        }
        let seen = since.map(|since| since.seen).or_else(|| session.seen());
        let watch = endpoint.gateway.watch(caller.known(), &ListKind::ALL, seen, following);
        let resumption = Arc::clone(&endpoint.resumption);
        let opening = Box::pin(std::future::ready(Piece::Silence));
        let voice = Voice::Session { session: session.clone(), kept, resumption };
        let listening = Self::new(endpoint, watch, (voice, opening), place);
        Self { inquiries: Some(session.peer.listen()), ..listening }
    }

    /// A subscription to what `filter` names. It begins with the acknowledgement, once it is known what is told.
    pub(super) fn subscription(
        endpoint: &Endpoint,
        caller: &Caller,
        (id, filter): (Id, Filter),
        place: Place,
    ) -> Self {
        let following: Arc<Following> = Arc::default();
        let watch = endpoint.gateway.watch(caller.known(), &filter.kinds, None, Arc::clone(&following));
        let (gateway, principal) = (Arc::clone(&endpoint.gateway), caller.principal.clone());
        let subscription = id.clone();
        let opening = Box::pin(async move {
            let honoured = filter.settle(&gateway, &principal, &following).await;
            Piece::Message(acknowledgement(&subscription, &honoured))
        });
        Self::new(endpoint, watch, (Voice::Subscription(id), opening), Arc::new(place))
    }

    fn new(
        endpoint: &Endpoint,
        watch: Watch,
        (voice, opening): (Voice, BoxFuture<'static, Piece>),
        place: Arc<Place>,
    ) -> Self {
        Self {
            watch,
            voice,
            inquiries: None,
            questions: Arc::clone(&endpoint.questions),
            opening: Some(opening),
            server_info: endpoint.identity.newest(),
            keep_alive: endpoint.gateway.config().sessions.keep_alive,
            quiet_until: None,
            closing: endpoint.closing.clone(),
            is_over: false,
            _place: place,
        }
    }

    /// The stream as a response.
    pub(super) fn into_response(self) -> Response {
        let frames = stream::unfold(self, |mut listening| async move {
            let is_opening = listening.opening.is_some();
            let frame = match listening.next().await? {
                Piece::Message(message) => sse::write_event(None, listening.id().as_deref(), &message),
                Piece::Silence if is_opening => listening.priming().unwrap_or(KEEP_ALIVE),
                Piece::Silence => KEEP_ALIVE,
            };
            Some((Ok::<_, Infallible>(frame), listening))
        });
        event_stream(Body::from_stream(frames))
    }

    /// The id of the last event; only a session's have any.
    fn id(&self) -> Option<String> {
        match &self.voice {
            Voice::Session { session, resumption, .. } => resumption.id(session, &self.position(session)),
            Voice::Subscription(_) => None,
        }
    }

    fn priming(&self) -> Option<Bytes> {
        match &self.voice {
            Voice::Session { session, resumption, .. } => {
                resumption.priming(session, &self.position(session))
            }
            Voice::Subscription(_) => None,
        }
    }

    /// What the client knows once it has received the last event.
    fn position(&self, session: &SessionUse) -> Position {
        let (seen, updates) = (self.watch.seen().clone(), session.following().given());
        Position::Session(SessionPosition { seen, updates })
    }

    /// The next piece of the stream; `None` at its end. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<Piece> {
        if self.is_over {
            return None;
        }
        let piece = match self.wait().await {
            Next::Opening(opening) => {
                self.opening = None;
                opening
            }
            Next::Silence => Piece::Silence,
            Next::Change(change) => Piece::Message(self.tell(change)),
            Next::Inquiry(inquiry) => self.ask(inquiry),
            Next::Ended => return None,
            Next::Closing => {
                self.is_over = true;
                Piece::Message(self.farewell()?)
            }
        };
        self.quiet_until = Instant::now().checked_add(self.keep_alive);
        Some(piece)
    }

    async fn wait(&mut self) -> Next {
        let ended = match &self.voice {
            Voice::Session { kept, .. } => Some(kept),
            Voice::Subscription(_) => None,
        };
        let is_opening = self.opening.is_some();
        tokio::select! {
            biased;
            () = self.closing.cancelled() => Next::Closing,
            () = cancelled(ended) => Next::Ended,
            opening = opened(&mut self.opening), if is_opening => Next::Opening(opening),
            Some(inquiry) = received(&mut self.inquiries), if !is_opening => Next::Inquiry(inquiry),
            change = self.watch.next(), if !is_opening => change.map_or(Next::Closing, Next::Change),
            () = until(self.quiet_until) => Next::Silence,
        }
    }

    /// Puts a question to the client of the session; its answer comes by itself.
    fn ask(&self, inquiry: Inquiry) -> Piece {
        let Voice::Session { session, .. } = &self.voice else { return Piece::Silence };
        let id = self.questions.expect(&session.id, inquiry.answer);
        Piece::Message(Question::of(&inquiry.request).write(&Id::from(id)))
    }

    fn tell(&self, change: Change) -> Bytes {
        let meta = match &self.voice {
            Voice::Session { session, .. } => {
                session.set_seen(self.watch.seen().clone());
                None
            }
            Voice::Subscription(id) => Some(tag(id, None)),
        };
        let (method, uri) = match change {
            Change::Task(said) => return self.tagged(said),
            Change::List(kind) => (kind.changed(), None),
            Change::Resource(uri) => ("notifications/resources/updated", Some(quoted(&uri))),
        };
        let params = [("_meta", meta), ("uri", uri)];
        let has_params = params.iter().any(|(_, value)| value.is_some());
        let params = has_params.then(|| object(&params));
        notification(method, params)
    }

    /// A notification of a server, in a subscription with its id.
    fn tagged(&self, said: Bytes) -> Bytes {
        let Voice::Subscription(id) = &self.voice else { return said };
        let Ok(Message::Notification(said)) = json::parse(said.clone()) else { return said };
        let meta = match said.param("_meta").filter(Raw::is_object) {
            // That of our own subscription stands there.
            Some(meta) => {
                let mut draft = Draft::new(meta.bytes().clone());
                draft.edit_object(&meta.object(), &[(key::SUBSCRIPTION_ID, Some(id.bytes().clone()))]);
                draft.finish()
            }
            None => tag(id, None),
        };
        let mut draft = Draft::new(said.text.clone());
        draft.edit_object(&said.params, &[("_meta", Some(meta))]);
        draft.finish()
    }

    /// What is said when the gateway stops: a subscription ends with its result.
    fn farewell(&self) -> Option<Bytes> {
        match &self.voice {
            Voice::Session { .. } => None,
            Voice::Subscription(id) => {
                let meta = tag(id, Some(self.server_info.clone()));
                let members = [("resultType", Some(quoted("complete"))), ("_meta", Some(meta))];
                Some(Reply::result(id, object(&members)).body)
            }
        }
    }
}

async fn received(inquiries: &mut Option<mpsc::Receiver<Inquiry>>) -> Option<Inquiry> {
    match inquiries {
        Some(inquiries) => inquiries.recv().await,
        None => std::future::pending().await,
    }
}

async fn cancelled(token: Option<&CancellationToken>) {
    match token {
        Some(token) => token.cancelled().await,
        None => std::future::pending().await,
    }
}

/// Waits for what a stream begins with; for ever where that was sent.
async fn opened(opening: &mut Option<BoxFuture<'static, Piece>>) -> Piece {
    match opening {
        Some(opening) => opening.await,
        None => std::future::pending().await,
    }
}

async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

fn notification(method: &str, params: Option<Bytes>) -> Bytes {
    object(&[
        ("jsonrpc", Some(Bytes::from_static(b"\"2.0\""))),
        ("method", Some(quoted(method))),
        ("params", params),
    ])
}

/// The `_meta` that says which subscription a message belongs to, in the id's own digits.
fn tag(id: &Id, server_info: Option<Bytes>) -> Bytes {
    object(&[(key::SUBSCRIPTION_ID, Some(id.bytes().clone())), (key::SERVER_INFO, server_info)])
}

fn acknowledgement(id: &Id, honoured: &Filter) -> Bytes {
    let params = object(&[("_meta", Some(tag(id, None))), ("notifications", Some(honoured.write()))]);
    notification("notifications/subscriptions/acknowledged", Some(params))
}

#[cfg(test)]
mod tests;
