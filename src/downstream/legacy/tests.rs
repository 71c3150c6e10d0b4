//! What the handshake era is told.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use crate::downstream::for_test::{Ask, Bench};

async fn bench() -> Bench {
    Bench::new(|_| {}).await
}

fn list() -> Ask {
    Ask::message("tools/list", json!({})).bearer("a")
}

#[tokio::test]
async fn ver_01_initialize_never_fails_on_a_version() {
    let bench = bench().await;
    for (asked, header, given) in [
        ("2024-11-05", None, "2024-11-05"),
        ("2025-06-18", Some("2025-06-18"), "2025-06-18"),
        ("2099-01-01", Some("2099-01-01"), "2025-11-25"),
        ("2099-01-01", Some("2025-03-26"), "2025-11-25"),
        ("2099-01-01", None, "2025-11-25"),
        ("2026-07-28", Some("2026-07-28"), "2025-11-25"),
        ("x", Some("foobar"), "2025-11-25"),
    ] {
        let ask = Ask::message("initialize", json!({"protocolVersion": asked, "capabilities": {}}));
        let got =
            bench.send(header.map_or(ask.clone(), |header| ask.header("mcp-protocol-version", header))).await;
        assert_eq!(got.status, 200, "{asked} {header:?}");
        let result = &got.json()["result"];
        assert_eq!(result["protocolVersion"], given, "{asked} {header:?}");
        assert_eq!(result["serverInfo"]["name"], "waypost");
        assert!(result["capabilities"]["tools"].is_object());
        assert!(got.headers.contains_key("mcp-session-id"));
    }
    for odd in [json!({}), json!({"protocolVersion": 7, "capabilities": "x", "clientInfo": []})] {
        assert_eq!(bench.send(Ask::message("initialize", odd)).await.status, 200);
    }
}

#[tokio::test]
async fn ver_02_the_header_is_checked_for_its_form_alone() {
    let bench = bench().await;
    let session = bench.session("2025-06-18").await;
    let list = || list().header("mcp-session-id", &session);
    assert_eq!(bench.send(list()).await.status, 200);
    for good in ["2025-06-18", "2025-03-26", "2099-01-01", "2026-07-28"] {
        assert_eq!(bench.send(list().header("mcp-protocol-version", good)).await.status, 200, "{good}");
    }
    for bad in ["foobar", "2025/11/25", ""] {
        for verb in [Method::POST, Method::GET, Method::DELETE] {
            let ask = list().verb(verb.clone()).header("accept", "*/*").header("mcp-protocol-version", bad);
            let got = bench.send(ask).await;
            assert_eq!(got.status, 400, "{verb} {bad}");
            assert!(got.json()["error"]["message"].as_str().unwrap().contains("2025-06-18"));
        }
    }
    assert_eq!(bench.send(list()).await.status, 200, "the session lives on");
}

#[tokio::test]
async fn ver_06_a_probe_for_the_other_era_is_answered_and_the_handshake_works() {
    let bench = bench().await;
    let probe = bench.send(Ask::modern("server/discover", json!({}), json!({}))).await;
    assert_eq!(probe.status, 200);
    assert_eq!(probe.json()["result"]["supportedVersions"][0], "2026-07-28");
    let bare = bench.send(Ask::message("server/discover", json!({}))).await;
    assert_eq!((bare.status.as_u16(), bare.code()), (400, -32602));
    bench.session("2025-11-25").await;
}

#[tokio::test]
async fn err_01_errors_of_requests_are_http_200() {
    let bench = bench().await;
    let session = bench.session("2025-11-25").await;
    for (ask, code) in [
        (Ask::call("up__nothing"), -32602),
        (Ask::message("no/such", json!({})), -32601),
        (Ask::message("tools/call", json!({"arguments": {}})), -32602),
        (Ask::message("tools/list", json!({"cursor": "made up"})), -32602),
        (Ask::message("tools/list", json!({"cursor": 7})), -32602),
        (Ask::message("logging/setLevel", json!({"level": "loud"})), -32602),
        (Ask::call("up__fails"), -32021),
    ] {
        let got = bench.send(ask.bearer("a").header("mcp-session-id", &session)).await;
        assert_eq!((got.status.as_u16(), got.code()), (200, code), "{got:?}");
        assert_eq!(got.json()["id"], 7);
    }
    let got = bench.send(Ask::call("up__absent").bearer("a")).await;
    assert_eq!(
        (got.status.as_u16(), &got.headers["retry-after"]),
        (200, &http::HeaderValue::from_static("3"))
    );
    assert_eq!(got.json()["result"]["isError"], true);
}

