//! `tasks/list`: what each upstream lists, one after the other, and of that only what the caller owns.
//!
//! A server behind us lists the tasks of all clients, and nothing in its list says whose they are. So it is
//! remembered which tasks a principal made or used. This is a memory and no evidence: what has fallen out of it
//! is not listed, and can be used all the same.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use super::access::{self, Grant};
use super::error::{GatewayError, GatewayErrorKind};
use super::following::exposed_status;
use super::tasks::{Made, Used};
use super::{Current, Gateway};
use crate::config::Config;
use crate::exchange::{Answer, Call, Principal};
use crate::mcp::task::{self, TASK_ID};
use crate::mcp::{Body, Draft, Notification, ObjectView, Raw, Request, Response, TaskMode, elements};
use crate::telemetry::Table;

/// The tasks that each principal made or used last; `limits.listed_tasks` of each at the most.
#[derive(Debug)]
pub(super) struct OwnTasks {
    most: usize,
    of: Mutex<HashMap<Arc<str>, Recent>>,
}

/// The tasks of one principal.
#[derive(Debug, Default)]
struct Recent {
    /// By upstream and the upstream's own id.
    tasks: HashMap<(usize, Arc<str>), Own>,
    uses: u64,
}

#[derive(Debug)]
struct Own {
    /// The tool that made it.
    tool: Arc<str>,
    used: u64,
    /// The session that made or used it last.
    session: Option<Arc<str>>,
}

impl OwnTasks {
    pub(super) fn new(config: &Config) -> Self {
        Self { most: config.limits.listed_tasks, of: Mutex::default() }
    }

    /// Notes that a principal made or used a task.
    pub(super) fn note(&self, made: &Made<'_>, native: &str, session: Option<&Arc<str>>) {
        let mut all = self.lock();
        let recent = all.entry(Arc::clone(&made.principal.name)).or_default();
        recent.uses += 1;
        let used = recent.uses;
        let own = Own { tool: made.tool.into(), used, session: session.cloned() };
        recent.tasks.insert((made.upstream, native.into()), own);
        if recent.tasks.len() > self.most {
            // Several at once, so that a full memory is not searched for each new task.
            let mut uses: Vec<u64> = recent.tasks.values().map(|own| own.used).collect();
            uses.sort_unstable();
            let keep = self.most - self.most / 8;
            let oldest = uses.get(uses.len().saturating_sub(keep)).copied().unwrap_or_default();
            recent.tasks.retain(|_, own| own.used >= oldest);
        }
    }

    /// How many tasks are remembered.
    pub(super) fn len(&self) -> usize {
        self.lock().values().map(|recent| recent.tasks.len()).sum()
    }

    /// The tool that made a task, if the principal is known to own it.
    fn tool(&self, principal: &Principal, upstream: usize, native: &str) -> Option<Arc<str>> {
        let all = self.lock();
        let recent = all.get(&principal.name)?;
        recent.tasks.get(&(upstream, native.into())).map(|own| Arc::clone(&own.tool))
    }

