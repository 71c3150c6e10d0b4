//! Servers behind HTTP that keep something: sessions, streams of their own, calls that are taken back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use serde_json::json;
use tokio::time::{sleep, timeout};

use super::bench::{Bench, LONG, call, made, text_of};
use super::site::{End, Seen, Site, content, json_text, legacy, modern, status, stream_of, typed};
use crate::exchange::{EventKind, Hop};
use crate::gateway::{Executed, GatewayErrorKind, Upstream};
use crate::mcp::Raw;

#[tokio::test]
async fn a_legacy_stream_whose_events_have_ids_is_taken_up_again_behind_the_last_one() {
    let answer = Arc::new(std::sync::Mutex::new(String::new()));
    let kept = Arc::clone(&answer);
    let site = Site::open(move |seen: &Seen| match (seen.method(), seen.header("last-event-id")) {
        ("tools/call", _) => {
            *kept.lock().unwrap() = seen.result(&content("resumed"));
            stream_of(vec!["id: 1\nretry: 20\ndata:\n\n".into()], End::Ends)
        }
        ("", Some("1")) => {
            let event = r#"{"jsonrpc":"2.0","method":"notifications/x"}"#;
            stream_of(vec![format!("id: 2\ndata: {event}\n\n")], End::Ends)
        }
        ("", Some("2")) => stream_of(vec![format!("id: 3\ndata: {}\n\n", kept.lock().unwrap())], End::Stays),
        _ => legacy(seen),
    })
    .await;
    let bench = Bench::http(&site.url);
    bench.ready().await;
    let mut made = call("echo", json!({}));
    assert_eq!(text_of(&bench.run(made.call).await.unwrap()), "resumed");
    assert_eq!(made.events.recv().await.unwrap().kind, EventKind::Other);
    assert_eq!(site.seen_of("tools/call").len(), 1, "the request itself is not repeated");
    bench.stop().await;
}

#[tokio::test]
async fn str_06_a_stream_that_says_nothing_new_is_not_taken_up_for_ever() {
    let site = Site::open(|seen: &Seen| match (seen.method(), seen.header("last-event-id")) {
        ("tools/call", _) => stream_of(vec!["id: 1\nretry: 1\ndata:\n\n".into()], End::Ends),
        ("", Some("1")) => stream_of(vec![], End::Ends),
        _ => legacy(seen),
    })
    .await;
    let bench = Bench::http(&site.url);
    bench.ready().await;
    let error = bench.text("echo", json!({})).await.unwrap_err();
    assert_eq!((&*error.text, error.executed), ("its answer broke off", Executed::Unknown));
    let resumptions = site.seen().iter().filter(|seen| seen.header("last-event-id").is_some()).count();
    assert!((1..=8).contains(&resumptions), "{resumptions}");
    bench.stop().await;
}

/// A server with sessions, which it forgets when told to; how it says so is up to `lost`.
async fn with_sessions(lost: fn(&Seen) -> axum::response::Response) -> (Site, Arc<AtomicUsize>) {
    let current = Arc::new(AtomicUsize::new(0));
    let sessions = Arc::clone(&current);
    let site = Site::open(move |seen: &Seen| {
        if seen.method() == "server/discover" {
            return status(400, "");
        }
        if seen.method() == "initialize" {
            let id = sessions.fetch_add(1, Ordering::SeqCst) + 1;
            let mut response = legacy(seen);
            response.headers_mut().insert("mcp-session-id", format!("s{id}").parse().unwrap());
            return response;
        }
        let id = format!("s{}", sessions.load(Ordering::SeqCst));
        if seen.header("mcp-session-id") == Some(&id) { legacy(seen) } else { lost(seen) }
    })
    .await;
    (site, current)
}

#[tokio::test]
async fn ses_02_a_lost_session_is_made_again_once_and_the_request_repeated() {
    let ways: [fn(&Seen) -> axum::response::Response; 4] = [
        |_| status(404, ""),
        |seen| typed(404, "application/json", seen.error(-32001, "Session not found")),
        |seen| {
            typed(400, "application/json", seen.error(-32000, "Bad Request: No valid session ID provided"))
        },
        |_| {
            typed(
                400,
                "application/json",
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid Session"}}"#.into(),
            )
        },
    ];
    for lost in ways {
        let (site, current) = with_sessions(lost).await;
        let bench = Bench::http(&site.url);
        bench.ready().await;
        assert_eq!(bench.text("echo", json!({})).await.unwrap(), "hello");
        // The server forgets: no request can have this session.
        current.fetch_add(1, Ordering::SeqCst);
        let calls = (0..8).map(|_| bench.text("echo", json!({})));
        for text in join_all(calls).await {
            assert_eq!(text.unwrap(), "hello");
        }
        assert_eq!(site.seen_of("initialize").len(), 2, "one new session for all");
        let from = site.seen().iter().rposition(|seen| seen.method() == "initialize").unwrap();
        assert!(site.seen()[from + 1..].iter().filter(|seen| seen.method() == "tools/call").count() >= 8);
        bench.stop().await;
        let deleted: Vec<_> = site.seen().into_iter().filter(|seen| seen.verb == "DELETE").collect();
        assert_eq!(deleted.len(), 1);
        assert_eq!(deleted[0].header("mcp-session-id"), Some("s3"));
    }
}

#[tokio::test]
async fn con_05_a_tools_own_error_about_a_session_is_no_lost_session() {
    let site = Site::open(|seen: &Seen| match seen.method() {
        "initialize" => {
            let mut response = legacy(seen);
            response.headers_mut().insert("mcp-session-id", "s".parse().unwrap());
            response
        }
        "tools/call" => typed(400, "application/json", seen.error(-32000, "the browser session has crashed")),
        _ => legacy(seen),
    })
    .await;
    let bench = Bench::http(&site.url);
    bench.ready().await;
    let outcome = bench.run(call("echo", json!({})).call).await.unwrap();
    assert_eq!(outcome.answer().response.error_code(), Some(-32000));
    assert_eq!(site.seen_of("tools/call").len(), 1, "what may have run is not repeated");
    bench.stop().await;
}