#[tokio::test]
async fn str_11_what_wants_no_answer_gets_202_and_nothing_else() {
    let bench = bench().await;
    let session = bench.session("2025-11-25").await;
    for text in [
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/anything","params":{"x":1}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":404}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"m"}}"#,
    ] {
        let ask = Ask::post(text).bearer("a").header("mcp-session-id", &session);
        for ask in [ask.clone(), ask.header("accept", "text/event-stream")] {
            let got = bench.send(ask).await;
            assert_eq!((got.status.as_u16(), got.body.len(), got.kind()), (202, 0, ""), "{text}");
        }
    }
}

#[tokio::test]
async fn lists_have_nothing_of_the_modern_revision() {
    let bench = Bench::new(|config| config.page_size = Some(3)).await;
    let first = bench.send(list()).await.json();
    let result = first["result"].as_object().unwrap();
    assert_eq!(result.keys().collect::<Vec<_>>(), ["nextCursor", "tools"]);
    let cursor = result["nextCursor"].as_str().unwrap();
    let second = bench.send(Ask::message("tools/list", json!({"cursor": cursor})).bearer("a")).await.json();
    assert_eq!(second["result"]["tools"].as_array().unwrap().len(), 3);
    let text = bench.send(list()).await.body;
    assert!(std::str::from_utf8(&text).unwrap().contains(r#""x":1.0"#), "entries are as they came");
}

#[tokio::test]
async fn ping_and_levels_are_answered_here() {
    let bench = bench().await;
    let session = bench.session("2025-11-25").await;
    let ask = |method, params| Ask::message(method, params).bearer("a").header("mcp-session-id", &session);
    assert_eq!(
        bench.send(ask("ping", json!({}))).await.json(),
        json!({"jsonrpc": "2.0", "id": 7, "result": {}})
    );
    let set = bench.send(ask("logging/setLevel", json!({"level": "error"}))).await.json();
    assert_eq!(set["result"], json!({}));
    let talk = Ask::call("up__talk").bearer("a").header("mcp-session-id", &session);
    let levels = |events: Vec<Value>| -> Vec<Value> {
        events.iter().map(|event| event["params"]["level"].clone()).filter(Value::is_string).collect()
    };
    assert_eq!(levels(bench.send(talk).await.events()), ["error"]);
    let other = bench.send(Ask::call("up__talk").bearer("a")).await;
    assert_eq!(levels(other.events()), ["debug", "error"], "the level is one session's own");
}

#[tokio::test]
async fn a_call_carries_the_handshake_of_its_session() {
    let bench = bench().await;
    let params =
        json!({"protocolVersion": "2025-11-25", "capabilities": {"roots": {}, "experimental": {"k": {}}}});
    let opened = bench.send(Ask::message("initialize", params).bearer("a")).await;
    let session = opened.headers["mcp-session-id"].to_str().unwrap();
    bench.send(Ask::call("up__echo").bearer("a").header("mcp-session-id", session)).await;
    bench.send(Ask::call("up__echo").bearer("a")).await;
    let calls = bench.upstream.calls.lock().unwrap();
    assert_eq!(
        (&*calls[0].capabilities, calls[0].has_session),
        (r#"{"experimental":{"k":{}},"roots":{}}"#, true)
    );
    assert_eq!((&*calls[1].capabilities, calls[1].has_session), ("{}", false));
}

#[tokio::test(start_paused = true)]
async fn cancelled_ends_exactly_the_call_meant_with_its_reason() {
    let bench = bench().await;
    let (mine, other) = (bench.session("2025-11-25").await, bench.session("2025-11-25").await);
    let slow = |session: &str| Ask::call("up__slow").bearer("a").header("mcp-session-id", session);
    let cancel = |session: &str, id: &str| {
        let text = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id},"reason":"r"}}}}"#
        );
        bench.send(Ask::post(text).bearer("a").header("mcp-session-id", session))
    };
    let ended = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(cancel(&mine, "\"7\"").await.status, 202, "another id");
        assert_eq!(cancel(&mine, "7").await.status, 202);
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    let mut waits = Box::pin(bench.send(slow(&other)));
    tokio::select! {
        (got, ()) = async { tokio::join!(bench.send(slow(&mine)), ended) } => {
            assert_eq!(got.events()[0]["error"]["code"], 499);
        }
        got = &mut waits => panic!("the other session's call ended: {got:?}"),
    }
    assert_eq!(*bench.upstream.dropped.lock().unwrap(), [Some("r".to_owned())]);
}

#[tokio::test]
async fn a_question_that_cannot_be_asked_is_said_plainly() {
    let bench = bench().await;
    let got = bench.send(Ask::call("up__asks").bearer("a")).await.json();
    assert_eq!(got["result"]["isError"], true);
    assert!(got["result"]["content"][0]["text"].as_str().unwrap().contains("input"));
}
