//! Servers behind HTTP: eras, answers in every form, statuses, sessions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::bench::{Bench, LONG, call, call_with_progress, http, made, text_of};
use super::site::{End, Seen, Site, content, json_text, legacy, modern, status, stream_of, typed};
use crate::config::Transport;
use crate::exchange::{EventKind, Hop, Outcome, ResultForm};
use crate::gateway::{Executed, GatewayErrorKind, Health, Upstream};
use crate::mcp::Raw;

fn on_call(
    answer: impl Fn(&Seen) -> axum::response::Response + Send + Sync + 'static,
) -> impl Fn(&Seen) -> axum::response::Response + Send + Sync {
    move |seen| if seen.method() == "tools/call" { answer(seen) } else { legacy(seen) }
}

#[tokio::test]
async fn every_answer_to_the_probe_over_http_finds_the_era() {
    type Probe = fn(&Seen) -> axum::response::Response;
    let cases: [(&str, Probe, &str); 12] = [
        ("a discovery", modern, "2026-07-28"),
        (
            "a modern error in a 400",
            |seen| typed(400, "application/json", seen.error(-32020, "m")),
            "2026-07-28",
        ),
        ("method not found", legacy, "2025-11-25"),
        (
            "400 with -32000 and no id",
            |_| {
                typed(400, "application/json", r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: Server not initialized"}}"#.into())
            },
            "2025-11-25",
        ),
        (
            "400 with the id server-error",
            |_| {
                typed(
                    400,
                    "application/json",
                    r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"m"}}"#.into(),
                )
            },
            "2025-11-25",
        ),
        ("404 with HTML", |_| typed(404, "text/html", "<html>".into()), "2025-11-25"),
        ("405", |_| status(405, ""), "2025-11-25"),
        ("406 without a body", |_| status(406, ""), "2025-11-25"),
        ("200 with HTML", |_| typed(200, "text/html", "<html>".into()), "2025-11-25"),
        ("401", |_| status(401, ""), "it answered 401"),
        ("403", |_| status(403, ""), "it answered 403"),
        ("503", |_| status(503, ""), "it answered 503"),
    ];
    for (case, probe, expected) in cases {
        let site = Site::open(move |seen: &Seen| match seen.method() {
            "server/discover" => probe(seen),
            _ if expected == "2026-07-28" => modern(seen),
            _ => legacy(seen),
        })
        .await;
        let bench = Bench::http(&site.url);
        let offer = bench.offer(|offer| !matches!(offer.health, Health::Connecting)).await;
        let found = match &offer.health {
            Health::Down { reason, .. } => reason.to_string(),
            Health::Ready | Health::Connecting => offer.protocol_version.unwrap().to_owned(),
        };
        assert_eq!(found, expected, "{case}");
        bench.stop().await;
    }
}

#[tokio::test]
async fn a_silent_probe_over_http_falls_back() {
    let site = Site::open(|seen: &Seen| match seen.method() {
        "server/discover" => stream_of(vec![": waiting\n\n".into()], End::Stays),
        _ => legacy(seen),
    })
    .await;
    let bench = Bench::with(http(&site.url), |upstream, _| upstream.connect_timeout = Duration::from_secs(6));
    assert_eq!(bench.ready().await.protocol_version, Some("2025-11-25"));
    bench.stop().await;
}

#[tokio::test]
async fn the_era_is_remembered_across_connections_and_configured_eras_are_not_probed() {
    let site = Site::open(legacy).await;
    let bench = Bench::with(http(&site.url), |upstream, _| upstream.era = Some(crate::mcp::Era::Legacy));
    bench.ready().await;
    assert!(site.seen_of("server/discover").is_empty());
    bench.stop().await;
    let site = Site::open(|seen: &Seen| match seen.method() {
        "server/discover" => typed(400, "application/json", seen.error(-32601, "m")),
        _ => modern(seen),
    })
    .await;
    let bench = Bench::with(http(&site.url), |upstream, _| upstream.era = Some(crate::mcp::Era::Modern));
    assert_eq!(bench.ready().await.protocol_version, Some("2026-07-28"));
    bench.stop().await;
}

#[tokio::test]
async fn str_01_streams_with_any_line_end_are_read() {
    for end in ["\n", "\r\n", "\r"] {
        let site = Site::open(move |seen: &Seen| match (seen.method(), &seen.body["id"]) {
            ("", _) | (_, Value::Null) => status(202, ""),
            ("tools/call", _) => stream_of(events(&[seen.result(&content("a"))], end), End::Ends),
            ("initialize", _) => {
                stream_of(events(&[seen.result(&json!({"protocolVersion": "2025-06-18"}))], end), End::Ends)
            }
            ("tools/list", _) => {
                stream_of(events(&[seen.result(&json!({"tools": [{"name": "t"}]}))], end), End::Ends)
            }
            _ => stream_of(events(&[seen.error(-32601, "m")], end), End::Ends),
        })
        .await;
        let bench = Bench::http(&site.url);
        assert_eq!(bench.ready().await.lists.tools.entries.len(), 1);
        assert_eq!(bench.text("t", json!({})).await.unwrap(), "a");
        bench.stop().await;
    }
}

