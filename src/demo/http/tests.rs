//! A raw client against the HTTP demo server.

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
        let (chunk, after) = rest.split_at(size);
        out.push_str(chunk);
        text = after.trim_start_matches("\r\n");
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
    let (served, ()) = tokio::join!(serve(Demo::Http.server(), listener, shutdown.clone()), acting);
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
        let headers =
            [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "summarize")];
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
