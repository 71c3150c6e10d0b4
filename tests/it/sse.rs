//! Clients of HTTP+SSE of 2024-11-05: one stream that is the connection, and POSTs beside it.

use serde_json::{Value, json};

use crate::support::client::{Client, Open, Request, Response};
use crate::support::gateway::{Config, Gateway};
use crate::support::matrix::{Era, Transport};
use crate::support::script::{Script, plain_entry};
use crate::support::turn::Gate;
use crate::support::{eventually, scaled};

/// A client with its stream.
struct Old {
    open: Open,
    address: std::net::SocketAddr,
    path: String,
    token: Option<&'static str>,
}

fn authorized(request: Request, token: Option<&str>) -> Request {
    match token {
        Some(token) => request.header("Authorization", &format!("Bearer {token}")),
        None => request,
    }
}

impl Old {
    /// Opens the stream.
    fn bare(gateway: &Gateway, token: Option<&'static str>) -> Self {
        let request = Request::get(gateway.mcp, "/sse").header("Accept", "text/event-stream");
        let mut open = authorized(request, token).open();
        assert_eq!(open.status, 200, "{:?}", open.head);
        let first = open.event().expect("an event");
        assert_eq!(first.event.as_deref(), Some("endpoint"), "{first:?}");
        assert!(first.data.starts_with("/messages?session="), "{first:?}");
        Self { open, address: gateway.mcp, path: first.data, token }
    }