fn events(messages: &[String], end: &str) -> Vec<String> {
    let event = |message: &String| {
        let (head, tail) = message.split_at(message.len() / 2);
        [format!("event: message{end}id: 1{end}data: {head}"), format!("{tail}{end}{end}")]
    };
    messages.iter().flat_map(event).collect()
}

#[tokio::test]
async fn str_08_a_stream_that_ends_before_the_answer_fails_the_call_at_once() {
    for end in [End::Ends, End::Breaks] {
        let site = Site::open(on_call(move |seen| match seen.tool() {
            "good" => legacy(seen),
            _ => stream_of(
                vec![r#"data: {"jsonrpc":"2.0","method":"notifications/x"}"#.to_owned() + "\n\n"],
                end,
            ),
        }))
        .await;
        let bench = Bench::http(&site.url);
        bench.ready().await;
        let error = bench.text("echo", json!({})).await.unwrap_err();
        let texts = ["its answer broke off", "the connection broke before it answered"];
        assert!(texts.contains(&&*error.text), "{error}");
        assert_eq!((error.kind, error.executed), (GatewayErrorKind::Unavailable, Executed::Unknown));
        assert_eq!(bench.text("good", json!({})).await.unwrap(), "hello");
        bench.stop().await;
    }
}

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

#[tokio::test]
async fn str_12_sloppy_acknowledgements_are_tolerated() {
    type Ack = fn() -> axum::response::Response;
    let acknowledgements: [Ack; 5] = [
        || typed(202, "text/plain", "Accepted".into()),
        || status(200, ""),
        || typed(200, "application/json", "null".into()),
        || status(204, ""),
        || status(400, "what?"),
    ];
    for acknowledge in acknowledgements {
        let site = Site::open(move |seen: &Seen| match seen.method() {
            "notifications/initialized" => acknowledge(),
            _ => legacy(seen),
        })
        .await;
        let bench = Bench::http(&site.url);
        bench.ready().await;
        assert_eq!(bench.text("echo", json!({})).await.unwrap(), "hello");
        bench.stop().await;
    }
}

#[tokio::test]
async fn statuses_become_the_errors_that_they_mean() {
    let site = Site::open(on_call(|seen| match seen.tool() {
        "500" => typed(500, "text/html", "<h1>secret</h1>".into()),
        "503" => axum::response::Response::builder()
            .status(503)
            .header("retry-after", "7")
            .body("".into())
            .unwrap(),
        "301" => axum::response::Response::builder()
            .status(301)
            .header("location", "/other")
            .body("".into())
            .unwrap(),
        "307-away" => axum::response::Response::builder()
            .status(307)
            .header("location", "http://127.0.0.1:9/")
            .body("".into())
            .unwrap(),
        "wrong-id" => json_text(r#"{"jsonrpc":"2.0","id":"other","result":{}}"#.into()),
        "no-json" => json_text("{oops".into()),
        "html" => typed(200, "text/html", "<h1>".into()),
        "accepted" => status(202, ""),
        number => status(number.parse().unwrap(), ""),
    }))
    .await;
    let bench = Bench::http(&site.url);
    bench.ready().await;
    for (tool, kind, text, executed) in [
        ("401", GatewayErrorKind::UpstreamAuth, "it answered 401", Executed::No),
        ("403", GatewayErrorKind::UpstreamAuth, "it answered 403", Executed::No),
        ("404", GatewayErrorKind::BadUpstream, "it answered 404", Executed::No),
        ("500", GatewayErrorKind::Unavailable, "it answered 500", Executed::Unknown),
        ("503", GatewayErrorKind::Unavailable, "it answered 503", Executed::Unknown),
        (
            "301",
            GatewayErrorKind::BadUpstream,
            "it answered 301, a redirect that is not followed",
            Executed::No,
        ),
        (
            "307-away",
            GatewayErrorKind::BadUpstream,
            "it answered 307, a redirect that is not followed",
            Executed::No,
        ),
        ("wrong-id", GatewayErrorKind::BadUpstream, "its answer is not for our request", Executed::Unknown),
        ("no-json", GatewayErrorKind::BadUpstream, "its answer is not a valid message", Executed::Unknown),
        ("html", GatewayErrorKind::BadUpstream, "it answered 200 without an answer", Executed::Unknown),
        ("accepted", GatewayErrorKind::BadUpstream, "it answered 202 without an answer", Executed::Unknown),
    ] {
        let error = bench.text(tool, json!({})).await.unwrap_err();
        assert_eq!((error.kind, &*error.text, error.executed), (kind, text, executed), "{tool}");
        if tool == "503" {
            assert_eq!(error.retry_after, Some(Duration::from_secs(7)));
        }
    }
    bench.stop().await;
}

#[tokio::test]
async fn an_error_of_the_server_is_an_outcome_whatever_the_status() {
    let site = Site::open(on_call(|seen| match seen.tool() {
        "null" => typed(
            400,
            "application/json",
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"m"}}"#.into(),
        ),
        number => typed(number.parse().unwrap(), "application/json", seen.error(-32000, "m")),
    }))
    .await;
    let bench = Bench::http(&site.url);
    bench.ready().await;
    for tool in ["200", "400", "404", "500", "null"] {
        let outcome = bench.run(call(tool, json!({})).call).await.unwrap();
        assert!(matches!(outcome, Outcome::Error(_)), "{tool}");
        assert_eq!(outcome.answer().response.error_code(), Some(-32000), "{tool}");
    }
    bench.stop().await;
}

