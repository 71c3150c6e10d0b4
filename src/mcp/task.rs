//! Tasks: the two kinds of them that the revisions have, and where their ids stand.
//!
//! Spec: 2025-11-25, basic/utilities/tasks (experimental), and the extension `io.modelcontextprotocol/tasks`.
//! They share a name and little else: the capability, who decides, and the shape of every result differ.

use serde::{Deserialize, Serialize};

use super::message::{Body, Response};
use super::method::Method;
use super::object::{ObjectView, Raw, Span};

/// The member of `params`, results and notifications that holds the id of a task.
pub const TASK_ID: &str = "taskId";
/// The member of `params` that asks for a task.
pub const TASK: &str = "task";
/// The member of `_meta` that ties a message to a task.
pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

/// Who decides that a call becomes a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TaskMode {
    /// The caller, by `params.task`.
    ByCaller,
    /// The server, for a caller that declares the extension.
    ByServer,
}

impl Method {
    /// Whether the method is one of tasks of this kind.
    #[must_use]
    pub fn has_tasks(self, mode: TaskMode) -> bool {
        let is_own = match mode {
            TaskMode::ByCaller => matches!(self, Self::TasksResult | Self::TasksList),
            TaskMode::ByServer => self == Self::TasksUpdate,
        };
        is_own || matches!(self, Self::TasksGet | Self::TasksCancel)
    }
}

/// The capability `tasks` of the gateway, out of those of servers that have tasks of tools; `None` if there are
/// none. Tasks are cancelled and listed as soon as one of them can do that.
#[must_use]
pub fn merge<'a>(servers: impl Iterator<Item = &'a Raw>) -> Option<Raw> {
    let declared = servers.filter_map(|all| all.object().raw(all.bytes(), "tasks")).collect::<Vec<_>>();
    let mut merged = serde_json::json!({"requests": {"tools": {"call": {}}}});
    for key in ["cancel", "list"].into_iter().filter(|key| declared.iter().any(|tasks| has(tasks, key))) {
        if let Some(members) = merged.as_object_mut() {
            members.insert(key.to_owned(), serde_json::json!({}));
        }
    }
    (!declared.is_empty()).then(|| Raw::from_value(&merged))
}

/// Whether a server with these capabilities lists its tasks.
#[must_use]
pub fn lists(capabilities: &Raw) -> bool {
    capabilities.object().raw(capabilities.bytes(), "tasks").is_some_and(|tasks| has(&tasks, "list"))
}

fn has(tasks: &Raw, key: &str) -> bool {
    tasks.object().raw(tasks.bytes(), key).is_some_and(|found| found.is_object())
}

/// Where the id of a new task stands in the answer to a call; `None` if the answer creates none.
#[must_use]
pub fn created(mode: TaskMode, response: &Response) -> Option<Span> {
    let Body::Result(result) = &response.body else { return None };
    let text = &response.text;
    match mode {
        TaskMode::ByServer => {
            is_task(response).then_some(())?;
            result.get(text, TASK_ID)
        }
        TaskMode::ByCaller => ObjectView::at(text, result.get(text, TASK)?).get(text, TASK_ID),
    }
}

/// Whether a server says that its answer is a task.
#[must_use]
pub fn is_task(response: &Response) -> bool {
    response.result("resultType").and_then(|kind| kind.string()).is_some_and(|kind| kind == "task")
}

/// Where the id stands in an object that tells of a task: at its top, or in its `_meta`.
#[must_use]
pub fn told(object: &ObjectView, text: &[u8]) -> Vec<Span> {
    let related = object.get(text, "_meta").and_then(|meta| {
        let related = ObjectView::at(text, meta).get(text, RELATED_TASK)?;
        ObjectView::at(text, related).get(text, TASK_ID)
    });
    object.get(text, TASK_ID).into_iter().chain(related).collect()
}

/// The decoded id at a span.
#[must_use]
pub fn id_at(text: &bytes::Bytes, span: &Span) -> Option<String> {
    Raw::trusted(text.slice(span.clone())).string()
}