    /// Opens the stream and shakes hands.
    fn connected(gateway: &Gateway, version: &str, capabilities: &str) -> Self {
        let mut old = Self::bare(gateway, None);
        let hello = old.ask("initialize", &format!(r#"{{"protocolVersion":"{version}","capabilities":{capabilities},"clientInfo":{{"name":"old","version":"1"}}}}"#));
        assert_eq!(hello["result"]["protocolVersion"], version, "{hello}");
        old.post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        old
    }

    fn post_raw(&self, body: &str) -> Response {
        authorized(Request::post(self.address, &self.path, body), self.token).without("Accept").send()
    }

    fn post(&self, body: &str) {
        let response = self.post_raw(body);
        assert_eq!((response.status, response.text().as_str()), (202, ""), "{body}");
    }

    fn send(&self, method: &str, params: &str) {
        self.post(&format!(
            r#"{{"jsonrpc":"2.0","id":"{method} 1.0","method":"{method}","params":{params}}}"#
        ));
    }

    fn next(&mut self) -> Value {
        let event = self.open.event().expect("an event");
        assert_eq!(event.event.as_deref(), Some("message"), "{event:?}");
        serde_json::from_str(&event.data).expect("a message")
    }

    /// Sends a request and reads its answer, which is the next thing on the stream.
    fn ask(&mut self, method: &str, params: &str) -> Value {
        self.send(method, params);
        let answer = self.next();
        assert_eq!(answer["id"], format!("{method} 1.0"), "{answer}");
        answer
    }

    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", &json!({"name": tool, "arguments": arguments}).to_string())
    }
}

/// Over every kind of upstream.
#[test]
fn a_client_of_the_first_revision_lists_and_calls() {
    let kinds = [
        (Era::Legacy, Transport::Stdio),
        (Era::Legacy, Transport::Http),
        (Era::Legacy, Transport::Sse),
        (Era::Modern, Transport::Stdio),
        (Era::Modern, Transport::Http),
    ];
    for (era, transport) in kinds {
        let talking = Script::echo(era).tool("talk", |turn| {
            turn.progress(1);
            turn.text("done");
        });
        let up = talking.over(transport);
        let gateway = Config::new().upstream("up", &up).ready();
        let mut old = Old::connected(&gateway, "2024-11-05", "{}");
        let listed = old.ask("tools/list", "{}");
        let names: Vec<_> =
            listed["result"]["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
        assert_eq!(names, ["up__echo", "up__talk"]);
        let answer = old.call("up__echo", json!({"text": "é \u{2028} 日本"}));
        assert_eq!(answer["result"]["content"][0]["text"], "é \u{2028} 日本");
        assert!(answer["result"].get("resultType").is_none(), "{answer}");
        old.send("tools/call", r#"{"name":"up__talk","arguments":{},"_meta":{"progressToken":"mine"}}"#);
        let progress = old.next();
        assert_eq!(
            (&progress["method"], &progress["params"]["progressToken"]),
            (&json!("notifications/progress"), &json!("mine"))
        );
        assert_eq!(old.next()["result"]["content"][0]["text"], "done");
        assert_eq!(old.ask("ping", "{}")["result"], json!({}));
        assert_eq!(
            old.ask("server/discover", "{}")["error"]["code"],
            -32601,
            "only the era of its transport"
        );
        assert_eq!(old.call("up__none", json!({}))["error"]["code"], -32602);
    }
}

#[test]
fn changes_of_lists_and_questions_come_on_the_stream() {
    let (gate, answered) = Gate::new("asked");
    let asking = Script::echo(Era::Legacy).telling().tool("ask", move |turn| {
        turn.send(r#"{"jsonrpc":"2.0","id":"q","method":"roots/list"}"#);
        answered(turn);
    });
    let up = asking.http();
    let gateway = Config::new().upstream("up", &up).ready();
    let mut old = Old::connected(&gateway, "2024-11-05", r#"{"roots":{}}"#);
    old.send("tools/call", r#"{"name":"up__ask","arguments":{}}"#);
    let question = old.next();
    assert_eq!(question["method"], "roots/list", "{question}");
    old.post(
        &json!({"jsonrpc": "2.0", "id": question["id"], "result": {"roots": [{"uri": "file:///x"}]}})
            .to_string(),
    );
    let heard =
        up.wait_for("the answer", |received| received.method().is_empty() && received.id() == Some("\"q\""));
    assert!(heard.text.contains("file:///x"), "{}", heard.text);
    gate.open();
    assert_eq!(old.next()["result"]["content"][0]["text"], "asked");
    up.wait_heard();
    up.change_tools(vec![plain_entry("echo")]);
    assert_eq!(old.next()["method"], "notifications/tools/list_changed");
    assert_eq!(old.call("up__ask", json!({}))["error"]["code"], -32602);
}

#[test]
fn updates_of_resources_come_on_the_stream_for_as_long_as_it_is_open() {
    let uri = "file:///a";
    let script = Script::echo(Era::Legacy).telling_of_resources([]);
    let up = script.resources("up", [uri]).stdio();
    let gateway = Config::new().upstream("up", &up).ready();
    let mut old = Old::connected(&gateway, "2024-11-05", "{}");
    let subscribed = old.ask("resources/subscribe", &json!({"uri": uri}).to_string());
    assert_eq!(subscribed["result"], json!({}), "{subscribed}");
    up.wait_method("resources/subscribe");
    up.update(uri);
    let told = old.next();
    assert_eq!(told["method"], "notifications/resources/updated", "{told}");
    assert_eq!(told["params"]["uri"], uri, "{told}");
    old.open.hang_up();
    up.wait_method("resources/unsubscribe");
    gateway.wait_metric("waypost_resource_subscriptions", &[], 0.0);
}

#[test]
fn the_end_of_the_stream_ends_its_session_and_its_calls() {
    let (gate, slow) = Gate::new("too late");
    let up = Script::echo(Era::Legacy).tool("slow", slow).stdio();
    let gateway = Config::new().upstream("up", &up).ready();
    let old = Old::connected(&gateway, "2024-11-05", "{}");
    old.send("tools/call", r#"{"name":"up__slow","arguments":{}}"#);
    up.wait_method("tools/call");
    let (address, path) = (old.address, old.path.clone());
    old.open.hang_up();
    up.wait_method("notifications/cancelled");
    gateway.wait_metric("waypost_streams_open", &[("kind", "connection")], 0.0);
    gateway.wait_metric("waypost_calls_in_flight", &[], 0.0);
    let gone = || Request::post(address, &path, r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).send();
    eventually("the connection is unknown", || (gone().status == 404).then_some(()));
    gate.open();
    assert_eq!(Client::legacy(&gateway).echo("up__echo", "x"), "x");
}

/// Ids are a connection's own, also before a handshake.
#[test]
fn a_cancellation_ends_calls_of_its_own_connection_alone() {
    let (gate, slow) = Gate::new("answered");
    let up = Script::echo(Era::Legacy).tool("slow", slow).http();
    let gateway = Config::new().upstream("up", &up).ready();
    let mut one = Old::bare(&gateway, None);
    one.send("tools/call", r#"{"name":"up__slow","arguments":{}}"#);
    up.wait_method("tools/call");
    let mut others = [Old::bare(&gateway, None), Old::connected(&gateway, "2024-11-05", "{}")];
    for other in &mut others {
        other.post(
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"tools/call 1.0"}}"#,
        );
        assert_eq!(other.call("up__echo", json!({"text": "x"}))["result"]["content"][0]["text"], "x");
    }
    assert!(up.of_method("notifications/cancelled").is_empty());
    gate.open();
    assert_eq!(one.next()["result"]["content"][0]["text"], "answered");
}

#[test]
fn a_cancelled_call_is_cancelled_upstream_and_not_answered() {
    let (gate, slow) = Gate::new("too late");
    let up = Script::echo(Era::Legacy).tool("slow", slow).http();
    let gateway = Config::new().upstream("up", &up).ready();
    let mut old = Old::connected(&gateway, "2024-11-05", "{}");
    old.send("tools/call", r#"{"name":"up__slow","arguments":{}}"#);
    up.wait_method("tools/call");
    old.post(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"tools/call 1.0","reason":"enough"}}"#);
    assert!(up.wait_method("notifications/cancelled").text.contains("enough"));
    gate.open();
    assert_eq!(old.call("up__echo", json!({"text": "next"}))["result"]["content"][0]["text"], "next");
}

#[test]
fn batches_are_those_of_the_revision_that_has_them() {
    let up = Script::echo(Era::Legacy).stdio();
    let gateway = Config::new().upstream("up", &up).ready();
    let batch = r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":"2","method":"ping"}]"#;
    let mut old = Old::connected(&gateway, "2025-03-26", "{}");
    old.post(batch);
    assert_eq!(
        old.next(),
        json!([{"jsonrpc": "2.0", "id": 1, "result": {}}, {"jsonrpc": "2.0", "id": "2", "result": {}}])
    );
    let mut old = Old::connected(&gateway, "2024-11-05", "{}");
    old.post(batch);
    assert_eq!(old.next()["error"]["code"], -32600);
    old.post("{");
    assert_eq!(old.next()["error"]["code"], -32700);
}

/// Each request of a batch is one of those that may be under way, and one that is withdrawn is not answered.
#[test]
fn a_batch_on_a_connection_is_as_many_requests_as_it_holds() {
    let (gate, held) = Gate::new("late");
    let up = Script::echo(Era::Legacy).tool("held", held).stdio();
    let gateway = Config::new().upstream("up", &up).set("limits", json!({"pipe_calls": 2})).ready();
    let mut old = Old::connected(&gateway, "2025-03-26", "{}");
    let call = |id: u32, name: &str| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": name, "arguments": {"text": "x"}}});
    old.post(&json!([call(1, "up__echo"), call(2, "up__echo"), call(3, "up__echo")]).to_string());
    let refused = old.next();
    assert!(refused["error"]["message"].as_str().unwrap().contains("limits.pipe_calls"), "{refused}");
    old.post(&json!([call(4, "up__held"), call(5, "up__echo")]).to_string());
    eventually("both are there", || (up.calls().len() == 2).then_some(()));
    let withdrawn =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 4}});
    old.post(&withdrawn.to_string());
    let answers = old.next();
    gate.open();
    assert_eq!(answers.as_array().map(Vec::len), Some(1), "{answers}");
    assert_eq!(answers[0]["id"], 5, "{answers}");
}

#[test]
fn a_connection_belongs_to_its_client_and_passes_the_same_checks() {
    let up = Script::echo(Era::Legacy).tools(["other"]).stdio();
    let clients = json!({
        "a": {"tokens": [{"env": "A"}], "tools": {"allow": ["up__echo"]}},
        "b": {"tokens": [{"env": "B"}]},
    });
    let config = Config::new().upstream("up", &up).clients(clients).env("A", "t-a").env("B", "t-b");
    let gateway = config.ready();
    let sse = || Request::get(gateway.mcp, "/sse").header("Accept", "text/event-stream");
    assert_eq!(sse().send().status, 401);
    assert_eq!(authorized(sse(), Some("wrong")).send().status, 401);
    assert_eq!(authorized(sse(), Some("t-a")).header("Host", "evil.example").send().status, 403);
    assert_eq!(authorized(sse(), Some("t-a")).header("Origin", "http://evil.example").send().status, 403);
    assert_eq!(authorized(sse(), Some("t-a")).header("Accept", "application/json").send().status, 406);
    let wrong = authorized(Request::post(gateway.mcp, "/sse", "{}"), Some("t-a")).send();
    assert_eq!((wrong.status, wrong.header("Allow")), (405, Some("GET")));
    let mut old = Old::bare(&gateway, Some("t-a"));
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let to = |path: &str| Request::post(gateway.mcp, path, ping);
    assert_eq!(to(&old.path).send().status, 401, "no token");
    assert_eq!(authorized(to(&old.path), Some("t-b")).send().status, 404, "another's");
    assert_eq!(authorized(to("/messages?session=0"), Some("t-a")).send().status, 404);
    assert_eq!(authorized(to("/messages"), Some("t-a")).send().status, 404);
    assert_eq!(
        authorized(to(&old.path), Some("t-a")).header("Origin", "http://evil.example").send().status,
        403
    );
    assert_eq!(
        authorized(to(&old.path), Some("t-a")).header("Content-Type", "text/plain").send().status,
        415
    );
    assert_eq!(authorized(Request::get(gateway.mcp, &old.path), Some("t-a")).send().status, 405);
    assert_eq!(old.call("up__other", json!({}))["error"]["message"], "Unknown tool: up__other");
    assert_eq!(old.call("up__echo", json!({"text": "x"}))["result"]["content"][0]["text"], "x");
}

#[test]
fn streams_are_bounded_by_client_and_kept_alive() {
    let up = Script::echo(Era::Legacy).stdio();
    let config = Config::new().upstream("up", &up);
    let gateway =
        config.set("limits", json!({"streams": 1})).set("sessions", json!({"keep_alive": "100ms"})).ready();
    let mut old = Old::connected(&gateway, "2024-11-05", "{}");
    // The session's own stream is the same one.
    assert_eq!(old.ask("ping", "{}")["result"], json!({}));
    old.open.wait_comment();
    old.open.wait_comment();
    let more = Request::get(gateway.mcp, "/sse").header("Accept", "text/event-stream").send();
    assert_eq!(more.status, 429, "{}", more.text());
    gateway.wait_metric("waypost_streams_open", &[("kind", "connection")], 1.0);
    old.open.hang_up();
    gateway.wait_metric("waypost_streams_open", &[("kind", "connection")], 0.0);
    drop(Old::connected(&gateway, "2024-11-05", "{}"));
}

/// What comes for a client that does not read waits, and keeps nobody else waiting.
#[test]
fn a_slow_reader_keeps_nobody_waiting() {
    let filler = "x".repeat(100_000);
    let up = Script::echo(Era::Legacy).tool("large", move |turn| turn.text(&filler)).stdio();
    let gateway = Config::new().upstream("up", &up).ready();
    let mut old = Old::connected(&gateway, "2024-11-05", "{}");
    for _ in 0..200 {
        old.send("tools/call", r#"{"name":"up__large","arguments":{}}"#);
    }
    let other = Client::legacy(&gateway);
    for round in 0..20 {
        assert_eq!(other.echo("up__echo", &round.to_string()), round.to_string());
    }
    for _ in 0..200 {
        assert_eq!(old.next()["result"]["content"][0]["text"].as_str().map(str::len), Some(100_000));
    }
}

#[test]
fn a_gateway_that_stops_lets_calls_end_and_then_the_stream() {
    let (gate, slow) = Gate::new("in time");
    let up = Script::echo(Era::Legacy).tool("slow", slow).stdio();
    let mut gateway = Config::new().upstream("up", &up).ready();
    let mut old = Old::connected(&gateway, "2024-11-05", "{}");
    old.send("tools/call", r#"{"name":"up__slow","arguments":{}}"#);
    up.wait_method("tools/call");
    gateway.signal(rustix::process::Signal::TERM);
    std::thread::sleep(scaled(100));
    gate.open();
    assert_eq!(old.next()["result"]["content"][0]["text"], "in time");
    assert!(old.open.event().is_none(), "the stream ends as it should");
    assert_eq!(gateway.wait_exit(), Some(0));
}
