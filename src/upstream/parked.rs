//! Calls of legacy servers that ask: a call is parked while its client thinks, and goes on with the retry that
//! brings the answers.
//!
//! The client keeps the key to its parked call, sealed, as `requestState`. It opens once, for the same
//! principal, tool and arguments, and for a bounded time.
//!
//! Must not know: how the client is asked.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{Context as Digest, SHA256};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::failure::Failure;
use super::pool::Checkout;
use super::question::{Asked, QUESTIONS, QuestionSink, Said};
use crate::config::Config;
use crate::exchange::{Answer, Call, Cancel, Event, EventKind, EventSink, Outcome, ResultForm};
use crate::mcp::{Message, Raw, key};
use crate::seal::{Purpose, Sealer};
use crate::telemetry::{Metrics, ParkedCalls, QuestionsAsked};
use crate::translate::input::{InputRequired, REQUEST_STATE, read_answers};
use crate::wire::json;

/// How long more questions are waited for once there is one, so that what is asked at once goes at once.
const GATHERING: Duration = Duration::from_millis(25);
/// What a client of the gateway's own may need on top of the time to answer.
const GRACE: Duration = Duration::from_secs(1);
/// Bytes of the name of a parked call, and of the digest of what it was called with.
const NAME: usize = 16;
const DIGEST: usize = 32;

type Name = [u8; NAME];
type Print = [u8; DIGEST];

/// The parked calls of all upstreams: `limits.parked_calls` at the most, and `limits.parked_calls_per_client`
/// of one client.
pub struct Parking {
    sealer: Option<Sealer>,
    parked: Mutex<HashMap<Name, Parked>>,
    most: usize,
    most_per_client: usize,
    patience: Duration,
    metrics: Arc<Metrics>,
}

/// A call that waits for its retry.
#[derive(Debug)]
struct Parked {
    print: Print,
    client: usize,
    carried: Carried,
    /// Ends the watch over it.
    _watch: DropGuard,
}

/// Where a call goes, and what lives as long as its upstream.
#[derive(Debug)]
pub(super) struct Place<'a> {
    pub(super) upstream: Arc<str>,
    pub(super) native: Arc<str>,
    pub(super) stop: &'a CancellationToken,
    pub(super) tasks: &'a TaskTracker,
}

/// A call under way that may ask. Dropping it cancels it upstream.
pub(super) struct Carried {
    call: Option<BoxFuture<'static, Result<Outcome, Failure>>>,
    asked: mpsc::Receiver<Asked>,
    events: mpsc::Receiver<Event>,
    /// The questions that were put to the client, by their keys.
    open: Vec<(Box<str>, Asked)>,
    next_key: u32,
    /// The token under which progress comes out of the call.
    token: Option<Raw>,
    /// What ends the call upstream.
    origin: Cancel,
    /// Its request now: the first one, or the latest retry.
    current: Current,
}

/// What is needed of a request while it carries the call.
#[derive(Debug)]
struct Current {
    events: EventSink,
    cancel: Cancel,
    token: Option<Raw>,
    client: usize,
    print: Print,
}

impl std::fmt::Debug for Parking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parking").field("most", &self.most).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Carried {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Carried").field("open", &self.open).finish_non_exhaustive()
    }
}

/// What a state says that is none of a call that waits.
pub(super) fn unknown_state() -> Failure {
    Failure::invalid(
        "`params.requestState` belongs to no question that waits for an answer: it has expired, was answered \
         already, or is not for this request. Call again without it",
    )
}

impl Parking {
    /// An empty lot.
    #[must_use]
    pub fn new(config: &Config, metrics: Arc<Metrics>) -> Self {
        Self {
            // Without a key nothing is parked: a call that asks is ended.
            sealer: Sealer::new(&config.sessions, Purpose::RequestState).ok(),
            parked: Mutex::default(),
            most: config.limits.parked_calls,
            most_per_client: config.limits.parked_calls_per_client,
            patience: config.limits.answer_timeout,
            metrics,
        }
    }

    /// The metrics that it counts into.
    pub(super) fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// The parked call whose retry this is; `None` if its state is none of ours.
    ///
    /// # Errors
    /// If it is ours, and there is no such call any more, or not for this request.
    pub(super) fn take(&self, call: &Call, upstream: &str, native: &str) -> Result<Option<Carried>, Failure> {
        let Some(state) = call.request.param(REQUEST_STATE).and_then(|state| state.string()) else {
            return Ok(None);
        };
        let Some(opened) = self.sealer.as_ref().and_then(|sealer| sealer.open(&state)) else {
            return Ok(None);
        };
        let name = Name::try_from(opened.content.as_slice()).map_err(|_| unknown_state())?;
        let mut parked = self.lock();
        let print = print(call, upstream, native);
        if parked.get(&name).is_none_or(|found| found.print != print) {
            return Err(unknown_state());
        }
        let found = parked.remove(&name).ok_or_else(unknown_state)?;
        ParkedCalls { count: parked.len() }.emit(&self.metrics);
        Ok(Some(found.carried))
    }

