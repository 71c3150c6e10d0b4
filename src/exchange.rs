//! The model in the middle: one client request inside us, what happens on its way, and how it ends.
//!
//! The shape is that of a self-contained request: whatever the peer agreed on once and for all has been
//! filled in per call. The envelope is typed, the payload stays the text that came.
//!
//! Must not know: sockets, sessions, how either peer opened its connection.

mod budget;

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc::error::{SendTimeoutError, TrySendError};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::mcp::{Method, Notification, Raw, Request, Response, TaskMode};

pub use budget::{Budget, Exhausted, Share};

/// The caller of a call, authenticated, and the endpoint at which it calls: what it may do depends on both.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Principal {
    /// Its place in the configuration's list of clients (the anonymous client is one of them).
    pub client: usize,
    /// Its name: the key under `clients`, or `anonymous`; where many callers are one client, the name of that and
    /// its own. Nobody else has it.
    pub name: Arc<str>,
    /// Roles that it has besides those of the client, by their places in the configuration: sorted, each once.
    pub roles: Arc<[usize]>,
    /// The place of the endpoint in the configuration.
    pub endpoint: usize,
}

impl Principal {
    /// The caller that a client of the configuration is by itself, at the first endpoint.
    #[must_use]
    pub fn new(client: usize, name: impl Into<Arc<str>>) -> Self {
        Self { client, name: name.into(), roles: Arc::default(), endpoint: 0 }
    }

    /// The same caller at the endpoint at this place.
    #[must_use]
    pub fn at(self, endpoint: usize) -> Self {
        Self { endpoint, ..self }
    }
}

/// One client request on its way through the gateway.
#[derive(Clone, Debug)]
pub struct Call {
    /// The method, known.
    pub method: Method,
    /// The request as it came.
    pub request: Request,
    /// What the request says about its sender.
    pub hop: Hop,
    /// Who sent it.
    pub principal: Principal,
    /// The session that it came in, if it came in one.
    pub session: Option<Arc<CallerSession>>,
    /// Where events go that precede the end.
    pub events: EventSink,
    /// Ends the call early.
    pub cancel: Cancel,
}

/// The session of a caller, as far as a server may know of it: what it can be asked, and a way to ask it while no
/// call of it is under way.
#[derive(Debug)]
pub struct CallerSession {
    /// Its id.
    pub id: Arc<str>,
    /// `ClientCapabilities` that hold for the whole session, `{}` if it has none.
    pub capabilities: Raw,
    outlet: Mutex<Option<mpsc::Sender<Inquiry>>>,
}

/// A question to a session outside of any call.
#[derive(Debug)]
pub struct Inquiry {
    /// The server's own request.
    pub request: Request,
    /// Takes the client's response. Closed once nobody waits for it any more.
    pub answer: oneshot::Sender<Response>,
}

/// How many questions outside of calls may wait to be read by the stream of a session.
const INQUIRIES: usize = 16;

impl CallerSession {
    /// A session that nobody listens in yet.
    #[must_use]
    pub fn new(id: Arc<str>, capabilities: Raw) -> Self {
        Self { id, capabilities, outlet: Mutex::default() }
    }

    /// Begins to listen to questions outside of calls, in the place of whoever did so before.
    pub fn listen(&self) -> mpsc::Receiver<Inquiry> {
        let (sender, receiver) = mpsc::channel(INQUIRIES);
        *self.outlet.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        receiver
    }

    /// Asks the client of the session, if it listens and has room; gives back where the answer comes. That ends
    /// without one if the client stops listening before it has the question.
    pub fn ask(&self, request: Request) -> Option<oneshot::Receiver<Response>> {
        let outlet = self.outlet.lock().unwrap_or_else(PoisonError::into_inner);
        let (answer, answered) = oneshot::channel();
        outlet.as_ref()?.try_send(Inquiry { request, answer }).ok()?;
        Some(answered)
    }
}

/// The metadata of one request: agreed per request, or filled in from a session.
#[derive(Clone, Debug, Default)]
pub struct Hop {
    /// `Implementation` of the client, if it said so.
    pub client_info: Option<Raw>,
    /// `ClientCapabilities`, `{}` if it has none.
    pub capabilities: Option<Raw>,
    /// The least level of log messages wanted, as JSON text (`"info"`); `None` is none, or no wish.
    pub log_level: Option<Raw>,
    /// The client's own progress token, as JSON text.
    pub progress_token: Option<Raw>,
    /// The kind of tasks that the client knows.
    pub tasks: Option<TaskMode>,
    /// Where it was sent from, if over a network.
    pub address: Option<IpAddr>,
    /// Questions that the client answered with an error, by their keys. A retry has no place for errors in
    /// its text.
    pub refused_inputs: Vec<(Box<str>, Raw)>,
}

/// Something that happened before a call ended: a notification, with the ids and tokens of the caller.
#[derive(Clone, Debug)]
pub struct Event {
    /// What it is about.
    pub kind: EventKind,
    /// The notification.
    pub notification: Notification,
}

/// The kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// `notifications/progress`, the progress token already the caller's.
    Progress,
    /// `notifications/message`.
    Log,
    /// Any other notification that the upstream tied to this call.
    Other,
}

