//! The endpoint as a whole, over real connections.

use futures_util::FutureExt as _;
use http::Method;
use serde_json::json;

use std::time::Duration;

use crate::config::{CallLimits, Rate};
use crate::downstream::for_test::{Ask, Bench};

const METHODS: [Method; 3] = [Method::POST, Method::GET, Method::DELETE];

async fn bench() -> Bench {
    Bench::new(|_| {}).await
}

async fn closed() -> Bench {
    Bench::new(|config| drop(config.clients.pop())).await
}

fn ping() -> Ask {
    Ask::message("ping", json!({}))
}

#[tokio::test]
async fn dep_05_the_endpoint_is_where_it_is_said_to_be() {
    let bench = bench().await;
    for path in ["/mcp", "/mcp/", "/mcp?x=1", "/mcp/?token=a"] {
        assert_eq!(bench.send(ping().at(path)).await.status, 200, "{path}");
    }
    for path in ["/", "/nope", "/mcp/nope", "/MCP"] {
        let got = bench.send(ping().at(path)).await;
        assert_eq!(got.status, 404, "{path}");
        assert!(got.json()["error"]["message"].as_str().unwrap().contains("/mcp"), "{path}");
    }
    assert_eq!(bench.send(Ask::new(Method::GET, "/healthz").header("host", "10.1.2.3")).await.status, 200);
}

#[tokio::test]
async fn aut_01_a_401_can_be_acted_on_and_comes_before_everything_else() {
    let bench = closed().await;
    let session = bench.session("2025-11-25").await;
    for verb in METHODS {
        for (value, challenge) in [
            (None, "Bearer"),
            (Some("Bearer wrong"), "Bearer error=\"invalid_token\""),
            (Some("Basic x"), "Bearer"),
            (Some("Bearer"), "Bearer"),
        ] {
            for (name, other) in
                [("mcp-session-id", "dead"), ("accept", "image/png"), ("content-type", "text/plain")]
            {
                let ask = ping().verb(verb.clone()).header(name, other);
                let got =
                    bench.send(value.map_or(ask.clone(), |value| ask.header("authorization", value))).await;
                assert_eq!(got.status, 401, "{verb} {value:?} {name}");
                assert_eq!(got.headers["www-authenticate"], challenge);
                assert!(got.json()["error"]["message"].is_string());
                assert!(got.json().get("id").is_none());
            }
        }
    }
    let got = bench.send(ping().bearer("a").header("mcp-session-id", &session)).await;
    assert_eq!(got.status, 200);
    assert_eq!(bench.send(ping().at("/mcp?access_token=a")).await.status, 401);
}

#[tokio::test]
async fn aut_02_probes_for_oauth_are_404_without_a_token() {
    let bench = closed().await;
    for path in [
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-protected-resource/mcp",
        "/.well-known/oauth-authorization-server",
        "/.well-known/oauth-authorization-server/mcp",
        "/.well-known/openid-configuration",
        "/mcp/.well-known/openid-configuration",
    ] {
        let got = bench.send(Ask::new(Method::GET, path)).await;
        assert_eq!(got.status, 404, "{path}");
        assert!(got.json()["error"].is_object());
    }
    let got = bench.send(Ask::post("{}").at("/register")).await;
    assert_eq!((got.status.as_u16(), got.kind()), (404, "application/json"));
}

#[tokio::test]
async fn ses_01_a_dead_session_is_404() {
    let bench = bench().await;
    let session = bench.session("2025-11-25").await;
    let list =
        |session: &str| Ask::message("tools/list", json!({})).bearer("a").header("mcp-session-id", session);
    assert_eq!(bench.send(list(&session)).await.status, 200);
    let others = bench.send(list(&session).bearer("b")).await;
    assert_eq!(others.status, 404, "another principal's");
    assert!(others.json()["error"]["message"].as_str().unwrap().contains("initialize"));
    for verb in METHODS {
        let got = bench.send(list("made-up").verb(verb.clone())).await;
        assert_eq!((got.status.as_u16(), got.kind()), (404, "application/json"), "{verb}");
    }
    assert_eq!(bench.send(list("made-up").header("content-type", "text/plain")).await.status, 404);
    assert_eq!(bench.send(list("made-up").bearer("wrong")).await.status, 401);
    let ended = bench.send(list(&session).verb(Method::DELETE)).await;
    assert_eq!((ended.status.as_u16(), ended.body.len()), (204, 0));
    assert_eq!(bench.send(list(&session)).await.status, 404);
    assert_eq!(bench.send(list(&session).verb(Method::DELETE)).await.status, 404);
    let again = Ask::message("initialize", json!({"protocolVersion": "2025-11-25"}));
    assert_eq!(bench.send(again.bearer("a").header("mcp-session-id", &session)).await.status, 200);
}

