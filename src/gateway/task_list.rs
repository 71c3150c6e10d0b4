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
use super::tasks::{Made, Used};
use super::{Current, Gateway};
use crate::exchange::{Answer, Call, Principal};
use crate::mcp::task::{self, TASK_ID};
use crate::mcp::{Body, Draft, ObjectView, Raw, Request, Response, TaskMode, elements};

/// The tasks that each principal made or used last; `limits.listed_tasks` of each at the most.
#[derive(Debug)]
pub(super) struct OwnTasks {
    most: usize,
    of: Mutex<HashMap<Arc<str>, Recent>>,
}

/// The tasks of one principal.
#[derive(Debug, Default)]
struct Recent {
    /// By upstream and the upstream's own id: the tool that made it, and when it was used.
    tasks: HashMap<(usize, Arc<str>), (Arc<str>, u64)>,
    uses: u64,
}

impl OwnTasks {
    pub(super) fn new(most: usize) -> Self {
        Self { most, of: Mutex::default() }
    }

    /// Notes that a principal made or used a task.
    pub(super) fn note(&self, made: &Made<'_>, native: &str) {
        let mut all = self.lock();
        let recent = all.entry(Arc::clone(&made.principal.name)).or_default();
        recent.uses += 1;
        let used = recent.uses;
        recent.tasks.insert((made.upstream, native.into()), (made.tool.into(), used));
        if recent.tasks.len() > self.most {
            // Several at once, so that a full memory is not searched for each new task.
            let mut uses: Vec<u64> = recent.tasks.values().map(|(_, used)| *used).collect();
            uses.sort_unstable();
            let keep = self.most - self.most / 8;
            let oldest = uses.get(uses.len().saturating_sub(keep)).copied().unwrap_or_default();
            recent.tasks.retain(|_, (_, used)| *used >= oldest);
        }
    }

    /// The tool that made a task, if the principal is known to own it.
    fn tool(&self, principal: &Principal, upstream: usize, native: &str) -> Option<Arc<str>> {
        let all = self.lock();
        let recent = all.get(&principal.name)?;
        recent.tasks.get(&(upstream, native.into())).map(|(tool, _)| Arc::clone(tool))
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
        let upstream = self.config.upstreams.iter().find(|upstream| *upstream.name == *onward.upstream);
        let upstream = upstream.filter(|_| *onward.principal == *call.principal.name).ok_or_else(invalid)?;
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
        serde_json::from_slice(&self.task_ids.open(cursor)?).ok()
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
        let tool = self.own_tasks.tool(&used.principal, used.upstream, &native)?;
        self.admits_task(&used.principal, used.upstream, &tool).then_some(())?;
        let mode = TaskMode::ByCaller;
        let made = Made { principal: &used.principal, upstream: used.upstream, tool: &tool, mode };
        let id = self.expose_task(&made, &native)?;
        let mut draft = Draft::new(entry.clone());
        draft.edit_object(&view, &[(TASK_ID, Some(Raw::from_text(&id).bytes().clone()))]);
        Some(draft.finish())
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
        self.task_ids.seal_text(&serde_json::to_vec(&onward).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memory_that_is_full_forgets_what_was_used_longest_ago() {
        let own = OwnTasks::new(8);
        let alice = Principal { client: 0, name: "alice".into() };
        let bob = Principal { client: 1, name: "bob".into() };
        let note = |principal: &Principal, native: &str| {
            own.note(&Made { principal, upstream: 1, tool: "slow", mode: TaskMode::ByCaller }, native);
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
    }
}