#[tokio::test]
async fn a_server_that_keeps_no_session_fails_the_call_and_is_not_asked_for_ever() {
    let site = Site::open(|seen: &Seen| match seen.method() {
        "initialize" => {
            let mut response = legacy(seen);
            response.headers_mut().insert("mcp-session-id", "s".parse().unwrap());
            response
        }
        "tools/call" => status(404, ""),
        _ => legacy(seen),
    })
    .await;
    let bench = Bench::http(&site.url);
    bench.ready().await;
    let error = bench.text("echo", json!({})).await.unwrap_err();
    assert_eq!(error.text, "it answers as if it did not keep its sessions");
    assert_eq!(site.seen_of("tools/call").len(), 2);
    bench.stop().await;
}

#[tokio::test]
async fn can_01_a_dropped_call_over_http_is_cancelled_as_its_era_has_it() {
    for is_modern in [false, true] {
        let site = Site::open(move |seen: &Seen| match seen.method() {
            "tools/call" => stream_of(vec![": \n\n".into()], End::Stays),
            _ if is_modern => modern(seen),
            _ => legacy(seen),
        })
        .await;
        let bench = Bench::http(&site.url);
        bench.ready().await;
        let made = call("echo", json!({}));
        {
            let mut running = bench.connector.call(made.call);
            while site.seen_of("tools/call").is_empty() {
                assert!(timeout(Duration::from_millis(20), &mut running).await.is_err());
            }
            made.cancel.cancel("r");
        }
        if !is_modern {
            while site.seen_of("notifications/cancelled").is_empty() {
                sleep(Duration::from_millis(10)).await;
            }
        }
        bench.stop().await;
        let cancelled = site.seen_of("notifications/cancelled");
        assert_eq!(cancelled.len(), usize::from(!is_modern));
        for message in cancelled {
            assert_eq!(message.body["params"]["requestId"], site.seen_of("tools/call")[0].body["id"]);
            assert_eq!(message.body["params"]["reason"], "r");
        }
    }
}

#[tokio::test]
async fn the_log_level_of_a_legacy_server_is_raised_only() {
    let site = Site::open(legacy).await;
    let bench = Bench::http(&site.url);
    bench.ready().await;
    for level in ["\"warning\"", "\"debug\"", "\"info\"", "\"nonsense\""] {
        let log_level = Some(Raw::trusted(Bytes::from_static(level.as_bytes())));
        let made = made("echo", r#"{"name":"echo"}"#, Hop { log_level, ..Hop::default() });
        bench.run(made.call).await.unwrap();
    }
    let levels: Vec<_> = site
        .seen_of("logging/setLevel")
        .into_iter()
        .map(|seen| seen.body["params"]["level"].clone())
        .collect();
    assert_eq!(levels, ["info", "debug"], "never less than what others, who set none, may count on");
    bench.stop().await;
}

#[tokio::test]
async fn str_05_a_server_without_a_stream_of_its_own_is_asked_once() {
    let site = Site::open(legacy).await;
    let bench = Bench::http(&site.url);
    bench.ready().await;
    sleep(Duration::from_secs(2)).await;
    assert_eq!(site.seen().iter().filter(|seen| seen.verb == "GET").count(), 1);
    bench.stop().await;
}

#[tokio::test]
async fn the_stream_of_a_server_tells_of_changes_and_is_opened_again() {
    let tools = Arc::new(AtomicUsize::new(1));
    let count = Arc::clone(&tools);
    let site = Site::open(move |seen: &Seen| match (seen.verb.as_str(), seen.method()) {
        ("GET", _) if seen.header("last-event-id").is_none() => {
            stream_of(vec!["id: 5\nretry: 1\ndata:\n\n".into()], End::Ends)
        }
        ("GET", _) => {
            count.store(2, Ordering::SeqCst);
            let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
            stream_of(vec![format!("data: {changed}\n\n").repeat(5)], End::Stays)
        }
        (_, "tools/list") => {
            let tools: Vec<_> =
                (0..count.load(Ordering::SeqCst)).map(|n| json!({"name": n.to_string()})).collect();
            json_text(seen.result(&json!({"tools": tools})))
        }
        _ => legacy(seen),
    })
    .await;
    let bench = Bench::http(&site.url);
    bench.offer(|offer| offer.lists.tools.entries.len() == 2).await;
    let streams: Vec<_> = site.seen().into_iter().filter(|seen| seen.verb == "GET").collect();
    assert_eq!(streams.len(), 2);
    assert_eq!(streams[1].header("last-event-id"), Some("5"));
    assert!(site.seen_of("tools/list").len() <= 3, "changes are gathered");
    bench.stop().await;
}

#[tokio::test]
async fn a_server_that_is_not_there_says_so_and_is_found_when_it_comes() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let bench = Bench::http(&format!("http://{address}/mcp"));
    assert_eq!(&*bench.down().await, "connection refused");
    let error = bench.text("echo", json!({})).await.unwrap_err();
    assert_eq!((error.kind, &*error.text), (GatewayErrorKind::Unavailable, "connection refused"));
    let listener = tokio::net::TcpListener::bind(address).await.unwrap();
    let site = Site::open_at(listener, legacy);
    bench.ready().await;
    assert_eq!(bench.text("echo", json!({})).await.unwrap(), "hello");
    timeout(LONG, bench.stop()).await.unwrap();
    drop(site);
}