    /// Gives the answers of a retry to the server, and carries the call on.
    pub(super) async fn resume(
        self: &Arc<Self>,
        mut carried: Carried,
        call: Call,
        place: &Place<'_>,
    ) -> Result<Outcome, Failure> {
        let answers = read_answers(&call.request);
        let errors = call.hop.refused_inputs.clone();
        carried.current = Current::of(&call, &place.upstream, &place.native);
        for (key, asked) in std::mem::take(&mut carried.open) {
            let of = |said: &[(Box<str>, Raw)]| {
                said.iter().find(|(answered, _)| *answered == key).map(|(_, raw)| raw.clone())
            };
            match (of(&errors), of(&answers)) {
                (Some(error), _) => asked.answer(Said::Error(&error)).await?,
                (None, Some(result)) => asked.answer(Said::Result(&result)).await?,
                (None, None) => carried.open.push((key, asked)),
            }
        }
        if !carried.open.is_empty() {
            return self.park(carried, place);
        }
        self.go_on(carried, place).await
    }

    /// Carries a call until it ends or asks. Cancel safe: dropping the future cancels it upstream.
    pub(super) async fn go_on(
        self: &Arc<Self>,
        mut carried: Carried,
        place: &Place<'_>,
    ) -> Result<Outcome, Failure> {
        match carried.advance().await {
            Some(ended) => ended,
            None => self.park(carried, place),
        }
    }

    /// Parks a call; the outcome asks its client.
    fn park(self: &Arc<Self>, carried: Carried, place: &Place<'_>) -> Result<Outcome, Failure> {
        let full = || Failure::unanswered("asked for input, while too many calls wait for answers already");
        let mut name = [0; NAME];
        let sealer = self.sealer.as_ref().ok_or_else(full)?;
        aws_lc_rs::rand::fill(&mut name).map_err(|_| full())?;
        let state = sealer.seal(now_ms(), &name).map_err(|_| full())?;
        let outcome = carried.ask(&state)?;
        let (watch, origin) = (CancellationToken::new(), carried.origin.clone());
        let (client, print) = (carried.current.client, carried.current.print);
        let count = carried.open.len();
        {
            let mut parked = self.lock();
            let of_client = parked.values().filter(|parked| parked.client == client).count();
            if parked.len() >= self.most || of_client >= self.most_per_client {
                drop(parked);
                return Err(full());
            }
            let entry = Parked { print, client, carried, _watch: watch.clone().drop_guard() };
            parked.insert(name, entry);
            ParkedCalls { count: parked.len() }.emit(&self.metrics);
        }
        QuestionsAsked { upstream: &place.upstream, count }.emit(&self.metrics);
        let (parking, stop, patience) = (Arc::clone(self), place.stop.clone(), self.patience + GRACE);
        place.tasks.spawn(async move {
            tokio::select! {
                () = watch.cancelled() => return,
                () = sleep(patience) => origin.cancel("no answer came to the question in time"),
                () = origin.cancelled() => {}
                () = stop.cancelled() => {}
            }
            parking.forget(&name);
        });
        Ok(outcome)
    }

