//! What a server says without being asked: changes of its lists, updates of its resources, log lines that belong
//! to no call, requests of its own, and noise. One per connection; what is said of lists and resources counts on any.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::outside::Outside;
use super::question::WayBack;
use crate::exchange::Outcome;
use crate::gateway::{Consent, Followed};
use crate::mcp::task;
use crate::mcp::{Code, Id, ListKind, Notification, PerKind, Raw, Request, code_of, key};
use crate::telemetry::{EventMissed, Metrics, SubscriptionLost, UpstreamNoise};
use crate::translate::hello::strings;

/// How much of a piece of noise is shown.
const SAMPLE: usize = 200;

/// Which lists of a server have changed, on whatever connection it was said.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    changed: Notify,
    doubted: Mutex<PerKind<bool>>,
}

/// Takes what belongs to no call.
#[derive(Debug)]
pub(super) struct Unsolicited {
    upstream: Arc<str>,
    metrics: Arc<Metrics>,
    doubts: Arc<Doubts>,
    answers: AtomicBool,
    opened: Instant,
    /// When something came last, in milliseconds since then.
    heard_ms: AtomicU64,
    followed: Arc<Followed>,
    /// Who can be asked outside of calls.
    outside: Option<Outside>,
    /// Who waits for the acknowledgement of a subscription, by our id for it.
    acknowledgements: Mutex<HashMap<u64, oneshot::Sender<Vec<String>>>>,
}

impl Unsolicited {
    pub(super) fn new(
        (upstream, metrics): (Arc<str>, Arc<Metrics>),
        (doubts, followed): (Arc<Doubts>, Arc<Followed>),
        outside: Option<Outside>,
    ) -> Self {
        Self {
            upstream,
            metrics,
            doubts,
            answers: AtomicBool::new(true),
            opened: Instant::now(),
            heard_ms: AtomicU64::new(0),
            followed,
            outside,
            acknowledgements: Mutex::default(),
        }
    }

    /// The name of the upstream.
    pub(super) fn upstream(&self) -> &Arc<str> {
        &self.upstream
    }

    /// Something came from the server.
    pub(super) fn hear(&self) {
        let since = u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.heard_ms.fetch_max(since, Ordering::Relaxed);
    }

    /// When something came last.
    pub(super) fn heard_at(&self) -> Instant {
        self.opened + Duration::from_millis(self.heard_ms.load(Ordering::Relaxed))
    }

    /// From now on requests of the server are left unanswered: modern servers may send none, and must not
    /// be sent responses.
    pub(super) fn stop_answering(&self) {
        self.answers.store(false, Ordering::Relaxed);
    }