#[tokio::test]
async fn ses_04_a_client_that_never_sends_its_session_back_is_served() {
    let bench = closed().await;
    bench.session("2025-06-18").await;
    let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    assert_eq!(bench.send(Ask::post(initialized).bearer("a")).await.status, 202);
    let listed = bench.send(Ask::message("tools/list", json!({})).bearer("a")).await.json();
    assert_eq!(listed["result"]["tools"][0]["name"], "up__echo");
    let called = bench.send(Ask::call("up__echo").bearer("a")).await.json();
    assert_eq!(called["result"]["said"], json!({"n": 1}));
}

#[tokio::test]
async fn str_04_get_is_a_stream_or_405_and_never_200_with_json() {
    let bench = bench().await;
    let session = bench.session("2025-11-25").await;
    let get = || Ask::new(Method::GET, "/mcp").bearer("a").header("accept", "text/event-stream");
    let got = bench.send(get()).await;
    assert_eq!(got.status, 405);
    assert_eq!(got.headers["allow"], "POST, GET, DELETE, OPTIONS");
    let with = |ask: Ask| ask.header("mcp-session-id", &session);
    for accept in ["text/event-stream", "application/json, text/event-stream", "*/*", "text/*;q=0.1"] {
        let response = bench.door.clone().enter(with(get().header("accept", accept)).build()).await;
        assert_eq!(response.status(), 200, "{accept}");
        assert_eq!(response.headers()["content-type"], "text/event-stream", "{accept}");
    }
    for ask in [get(), with(get())] {
        assert_eq!(bench.send(ask.header("accept", "application/json")).await.status, 406);
    }
    for verb in [Method::HEAD, Method::PUT, Method::PATCH] {
        assert_eq!(bench.send(get().verb(verb)).await.status, 405);
    }
    assert_eq!(bench.send(get().verb(Method::DELETE)).await.status, 400);
}

#[tokio::test]
async fn cor_01_a_preflight_needs_no_token_and_real_answers_can_be_read() {
    let bench = Bench::new(|config| {
        config.clients.pop();
        config.allowed_origins = vec!["https://app.example".to_owned()];
    })
    .await;
    let from = |ask: Ask| ask.header("origin", "https://app.example");
    for method in ["POST", "DELETE"] {
        let preflight = Ask::new(Method::OPTIONS, "/mcp")
            .header("access-control-request-method", method)
            .header("access-control-request-headers", "mcp-name, Mcp-Param-Region, x-other");
        let got = bench.send(from(preflight)).await;
        assert_eq!(got.status, 204);
        assert_eq!(got.headers["access-control-allow-origin"], "https://app.example");
        assert!(got.headers["access-control-allow-methods"].to_str().unwrap().contains(method));
        let allowed = got.headers["access-control-allow-headers"].to_str().unwrap();
        for name in [
            "authorization",
            "content-type",
            "mcp-session-id",
            "mcp-protocol-version",
            "mcp-method",
            "mcp-name",
            "last-event-id",
            "accept",
            "Mcp-Param-Region",
        ] {
            assert!(allowed.split(", ").any(|there| there == name), "{name}");
        }
        assert!(!allowed.contains("x-other"));
    }
    let elsewhere = Ask::new(Method::GET, "/nope");
    for (ask, status) in [(ping(), 401), (ping().bearer("a"), 200), (elsewhere, 404)] {
        let got = bench.send(from(ask)).await;
        assert_eq!(got.status, status);
        assert_eq!(got.headers["access-control-allow-origin"], "https://app.example");
        let exposed = got.headers["access-control-expose-headers"].to_str().unwrap();
        assert!(exposed.contains("mcp-session-id") && exposed.contains("www-authenticate"));
        assert!(!got.headers.contains_key("access-control-allow-credentials"));
    }
    let off = closed().await;
    let got = off.send(Ask::new(Method::OPTIONS, "/mcp").header("origin", "http://localhost:3000")).await;
    assert!(!got.headers.keys().any(|name| name.as_str().starts_with("access-control")));
}

