//! One document or a stream, and clients that go away.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http_body_util::BodyExt as _;
use serde_json::json;

use crate::downstream::for_test::{Ask, Bench};

const BOTH: &str = "application/json, text/event-stream";

async fn bench() -> Bench {
    Bench::new(|_| {}).await
}

async fn open(bench: &Bench, ask: Ask) -> Response {
    bench.door.clone().enter(ask.build()).await
}

async fn frame(body: &mut Body) -> Option<String> {
    let frame = body.frame().await?.unwrap();
    Some(String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap())
}

#[tokio::test]
async fn what_comes_before_the_end_comes_first() {
    let bench = bench().await;
    let call = json!({"name": "up__talk", "_meta": {"progressToken": "tok"}});
    let got = bench.send(Ask::message("tools/call", call.clone()).header("accept", BOTH)).await;
    assert_eq!((got.status.as_u16(), &got.headers["x-accel-buffering"]), (200, &"no".parse().unwrap()));
    assert_eq!(got.headers["cache-control"], "no-store");
    let events = got.events();
    let methods: Vec<_> = events.iter().map(|event| event["method"].as_str().unwrap_or("answer")).collect();
    assert_eq!(
        methods,
        ["notifications/progress", "notifications/message", "notifications/message", "answer"],
        "and what is not about the call does not come at all"
    );
    assert_eq!(events[0]["params"]["progressToken"], "tok");
    assert_eq!(events[3]["id"], 7);
    let json_only = bench.send(Ask::message("tools/call", call).header("accept", "application/json")).await;
    assert_eq!(json_only.json()["id"], 7);
}

#[tokio::test]
async fn modern_clients_get_log_messages_only_where_they_ask() {
    let bench = bench().await;
    let call = |meta| Ask::modern("tools/call", json!({"name": "up__talk"}), meta);
    let count = |events: Vec<serde_json::Value>| {
        events.iter().filter(|event| event["method"] == "notifications/message").count()
    };
    assert_eq!(count(bench.send(call(json!({}))).await.events()), 0);
    let level = |level: &str| json!({"io.modelcontextprotocol/logLevel": level});
    assert_eq!(count(bench.send(call(level("warning"))).await.events()), 1);
    assert_eq!(count(bench.send(call(level("debug"))).await.events()), 2);
}

async fn expect_kept_alive(ask: Ask) {
    let bench = bench().await;
    let response = open(&bench, ask.header("accept", BOTH)).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut body = response.into_body();
    assert_eq!(frame(&mut body).await.unwrap(), ": keep-alive\n\n");
    assert_eq!(frame(&mut body).await.unwrap(), ": keep-alive\n\n");
    let last = frame(&mut body).await.unwrap();
    assert!(last.starts_with("data: {") && last.contains(r#""said":"#), "{last}");
    assert_eq!(frame(&mut body).await, None);
}

#[tokio::test(start_paused = true)]
async fn str_03_a_silent_call_is_kept_alive() {
    expect_kept_alive(Ask::call("up__late")).await;
}

#[tokio::test(start_paused = true)]
async fn str_03_a_silent_modern_call_is_kept_alive() {
    expect_kept_alive(Ask::modern("tools/call", json!({"name": "up__late"}), json!({}))).await;
}

#[tokio::test(start_paused = true)]
async fn str_03_a_plain_client_gets_one_document_however_long_it_takes() {
    let got = bench().await.send(Ask::call("up__late").header("accept", "application/json")).await;
    assert_eq!(got.json()["result"]["said"], json!({"n": 1}));
}

#[tokio::test(start_paused = true)]
async fn can_03_a_stream_that_nobody_reads_any_more_ends_its_call() {
    let bench = bench().await;
    let ask = Ask::modern("tools/call", json!({"name": "up__slow"}), json!({}));
    let response = open(&bench, ask).await;
    let mut body = response.into_body();
    assert!(frame(&mut body).await.is_some());
    assert!(bench.upstream.dropped.lock().unwrap().is_empty());
    drop(body);
    assert_eq!(*bench.upstream.dropped.lock().unwrap(), [Some("client disconnected".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn a_legacy_call_outlives_its_connection_and_ends_at_its_deadline() {
    let bench = bench().await;
    let response = open(&bench, Ask::call("up__slow")).await;
    let mut body = response.into_body();
    assert!(frame(&mut body).await.is_some());
    drop(body);
    tokio::task::yield_now().await;
    assert!(bench.upstream.dropped.lock().unwrap().is_empty(), "a lost connection is no cancel");
    let timeout = bench.gateway.config().upstreams[0].timeout;
    tokio::time::sleep(timeout + Duration::from_secs(1)).await;
    let dropped = bench.upstream.dropped.lock().unwrap().clone();
    assert!(dropped[0].as_deref().unwrap().contains("timed out"), "{dropped:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_in_flight_keeps_its_session() {
    let bench = Bench::new(|config| {
        config.sessions.idle_timeout = Duration::from_secs(5);
        config
            .upstreams
            .iter_mut()
            .for_each(|up| std::sync::Arc::make_mut(up).timeout = Duration::from_secs(100));
    })
    .await;
    let session = bench.session("2025-11-25").await;
    let ask =
        |ask: Ask| ask.bearer("a").header("mcp-session-id", &session).header("accept", "application/json");
    assert_eq!(bench.send(ask(Ask::call("up__late"))).await.status, 200);
    assert_eq!(bench.send(ask(Ask::message("ping", json!({})))).await.status, 200);
    tokio::time::advance(Duration::from_secs(6)).await;
    assert_eq!(bench.send(ask(Ask::message("ping", json!({})))).await.status, 404);
}
