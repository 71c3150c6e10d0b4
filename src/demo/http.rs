//! A demo server over Streamable HTTP, in both eras at one endpoint: sessions for the legacy one, headers
//! that repeat the body for the modern one.
//!
//! Must not know: the tools.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::serve::ListenerExt as _;
use base64::Engine as _;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, Stream};
use http::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE, HOST, ORIGIN};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request as HttpRequest, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::protocol::{Failure, Server, SlowCall, Step, missing};
use crate::mcp::{Code, Era, Id, Message, ProtocolVersion, Request, key};
use crate::wire::json::{JsonError, parse};

/// Bytes of one request.
const MAX_BODY: usize = 64 << 20;

/// Sessions at the same time; a new one ends the oldest.
const MAX_SESSIONS: usize = 1_000;

/// Progress messages that wait for a slow reader before the call has to.
const QUEUE: usize = 16;

/// What requests under way get at the end.
const DRAIN: Duration = Duration::from_secs(2);

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

struct Shared {
    server: &'static Server,
    sessions: Sessions,
}

/// Serves until `shutdown`, and then what is under way for at most [`DRAIN`].
pub(super) async fn serve(
    server: &'static Server,
    listener: TcpListener,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let shared = Arc::new(Shared { server, sessions: Sessions::default() });
    let router = Router::new().route("/mcp", axum::routing::any(answer)).with_state(shared);
    // An answer in two small writes must not wait for an acknowledgement of the first.
    let listener = listener.tap_io(|socket| drop(socket.set_nodelay(true)));
    let serving = axum::serve(listener, router).with_graceful_shutdown(shutdown.clone().cancelled_owned());
    tokio::select! {
        served = serving.into_future() => served,
        () = async { shutdown.cancelled().await; tokio::time::sleep(DRAIN).await; } => Ok(()),
    }
}

async fn answer(State(shared): State<Arc<Shared>>, request: HttpRequest<Body>) -> Response<Body> {
    let (head, body) = request.into_parts();
    if !is_local(&head.headers) {
        return refuse(403, Failure::new(Code::Http(403), "This Host or Origin is not served here"));
    }
    match head.method {
        Method::POST => post(&shared, &head.headers, body).await.unwrap_or_else(|refusal| refusal),
        Method::DELETE => match session_id(&head.headers).is_some_and(|id| shared.sessions.end(id)) {
            true => empty(204),
            false => refuse(404, Failure::new(Code::Http(404), "There is no such session")),
        },
        _ => {
            let mut response = refuse(405, Failure::new(Code::Http(405), "Messages are sent by POST"));
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST, DELETE"));
            response
        }
    }
}

/// Whether the request means this machine: pages from elsewhere reach a local server by rebinding a name.
fn is_local(headers: &HeaderMap) -> bool {
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let is_loopback = |url: &str| match Url::parse(url).ok().as_ref().and_then(Url::host) {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.to_canonical().is_loopback(),
        None => false,
    };
    text(HOST).is_none_or(|host| is_loopback(&format!("http://{host}/")))
        && text(ORIGIN).is_none_or(is_loopback)
}

async fn post(shared: &Shared, headers: &HeaderMap, body: Body) -> Result<Response<Body>, Response<Body>> {
    check_media_types(headers)?;
    let body = Limited::new(body, MAX_BODY).collect().await;
    let body = body.map_err(|_| refuse(413, Failure::new(Code::Http(413), "The body is too large")))?;
    let message = parse(body.to_bytes()).map_err(|error| {
        let code = match error {
            JsonError::Syntax(_) => Code::ParseError,
            JsonError::Shape(_) | JsonError::Batch => Code::InvalidRequest,
        };
        refuse(400, Failure::new(code, error.to_string()))
    })?;
    match message {
        Message::Request(request) => match begin(shared, headers, &request) {
            Ok(begun) => Ok(begun),
            Err(failure) => Ok(json_response(failure.status, failure.message(Some(&request.id)))),
        },
        Message::Notification(_) | Message::Response(_) => {
            match session_id(headers).is_some_and(|id| !shared.sessions.has(id)) {
                true => Err(refuse(404, Failure::new(Code::Http(404), "There is no such session"))),
                false => Ok(empty(202)),
            }
        }
    }
}

