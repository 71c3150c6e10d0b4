//! The ids of tasks: sealed towards clients, so that each says by itself where its task is, which tool made it
//! and whose it is, and nobody can use or make up another one.
//!
//! Nothing is remembered: a task lives in its upstream, and every use of its id is judged anew.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::access::{self, Grant, Reveal};
use super::admit::Target;
use super::error::{GatewayError, GatewayErrorKind};
use super::{Current, Gateway};
use crate::catalog::Candidate;
use crate::config::{Config, Sight};
use crate::exchange::{Answer, Call, Event, EventKind, EventSink, Outcome, Principal, ResultForm};
use crate::mcp::task;
use crate::mcp::{Body, Draft, ListKind, Method, ObjectView, Raw, Request, Response, Span, TaskMode};
use crate::seal::{Purpose, Sealer};

/// What is wrong with a task that its client could not use.
const FOREIGN: &str = "it made a task that cannot be passed on to this client";
/// When to ask again for a task whose server is being connected.
const SOON: Duration = Duration::from_secs(1);
/// Longest id of an upstream's own, in bytes: the sealed one is a header of requests.
const LONGEST: usize = 1024;

/// What a sealed id says. Members may be added: a reader leaves aside what it does not know.
#[derive(Serialize, Deserialize)]
struct Sealed<'a> {
    /// Whose it is.
    #[serde(rename = "p", borrow)]
    principal: std::borrow::Cow<'a, str>,
    /// The name of its upstream.
    #[serde(rename = "u", borrow)]
    upstream: std::borrow::Cow<'a, str>,
    /// The native name of the tool that made it.
    #[serde(rename = "t", borrow)]
    tool: std::borrow::Cow<'a, str>,
    #[serde(rename = "m")]
    mode: TaskMode,
    /// The upstream's own id.
    #[serde(rename = "i", borrow)]
    native: std::borrow::Cow<'a, str>,
}

/// The ids of tasks, under one key.
pub(super) struct TaskIds(Option<Sealer>);

impl TaskIds {
    /// Under the key of the configuration, or a random one. Without randomness there are no tasks.
    pub(super) fn new(config: &Config) -> Self {
        Self(Sealer::new(&config.sessions, Purpose::Task).ok())
    }

    fn seal(&self, sealed: &Sealed<'_>) -> Option<String> {
        self.seal_text(&serde_json::to_vec(sealed).ok()?)
    }

    /// Another text that clients bring back: of another shape, so that it is no id.
    pub(super) fn seal_text(&self, content: &[u8]) -> Option<String> {
        self.0.as_ref()?.seal_name(content).ok()
    }

    pub(super) fn open(&self, id: &str) -> Option<Vec<u8>> {
        Some(self.0.as_ref()?.open(id)?.content)
    }
}

/// What a call has to do with tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TaskUse {
    /// It is about this one.
    Of {
        /// The id as its client has it.
        exposed: Arc<str>,
        /// The kind of the task.
        mode: TaskMode,
    },
    /// It calls a tool, and may become a task of this kind.
    Maybe(TaskMode),
    /// It lists them.
    List,
    /// Nothing.
    None,
}

impl Gateway {
    /// Whether an upstream has tasks of this kind, at the endpoint of `principal`, or may have: what one has that was
    /// not connected yet is not known.
    #[must_use]
    pub fn has_tasks(&self, principal: &Principal, mode: TaskMode) -> bool {
        let current = self.current.load();
        self.offers_at(&current, principal).any(|(_, offer)| {
            let is_unknown = offer.capabilities.is_none() && !offer.health.takes_calls();
            offer.tasks == Some(mode) || is_unknown
        })
    }

