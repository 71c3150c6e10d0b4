//! The messages of a batch: each served as if it had come alone, and their answers joined, or given one by one on a
//! stream.
//!
//! Spec: 2025-03-26, basic/transports, "Sending Messages to the Server"; no other revision has batches.
//!
//! Must not know: how answers are carried.

use std::collections::VecDeque;
use std::pin::pin;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::future::select_all;
use http::StatusCode;
use serde_json::value::RawValue;

use super::endpoint::{Caller, Endpoint, Step};
use super::legacy;
use super::legacy_session::SessionUse;
use super::post::{admit, id_of, is_handshake, unreadable};
use super::reply::{ErrorBody, Reply};
use super::running::{Next, Running};
use crate::exchange::Budget;
use crate::mcp::Code;
use crate::translate::from_legacy::Asking;
use crate::wire::json::{self, JsonError};

/// Most messages of one batch.
const MAX_BATCH: usize = 100;

/// How many messages a text holds that may be a batch; 1 for what is refused as a whole.
pub(super) fn count(text: &[u8]) -> u32 {
    let elements = serde_json::from_slice::<Vec<serde::de::IgnoredAny>>(text).map_or(1, |all| all.len());
    if elements > MAX_BATCH { 1 } else { u32::try_from(elements.max(1)).unwrap_or(1) }
}

/// A batch under way.
pub(super) struct Batch {
    /// The calls that have not ended, by their places in the batch.
    running: Vec<(usize, Running)>,
    /// The answers that are there, likewise; at the end, or until they are given out.
    answers: VecDeque<(usize, Bytes)>,
    /// Whether answers are given out as they come.
    is_streaming: bool,
    session: Option<SessionUse>,
    budget: Budget,
}

impl Batch {
    /// Serves the messages of a batch.
    ///
    /// # Errors
    /// The refusal of what is no batch, or nothing that the revision of `session` has.
    pub(super) fn start(
        endpoint: &Endpoint,
        (caller, session): (&Caller, Option<&SessionUse>),
        text: &Bytes,
        asking: Asking,
    ) -> Result<Self, Reply> {
        let refuse = |error: &ErrorBody| Reply::refuse(StatusCode::BAD_REQUEST, None, error);
        if !legacy::takes_batches(session) {
            admit(endpoint, caller, None)?;
            return Err(refuse(&unreadable(&JsonError::Batch)));
        }
        let elements: Vec<&RawValue> = serde_json::from_slice(text)
            .map_err(|error| refuse(&unreadable(&JsonError::Syntax(error.to_string()))))?;
        if elements.is_empty() || elements.len() > MAX_BATCH {
            admit(endpoint, caller, None)?;
            let error = format!("a batch holds 1 to {MAX_BATCH} messages");
            return Err(refuse(&ErrorBody::new(Code::InvalidRequest, error)));
        }
        let budget = endpoint.gateway.metrics().budget().clone();
        let session = session.cloned();
        let mut batch =
            Self { running: Vec::new(), answers: VecDeque::new(), is_streaming: false, session, budget };
        let keep_alive = endpoint.gateway.config().sessions.keep_alive;
        for (place, element) in elements.into_iter().enumerate() {
            let text = text.slice_ref(element.get().as_bytes());
            match step(endpoint, (caller, batch.session.as_ref()), text, asking) {
                Step::Done(reply) => batch.note(place, reply),
                Step::Carry(prepared) => {
                    batch.running.push((place, Running::start(endpoint, *prepared, keep_alive)));
                }
                // No revision has both batches and subscriptions.
                Step::Listen(_) => {}
            }
        }
        Ok(batch)
    }

    /// What its answers hold of the memory for large messages.
    pub(super) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The session that it came in.
    pub(super) fn session(&self) -> Option<&SessionUse> {
        self.session.as_ref()
    }

    /// Gives answers out as they come, from now on.
    pub(super) fn stream(&mut self) {
        self.is_streaming = true;
    }

    /// Ends its calls early.
    pub(super) fn cancel(&self, reason: &str) {
        self.running.iter().for_each(|(_, running)| running.cancel(reason));
    }

    /// Waits for what comes next. The end is all answers as one array, or the last one of a stream.
    ///
    /// Cancel safe.
    pub(super) async fn next(&mut self) -> Next {
        loop {
            if self.is_streaming
                && let Some((_, answer)) = self.answers.pop_front()
            {
                let is_last = self.running.is_empty() && self.answers.is_empty();
                return match is_last {
                    true => Next::Ended(Reply::json(StatusCode::OK, answer)),
                    false => Next::Message(answer),
                };
            }
            if self.running.is_empty() {
                return Next::Ended(self.array());
            }
            let each = self.running.iter_mut().map(|(_, running)| Box::pin(running.next()));
            let (next, at, _) = pin!(select_all(each)).await;
            match next {
                Next::Ended(reply) => {
                    let (place, ended) = self.running.remove(at);
                    // Its client wants to hear no more of what it has withdrawn.
                    if !ended.is_withdrawn() {
                        self.note(place, reply);
                    }
                }
                Next::Message(_) | Next::Silence => return next,
            }
        }
    }

    fn note(&mut self, place: usize, reply: Reply) {
        if !reply.body.is_empty() {
            self.answers.push_back((place, reply.body));
        }
    }

    /// The answers as one array, in the order of their requests; nothing at all where there is no answer.
    fn array(&mut self) -> Reply {
        self.answers.make_contiguous().sort_unstable_by_key(|(place, _)| *place);
        let mut array = BytesMut::new();
        for (_, answer) in self.answers.drain(..) {
            array.put_u8(if array.is_empty() { b'[' } else { b',' });
            array.extend_from_slice(&answer);
        }
        if array.is_empty() {
            return Reply::accepted();
        }
        array.put_u8(b']');
        Reply::json(StatusCode::OK, array.freeze())
    }
}

/// Serves one message of a batch.
fn step(
    endpoint: &Endpoint,
    (caller, session): (&Caller, Option<&SessionUse>),
    text: Bytes,
    asking: Asking,
) -> Step {
    let message = match json::parse(text) {
        Ok(message) => message,
        Err(error) => {
            return Step::Done(match admit(endpoint, caller, None) {
                Ok(()) => Reply::refuse(StatusCode::BAD_REQUEST, None, &unreadable(&error)),
                Err(limited) => limited,
            });
        }
    };
    if let Err(limited) = admit(endpoint, caller, id_of(&message)) {
        return Step::Done(limited);
    }
    if is_handshake(&message) {
        let error = ErrorBody::new(Code::InvalidRequest, "`initialize` must not be part of a batch");
        return Step::Done(Reply::refuse(StatusCode::BAD_REQUEST, id_of(&message), &error));
    }
    legacy::serve(endpoint, caller, session, message, asking)
}