    /// The same, if it was this session that made or used the task last.
    fn tool_of(
        &self,
        (principal, session): (&Principal, &Arc<str>),
        upstream: usize,
        native: &str,
    ) -> Option<Arc<str>> {
        let all = self.lock();
        let own = all.get(&principal.name)?.tasks.get(&(upstream, native.into()))?;
        (own.session.as_ref() == Some(session)).then(|| Arc::clone(&own.tool))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Recent>> {
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a list goes on, sealed as a cursor.
#[derive(Serialize, Deserialize)]
struct Onward {
    /// Whose list it is.
    #[serde(rename = "p")]
    principal: String,
    /// The name of the upstream.
    #[serde(rename = "u")]
    upstream: String,
    /// The upstream's own cursor; empty for its first page.
    page: Vec<String>,
}

impl Gateway {
    /// Notes that a principal made or used a task.
    pub(super) fn note_task(&self, made: &Made<'_>, native: &str, session: Option<&Arc<str>>) {
        self.lineage.own_tasks.note(made, native, session);
        self.metrics.set_entries(Table::ListedTasks, self.lineage.own_tasks.len());
    }

    /// The upstream whose tasks come next.
    ///
    /// # Errors
    /// `MethodNotFound` if no upstream that the caller sees anything of lists tasks, `InvalidParams` for a cursor
    /// that is none of this principal's.
    pub(super) fn task_page(
        &self,
        current: &Current,
        call: &Call,
        cursor: Option<&str>,
    ) -> Result<Grant, GatewayError> {
        let Some(cursor) = cursor else {
            let first = self.next_lister(current, &call.principal, 0);
            return first.map(Grant::whole).ok_or_else(|| access::unknown_method(&call.request.method));
        };
        let invalid =
            || GatewayError::new(GatewayErrorKind::InvalidParams, "`params.cursor` is none of ours");
        let onward = self.opened(cursor).ok_or_else(invalid)?;
        let upstream = self.config.upstreams_in_order().find(|upstream| *upstream.name == *onward.upstream);
        let endpoint = self.config.endpoints.get(call.principal.endpoint);
        let is_here = |upstream: usize| endpoint.is_some_and(|endpoint| endpoint.has(upstream));
        let is_own = |upstream: usize| *onward.principal == *call.principal.name && is_here(upstream);
        let upstream = upstream.filter(|upstream| is_own(upstream.index)).ok_or_else(invalid)?;
        Ok(Grant::whole(upstream.index))
    }

    /// The request for a page under the upstream's own cursor.
    pub(super) fn turn_to(&self, request: &Request, cursor: Option<&str>) -> Option<Request> {
        let page = cursor.and_then(|cursor| self.opened(cursor)?.page.into_iter().next());
        let mut draft = Draft::new(request.text.clone());
        let page = page.map(|cursor| Raw::from_text(&cursor).bytes().clone());
        draft.edit_object(&request.params, &[("cursor", page)]);
        request.edited(draft)
    }

    fn opened(&self, cursor: &str) -> Option<Onward> {
        serde_json::from_slice(&self.lineage.task_ids.open(cursor)?).ok()
    }

    /// The first upstream from this place on that is there, lists tasks, and shows the principal anything.
    fn next_lister(&self, current: &Current, principal: &Principal, from: usize) -> Option<usize> {
        let mut listers = current.offers.iter().enumerate().skip(from).filter(|(index, offer)| {
            let lists = offer.tasks == Some(TaskMode::ByCaller)
                && offer.capabilities.as_ref().is_some_and(task::lists)
                && offer.health.takes_calls();
            lists && self.sees(current, principal, *index)
        });
        listers.next().map(|(index, _)| index)
    }

    /// A page of an upstream's list as its client gets it: its own tasks under the ids that it has, and where the
    /// list goes on. Pages may be empty, and the list go on all the same.
    pub(super) fn own_page(&self, used: &Used, answer: &Answer) -> Result<Response, GatewayError> {
        let broken = || self.broken(used, "its list of tasks is not a list");
        let response = &answer.response;
        let (Body::Result(result), text) = (&response.body, &response.text) else { return Err(broken()) };
        let array = result.get(text, "tasks").filter(|span| text.get(span.start) == Some(&b'['));
        let array = array.ok_or_else(broken)?;
        let mut own = BytesMut::from(&b"["[..]);
        for element in elements(text, array) {
            let entry = text.slice(element);
            let Some(entry) = self.own_entry(used, &entry) else { continue };
            if own.len() > 1 {
                own.put_u8(b',');
            }
            own.extend_from_slice(&entry);
        }
        own.put_u8(b']');
        let next = self.onward(used, response.result("nextCursor").and_then(|raw| raw.string()));
        let next = next.map(|cursor| Raw::from_text(&cursor).bytes().clone());
        let mut draft = Draft::new(text.clone());
        draft.edit_object(result, &[("tasks", Some(own.freeze())), ("nextCursor", next)]);
        response.edited(draft).ok_or_else(broken)
    }

    /// An entry under the id that its owner has; `None` if it is not the caller's, or not any more.
    fn own_entry(&self, used: &Used, entry: &Bytes) -> Option<Bytes> {
        let view = ObjectView::of(entry);
        let native = view.string(entry, TASK_ID)?;
        // What nobody in particular made may be anybody's.
        self.config.clients.get(used.principal.client).filter(|client| !client.is_anonymous)?;
        let tool = self.lineage.own_tasks.tool(&used.principal, used.upstream, &native)?;
        self.admits_task(&used.principal, used.upstream, &tool).then_some(())?;
        let mode = TaskMode::ByCaller;
        let made = Made { principal: &used.principal, upstream: used.upstream, tool: &tool, mode };
        let id = self.expose_task(&made, &native)?;
        let mut draft = Draft::new(entry.clone());
        draft.edit_object(&view, &[(TASK_ID, Some(Raw::from_text(&id).bytes().clone()))]);
        Some(draft.finish())
    }

    /// What an upstream says of one of its tasks, under the id that its owner has; `None` if it is not of this
    /// session, or the rules do not let it use the task any more.
    pub(super) fn own_status(
        &self,
        (principal, session): (&Principal, &Arc<str>),
        upstream: usize,
        said: &Notification,
    ) -> Option<Bytes> {
        let native = said.param_string(TASK_ID)?;
        let tool = self.lineage.own_tasks.tool_of((principal, session), upstream, &native)?;
        self.admits_task(principal, upstream, &tool).then_some(())?;
        let made = Made { principal, upstream, tool: &tool, mode: TaskMode::ByCaller };
        exposed_status(said, (&native, &self.expose_task(&made, &native)?))
    }

    /// The cursor of what comes next: of the same upstream while its list goes on, then of the next one.
    fn onward(&self, used: &Used, cursor: Option<String>) -> Option<String> {
        let upstream = match cursor {
            Some(_) => used.upstream,
            None => self.next_lister(&self.current.load(), &used.principal, used.upstream + 1)?,
        };
        let onward = Onward {
            principal: used.principal.name.to_string(),
            upstream: self.config.upstreams.get(upstream)?.name.to_string(),
            page: cursor.into_iter().collect(),
        };
        self.lineage.task_ids.seal_text(&serde_json::to_vec(&onward).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memory_that_is_full_forgets_what_was_used_longest_ago() {
        let own = OwnTasks { most: 8, of: Mutex::default() };
        let alice = Principal::new(0, "alice");
        let bob = Principal::new(1, "bob");
        let note = |principal: &Principal, native: &str| {
            let made = Made { principal, upstream: 1, tool: "slow", mode: TaskMode::ByCaller };
            own.note(&made, native, Some(&"s".into()));
        };
        note(&bob, "his");
        for number in 0..8 {
            note(&alice, &format!("task-{number}"));
        }
        note(&alice, "task-0");
        note(&alice, "task-8");
        assert_eq!(own.tool(&alice, 1, "task-1"), None, "used longest ago");
        for kept in ["task-0", "task-7", "task-8"] {
            assert_eq!(own.tool(&alice, 1, kept).as_deref(), Some("slow"), "{kept}");
        }
        assert_eq!(own.tool(&alice, 0, "task-8"), None, "another upstream's");
        assert_eq!(own.tool(&alice, 1, "his"), None, "another's");
        assert_eq!(own.tool(&bob, 1, "his").as_deref(), Some("slow"));
        assert_eq!(own.tool_of((&bob, &"s".into()), 1, "his").as_deref(), Some("slow"));
        assert_eq!(own.tool_of((&bob, &"t".into()), 1, "his"), None, "another session's");
    }
}
