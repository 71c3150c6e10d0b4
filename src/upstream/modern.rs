//! Speaking with a modern server: every request stands alone, with its metadata in the body and mirrored in
//! the headers.
//!
//! Must not know: how the era was found out.

mod following;
mod subscription;

use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::failure::Failure;
use super::listener::{Listener, Logs};
use super::transport::{Farewell, Outgoing, Resumption, Transport};
use super::wire::Wire;
use crate::exchange::{Answer, Call, Cancel, Hop, Outcome, ResultForm};
use crate::mcp::{Body, Id, Method, ProtocolVersion, Raw, Request, Response, Routing, key};
use crate::translate::hello::{Hello, own_meta, write_request};
use crate::translate::input;
use crate::translate::to_legacy::Onward;
use crate::wire::headers::{METHOD, NAME, PROTOCOL_VERSION, encode_value};
use crate::wire::mirror::Mirrors;

/// A connection to a modern server.
#[derive(Debug)]
pub(super) struct Modern {
    wire: Arc<Wire>,
    hello: Hello,
    mirrors: ArcSwap<Mirrors>,
    tasks: TaskTracker,
    _subscription: DropGuard,
}

/// The headers of a modern request. The body has the same; servers compare.
pub(super) fn headers(version: ProtocolVersion, method: &str, name: Option<&str>) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(8);
    headers.insert(PROTOCOL_VERSION, HeaderValue::from_static(version.as_str()));
    let named = [(METHOD, Some(method)), (NAME, name)];
    for (header, text) in named {
        if let Some(value) = text.and_then(|text| HeaderValue::from_str(&encode_value(text)).ok()) {
            headers.insert(header, value);
        }
    }
    headers
}

impl Modern {
    /// Takes over a connection whose server is known to be modern, and subscribes to the changes of its
    /// lists, if it tells of them.
    pub(super) fn new(wire: Arc<Wire>, hello: Hello, tasks: &TaskTracker) -> Self {
        wire.unsolicited.stop_answering();
        let ended = CancellationToken::new();
        let told = subscription::offered(&hello);
        if !told.is_empty() && wire.tenancy.listens {
            let kept = subscription::keep(Arc::clone(&wire), hello.clone(), told);
            let (ended, closed) = (ended.clone(), Arc::clone(&wire));
            tasks.spawn(async move {
                tokio::select! {
                    () = kept => {}
                    () = ended.cancelled() => {}
                    _ = closed.transport.closed() => {}
                }
            });
        }
        Self {
            wire,
            hello,
            mirrors: ArcSwap::default(),
            tasks: tasks.clone(),
            _subscription: ended.drop_guard(),
        }
    }

    pub(super) fn hello(&self) -> &Hello {
        &self.hello
    }

    pub(super) fn wire(&self) -> &Wire {
        &self.wire
    }

    /// From now on the arguments that these name go into headers.
    pub(super) fn mirror(&self, mirrors: Arc<Mirrors>) {
        self.mirrors.store(mirrors);
    }

    /// Asks something of our own.
    pub(super) async fn ask(&self, method: &str, params: &[(&str, Raw)]) -> Result<Response, Failure> {
        let version = self.hello.version;
        let write = |id: &Id| write_request(id, method, params, &own_meta(version, &serde_json::json!({})));
        let reply = self.wire.ask(write, Arc::new(headers(version, method, None))).await?;
        Ok(reply.response)
    }

    /// Carries one call.
    pub(super) async fn call(&self, call: &Call, native: &str) -> Result<Outcome, Failure> {
        refuse_errors(call)?;
        let id = self.wire.mint();
        let own = Id::from(id);
        let token = call.hop.progress_token.as_ref().map(|_| Raw::trusted(own.bytes().clone()));
        let onward = Onward { id: &own, native, progress_token: token.as_ref(), tasks: call.hop.tasks };
        let name = matches!(call.method.routing(), Routing::Name(_) | Routing::Uri | Routing::Task)
            .then_some(native);
        let mut headers = headers(self.hello.version, &call.request.method, name);
        let mirrors = self.mirrors.load();
        if let Some(mirror) = mirrors.get(native).filter(|_| call.method == Method::ToolsCall) {
            mirror.add_to(&mut headers, &call.request);
        }
        let logs = if call.hop.log_level.is_some() { Logs::Asked } else { Logs::Unknown };
        let outgoing = Outgoing {
            id,
            text: write(&call.request, &call.hop, self.hello.version, onward),
            headers: Arc::new(headers),
            listener: Some(Listener::of(call, logs)),
            farewell: farewell(&self.wire, call.cancel.clone()),
            resumption: Resumption::Never,
        };
        let reply = self.wire.transport.request(outgoing).await?;
        self.wire.note(&reply);
        Ok(read(reply.response))
    }

    pub(super) async fn stop(&self) {
        self.wire.transport.stop().await;
    }
}

/// Ends a retry that has an error where the server waits for a result: it has no way to hear that.
fn refuse_errors(call: &Call) -> Result<(), Failure> {
    if call.hop.refused_inputs.is_empty() {
        return Ok(());
    }
    let answers = input::read_answers(&call.request);
    let is_missing = |key: &str| !answers.iter().any(|(answered, _)| &**answered == key);
    match call.hop.refused_inputs.iter().find(|(key, _)| is_missing(key)) {
        Some((_, error)) => {
            let said = error.object().string(error.bytes(), "message").unwrap_or_default();
            Err(Failure::unanswered(format!("asked for input, which the client refused: {said}")))
        }
        None => Ok(()),
    }
}

/// How a request is taken back: by a message, or by closing its stream.
fn farewell(wire: &Wire, cancel: Cancel) -> Farewell {
    match wire.transport {
        Transport::Stdio(_) | Transport::Sse(_) => Farewell::Cancelled(cancel),
        Transport::Http(_) => Farewell::Silent,
    }
}

/// Writes a request for a modern server: the metadata of the hop is set, where it is not right already.
fn write(request: &Request, hop: &Hop, version: ProtocolVersion, onward: Onward<'_>) -> Bytes {
    let wanted = [
        (key::PROTOCOL_VERSION, Some(Raw::from_text(version.as_str()))),
        (key::CLIENT_INFO, hop.client_info.clone()),
        (
            key::CLIENT_CAPABILITIES,
            Some(hop.capabilities.clone().unwrap_or_else(|| Raw::trusted(Bytes::from_static(b"{}")))),
        ),
        (key::LOG_LEVEL, hop.log_level.clone()),
    ];
    let mut meta = onward.meta();
    let changes = wanted.into_iter().filter(|(name, value)| request.meta(name) != *value);
    meta.extend(changes.map(|(name, value)| (name, value.map(|raw| raw.bytes().clone()))));
    request.draft(onward.id, &onward.params(request), &meta).finish()
}

/// Reads the response of a modern server. One without `resultType` is complete.
fn read(response: Response) -> Outcome {
    let Body::Result(_) = response.body else {
        return Outcome::Error(Answer { response, form: ResultForm::Tagged });
    };
    let kind = response.result("resultType");
    let form = if kind.is_some() { ResultForm::Tagged } else { ResultForm::Bare };
    let asks = kind.and_then(|kind| kind.string()).is_some_and(|kind| kind == "input_required");
    let answer = Answer { response, form };
    if asks { Outcome::InputRequired(answer) } else { Outcome::Complete(answer) }
}
