//! What both eras need to serve a message.
//!
//! Must not know: either era's rules.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::ask::{Asker, Asks, Questions};
use super::detached::Detached;
use super::identity::Identity;
use super::in_flight::{Flight, InFlight, Scope};
use super::legacy_session::{SessionTable, SessionUse};
use super::level::Logs;
use super::listening::{Listening, Place, Streams};
use super::media::single;
use super::reply::{Asked, ErrorBody, Reply};
use super::resumption::Resumption;
use super::sse::Connections;
use crate::auth::{Authenticator, Resource};
use crate::exchange::{Call, Cancel, Event, EventSink, Hop, Principal};
use crate::gateway::{Credentials, EdgeCaller, Gateway, GatewayError, GatewayErrorKind, Page};
use crate::mcp::{Code, Era, Id, ListKind, Method, Raw, Request};
use crate::seal::SealError;
use crate::telemetry::{ClientRefused, StreamKind};
use crate::translate::from_legacy::Asking;
use crate::wire::headers::SESSION_ID;

/// All that the requests share, at whichever endpoint they come.
pub(super) struct Endpoint {
    pub(super) gateway: Arc<Gateway>,
    pub(super) authenticator: Authenticator,
    /// What clients are told of where tokens come from.
    pub(super) resource: Resource,
    pub(super) sessions: Arc<SessionTable>,
    pub(super) in_flight: Arc<InFlight>,
    pub(super) questions: Arc<Questions>,
    pub(super) streams: Arc<Streams>,
    /// Open connections over HTTP+SSE.
    pub(super) connections: Arc<Connections>,
    /// What the gateway calls itself.
    pub(super) identity: Identity,
    /// Cancelled when the gateway stops: streams that stay open end then.
    pub(super) closing: CancellationToken,
    /// Calls that may go on without their connection.
    pub(super) detached: Arc<Detached>,
    /// Streams that clients can come back to.
    pub(super) resumption: Arc<Resumption>,
}

/// Who sent a request.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) principal: Principal,
    /// Under which name the edge limit counts it.
    pub(super) edge: EdgeCaller,
    /// The pipe that it speaks on, if it does.
    pub(super) pipe: Option<u64>,
    /// What it was known by.
    pub(super) credentials: Credentials,
    /// Where it is, if it comes over a network.
    pub(super) address: Option<IpAddr>,
}

/// The session that a request names.
#[derive(Debug)]
pub(super) enum Presented {
    /// None.
    Absent,
    /// One that lives.
    Live(SessionUse),
    /// One that is unknown, expired, deleted, or another principal's.
    Unknown,
}

impl Presented {
    /// The answer to a request in a session that does not live.
    pub(super) fn gone() -> Reply {
        let text = "the session is unknown or has ended; send `initialize` to begin another";
        Reply::transport(StatusCode::NOT_FOUND, text)
    }
}

/// What one message leads to.
pub(super) enum Step {
    /// An answer that is there already.
    Done(Reply),
    /// A call to carry.
    Carry(Box<Prepared>),
    /// A stream that stays open.
    Listen(Box<Listening>),
}

/// A call ready to go, and how to answer it.
pub(super) struct Prepared {
    pub(super) call: Call,
    pub(super) asked: Asked,
    pub(super) events: mpsc::Receiver<Event>,
    pub(super) logs: Logs,
    /// How the client hears questions on the way.
    pub(super) asks: Asks,
    /// Questions for the stream of the call.
    pub(super) questions: mpsc::Receiver<Bytes>,
    /// Lets the client cancel the call while it runs.
    pub(super) flight: Flight,
    /// Keeps the session from becoming idle while it runs.
    pub(super) session: Option<SessionUse>,
}

/// What a request is, besides its text.
pub(super) struct Terms {
    pub(super) era: Era,
    pub(super) method: Method,
    pub(super) hop: Hop,
    pub(super) logs: Logs,
    pub(super) session: Option<SessionUse>,
    /// Whether it can be asked while the call runs.
    pub(super) asking: Asking,
}

impl Endpoint {
    /// An endpoint of `gateway`, whose streams end with `closing`.
    ///
    /// # Errors
    /// If the key for session ids cannot be set up.
    pub(super) fn new(gateway: Arc<Gateway>, closing: CancellationToken) -> Result<Self, SealError> {
        let config = gateway.config();
        let bereaved = {
            let gateway = Arc::clone(&gateway);
            move |session: &Arc<str>| gateway.newest().end_session(session)
        };
        let sessions = SessionTable::new(config, Arc::clone(gateway.metrics()))?;
        Ok(Self {
            authenticator: Authenticator::new(config),
            resource: Resource::new(config),
            sessions: Arc::new(sessions.telling(bereaved)),
            in_flight: Arc::default(),
            questions: Arc::default(),
            streams: Arc::default(),
            connections: Arc::default(),
            identity: Identity::new(&config.server_info),
            closing,
            detached: Arc::new(Detached::new(config, Arc::clone(gateway.metrics()))),
            resumption: Arc::new(Resumption::new(config, Arc::clone(gateway.metrics()))?),
            gateway,
        })
    }

    /// What serves a gateway that came in the place of this one's: who is there stays there.
    pub(super) fn succeed(&self, gateway: Arc<Gateway>) -> Self {
        let config = gateway.config();
        self.sessions.know(config);
        Self {
            authenticator: Authenticator::in_place_of(config, &self.authenticator),
            resource: Resource::new(config),
            sessions: Arc::clone(&self.sessions),
            in_flight: Arc::clone(&self.in_flight),
            questions: Arc::clone(&self.questions),
            streams: Arc::clone(&self.streams),
            connections: Arc::clone(&self.connections),
            identity: Identity::new(&config.server_info),
            closing: self.closing.clone(),
            detached: Arc::clone(&self.detached),
            resumption: Arc::clone(&self.resumption),
            gateway,
        }
    }

