//! Servers behind HTTP+SSE of 2024-11-05: how they are found, and what goes wrong on a stream that is the
//! connection.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use futures_util::{StreamExt, stream};
use http::Method;
use secrecy::SecretString;
use serde_json::json;
use tokio::sync::mpsc;

use super::bench::{Bench, call, call_with_progress, http, text_of};
use super::site::{End, Seen, Site, content, legacy, status, stream_of};
use crate::config::{HttpKind, Transport};
use crate::gateway::{Executed, GatewayErrorKind, Health};

/// The stream of a server, which its answers go to; the newest, if there were several.
#[derive(Clone, Default)]
struct Line(Arc<Mutex<Option<mpsc::Sender<Vec<u8>>>>>);

impl Line {
    /// Answers a GET: a stream that begins with `first`.
    fn open(&self, first: &str) -> Response {
        let (sender, pieces) = mpsc::channel(10_000);
        sender.try_send(first.as_bytes().to_vec()).unwrap();
        *self.0.lock().unwrap() = Some(sender);
        let pieces =
            stream::unfold(pieces, |mut pieces| async { pieces.recv().await.map(|piece| (piece, pieces)) });
        let body = Body::from_stream(pieces.map(Ok::<_, std::io::Error>));
        Response::builder().header("content-type", "text/event-stream").body(body).unwrap()
    }

    fn write(&self, bytes: &[u8]) {
        if let Some(sender) = &*self.0.lock().unwrap() {
            drop(sender.try_send(bytes.to_vec()));
        }
    }

    fn say(&self, message: &str) {
        self.write(format!("event: message\r\ndata: {message}\r\n\r\n").as_bytes());
    }

    fn end(&self) {
        *self.0.lock().unwrap() = None;
    }

