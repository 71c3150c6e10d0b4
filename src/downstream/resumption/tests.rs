//! Clients that lose their connection in the middle of a call, or of a session's stream, and come back.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::Method;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::downstream::for_test::{Ask, Bench, Got, data};

const BOTH: &str = "application/json, text/event-stream";

struct Talk {
    bench: Bench,
    session: String,
}

impl Talk {
    async fn new(version: &str) -> Self {
        Self::over(Bench::new(|_| {}).await, version).await
    }

    async fn over(bench: Bench, version: &str) -> Self {
        let session = bench.session(version).await;
        Self { bench, session }
    }

    fn ask(&self, ask: Ask) -> Ask {
        ask.bearer("a").header("mcp-session-id", &self.session).header("accept", BOTH)
    }

    fn get(&self, last: &str) -> Ask {
        self.ask(Ask::new(Method::GET, "/mcp")).header("last-event-id", last)
    }

    async fn open(&self, ask: Ask) -> Response {
        self.bench.door.clone().enter(self.ask(ask).build()).await
    }

    async fn send(&self, ask: Ask) -> Got {
        self.bench.send(self.ask(ask)).await
    }

    fn dropped(&self) -> Vec<Option<String>> {
        self.bench.upstream.dropped.lock().unwrap().clone()
    }

    fn metric(&self, line: &str) -> bool {
        let text = self.bench.gateway.metrics().render();
        text.lines().any(|found| found == line)
    }
}

/// A stream up to its first event, and the id of that.
async fn begun(response: Response) -> (Body, String) {
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut body = response.into_body();
    let frame = frame(&mut body).await.unwrap();
    (body, id(&frame).unwrap())
}

async fn frame(body: &mut Body) -> Option<String> {
    let frame = body.frame().await?.unwrap();
    Some(String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap())
}

fn id(frame: &str) -> Option<String> {
    frame.split('\n').find_map(|line| line.strip_prefix("id: ")).map(str::to_owned)
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["method"].as_str().unwrap_or("answer")).collect()
}

#[tokio::test]
async fn each_event_has_an_id_and_a_client_comes_back_to_any() {
    let talk = Talk::new("2025-06-18").await;
    let call = json!({"name": "up__talk", "_meta": {"progressToken": "tok"}});
    let whole = talk.send(Ask::message("tools/call", call)).await;
    let (events, ids) = (whole.events(), whole.event_ids());
    assert_eq!(
        kinds(&events),
        ["notifications/progress", "notifications/message", "notifications/message", "answer"]
    );
    assert_eq!(ids.len(), 4, "and no event without a message before 2025-11-25");
    for (at, id) in ids.iter().enumerate() {
        let again = talk.bench.send(talk.get(id)).await;
        if at == 3 {
            assert_eq!(again.status, 410, "nothing more comes");
            break;
        }
        assert_eq!(again.events(), events[at + 1..], "after {at}");
        assert_eq!(again.event_ids(), ids[at + 1..]);
    }
    assert!(talk.metric("waypost_streams_resumed_total{kind=\"call\",found=\"whole\"} 4"));
}

