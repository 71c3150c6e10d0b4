//! Servers behind HTTP: eras, answers in every form, statuses.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::bench::{Bench, call, call_with_progress, http, made, text_of};
use super::site::{End, Seen, Site, content, json_text, legacy, modern, status, stream_of, typed};
use crate::config::Transport;
use crate::exchange::{EventKind, Hop, Outcome, ResultForm};
use crate::gateway::{Executed, GatewayErrorKind, Health};
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
            Health::Ready | Health::Idle | Health::Connecting => offer.protocol_version.unwrap().to_owned(),
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
