//! The life of an upstream: back-off, waking, grace, isolation from one another.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, advance, sleep};

use super::bench::{Bench, call, http, scripted, shell};
use super::site::{Seen, Site, json_text, legacy, status};
use crate::config::Transport;
use crate::gateway::{GatewayErrorKind, Health, Upstream};

/// When each of the next failures is reported.
async fn failures(bench: &Bench, count: usize) -> Vec<Duration> {
    let began = Instant::now();
    let mut offers = bench.connector.offer();
    let mut times = Vec::new();
    while times.len() < count {
        offers.changed().await.unwrap();
        if matches!(offers.borrow_and_update().health, Health::Down { .. }) {
            times.push(began.elapsed());
        }
    }
    times
}

#[tokio::test(start_paused = true)]
async fn std_07_attempts_at_a_missing_command_grow_apart() {
    let bench = Bench::stdio(shell("/no/such/command", &[]));
    let times = failures(&bench, 12).await;
    assert!(times.iter().filter(|time| **time <= Duration::from_secs(30)).count() <= 8, "{times:?}");
    let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().take(6).is_sorted(), "{gaps:?}");
    assert!(gaps.iter().all(|gap| *gap <= Duration::from_secs(61)), "{gaps:?}");
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_wakes_a_backed_off_upstream_but_not_more_than_once_a_second() {
    let bench = Bench::stdio(shell("/no/such/command", &[]));
    failures(&bench, 8).await;
    for _ in 0..5 {
        advance(Duration::from_millis(1100)).await;
        let mut offers = bench.connector.offer();
        offers.mark_unchanged();
        let error = bench.run(call("echo", json!({})).call).await.unwrap_err();
        assert_eq!((error.kind, &*error.text), (GatewayErrorKind::Unavailable, "the command was not found"));
        assert!(offers.has_changed().unwrap(), "the call had it tried");
        offers.mark_unchanged();
        for _ in 0..20 {
            bench.run(call("echo", json!({})).call).await.unwrap_err();
        }
        assert!(!offers.has_changed().unwrap(), "it was tried again at once");
    }
    bench.stop().await;
}

#[tokio::test]
async fn lists_outlive_the_connection_for_the_time_of_grace_and_no_longer() {
    let is_up = Arc::new(AtomicBool::new(true));
    let up = Arc::clone(&is_up);
    let site = Site::open(move |seen: &Seen| match (up.load(Ordering::SeqCst), seen.method()) {
        (false, "tools/call") => status(404, ""),
        (true, "initialize") => {
            let mut response = legacy(seen);
            response.headers_mut().insert("mcp-session-id", "s".parse().unwrap());
            response
        }
        (true, _) => legacy(seen),
        (false, _) => status(503, ""),
    })
    .await;
    let bench = Bench::with(http(&site.url), |upstream, _| upstream.grace = Duration::from_secs(2));
    bench.ready().await;
    is_up.store(false, Ordering::SeqCst);
    // The session is lost and cannot be made again: the connection is broken.
    let lost = Instant::now();
    bench.text("echo", json!({})).await.unwrap_err();
    bench.down().await;
    assert_eq!(bench.connector.offer().borrow().lists.tools.entries.len(), 1, "served on while in grace");
    bench.offer(|offer| offer.lists.tools.entries.is_empty()).await;
    assert!(lost.elapsed() >= Duration::from_secs(1));
    is_up.store(true, Ordering::SeqCst);
    let offer = bench.offer(|offer| matches!(offer.health, Health::Ready)).await;
    assert_eq!((offer.lists.tools.entries.len(), offer.connects), (1, 2));
    bench.stop().await;
}

#[tokio::test]
async fn a_new_connection_publishes_its_list_only_when_it_is_read() {
    let bench = Bench::scripted(&json!({"tools": ["echo", "die"]}));
    bench.ready().await;
    let mut offers = bench.connector.offer();
    offers.mark_unchanged();
    bench.text("die", json!({})).await.unwrap_err();
    loop {
        offers.changed().await.unwrap();
        let offer = offers.borrow_and_update().clone();
        assert_eq!(offer.lists.tools.entries.len(), 2, "no moment without tools");
        if offer.connects == 2 {
            break;
        }
    }
    bench.stop().await;
}

#[tokio::test]
async fn a_process_that_ends_on_a_probe_is_not_probed_twice() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("starts");
    let script = format!("echo start >> {}; exec python3 -c \"$1\" \"$2\"", journal.display());
    let plan = json!({"discover": "exit"}).to_string();
    let bench = Bench::stdio(shell("sh", &["-c", &script, "sh", include_str!("server.py"), &plan]));
    bench.ready().await;
    bench.text("die", json!({})).await.unwrap_err();
    bench.offer(|offer| offer.connects == 2).await;
    assert_eq!(std::fs::read_to_string(&journal).unwrap().lines().count(), 3);
    bench.stop().await;
}

