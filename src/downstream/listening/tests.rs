//! Streams that stay open: how they begin, what they say, and how they end.

use axum::body::BodyDataStream;
use futures_util::StreamExt as _;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::*;
use crate::downstream::for_test::{Ask, Bench, data};

/// An open stream.
struct Open {
    status: StatusCode,
    kind: String,
    body: BodyDataStream,
}

impl Open {
    async fn new(bench: &Bench, ask: Ask) -> Self {
        let response = bench.door.clone().enter(ask.build()).await;
        let kind = response.headers().get("content-type");
        let kind = kind.map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default();
        Self { status: response.status(), kind, body: response.into_body().into_data_stream() }
    }

    /// The next piece as text; `None` at the end of the stream.
    async fn piece(&mut self) -> Option<String> {
        let piece = self.body.next().await?.unwrap();
        Some(String::from_utf8(piece.to_vec()).unwrap())
    }

    /// The next message; comments and events without one are passed over.
    async fn message(&mut self) -> Option<Value> {
        loop {
            let piece = self.piece().await?;
            if let Some(message) = data(&piece) {
                return Some(message);
            }
        }
    }

    /// Whether nothing but comments comes for a minute.
    async fn is_silent(&mut self) -> bool {
        tokio::time::timeout(Duration::from_secs(60), self.message()).await.is_err()
    }
}

fn get(session: &str) -> Ask {
    let ask = Ask::new(Method::GET, "/mcp").bearer("a").header("accept", "text/event-stream");
    ask.header("mcp-session-id", session)
}

fn listen(filter: Value) -> Ask {
    Ask::modern("subscriptions/listen", json!({"notifications": filter}), json!({})).bearer("a")
}

fn open_streams(bench: &Bench) -> Vec<String> {
    let text = bench.gateway.metrics().render();
    let lines = text.lines().filter_map(|line| line.strip_prefix("waypost_streams_open"));
    lines.filter(|line| !line.ends_with(" 0")).map(str::to_owned).collect()
}

#[tokio::test(start_paused = true)]
async fn chg_01_a_session_hears_that_its_list_has_changed() {
    let bench = Bench::living().await;
    let session = bench.session("2025-11-25").await;
    let mut open = Open::new(&bench, get(&session)).await;
    assert_eq!((open.status, &*open.kind), (StatusCode::OK, "text/event-stream"));
    assert!(open.piece().await.unwrap().starts_with("retry: "), "something to show that the stream is open");
    assert!(open.is_silent().await);
    bench.offer(&["echo"]);
    let expected = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    assert_eq!(open.message().await.unwrap(), expected);
    bench.offer(&["echo"]);
    assert!(open.is_silent().await);
}

