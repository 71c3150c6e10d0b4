//! What a tool of a demo server is, what it takes, and what it gives back.
//!
//! Must not know: transports, eras.

use bytes::Bytes;
use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::mcp::{ObjectView, Raw};

/// One tool.
pub(super) struct Tool {
    /// Its name.
    pub(super) name: &'static str,
    /// Its entry in `tools/list`: one JSON object.
    pub(super) definition: &'static str,
    /// What it does.
    pub(super) run: Run,
}

/// How a tool runs.
#[derive(Clone, Copy)]
pub(super) enum Run {
    /// At once.
    Now(fn(&Arguments) -> Result<Output, String>),
    /// Over some time, with progress.
    Slow(fn(Arguments, Progress) -> BoxFuture<'static, Result<Output, String>>),
}

/// What a tool gives back. An `Err` of its run is text for the model, in a result that says `isError`.
#[derive(Debug)]
pub(super) struct Output {
    /// The text, as a JSON string.
    pub(super) text: Raw,
    /// The same as data, where the tool has an output schema.
    pub(super) structured: Option<Value>,
}

impl Output {
    /// Text alone.
    pub(super) fn text(text: &str) -> Self {
        Self { text: Raw::from_text(text), structured: None }
    }

    /// Data; its text is the data as JSON, as the spec wants it for clients that know no structured content.
    pub(super) fn data(value: Value) -> Self {
        Self { text: Raw::from_text(&value.to_string()), structured: Some(value) }
    }
}

/// The arguments of a call.
#[derive(Debug)]
pub(super) struct Arguments {
    text: Bytes,
    view: ObjectView,
}

impl Arguments {
    /// Takes the object; `None` is an empty one.
    pub(super) fn new(raw: Option<Raw>) -> Self {
        let text = raw.map_or_else(|| Bytes::from_static(b"{}"), |raw| raw.bytes().clone());
        let view = ObjectView::of(&text);
        Self { text, view }
    }

    /// A required string, as it came, quotes and escapes included.
    pub(super) fn raw_text(&self, key: &str) -> Result<Raw, String> {
        let raw = self.view.raw(&self.text, key).ok_or_else(|| format!("`{key}` is missing"))?;
        match raw.bytes().first() {
            Some(b'"') => Ok(raw),
            _ => Err(format!("`{key}` must be a string")),
        }
    }

    /// A required string.
    pub(super) fn text(&self, key: &str) -> Result<String, String> {
        self.raw_text(key)?.string().ok_or_else(|| format!("`{key}` holds half a surrogate pair"))
    }

    /// A string that may be absent.
    pub(super) fn optional_text(&self, key: &str) -> Result<Option<String>, String> {
        match self.view.get(&self.text, key) {
            Some(_) => self.text(key).map(Some),
            None => Ok(None),
        }
    }

    /// A required number.
    pub(super) fn number(&self, key: &str) -> Result<f64, String> {
        let raw = self.view.raw(&self.text, key).ok_or_else(|| format!("`{key}` is missing"))?;
        serde_json::from_slice(raw.bytes()).map_err(|_| format!("`{key}` must be a number"))
    }

    /// An integer between `least` and `most`; `default` where it is absent.
    pub(super) fn integer(&self, key: &str, default: i64, least: i64, most: i64) -> Result<i64, String> {
        let Some(raw) = self.view.raw(&self.text, key) else { return Ok(default) };
        let number: i64 =
            serde_json::from_slice(raw.bytes()).map_err(|_| format!("`{key}` must be an integer"))?;
        match (least..=most).contains(&number) {
            true => Ok(number),
            false => Err(format!("`{key}` must be between {least} and {most}")),
        }
    }

    /// Whether there is such an argument.
    pub(super) fn has(&self, key: &str) -> bool {
        self.view.get(&self.text, key).is_some()
    }
}

/// Tells the caller how far a slow tool is, where it wants to know.
#[derive(Clone, Debug)]
pub(super) struct Progress {
    /// The caller's token as JSON text.
    token: Option<Raw>,
    /// Takes whole messages; the transport decides how they are framed.
    sink: mpsc::Sender<Bytes>,
}

impl Progress {
    /// Reports to `sink` under the caller's token; without one, nowhere.
    pub(super) fn new(token: Option<Raw>, sink: mpsc::Sender<Bytes>) -> Self {
        Self { token, sink }
    }

    /// Says that `done` of `total` steps are done. `done` grows from report to report.
    pub(super) async fn report(&self, done: u64, total: u64, message: &str) {
        let Some(token) = &self.token else { return };
        let message = Raw::from_text(message);
        let text = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{},"progress":{done},"total":{total},"message":{}}}}}"#,
            token.text(),
            message.text()
        );
        // Nobody listens any more: the call itself will end.
        drop(self.sink.send(Bytes::from(text)).await);
    }
}