#[tokio::test]
async fn an_era_that_no_longer_fits_is_found_out_again() {
    let is_modern = Arc::new(AtomicBool::new(false));
    let switch = Arc::clone(&is_modern);
    let site = Site::open(move |seen: &Seen| {
        let with_session = |mut response: axum::response::Response| {
            response.headers_mut().insert("mcp-session-id", "s".parse().unwrap());
            response
        };
        match (switch.load(Ordering::SeqCst), seen.method()) {
            (false, "initialize") => with_session(legacy(seen)),
            (false, _) => legacy(seen),
            (true, "initialize") => super::site::typed(400, "application/json", seen.error(-32601, "m")),
            (true, _) if seen.header("mcp-session-id").is_some() => status(404, ""),
            (true, _) => super::site::modern(seen),
        }
    })
    .await;
    let bench = Bench::http(&site.url);
    assert_eq!(bench.ready().await.protocol_version, Some("2025-11-25"));
    is_modern.store(true, Ordering::SeqCst);
    bench.text("echo", json!({})).await.unwrap_err();
    bench.offer(|offer| offer.protocol_version == Some("2026-07-28")).await;
    assert_eq!(bench.text("echo", json!({})).await.unwrap(), "hello");
    bench.stop().await;
}

#[tokio::test]
async fn a_server_without_sessions_that_changed_its_era_is_noticed_by_its_errors() {
    let is_changed = Arc::new(AtomicBool::new(false));
    for (before, after) in [("2025-11-25", "2026-07-28"), ("2026-07-28", "2025-11-25")] {
        is_changed.store(false, Ordering::SeqCst);
        let switch = Arc::clone(&is_changed);
        let site = Site::open(move |seen: &Seen| {
            let now = if switch.load(Ordering::SeqCst) { after } else { before };
            let is_modern = seen.header("mcp-method").is_some();
            match (now, is_modern) {
                ("2026-07-28", true) => super::site::modern(seen),
                ("2026-07-28", false) => super::site::typed(400, "application/json", seen.error(-32020, "m")),
                (_, true) => super::site::typed(400, "application/json", seen.error(-32000, "m")),
                (_, false) => legacy(seen),
            }
        })
        .await;
        let bench = Bench::http(&site.url);
        assert_eq!(bench.ready().await.protocol_version, Some(before));
        is_changed.store(true, Ordering::SeqCst);
        let outcome = bench.run(call("echo", json!({})).call).await.unwrap();
        assert!(outcome.answer().response.error_code().is_some());
        bench.offer(|offer| offer.protocol_version == Some(after)).await;
        assert_eq!(bench.text("echo", json!({})).await.unwrap(), "hello");
        bench.stop().await;
    }
}

#[tokio::test]
async fn std_13_one_that_never_opens_does_not_hold_up_its_neighbour() {
    let silent = Bench::with(Transport::Stdio(shell("sh", &["-c", "exec sleep 600"])), |upstream, _| {
        upstream.connect_timeout = Duration::from_secs(2);
    });
    let sound = Bench::scripted(&json!({}));
    sound.ready().await;
    assert_eq!(sound.text("echo", json!({"text": "a"})).await.unwrap(), "a");
    assert_eq!(&*silent.down().await, "it did not answer the handshake in time");
    sound.stop().await;
    silent.stop().await;
}

#[tokio::test]
async fn stopping_is_quick_whatever_is_going_on() {
    for stdio in
        [scripted(&json!({})), shell("sh", &["-c", "exec sleep 600"]), shell("/no/such/command", &[])]
    {
        let bench = Bench::stdio(stdio);
        sleep(Duration::from_millis(100)).await;
        bench.stop().await;
        let error = bench.text("echo", json!({})).await.unwrap_err();
        assert_eq!(error.text, "it is being stopped");
    }
}

#[tokio::test]
async fn pag_01_every_page_of_a_list_is_read_in_order() {
    let names: Vec<_> = (0..101).map(|number| format!("t{number}")).collect();
    for plan in
        [json!({"tools": names, "page": 50}), json!({"tools": names, "page": 1, "discover": "modern"})]
    {
        let bench = Bench::scripted(&plan);
        let offer = bench.ready().await;
        let found: Vec<_> = offer.lists.tools.entries.iter().map(|tool| tool.name.to_string()).collect();
        assert_eq!(found, names);
        assert_eq!(offer.lists.tools.is_private, plan.get("discover").is_some());
        assert_eq!(offer.instructions.as_deref(), Some("be kind"));
        bench.stop().await;
    }
}

