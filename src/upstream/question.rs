//! Questions of a legacy server during a call: from where they come to whoever can ask the caller, and the answers
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
use super::transport::stdio::Shared;
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
    /// A line on this pipe.
    Pipe(Arc<Shared>),
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
    /// A question, the server's own id of it, and the way of its answer.
    pub(super) fn new(question: Question, id: Id, way_back: WayBack) -> Self {
        Self { question, id, way_back }
    }

    /// Answers it.
    ///
    /// # Errors
    /// If the answer does not reach the server.
    pub(super) async fn answer(&self, said: Said<'_>) -> Result<(), Failure> {
        let text = self.write(said);
        match &self.way_back {
            WayBack::Http(endpoint, headers) => endpoint.answer(text, Arc::clone(headers)).await,
            WayBack::Pipe(pipe) => pipe.answer(text).await,
        }
    }

    fn write(&self, said: Said<'_>) -> Bytes {
        let (name, said) = match said {
            Said::Result(raw) => ("result", raw),
            Said::Error(raw) => ("error", raw),
        };
        let id = String::from_utf8_lossy(self.id.bytes());
        Bytes::from(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"{name}\":{}}}", said.text()))
    }

    /// Answers it, if there is room for that.
    fn answer_aside(&self, said: Said<'_>) {
        self.way_back.answer_aside(self.write(said));
    }
}

impl WayBack {
    /// Sends an answer, if there is room for that. Waits for nothing.
    pub(super) fn answer_aside(&self, text: Bytes) {
        match self {
            Self::Http(endpoint, headers) => endpoint.answer_aside(text, Arc::clone(headers)),
            Self::Pipe(pipe) => pipe.answer_aside(text),
        }
    }
}

/// What became of a request of the server.
#[derive(Debug)]
pub(super) enum Taken {
    /// It is a question, and the caller hears it.
    Asked,
    /// It is a question that nobody can be asked.
    Refused(Refusal),
    /// It is no question.
    Left(Request),
}

/// A question that cannot be asked, and why.
#[derive(Debug)]
pub(super) struct Refusal {
    asked: Asked,
    error: Raw,
}

impl Refusal {
    pub(super) fn new(asked: Asked, code: Code, message: &str) -> Self {
        let error = serde_json::json!({"code": code_of(code), "message": message});
        Self { asked, error: Raw::from_value(&error) }
    }

    /// Tells the server.
    pub(super) async fn tell(&self) {
        if let Err(failure) = self.asked.answer(Said::Error(&self.error)).await {
            tracing::debug!(reason = failure.reason(), "a refusal did not reach an upstream");
        }
    }

    /// Tells the server, if there is room for that.
    pub(super) fn tell_aside(&self) {
        self.asked.answer_aside(Said::Error(&self.error));
    }
}

impl Listener {
    /// Whether the caller can be asked this.
    pub(super) fn suits(&self, question: &Question) -> bool {
        self.questions.as_ref().is_some_and(|sink| question.suits(sink.capabilities.as_ref()))
    }

    /// Takes a request of the server on behalf of this call.
    pub(super) fn ask(&self, request: Request, way_back: impl FnOnce() -> WayBack) -> Taken {
        if !input::is_question(&request.method) {
            return Taken::Left(request);
        }
        let asked = Asked::new(Question::of(&request), request.id.clone(), way_back());
        let Some(sink) = self.questions.as_ref().filter(|_| self.suits(&asked.question)) else {
            let text = format!("The client of this call does not support {}", asked.question.method);
            return Taken::Refused(Refusal::new(asked, Code::MethodNotFound, &text));
        };
        match sink.questions.try_send(asked) {
            Ok(()) => Taken::Asked,
            Err(mpsc::error::TrySendError::Full(asked) | mpsc::error::TrySendError::Closed(asked)) => {
                let text = "Too many questions wait for answers already";
                Taken::Refused(Refusal::new(asked, Code::Internal, text))
            }
        }
    }
}