#[tokio::test]
async fn cor_02_foreign_hosts_and_origins_reach_nothing() {
    let bench = bench().await;
    let call = || Ask::call("up__echo");
    for ask in [
        call().header("origin", "http://evil.example"),
        call().header("origin", "null"),
        call().header("host", "evil.example"),
        call().bearer("wrong").header("host", "evil.example"),
        Ask::new(Method::OPTIONS, "/mcp").header("origin", "http://evil.example"),
    ] {
        let got = bench.send(ask).await;
        assert_eq!(got.status, 403);
        assert_eq!(got.code(), 403);
    }
    assert!(bench.upstream.calls.lock().unwrap().is_empty());
    for ask in
        [call(), call().header("host", "localhost:9"), call().header("origin", "http://localhost:6274")]
    {
        assert_eq!(bench.send(ask).await.status, 200);
    }
    assert_eq!(bench.upstream.calls.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn bodies_are_json_plain_and_bounded() {
    let bench = Bench::new(|config| config.limits.body = 200).await;
    for (ask, status) in [
        (ping().header("content-type", "text/plain"), 415),
        (ping().header("content-type", "application/json; charset=utf-8"), 200),
        (ping().header("content-encoding", "gzip"), 415),
        (ping().header("content-length", "201"), 413),
        (Ask::post(vec![b' '; 201]), 413),
    ] {
        let got = bench.send(ask).await;
        assert_eq!(got.status, status, "{got:?}");
        assert!(got.json().is_object());
    }
}

#[tokio::test]
async fn err_05_what_is_no_message_is_400_with_the_code_that_says_why() {
    let bench = bench().await;
    let call = |id: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"up__echo"}}}}"#)
    };
    for id in ["null", "1.5", "true", "{}"] {
        let got = bench.send(Ask::post(call(id))).await;
        assert_eq!((got.status.as_u16(), got.code()), (400, -32600), "{id}");
    }
    for id in ["\"\"", "0", "\"7\"", "7", "-1", "18446744073709551616"] {
        let got = bench.send(Ask::post(call(id))).await;
        assert_eq!(got.status, 200);
        let expected = format!("\"id\":{id}");
        assert!(std::str::from_utf8(&got.body).unwrap().contains(&expected), "{got:?}");
    }
    for (body, code) in [
        (&b"{"[..], -32700),
        (b"", -32700),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}", -32700),
        (b"{\"id\":1,\"method\":\"ping\"}", -32600),
        (b"7", -32600),
    ] {
        let got = bench.send(Ask::post(body.to_vec())).await;
        assert_eq!((got.status.as_u16(), got.code()), (400, code), "{body:?}");
        assert!(got.json().get("id").is_none());
    }
}

#[tokio::test]
async fn the_edge_limit_answers_429_with_the_id_and_counts_no_bad_token() {
    let rate = Some(Rate { count: 2, period: Duration::from_secs(60) });
    let limits = CallLimits { rate, burst: None, concurrency: None };
    let bench = Bench::new(|config| config.limits.edge = Some(limits)).await;
    let ask = |token: &str| ping().bearer(token);
    for _ in 0..10 {
        assert_eq!(bench.send(ask("wrong")).await.status, 401);
        assert_eq!(bench.send(Ask::new(Method::GET, "/.well-known/openid-configuration")).await.status, 404);
    }
    assert_eq!(bench.send(ask("a")).await.status, 200);
    assert_eq!(bench.send(Ask::post("{").bearer("a")).await.status, 400, "counts, too");
    let got = bench.send(ask("a")).await;
    assert_eq!((got.status.as_u16(), got.code()), (429, 429));
    assert_eq!(got.json()["id"], 7);
    assert!(got.headers["retry-after"].to_str().unwrap().parse::<u64>().unwrap() >= 1);
    assert_eq!(bench.send(ask("b")).await.status, 200, "another caller has its own");
}

#[tokio::test]
async fn a_panic_is_one_answer_and_no_outage() {
    let bench = bench().await;
    let got = bench.send(Ask::call("up__panics")).await;
    assert_eq!((got.status.as_u16(), got.code()), (500, -32603));
    assert_eq!(bench.send(ping()).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_ends_its_call() {
    let bench = bench().await;
    let ask = Ask::modern("tools/call", serde_json::json!({"name": "up__slow"}), serde_json::json!({}));
    let mut waiting = Box::pin(bench.door.clone().enter(ask.build()));
    assert!((&mut waiting).now_or_never().is_none());
    drop(waiting);
    let dropped = bench.upstream.dropped.lock().unwrap().clone();
    assert_eq!(dropped, [Some("client disconnected".to_owned())]);
}

/// The whole way, over a socket: a client that resets its connection ends its call.
#[tokio::test]
async fn can_03_a_client_that_hangs_up_ends_its_call() {
    let bench = bench().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = tokio_util::sync::CancellationToken::new();
    let mut tasks = tokio::task::JoinSet::new();
    let face = super::Face::new(std::sync::Arc::clone(&bench.gateway), stop.clone()).unwrap();
    tasks.spawn(super::serve((listener, None), face, stop.clone()));
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"up__slow","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: up__slow\r\n\r\n",
        body.len()
    );
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut socket, format!("{head}{body}").as_bytes()).await.unwrap();
    let patience = Duration::from_secs(20);
    let arrived = async {
        while bench.upstream.calls.lock().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(patience, arrived).await.unwrap();
    drop(socket);
    let ended = async {
        while bench.upstream.dropped.lock().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(patience, ended).await.unwrap();
    assert_eq!(*bench.upstream.dropped.lock().unwrap(), [Some("client disconnected".to_owned())]);
    stop.cancel();
    tokio::time::timeout(patience, tasks.join_next()).await.unwrap().unwrap().unwrap().unwrap();
}