    /// What a sound server does: 405 to a POST at the address of the stream, 202 elsewhere.
    fn serve(&self, seen: &Seen) -> Response {
        let version = json!({"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}});
        match (seen.verb.clone(), &*seen.target, seen.method()) {
            (Method::GET, "/mcp", _) => return self.open("event: endpoint\ndata: /messages?session=1\n\n"),
            (Method::POST, "/mcp", _) => return status(405, "Method Not Allowed"),
            (_, _, "initialize") => self.say(&seen.result(&version)),
            (_, _, "tools/list") => {
                self.say(&seen.result(&json!({"tools": [{"name": "echo", "inputSchema": {}}]})));
            }
            (_, _, "tools/call") => self.say(&seen.result(&content("hello"))),
            _ => {}
        }
        status(202, "Accepted")
    }
}

/// A server whose calls are answered otherwise.
async fn site(on_call: impl Fn(&Seen, &Line) -> Response + Send + Sync + 'static) -> (Site, Line) {
    let line = Line::default();
    let own = line.clone();
    let site = Site::open(move |seen: &Seen| match seen.method() {
        "tools/call" => on_call(seen, &own),
        _ => own.serve(seen),
    })
    .await;
    (site, line)
}

fn sse(url: &str) -> Transport {
    let Transport::Http(mut http) = http(url) else { panic!() };
    http.kind = Some(HttpKind::Sse);
    http.headers = vec![(http::HeaderName::from_static("x-key"), SecretString::from("k"))];
    Transport::Http(http)
}

/// What was asked of the server, in order.
fn steps(site: &Site) -> Vec<String> {
    site.seen().iter().map(|seen| format!("{} {} {}", seen.verb, seen.target, seen.method())).collect()
}

#[tokio::test]
async fn everything_comes_on_the_stream_in_any_pieces_and_every_request_has_our_headers() {
    let (site, _line) = site(|seen, line| {
        let result = seen.result(&content("é日本"));
        let progress = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{},"progress":1}}}}"#,
            seen.body["params"]["_meta"]["progressToken"]
        );
        let text = format!(": comment\r\n\r\ndata: {progress}\r\r\nevent: other\ndata: x\n\ndata:{result}\n\n");
        text.as_bytes().iter().for_each(|byte| line.write(&[*byte]));
        status(200, "not read")
    })
    .await;
    let bench = Bench::with(sse(&site.url), |_, _| {});
    assert_eq!(bench.ready().await.protocol_version, Some("2024-11-05"));
    let mut made = call_with_progress("echo", json!({}), "\"mine\"");
    assert_eq!(text_of(&bench.run(made.call).await.unwrap()), "é日本");
    let event = made.events.recv().await.unwrap();
    assert!(String::from_utf8_lossy(&event.notification.text).contains(r#""progressToken":"mine""#));
    assert_eq!(steps(&site)[..2], ["GET /mcp ", "POST /messages?session=1 initialize"], "no probe");
    assert!(site.seen().iter().all(|seen| seen.header("x-key") == Some("k")));
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[expect(clippy::disallowed_methods, reason = "the scripted server is slow on one of four workers")]
async fn an_answer_may_come_before_the_post_is_answered() {
    let (site, _line) = site(|seen, line| {
        line.say(&seen.result(&content("early")));
        std::thread::sleep(Duration::from_millis(300));
        status(202, "")
    })
    .await;
    let bench = Bench::with(sse(&site.url), |_, _| {});
    bench.ready().await;
    assert_eq!(bench.text("echo", json!({})).await.unwrap(), "early");
    assert_eq!(bench.text("echo", json!({})).await.unwrap(), "early");
    bench.stop().await;
    assert!(site.seen_of("notifications/cancelled").is_empty());
}

#[tokio::test]
async fn a_stream_that_begins_wrongly_is_no_connection() {
    for (first, reason) in [
        ("data: {}\n\n", "does not begin with an `endpoint` event"),
        ("event: endpoint\ndata:\n\n", "holds no address"),
        ("event: endpoint\ndata: https://[\n\n", "holds no address"),
        ("event: endpoint\ndata: http://127.0.0.1:1/m\n\n", "another origin"),
        ("event: endpoint\ndata: //example.com/m\n\n", "another origin"),
    ] {
        let line = Line::default();
        let site = Site::open(move |_: &Seen| line.open(first)).await;
        let bench = Bench::with(sse(&site.url), |_, _| {});
        let down = bench.down().await;
        assert!(down.contains(reason), "{first}: {down}");
        assert!(site.seen().iter().all(|seen| seen.verb == Method::GET), "nothing was sent there");
        bench.stop().await;
    }
    let site = Site::open(|_: &Seen| stream_of(vec![": nothing\n\n".into()], End::Ends)).await;
    let bench = Bench::with(sse(&site.url), |_, _| {});
    assert!(bench.down().await.contains("does not begin"));
}

#[tokio::test]
async fn the_end_of_the_stream_fails_all_calls_at_once_and_is_mended() {
    let (site, line) = site(|_, _| status(202, "")).await;
    let bench = Bench::with(sse(&site.url), |_, _| {});
    bench.ready().await;
    let calls = (0..5).map(|_| bench.run(call("echo", json!({})).call));
    let ending = async {
        while site.seen_of("tools/call").len() < 5 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        line.end();
    };
    let (failures, ()) = tokio::join!(futures_util::future::join_all(calls), ending);
    for failure in failures {
        let error = failure.unwrap_err();
        assert_eq!((error.kind, error.executed), (GatewayErrorKind::Unavailable, Executed::Unknown));
        assert!(error.text.contains("its stream ended"), "{error:?}");
    }
    bench.offer(|offer| !matches!(offer.health, Health::Ready)).await;
    bench.ready().await;
    assert!(site.seen_of("notifications/cancelled").is_empty(), "nobody is there to be told");
    bench.stop().await;
}

#[tokio::test]
async fn a_post_that_is_refused_says_what_became_of_the_call() {
    for (code, kind, executed) in [
        (400, GatewayErrorKind::BadUpstream, Executed::No),
        (401, GatewayErrorKind::UpstreamAuth, Executed::No),
        (404, GatewayErrorKind::BadUpstream, Executed::No),
        (503, GatewayErrorKind::Unavailable, Executed::Unknown),
    ] {
        let (site, _line) = site(move |_, _| status(code, "no")).await;
        let bench = Bench::with(sse(&site.url), |_, _| {});
        bench.ready().await;
        let error = bench.run(call("echo", json!({})).call).await.unwrap_err();
        assert_eq!((error.kind, error.executed), (kind, executed), "{code}");
        if code == 404 {
            // The server does not know the connection any more: there is another one.
            bench.offer(|offer| !matches!(offer.health, Health::Ready)).await;
            bench.ready().await;
        }
        let opened = site.seen().iter().filter(|seen| seen.verb == Method::GET).count();
        assert_eq!(opened, if code == 404 { 2 } else { 1 }, "{code}");
        bench.stop().await;
    }
}

#[tokio::test]
async fn an_endless_event_ends_the_connection() {
    let (site, _line) = site(|_, line| {
        (0..200).for_each(|_| line.write(format!("data: {}\n", "x".repeat(1000)).as_bytes()));
        status(202, "")
    })
    .await;
    let bench = Bench::with(sse(&site.url), |_, limits| limits.message = 100_000);
    bench.ready().await;
    let error = bench.run(call("echo", json!({})).call).await.unwrap_err();
    assert!(error.text.contains("larger than 100000 bytes"), "{error:?}");
    assert_eq!(error.executed, Executed::Unknown);
    bench.offer(|offer| !matches!(offer.health, Health::Ready)).await;
    bench.ready().await;
    bench.stop().await;
}

#[tokio::test]
async fn a_cancelled_call_is_told_and_a_ping_is_answered() {
    let (site, line) = site(|_, _| status(202, "")).await;
    let bench = Bench::with(sse(&site.url), |_, _| {});
    bench.ready().await;
    line.say(r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#);
    let made = call("echo", json!({})).within(Duration::from_millis(100));
    let waiting = tokio::time::timeout(Duration::from_millis(200), bench.run(made.call)).await;
    assert!(waiting.is_err());
    let is_there = |wanted: &dyn Fn(&Seen) -> bool| site.seen().iter().any(wanted);
    while !is_there(&|seen| seen.method() == "notifications/cancelled")
        || !is_there(&|seen| seen.body["id"] == "p" && seen.body["result"].is_object())
    {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    bench.stop().await;
}

#[tokio::test]
async fn auto_tries_streamable_http_first_and_remembers_what_it_found() {
    let (site, line) = site(|seen, line| line.serve(seen)).await;
    let bench = Bench::http(&site.url);
    assert_eq!(bench.ready().await.protocol_version, Some("2024-11-05"));
    assert_eq!(
        steps(&site)[..4],
        [
            "POST /mcp server/discover",
            "POST /mcp initialize",
            "GET /mcp ",
            "POST /messages?session=1 initialize"
        ]
    );
    let before = site.seen().len();
    line.end();
    bench.offer(|offer| !matches!(offer.health, Health::Ready)).await;
    bench.ready().await;
    assert_eq!(steps(&site)[before], "GET /mcp ", "no second probe");
    bench.stop().await;
}

#[tokio::test]
async fn auto_probes_again_once_there_is_no_such_stream_any_more() {
    let line = Line::default();
    let is_new = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (own, replaced) = (line.clone(), Arc::clone(&is_new));
    let site = Site::open(move |seen: &Seen| match replaced.load(std::sync::atomic::Ordering::Relaxed) {
        true => legacy(seen),
        false => own.serve(seen),
    })
    .await;
    let bench = Bench::http(&site.url);
    assert_eq!(bench.ready().await.protocol_version, Some("2024-11-05"));
    is_new.store(true, std::sync::atomic::Ordering::Relaxed);
    line.end();
    let offer = bench.offer(|offer| offer.protocol_version == Some("2025-11-25")).await;
    assert!(matches!(offer.health, Health::Ready | Health::Connecting | Health::Down { .. }));
    bench.ready().await;
    bench.stop().await;
}

#[tokio::test]
async fn auto_takes_only_a_plain_no_for_evidence() {
    for (code, is_tried) in [
        (400, true),
        (404, true),
        (405, true),
        (406, true),
        (401, false),
        (403, false),
        (429, false),
        (503, false),
    ] {
        let line = Line::default();
        let site = Site::open(move |seen: &Seen| match (&seen.verb, &*seen.target) {
            (&Method::POST, "/mcp") => status(code, "no"),
            _ => line.serve(seen),
        })
        .await;
        let bench = Bench::http(&site.url);
        if is_tried {
            bench.ready().await;
        } else {
            assert_eq!(&*bench.down().await, format!("it answered {code}"));
            assert!(site.seen().iter().all(|seen| seen.verb == Method::POST), "{code}");
        }
        bench.stop().await;
    }
}

#[tokio::test]
async fn a_server_that_has_no_stream_either_keeps_its_first_answer() {
    type Script = fn(&Seen) -> Response;
    let cases: [(Script, &str); 4] = [
        (|_| status(404, ""), "it answered 404"),
        (|_| stream_of(vec!["data: {}\n\n".into()], End::Stays), "it answered 404"),
        (|_| status(401, ""), "it answered 401"),
        (
            |_| stream_of(vec!["event: endpoint\ndata: http://x.test/\n\n".into()], End::Stays),
            "another origin",
        ),
    ];
    for (on_get, reason) in cases {
        let site = Site::open(move |seen: &Seen| match seen.verb == Method::GET {
            true => on_get(seen),
            false => status(404, ""),
        })
        .await;
        let bench = Bench::http(&site.url);
        let down = bench.down().await;
        assert!(down.contains(reason), "{down}");
        bench.stop().await;
    }
}
