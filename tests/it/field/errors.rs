//! Errors: whose they are, what they say, and under which status.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::client::{Client, Request, Response};
use crate::support::gateway::Config;
use crate::support::matrix::Era;
use crate::support::script::Script;
use crate::support::turn::Form;
use crate::support::{at_once, scaled};

/// Checks a protocol error under HTTP 200.
fn expect_error(response: &Response, code: i64) -> Value {
    let answer = response.json();
    assert_eq!((response.status, answer["error"]["code"].as_i64()), (200, Some(code)), "{answer}");
    assert!(answer["error"]["message"].as_str().is_some_and(|message| !message.is_empty()), "{answer}");
    answer
}

#[test]
fn err_01_json_rpc_errors_of_the_legacy_era_come_under_200() {
    let upstream = Script::echo(Era::Legacy).tool("fail", |turn| turn.error(-32050, "own words")).http();
    let dead = Script::echo(Era::Legacy).http();
    let gateway = Config::new().upstream("up", &upstream).upstream("dead", &dead).ready();
    let client = Client::legacy(&gateway);
    dead.go_down();
    let unknown = expect_error(&client.calling("up__nope", "{}").send(), -32602);
    assert_eq!(unknown["error"]["message"], "Unknown tool: up__nope");
    expect_error(&client.request("no/such_method", "{}").send(), -32601);
    expect_error(&client.request("resources/no_such", "{}").send(), -32601);
    expect_error(&client.request("tools/call", "{}").send(), -32602);
    expect_error(&client.request("tools/call", r#"{"name":7}"#).send(), -32602);
    let own = expect_error(&client.calling("up__fail", "{}").send(), -32050);
    assert_eq!(own["error"], json!({"code": -32050, "message": "own words"}));
    let down = client.calling("dead__echo", "{}").send();
    assert_eq!((down.status, &down.json()["result"]["isError"]), (200, &json!(true)), "{}", down.text());
}

#[test]
fn err_01_faults_of_the_transport_have_their_own_status() {
    let upstream = Script::echo(Era::Legacy).stdio();
    let config = Config::new().upstream("up", &upstream).set("limits", json!({"body": "64KiB"}));
    let gateway =
        config.env("TOKEN", "secret-t").clients(json!({"a": {"tokens": [{"env": "TOKEN"}]}})).ready();
    let client = Client::legacy_with(&gateway, "secret-t");
    let list = client.request("tools/list", "{}");
    let large =
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"x":"{}"}}}}"#, "x".repeat(70_000));
    let cases = [
        (200, list.clone()),
        (400, client.post("{")),
        (400, client.post("no json")),
        (401, list.clone().without("Authorization")),
        (403, list.clone().header("Origin", "http://evil.example")),
        (404, list.clone().header("Mcp-Session-Id", "made-up")),
        (405, client.bodyless("PUT")),
        (406, list.clone().header("Accept", "image/png")),
        (413, client.post(large)),
        (415, list.clone().header("Content-Type", "text/plain")),
    ];
    for (status, request) in cases {
        let response = request.send();
        assert_eq!(response.status, status, "{:?} {}", response.head, response.text());
        assert!(response.content_type().starts_with("application/json"), "{status}: {:?}", response.head);
        serde_json::from_slice::<Value>(&response.body).unwrap_or_else(|error| panic!("{status}: {error}"));
    }
    assert_eq!(client.echo("up__echo", "alive"), "alive");
}

