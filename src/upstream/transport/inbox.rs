//! What comes in on a stream that all calls of a connection share: answers to whoever waits for them, events
//! to the call that they can be attributed to, and the rest to the connection.
//!
//! Must not know: how bytes become texts, and how an answer of ours leaves.

use std::sync::Arc;

use bytes::Bytes;
use memchr::memmem::find as memmem;
use tokio::sync::watch;

use crate::mcp::{Id, Message, Request};
use crate::upstream::failure::Failure;
use crate::upstream::inflight::{Heard, InFlight};
use crate::upstream::question::{Taken, WayBack};
use crate::upstream::tenancy::Attribution;
use crate::upstream::unsolicited::Unsolicited;
use crate::wire::json::{self, JsonError};

/// Makes the way to the server.
type Back<'a> = &'a (dyn Fn() -> WayBack + Sync);

/// The receiving end of a connection that is one stream.
#[derive(Debug)]
pub(super) struct Inbox {
    in_flight: InFlight,
    unsolicited: Arc<Unsolicited>,
    closed: watch::Sender<Option<Failure>>,
}

impl Inbox {
    pub(super) fn new(unsolicited: Arc<Unsolicited>, attribution: Attribution) -> Self {
        Self { in_flight: InFlight::new(attribution), unsolicited, closed: watch::Sender::new(None) }
    }

    /// The requests that wait for their answers.
    pub(super) fn in_flight(&self) -> &InFlight {
        &self.in_flight
    }

    /// Takes one message, or what should be one. `way_back` leads to the server, for answers to its own requests.
    pub(super) async fn take(&self, text: &Bytes, way_back: Back<'_>) {
        self.unsolicited.hear();
        match json::parse(text.clone()) {
            Ok(message) => self.sort(message, way_back).await,
            Err(JsonError::Batch) => self.take_batch(text, way_back).await,
            Err(error) => match json::parse_last(text).filter(|_| matches!(error, JsonError::Syntax(_))) {
                Some((front, message)) => {
                    self.take_unreadable(&front, &error);
                    self.sort(message, way_back).await;
                }
                None => self.take_unreadable(text, &error),
            },
        }
    }

    /// Servers of 2025-03-26 may put several messages into one array.
    async fn take_batch(&self, text: &Bytes, way_back: Back<'_>) {
        let parts: Vec<&serde_json::value::RawValue> = serde_json::from_slice(text).unwrap_or_default();
        if parts.is_empty() {
            self.unsolicited.noise(text);
        }
        for part in parts {
            let part = text.slice_ref(part.get().as_bytes());
            match json::parse(part.clone()) {
                Ok(message) => self.sort(message, way_back).await,
                Err(error) => self.take_unreadable(&part, &error),
            }
        }
    }

    /// Fails the call that a broken answer is for, as far as that can be seen.
    fn take_unreadable(&self, text: &Bytes, error: &JsonError) {
        let is_known = match super::salvage_id(text).or_else(|| torn_id(text)) {
            Some(id) => self.in_flight.finish(id, Err(super::unreadable(error))),
            None => false,
        };
        if !is_known {
            self.unsolicited.noise(text);
        }
    }

    /// Fails the call whose answer is not kept, as far as its two ends tell whose it is.
    pub(super) fn take_ends(&self, head: &Bytes, tail: &Bytes, failure: Failure) {
        let id = json::glimpse_id(head, tail);
        if !id.is_some_and(|id| self.in_flight.finish(id, Err(failure))) {
            self.unsolicited.noise(head);
        }
    }

    async fn sort(&self, message: Message, way_back: Back<'_>) {
        match message {
            Message::Response(response) => {
                let id = response.id.as_ref().and_then(Id::number);
                if !id.is_some_and(|id| self.in_flight.finish(id, Ok(response))) {
                    tracing::debug!("an answer to no request of ours, or to one that was dropped");
                }
            }
            Message::Notification(notification) => match self.in_flight.hear(&notification).await {
                Heard::Done => {}
                Heard::Missed => self.unsolicited.missed(),
                Heard::Unattributed => self.unsolicited.notification(&notification),
            },
            Message::Request(request) => self.hear(request, way_back),
        }
    }

    /// Takes a request of the server. The reader waits for nobody, so neither does what is answered at once.
    fn hear(&self, request: Request, way_back: Back<'_>) {
        let request = match self.in_flight.ask(request, way_back) {
            Taken::Asked => return,
            Taken::Refused(refusal) => return refusal.tell_aside(),
            Taken::Left(request) => request,
        };
        let left = self.unsolicited.ask(request, way_back);
        if let Some(text) = left.and_then(|request| self.unsolicited.answer(&request)) {
            way_back().answer_aside(text);
        }
    }

    /// Whether a question of the server shows to which call it belongs.
    pub(super) fn attributes_questions(&self) -> bool {
        self.in_flight.attribution() != Attribution::Unknown
    }

    /// Ends everything: calls in flight fail, and so do those that come later. What it was closed with first
    /// is kept.
    pub(super) fn close(&self, failure: Failure) {
        self.in_flight.close(&failure);
        self.closed.send_if_modified(|closed| {
            let is_first = closed.is_none();
            closed.get_or_insert(failure);
            is_first
        });
    }

    /// Waits until the connection is broken. Cancel safe.
    pub(super) async fn closed(&self) -> Failure {
        let mut closed = self.closed.subscribe();
        match closed.wait_for(Option::is_some).await {
            Ok(failure) => failure.clone().unwrap_or_else(lost),
            Err(_) => lost(),
        }
    }

    /// What the connection was closed with, else `other`.
    pub(super) fn failure_or(&self, other: Failure) -> Failure {
        self.closed.borrow().clone().unwrap_or(other)
    }
}

/// The id of the answer that a text begins with which is no message, because something was written into it.
fn torn_id(text: &Bytes) -> Option<u64> {
    let is_answer = text.trim_ascii_start().starts_with(b"{") && memmem(text, b"\"method\"").is_none();
    is_answer.then(|| json::glimpse_id(text, text)).flatten()
}

/// The connection is gone, and nothing more is known.
pub(super) fn lost() -> Failure {
    Failure::unavailable("the connection was closed").of_connection()
}
