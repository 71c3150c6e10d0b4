//! Streams that clients of the legacy revisions can come back to (`Last-Event-ID`).
//!
//! The call of a stream is carried by a task of its own, so that the connection is only where its events go: one
//! that is lost ends nothing, and another one takes its place. What is sent is kept on the shelf.
//!
//! Spec: 2025-11-25, basic/transports, "Resumability and Redelivery".
//!
//! Must not know: what is sent.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use http::StatusCode;
use tokio::time::Instant;

use super::detached::{Detached, Place};
use super::endpoint::{Caller, Endpoint};
use super::event_id::{CallPosition, EventIds, Position};
use super::legacy_session::{Session, SessionUse};
use super::reply::{ErrorBody, Reply};
use super::running::{DISCONNECTED, Next, Source, until};
use super::shelf::{Intake, Resumed, Shelf, Way, Writer};
use super::stream::{KEEP_ALIVE, event_stream, one_event, rest};
use crate::config::Config;
use crate::mcp::{Code, Era};
use crate::seal::SealError;
use crate::telemetry::{self, Metrics, StreamResumed};
use crate::wire::sse;

/// How long a client is asked to wait before it comes back.
const RETRY: Duration = Duration::from_secs(1);

/// What all streams share that clients can come back to.
pub(super) struct Resumption {
    pub(super) shelf: Arc<Shelf>,
    ids: EventIds,
    /// How long a call goes on with nobody there.
    window: Duration,
}

impl Resumption {
    /// # Errors
    /// If the key for the ids of events cannot be set up.
    pub(super) fn new(config: &Config, metrics: Arc<Metrics>) -> Result<Self, SealError> {
        Ok(Self {
            shelf: Arc::new(Shelf::new(config, metrics)),
            ids: EventIds::new(&config.sessions)?,
            window: config.sessions.resume_window,
        })
    }

    /// Where the event stands that a client of `session` names.
    ///
    /// # Errors
    /// The refusal of what is no id of an event of this session.
    pub(super) fn find(&self, session: &Session, id: &str) -> Result<Position, Reply> {
        self.ids.read(&session.id, id).ok_or_else(|| {
            let text = "Last-Event-ID names no event of this session; send a GET without it for a new stream";
            Reply::transport(StatusCode::BAD_REQUEST, text)
        })
    }

    /// The id of an event; `None` if it cannot be made, and then the event has none.
    pub(super) fn id(&self, session: &Session, position: &Position) -> Option<String> {
        self.ids.write(&session.id, position).ok()
    }

    /// What a stream begins with that clients of this revision can come back to at once.
    pub(super) fn priming(&self, session: &Session, position: &Position) -> Option<Bytes> {
        let id = self.id(session, position).filter(|_| session.version.has_priming_events())?;
        Some(sse::write_priming(&id, RETRY))
    }
}

/// Carries what a POST of a session has under way to its end, whatever becomes of its connection. The stream begins with `first`.
/// Without randomness for the number of the stream, it ends with its connection.
pub(super) fn carry(
    endpoint: &Endpoint,
    (source, session): (Source, SessionUse),
    first: Option<Bytes>,
) -> Response {
    let resumption = Arc::clone(&endpoint.resumption);
    let Some((mut writer, intake)) = resumption.shelf.open(&session.id) else { return rest(source, first) };
    let way = writer.way();
    let detached = Arc::clone(&endpoint.detached);
    let driver =
        Driver { source, writer, way, number: 0, session, resumption, detached, lost: None, is_over: false };
    let opening = driver.resumption.priming(&driver.session, &driver.position(0));
    driver.way.offer(opening.unwrap_or(KEEP_ALIVE));
    drop(endpoint.detached.tasks().spawn(driver.run(first)));
    respond(None, intake)
}

/// The stream of a call for a client that comes back to it.
///
/// # Errors
/// The refusal, where nothing more comes of the stream, or nothing is there of it and it is not known whom to tell.
pub(super) fn resume(
    endpoint: &Endpoint,
    caller: &Caller,
    session: &SessionUse,
    position: CallPosition,
) -> Result<Response, Reply> {
    let resumption = &endpoint.resumption;
    let resumed = resumption.shelf.resume(&session.id, position.stream, position.number);
    let found = match &resumed {
        Some(Resumed { missed: 0, .. }) => telemetry::Resumption::Whole,
        Some(Resumed { missed, .. }) => telemetry::Resumption::Gap(*missed),
        None => telemetry::Resumption::Gone,
    };
    StreamResumed { client: &caller.principal.name, kind: "call", found }.emit(endpoint.gateway.metrics());
    if let Some(resumed) = resumed {
        if resumed.is_over {
            let text = "Last-Event-ID names the last event of a stream that has ended; nothing more comes";
            return Err(Reply::transport(StatusCode::GONE, text));
        }
        let priming = resumption.priming(session, &Position::Call(position));
        return Ok(respond(priming, resumed.intake));
    }
    let text = "what came after Last-Event-ID is no longer kept here: the connection was lost for too long, or \
                there was too much; the call may have been executed";
    match &position.request {
        // An answer reaches whoever waits for one; what is wrong with a GET mostly does not.
        Some(request) => {
            let reply = Reply::error(Era::Legacy, request, &ErrorBody::new(Code::Internal, text));
            Ok(one_event(reply, endpoint.gateway.metrics().budget()))
        }
        None => Err(Reply::transport(StatusCode::GONE, text)),
    }
}

