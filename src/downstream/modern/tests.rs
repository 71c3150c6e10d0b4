//! What the stateless era is told.

use http::HeaderValue;

use super::*;
use crate::downstream::for_test::{Ask, Bench};
use crate::mcp::code_of;
use crate::wire::json;

const META: &str = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

fn ask(method: &str, params: &str, pairs: &[(&'static str, &str)]) -> Result<Hop, i64> {
    let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
    let Ok(Message::Request(request)) = json::parse(Bytes::from(text)) else { panic!() };
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
    }
    check(Some(&headers), &request).map_err(|error| code_of(error.code))
}

#[test]
fn required_metadata_is_required() {
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/list")];
    let with = |meta: &str| ask("tools/list", &format!(r#"{{"_meta":{meta}}}"#), &headers).map(|_| ());
    assert_eq!(with(META), Ok(()));
    for bad in [
        "{}",
        "null",
        r#"{"io.modelcontextprotocol/clientCapabilities":{}}"#,
        r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#,
        r#"{"io.modelcontextprotocol/protocolVersion":7,"io.modelcontextprotocol/clientCapabilities":{}}"#,
        r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":[]}"#,
        r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":"x"}"#,
        r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/logLevel":"loud"}"#,
    ] {
        assert_eq!(with(bad), Err(-32602), "{bad}");
    }
    assert_eq!(ask("tools/list", "{}", &headers).map(|_| ()), Err(-32602));
}

#[test]
fn headers_say_what_the_body_says() {
    let params = format!(r#"{{"name":"wörter","_meta":{META}}}"#);
    let version = ("mcp-protocol-version", "2026-07-28");
    let method = ("mcp-method", "tools/call");
    let name = ("mcp-name", "=?base64?d8O2cnRlcg==?=");
    let ask = |pairs: &[(&'static str, &str)]| ask("tools/call", &params, pairs).map(|_| ());
    assert_eq!(ask(&[version, method, name]), Ok(()));
    for (what, pairs) in [
        ("no version", vec![method, name]),
        ("another version", vec![("mcp-protocol-version", "2025-11-25"), method, name]),
        ("two versions", vec![version, version, method, name]),
        ("no method", vec![version, name]),
        ("the method in another case", vec![version, ("mcp-method", "TOOLS/CALL"), name]),
        ("another method", vec![version, ("mcp-method", "prompts/get"), name]),
        ("no name", vec![version, method]),
        ("another name", vec![version, method, ("mcp-name", "other")]),
        ("a name that is not Base64", vec![version, method, ("mcp-name", "=?base64?w8O2?cg?=")]),
        ("two names", vec![version, method, name, name]),
    ] {
        assert_eq!(ask(&pairs), Err(-32020), "{what}");
    }
}

#[test]
fn ver_02_an_unknown_version_is_answered_with_the_known_ones() {
    let params = r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2099-01-01","io.modelcontextprotocol/clientCapabilities":{}}}"#;
    let code = ask("server/discover", params, &[("mcp-protocol-version", "2099-01-01")]).map(|_| ());
    assert_eq!(code, Err(-32022));
    assert_eq!(supported()[0], "2026-07-28");
    assert_eq!(supported().as_array().unwrap().len(), ProtocolVersion::ALL.len());
}

#[test]
fn the_wishes_of_a_request_are_its_own() {
    let meta = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"sampling":{}},"io.modelcontextprotocol/logLevel":"info","progressToken":"7"}"#;
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/list")];
    let hop = ask("tools/list", &format!(r#"{{"_meta":{meta}}}"#), &headers).unwrap();
    assert_eq!(hop.capabilities.unwrap().text(), r#"{"sampling":{}}"#);
    assert_eq!(hop.log_level.unwrap().text(), "\"info\"");
    assert_eq!(hop.progress_token.unwrap().text(), "\"7\"");
    assert_eq!(hop.client_info, None);
}

async fn bench() -> Bench {
    Bench::new(|_| {}).await
}

#[tokio::test]
async fn discovery_says_what_is_served() {
    let bench = Bench::new(|config| config.instructions = Some("Say \"please\".".to_owned())).await;
    let got = bench.send(Ask::modern("server/discover", json!({}), json!({}))).await;
    assert_eq!(got.status, 200);
    let result = &got.json()["result"];
    assert_eq!(result["resultType"], "complete");
    assert_eq!(result["supportedVersions"], supported());
    assert_eq!(result["capabilities"], json!({"tools": {"listChanged": true}, "logging": {}}));
    assert_eq!(result["instructions"], "Say \"please\".");
    assert_eq!(result["_meta"][key::SERVER_INFO]["name"], "waypost");
    assert!(result["ttlMs"].is_u64() && result["cacheScope"].is_string());
    assert!(!got.headers.contains_key("mcp-session-id"));
}

#[tokio::test]
async fn lists_say_how_long_they_are_fresh_and_for_whom() {
    let bench = bench().await;
    let got = bench.send(Ask::modern("tools/list", json!({}), json!({}))).await;
    let result = &got.json()["result"];
    assert_eq!(result["resultType"], "complete");
    assert_eq!(result["tools"][0]["name"], "up__echo");
    assert!(result["ttlMs"].is_u64());
    assert_eq!(result["cacheScope"], "private");
    assert_eq!(result["_meta"][key::SERVER_INFO]["name"], "waypost");
}

#[tokio::test]
async fn the_status_follows_the_error() {
    let bench = bench().await;
    for (ask, status, code) in [
        (Ask::modern("ping", json!({}), json!({})), 404, -32601),
        (Ask::modern("initialize", json!({}), json!({})), 404, -32601),
        (Ask::modern("logging/setLevel", json!({"level": "info"}), json!({})), 404, -32601),
        (Ask::modern("no/such", json!({}), json!({})), 404, -32601),
        (Ask::modern("tools/call", json!({"name": "up__fails"}), json!({})), 400, -32021),
        (Ask::modern("tools/call", json!({"name": "up__nothing"}), json!({})), 200, -32602),
        (Ask::modern("tools/list", json!({"cursor": "made up"}), json!({})), 200, -32602),
        (Ask::modern("tools/list", json!({}), json!({})).header("mcp-method", "ping"), 400, -32020),
        (Ask::message("tools/list", json!({})).header("mcp-protocol-version", "2026-07-28"), 400, -32602),
    ] {
        let got = bench.send(ask).await;
        assert_eq!((got.status.as_u16(), got.code()), (status, code), "{got:?}");
        assert_eq!(got.json()["id"], 7);
    }
    let future = Ask::modern("tools/list", json!({}), json!({key::PROTOCOL_VERSION: "2099-01-01"}));
    let got = bench.send(future.header("mcp-protocol-version", "2099-01-01")).await;
    assert_eq!((got.status.as_u16(), got.code()), (400, -32022));
    assert_eq!(got.json()["error"]["data"], json!({"supported": supported(), "requested": "2099-01-01"}));
}

#[tokio::test]
async fn a_session_means_nothing_and_capabilities_are_the_requests_own() {
    let bench = bench().await;
    let meta = json!({key::CLIENT_CAPABILITIES: {"sampling": {}}});
    let call = Ask::modern("tools/call", json!({"name": "up__echo", "arguments": {}}), meta);
    let got = bench.send(call.header("mcp-session-id", "made-up")).await;
    assert_eq!(got.status, 200);
    assert_eq!(got.json()["result"]["resultType"], "complete");
    let calls = bench.upstream.calls.lock().unwrap();
    assert_eq!((&*calls[0].capabilities, calls[0].has_session), (r#"{"sampling":{}}"#, false));
}

#[tokio::test]
async fn questions_pass_and_notifications_are_taken() {
    let bench = bench().await;
    let got = bench.send(Ask::modern("tools/call", json!({"name": "up__asks"}), json!({}))).await;
    assert_eq!(got.json()["result"]["resultType"], "input_required");
    let note = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
    let got = bench.send(Ask::post(note)).await;
    assert_eq!((got.status.as_u16(), got.body.len()), (202, 0));
}

#[tokio::test]
async fn headers_that_mirror_arguments_say_what_the_arguments_say() {
    let bench = bench().await;
    let call = |arguments| {
        Ask::modern("tools/call", json!({"name": "up__mirrors", "arguments": arguments}), json!({}))
    };
    let full = || call(json!({"region": "wörter", "count": 42}));
    let region = ("mcp-param-region", "=?base64?d8O2cnRlcg==?=");
    for (count, status) in [
        (Some("42"), 200),
        (Some("42.0"), 200),
        (Some("42.5"), 400),
        (Some("43"), 400),
        (Some("x"), 400),
        (None, 400),
    ] {
        let ask = full().header(region.0, region.1);
        let got = bench.send(count.map_or(ask.clone(), |count| ask.header("mcp-param-count", count))).await;
        assert_eq!(got.status, status, "{count:?}");
        assert!(status == 200 || got.code() == -32020, "{got:?}");
    }
    for (what, ask) in [
        ("not Base64", full().header("mcp-param-count", "42").header(region.0, "=?base64?SGVsbG8?=")),
        ("an argument that is not there", call(json!({"region": null})).header(region.0, "x")),
    ] {
        let got = bench.send(ask).await;
        assert_eq!((got.status.as_u16(), got.code()), (400, -32020), "{what}");
    }
    assert_eq!(bench.send(call(json!({}))).await.status, 200);
    let literal = call(json!({"region": "=?base64?SGVsbG8="})).header(region.0, "=?base64?SGVsbG8=");
    assert_eq!(bench.send(literal).await.status, 200);
    let elsewhere = Ask::modern("tools/call", json!({"name": "up__echo"}), json!({}));
    assert_eq!(bench.send(elsewhere.header(region.0, "x")).await.status, 200, "nobody's header");
}