fn check_media_types(headers: &HeaderMap) -> Result<(), Response<Body>> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let is_json = text(CONTENT_TYPE)
        .and_then(|value| value.split(';').next())
        .is_some_and(|value| value.trim().eq_ignore_ascii_case("application/json"));
    if !is_json {
        return Err(refuse(415, Failure::new(Code::Http(415), "The body must be application/json")));
    }
    let accepted = text(ACCEPT).unwrap_or("*/*").to_ascii_lowercase();
    let accepts = |wanted: &str| {
        let mut types = accepted.split(',').filter_map(|part| part.split(';').next()).map(str::trim);
        types.any(|part| part == wanted || part == "*/*")
    };
    if !accepts("application/json") || !accepts("text/event-stream") {
        let text = "The client must accept application/json and text/event-stream";
        return Err(refuse(406, Failure::new(Code::Http(406), text)));
    }
    Ok(())
}

/// Answers a request, in the era that it belongs to. A failure carries its HTTP status.
fn begin(shared: &Shared, headers: &HeaderMap, request: &Request) -> Result<Response<Body>, Failure> {
    let version = headers.get(&VERSION).map(|value| value.to_str().unwrap_or_default());
    let says_modern = version.and_then(ProtocolVersion::known).is_some_and(|it| it.era() == Era::Modern);
    match request.meta(key::PROTOCOL_VERSION) {
        Some(in_body) => check_header(version, "MCP-Protocol-Version", in_body.string().as_deref())?,
        None if says_modern => return Err(missing(key::PROTOCOL_VERSION)),
        None => {}
    }
    let era = shared.server.era(request)?;
    if era == Era::Modern {
        check_modern_headers(headers, request)?;
        return Ok(respond(shared.server.begin(request, era), None));
    }
    if version.is_some_and(|version| ProtocolVersion::known(version).is_none()) {
        return Err(Failure::new(Code::InvalidRequest, "Unsupported MCP-Protocol-Version").with_status(400));
    }
    let session = match (&*request.method, session_id(headers)) {
        ("initialize", _) => {
            let made = shared.sessions.make();
            let broken = || Failure::new(Code::Internal, "No randomness for a session id").with_status(500);
            Some(made.ok_or_else(broken)?)
        }
        (_, Some(id)) if shared.sessions.has(id) => None,
        (_, Some(_)) => {
            return Err(Failure::new(Code::Http(404), "There is no such session").with_status(404));
        }
        (_, None) => {
            return Err(Failure::new(Code::InvalidRequest, "Mcp-Session-Id is missing").with_status(400));
        }
    };
    let step = match shared.server.begin(request, era) {
        Step::Answer { message, status: _ } => Step::Answer { message, status: 200 },
        slow @ Step::Slow(_) => slow,
    };
    Ok(respond(step, session))
}

fn check_modern_headers(headers: &HeaderMap, request: &Request) -> Result<(), Failure> {
    let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    check_header(text(&METHOD), "Mcp-Method", Some(&request.method))?;
    if &*request.method == "tools/call" {
        let decoded = text(&NAME).map(decode_value);
        check_header(decoded.as_deref(), "Mcp-Name", request.param_string("name").as_deref())?;
    }
    Ok(())
}

fn check_header(found: Option<&str>, name: &str, in_body: Option<&str>) -> Result<(), Failure> {
    if found.is_some() && found == in_body {
        return Ok(());
    }
    let text = match found {
        Some(_) => format!("Header mismatch: {name} does not say what the body says"),
        None => format!("Header mismatch: {name} is missing"),
    };
    Err(Failure::new(Code::HeaderMismatch, text).with_status(400))
}

/// Undoes the encoding of values that do not fit a header. What is badly encoded matches nothing.
fn decode_value(value: &str) -> String {
    let Some(encoded) = value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) else {
        return value.to_owned();
    };
    let bytes = base64::engine::general_purpose::STANDARD.decode(encoded).unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_default()
}

fn respond(step: Step, session: Option<String>) -> Response<Body> {
    let mut response = match step {
        Step::Answer { message, status } => json_response(status, message),
        Step::Slow(call) if call.wants_progress() => stream_response(call),
        Step::Slow(call) => {
            let (sink, _nobody) = mpsc::channel(1);
            let whole = stream::once(call.finish(sink)).map(Ok::<_, io::Error>);
            with_type(200, "application/json", Body::from_stream(whole))
        }
    };
    if let Some(value) = session.and_then(|id| HeaderValue::from_str(&id).ok()) {
        response.headers_mut().insert(SESSION_ID, value);
    }
    response
}