fn respond(first: Option<Bytes>, intake: Intake) -> Response {
    let frames = stream::unfold((first, intake), |(mut first, mut intake)| async move {
        let frame = match first.take() {
            Some(frame) => frame,
            None => intake.next().await?,
        };
        Some((Ok::<_, Infallible>(frame), (None, intake)))
    });
    event_stream(Body::from_stream(frames))
}

/// Carries a call, or those of a batch, and sends what comes of it to whatever connection is there.
struct Driver {
    source: Source,
    writer: Writer,
    way: Way,
    /// The number of the last event.
    number: u64,
    session: SessionUse,
    resumption: Arc<Resumption>,
    detached: Arc<Detached>,
    /// Nobody reads.
    lost: Option<Lost>,
    is_over: bool,
}

/// How long the call goes on with nobody there.
struct Lost {
    until: Option<Instant>,
    _place: Option<Place>,
}

impl Driver {
    async fn run(mut self, first: Option<Bytes>) {
        if let Some(first) = first {
            self.tell(first).await;
        }
        while !self.is_over {
            let until_lost = self.lost.as_ref().and_then(|lost| lost.until);
            tokio::select! {
                biased;
                () = self.writer.replaced() => self.reattach(),
                () = self.way.gone(), if self.lost.is_none() => self.lose(),
                () = until(until_lost) => self.give_up(),
                next = self.source.next() => match next {
                    Next::Message(message) => self.tell(message).await,
                    Next::Silence => self.way.offer(KEEP_ALIVE),
                    Next::Ended(reply) => {
                        self.is_over = true;
                        self.answer(&reply.body).await;
                    }
                },
            }
        }
    }

    /// Keeps a message, and sends it to whoever is there.
    async fn tell(&mut self, message: Bytes) {
        let frame = self.frame(&message);
        self.send(frame.clone(), Some(frame)).await;
    }

    /// The same with the end of the call. In place of one that is too large, it is kept that it was.
    async fn answer(&mut self, answer: &Bytes) {
        let frame = self.frame(answer);
        let kept = match self.writer.keeps(frame.len()) {
            true => frame.clone(),
            false => self.repeat_as(
                "the answer was too large to be kept while the connection was lost \
                 (`limits.kept_bytes_per_session`); the call was executed",
            ),
        };
        self.send(frame, Some(kept)).await;
    }

    /// The next event.
    fn frame(&mut self, message: &Bytes) -> Bytes {
        self.number += 1;
        self.write(message)
    }

    /// An error in place of the last event.
    fn repeat_as(&self, text: &'static str) -> Bytes {
        let error = ErrorBody::new(Code::Internal, text);
        self.write(&error.message(self.source.id()))
    }

    fn write(&self, message: &Bytes) -> Bytes {
        let id = self.resumption.id(&self.session, &self.position(self.number));
        self.source.budget().hold(sse::write_event(None, id.as_deref(), message))
    }

    fn position(&self, number: u64) -> Position {
        let request = self.source.id().cloned();
        Position::Call(CallPosition { stream: self.writer.stream(), number, request })
    }

    async fn send(&mut self, frame: Bytes, kept: Option<Bytes>) {
        self.way = self.writer.append(self.number, kept);
        if !self.way.is_gone() {
            self.lost = None;
        }
        let is_replaced = tokio::select! {
            biased;
            // It finds the event among what is sent again.
            () = self.writer.replaced() => true,
            _is_sent = self.way.send(frame) => false,
        };
        if is_replaced {
            self.reattach();
        }
    }

    fn reattach(&mut self) {
        self.way = self.writer.way();
        self.lost = None;
    }

    fn lose(&mut self) {
        let place = self.detached.enter();
        let is_last = place.is_none();
        let until = Instant::now().checked_add(self.resumption.window);
        self.lost = Some(Lost { until, _place: place });
        if is_last {
            self.give_up();
        }
    }

    fn give_up(&mut self) {
        if let Some(lost) = &mut self.lost {
            lost.until = None;
        }
        self.source.cancel(DISCONNECTED);
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if !self.is_over {
            // Whoever comes back should not wait for an answer that never comes.
            self.number += 1;
            let frame =
                self.repeat_as("the call was broken off inside the gateway; it may have been executed");
            self.writer.append(self.number, Some(frame.clone())).offer(frame);
        }
    }
}

#[cfg(test)]
mod tests;
