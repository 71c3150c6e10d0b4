//! Reading answers: one JSON body, or a stream of events that ends with the answer. Bounded, and the id must
//! be ours.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use tokio::time::{sleep, timeout};

use super::{Endpoint, fault};
use crate::exchange::Share;
use crate::gateway::GatewayErrorKind;
use crate::mcp::{Body, Message, Request, Response};
use crate::outbound::Received;
use crate::upstream::backoff::Backoff;
use crate::upstream::failure::Failure;
use crate::upstream::listener::{Concern, Listener};
use crate::upstream::question::WayBack;
use crate::upstream::transport::{Resumption, answers, salvage_id, unreadable};
use crate::upstream::unsolicited::Unsolicited;
use crate::wire::json::{self, JsonError};
use crate::wire::sse;

/// The largest body that explains a refusal.
const REFUSAL: usize = 1 << 20;
/// How much of the rest of an answer is read, and how long, for its connection to be used again.
const DRAIN_BYTES: usize = 64 * 1024;
const DRAIN_TIME: Duration = Duration::from_secs(1);
/// The waits before a stream is taken up again.
const FIRST_RESUMPTION: Duration = Duration::from_millis(100);
const LONGEST_RESUMPTION: Duration = Duration::from_secs(10);
/// The longest wait that a server may ask for.
const LONGEST_RETRY: Duration = Duration::from_secs(300);
/// How often in a row a stream is taken up again that then says nothing new.
const RESUMPTIONS: u32 = 5;
/// What the framing of an event may take besides the message.
const FRAMING: usize = 1024;

/// Reads the answer to one request.
pub(super) struct Reading<'a> {
    pub(super) endpoint: &'a Endpoint,
    /// The id of the request.
    pub(super) id: u64,
    /// The headers of the request; answers to questions on its stream carry them, too.
    pub(super) headers: Arc<HeaderMap>,
    /// Who hears what precedes the answer.
    pub(super) listener: Option<Listener>,
    /// What happens when its stream ends too early.
    pub(super) resumption: Resumption,
}

/// How a stream that ended too early is taken up again.
struct Trail {
    last_id: Option<String>,
    waits: Backoff,
}

impl Trail {
    /// Notes the last id that a stream has named. A new one is progress.
    fn follow(&mut self, id: Option<&str>) {
        if let Some(id) = id.filter(|id| self.last_id.as_deref() != Some(*id)) {
            self.last_id = Some(id.to_owned());
            self.waits.reset();
        }
    }
}

