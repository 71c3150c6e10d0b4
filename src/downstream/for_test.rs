//! An endpoint over one upstream under the test's control, without a socket.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use axum::body::Body;
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::http::Door;
use crate::config::{Config, Token, for_test};
use crate::exchange::{Answer, Call, Cancel, Event, EventKind, Outcome, ResultForm};
use crate::gateway::{
    AdmittedCall, Followed, Gateway, GatewayError, GatewayErrorKind, Health, List, Listed, Offer, Upstream,
};
use crate::mcp::{Message, PerKind, Raw};
use crate::telemetry::Metrics;
use crate::wire::json;

/// The names of its tools say what they do.
const TOOLS: [&str; 10] =
    ["echo", "talk", "slow", "late", "asks", "fails", "absent", "panics", "breaks", "mirrors"];

/// An upstream without a server.
pub(super) struct Scripted {
    name: Arc<str>,
    offer: watch::Sender<Arc<Offer>>,
    followed: Arc<Followed>,
    /// Why calls were dropped before their end.
    pub(super) dropped: Arc<Mutex<Vec<Option<String>>>>,
    /// The calls that arrived.
    pub(super) calls: Mutex<Vec<Seen>>,
}

/// What arrived with a call.
pub(super) struct Seen {
    pub(super) capabilities: String,
    pub(super) has_session: bool,
}

struct NoteReason(Cancel, Arc<Mutex<Vec<Option<String>>>>);

impl Drop for NoteReason {
    fn drop(&mut self) {
        self.1.lock().unwrap().push(self.0.reason().map(str::to_owned));
    }
}

impl Upstream for Scripted {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn offer(&self) -> watch::Receiver<Arc<Offer>> {
        self.offer.subscribe()
    }

    fn followed(&self) -> &Arc<Followed> {
        &self.followed
    }

    fn call(&self, call: AdmittedCall) -> BoxFuture<'_, Result<Outcome, GatewayError>> {
        async move {
            let tool = call.target().native.clone();
            let call = call.call();
            self.calls.lock().unwrap().push(Seen {
                capabilities: call.hop.capabilities.as_ref().map_or("", Raw::text).to_owned(),
                has_session: call.session.is_some(),
            });
            let answer = |text: String, form| match json::parse(Bytes::from(text)) {
                Ok(Message::Response(response)) => Answer { response, form },
                other => panic!("{other:?}"),
            };
            let ok = || {
                let said = call.request.param("arguments").map_or("null".to_owned(), |raw| raw.text().to_owned());
                let text = format!(r#"{{"jsonrpc":"2.0","id":99,"result":{{"content":[],"said":{said}}}}}"#);
                Ok(Outcome::Complete(answer(text, ResultForm::Bare)))
            };
            match &*tool {
                "talk" => {
                    talk(call).await;
                    ok()
                }
                "slow" => {
                    let _note = NoteReason(call.cancel.clone(), Arc::clone(&self.dropped));
                    std::future::pending().await
                }
                "late" => {
                    tokio::time::sleep(Duration::from_secs(40)).await;
                    ok()
                }
                "asks" => Ok(Outcome::InputRequired(answer(
                    r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","requestState":"s"}}"#.to_owned(),
                    ResultForm::Tagged,
                ))),
                "fails" => Ok(Outcome::Error(answer(
                    r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32021,"message":"needs sampling","data":{"n":1e2}}}"#.to_owned(),
                    ResultForm::Bare,
                ))),
                "absent" => Err(GatewayError::upstream(GatewayErrorKind::Unavailable, &self.name, "is down: refused")
                    .retry_after(Duration::from_millis(2500))),
                "breaks" => {
                    tokio::time::sleep(Duration::from_secs(40)).await;
                    panic!("as it says")
                }
                "panics" => panic!("as it says"),
                _ => ok(),
            }
        }
        .boxed()
    }
}