    /// Waits until the server says that lists of its have changed, or somebody found it out, and tells which.
    /// What happens while nobody waits is kept, once. Cancel safe.
    pub(super) async fn changed(&self) -> PerKind<bool> {
        self.doubts.changed.notified().await;
        std::mem::take(&mut *self.doubts.doubted.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Has these lists read again.
    pub(super) fn doubt(&self, kinds: &[ListKind]) {
        let mut doubted = self.doubts.doubted.lock().unwrap_or_else(PoisonError::into_inner);
        kinds.iter().for_each(|kind| *doubted.kind_mut(*kind) = true);
        drop(doubted);
        self.doubts.changed.notify_one();
    }

    /// Has everything looked at again: what has changed meanwhile was told to nobody.
    pub(super) fn doubt_all(&self) {
        self.doubt(&ListKind::ALL);
        self.followed.doubt();
    }

    /// Notes what the server said about a resource that it was to tell of.
    pub(super) fn settle(&self, uri: &str, verdict: Consent) {
        let reason = match &verdict {
            Ok(Outcome::Error(answer)) => answer.response.error_message().unwrap_or_default(),
            Ok(_) => String::new(),
            Err(error) => error.text.to_string(),
        };
        if self.followed.settle(uri, verdict) {
            SubscriptionLost { upstream: &self.upstream, uri, reason: &reason }.emit(&self.metrics);
        }
    }

    /// Waits for the acknowledgement of the subscription with this id: the resources, or tasks, that it names.
    pub(super) fn acknowledgement(&self, id: u64) -> oneshot::Receiver<Vec<String>> {
        let (sender, acknowledged) = oneshot::channel();
        let mut waiting = self.acknowledgements.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever gave up has no use for it.
        waiting.retain(|_, sender| !sender.is_closed());
        waiting.insert(id, sender);
        acknowledged
    }

    fn acknowledged(&self, notification: &Notification) {
        let meta = notification.param("_meta");
        let id = meta.and_then(|meta| meta.object().raw(meta.bytes(), key::SUBSCRIPTION_ID));
        let id = id.and_then(|id| Id::from_text(id.bytes().clone())?.number());
        let mut waiting = self.acknowledgements.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(sender) = id.and_then(|id| waiting.remove(&id)) else { return };
        let filter = notification.param("notifications").filter(Raw::is_object);
        let named = |member: &str| {
            let named = filter.as_ref().and_then(|filter| filter.object().raw(filter.bytes(), member));
            strings(named.as_ref())
        };
        // Nobody waits any more where this fails. No subscription is to both.
        let _gone = sender.send([named("resourceSubscriptions"), named("taskIds")].concat());
    }

    /// The client of a call missed a notification.
    pub(super) fn missed(&self) {
        EventMissed { upstream: &self.upstream }.emit(&self.metrics);
    }

    /// Takes a notification that belongs to no call.
    pub(super) fn notification(&self, notification: &Notification) {
        match &*notification.method {
            "notifications/tools/list_changed" => self.doubt(&[ListKind::Tools]),
            "notifications/prompts/list_changed" => self.doubt(&[ListKind::Prompts]),
            "notifications/resources/list_changed" => {
                self.doubt(&[ListKind::Resources, ListKind::Templates]);
            }
            "notifications/resources/updated" => match notification.param_string("uri") {
                Some(uri) => self.followed.updated(&uri),
                None => self.noise(&notification.text),
            },
            "notifications/tasks/status" | "notifications/tasks" => {
                match notification.param_string(task::TASK_ID) {
                    Some(task) => self.followed.task_status(&task, notification.clone()),
                    None => self.noise(&notification.text),
                }
            }
            "notifications/subscriptions/acknowledged" => self.acknowledged(notification),
            "notifications/message" => {
                let text = notification.param("data").map(|raw| clip(raw.text()).to_owned());
                let level = notification.param_string("level").unwrap_or_default();
                tracing::debug!(upstream = %self.upstream, level, text, "log message of an upstream");
            }
            method => tracing::debug!(upstream = %self.upstream, method, "notification left aside"),
        }
    }

    /// Takes a request of the server that belongs to no call, if it is a question to the session that has the
    /// connection for itself, and that session can be asked now; gives it back if not.
    pub(super) fn ask(&self, request: Request, way_back: impl FnOnce() -> WayBack) -> Option<Request> {
        match &self.outside {
            Some(outside) if self.answers.load(Ordering::Relaxed) => outside.ask(request, way_back),
            Some(_) | None => Some(request),
        }
    }

    /// The answer to a request of the server: an empty result for a ping, else that we do not know the
    /// method: nobody can be asked.
    pub(super) fn answer(&self, request: &Request) -> Option<Bytes> {
        if !self.answers.load(Ordering::Relaxed) {
            // It speaks out of turn: counted and shown like other noise.
            self.noise(&request.text);
            return None;
        }
        let id = String::from_utf8_lossy(request.id.bytes());
        let body = match &*request.method {
            "ping" => "\"result\":{}".to_owned(),
            _ => {
                let code = code_of(Code::MethodNotFound);
                format!("\"error\":{{\"code\":{code},\"message\":\"Method not found\"}}")
            }
        };
        Some(Bytes::from(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},{body}}}")))
    }

    /// Takes what is no message.
    pub(super) fn noise(&self, text: &[u8]) {
        let text = String::from_utf8_lossy(text.get(..text.len().min(SAMPLE * 4)).unwrap_or_default());
        UpstreamNoise { upstream: &self.upstream, sample: clip(text.trim()) }.emit(&self.metrics);
    }
}

/// The beginning of a text.
fn clip(text: &str) -> &str {
    text.get(..text.floor_char_boundary(SAMPLE)).unwrap_or(text)
}