impl Reading<'_> {
    /// Reads an answer whose status says yes.
    pub(super) async fn read(&self, response: Received) -> Result<Response, Failure> {
        if is_event_stream(response.headers()) {
            return self.read_stream(response).await;
        }
        let is_json = is_json(response.headers());
        let refusal = fault::of_status(&response);
        let body = read_body(response, self.endpoint.bounds()).await?;
        if !is_json && !body.trim_ascii_start().starts_with(b"{") {
            return Err(refusal);
        }
        for message in self.messages(&body).map_err(|error| unreadable(&error))? {
            if let Some(response) = self.absorb(message).await {
                return Ok(response);
            }
        }
        Err(Failure::broken("its answer is not for our request").maybe_executed())
    }

    /// Reads an answer whose status says no: the server's own error, if it gives one.
    pub(super) async fn read_refusal(&self, response: Received) -> Result<Response, Failure> {
        let refusal = fault::of_status(&response);
        if matches!(response.status().as_u16(), 401 | 403) {
            self.endpoint.finish_reading(response);
            return Err(refusal);
        }
        let bounds = self.endpoint.bounds();
        let bounds = Bounds { message: REFUSAL.min(bounds.message), ..bounds };
        let Ok(body) = read_body(response, bounds).await else {
            return Err(refusal);
        };
        match json::parse(body) {
            // It came as the answer to our request: some servers name no id, or another text, in errors.
            Ok(Message::Response(response)) if matches!(response.body, Body::Error(_)) => Ok(response),
            Ok(_) | Err(_) => Err(refusal),
        }
    }

    async fn read_stream(&self, response: Received) -> Result<Response, Failure> {
        let mut stream = self.endpoint.stream(response);
        let mut trail = Trail { last_id: None, waits: Backoff::new(FIRST_RESUMPTION, LONGEST_RESUMPTION) };
        loop {
            match self.read_events(&mut stream).await {
                Ok(Some(response)) => {
                    self.endpoint.finish_reading(stream.response);
                    return Ok(response);
                }
                Err(failure) if failure.kind != GatewayErrorKind::Unavailable => return Err(failure),
                early => {
                    let broken = || Failure::unavailable("its answer broke off").because("the stream ended");
                    let failure = early.err().unwrap_or_else(broken).maybe_executed();
                    trail.follow(stream.last_id());
                    let wait = stream.retry().unwrap_or_default();
                    stream = self.resume(wait, &mut trail).await.ok_or(failure)?;
                }
            }
        }
    }

    /// Takes a stream up again behind its last event, after the wait that the server asked for; `None` if
    /// that cannot be.
    async fn resume(&self, wait: Duration, trail: &mut Trail) -> Option<EventStream> {
        if self.resumption == Resumption::Never {
            return None;
        }
        let last_id = trail.last_id.as_deref()?;
        if trail.waits.failures() >= RESUMPTIONS {
            return None;
        }
        sleep(wait.min(LONGEST_RETRY).max(trail.waits.next())).await;
        self.endpoint.listen(&self.headers, Some(last_id)).await.ok()
    }

    /// Reads events up to the answer; `None` if the stream ends before it.
    async fn read_events(&self, stream: &mut EventStream) -> Result<Option<Response>, Failure> {
        while let Some(event) = stream.next().await.map_err(Failure::maybe_executed)? {
            let messages = match self.messages(&event.data) {
                Err(error) if salvage_id(&event.data) == Some(self.id) => return Err(unreadable(&error)),
                Err(_) => {
                    self.endpoint.0.unsolicited.noise(&event.data);
                    continue;
                }
                Ok(messages) => messages,
            };
            for message in messages {
                if let Some(response) = self.absorb(message).await {
                    return Ok(Some(response));
                }
            }
        }
        Ok(None)
    }

    /// The messages of one piece of an answer: one, or an array of them.
    fn messages(&self, text: &Bytes) -> Result<Vec<Message>, JsonError> {
        match json::parse(text.clone()) {
            Ok(message) => Ok(vec![message]),
            Err(JsonError::Batch) => Ok(messages(text, &self.endpoint.0.unsolicited)),
            Err(error) => Err(error),
        }
    }

    /// Takes one message; gives back the answer, if this is it.
    async fn absorb(&self, message: Message) -> Option<Response> {
        match message {
            Message::Response(response) => {
                let is_nameless_error = response.id.is_none() && matches!(response.body, Body::Error(_));
                (answers(&response, self.id) || is_nameless_error).then_some(response)
            }
            Message::Notification(notification) => {
                let concern = match &self.listener {
                    Some(listener) => listener.sort(self.id, notification),
                    None => Concern::Connection(notification),
                };
                match (concern, &self.listener) {
                    // The stream is this call's alone: if its caller reads slowly, only it waits.
                    (Concern::Call(event), Some(listener)) => listener.events.send(event).await,
                    (Concern::Connection(notification), _) => {
                        self.endpoint.0.unsolicited.notification(&notification);
                    }
                    (Concern::Call(_) | Concern::Nobody, _) => {}
                }
                None
            }
            Message::Request(request) => {
                self.hear(request).await;
                None
            }
        }
    }
}

impl Reading<'_> {
    /// Takes a request of the server that came on the stream of a call: a question to its caller, if it is one.
    async fn hear(&self, request: Request) {
        let way_back = || WayBack::Http(self.endpoint.clone(), self.headers.clone());
        let left = match &self.listener {
            Some(listener) => listener.ask(request, way_back).await,
            None => Some(request),
        };
        if let Some(request) = left {
            absorb_unsolicited(self.endpoint, &self.headers, Message::Request(request));
        }
    }
}

/// Takes a message that belongs to no call. A response is given back: it answers nothing here.
pub(super) fn absorb_unsolicited(
    endpoint: &Endpoint,
    headers: &Arc<HeaderMap>,
    message: Message,
) -> Option<Response> {
    match message {
        Message::Response(response) => return Some(response),
        Message::Notification(notification) => endpoint.0.unsolicited.notification(&notification),
        Message::Request(request) => {
            if let Some(text) = endpoint.0.unsolicited.answer(&request) {
                endpoint.send_aside(text, Arc::clone(headers));
            }
        }
    }
    None
}

/// The messages of a text, whether it is one or, as 2025-03-26 has it, an array of them.
pub(super) fn messages(text: &Bytes, unsolicited: &Unsolicited) -> Vec<Message> {
    let parts = match json::parse(text.clone()) {
        Ok(message) => return vec![message],
        Err(JsonError::Batch) => serde_json::from_slice::<Vec<&serde_json::value::RawValue>>(text).ok(),
        Err(_) => None,
    };
    let mut found = Vec::new();
    for part in parts.iter().flatten() {
        match json::parse(text.slice_ref(part.get().as_bytes())) {
            Ok(message) => found.push(message),
            Err(_) => unsolicited.noise(part.get().as_bytes()),
        }
    }
    if parts.is_none_or(|parts| parts.is_empty()) {
        unsolicited.noise(text);
    }
    found
}

/// A stream of events.
#[derive(Debug)]
pub(in crate::upstream) struct EventStream {
    response: Received,
    decoder: sse::Decoder,
    bounds: Bounds,
}

