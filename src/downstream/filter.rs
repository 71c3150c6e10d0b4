//! What a modern client subscribes to, and how much of it Waypost tells of.
//!
//! Spec: 2026-07-28, basic/patterns/subscriptions.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout_at};

use super::endpoint::quoted;
use super::reply::{ErrorBody, object};
use crate::exchange::{Call, Cancel, EventSink, Hop, Outcome, Principal};
use crate::gateway::{Following, Gateway, GatewayErrorKind};
use crate::mcp::task::TASK_ID;
use crate::mcp::{Code, Id, ListKind, Message, Method, Raw, Request, TaskMode};
use crate::translate::hello::write_request;
use crate::wire::json;

/// The members of a filter that name resources, and tasks.
const RESOURCES: &str = "resourceSubscriptions";
const TASKS: &str = "taskIds";
/// How long upstreams may take to agree before the client hears what is told. Those that agree later are left out.
const SETTLE_TIME: Duration = Duration::from_secs(10);
/// How many resources are asked for at the same time.
const AT_ONCE: usize = 8;
/// How long one waits before it tries again whether its turn has come, at first and at last.
const TURNS: [Duration; 2] = [Duration::from_millis(25), Duration::from_secs(1)];

/// What a subscription asks for. What else its filter names is not told, and not acknowledged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Filter {
    pub(super) kinds: Vec<ListKind>,
    /// URIs as the client knows them, each once.
    pub(super) resources: Vec<Arc<str>>,
    /// Ids of tasks as the client knows them, each once.
    pub(super) tasks: Vec<Arc<str>>,
}

impl Filter {
    /// Reads the filter of `subscriptions/listen`.
    ///
    /// # Errors
    /// `InvalidParams` if it is none.
    pub(super) fn read(request: &Request) -> Result<Self, ErrorBody> {
        let malformed = |text: String| ErrorBody::new(Code::InvalidParams, text);
        let filter = request.param("notifications").filter(Raw::is_object);
        let filter =
            filter.ok_or_else(|| malformed("`params.notifications` must be an object".to_owned()))?;
        let view = filter.object();
        let mut kinds = Vec::new();
        for kind in ListKind::ALL {
            match view.raw(filter.bytes(), kind.filter()).as_ref().map(Raw::text) {
                Some("true") => kinds.push(kind),
                Some("false") | None => {}
                Some(_) => {
                    let text = format!("`params.notifications.{}` must be a boolean", kind.filter());
                    return Err(malformed(text));
                }
            }
        }
        let named = |member: &str| -> Result<Vec<Arc<str>>, ErrorBody> {
            let named = view.raw(filter.bytes(), member).map(|raw| serde_json::from_slice(raw.bytes()));
            let named: Vec<String> =
                named.transpose().ok().map(Option::unwrap_or_default).ok_or_else(|| {
                    malformed(format!("`params.notifications.{member}` must be an array of strings"))
                })?;
            let mut seen = HashSet::new();
            Ok(named.into_iter().map(Arc::from).filter(|name| seen.insert(Arc::clone(name))).collect())
        };
        Ok(Self { kinds, resources: named(RESOURCES)?, tasks: named(TASKS)? })
    }

    /// Has the upstreams asked for the resources and tasks of the filter, and leaves those of it that they, and the
    /// rules, agree to.
    pub(super) async fn settle(
        mut self,
        gateway: &Gateway,
        principal: &Principal,
        following: &Following,
    ) -> Self {
        // What exceeds the limit would be refused one by one.
        let most = gateway.config().limits.subscriptions_per_session;
        self.resources.truncate(most);
        self.tasks.truncate(most);
        let (end, turns) = (Instant::now() + SETTLE_TIME, Semaphore::new(AT_ONCE));
        let agreed = async |names: Vec<Arc<str>>, topic: Topic| {
            let asking = names.iter().map(|name| async {
                let asked = async {
                    let _turn = turns.acquire().await.ok()?;
                    follow(gateway, (topic, name, principal), following).await
                };
                matches!(timeout_at(end, asked).await, Ok(Some(Outcome::Complete(_))))
            });
            let agreed = join_all(asking).await;
            names.into_iter().zip(agreed).filter_map(|(name, agreed)| agreed.then_some(name)).collect()
        };
        let (resources, tasks) =
            tokio::join!(agreed(self.resources, Topic::Resource), agreed(self.tasks, Topic::Task));
        Self { kinds: self.kinds, resources, tasks }
    }