#[tokio::test]
async fn a_list_is_bounded_and_its_bad_entries_are_left_out_singly() {
    let pages: [(&str, usize); 6] = [
        (r#"{"tools":[{"name":"a"},{"name":7},{},{"name":""},null,3,{"name":"b","x":1e2},{"name":"a"}]}"#, 2),
        (r#"{"tools":[{"name":"a"}],"nextCursor":"again"}"#, 1),
        (r#"{"tools":[{"name":"a"}],"nextCursor":""}"#, 1),
        (r#"{"tools":[{"name":"a"}],"nextCursor":null}"#, 1),
        (r#"{"tools":[{"name":"a"},{"name":"b"},{"name":"c"},{"name":"d"}]}"#, 3),
        (r#"{"tools":[]}"#, 0),
    ];
    for (page, expected) in pages {
        let site = Site::open(move |seen: &Seen| match seen.method() {
            "tools/list" => {
                json_text(format!(r#"{{"jsonrpc":"2.0","id":{},"result":{page}}}"#, seen.body["id"]))
            }
            _ => legacy(seen),
        })
        .await;
        let bench = Bench::with(http(&site.url), |_, limits| limits.list_items = 3);
        assert_eq!(bench.ready().await.lists.tools.entries.len(), expected, "{page}");
        bench.stop().await;
    }
}

#[tokio::test]
async fn endless_pages_end_at_the_limit() {
    let site = Site::open(|seen: &Seen| match seen.method() {
        "tools/list" => {
            let page = seen.body["id"].to_string();
            json_text(seen.result(&json!({"tools": [{"name": page}], "nextCursor": page})))
        }
        _ => legacy(seen),
    })
    .await;
    let bench = Bench::with(http(&site.url), |_, limits| limits.list_pages = 7);
    assert_eq!(bench.ready().await.lists.tools.entries.len(), 7);
    bench.stop().await;
}

#[tokio::test]
async fn a_server_without_the_method_has_no_tools_and_one_that_fails_is_asked_again() {
    let site = Site::open(|seen: &Seen| match seen.method() {
        "tools/list" => json_text(seen.error(-32601, "Method not found")),
        _ => legacy(seen),
    })
    .await;
    let bench = Bench::http(&site.url);
    assert!(bench.ready().await.lists.tools.entries.is_empty());
    bench.stop().await;

    let tries = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&tries);
    let site = Site::open(move |seen: &Seen| match seen.method() {
        "tools/list" if count.fetch_add(1, Ordering::SeqCst) == 0 => json_text(seen.error(-32603, "busy")),
        _ => legacy(seen),
    })
    .await;
    let bench = Bench::http(&site.url);
    let offer = bench.offer(|offer| offer.lists.tools.entries.len() == 1).await;
    assert_eq!(offer.connects, 1, "the connection stays");
    bench.stop().await;
}

#[tokio::test]
async fn changes_are_gathered_and_the_list_is_read_again() {
    let bench = Bench::scripted(&json!({"tools": ["echo"]}));
    bench.ready().await;
    bench.text("change", json!({"tools": ["echo", "more", "and more"]})).await.unwrap();
    bench.offer(|offer| offer.lists.tools.entries.len() == 3).await;
    let log = bench.text("log", json!({})).await.unwrap();
    assert_eq!(log.matches("tools/list").count(), 2, "{log}");
    bench.stop().await;
}

#[tokio::test]
async fn a_list_is_read_again_every_so_often() {
    let site = Site::open(legacy).await;
    let bench = Bench::with(http(&site.url), |upstream, _| upstream.refresh = Duration::from_millis(50));
    bench.ready().await;
    while site.seen_of("tools/list").len() < 3 {
        sleep(Duration::from_millis(10)).await;
    }
    bench.stop().await;
}

#[tokio::test]
async fn a_modern_server_that_tells_of_changes_is_subscribed_to() {
    let tools = Arc::new(AtomicUsize::new(1));
    let count = Arc::clone(&tools);
    let site = Site::open(move |seen: &Seen| match seen.method() {
        "server/discover" => json_text(seen.result(&json!({
            "resultType": "complete",
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {"listChanged": true}},
        }))),
        "subscriptions/listen" => {
            count.store(2, Ordering::SeqCst);
            let event = |method: &str| {
                let params = json!({"_meta": {"io.modelcontextprotocol/subscriptionId": seen.body["id"]}});
                format!("data: {}\n\n", json!({"jsonrpc": "2.0", "method": method, "params": params}))
            };
            let events = ["notifications/subscriptions/acknowledged", "notifications/tools/list_changed"];
            super::site::stream_of(events.map(event).to_vec(), super::site::End::Stays)
        }
        "tools/list" => {
            let tools: Vec<_> =
                (0..count.load(Ordering::SeqCst)).map(|n| json!({"name": n.to_string()})).collect();
            json_text(seen.result(&json!({"resultType": "complete", "tools": tools})))
        }
        _ => super::site::modern(seen),
    })
    .await;
    let bench = Bench::http(&site.url);
    bench.offer(|offer| offer.lists.tools.entries.len() == 2).await;
    let listen = &site.seen_of("subscriptions/listen")[0];
    assert_eq!(listen.body["params"]["notifications"], json!({"toolsListChanged": true}));
    assert_eq!(listen.header("mcp-method"), Some("subscriptions/listen"));
    bench.stop().await;
    assert!(site.seen_of("notifications/cancelled").is_empty(), "closing the stream says it");
}

#[tokio::test]
async fn a_subscription_that_is_refused_is_not_asked_for_again() {
    let site = Site::open(move |seen: &Seen| match seen.method() {
        "server/discover" => json_text(seen.result(&json!({
            "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {"listChanged": true}},
        }))),
        _ => super::site::modern(seen),
    })
    .await;
    let bench = Bench::http(&site.url);
    bench.ready().await;
    sleep(Duration::from_secs(2)).await;
    assert_eq!(site.seen_of("subscriptions/listen").len(), 1);
    bench.stop().await;
}
