//! Keeps a legacy server subscribed to what clients follow: one request for each resource, made again when the
//! server has lost its session.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::watch;
use tokio::time::timeout;

use super::Legacy;
use crate::exchange::Outcome;
use crate::gateway::{Followed, Wanted};
use crate::mcp::{Raw, Response};
use crate::translate::to_legacy;
use crate::upstream::failure::Failure;
use crate::upstream::until;

/// How many such requests are on their way at the same time.
const AT_ONCE: usize = 16;
/// How long the server may take for one.
const ASK_TIME: Duration = Duration::from_secs(10);

/// What is asked of a server about a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Subscribe,
    Unsubscribe,
}

/// How asking ended.
type Done = (Arc<str>, Act, Result<Response, Failure>);

/// The subscriptions of one connection.
struct Keeper<'a> {
    legacy: &'a Legacy,
    followed: &'a Followed,
    /// What the server has been asked for, and agreed to.
    made: HashSet<Arc<str>>,
    busy: HashSet<Arc<str>>,
    /// Those of the busy ones that were asked for in an earlier session.
    stale: HashSet<Arc<str>>,
    running: FuturesUnordered<BoxFuture<'a, Done>>,
}

impl Legacy {
    /// Keeps the server subscribed to what is followed, for as long as the future lives. It does not end.
    pub(in crate::upstream) async fn follow(&self, followed: &Followed) {
        let mut wishes = followed.wishes();
        let mut sessions = self.session.subscribe();
        let mut keeper = Keeper {
            legacy: self,
            followed,
            made: HashSet::new(),
            busy: HashSet::new(),
            stale: HashSet::new(),
            running: FuturesUnordered::new(),
        };
        followed.unsettle();
        loop {
            wishes.mark_unchanged();
            let wanted = followed.wanted();
            keeper.start(&wanted);
            tokio::select! {
                Ok(()) = wishes.changed() => {}
                Ok(()) = renewed(&mut sessions) => keeper.forget(),
                Some(done) = keeper.running.next() => keeper.note(done),
                () = until(wanted.due) => {}
            }
        }
    }
}

async fn renewed(sessions: &mut watch::Receiver<super::Session>) -> Result<(), watch::error::RecvError> {
    sessions.changed().await
}

impl Keeper<'_> {
    /// Asks for what is wanted and not made, and takes back what is made and not wanted.
    fn start(&mut self, wanted: &Wanted) {
        let superfluous = self.made.difference(&wanted.all).map(|uri| (Arc::clone(uri), Act::Unsubscribe));
        let missing = wanted.open.iter().map(|uri| (Arc::clone(uri), Act::Subscribe));
        let due: Vec<_> = superfluous.chain(missing).filter(|(uri, _)| !self.busy.contains(uri)).collect();
        for (uri, act) in due {
            if self.running.len() >= AT_ONCE {
                return;
            }
            self.busy.insert(Arc::clone(&uri));
            self.running.push(Box::pin(ask(self.legacy, uri, act)));
        }
    }

    fn note(&mut self, (uri, act, answer): Done) {
        self.busy.remove(&uri);
        let is_stale = self.stale.remove(&uri);
        match (act, answer.map(to_legacy::read_response)) {
            // It may have been another session that agreed: this one is asked.
            (Act::Subscribe, Ok(Outcome::Complete(_))) if is_stale => {}
            (Act::Subscribe, Ok(outcome)) => {
                if matches!(outcome, Outcome::Complete(_)) {
                    self.made.insert(Arc::clone(&uri));
                }
                self.legacy.wire.unsolicited.settle(&uri, Ok(outcome));
            }
            (Act::Subscribe, Err(failure)) => {
                let error = failure.into_error(self.legacy.wire.unsolicited.upstream());
                self.legacy.wire.unsolicited.settle(&uri, Err(error));
            }
            // It is not wanted, whatever became of that.
            (Act::Unsubscribe, _) => drop(self.made.remove(&uri)),
        }
    }

    /// The server knows of nothing any more: its session is another one. What is being asked goes on, as it may be
    /// what found the earlier session lost.
    fn forget(&mut self) {
        self.made.clear();
        self.stale.clone_from(&self.busy);
        self.followed.unsettle();
    }
}

async fn ask(legacy: &Legacy, uri: Arc<str>, act: Act) -> Done {
    let method = match act {
        Act::Subscribe => "resources/subscribe",
        Act::Unsubscribe => "resources/unsubscribe",
    };
    let params = [("uri", Raw::from_text(&uri))];
    let answer = match timeout(ASK_TIME, Box::pin(legacy.ask(method, &params))).await {
        Ok(answer) => answer,
        Err(_) => Err(Failure::unavailable("it did not answer the subscription in time")),
    };
    (uri, act, answer)
}
