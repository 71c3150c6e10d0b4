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
use crate::mcp::ListKind;
use crate::telemetry::Subscribed;

/// The resources that one session, or one subscription, follows. What is in it is given back when it is
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

impl Gateway {
    /// Follows the resource that `call`, a `resources/subscribe`, names, through every check that a call
    /// passes. It is in `following` once its upstream has agreed. Emits `CallFinished`, once, in any case.
    ///
    /// Cancel safe: dropping the future gives back what was taken.
    ///
    /// # Errors
    /// As [`Gateway::call`]; `RateLimited` where as many are followed as may be.
    pub async fn follow(&self, call: Call, following: &Following) -> Result<Outcome, GatewayError> {
        let mut record = CallRecord::start(&self.config, &self.metrics, &call);
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
        let all = &mut self.lock().all;
        let known = all.iter_mut().find(|followee| &*followee.exposed == exposed);
        if known.is_some_and(|known| known.upstream == target.upstream && known.native == target.native) {
            return Ok(Pending { following: self, exposed, is_old: true });
        }
        let upstream = gateway
            .upstreams
            .get(target.upstream)
            .ok_or_else(|| GatewayError::new(GatewayErrorKind::Internal, "the upstream does not exist"))?;
        let most = gateway.config.limits.subscriptions_per_session;
        if all.len() >= most {
            return Err(full(format!(
                "{most} resources are followed already here (`limits.subscriptions_per_session`)"
            )));
        }
        let place = Arc::clone(&gateway.lineage.places.0).try_acquire_owned().map_err(|_| {
            let most = gateway.config.limits.subscriptions;
            full(format!("{most} resources are followed already (`limits.subscriptions`)"))
        })?;
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

    /// Follows a resource no longer; nothing happens where it is not followed.
    pub fn leave(&self, exposed: &str) {
        self.lock().all.retain(|followee| &*followee.exposed != exposed);
    }

    /// Follows nothing any more.
    pub fn clear(&self) {
        self.lock().all.clear();
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
        let session = self.session.as_ref()?;
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

fn full(text: String) -> GatewayError {
    GatewayError::new(GatewayErrorKind::RateLimited, text)
}
