//! What one session, or one subscription, follows: taken and given back exactly, and what of it was updated.
//!
//! Must not know: how its client asks, and how it is told.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::access::is_admitted;
use super::admit::{AdmittedCall, admit};
use super::error::{GatewayError, GatewayErrorKind};
use super::followed::Follow;
use super::record::CallRecord;
use super::{Current, Gateway};
use crate::catalog::{Candidate, Snapshot};
use crate::config::{Config, Limits};
use crate::exchange::{Call, Outcome, Principal};
use crate::mcp::task::{self, TASK_ID};
use crate::mcp::{Draft, ListKind, Notification, Raw};
use crate::telemetry::Subscribed;

/// The resources and tasks that one session, or one subscription, follows. What is in it is given back when it is
/// dropped, or [`Following::clear`]ed. At most `limits.subscriptions_per_session` of them.
#[derive(Debug, Default)]
pub struct Following {
    followees: Mutex<Followees>,
    /// The session that hears of its tasks, if it does.
    session: Option<Arc<str>>,
}

#[derive(Debug, Default)]
struct Followees {
    all: Vec<Followee>,
    /// How many updates were given out.
    given: u64,
    /// By upstream: the last word on a task that was looked at.
    statuses: HashMap<usize, u64>,
    tasks: Vec<TaskFollowee>,
}

/// One task that a client follows.
#[derive(Debug)]
struct TaskFollowee {
    /// As the client calls it.
    exposed: Arc<str>,
    native: Arc<str>,
    /// The place of its upstream.
    upstream: usize,
    /// The last word on a task of that upstream that was looked at.
    seen: u64,
    _follow: Follow,
    _place: OwnedSemaphorePermit,
    _counted: Subscribed,
}

/// One resource that a client follows.
#[derive(Debug)]
struct Followee {
    /// As the client calls it.
    exposed: Box<str>,
    native: Arc<str>,
    /// The place of its upstream.
    upstream: usize,
    follow: Follow,
    /// Which of the updates that were given out was the last one of this.
    given_as: u64,
    /// Whether one that was given out has not arrived.
    is_due_again: bool,
    _place: OwnedSemaphorePermit,
    _counted: Subscribed,
}

/// All places for what clients follow: `limits.subscriptions`.
#[derive(Debug)]
pub(super) struct Places(Arc<Semaphore>);

impl Places {
    pub(super) fn new(limits: &Limits) -> Self {
        Self(Arc::new(Semaphore::new(limits.subscriptions)))
    }
}

/// A resource that is being asked for; given back when dropped before it is kept.
struct Pending<'a> {
    following: &'a Following,
    exposed: &'a str,
    /// Whether it was followed already, and stays so whatever comes of this.
    is_old: bool,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if !self.is_old {
            self.following.leave(self.exposed);
        }
    }
}

/// A task that is being asked for; given back when dropped before it is kept.
struct PendingTask<'a> {
    following: &'a Following,
    exposed: &'a str,
    is_kept: bool,
}

impl Drop for PendingTask<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.following.leave_task(self.exposed);
        }
    }
}

impl Gateway {
    /// Follows the resource that `call`, a `resources/subscribe`, names, through every check that a call
    /// passes. It is in `following` once its upstream has agreed. Emits `CallFinished`, once, in any case.
    ///
    /// Cancel safe: dropping the future gives back what was taken.
    ///
    /// # Errors
    /// As [`Gateway::call`]; `RateLimited` where as many are followed as may be.
    pub async fn follow(&self, call: Call, following: &Following) -> Result<Outcome, GatewayError> {
        let mut record = CallRecord::start(self, &call);
        let exposed = call.request.param_string("uri").unwrap_or_default();
        let result = match admit(self, call, &mut record.findings) {
            Ok(call) => match following.enter(self, &exposed, &call) {
                Ok(mut pending) => {
                    let result = self.carry(call, &mut record).await;
                    pending.is_old |= matches!(result, Ok(Outcome::Complete(_)));
                    result
                }
                Err(refusal) => Err(refusal),
            },
            Err(refusal) => Err(refusal),
        };
        record.finish(&result);
        result
    }
}

