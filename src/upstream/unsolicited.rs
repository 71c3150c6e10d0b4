//! What a server says without being asked: changes of its lists, log lines that belong to no call, requests
//! of its own, and noise. One per connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use tokio::sync::Notify;

use crate::mcp::{Code, Notification, Request, code_of};
use crate::telemetry::{Metrics, UpstreamNoise};

/// How much of a piece of noise is shown.
const SAMPLE: usize = 200;

/// Takes what belongs to no call.
#[derive(Debug)]
pub(super) struct Unsolicited {
    upstream: Arc<str>,
    metrics: Arc<Metrics>,
    tools_changed: Notify,
    answers: AtomicBool,
}

impl Unsolicited {
    pub(super) fn new(upstream: Arc<str>, metrics: Arc<Metrics>) -> Self {
        Self { upstream, metrics, tools_changed: Notify::new(), answers: AtomicBool::new(true) }
    }

    /// From now on requests of the server are left unanswered: modern servers may send none, and must not
    /// be sent responses.
    pub(super) fn stop_answering(&self) {
        self.answers.store(false, Ordering::Relaxed);
    }

    /// Waits until the server says that its tools have changed, or somebody found it out. What happens while
    /// nobody waits is kept, once. Cancel safe.
    pub(super) async fn tools_changed(&self) {
        self.tools_changed.notified().await;
    }

    /// Has the list of tools read again.
    pub(super) fn doubt_tools(&self) {
        self.tools_changed.notify_one();
    }

    /// Takes a notification that belongs to no call.
    pub(super) fn notification(&self, notification: &Notification) {
        match &*notification.method {
            "notifications/tools/list_changed" => self.doubt_tools(),
            "notifications/message" => {
                let text = notification.param("data").map(|raw| clip(raw.text()).to_owned());
                let level = notification.param_string("level").unwrap_or_default();
                tracing::debug!(upstream = %self.upstream, level, text, "log message of an upstream");
            }
            method => tracing::debug!(upstream = %self.upstream, method, "notification left aside"),
        }
    }

    /// The answer to a request of the server: an empty result for a ping, else that we do not know the
    /// method, since no capability was declared to it.
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