/// Progress, then log messages of two levels, then one about a list.
async fn talk(call: &Call) {
    let token = call.hop.progress_token.as_ref().map_or("0", Raw::text);
    let events = [
        (EventKind::Progress, format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":1}}}}"#)),
        (EventKind::Log, "{\"jsonrpc\":\"2.0\",\n\"method\":\"notifications/message\",\"params\":{\"level\":\"debug\",\"data\":\"d\"}}".to_owned()),
        (EventKind::Log, r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"e"}}"#.to_owned()),
        (EventKind::Other, r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#.to_owned()),
    ];
    for (kind, text) in events {
        let Ok(Message::Notification(notification)) = json::parse(Bytes::from(text)) else { panic!() };
        call.events.send(Event { kind, notification }).await;
    }
}

fn tools(names: &[&str]) -> PerKind<List> {
    let entries = names.iter().map(|name| listed(name)).collect();
    PerKind { tools: List { entries, is_served: true, ..List::default() }, ..PerKind::default() }
}

fn listed(name: &str) -> Listed {
    let schema = match name {
        "mirrors" => json!({"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "count": {"type": "integer", "x-mcp-header": "Count"},
        }}),
        _ => json!({"type": "object"}),
    };
    let text = Raw::from_value(&json!({"name": name, "inputSchema": schema, "x": 1.0}));
    Listed { name: name.into(), text }
}

/// The endpoint.
pub(super) struct Bench {
    pub(super) door: Door,
    pub(super) gateway: Arc<Gateway>,
    pub(super) upstream: Arc<Scripted>,
}

/// A token that does not expire.
pub(super) fn token(text: &str) -> Token {
    Token { digest: digest(&SHA256, text.as_bytes()).as_ref().try_into().unwrap(), expires: None }
}

impl Bench {
    /// On loopback, with clients `alice` (token `a`), `bob` (token `b`) and `anonymous`.
    pub(super) async fn new(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = for_test::config(&["up"], &["alice", "bob", "anonymous"]);
        config.clients[0].tokens = vec![token("a")];
        config.clients[1].tokens = vec![token("b")];
        config.clients[2].is_anonymous = true;
        change(&mut config);
        let offer = Offer {
            health: Health::Ready,
            lists: tools(&TOOLS),
            capabilities: Some(Raw::from_value(&json!({"tools": {}, "logging": {}}))),
            ..Offer::default()
        };
        let upstream = Arc::new(Scripted {
            name: "up".into(),
            offer: watch::Sender::new(Arc::new(offer)),
            followed: Arc::default(),
            dropped: Arc::default(),
            calls: Mutex::default(),
        });
        let metrics = Arc::new(Metrics::new(&config));
        let gateway = Gateway::new(Arc::new(config), metrics, vec![upstream.clone()]);
        tokio::task::yield_now().await;
        let stop = CancellationToken::new();
        tokio::join!(Arc::clone(&gateway).refresh(stop.clone()), async { stop.cancel() });
        let address = SocketAddr::from(([127, 0, 0, 1], 8080));
        Self { door: Door::new(Arc::clone(&gateway), address), gateway, upstream }
    }

    /// The same, with an offer that may change.
    pub(super) async fn living() -> Self {
        Self::living_with(|_| {}).await
    }

    /// The same, with another configuration.
    pub(super) async fn living_with(change: impl FnOnce(&mut Config)) -> Self {
        let bench = Self::new(change).await;
        TaskTracker::new().spawn(Arc::clone(&bench.gateway).refresh(CancellationToken::new()));
        bench
    }

    /// Has the upstream offer these tools from now on.
    pub(super) fn offer(&self, names: &[&str]) {
        self.upstream.offer.send_modify(|offer| {
            let changed = Offer { lists: tools(names), ..(**offer).clone() };
            *offer = Arc::new(changed);
        });
    }

    /// Tells all streams that the gateway stops.
    pub(super) fn close(&self) {
        self.door.close();
    }

    /// Sends one request and reads the whole answer.
    pub(super) async fn send(&self, request: Ask) -> Got {
        let response = self.door.clone().enter(request.build()).await;
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Got { status: parts.status, headers: parts.headers, body }
    }

    /// Begins a legacy session of `alice`.
    pub(super) async fn session(&self, version: &str) -> String {
        let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}});
        let got = self.send(Ask::message("initialize", params).bearer("a")).await;
        assert_eq!(got.status, 200, "{got:?}");
        got.headers["mcp-session-id"].to_str().unwrap().to_owned()
    }
}