/// 2026-07-28 maps some codes: what the request lacks is 400, an unknown method is 404.
#[test]
fn err_01_the_modern_era_maps_codes_to_statuses() {
    let upstream = Script::echo(Era::Modern).tool("fail", |turn| turn.error(-32050, "own words")).http();
    let gateway = Config::new().upstream("up", &upstream).ready();
    let client = Client::modern(&gateway);
    let call = client.calling("up__echo", "{}");
    let text = String::from_utf8(call.body.clone()).unwrap();
    let bare = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
    let cases = [
        (200, 0, call.clone()),
        (404, -32601, client.request("no/such_method", "{}")),
        (400, -32602, client.message(bare)),
        (400, -32020, call.clone().without("Mcp-Method")),
        (400, -32020, call.clone().without("Mcp-Name")),
        (400, -32020, call.clone().without("MCP-Protocol-Version")),
        (400, -32020, call.clone().header("Mcp-Method", "tools/list")),
        (400, -32020, call.clone().header("Mcp-Name", "up__other")),
        (400, -32020, call.clone().header("MCP-Protocol-Version", "2025-11-25")),
        (200, 0, call.clone().header("Mcp-Name", "=?base64?dXBfX2VjaG8=?=")),
        (400, -32022, {
            let future = text.replace("2026-07-28", "2099-01-01");
            client.message(&future).header("MCP-Protocol-Version", "2099-01-01")
        }),
    ];
    for (index, (status, code, request)) in cases.into_iter().enumerate() {
        let response = request.send();
        assert_eq!((response.status, response.code()), (status, code), "case {index}: {}", response.text());
    }
    let unknown = client.calling("up__nope", "{}").send();
    assert_eq!(unknown.code(), -32602, "{}", unknown.text());
    let own = client.calling("up__fail", "{}").send();
    assert_eq!(own.json()["error"], json!({"code": -32050, "message": "own words"}));
}

/// What may never be in a text that a client reads.
fn expect_discreet(text: &str) {
    for secret in ["127.0.0.1", "http://", "child.py", "/tests/", "s3cret", "python", "localhost"] {
        assert!(!text.contains(secret), "{secret} is in {text}");
    }
}

fn expect_failure(answer: &Value, upstream: &str) -> String {
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    let text = answer["result"]["content"][0]["text"].as_str().expect("a text").to_owned();
    assert!(text.contains(upstream), "names the upstream: {text}");
    expect_discreet(&answer.to_string());
    text
}