impl Gateway {
    /// Follows the task that `call`, a `tasks/get`, names, through every check that such a call passes: what its
    /// server says of it is told from then on. Ends once the server has agreed to tell; it is asked for nothing else.
    /// Emits `CallFinished`, once, in any case.
    ///
    /// Cancel safe: dropping the future gives back what was taken.
    ///
    /// # Errors
    /// As [`Gateway::follow`]; what the server says where it does not tell of the task.
    pub async fn follow_task(&self, call: Call, following: &Following) -> Result<Outcome, GatewayError> {
        let mut record = CallRecord::start(self, &call);
        let exposed = call.request.param_string(TASK_ID).unwrap_or_default();
        let result = match admit(self, call, &mut record.findings) {
            Ok(call) => self.agree_on_task(&call, &exposed, following).await,
            Err(refusal) => Err(refusal),
        };
        record.finish(&result);
        result
    }

    async fn agree_on_task(
        &self,
        call: &AdmittedCall,
        exposed: &str,
        following: &Following,
    ) -> Result<Outcome, GatewayError> {
        following.enter_task(self, exposed, call)?;
        let mut pending = PendingTask { following, exposed, is_kept: false };
        let target = call.target();
        let followed = self.upstreams.get(target.upstream).and_then(|upstream| upstream.followed().tasks());
        let verdict = match followed {
            Some(tasks) => tasks.verdict(&target.native).await,
            None => Err(GatewayError::new(GatewayErrorKind::Internal, "the upstream does not exist")),
        };
        pending.is_kept = matches!(verdict, Ok(Outcome::Complete(_)));
        verdict
    }

    /// A place for one more thing that somebody follows who follows so many already.
    fn place_to_follow(&self, already: usize) -> Result<OwnedSemaphorePermit, GatewayError> {
        let most = self.config.limits.subscriptions_per_session;
        if already >= most {
            return Err(full(format!(
                "{most} resources are followed already here (`limits.subscriptions_per_session`)"
            )));
        }
        Arc::clone(&self.lineage.places.0).try_acquire_owned().map_err(|_| {
            let most = self.config.limits.subscriptions;
            full(format!("{most} resources are followed already (`limits.subscriptions`)"))
        })
    }
}

impl Following {
    /// What a session follows that also hears how its tasks are.
    #[must_use]
    pub fn with_tasks(session: Arc<str>) -> Self {
        Self { followees: Mutex::default(), session: Some(session) }
    }