    /// Forgets sessions and events that are too old. To be called every now and then.
    pub(super) fn sweep(&self) {
        self.sessions.sweep();
        self.resumption.shelf.sweep();
    }

    /// Looks up the session that a request names.
    pub(super) fn present(&self, headers: &HeaderMap, caller: &Caller) -> Presented {
        if !headers.contains_key(SESSION_ID) {
            return Presented::Absent;
        }
        let found = single(headers, SESSION_ID).and_then(|id| self.sessions.find(id, &caller.principal));
        found.map_or(Presented::Unknown, Presented::Live)
    }

    /// Logs and counts a reply if it is a refusal.
    pub(super) fn note(&self, reply: &Reply) {
        if let Some(reason) = &reply.refusal {
            ClientRefused { status: reply.status.as_u16(), reason }.emit(self.gateway.metrics());
        }
    }

    /// A place for one more stream of this caller that stays open.
    ///
    /// # Errors
    /// The refusal, once the caller has as many as it may.
    pub(super) fn stream_place(
        &self,
        caller: &Caller,
        kind: StreamKind,
        id: Option<&Id>,
    ) -> Result<Place, Reply> {
        let most = self.gateway.config().limits.streams;
        let place = self.streams.enter(&caller.edge, most, (self.gateway.metrics(), kind));
        place.ok_or_else(|| {
            let text = format!("{most} streams are open already (`limits.streams`); close one first");
            let error = ErrorBody::new(Code::RateLimited, text);
            Reply::refuse(StatusCode::TOO_MANY_REQUESTS, id, &error)
        })
    }

    /// The place of the stream of a session: that of the one that it has open, which ends with this one, or a new one.
    ///
    /// # Errors
    /// As [`Endpoint::stream_place`].
    pub(super) fn session_place(&self, caller: &Caller, session: &SessionUse) -> Result<Arc<Place>, Reply> {
        match session.stream_place() {
            Some(place) => Ok(place),
            None => self.stream_place(caller, StreamKind::Session, None).map(Arc::new),
        }
    }

    /// Makes a call out of a request and enters it into the table of calls in flight.
    pub(super) fn prepare(&self, caller: &Caller, request: Request, terms: Terms) -> Step {
        let Terms { era, method, hop, logs, session, asking } = terms;
        let hop = Hop { address: caller.address, ..hop };
        let (sink, events) = EventSink::new();
        let (stream, questions) = mpsc::channel(1);
        let asks = match (era, &session, asking) {
            (Era::Legacy, Some(session), _) if method == Method::ResourcesSubscribe => {
                Asks::Follows(Arc::clone(session.following()))
            }
            (Era::Modern, _, _) => Asks::ByOutcome,
            (Era::Legacy, Some(session), Asking::Possible) => Asks::OnStream(Asker {
                questions: Arc::clone(&self.questions),
                session: Arc::clone(&session.id),
                stream,
                patience: self.gateway.config().limits.answer_timeout,
            }),
            (Era::Legacy, _, _) => Asks::Never,
        };
        let (id, cancel) = (request.id.clone(), Cancel::default());
        let flight = self.in_flight.enter(caller.scope(session.as_ref()), id.clone(), cancel.clone());
        let call = Call {
            method,
            request,
            hop,
            principal: caller.principal.clone(),
            session: session.as_ref().map(|session| Arc::clone(&session.peer)),
            events: sink,
            cancel,
        };
        Step::Carry(Box::new(Prepared {
            call,
            asked: Asked { era, method, id },
            events,
            logs,
            asks,
            questions,
            flight,
            session,
        }))
    }

    /// The page of a list that a request asks for.
    ///
    /// # Errors
    /// `InvalidParams` if the cursor is no string, or none of ours.
    pub(super) fn list(
        &self,
        caller: &Caller,
        kind: ListKind,
        request: &Request,
    ) -> Result<Page, GatewayError> {
        let cursor = match request.param("cursor") {
            Some(raw) if raw.text() != "null" => Some(raw.string().ok_or_else(|| {
                GatewayError::new(GatewayErrorKind::InvalidParams, "`params.cursor` must be a string")
            })?),
            Some(_) | None => None,
        };
        self.gateway.list(kind, &caller.principal, cursor.as_deref())
    }
}

impl Caller {
    /// Who it is, and what it was known by.
    pub(super) fn known(&self) -> (&Principal, &Credentials) {
        (&self.principal, &self.credentials)
    }

    /// Within what the ids of this caller are its own.
    pub(super) fn scope(&self, session: Option<&SessionUse>) -> Scope {
        let endpoint = self.principal.endpoint;
        match (session, self.pipe, &self.edge) {
            (Some(session), _, _) => Scope::Session(Arc::clone(&session.id)),
            (None, Some(pipe), _) => Scope::Pipe(pipe),
            (None, None, EdgeCaller::Client(client)) => Scope::Client(*client, endpoint),
            (None, None, EdgeCaller::Member(name)) => Scope::Member(Arc::clone(name), endpoint),
            (None, None, EdgeCaller::Address(address)) => Scope::Address(*address, endpoint),
        }
    }
}

/// A text as a JSON string.
pub(super) fn quoted(text: &str) -> Bytes {
    Raw::from_text(text).bytes().clone()
}