    /// The filter as JSON.
    pub(super) fn write(&self) -> Bytes {
        let mut members: Vec<_> =
            self.kinds.iter().map(|kind| (kind.filter(), Some(Bytes::from_static(b"true")))).collect();
        members.dedup();
        for (member, names) in [(RESOURCES, &self.resources), (TASKS, &self.tasks)] {
            let names: Vec<_> = names.iter().map(|name| quoted(name)).collect();
            if !names.is_empty() {
                members.push((member, Some([b"[".as_slice(), &names.join(&b','), b"]"].concat().into())));
            }
        }
        object(&members)
    }
}

/// What is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Topic {
    Resource,
    Task,
}

/// Follows one resource, or task. Where limits let only some be asked for at once, waits for its turn.
async fn follow(
    gateway: &Gateway,
    (topic, name, principal): (Topic, &str, &Principal),
    following: &Following,
) -> Option<Outcome> {
    let [mut wait, longest] = TURNS;
    loop {
        let call = asking(topic, name, principal)?;
        let followed = match topic {
            Topic::Resource => gateway.follow(call, following).await,
            Topic::Task => gateway.follow_task(call, following).await,
        };
        match followed {
            Ok(outcome) => return Some(outcome),
            Err(refusal)
                if refusal.kind == GatewayErrorKind::RateLimited && refusal.retry_after.is_some() =>
            {
                sleep(wait).await;
                wait = (wait * 2).min(longest);
            }
            Err(_) => return None,
        }
    }
}

/// The wish to follow something, in the shape of a call that names it.
fn asking(topic: Topic, name: &str, principal: &Principal) -> Option<Call> {
    let (method, member, tasks) = match topic {
        Topic::Resource => (Method::ResourcesSubscribe, "uri", None),
        Topic::Task => (Method::TasksGet, TASK_ID, Some(TaskMode::ByServer)),
    };
    let text = write_request(&Id::from(0), method.as_str(), &[(member, Raw::from_text(name))], &[]);
    let Ok(Message::Request(request)) = json::parse(text) else { return None };
    Some(Call {
        method,
        request,
        hop: Hop { tasks, ..Hop::default() },
        principal: principal.clone(),
        session: None,
        events: EventSink::new().0,
        cancel: Cancel::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(filter: &str) -> Result<Filter, ErrorBody> {
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{{"notifications":{filter}}}}}"#
        );
        let Ok(Message::Request(request)) = json::parse(Bytes::from(text)) else { panic!() };
        Filter::read(&request)
    }

    #[test]
    fn a_filter_is_read_and_written_and_names_each_resource_once() {
        for (text, written) in [
            ("{}", "{}"),
            (r#"{"toolsListChanged":false,"unheard":7}"#, "{}"),
            (r#"{"resourcesListChanged":true}"#, r#"{"resourcesListChanged":true}"#),
            (
                r#"{"resourceSubscriptions":["b://é","a://1","b://é"],"toolsListChanged":true}"#,
                r#"{"toolsListChanged":true,"resourceSubscriptions":["b://é","a://1"]}"#,
            ),
            (r#"{"resourceSubscriptions":[]}"#, "{}"),
        ] {
            let filter = read(text).unwrap();
            assert_eq!(String::from_utf8(filter.write().to_vec()).unwrap(), written, "{text}");
        }
    }

    #[test]
    fn a_filter_of_the_wrong_shape_is_refused() {
        for text in [
            "[]",
            "7",
            r#"{"toolsListChanged":1}"#,
            r#"{"resourceSubscriptions":"a://1"}"#,
            r#"{"resourceSubscriptions":[1]}"#,
            r#"{"resourceSubscriptions":{"a":true}}"#,
        ] {
            assert_eq!(code(read(text)), Some(Code::InvalidParams), "{text}");
        }
    }

    fn code(read: Result<Filter, ErrorBody>) -> Option<Code> {
        read.err().map(|error| error.code)
    }
}