    /// Where a task is, for whoever has its id. The rules of today decide, not those of when it was made.
    ///
    /// # Errors
    /// `Unknown` for what is no id, another principal's, of another kind, or of an upstream that is not there;
    /// `Denied` if the principal may not call the tool any more. Both have the same words unless
    /// `reveal_denied`.
    pub(super) fn task(
        &self,
        current: &Current,
        call: &Call,
        id: &str,
        reveal: Reveal,
    ) -> Result<(Grant, Arc<str>), GatewayError> {
        let unknown = || access::unknown_task(id);
        let opened = self.lineage.task_ids.open(id).ok_or_else(unknown)?;
        let sealed: Sealed<'_> = serde_json::from_slice(&opened).map_err(|_| unknown())?;
        let is_own = sealed.principal == *call.principal.name && call.hop.tasks == Some(sealed.mode);
        let upstream = self.config.upstreams_in_order().find(|upstream| sealed.upstream == *upstream.name);
        let upstream = upstream.filter(|_| is_own).ok_or_else(unknown)?;
        let offer = current.offers.get(upstream.index).ok_or_else(unknown)?;
        if offer.tasks.is_none() && !offer.health.takes_calls() {
            // What it has is not known yet; whoever asks for a task must not take it for lost.
            let text = "is not connected yet";
            let absent = GatewayError::upstream(GatewayErrorKind::Unavailable, &upstream.name, text);
            return Err(absent.retry_after(SOON));
        }
        let (Some(names), true) = (self.names.get(upstream.index), offer.tasks == Some(sealed.mode)) else {
            return Err(unknown());
        };
        let exposed = names.expose(&sealed.tool);
        if !self.admits_task(&call.principal, upstream.index, &sealed.tool) {
            return Err(access::denied_task(id, reveal));
        }
        if sealed.mode == TaskMode::ByCaller {
            let (tool, mode) = (&*sealed.tool, sealed.mode);
            let made = Made { principal: &call.principal, upstream: upstream.index, tool, mode };
            self.note_task(&made, &sealed.native, call.session.as_ref().map(|session| &session.id));
        }
        let target = Target { upstream: upstream.index, native: (&*sealed.native).into() };
        Ok((Grant { target }, exposed.into()))
    }

    /// Whether the rules let a principal use a task now that it was let use before, by the id that it has.
    pub(super) fn still_admits_task(&self, principal: &Principal, id: &str) -> bool {
        let Some(opened) = self.lineage.task_ids.open(id) else { return false };
        let Ok(sealed) = serde_json::from_slice::<Sealed<'_>>(&opened) else { return false };
        let upstream = self.config.upstreams_in_order().find(|upstream| sealed.upstream == *upstream.name);
        upstream.is_some_and(|upstream| self.admits_task(principal, upstream.index, &sealed.tool))
    }

    /// Whether the rules let a principal call the tool that made a task, by its native name.
    pub(super) fn admits_task(&self, principal: &Principal, upstream: usize, tool: &str) -> bool {
        let Some(known) = self.names.get(upstream).map(|names| names.expose(tool)) else { return false };
        let current = self.current.load();
        let listed = current.at(principal).find_native(ListKind::Tools, upstream, tool);
        let hints = listed.map_or(Sight::Unseen, |entry| Sight::Seen(entry.hints));
        let candidate = Candidate { kind: ListKind::Tools, native: tool, known: &known, hints };
        access::is_admitted(&self.config, principal, upstream, candidate)
    }

    /// The id that a client gets for a task of an upstream; `None` if the upstream's own is too long.
    pub(super) fn expose_task(&self, task: &Made<'_>, native: &str) -> Option<String> {
        let upstream = self.config.upstreams.get(task.upstream)?;
        let sealed = Sealed {
            principal: (&*task.principal.name).into(),
            upstream: (&*upstream.name).into(),
            tool: task.tool.into(),
            mode: task.mode,
            native: native.into(),
        };
        (native.len() <= LONGEST).then(|| self.lineage.task_ids.seal(&sealed)).flatten()
    }