#[test]
fn err_02_a_failure_is_never_an_empty_or_a_good_result() {
    let html = "<html><body>http://10.0.0.1/secret s3cret</body></html>";
    let script = Script::echo(Era::Legacy)
        .tool("html", move |turn| turn.respond("500 Internal Server Error", "text/html", html))
        .tool("broken", |turn| turn.respond("200 OK", "application/json", "{\"jsonrpc\":"))
        .tool("other", |turn| turn.respond("200 OK", "text/html", "<p>ok</p>"))
        .tool("empty", |turn| turn.respond("200 OK", "application/json", ""))
        .tool("accepted", |turn| turn.respond("202 Accepted", "", ""))
        .tool("alien", |turn| turn.answer(r#"{"jsonrpc":"2.0","id":"alien","result":{"content":[]}}"#))
        .tool("neither", |turn| {
            let id = turn.id().unwrap_or("0").to_owned();
            turn.answer(&format!(r#"{{"jsonrpc":"2.0","id":{id}}}"#));
        })
        .tool("slow", |_| std::thread::sleep(scaled(4_000)));
    let upstream = script.http();
    let more = json!({"timeout": "1s", "headers": {"Authorization": "Bearer s3cret"}});
    let gateway = Config::new().upstream_with("weather", &upstream, more).ready();
    let client = Client::legacy(&gateway);
    let names = ["html", "broken", "other", "empty", "accepted", "alien", "neither", "slow"];
    let calls = names.map(|name| {
        let client = &client;
        move || client.call(&format!("weather__{name}"), json!({}))
    });
    for (name, answer) in names.iter().zip(at_once(calls.into())) {
        let text = expect_failure(&answer, "weather");
        assert!(text.len() > 20, "{name} has a reason: {text}");
    }
    upstream.go_down();
    expect_failure(&client.call("weather__echo", json!({})), "weather");
    upstream.come_back();
}

#[test]
fn err_02_a_child_that_dies_or_babbles_is_a_failure_too() {
    let script = Script::echo(Era::Legacy)
        .tool("die", |turn| turn.break_off())
        .tool("neither", |turn| {
            let id = turn.id().unwrap_or("0").to_owned();
            turn.answer(&format!(r#"{{"jsonrpc":"2.0","id":{id}}}"#));
        })
        .tool("slow", |_| std::thread::sleep(Duration::from_secs(30)));
    let upstream = script.stdio();
    let gateway = Config::new().upstream_with("files", &upstream, json!({"timeout": "1s"})).ready();
    for client in [Client::legacy(&gateway), Client::modern(&gateway)] {
        let slow = expect_failure(&client.call("files__slow", json!({})), "files");
        assert!(slow.contains('1'), "tells its budget: {slow}");
        expect_failure(&client.call("files__neither", json!({})), "files");
        let dead = expect_failure(&client.call("files__die", json!({})), "files");
        assert!(dead.len() > 20, "{dead}");
        gateway.wait_ready();
    }
}

/// `null`, float or object ids: −32600 under 400; valid ids come back with their type.
#[test]
fn err_05_odd_ids_and_envelopes() {
    let upstream = Script::echo(Era::Legacy).stdio();
    let gateway = Config::new().upstream("up", &upstream).ready();
    let client = Client::legacy(&gateway);
    for id in ["null", "1.5", "true", "{}", "[]", "1e2", "-0.0"] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}"#);
        let response = client.post(body).send();
        assert_eq!((response.status, response.code()), (400, -32600), "{id}: {}", response.text());
    }
    for id in ["\"\"", "0", "-7", "\"1\"", "\"\\u00e9\"", "12345678901234567890"] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}"#);
        let response = client.post(body).send();
        let message = response.message();
        assert_eq!(crate::support::json::get(&message, &["id"]), Some(id), "{message}");
        assert_eq!(response.code(), 0, "{message}");
    }
    let bad: [(&[u8], &[i64]); 9] = [
        (b"{", &[-32700]),
        (b"", &[-32700, -32600]),
        (b"\xff\xfe{}", &[-32700, -32600]),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}", &[-32700, -32600]),
        (br#"{"id":1,"method":"tools/list"}"#, &[-32600]),
        (br#"{"jsonrpc":"1.0","id":1,"method":"tools/list"}"#, &[-32600]),
        (br#"{"jsonrpc":"2.0","id":1,"method":7}"#, &[-32600]),
        (br#"{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/list"}"#, &[-32600]),
        (b"42", &[-32600]),
    ];
    for (body, codes) in bad {
        let response = client.post(body).send();
        let what = String::from_utf8_lossy(body).into_owned();
        assert_eq!(response.status, 400, "{what}: {}", response.text());
        assert!(codes.contains(&response.code()), "{what}: {}", response.text());
    }
    assert_eq!(client.echo("up__echo", "alive"), "alive");
    let nothing = Request::post(gateway.mcp, "/mcp", "").without("Content-Type").send();
    assert!(matches!(nothing.status, 400 | 415), "{}", nothing.text());
}

/// An error that comes on a stream after progress stays what it is.
#[test]
fn err_01_an_error_behind_progress_stays_an_error() {
    let script = Script::legacy().form(Form::Sse("\n")).tool("fail", |turn| {
        turn.progress(1);
        turn.error(-32099, "late");
    });
    let upstream = script.http();
    let gateway = Config::new().upstream("up", &upstream).ready();
    let client = Client::legacy(&gateway);
    let params = r#"{"name":"up__fail","arguments":{},"_meta":{"progressToken":"p"}}"#;
    let response = client.request("tools/call", params).send();
    assert_eq!(response.messages().len(), 2, "{}", response.text());
    assert_eq!(response.json()["error"], json!({"code": -32099, "message": "late"}));
}
