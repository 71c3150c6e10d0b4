//! Keeps a modern server telling of what clients follow: one subscription whose filter names all resources, and one
//! for all tasks. Where that changes, another one takes its place, and the old one ends only once the new one is
//! acknowledged.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;

use super::Modern;
use super::subscription::{FIRST_WAIT, LONGEST_WAIT, SUSTAINED, is_refused, subscribe};
use crate::exchange::{Answer, Outcome, ResultForm};
use crate::gateway::{Consent, Followed, GatewayErrorKind};
use crate::mcp::{Body, Message, Raw, TaskMode, extension, tells_of_resources};
use crate::upstream::backoff::Backoff;
use crate::upstream::failure::Failure;
use crate::upstream::transport::Reply;
use crate::upstream::until;
use crate::wire::json::parse;

/// How long wishes are gathered before the server hears of them.
const GATHER: Duration = Duration::from_millis(20);
/// How long the server may take to acknowledge a subscription.
const ASK_TIME: Duration = Duration::from_secs(10);

/// How a subscription ended.
type End = Result<Reply, Failure>;

/// The subscription that is there.
struct Open {
    /// What the server tells of.
    honoured: HashSet<Arc<str>>,
    stream: AbortOnDropHandle<End>,
    since: Instant,
}

/// How opening a subscription went.
enum Opened {
    Acknowledged(Open),
    /// The server would not.
    Refused(Consent),
    /// It may, another time.
    Failed(Failure),
}

/// What a subscription is about: the member of the filter that names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Topic {
    Resources,
    Tasks,
}

impl Topic {
    const fn member(self) -> &'static str {
        match self {
            Self::Resources => "resourceSubscriptions",
            Self::Tasks => "taskIds",
        }
    }
}

impl Modern {
    /// Keeps the server telling of what is followed, of resources if it tells of any, for as long as the future lives.
    /// It does not end.
    pub(in crate::upstream) async fn follow(&self, followed: &Followed) {
        let resources = async {
            match self.hello.capabilities.as_ref().is_none_or(tells_of_resources) {
                true => self.follow_all(Topic::Resources, followed).await,
                false => followed.unsettle(),
            }
        };
        let tasks = async {
            let has_tasks = self.hello.tasks() == Some(TaskMode::ByServer);
            if let Some(tasks) = followed.tasks().filter(|_| has_tasks) {
                self.follow_all(Topic::Tasks, tasks).await;
            }
        };
        tokio::join!(resources, tasks);
        std::future::pending().await
    }

    /// Says what became of a wish.
    fn settle(&self, (topic, followed): (Topic, &Followed), key: &str, verdict: Consent) {
        match topic {
            Topic::Resources => self.wire.unsolicited.settle(key, verdict),
            // That a task is told of no longer is no loss: its client polls.
            Topic::Tasks => drop(followed.settle(key, verdict)),
        }
    }

    async fn follow_all(&self, topic: Topic, followed: &Followed) {
        let mut wishes = followed.wishes();
        let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
        let mut open: Option<Open> = None;
        followed.unsettle();
        loop {
            wishes.mark_unchanged();
            let wanted = followed.wanted();
            open.take_if(|_| wanted.all.is_empty());
            let is_told = open.as_ref().is_none_or(|open| open.honoured.is_subset(&wanted.all));
            if wanted.open.is_empty() && is_told {
                tokio::select! {
                    Ok(()) = wishes.changed() => sleep(GATHER).await,
                    () = ended(&mut open) => {
                        if open.take().is_some_and(|open| open.since.elapsed() >= SUSTAINED) {
                            backoff.reset();
                        }
                        followed.unsettle();
                        pause(&mut wishes, backoff.next()).await;
                    }
                    () = until(wanted.due) => {}
                }
                continue;
            }
            match self.open(topic, &wanted.all).await {
                Opened::Acknowledged(new) => {
                    for uri in &wanted.all {
                        let agreed = new.honoured.contains(uri).then(agreed).flatten();
                        self.settle((topic, followed), uri, agreed.unwrap_or_else(|| declined(self)));
                    }
                    open = (!new.honoured.is_empty()).then_some(new);
                }
                Opened::Refused(verdict) => {
                    open = None;
                    wanted.all.iter().for_each(|uri| self.settle((topic, followed), uri, verdict.clone()));
                }
                Opened::Failed(failure) => {
                    let error = failure.into_error(self.wire.unsolicited.upstream());
                    wanted
                        .open
                        .iter()
                        .for_each(|uri| self.settle((topic, followed), uri, Err(error.clone())));
                    // What is there tells of more than is wanted, which is no reason to hurry.
                    pause(&mut wishes, backoff.next()).await;
                }
            }
        }
    }