#[tokio::test]
async fn an_answer_past_the_limit_fails_its_call() {
    let site = Site::open(on_call(|seen| {
        let text = seen.result(&content(&"x".repeat(200_000)));
        match seen.tool() {
            "json" => json_text(text),
            "stream" => stream_of(vec![format!("data: {text}\n\n")], End::Stays),
            _ => legacy(seen),
        }
    }))
    .await;
    let bench = Bench::with(http(&site.url), |_, limits| limits.message = 100_000);
    bench.ready().await;
    for tool in ["json", "stream"] {
        let error = bench.text(tool, json!({})).await.unwrap_err();
        assert_eq!(error.text, "its answer is larger than 100000 bytes", "{tool}");
    }
    assert_eq!(bench.text("echo", json!({})).await.unwrap(), "hello");
    bench.stop().await;
}

#[tokio::test]
async fn a_redirect_within_the_origin_is_followed_once() {
    let site = Site::open(|seen: &Seen| match (seen.method(), seen.header("x-again")) {
        ("tools/call", None) if seen.tool() == "moved" => axum::response::Response::builder()
            .status(308)
            .header("location", "/mcp/")
            .body("".into())
            .unwrap(),
        _ => legacy(seen),
    })
    .await;
    let bench = Bench::http(&site.url);
    bench.ready().await;
    let error = bench.text("moved", json!({})).await.unwrap_err();
    assert_eq!(error.text, "it answered 308, a redirect that is not followed");
    assert_eq!(site.seen_of("tools/call").len(), 2);
    bench.stop().await;
}

#[tokio::test]
async fn legacy_requests_carry_the_version_and_configured_headers_and_no_metadata_of_the_hop() {
    let site = Site::open(legacy).await;
    let Transport::Http(mut config) = http(&site.url) else { panic!() };
    config.headers =
        vec![(http::HeaderName::from_static("authorization"), "Bearer s3cret".to_owned().into())];
    let bench = Bench::with(Transport::Http(config), |_, _| {});
    bench.ready().await;
    let params = r#"{"name":"a__echo","_meta":{"io.modelcontextprotocol/clientInfo":{"name":"c"},"x":1e2},"arguments":{"n":1.0}}"#;
    bench.run(made("echo", params, Hop::default()).call).await.unwrap();
    let seen = site.seen();
    assert!(seen.iter().all(|seen| seen.header("authorization") == Some("Bearer s3cret")));
    let call = &site.seen_of("tools/call")[0];
    assert_eq!(call.header("mcp-protocol-version"), Some("2025-11-25"));
    assert_eq!(call.header("accept"), Some("application/json, text/event-stream"));
    assert_eq!(call.header("mcp-method"), None);
    let id = &call.body["id"];
    let expected = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"echo","_meta":{{"x":1e2}},"arguments":{{"n":1.0}}}}}}"#
    );
    assert_eq!(call.text, expected.as_bytes());
    assert_eq!(site.seen_of("initialize")[0].header("mcp-protocol-version"), None);
    bench.stop().await;
}

