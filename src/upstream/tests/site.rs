//! A scripted HTTP endpoint.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, Method};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// One request that the endpoint has seen.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) verb: Method,
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
    pub(crate) text: Bytes,
}

impl Seen {
    pub(crate) fn method(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }

    pub(crate) fn tool(&self) -> &str {
        self.body["params"]["name"].as_str().unwrap_or_default()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// The JSON text of a response to this request.
    pub(crate) fn result(&self, result: &Value) -> String {
        json!({"jsonrpc": "2.0", "id": self.body["id"], "result": result}).to_string()
    }

    /// The JSON text of an error for this request.
    pub(crate) fn error(&self, code: i64, message: &str) -> String {
        json!({"jsonrpc": "2.0", "id": self.body["id"], "error": {"code": code, "message": message}})
            .to_string()
    }
}

type Script = dyn Fn(&Seen) -> Response + Send + Sync;

/// The endpoint; ends when dropped.
pub(crate) struct Site {
    pub(crate) url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    _tasks: JoinSet<()>,
}

#[derive(Clone)]
struct Shared {
    script: Arc<Script>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Site {
    pub(crate) async fn open(script: impl Fn(&Seen) -> Response + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::open_at(listener, script)
    }

    pub(crate) fn open_at(
        listener: TcpListener,
        script: impl Fn(&Seen) -> Response + Send + Sync + 'static,
    ) -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let shared = Shared { script: Arc::new(script), seen: Arc::clone(&seen) };
        let router = Router::new().fallback(answer).with_state(shared);
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, seen, _tasks: tasks }
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// What was seen with this method.
    pub(crate) fn seen_of(&self, method: &str) -> Vec<Seen> {
        self.seen().into_iter().filter(|seen| seen.method() == method).collect()
    }
}

async fn answer(State(shared): State<Shared>, request: Request) -> Result<Response, Infallible> {
    let (parts, body) = request.into_parts();
    let text = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let body = serde_json::from_slice(&text).unwrap_or(Value::Null);
    let seen = Seen { verb: parts.method, target: parts.uri.to_string(), headers: parts.headers, body, text };
    shared.seen.lock().unwrap().push(seen.clone());
    Ok((shared.script)(&seen))
}

pub(crate) fn status(status: u16, body: &str) -> Response {
    Response::builder().status(status).body(Body::from(body.to_owned())).unwrap()
}

pub(crate) fn json_text(text: String) -> Response {
    typed(200, "application/json", text)
}

pub(crate) fn typed(status: u16, content_type: &str, text: String) -> Response {
    Response::builder().status(status).header("content-type", content_type).body(Body::from(text)).unwrap()
}

/// A stream of these pieces, which then ends, breaks, or stays open.
pub(crate) fn stream_of(pieces: Vec<String>, end: End) -> Response {
    use futures_util::StreamExt;
    let pieces = stream::iter(pieces.into_iter().map(Ok));
    let tail = match end {
        End::Ends => stream::empty().boxed(),
        End::Breaks => stream::once(async { Err(std::io::Error::other("reset")) }).boxed(),
        End::Stays => stream::pending().boxed(),
    };
    Response::builder()
        .header("content-type", "Text/Event-Stream; charset=utf-8")
        .body(Body::from_stream(pieces.chain(tail)))
        .unwrap()
}

#[derive(Clone, Copy)]
pub(crate) enum End {
    Ends,
    Breaks,
    Stays,
}

/// What a sound legacy server without sessions says to all but `tools/call`.
pub(crate) fn legacy(seen: &Seen) -> Response {
    match seen.method() {
        "initialize" => {
            json_text(seen.result(
                &json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}, "logging": {}}}),
            ))
        }
        "tools/list" => json_text(seen.result(&json!({"tools": [{"name": "echo", "inputSchema": {}}]}))),
        "logging/setLevel" => json_text(seen.result(&json!({}))),
        "tools/call" => json_text(seen.result(&content("hello"))),
        method if method.starts_with("notifications/") => status(202, ""),
        "" => status(405, ""),
        _ => json_text(seen.error(-32601, "Method not found")),
    }
}

/// What a sound modern server says.
pub(crate) fn modern(seen: &Seen) -> Response {
    let mut result = match seen.method() {
        "server/discover" => json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}),
        "tools/list" => {
            json!({"tools": [{"name": "echo", "inputSchema": {}}], "ttlMs": 60000, "cacheScope": "public"})
        }
        "tools/call" => content("hello"),
        "" => return status(405, ""),
        _ => return typed(404, "application/json", seen.error(-32601, "Method not found")),
    };
    result["resultType"] = json!("complete");
    json_text(seen.result(&result))
}

pub(crate) fn content(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}