    /// The outcome of a call with the ids of tasks that its client uses.
    ///
    /// # Errors
    /// `BadUpstream` for a task that the client cannot be given: it knows none of its kind, or the id is none.
    pub(super) fn expose_tasks(&self, task: &Used, outcome: Outcome) -> Result<Outcome, GatewayError> {
        let answer = match &outcome {
            Outcome::Complete(answer) | Outcome::InputRequired(answer) => answer,
            Outcome::Error(_) => return Ok(outcome),
        };
        if task.what == TaskUse::List {
            let response = self.own_page(task, answer)?;
            return Ok(Outcome::Complete(Answer { response, form: answer.form }));
        }
        let edits = match &task.what {
            TaskUse::Of { exposed, .. } => task.edits(answer, exposed),
            TaskUse::Maybe(mode) => match task::created(*mode, &answer.response) {
                Some(span) => vec![(span.clone(), self.made(task, *mode, &answer.response, &span)?)],
                None if *mode == TaskMode::ByServer && is_task(answer) => {
                    return Err(self.broken(task, FOREIGN));
                }
                None => Vec::new(),
            },
            TaskUse::None if task.method == Method::ToolsCall && is_task(answer) => {
                return Err(self.broken(task, FOREIGN));
            }
            TaskUse::List | TaskUse::None => Vec::new(),
        };
        if edits.is_empty() {
            return Ok(outcome);
        }
        let mut draft = Draft::new(answer.response.text.clone());
        edits.into_iter().for_each(|(span, id)| draft.replace(span, Raw::from_text(&id).bytes().clone()));
        let response = answer.response.edited(draft).ok_or_else(|| self.broken(task, FOREIGN))?;
        let answer = Answer { response, form: answer.form };
        Ok(match outcome {
            Outcome::Complete(_) => Outcome::Complete(answer),
            Outcome::InputRequired(_) => Outcome::InputRequired(answer),
            Outcome::Error(_) => Outcome::Error(answer),
        })
    }

    fn made(
        &self,
        task: &Used,
        mode: TaskMode,
        response: &Response,
        span: &Span,
    ) -> Result<String, GatewayError> {
        let made = Made { principal: &task.principal, upstream: task.upstream, tool: &task.native, mode };
        let native = task::id_at(&response.text, span);
        let id = native.and_then(|native| {
            let id = self.expose_task(&made, &native)?;
            if mode == TaskMode::ByCaller {
                self.note_task(&made, &native, task.session.as_ref());
            }
            Some(id)
        });
        id.ok_or_else(|| self.broken(task, FOREIGN))
    }

    /// The upstream broke the protocol.
    pub(super) fn broken(&self, task: &Used, text: &'static str) -> GatewayError {
        let name = self.config.upstreams.get(task.upstream).map(|upstream| &upstream.name);
        let error = GatewayError::new(GatewayErrorKind::BadUpstream, text);
        GatewayError { upstream: name.cloned(), ..error }.maybe_executed()
    }
}

/// Whether an answer says that it is a task, from where that has a meaning.
fn is_task(answer: &Answer) -> bool {
    answer.form == ResultForm::Tagged && task::is_task(&answer.response)
}

/// Who made a task, and where.
pub(super) struct Made<'a> {
    pub(super) principal: &'a Principal,
    pub(super) upstream: usize,
    pub(super) tool: &'a str,
    pub(super) mode: TaskMode,
}

/// What a call has to do with tasks, and what there is to know of it.
#[derive(Clone, Debug)]
pub(super) struct Used {
    pub(super) what: TaskUse,
    method: Method,
    pub(super) principal: Principal,
    pub(super) upstream: usize,
    /// The native id of the task, or name of the tool.
    native: Arc<str>,
    session: Option<Arc<str>>,
}

impl Used {
    /// What a call to `target` has to do with tasks; `exposed` is the id that it names.
    pub(super) fn of(call: &Call, target: &Target, exposed: Option<String>) -> Self {
        let what = match (exposed, call.hop.tasks) {
            (Some(exposed), Some(mode)) => TaskUse::Of { exposed: exposed.into(), mode },
            (None, Some(TaskMode::ByServer)) if call.method == Method::ToolsCall => {
                TaskUse::Maybe(TaskMode::ByServer)
            }
            (None, Some(TaskMode::ByCaller))
                if call.method == Method::ToolsCall && call.request.param(task::TASK).is_some() =>
            {
                TaskUse::Maybe(TaskMode::ByCaller)
            }
            (_, _) if call.method == Method::TasksList => TaskUse::List,
            (_, _) => TaskUse::None,
        };
        Self {
            what,
            method: call.method,
            principal: call.principal.clone(),
            upstream: target.upstream,
            native: Arc::clone(&target.native),
            session: call.session.as_ref().map(|session| Arc::clone(&session.id)),
        }
    }

    /// Whether what comes before the end may name a task.
    pub(super) fn has_events(&self) -> bool {
        matches!(
            self.what,
            TaskUse::Maybe(TaskMode::ByCaller) | TaskUse::Of { mode: TaskMode::ByCaller, .. } | TaskUse::List
        )
    }