#[tokio::test]
async fn the_newest_legacy_revision_begins_with_a_priming_event() {
    let talk = Talk::new("2025-11-25").await;
    let mut body = talk.open(Ask::call("up__talk")).await.into_body();
    let priming = frame(&mut body).await.unwrap();
    assert!(priming.starts_with("retry: 1000\nid: ") && priming.ends_with("\ndata: \n\n"), "{priming}");
    let rest = talk.bench.send(talk.get(&id(&priming).unwrap())).await;
    assert_eq!(rest.events().len(), 4);
    assert_eq!(rest.event_ids()[0], id(&priming).unwrap(), "so that a client can come back once more");
    assert_eq!(frame(&mut body).await, None, "the older connection reads no longer");
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_does_not_lose_the_answer() {
    let talk = Talk::new("2025-11-25").await;
    let (body, last) = begun(talk.open(Ask::call("up__late")).await).await;
    drop(body);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(talk.metric("waypost_calls_detached 1"));
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert!(talk.metric("waypost_calls_detached 0"), "it has ended");
    let got = talk.bench.send(talk.get(&last)).await;
    assert_eq!(got.events()[0]["result"]["said"], json!({"n": 1}));
    assert_eq!(talk.bench.send(talk.get(&last)).await.events().len(), 1, "as often as a client wants");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_comes_back_early_hears_the_end_when_it_comes() {
    let talk = Talk::new("2025-11-25").await;
    let (old, last) = begun(talk.open(Ask::call("up__late")).await).await;
    let got = talk.bench.send(talk.get(&last)).await;
    assert_eq!(got.events().len(), 1);
    assert!(!String::from_utf8_lossy(&old.collect().await.unwrap().to_bytes()).contains("result"));
}

#[tokio::test(start_paused = true)]
async fn a_call_in_a_session_that_ends_soon_is_one_document() {
    let talk = Talk::new("2025-11-25").await;
    assert_eq!(talk.send(Ask::call("up__echo")).await.kind(), "application/json");
    let plain = talk.ask(Ask::call("up__late")).header("accept", "application/json");
    assert_eq!(talk.bench.send(plain).await.kind(), "application/json");
    assert!(talk.metric("waypost_kept_events 0"));
}

#[tokio::test]
async fn str_06_ids_of_others_are_refused() {
    let talk = Talk::new("2025-11-25").await;
    let whole = talk.send(Ask::call("up__talk")).await;
    let id = whole.event_ids().remove(1);
    let other = talk.bench.session("2025-11-25").await;
    let stolen = talk.get(&id).header("mcp-session-id", &other);
    for ask in [stolen, talk.get("1"), talk.get(&format!("{id}A")), talk.get("x, y")] {
        let got = talk.bench.send(ask).await;
        assert_eq!(got.status, 400, "{got:?}");
        let error = got.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(error.contains("Last-Event-ID names no event of this session"), "{error}");
    }
    assert_eq!(talk.bench.send(talk.get(&id).bearer("b")).await.status, 404, "nor is the session");
}

#[tokio::test(start_paused = true)]
async fn what_is_no_longer_kept_ends_the_wait_with_an_error() {
    let bench = Bench::new(|config| config.limits.kept_events_per_session = 4).await;
    let talk = Talk::over(bench, "2025-11-25").await;
    let gone = talk.send(Ask::call("up__talk")).await.event_ids();
    let half = talk.send(Ask::call("up__talk")).await.event_ids();
    let got = talk.bench.send(talk.get(&gone[0])).await;
    let error = &got.events()[0];
    assert_eq!((&error["id"], &error["error"]["code"]), (&json!(7), &json!(-32603)));
    assert!(error["error"]["message"].as_str().unwrap().contains("no longer kept"), "{error}");
    assert!(talk.metric("waypost_streams_resumed_total{kind=\"call\",found=\"gone\"} 1"));
    let _another = talk.send(Ask::call("up__late")).await;
    assert_eq!(talk.bench.send(talk.get(&half[0])).await.events().len(), 3, "the rest is sent all the same");
    assert!(talk.metric("waypost_streams_resumed_total{kind=\"call\",found=\"gap\"} 1"));
}

#[tokio::test]
async fn an_answer_that_is_too_large_is_kept_as_an_error() {
    let bench = Bench::new(|config| config.limits.kept_bytes_per_session = 600).await;
    let talk = Talk::over(bench, "2025-11-25").await;
    let long = "x".repeat(600);
    let call = json!({"name": "up__talk", "arguments": long});
    let whole = talk.send(Ask::message("tools/call", call)).await;
    assert_eq!(whole.events()[3]["result"]["said"], json!(long), "who stays gets it");
    let again = talk.bench.send(talk.get(&whole.event_ids()[3])).await;
    let text = again.events()[0]["error"]["message"].as_str().unwrap().to_owned();
    assert!(text.contains("too large to be kept") && again.events()[0]["id"] == 7, "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_call_to_which_nobody_comes_back_ends_with_the_window() {
    let bench = Bench::new(|config| {
        config.sessions.resume_window = Duration::from_secs(20);
        std::sync::Arc::make_mut(&mut config.upstreams[0]).timeout = Duration::from_secs(1000);
    });
    let talk = Talk::over(bench.await, "2025-11-25").await;
    let (body, last) = begun(talk.open(Ask::call("up__slow")).await).await;
    drop(body);
    tokio::time::sleep(Duration::from_secs(15)).await;
    let (body, _) = begun(talk.open(talk.get(&last)).await).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(talk.dropped(), [], "somebody is there");
    drop(body);
    tokio::time::sleep(Duration::from_secs(21)).await;
    assert_eq!(talk.dropped(), [Some("client disconnected".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn of_more_calls_than_may_go_on_alone_a_lost_connection_ends_one() {
    let talk = Talk::over(Bench::new(|config| config.limits.detached_calls = 1).await, "2025-11-25").await;
    let (first, _) = begun(talk.open(Ask::call("up__slow")).await).await;
    let (second, _) = begun(talk.open(Ask::call("up__slow").with_id("8")).await).await;
    drop(first);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(talk.dropped(), []);
    drop(second);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(talk.dropped(), [Some("client disconnected".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn a_lost_call_can_be_cancelled() {
    let talk = Talk::new("2025-11-25").await;
    let (body, _) = begun(talk.open(Ask::call("up__slow")).await).await;
    drop(body);
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": 7, "reason": "changed my mind"}});
    assert_eq!(talk.send(Ask::post(cancel.to_string())).await.status, 202);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(talk.dropped(), [Some("changed my mind".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_session_ends_its_calls_and_forgets_its_events() {
    let talk = Talk::new("2025-11-25").await;
    talk.send(Ask::call("up__talk")).await;
    let (body, _) = begun(talk.open(Ask::call("up__slow")).await).await;
    drop(body);
    assert_eq!(talk.send(Ask::new(Method::DELETE, "/mcp")).await.status, 204);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(talk.dropped(), [Some("its session was ended by the client".to_owned())]);
    assert!(talk.metric("waypost_calls_detached 0"));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_breaks_off_inside_the_gateway_has_an_end_all_the_same() {
    let talk = Talk::new("2025-11-25").await;
    let (body, last) = begun(talk.open(Ask::call("up__breaks")).await).await;
    drop(body);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let got = talk.bench.send(talk.get(&last)).await;
    assert!(got.events()[0]["error"]["message"].as_str().unwrap().contains("broken off"), "{got:?}");
}

#[tokio::test(start_paused = true)]
async fn a_sessions_stream_goes_on_where_its_client_was() {
    let talk = Talk::over(Bench::living().await, "2025-11-25").await;
    let (mut body, before) = begun(talk.open(Ask::new(Method::GET, "/mcp")).await).await;
    talk.bench.offer(&["echo", "other"]);
    let told = frame(&mut body).await.unwrap();
    assert_eq!(data(&told).unwrap()["method"], "notifications/tools/list_changed");
    drop(body);
    let after = id(&told).unwrap();
    for (last, expected) in [(&before, true), (&after, false)] {
        let (mut body, _) = begun(talk.open(talk.get(last)).await).await;
        let next = frame(&mut body).await.unwrap();
        assert_eq!(data(&next).is_some(), expected, "{next}");
    }
    assert!(talk.metric("waypost_streams_resumed_total{kind=\"session\",found=\"whole\"} 2"));
}