/// A request in the making.
#[derive(Clone)]
pub(super) struct Ask {
    verb: Method,
    path: &'static str,
    headers: Vec<(&'static str, String)>,
    body: Bytes,
}

impl Ask {
    /// A request without body.
    pub(super) fn new(verb: Method, path: &'static str) -> Self {
        Self { verb, path, headers: vec![("host", "127.0.0.1:8080".to_owned())], body: Bytes::new() }
    }

    /// A POST of this text.
    pub(super) fn post(text: impl Into<Bytes>) -> Self {
        let ask = Self::new(Method::POST, "/mcp").header("content-type", "application/json");
        Self { body: text.into(), ..ask }
    }

    /// A request message with id 7.
    pub(super) fn message(method: &str, params: Value) -> Self {
        Self::post(json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}).to_string())
    }

    /// A `tools/call`.
    pub(super) fn call(tool: &str) -> Self {
        Self::message("tools/call", json!({"name": tool, "arguments": {"n": 1}}))
    }

    /// A modern request, complete with headers.
    pub(super) fn modern(method: &str, mut params: Value, more_meta: Value) -> Self {
        let mut meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        meta.as_object_mut().unwrap().extend(more_meta.as_object().cloned().unwrap_or_default());
        let name = params.get("name").and_then(Value::as_str).map(str::to_owned);
        params["_meta"] = meta;
        let ask = Self::message(method, params)
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", method);
        match name {
            Some(name) => ask.header("mcp-name", &name),
            None => ask,
        }
    }

    /// The same message under another id, as JSON text; it must have the id 7.
    pub(super) fn with_id(self, id: &str) -> Self {
        let text = String::from_utf8(self.body.to_vec()).unwrap();
        Self { body: text.replace("\"id\":7", &format!("\"id\":{id}")).into(), ..self }
    }

    pub(super) fn at(self, path: &'static str) -> Self {
        Self { path, ..self }
    }

    pub(super) fn verb(self, verb: Method) -> Self {
        Self { verb, ..self }
    }

    /// Another header; one that is there is replaced.
    pub(super) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.retain(|(there, _)| *there != name);
        self.headers.push((name, value.to_owned()));
        self
    }

    pub(super) fn bearer(self, token: &str) -> Self {
        self.header("authorization", &format!("Bearer {token}"))
    }

    pub(super) fn build(self) -> Request<Body> {
        let request = Request::builder().method(self.verb).uri(self.path);
        let request =
            self.headers.into_iter().fold(request, |request, (name, value)| request.header(name, value));
        request.body(Body::from(self.body)).unwrap()
    }
}

/// The message in an event, if there is one.
pub(super) fn data(frame: &str) -> Option<Value> {
    let lines: String = frame.split('\n').filter_map(|line| line.strip_prefix("data: ")).collect();
    (!lines.is_empty()).then(|| serde_json::from_str(&lines).unwrap())
}

/// An answer.
#[derive(Debug)]
pub(super) struct Got {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Got {
    /// The body as JSON; checks the content type.
    pub(super) fn json(&self) -> Value {
        assert_eq!(self.kind(), "application/json", "{self:?}");
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The data of the events; checks the content type.
    pub(super) fn events(&self) -> Vec<Value> {
        assert_eq!(self.kind(), "text/event-stream", "{self:?}");
        let text = std::str::from_utf8(&self.body).unwrap();
        text.split("\n\n").filter_map(data).collect()
    }

    /// The ids of the events, in order.
    pub(super) fn event_ids(&self) -> Vec<String> {
        let text = std::str::from_utf8(&self.body).unwrap();
        text.split('\n').filter_map(|line| line.strip_prefix("id: ")).map(str::to_owned).collect()
    }

    /// The content type.
    pub(super) fn kind(&self) -> &str {
        self.headers.get("content-type").map_or("", |value| value.to_str().unwrap())
    }

    /// The code of the error.
    pub(super) fn code(&self) -> i64 {
        self.json()["error"]["code"].as_i64().unwrap_or_default()
    }
}
