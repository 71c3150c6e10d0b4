//! Questions of a server outside of any call, on a connection that belongs to one session: from the server to the
//! stream of that session, and the answers back.
//!
//! Must not know: how the session is asked.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::question::{Asked, Refusal, Said, WayBack};
use crate::exchange::CallerSession;
use crate::mcp::{Body, Code, Request, Response};
use crate::translate::input::{Question, is_question};

/// How many questions outside of calls may wait for their answers on one connection.
const OPEN: usize = 16;

/// What questions outside of calls need to be asked.
#[derive(Clone, Debug)]
pub(super) struct Patience {
    /// How long a client may take to answer.
    pub(super) time: Duration,
    pub(super) stop: CancellationToken,
    pub(super) tasks: TaskTracker,
    pub(super) runtime: Handle,
}

/// Asks the session that a connection belongs to.
#[derive(Debug)]
pub(super) struct Outside {
    session: Arc<CallerSession>,
    patience: Patience,
    open: Arc<Semaphore>,
}

impl Outside {
    pub(super) fn new(session: Arc<CallerSession>, patience: Patience) -> Self {
        Self { session, patience, open: Arc::new(Semaphore::new(OPEN)) }
    }

    /// Takes a request of the server, if it is a question that the session can be asked now; gives it back if
    /// not. Waits for nothing.
    pub(super) fn ask(&self, request: Request, way_back: impl FnOnce() -> WayBack) -> Option<Request> {
        let question = is_question(&request.method).then(|| Question::of(&request));
        let suits = |question: &Question| question.suits(Some(&self.session.capabilities));
        let Some(question) = question.filter(suits) else { return Some(request) };
        let Ok(place) = Arc::clone(&self.open).try_acquire_owned() else { return Some(request) };
        let asked = Asked::new(question, request.id.clone(), way_back());
        let Some(answered) = self.session.ask(request.clone()) else { return Some(request) };
        let Patience { time, stop, tasks, runtime } = self.patience.clone();
        let asking = async move {
            let answer = tokio::select! {
                answer = timeout(time, answered) => answer.ok().and_then(Result::ok),
                () = stop.cancelled() => None,
            };
            match answer {
                Some(response) => pass_back(&asked, &response).await,
                None => {
                    Refusal::new(asked, Code::Internal, "No answer came to the question").tell().await;
                }
            }
            drop(place);
        };
        tasks.spawn_on(asking, &runtime);
        None
    }
}

/// Gives the answer of a client to the server, as it is.
async fn pass_back(asked: &Asked, response: &Response) {
    let member = |name: &str| response.envelope.raw(&response.text, name);
    let told = match &response.body {
        Body::Result(_) => member("result").map(|raw| (raw, false)),
        Body::Error(_) => member("error").map(|raw| (raw, true)),
    };
    let Some((raw, is_error)) = told else { return };
    let said = if is_error { Said::Error(&raw) } else { Said::Result(&raw) };
    if let Err(failure) = asked.answer(said).await {
        tracing::debug!(reason = failure.reason(), "an answer did not reach an upstream");
    }
}
