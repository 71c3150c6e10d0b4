//! Questions of a legacy server during a call: from its stream to whoever can ask the caller, and the answers
//! back.
//!
//! Must not know: how the caller is asked.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use tokio::sync::mpsc;

use super::failure::Failure;
use super::listener::Listener;
use super::transport::http::Endpoint;
use crate::mcp::{Code, Id, Raw, Request, code_of};
use crate::translate::input::{self, Question};

/// How many questions of one call may wait to be asked.
pub(super) const QUESTIONS: usize = 16;

/// Takes the questions of one call.
#[derive(Clone, Debug)]
pub(super) struct QuestionSink {
    questions: mpsc::Sender<Asked>,
    capabilities: Option<Raw>,
}

/// One question, and where its answer goes.
#[derive(Debug)]
pub(super) struct Asked {
    /// What is asked.
    pub(super) question: Question,
    /// The server's own id of it.
    id: Id,
    way_back: WayBack,
}

/// The way of an answer to the server.
#[derive(Clone, Debug)]
pub(super) enum WayBack {
    /// A POST with these headers.
    Http(Endpoint, Arc<HeaderMap>),
}

/// What is said to a question.
#[derive(Clone, Copy, Debug)]
pub(super) enum Said<'a> {
    /// A result.
    Result(&'a Raw),
    /// An error.
    Error(&'a Raw),
}

impl QuestionSink {
    /// A sink for the questions of a caller with these capabilities, and the end to read from.
    pub(super) fn new(capabilities: Option<Raw>) -> (Self, mpsc::Receiver<Asked>) {
        let (questions, asked) = mpsc::channel(QUESTIONS);
        (Self { questions, capabilities }, asked)
    }
}

impl Asked {
    /// Answers it.
    ///
    /// # Errors
    /// If the answer does not reach the server.
    pub(super) async fn answer(&self, said: Said<'_>) -> Result<(), Failure> {
        let (name, said) = match said {
            Said::Result(raw) => ("result", raw),
            Said::Error(raw) => ("error", raw),
        };
        let id = String::from_utf8_lossy(self.id.bytes());
        let text = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"{name}\":{}}}", said.text());
        match &self.way_back {
            WayBack::Http(endpoint, headers) => endpoint.answer(Bytes::from(text), Arc::clone(headers)).await,
        }
    }

    /// Says that it cannot be asked.
    pub(super) async fn refuse(&self, code: Code, message: &str) {
        let error = Raw::from_value(&serde_json::json!({"code": code_of(code), "message": message}));
        if let Err(failure) = self.answer(Said::Error(&error)).await {
            tracing::debug!(reason = failure.reason(), "a refusal did not reach an upstream");
        }
    }
}

impl Listener {
    /// Takes a request of the server on behalf of this call; gives back what is no question. One that its
    /// caller cannot answer is refused at once.
    pub(super) async fn ask(&self, request: Request, way_back: impl FnOnce() -> WayBack) -> Option<Request> {
        if !input::is_question(&request.method) {
            return Some(request);
        }
        let (question, id) = (Question::of(&request), request.id.clone());
        let asked = Asked { question, id, way_back: way_back() };
        let sink = self.questions.as_ref();
        let Some(sink) = sink.filter(|sink| asked.question.suits(sink.capabilities.as_ref())) else {
            let text = format!("The client of this call does not support {}", asked.question.method);
            asked.refuse(Code::MethodNotFound, &text).await;
            return None;
        };
        if let Err(error) = sink.questions.try_send(asked) {
            let (mpsc::error::TrySendError::Full(asked) | mpsc::error::TrySendError::Closed(asked)) = error;
            asked.refuse(Code::Internal, "Too many questions wait for answers already").await;
        }
        None
    }
}