    /// Opens a subscription to these resources, or tasks, and waits for its acknowledgement.
    async fn open(&self, topic: Topic, uris: &HashSet<Arc<str>>) -> Opened {
        let mut named: Vec<&str> = uris.iter().map(|uri| &**uri).collect();
        named.sort_unstable();
        let filter = json!({topic.member(): named});
        let id = self.wire.mint();
        let acknowledged = self.wire.unsolicited.acknowledgement(id);
        let (wire, hello) = (Arc::clone(&self.wire), self.hello.clone());
        let able = match topic {
            Topic::Resources => json!({}),
            Topic::Tasks => json!({"extensions": {extension::TASKS: {}}}),
        };
        let subscribed = async move { subscribe(&wire, &hello, id, (Raw::from_value(&filter), &able)).await };
        let mut stream = AbortOnDropHandle::new(self.tasks.spawn(subscribed));
        let heard = tokio::select! {
            biased;
            Ok(heard) = acknowledged => heard,
            end = &mut stream => return refusal(self, flat(end)),
            () = sleep(ASK_TIME) => {
                return Opened::Failed(Failure::unavailable("it did not acknowledge the subscription in time"));
            }
        };
        let heard: HashSet<&str> = heard.iter().map(String::as_str).collect();
        let honoured = uris.iter().filter(|uri| heard.contains(&***uri)).map(Arc::clone).collect();
        Opened::Acknowledged(Open { honoured, stream, since: Instant::now() })
    }
}

/// Waits before the next attempt; somebody who wants something brings it forward.
async fn pause(wishes: &mut watch::Receiver<()>, wait: Duration) {
    tokio::select! {
        _ = wishes.changed() => sleep(GATHER).await,
        () = sleep(wait) => {}
    }
}

/// Waits for the end of the subscription; for ever where there is none.
async fn ended(open: &mut Option<Open>) {
    match open {
        Some(open) => drop((&mut open.stream).await),
        None => std::future::pending().await,
    }
}

fn flat(end: Result<End, tokio::task::JoinError>) -> End {
    end.unwrap_or_else(|error| Err(Failure::unavailable("the subscription was dropped").because(error)))
}

/// What it means that a subscription ended before it was acknowledged.
fn refusal(modern: &Modern, end: End) -> Opened {
    match end {
        Ok(Reply { response, .. }) if matches!(response.body, Body::Error(_)) => {
            Opened::Refused(Ok(Outcome::Error(Answer { response, form: ResultForm::Tagged })))
        }
        Ok(_) => Opened::Failed(Failure::unavailable("it ended the subscription at once")),
        Err(failure) if is_refused(&Err(failure.clone())) => {
            Opened::Refused(Err(failure.into_error(modern.wire.unsolicited.upstream())))
        }
        Err(failure) => Opened::Failed(failure),
    }
}

/// What a client hears of a resource that is told of.
fn agreed() -> Option<Consent> {
    let text = Bytes::from_static(br#"{"jsonrpc":"2.0","id":0,"result":{"resultType":"complete"}}"#);
    match parse(text) {
        Ok(Message::Response(response)) => {
            Some(Ok(Outcome::Complete(Answer { response, form: ResultForm::Tagged })))
        }
        Ok(Message::Request(_) | Message::Notification(_)) | Err(_) => None,
    }
}

/// What it hears of one that is not.
fn declined(modern: &Modern) -> Consent {
    let failure = Failure::unavailable("it does not tell of changes of this resource");
    let failure = Failure { kind: GatewayErrorKind::MethodNotFound, ..failure };
    Err(failure.into_error(modern.wire.unsolicited.upstream()))
}