    /// Ends a parked call.
    fn forget(&self, name: &Name) {
        let gone = {
            let mut parked = self.lock();
            let gone = parked.remove(name);
            ParkedCalls { count: parked.len() }.emit(&self.metrics);
            gone
        };
        drop(gone);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Name, Parked>> {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Carried {
    /// Begins a call that may ask.
    pub(super) fn start(checkout: Checkout, mut call: Call, place: &Place<'_>) -> Self {
        let native = Arc::clone(&place.native);
        let current = Current::of(&call, &place.upstream, &native);
        let (sink, asked) = QuestionSink::new(call.hop.capabilities.clone());
        let (events, heard) = EventSink::new();
        call.events = events;
        let (token, origin) = (call.hop.progress_token.clone(), call.cancel.clone());
        // Its seat is taken until its end, parked or not: the server works on it.
        let carried = async move {
            let checkout = checkout;
            checkout.connection.call(&call, &native, Some(sink)).await
        };
        Self {
            call: Some(carried.boxed()),
            asked,
            events: heard,
            open: Vec::new(),
            next_key: 0,
            token,
            origin,
            current,
        }
    }

    /// Goes on until the call ends, or asks (`None`).
    async fn advance(&mut self) -> Option<Result<Outcome, Failure>> {
        let mut gathered = None;
        loop {
            let Some(call) = &mut self.call else {
                return Some(Err(Failure::broken("its call was over already")));
            };
            tokio::select! {
                biased;
                Some(event) = self.events.recv() => self.current.pass(event, self.token.as_ref()).await,
                Some(asked) = self.asked.recv(), if self.open.len() < QUESTIONS => {
                    self.next_key += 1;
                    self.open.push((format!("question-{}", self.next_key).into(), asked));
                    gathered = Some(Instant::now() + GATHERING);
                }
                ended = call => {
                    self.call = None;
                    while let Ok(event) = self.events.try_recv() {
                        self.current.pass(event, self.token.as_ref()).await;
                    }
                    return Some(ended);
                }
                () = until(gathered), if gathered.is_some() => return None,
            }
        }
    }

    /// The outcome that puts the open questions to the client.
    fn ask(&self, state: &str) -> Result<Outcome, Failure> {
        let questions = self.open.iter().map(|(key, asked)| (key.clone(), asked.question.clone()));
        let asked = InputRequired { questions: questions.collect(), state: Some(Raw::from_text(state)) };
        match json::parse(asked.write()) {
            Ok(Message::Response(response)) => {
                Ok(Outcome::InputRequired(Answer { response, form: ResultForm::Tagged }))
            }
            Ok(Message::Request(_) | Message::Notification(_)) | Err(_) => {
                Err(Failure::broken("its question cannot be passed on"))
            }
        }
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        // The server hears the reason of whoever ends the call now.
        if let Some(reason) = self.current.cancel.reason() {
            self.origin.cancel(reason);
        }
    }
}

impl Current {
    fn of(call: &Call, upstream: &str, native: &str) -> Self {
        Self {
            events: call.events.clone(),
            cancel: call.cancel.clone(),
            token: call.hop.progress_token.clone(),
            client: call.principal.client,
            print: print(call, upstream, native),
        }
    }

    /// Passes an event on, progress under the token of this request.
    async fn pass(&self, mut event: Event, origin: Option<&Raw>) {
        if event.kind == EventKind::Progress && self.token.as_ref() != origin {
            let Some(token) = &self.token else { return };
            let draft = event.notification.draft(&[(key::PROGRESS_TOKEN, Some(token.bytes().clone()))], &[]);
            let Ok(Message::Notification(notification)) = json::parse(draft.finish()) else { return };
            event.notification = notification;
        }
        self.events.send(event).await;
    }
}

async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

/// What a retry must have in common with the request that it repeats: its sender, where it goes, and the
/// arguments, whatever the order of their keys.
fn print(call: &Call, upstream: &str, native: &str) -> Print {
    let arguments = call.request.param("arguments");
    let arguments = arguments.and_then(|raw| serde_json::from_slice::<serde_json::Value>(raw.bytes()).ok());
    let parts = [
        &*call.principal.name,
        &*call.request.method,
        upstream,
        native,
        &arguments.map(|value| value.to_string()).unwrap_or_default(),
    ];
    let mut digest = Digest::new(&SHA256);
    for part in parts {
        digest.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        digest.update(part.as_bytes());
    }
    let mut print = [0; DIGEST];
    print.iter_mut().zip(digest.finish().as_ref()).for_each(|(to, from)| *to = *from);
    print
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::config::for_test;

    /// A call that never ends, and what ends it.
    fn endless() -> (Carried, Cancel) {
        let origin = Cancel::default();
        let (sink, asked) = QuestionSink::new(None);
        let (events, heard) = EventSink::new();
        drop((sink, events));
        let current = Current {
            events: EventSink::new().0,
            cancel: Cancel::default(),
            token: None,
            client: 0,
            print: [0; DIGEST],
        };
        let call = Some(std::future::pending().boxed());
        let (open, next_key, token) = (Vec::new(), 0, None);
        (
            Carried { call, asked, events: heard, open, next_key, token, origin: origin.clone(), current },
            origin,
        )
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_is_parked_for_as_long_as_its_client_may_take_to_answer_and_no_longer() {
        let mut config = for_test::config(&["asks"], &[]);
        config.limits.parked_calls = 1;
        let parking = Arc::new(Parking::new(&config, Arc::new(Metrics::default())));
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let place = Place { upstream: "asks".into(), native: "t".into(), stop: &stop, tasks: &tasks };
        let (carried, origin) = endless();
        assert!(matches!(parking.park(carried, &place), Ok(Outcome::InputRequired(_))));
        tokio::task::yield_now().await;
        advance(config.limits.answer_timeout).await;
        assert!(parking.park(endless().0, &place).is_err(), "there is room for one");
        assert!(origin.reason().is_none());
        advance(GRACE + Duration::from_millis(1)).await;
        tasks.close();
        tasks.wait().await;
        assert_eq!(origin.reason(), Some("no answer came to the question in time"));
        assert!(parking.lock().is_empty());
        assert!(parking.park(endless().0, &place).is_ok(), "there is room again");
    }
}
