//! Asking a client of a legacy revision on the stream of its call: the questions that end a call in the model
//! become requests to the client, its answers come as POSTs of their own, and the call is tried again with them.
//!
//! A client that can be asked no other way than by the outcome is left to do that by itself.
//!
//! Must not know: where the questions come from, HTTP.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use dashmap::DashMap;
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until};

use super::running::DISCONNECTED;
use crate::exchange::{Answer, Call, Outcome, ResultForm};
use crate::gateway::{Following, Gateway, GatewayError, GatewayErrorKind};
use crate::mcp::{Body, Id, Message, Raw, Response};
use crate::telemetry::{Entered, Metrics, Table};
use crate::translate::input::{self, InputRequired, Question};
use crate::wire::json;

/// How often in a row a call may ask, by as many questions at once as [`QUESTIONS`].
const ROUNDS: u32 = 32;
/// Most questions of one round.
const QUESTIONS: usize = 16;
/// The wait before a call is tried again that asked nothing, times the round.
const PAUSE: Duration = Duration::from_millis(50);
/// Ids begin at a random multiple of this, so that no two replicas use the same.
const ID_RANGE: u64 = 1 << 20;

/// The questions that wait for an answer of their clients. At most [`QUESTIONS`] for each call in flight.
#[derive(Debug)]
pub(super) struct Questions {
    waiting: DashMap<(Arc<str>, u64), oneshot::Sender<Response>>,
    next: AtomicU64,
}

/// One question that waits; nobody waits any more once it is dropped.
#[derive(Debug)]
struct Pending {
    all: Arc<Questions>,
    session: Arc<str>,
    id: u64,
    answer: oneshot::Receiver<Response>,
    _counted: Entered,
}

/// How a client hears the questions of its call.
#[derive(Debug)]
pub(super) enum Asks {
    /// As the outcome of the call.
    ByOutcome,
    /// On the stream of the call.
    OnStream(Asker),
    /// Not at all.
    Never,
    /// There are none: the call subscribes to a resource, which is kept here.
    Follows(Arc<Following>),
}

/// The way of questions to one client and back.
#[derive(Debug)]
pub(super) struct Asker {
    pub(super) questions: Arc<Questions>,
    pub(super) session: Arc<str>,
    /// Takes messages for the stream of the call; closed once nobody reads it.
    pub(super) stream: mpsc::Sender<Bytes>,
    /// How long the client may take to answer.
    pub(super) patience: Duration,
}

/// What a client answered.
#[derive(Debug, Default)]
struct Answers {
    results: Vec<(Box<str>, Raw)>,
    errors: Vec<(Box<str>, Raw)>,
}

impl Default for Questions {
    fn default() -> Self {
        let mut random = [0_u8; 4];
        // Without randomness ids begin at zero: they are unique within this process all the same.
        let _unlikely = aws_lc_rs::rand::fill(&mut random);
        let first = u64::from(u32::from_be_bytes(random)) * ID_RANGE;
        Self { waiting: DashMap::new(), next: AtomicU64::new(first) }
    }
}

impl Questions {
    /// Takes what a client POSTed as an answer. What answers nothing of this session is dropped.
    pub(super) fn answer(&self, session: &Arc<str>, response: Response) {
        let id = response.id.as_ref().and_then(Id::number);
        let waiting = id.and_then(|id| self.waiting.remove(&(Arc::clone(session), id)));
        match waiting {
            Some((_, waiting)) => drop(waiting.send(response)),
            None => tracing::debug!("a client answered what nobody asked, or asks any more"),
        }
    }

    fn open(self: &Arc<Self>, session: &Arc<str>, metrics: &Metrics) -> Pending {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        self.waiting.insert((Arc::clone(session), id), sender);
        let counted = metrics.enter(Table::OpenQuestions);
        Pending { all: Arc::clone(self), session: Arc::clone(session), id, answer, _counted: counted }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.all.waiting.remove(&(Arc::clone(&self.session), self.id));
    }
}

/// Carries a call to its end, with the questions on its way.
///
/// Cancel safe: dropping the future ends the call upstream.
pub(super) async fn carry(gateway: &Gateway, call: Call, asks: Asks) -> Result<Outcome, GatewayError> {
    match asks {
        Asks::Never => gateway.call(call).await,
        Asks::Follows(following) => gateway.follow(call, &following).await,
        Asks::ByOutcome => {
            let capabilities = call.hop.capabilities.clone();
            let outcome = gateway.call(call).await?;
            Ok(urls_as_questions(outcome, capabilities.as_ref()))
        }
        Asks::OnStream(asker) => asker.carry(gateway, call).await,
    }
}

