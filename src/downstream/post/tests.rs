//! One POST: messages, batches, what cannot be read.

use std::time::Duration;

use serde_json::{Value, json};

use crate::config::{CallLimits, Rate};
use crate::downstream::for_test::{Ask, Bench, Got};

const PING: &str = r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#;
const LIST: &str = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#;
const NOTE: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

fn ids(got: &Got) -> Vec<Value> {
    got.json().as_array().unwrap().iter().map(|answer| answer["id"].clone()).collect()
}

#[tokio::test]
async fn ver_07_batches_exist_where_they_were_agreed_on() {
    let bench = Bench::new(|_| {}).await;
    let old = bench.session("2025-03-26").await;
    let new = bench.session("2025-06-18").await;
    let send = |session: &str, body: String| {
        bench.send(Ask::post(body).bearer("a").header("mcp-session-id", session))
    };
    let both = send(&old, format!("[{PING},{LIST}]")).await;
    assert_eq!(both.status, 200);
    assert_eq!(ids(&both), [json!("p"), json!(2)]);
    let notes = send(&old, format!("[{NOTE},{NOTE}]")).await;
    assert_eq!((notes.status.as_u16(), notes.body.len()), (202, 0));
    let empty = send(&old, "[]".to_owned()).await;
    assert_eq!((empty.status.as_u16(), empty.code()), (400, -32600));
    for body in [format!("[{PING},{LIST}]"), format!("[{NOTE},{NOTE}]"), "[]".to_owned()] {
        let got = send(&new, body.clone()).await;
        assert_eq!((got.status.as_u16(), got.code()), (400, -32600), "{body}");
        let none = bench.send(Ask::post(body).bearer("a")).await;
        assert_eq!((none.status.as_u16(), none.code()), (400, -32600), "without a session");
    }
    for session in [&old, &new] {
        assert_eq!(send(session, PING.to_owned()).await.status, 200, "the session lives on");
    }
    assert_eq!(send(&old, format!("[{PING}")).await.code(), -32700);
    assert_eq!(send("made-up", format!("[{PING}]")).await.status, 404);
}

#[tokio::test]
async fn each_element_of_a_batch_is_a_message_of_its_own() {
    let bench = Bench::new(|config| {
        let rate = Some(Rate { count: 4, period: Duration::from_secs(60) });
        config.limits.edge = Some(CallLimits { rate, burst: None, concurrency: None });
    })
    .await;
    let session = bench.session("2025-03-26").await;
    let call =
        r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"up__talk","arguments":1e2}}"#;
    let handshake =
        r#"{"jsonrpc":"2.0","id":4,"method":"initialize","params":{"protocolVersion":"2025-03-26"}}"#;
    let body = format!("[{call}, 7 ,{handshake},{PING},{NOTE}]");
    let ask = Ask::post(body).bearer("a").header("mcp-session-id", &session);
    let got = bench.send(ask.header("accept", "application/json")).await;
    assert_eq!(got.status, 200);
    let answers = got.json();
    assert_eq!(answers[0]["id"], 3);
    assert!(std::str::from_utf8(&got.body).unwrap().contains(r#""said":1e2"#));
    assert_eq!(answers[1]["error"]["code"], -32600);
    assert_eq!((&answers[2]["id"], &answers[2]["error"]["code"]), (&json!(4), &json!(-32600)));
    assert_eq!((&answers[3]["id"], &answers[3]["error"]["code"]), (&json!("p"), &json!(429)));
}

fn call(id: &str, tool: &str) -> String {
    let params = json!({"name": tool, "arguments": {}, "_meta": {"progressToken": id}});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
}

#[tokio::test]
async fn what_calls_of_a_batch_say_makes_its_answer_a_stream() {
    let bench = Bench::new(|_| {}).await;
    let session = bench.session("2025-03-26").await;
    let body = format!("[{},{PING},{},{NOTE}]", call("a", "up__talk"), call("b", "up__talk"));
    let got = bench.send(Ask::post(body).bearer("a").header("mcp-session-id", &session)).await;
    let events = got.events();
    let mut answers: Vec<&str> = events.iter().filter_map(|event| event["id"].as_str()).collect();
    answers.sort_unstable();
    assert_eq!(answers, ["a", "b", "p"], "each answer once, as a message of its own");
    for id in ["a", "b"] {
        let of = |event: &&Value| event["params"]["progressToken"] == id || event["id"] == id;
        let methods: Vec<_> = events.iter().filter(of).map(|event| event["method"].as_str()).collect();
        assert_eq!(methods, [Some("notifications/progress"), None], "{id}: progress, then the answer");
    }
    let back = Ask::new(http::Method::GET, "/mcp").bearer("a").header("mcp-session-id", &session);
    let rest = bench.send(back.header("last-event-id", &got.event_ids()[0])).await;
    assert_eq!(rest.events(), events[1..], "and it can be come back to");
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_takes_long_is_a_stream_and_gives_what_is_there() {
    let bench = Bench::new(|_| {}).await;
    let session = bench.session("2025-03-26").await;
    let body = format!("[{},{PING}]", call("a", "up__late"));
    let got = bench.send(Ask::post(body).bearer("a").header("mcp-session-id", &session)).await;
    let ids: Vec<_> = got.events().iter().map(|event| event["id"].clone()).collect();
    assert_eq!(ids, ["p", "a"]);
}

#[tokio::test]
async fn str_10_every_accept_that_covers_an_answer_is_served() {
    let bench = Bench::new(|_| {}).await;
    for (accept, kind) in [
        (None, "application/json"),
        (Some("*/*"), "application/json"),
        (Some("application/json"), "application/json"),
        (Some("application/*"), "application/json"),
        (Some("application/json, text/event-stream"), "application/json"),
        (Some("text/event-stream"), "text/event-stream"),
    ] {
        for ask in [Ask::message("tools/list", json!({})), Ask::call("up__echo")] {
            let got = bench.send(accept.map_or(ask.clone(), |accept| ask.header("accept", accept))).await;
            assert_eq!((got.status.as_u16(), got.kind()), (200, kind), "{accept:?}");
        }
    }
    assert_eq!(bench.send(Ask::post(NOTE)).await.status, 202);
    let got = bench.send(Ask::call("up__echo").header("accept", "image/png")).await;
    assert_eq!(got.status, 406);
    assert!(got.json()["error"].is_object());
}

#[tokio::test]
async fn s2c_04_calls_with_one_id_each_get_their_own_answer() {
    let bench = Bench::new(|_| {}).await;
    let session = bench.session("2025-11-25").await;
    let sends = (0..20).map(|n| {
        let id = if n % 2 == 0 { "1" } else { "\"1\"" };
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"up__echo","arguments":{n}}}}}"#
        );
        bench.send(Ask::post(text).bearer("a").header("mcp-session-id", &session))
    });
    for (n, got) in futures_util::future::join_all(sends).await.iter().enumerate() {
        let id = if n % 2 == 0 { json!(1) } else { json!("1") };
        assert_eq!((&got.json()["result"]["said"], &got.json()["id"]), (&json!(n), &id));
    }
}