    /// Takes a place for what an admitted call wants to follow.
    fn enter<'a>(
        &'a self,
        gateway: &Gateway,
        exposed: &'a str,
        call: &AdmittedCall,
    ) -> Result<Pending<'a>, GatewayError> {
        let target = call.target();
        let Followees { all, tasks, .. } = &mut *self.lock();
        let known = all.iter_mut().find(|followee| &*followee.exposed == exposed);
        if known.is_some_and(|known| known.upstream == target.upstream && known.native == target.native) {
            return Ok(Pending { following: self, exposed, is_old: true });
        }
        let upstream = gateway
            .upstreams
            .get(target.upstream)
            .ok_or_else(|| GatewayError::new(GatewayErrorKind::Internal, "the upstream does not exist"))?;
        let place = gateway.place_to_follow(all.len() + tasks.len())?;
        // It may lead elsewhere by now.
        all.retain(|followee| &*followee.exposed != exposed);
        all.push(Followee {
            exposed: exposed.into(),
            native: Arc::clone(&target.native),
            upstream: target.upstream,
            follow: upstream.followed().enter(&target.native),
            given_as: 0,
            is_due_again: false,
            _place: place,
            _counted: gateway.metrics.subscribed(upstream.name()),
        });
        Ok(Pending { following: self, exposed, is_old: false })
    }

    /// Takes a place for a task that an admitted call asks for. What is said of it from now on is given out.
    fn enter_task(&self, gateway: &Gateway, exposed: &str, call: &AdmittedCall) -> Result<(), GatewayError> {
        let target = call.target();
        let absent = || GatewayError::new(GatewayErrorKind::Internal, "the upstream does not exist");
        let upstream = gateway.upstreams.get(target.upstream).ok_or_else(absent)?;
        let followed = upstream.followed();
        let Followees { all, tasks, .. } = &mut *self.lock();
        if tasks.iter().any(|task| *task.exposed == *exposed) {
            return Ok(());
        }
        let place = gateway.place_to_follow(all.len() + tasks.len())?;
        tasks.push(TaskFollowee {
            exposed: exposed.into(),
            native: Arc::clone(&target.native),
            upstream: target.upstream,
            seen: followed.last_status(),
            _follow: followed.tasks().ok_or_else(absent)?.enter(&target.native),
            _place: place,
            _counted: gateway.metrics.subscribed(upstream.name()),
        });
        Ok(())
    }

    fn leave_task(&self, exposed: &str) {
        self.lock().tasks.retain(|task| *task.exposed != *exposed);
    }

    /// The next word on a task that is followed, as its client knows it.
    fn task_status(&self, gateway: &Gateway, principal: &Principal) -> Option<Bytes> {
        self.lock().tasks.iter_mut().find_map(|task| {
            let followed = gateway.upstreams.get(task.upstream)?.followed();
            while let Some((number, said)) = followed.status_after(task.seen) {
                task.seen = number;
                let is_it = said.param_string(TASK_ID).is_some_and(|id| *id == *task.native);
                let is_it = is_it && gateway.still_admits_task(principal, &task.exposed);
                let text = is_it.then(|| exposed_status(&said, (&task.native, &task.exposed))).flatten();
                if text.is_some() {
                    return text;
                }
            }
            None
        })
    }

    /// Follows a resource no longer; nothing happens where it is not followed.
    pub fn leave(&self, exposed: &str) {
        self.lock().all.retain(|followee| &*followee.exposed != exposed);
    }

    /// Follows nothing any more.
    pub fn clear(&self) {
        let followees = &mut *self.lock();
        followees.all.clear();
        followees.tasks.clear();
    }

    /// How many updates were given out so far.
    pub fn given(&self) -> u64 {
        self.lock().given
    }

    /// Only the first `given` updates have arrived: what was given out after them is given out again.
    pub fn rewind(&self, given: u64) {
        for followee in &mut self.lock().all {
            followee.is_due_again |= followee.given_as > given;
        }
    }

    /// The next update that was not given out yet, by the URI that the client knows, of a resource that
    /// `principal` may see.
    pub(super) fn next(
        &self,
        (config, current): (&Config, &Current),
        principal: &Principal,
    ) -> Option<Arc<str>> {
        let Followees { all, given, .. } = &mut *self.lock();
        all.iter_mut().find_map(|followee| {
            let uri = followee.next((config, current), principal)?;
            *given += 1;
            followee.given_as = *given;
            Some(uri)
        })
    }

    /// The next word on a task of this session that was not given out yet, as its client knows the task. What was
    /// said before the first time is left out.
    pub(super) fn status(&self, gateway: &Gateway, principal: &Principal) -> Option<Bytes> {
        let Some(session) = self.session.as_ref() else { return self.task_status(gateway, principal) };
        let mut followees = self.lock();
        for (index, upstream) in gateway.upstreams.iter().enumerate() {
            let followed = upstream.followed();
            let seen = followees.statuses.entry(index).or_insert_with(|| followed.last_status());
            while let Some((number, said)) = followed.status_after(*seen) {
                *seen = number;
                if let Some(text) = gateway.own_status((principal, session), index, &said) {
                    return Some(text);
                }
            }
        }
        None
    }

    fn lock(&self) -> MutexGuard<'_, Followees> {
        self.followees.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Followee {
    fn next(&mut self, (config, current): (&Config, &Current), principal: &Principal) -> Option<Arc<str>> {
        if std::mem::take(&mut self.is_due_again) {
            return Some(self.exposed.as_ref().into());
        }
        while let Some(uri) = self.follow.next() {
            if uri == self.native {
                return Some(self.exposed.as_ref().into());
            }
            let candidate = Candidate::uri(ListKind::Resources, &uri);
            if is_admitted(config, principal, self.upstream, candidate) {
                return Some(self.expose(current.at(principal), &uri));
            }
        }
        None
    }

    /// What is below the resource, tagged where the resource is.
    fn expose(&self, snapshot: &Snapshot, uri: &str) -> Arc<str> {
        let tags = snapshot.tags(self.upstream);
        let tag = self.exposed.strip_prefix(&*self.native).filter(|tag| !tag.is_empty());
        match (tag, tags.and_then(|tags| tags.expose(uri))) {
            (Some(tag), _) => format!("{uri}{tag}").into(),
            (None, Some(exposed)) => exposed.into(),
            (None, None) => uri.into(),
        }
    }
}

/// What a server says of a task, under the id that its client has; `None` where it names another task, too.
pub(super) fn exposed_status(said: &Notification, (native, exposed): (&str, &str)) -> Option<Bytes> {
    let id = Raw::from_text(exposed);
    let mut draft = Draft::new(said.text.clone());
    for span in task::told(&said.params, &said.text) {
        (task::id_at(&said.text, &span)? == native).then(|| draft.replace(span, id.bytes().clone()))?;
    }
    Some(draft.finish())
}

fn full(text: String) -> GatewayError {
    GatewayError::new(GatewayErrorKind::RateLimited, text)
}