fn stream_response(call: SlowCall) -> Response<Body> {
    let mut response = with_type(200, "text/event-stream", Body::from_stream(events(call)));
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// A call as events: its progress, then its answer. Ends with the call; dropping it ends the call.
struct Events {
    progress: mpsc::Receiver<Bytes>,
    call: BoxFuture<'static, Bytes>,
    answer: Option<Bytes>,
    is_over: bool,
}

fn events(call: SlowCall) -> impl Stream<Item = Result<Bytes, io::Error>> {
    let (sink, progress) = mpsc::channel(QUEUE);
    let events = Events { progress, call: Box::pin(call.finish(sink)), answer: None, is_over: false };
    stream::unfold(events, async |mut events| {
        let message = events.next().await?;
        Some((Ok(frame(&message)), events))
    })
}

impl Events {
    async fn next(&mut self) -> Option<Bytes> {
        if self.is_over {
            return None;
        }
        if self.answer.is_none() {
            tokio::select! {
                biased;
                Some(message) = self.progress.recv() => return Some(message),
                answer = &mut self.call => self.answer = Some(answer),
            }
        }
        // What was reported last may still be on its way.
        if let Ok(message) = self.progress.try_recv() {
            return Some(message);
        }
        self.is_over = true;
        self.answer.take()
    }
}

/// One message as an event. Messages are one line each.
fn frame(message: &[u8]) -> Bytes {
    Bytes::from([b"event: message\ndata: ", message, b"\n\n"].concat())
}

fn session_id(headers: &HeaderMap) -> Option<&str> {
    headers.get(&SESSION_ID).map(|value| value.to_str().unwrap_or_default())
}

fn refuse(status: u16, failure: Failure) -> Response<Body> {
    json_response(status, failure.message(None::<&Id>))
}

fn json_response(status: u16, message: Bytes) -> Response<Body> {
    with_type(status, "application/json", Body::from(message))
}

fn with_type(status: u16, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

fn empty(status: u16) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}

/// The sessions of legacy clients. They hold nothing; having one is all there is to it.
#[derive(Default)]
struct Sessions(Mutex<Ids>);

#[derive(Default)]
struct Ids {
    known: HashSet<String>,
    /// Oldest first. Holds ended ones, too, until they come up.
    order: VecDeque<String>,
}

impl Sessions {
    /// A new session; `None` if the system has no randomness to give.
    fn make(&self) -> Option<String> {
        let mut random = [0_u8; 16];
        aws_lc_rs::rand::fill(&mut random).ok()?;
        let id: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut ids = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if ids.order.len() >= MAX_SESSIONS
            && let Some(oldest) = ids.order.pop_front()
        {
            ids.known.remove(&oldest);
        }
        ids.order.push_back(id.clone());
        ids.known.insert(id.clone());
        Some(id)
    }

    fn has(&self, id: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).known.contains(id)
    }

    /// Ends a session; false if there is none.
    fn end(&self, id: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).known.remove(id)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;
    use crate::demo::Demo;

    /// What came back: status, head, body.
    struct Reply(u16, String, String);

    impl Reply {
        fn json(&self) -> Value {
            serde_json::from_str(&self.2).unwrap_or(Value::Null)
        }

        fn session(&self) -> String {
            let line = self.1.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
            line.unwrap_or_default().to_owned()
        }
    }

    struct Client(std::net::SocketAddr);

    impl Client {
        async fn send(&self, method: &str, headers: &[(&str, &str)], body: &str) -> Reply {
            let mut head = format!("{method} /mcp HTTP/1.1\r\nconnection: close\r\n");
            let defaults = [
                ("host", "localhost"),
                ("content-type", "application/json"),
                ("accept", "application/json, text/event-stream"),
            ];
            let kept = defaults.iter().filter(|(name, _)| !headers.iter().any(|(other, _)| other == name));
            for (name, value) in kept.chain(headers) {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
            let mut socket = TcpStream::connect(self.0).await.unwrap();
            let text = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
            socket.write_all(text.as_bytes()).await.unwrap();
            let mut bytes = Vec::new();
            socket.read_to_end(&mut bytes).await.unwrap();
            let text = String::from_utf8(bytes).unwrap();
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            let status = head.split(' ').nth(1).unwrap().parse().unwrap();
            let body = match head.contains("transfer-encoding: chunked") {
                true => unchunk(body),
                false => body.to_owned(),
            };
            Reply(status, head.to_owned(), body)
        }

        async fn post(&self, headers: &[(&str, &str)], body: &Value) -> Reply {
            self.send("POST", headers, &body.to_string()).await
        }
    }

    fn unchunk(mut text: &str) -> String {
        let mut out = String::new();
        while let Some((size, rest)) = text.split_once("\r\n") {
            let size = usize::from_str_radix(size, 16).unwrap();
            out.push_str(&rest[..size]);
            text = rest[size..].trim_start_matches("\r\n");
            if size == 0 {
                break;
            }
        }
        out
    }

    /// Runs `act` against a server, then stops the server.
    async fn with_server<F: Future<Output = ()>>(act: impl FnOnce(Client) -> F) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = Client(listener.local_addr().unwrap());
        let shutdown = CancellationToken::new();
        let acting = async {
            act(client).await;
            shutdown.cancel();
        };
        let (served, ()) = tokio::join!(serve(Demo::Docs.server(), listener, shutdown.clone()), acting);
        served.unwrap();
    }

    fn request(method: &str, params: Value) -> Value {
        json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    }

    fn modern(method: &str, mut params: Value) -> Value {
        params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
        request(method, params)
    }

    #[tokio::test]
    async fn a_legacy_client_has_a_session_from_hello_to_delete() {
        with_server(async |client| {
            let hello = request("initialize", json!({"protocolVersion": "2025-11-25", "capabilities": {}}));
            let opened = client.post(&[], &hello).await;
            assert_eq!(opened.json()["result"]["protocolVersion"], "2025-11-25");
            let id = opened.session();
            assert_eq!(id.len(), 32);
            let session = [("mcp-session-id", id.as_str()), ("mcp-protocol-version", "2025-11-25")];
            let note = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
            assert_eq!(client.post(&session, &note).await.0, 202);
            let list = client.post(&session, &request("tools/list", json!({}))).await;
            assert_eq!(list.json()["result"]["tools"].as_array().unwrap().len(), 4);
            assert_eq!(client.post(&[], &request("tools/list", json!({}))).await.0, 400);
            let lost = client.post(&[("mcp-session-id", "x")], &request("tools/list", json!({}))).await;
            assert_eq!((lost.0, lost.json()["error"]["code"].clone()), (404, json!(404)));
            let unknown = client.post(&session, &request("nothing", json!({}))).await;
            assert_eq!((unknown.0, unknown.json()["error"]["code"].clone()), (200, json!(-32601)));
            let bad = [("mcp-session-id", id.as_str()), ("mcp-protocol-version", "yesterday")];
            assert_eq!(client.post(&bad, &request("ping", json!({}))).await.0, 400);
            assert_eq!(client.send("GET", &session, "").await.0, 405);
            assert_eq!(client.send("DELETE", &session, "").await.0, 204);
            assert_eq!(client.post(&session, &request("ping", json!({}))).await.0, 404);
        })
        .await;
    }

    #[tokio::test]
    async fn a_modern_request_stands_alone_and_its_headers_say_what_its_body_says() {
        with_server(async |client| {
            let version = ("mcp-protocol-version", "2026-07-28");
            let headers = [version, ("mcp-method", "server/discover")];
            let found = client.post(&headers, &modern("server/discover", json!({}))).await;
            assert_eq!(found.json()["result"]["supportedVersions"], json!(["2026-07-28"]));
            assert_eq!(found.session(), "");
            let call = modern("tools/call", json!({"name": "echo", "arguments": {"text": "hi"}}));
            let call_method = ("mcp-method", "tools/call");
            for name in ["echo", "=?base64?ZWNobw==?="] {
                let answer = client.post(&[version, call_method, ("mcp-name", name)], &call).await;
                assert_eq!(answer.json()["result"]["content"][0]["text"], "hi");
                assert_eq!(answer.json()["result"]["resultType"], "complete");
            }
            for headers in [
                vec![version, call_method],
                vec![version, call_method, ("mcp-name", "other")],
                vec![version, call_method, ("mcp-name", "=?base64?%%?=")],
                vec![version, ("mcp-method", "tools/list"), ("mcp-name", "echo")],
                vec![("mcp-protocol-version", "2025-11-25"), call_method, ("mcp-name", "echo")],
                vec![call_method, ("mcp-name", "echo")],
            ] {
                let answer = client.post(&headers, &call).await;
                assert_eq!(
                    (answer.0, answer.json()["error"]["code"].clone()),
                    (400, json!(-32020)),
                    "{headers:?}"
                );
            }
            let unknown = client.post(&[version, ("mcp-method", "ping")], &modern("ping", json!({}))).await;
            assert_eq!((unknown.0, unknown.json()["error"]["code"].clone()), (404, json!(-32601)));
            let bare = client.post(&[version], &request("tools/list", json!({}))).await;
            assert_eq!((bare.0, bare.json()["error"]["code"].clone()), (400, json!(-32602)));
            let mut other = modern("tools/list", json!({}));
            other["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2031-01-01");
            let other = client.post(&[("mcp-protocol-version", "2031-01-01")], &other).await;
            assert_eq!((other.0, other.json()["error"]["code"].clone()), (400, json!(-32022)));
        })
        .await;
    }

    #[tokio::test]
    async fn progress_makes_the_answer_a_stream_and_without_a_token_it_is_json() {
        with_server(async |client| {
            let headers = [
                ("mcp-protocol-version", "2026-07-28"),
                ("mcp-method", "tools/call"),
                ("mcp-name", "summarize"),
            ];
            let mut params = json!({"name": "summarize", "arguments": {"id": "eras"}});
            let plain = client.post(&headers, &modern("tools/call", params.clone())).await;
            let summary = plain.json()["result"]["content"][0]["text"].clone();
            assert!(summary.as_str().unwrap().ends_with('.'));
            params["_meta"] = json!({"progressToken": 7});
            let streamed = client.post(&headers, &modern("tools/call", params)).await;
            assert!(streamed.1.contains("content-type: text/event-stream"), "{}", streamed.1);
            let data = streamed.2.lines().filter_map(|line| line.strip_prefix("data: "));
            let messages: Vec<Value> = data.map(|data| serde_json::from_str(data).unwrap()).collect();
            let steps: Vec<_> = messages.iter().filter_map(|it| it["params"]["progress"].as_u64()).collect();
            assert_eq!(steps, [1, 2, 3]);
            assert_eq!(messages[0]["params"]["progressToken"], 7);
            assert_eq!(messages[3]["result"]["content"][0]["text"], summary);
            assert_eq!(messages.len(), 4);
        })
        .await;
    }

    #[tokio::test]
    async fn what_is_no_message_of_ours_is_refused_by_its_status() {
        with_server(async |client| {
            let ping = request("ping", json!({})).to_string();
            for (method, headers, body, status) in [
                ("POST", ("host", "evil.example"), ping.as_str(), 403),
                ("POST", ("origin", "https://evil.example"), ping.as_str(), 403),
                ("POST", ("origin", "null"), ping.as_str(), 403),
                ("POST", ("origin", "http://localhost:3000"), ping.as_str(), 400),
                ("POST", ("content-type", "text/plain"), ping.as_str(), 415),
                ("POST", ("accept", "application/json"), ping.as_str(), 406),
                ("POST", ("x-a", "b"), "{", 400),
                ("POST", ("x-a", "b"), "[]", 400),
                ("PUT", ("x-a", "b"), "{}", 405),
                ("DELETE", ("x-a", "b"), "", 404),
            ] {
                let reply = client.send(method, &[headers], body).await;
                assert_eq!(reply.0, status, "{method} {headers:?} {body}");
                assert!(reply.json()["error"]["message"].is_string());
            }
        })
        .await;
    }

    #[test]
    fn the_number_of_sessions_is_bounded() {
        let sessions = Sessions::default();
        let first = sessions.make().unwrap();
        for _ in 0..MAX_SESSIONS {
            assert!(sessions.make().is_some());
        }
        assert!(!sessions.has(&first), "the oldest made room");
        assert_eq!(sessions.0.lock().unwrap().known.len(), MAX_SESSIONS);
    }
}