#[tokio::test(start_paused = true)]
async fn a_session_hears_on_its_next_stream_what_it_missed() {
    let bench = Bench::living().await;
    let session = bench.session("2025-11-25").await;
    bench.offer(&["echo"]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut first = Open::new(&bench, get(&session)).await;
    assert!(first.message().await.is_some(), "changed since `initialize`");
    drop(first);
    let mut second = Open::new(&bench, get(&session)).await;
    assert!(second.is_silent().await, "it was told");
}

#[tokio::test(start_paused = true)]
async fn str_03_a_quiet_stream_is_kept_alive() {
    let bench = Bench::living().await;
    let session = bench.session("2025-11-25").await;
    for ask in [get(&session), listen(json!({}))] {
        let mut open = Open::new(&bench, ask).await;
        open.piece().await.unwrap();
        for _ in 0..3 {
            let before = Instant::now();
            assert!(open.piece().await.unwrap().starts_with(':'));
            assert_eq!(before.elapsed(), Duration::from_secs(15), "the keep-alive of the configuration");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_has_one_stream_and_the_newer_one_wins() {
    let bench = Bench::living().await;
    let session = bench.session("2025-11-25").await;
    let mut first = Open::new(&bench, get(&session)).await;
    first.piece().await.unwrap();
    let mut second = Open::new(&bench, get(&session)).await;
    second.piece().await.unwrap();
    assert_eq!(first.piece().await, None);
    bench.offer(&["echo"]);
    assert!(second.message().await.is_some());
}

#[tokio::test(start_paused = true)]
async fn the_stream_ends_with_its_session() {
    let bench = Bench::living().await;
    let session = bench.session("2025-11-25").await;
    let mut open = Open::new(&bench, get(&session)).await;
    open.piece().await.unwrap();
    let delete = Ask::new(Method::DELETE, "/mcp").bearer("a").header("mcp-session-id", &session);
    assert_eq!(bench.send(delete).await.status, StatusCode::NO_CONTENT);
    assert_eq!(open.piece().await, None);
    drop(open);
    assert_eq!(open_streams(&bench), Vec::<String>::new());
    assert_eq!(bench.send(get(&session)).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test(start_paused = true)]
async fn an_open_stream_keeps_its_session_and_a_closed_one_does_not() {
    let bench = Bench::living().await;
    let session = bench.session("2025-11-25").await;
    let mut open = Open::new(&bench, get(&session)).await;
    open.piece().await.unwrap();
    tokio::time::sleep(Duration::from_secs(4 * 3600)).await;
    let ping = || Ask::message("ping", json!({})).bearer("a").header("mcp-session-id", &session);
    assert_eq!(bench.send(ping()).await.status, StatusCode::OK);
    drop(open);
    tokio::time::sleep(Duration::from_secs(4 * 3600)).await;
    assert_eq!(bench.send(ping()).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test(start_paused = true)]
async fn a_subscription_is_acknowledged_tagged_and_ended_with_its_result() {
    let bench = Bench::living().await;
    for id in ["7", "\"7\"", "12345678901234567890", "\"a\\u0062\""] {
        bench.offer(&["talk"]);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let ask = listen(json!({
            "toolsListChanged": true, "promptsListChanged": false, "resourcesListChanged": true, "x": 1,
        }));
        let mut open = Open::new(&bench, ask.with_id(id)).await;
        assert_eq!((open.status, &*open.kind), (StatusCode::OK, "text/event-stream"));
        let tag = format!(r#""_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}"#);
        let ack = open.piece().await.unwrap();
        let expected = format!(
            "data: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\",\
             \"params\":{{{tag},\"notifications\":{{\"toolsListChanged\":true,\"resourcesListChanged\":true}}}}}}\n\n"
        );
        assert_eq!(ack, expected, "only what Waypost tells is acknowledged");
        bench.offer(&["echo"]);
        let expected = format!(
            "data: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\",\"params\":{{{tag}}}}}\n\n"
        );
        assert_eq!(open.piece().await.unwrap(), expected);
    }
    let mut open = Open::new(&bench, listen(json!({"toolsListChanged": true}))).await;
    open.piece().await.unwrap();
    bench.close();
    let end = open.message().await.unwrap();
    assert_eq!((&end["id"], &end["result"]["resultType"]), (&json!(7), &json!("complete")));
    assert_eq!(end["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 7);
    assert_eq!(open.piece().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_subscription_brings_nothing_outside_its_filter() {
    let bench = Bench::living().await;
    for filter in [json!({}), json!({"toolsListChanged": false}), json!({"promptsListChanged": true})] {
        bench.offer(&["talk"]);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let mut open = Open::new(&bench, listen(filter)).await;
        let ack = open.message().await.unwrap();
        assert!(ack["params"]["notifications"].get("toolsListChanged").is_none(), "{ack}");
        bench.offer(&["echo"]);
        assert!(open.is_silent().await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_cannot_be_is_refused_in_words() {
    let bench = Bench::living().await;
    for params in [json!({}), json!({"notifications": []}), json!({"notifications": {"toolsListChanged": 1}})]
    {
        let refused = bench.send(Ask::modern("subscriptions/listen", params, json!({})).bearer("a")).await;
        assert_eq!((refused.status, refused.code()), (StatusCode::BAD_REQUEST, -32602));
    }
    let json_only = listen(json!({})).header("accept", "application/json");
    assert_eq!(bench.send(json_only).await.status, StatusCode::NOT_ACCEPTABLE);
    let legacy = Ask::message("subscriptions/listen", json!({"notifications": {}})).bearer("a");
    assert_eq!(bench.send(legacy).await.code(), -32601);
    assert_eq!(open_streams(&bench), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn streams_are_bounded_by_caller_and_counted_by_kind() {
    let bench = Bench::living_with(|config| config.limits.streams = 2).await;
    let session = bench.session("2025-11-25").await;
    let first = Open::new(&bench, get(&session)).await;
    let second = Open::new(&bench, listen(json!({}))).await;
    assert_eq!(open_streams(&bench), ["{kind=\"session\"} 1", "{kind=\"subscription\"} 1"]);
    let other_session = bench.session("2025-11-25").await;
    for ask in [get(&other_session), listen(json!({}))] {
        let refused = bench.send(ask).await;
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
        assert!(refused.json()["error"]["message"].as_str().unwrap().contains("limits.streams"));
    }
    let again = Open::new(&bench, get(&session)).await;
    assert_eq!(again.status, StatusCode::OK, "a session's newer stream takes the place of its older one");
    assert_eq!(open_streams(&bench), ["{kind=\"session\"} 1", "{kind=\"subscription\"} 1"]);
    let of_bob = Open::new(&bench, listen(json!({})).bearer("b")).await;
    assert_eq!(of_bob.status, StatusCode::OK, "another client has its own");
    drop(second);
    assert_eq!(Open::new(&bench, listen(json!({}))).await.status, StatusCode::OK);
    drop((first, again, of_bob));
    assert_eq!(open_streams(&bench), Vec::<String>::new());
}