#[tokio::test]
async fn modern_requests_mirror_the_body_and_pass_the_caller_on_unwidened() {
    let site = Site::open(modern).await;
    let bench = Bench::http(&site.url);
    let offer = bench.ready().await;
    assert_eq!(offer.lists.tools.ttl, Some(Duration::from_secs(60)));
    let raw = |text: &'static str| Some(Raw::trusted(Bytes::from_static(text.as_bytes())));
    let meta = r#"{"io.modelcontextprotocol/protocolVersion" : "2026-07-28","io.modelcontextprotocol/clientCapabilities":{ "sampling":{} },"io.modelcontextprotocol/clientInfo":{"name":"c", "version":"1"}}"#;
    let params = format!(r#"{{"name":"wörld","arguments":{{}},"_meta":{meta}}}"#);
    let hop = Hop {
        client_info: raw(r#"{"name":"c", "version":"1"}"#),
        capabilities: raw(r#"{ "sampling":{} }"#),
        ..Hop::default()
    };
    let outcome = bench.run(made("wörld", &params, hop).call).await.unwrap();
    assert!(matches!(outcome, Outcome::Complete(answer) if answer.form == ResultForm::Tagged));
    bench.run(made("echo", r#"{"name":"echo"}"#, Hop::default()).call).await.unwrap();
    let calls = site.seen_of("tools/call");
    assert_eq!(calls[0].header("mcp-name"), Some("=?base64?d8O2cmxk?="));
    assert!(String::from_utf8_lossy(&calls[0].text).contains(meta), "what is right already stays as it is");
    assert_eq!(calls[1].header("mcp-name"), Some("echo"));
    assert_eq!(calls[1].header("mcp-method"), Some("tools/call"));
    let meta = &calls[1].body["params"]["_meta"];
    assert_eq!(
        *meta,
        json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}})
    );
    for seen in site.seen() {
        assert_eq!(seen.header("mcp-protocol-version"), Some("2026-07-28"));
        assert_eq!(seen.header("mcp-method"), Some(seen.method()));
    }
    bench.stop().await;
}

#[tokio::test]
async fn annotated_arguments_go_into_headers_and_tools_with_bad_annotations_are_left_out() {
    let site = Site::open(|seen: &Seen| match seen.method() {
        "tools/list" => {
            let tool = |name: &str, header: &str| {
                json!({"name": name, "inputSchema": {"properties": {"region": {"type": "string", "x-mcp-header": header}}}})
            };
            json_text(seen.result(&json!({"resultType": "complete", "tools": [tool("good", "Region"), tool("bad", "a b")]})))
        }
        _ => modern(seen),
    })
    .await;
    let bench = Bench::http(&site.url);
    let offer = bench.ready().await;
    let names: Vec<_> = offer.lists.tools.entries.iter().map(|tool| &*tool.name).collect();
    assert_eq!(names, ["good"]);
    bench.text("good", json!({"region": "us-west1"})).await.unwrap();
    assert_eq!(site.seen_of("tools/call")[0].header("mcp-param-region"), Some("us-west1"));
    bench.stop().await;
}

#[tokio::test]
async fn questions_of_a_modern_server_are_an_outcome() {
    let site = Site::open(|seen: &Seen| match seen.method() {
        "tools/call" => json_text(seen.result(&json!({"resultType": "input_required", "inputRequests": {}}))),
        _ => modern(seen),
    })
    .await;
    let bench = Bench::http(&site.url);
    bench.ready().await;
    let outcome = bench.run(call("echo", json!({})).call).await.unwrap();
    assert!(matches!(outcome, Outcome::InputRequired(_)));
    bench.stop().await;
}

#[tokio::test]
async fn events_of_a_call_come_in_order_and_questions_are_refused_at_once() {
    let site = Site::open(on_call(|seen| {
        let token = &seen.body["params"]["_meta"]["progressToken"];
        let messages = [
            json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": 1}}).to_string(),
            json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 99999, "progress": 1}}).to_string(),
            json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "d"}}).to_string(),
            json!({"jsonrpc": "2.0", "method": "notifications/later", "params": {}}).to_string(),
            json!({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": {}}).to_string(),
            seen.result(&content("done")),
        ];
        let pieces = messages.iter().map(|message| format!("data: {message}\n\n")).collect();
        stream_of(pieces, End::Stays)
    }))
    .await;
    let bench = Bench::http(&site.url);
    bench.ready().await;
    let mut made = call_with_progress("echo", json!({}), "\"mine\"");
    assert_eq!(text_of(&bench.run(made.call).await.unwrap()), "done");
    let mut kinds = Vec::new();
    while let Some(event) = made.events.recv().await {
        if event.kind == EventKind::Progress {
            assert!(String::from_utf8_lossy(&event.notification.text).contains(r#""progressToken":"mine""#));
        }
        kinds.push(event.kind);
    }
    assert_eq!(kinds, [EventKind::Progress, EventKind::Log, EventKind::Other]);
    let answered = || site.seen().into_iter().find(|seen| seen.body["id"] == "q");
    while answered().is_none() {
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(answered().unwrap().body["error"]["code"], -32601);
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
async fn a_server_that_keeps_no_session_is_down_and_not_asked_for_ever() {
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
    assert_eq!(error.text, "it does not keep its sessions");
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
    assert_eq!(levels, ["warning", "debug"]);
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