/// Takes the events of one call, in their order. Bounded: a caller that does not read slows its own
/// upstream stream down, and nobody else's.
#[derive(Clone, Debug)]
pub struct EventSink {
    queue: mpsc::Sender<Event>,
    state: Arc<SinkState>,
}

#[derive(Debug)]
struct SinkState {
    /// When it was made.
    begun: Instant,
    /// When the last word of progress came: milliseconds since then, and one. 0 is never.
    progressed: AtomicU64,
    /// Whether its reader let somebody wait in vain, and has not read since.
    is_stalled: AtomicBool,
    /// Whether anything was passed on.
    is_used: AtomicBool,
}

/// How many events of a call wait for a slow reader before its upstream has to wait, too.
pub const EVENT_QUEUE: usize = 64;

impl EventSink {
    /// A sink and the end to read from.
    #[must_use]
    pub fn new() -> (Self, mpsc::Receiver<Event>) {
        let (sender, receiver) = mpsc::channel(EVENT_QUEUE);
        let state = SinkState {
            begun: Instant::now(),
            progressed: AtomicU64::new(0),
            is_stalled: AtomicBool::new(false),
            is_used: AtomicBool::new(false),
        };
        (Self { queue: sender, state: Arc::new(state) }, receiver)
    }

    /// When the last word of progress came, whether or not anybody listens; to the millisecond.
    #[must_use]
    pub fn progressed_at(&self) -> Option<Instant> {
        let since = self.state.progressed.load(Ordering::Relaxed).checked_sub(1)?;
        Some(self.state.begun + Duration::from_millis(since))
    }

    fn note(&self, event: &Event) {
        self.state.is_used.store(true, Ordering::Relaxed);
        if event.kind == EventKind::Progress {
            let since = u64::try_from(self.state.begun.elapsed().as_millis()).unwrap_or(u64::MAX - 1);
            self.state.progressed.store(since.saturating_add(1), Ordering::Relaxed);
        }
    }

    /// Passes one event on, waiting for room. Nothing happens if nobody listens any more.
    ///
    /// Cancel safe: a cancelled send has sent nothing.
    pub async fn send(&self, event: Event) {
        self.note(&event);
        drop(self.queue.send(event).await);
    }

    /// Whether any event was passed on, or is about to be.
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.state.is_used.load(Ordering::Relaxed)
    }

    /// Passes one event on for a reader that serves many calls: waits for room, but only once and no longer
    /// than `patience`, until the caller reads again. Says whether the event is on its way; it is also where
    /// nobody listens any more.
    ///
    /// Cancel safe: a cancelled send has sent nothing.
    #[must_use]
    pub async fn send_within(&self, event: Event, patience: Duration) -> bool {
        self.note(&event);
        let event = match self.queue.try_send(event) {
            Ok(()) | Err(TrySendError::Closed(_)) => {
                self.state.is_stalled.store(false, Ordering::Relaxed);
                return true;
            }
            Err(TrySendError::Full(event)) => event,
        };
        if self.state.is_stalled.load(Ordering::Relaxed) {
            return false;
        }
        let is_late =
            matches!(self.queue.send_timeout(event, patience).await, Err(SendTimeoutError::Timeout(_)));
        self.state.is_stalled.store(is_late, Ordering::Relaxed);
        !is_late
    }
}

/// Ends a call early, with a reason that goes to the upstream. The first reason stays.
#[derive(Clone, Debug, Default)]
pub struct Cancel {
    token: CancellationToken,
    reason: Arc<OnceLock<Reason>>,
}

/// Why a call ends early.
#[derive(Debug)]
struct Reason {
    text: Box<str>,
    /// Whether its client said so, and so expects no answer.
    is_wish: bool,
}

impl Cancel {
    /// Ends the call.
    pub fn cancel(&self, reason: &str) {
        let _first = self.reason.set(Reason { text: reason.into(), is_wish: false });
        self.token.cancel();
    }

    /// Ends the call because its client says so.
    pub fn withdraw(&self, reason: &str) {
        let _first = self.reason.set(Reason { text: reason.into(), is_wish: true });
        self.token.cancel();
    }

    /// Whether it was its client that ended it.
    #[must_use]
    pub fn is_withdrawn(&self) -> bool {
        self.reason.get().is_some_and(|reason| reason.is_wish)
    }

    /// Waits until somebody ends the call. Cancel safe.
    pub async fn cancelled(&self) {
        self.token.cancelled().await;
    }

    /// Why it was ended, if it was.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.reason.get().map(|reason| &*reason.text)
    }
}

/// How a call ended, as the upstream said it.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// With its result.
    Complete(Answer),
    /// With questions to the client, which may retry with the answers.
    InputRequired(Answer),
    /// With the upstream's own error, passed on as it is.
    Error(Answer),
}

/// The upstream's response to a call.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The response as it came, its id still that of the upstream hop.
    pub response: Response,
    /// What its result carries.
    pub form: ResultForm,
}

/// What a result carries besides its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultForm {
    /// The payload alone.
    Bare,
    /// `resultType`, and caching hints where the method has them.
    Tagged,
}

impl Outcome {
    /// The response, whatever it says.
    #[must_use]
    pub fn answer(&self) -> &Answer {
        match self {
            Self::Complete(answer) | Self::InputRequired(answer) | Self::Error(answer) => answer,
        }
    }
}