/// An error that wants URLs opened, as the questions that the revision of the client has for it.
fn urls_as_questions(outcome: Outcome, capabilities: Option<&Raw>) -> Outcome {
    let asked = match &outcome {
        Outcome::Error(answer) => input::urls_required(&answer.response, capabilities),
        Outcome::Complete(_) | Outcome::InputRequired(_) => None,
    };
    match asked.map(|asked| json::parse(asked.write())) {
        Some(Ok(Message::Response(response))) => {
            Outcome::InputRequired(Answer { response, form: ResultForm::Tagged })
        }
        Some(_) | None => outcome,
    }
}

impl Asker {
    async fn carry(&self, gateway: &Gateway, mut call: Call) -> Result<Outcome, GatewayError> {
        for round in 1..=ROUNDS {
            let asked_for = again(&call, &call.request.text)?;
            let answer = match gateway.call(call).await? {
                Outcome::InputRequired(answer) => answer,
                ended @ (Outcome::Complete(_) | Outcome::Error(_)) => return Ok(ended),
            };
            let Some(asked) = InputRequired::read(&answer.response) else {
                return Err(unanswered("asked for input in a way that cannot be understood"));
            };
            let answers = self.ask(gateway.metrics(), &asked, &asked_for).await.inspect_err(|error| {
                asked_for.cancel.cancel(&error.text);
            })?;
            if asked.questions.is_empty() {
                sleep(PAUSE * round).await;
            }
            let retry = input::write_retry(
                &asked_for.request,
                &asked_for.request.id,
                &answers.results,
                asked.state.as_ref(),
            );
            call = again(&asked_for, &retry)?;
            call.hop.refused_inputs = answers.errors;
        }
        Err(unanswered(format!("asked for input more than {ROUNDS} times in a row")))
    }

    /// Asks everything at once and waits for all answers.
    async fn ask(
        &self,
        metrics: &Metrics,
        asked: &InputRequired,
        call: &Call,
    ) -> Result<Answers, GatewayError> {
        if asked.questions.len() > QUESTIONS {
            return Err(unanswered(format!("asked more than {QUESTIONS} questions at once")));
        }
        let unsuited = asked.questions.iter().find(|(_, asked)| !asked.suits(call.hop.capabilities.as_ref()));
        if let Some((_, question)) = unsuited {
            let method = &question.method;
            return Err(unanswered(format!("asked for {method:?}, which this client cannot answer")));
        }
        let until = Instant::now() + self.patience;
        let mut open = Vec::with_capacity(asked.questions.len());
        for (key, question) in &asked.questions {
            let pending = self.questions.open(&self.session, metrics);
            let text = question.write(&Id::from(pending.id));
            self.stream.send(text).await.map_err(|_gone| disconnected())?;
            open.push((key, question, pending));
        }
        let mut answers = Answers::default();
        for (key, question, mut pending) in open {
            let response = tokio::select! {
                Ok(response) = &mut pending.answer => response,
                () = call.cancel.cancelled() => {
                    return Err(GatewayError::new(GatewayErrorKind::Cancelled, "the call was cancelled"));
                }
                () = self.stream.closed() => return Err(disconnected()),
                () = sleep_until(until) => {
                    self.withdraw(pending.id).await;
                    let wait = self.patience.as_secs();
                    return Err(unanswered(format!("asked for input, and no answer came within {wait} s")));
                }
            };
            answers.take(key, question, &response);
        }
        Ok(answers)
    }

    /// Tells the client that a question needs no answer any more.
    async fn withdraw(&self, id: u64) {
        let message = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
            "params": {"requestId": id, "reason": "no answer came in time"}});
        drop(self.stream.send(Bytes::from(message.to_string())).await);
    }
}

impl Answers {
    /// Notes an answer. An elicitation that failed counts as cancelled where errors have no place.
    fn take(&mut self, key: &str, question: &Question, response: &Response) {
        let member = |name: &str| response.envelope.raw(&response.text, name);
        match &response.body {
            Body::Result(_) => self.results.extend(member("result").map(|result| (key.into(), result))),
            Body::Error(_) => {
                self.errors.extend(member("error").map(|error| (key.into(), error)));
                self.results.extend(question.no_answer().map(|result| (key.into(), result)));
            }
        }
    }
}

/// The same call with another text.
fn again(call: &Call, text: &Bytes) -> Result<Call, GatewayError> {
    let Ok(Message::Request(request)) = json::parse(text.clone()) else {
        let text = "the call could not be written again with the answers";
        return Err(GatewayError::new(GatewayErrorKind::Internal, text));
    };
    Ok(Call {
        method: call.method,
        request,
        hop: call.hop.clone(),
        principal: call.principal.clone(),
        session: call.session.clone(),
        events: call.events.clone(),
        cancel: call.cancel.clone(),
    })
}

fn disconnected() -> GatewayError {
    GatewayError::new(GatewayErrorKind::Cancelled, DISCONNECTED)
}

fn unanswered(what: impl std::fmt::Display) -> GatewayError {
    let text = format!("the tool {what}; the call was not completed");
    GatewayError::new(GatewayErrorKind::Unanswered, text).maybe_executed()
}