    /// Where an answer about a task has its id, and what is to stand there.
    fn edits(&self, answer: &Answer, exposed: &str) -> Vec<(Span, String)> {
        let Body::Result(result) = &answer.response.body else { return Vec::new() };
        let text = &answer.response.text;
        let mut spans = task::told(result, text);
        if let Some(questions) = result.get(text, "inputRequests") {
            for question in ObjectView::at(text, questions).members {
                let params = ObjectView::at(text, question.value).get(text, "params");
                spans.extend(params.into_iter().flat_map(|at| task::told(&ObjectView::at(text, at), text)));
            }
        }
        spans.retain(|span| task::id_at(text, span).is_some_and(|id| *id == *self.native));
        spans.into_iter().map(|span| (span, exposed.to_owned())).collect()
    }

    /// An event of the call as its client may hear it; `None` where it is about a task that is not the one of
    /// this call, or cannot be told to be.
    pub(super) fn event(&self, gateway: &Gateway, event: Event) -> Option<Event> {
        let notification = &event.notification;
        let spans = task::told(&notification.params, &notification.text);
        let Some(first) = spans.first() else { return Some(event) };
        let named = task::id_at(&notification.text, first)?;
        let id = match &self.what {
            TaskUse::Of { exposed, .. } if *named == *self.native => exposed.to_string(),
            // Progress carries the token of the call: it is of the task that the call becomes.
            TaskUse::Maybe(mode) if event.kind == EventKind::Progress => {
                let made = Made {
                    principal: &self.principal,
                    upstream: self.upstream,
                    tool: &self.native,
                    mode: *mode,
                };
                gateway.expose_task(&made, &named)?
            }
            TaskUse::Of { .. } | TaskUse::Maybe(_) | TaskUse::List | TaskUse::None => return None,
        };
        let mut draft = Draft::new(notification.text.clone());
        let id: Bytes = Raw::from_text(&id).bytes().clone();
        spans.into_iter().for_each(|span| draft.replace(span, id.clone()));
        Some(Event { kind: event.kind, notification: notification.edited(draft)? })
    }
}

/// Takes the events of a call from its upstream, and gives them to its client.
pub(super) struct Relay {
    pub(super) from: mpsc::Receiver<Event>,
    pub(super) to: EventSink,
}

impl Relay {
    /// Waits for the end of a call, and passes on what comes before. Cancel safe as far as `carried` is.
    pub(super) async fn until<T>(
        mut self,
        (gateway, used): (&Gateway, &Used),
        carried: impl Future<Output = T>,
    ) -> T {
        let mut carried = std::pin::pin!(carried);
        loop {
            let (event, ended) = tokio::select! {
                biased;
                Some(event) = self.from.recv() => (Some(event), None),
                ended = &mut carried => (None, Some(ended)),
            };
            let more = std::iter::from_fn(|| ended.as_ref().and_then(|_| self.from.try_recv().ok()));
            let events: Vec<_> = event.into_iter().chain(more).collect();
            for event in events {
                if let Some(event) = used.event(gateway, event) {
                    self.to.send(event).await;
                }
            }
            if let Some(ended) = ended {
                return ended;
            }
        }
    }
}

/// A request about a task with the upstream's own id wherever the client ties something to the task: in its
/// own `_meta`, and in answers to questions. `None` if nothing changes.
pub(super) fn inward(request: &Request, exposed: &str, native: &str) -> Option<Request> {
    let text = &request.text;
    let mut spans = task::told(&request.params, text);
    // That in `params` itself is the request's address, and written with the rest of it.
    spans.retain(|span| Some(span) != request.params.get(text, task::TASK_ID).as_ref());
    if let Some(answers) = request.params.get(text, "inputResponses") {
        let each = ObjectView::at(text, answers).members.into_iter();
        spans.extend(each.flat_map(|answer| task::told(&ObjectView::at(text, answer.value), text)));
    }
    spans.retain(|span| task::id_at(text, span).is_some_and(|id| id == exposed));
    let mut draft = Draft::new(text.clone());
    spans.into_iter().for_each(|span| draft.replace(span, Raw::from_text(native).bytes().clone()));
    if draft.is_unchanged() { None } else { request.edited(draft) }
}