/// What an answer may take.
#[derive(Debug)]
pub(super) struct Bounds {
    /// Bytes of one message, decoded.
    pub(super) message: usize,
    /// How long it may pause in the middle of one.
    pub(super) idle: Option<Duration>,
    /// What it holds of the memory for large messages.
    pub(super) share: Share,
}

impl EventStream {
    /// A stream whose every message keeps within `bounds`.
    pub(super) fn new(response: Received, bounds: Bounds) -> Self {
        let decoder = sse::Decoder::new(bounds.message.saturating_add(FRAMING));
        Self { response, decoder, bounds }
    }

    /// The next event that holds a message; `None` at the end of the stream. Cancel safe.
    ///
    /// # Errors
    /// If the stream breaks, or an event is too large.
    pub(in crate::upstream) async fn next(&mut self) -> Result<Option<sse::Event>, Failure> {
        while let Some(event) = self.next_of_any_kind().await? {
            let is_message = event.event.as_deref().is_none_or(|name| name == "message");
            if is_message && !event.data.is_empty() {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    /// The next event, whatever its name; `None` at the end of the stream. Cancel safe.
    ///
    /// # Errors
    /// If the stream breaks, or an event is too large.
    pub(in crate::upstream) async fn next_of_any_kind(&mut self) -> Result<Option<sse::Event>, Failure> {
        loop {
            if let Some(mut event) = self.decoder.next_event() {
                event.data = self.kept(event.data)?;
                return Ok(Some(event));
            }
            let idle = self.bounds.idle.filter(|_| self.decoder.is_mid_event());
            match next_chunk(&mut self.response, idle).await? {
                Some(chunk) => {
                    self.decoder.push(&chunk).map_err(|_| fault::too_large(self.bounds.message))?;
                    let share = &mut self.bounds.share;
                    share.resize(self.decoder.pending()).map_err(|_| fault::no_room())?;
                }
                None => return Ok(None),
            }
        }
    }

    /// The data of an event that has ended, with its own share of the memory. What has begun behind it has
    /// the stream's.
    fn kept(&mut self, data: Bytes) -> Result<Bytes, Failure> {
        self.bounds.share.resize(self.decoder.pending()).map_err(|_| fault::no_room())?;
        let mut share = self.bounds.share.another();
        share.resize(data.len()).map_err(|_| fault::no_room())?;
        Ok(share.keep(data))
    }

    /// The wait before the stream is opened again, if it named one.
    pub(in crate::upstream) fn retry(&self) -> Option<Duration> {
        self.decoder.last_retry()
    }

    /// The last id that the stream named.
    pub(in crate::upstream) fn last_id(&self) -> Option<&str> {
        self.decoder.last_id()
    }
}

/// Whether the body is a stream of events, whatever the parameters and the case.
pub(super) fn is_event_stream(headers: &HeaderMap) -> bool {
    essence(headers).eq_ignore_ascii_case("text/event-stream")
}

fn is_json(headers: &HeaderMap) -> bool {
    essence(headers).eq_ignore_ascii_case("application/json")
}

fn essence(headers: &HeaderMap) -> &str {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}

/// The next piece of an answer; `None` at its end. Cancel safe.
async fn next_chunk(response: &mut Received, idle: Option<Duration>) -> Result<Option<Bytes>, Failure> {
    let chunk = match idle {
        Some(idle) => timeout(idle, response.chunk()).await.map_err(|_| fault::stalled())?,
        None => response.chunk().await,
    };
    chunk.map_err(fault::of_reading)
}

/// Reads a body, decoded. Pauses count once it has begun.
async fn read_body(mut response: Received, bounds: Bounds) -> Result<Bytes, Failure> {
    let Bounds { message: limit, idle, mut share } = bounds;
    let Some(first) = response.chunk().await.map_err(fault::of_reading)? else {
        return Ok(Bytes::new());
    };
    let mut whole = BytesMut::new();
    let mut last = first;
    loop {
        if whole.len().saturating_add(last.len()) > limit {
            return Err(fault::too_large(limit));
        }
        share.resize(whole.len() + last.len()).map_err(|_| fault::no_room())?;
        let Some(next) = next_chunk(&mut response, idle).await? else { break };
        whole.extend_from_slice(&last);
        last = next;
    }
    if whole.is_empty() {
        return Ok(share.keep(last));
    }
    whole.extend_from_slice(&last);
    Ok(share.keep(whole.freeze()))
}

/// Reads a little more of an answer that nobody needs.
pub(super) async fn drain(mut response: Received) {
    let reading = async {
        let mut size = 0;
        while let Ok(Some(chunk)) = response.chunk().await {
            size += chunk.len();
            if size > DRAIN_BYTES {
                break;
            }
        }
    };
    drop(timeout(DRAIN_TIME, reading).await);
}
