//! HTTP as clients and proxies really send it.

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::support::client::{Client, LEGACY, Request, initialize};
use crate::support::gateway::{Config, Gateway};
use crate::support::http::{Body, Head};
use crate::support::matrix::{Era, Transport};
use crate::support::script::Script;
use crate::support::turn::Gate;
use crate::support::{at_once, eventually, patience, scaled};

fn connect(gateway: &Gateway) -> TcpStream {
    let stream = TcpStream::connect(gateway.mcp).expect("a connection");
    stream.set_read_timeout(Some(patience())).expect("an option");
    stream
}

fn post(gateway: &Gateway, extra: &str, body: &str) -> String {
    let host = gateway.mcp;
    format!(
        "POST /mcp HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n{extra}\r\n{body}"
    )
}

fn read_one(reader: &mut BufReader<TcpStream>) -> (String, String) {
    let head = Head::read(reader).expect("a head").expect("an answer");
    let body = Body::new(head.framing()).whole(reader).expect("a body");
    (head.second().to_owned(), String::from_utf8_lossy(&body).into_owned())
}

const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;

#[test]
fn one_connection_carries_many_requests_also_before_their_answers() {
    let up = Script::echo(Era::Legacy).stdio();
    let gateway = Config::new().upstream("up", &up).ready();
    let mut stream = connect(&gateway);
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let request = post(&gateway, &format!("Content-Length: {}\r\n", LIST.len()), LIST);
    for _ in 0..5 {
        stream.write_all(request.as_bytes()).unwrap();
        let (status, body) = read_one(&mut reader);
        assert!(status == "200" && body.contains("up__echo"), "{status} {body}");
    }
    stream.write_all(request.repeat(4).as_bytes()).unwrap();
    for _ in 0..4 {
        let (status, body) = read_one(&mut reader);
        assert!(status == "200" && body.contains("up__echo"), "{status} {body}");
    }
}

#[test]
fn bodies_come_in_chunks_with_marks_and_after_a_question() {
    let up = Script::echo(Era::Legacy).stdio();
    let gateway = Config::new().upstream("up", &up).ready();
    let length = format!("Content-Length: {}\r\n", LIST.len());
    let chunks: String = LIST
        .as_bytes()
        .chunks(7)
        .map(|chunk| format!("{:x}\r\n{}\r\n", chunk.len(), String::from_utf8_lossy(chunk)))
        .collect();
    let chunked = post(&gateway, "Transfer-Encoding: chunked\r\n", &format!("{chunks}0\r\n\r\n"));
    let marked = format!("\u{feff} {LIST}\r\n");
    let marked = post(&gateway, &format!("Content-Length: {}\r\n", marked.len()), &marked);
    for request in [chunked, marked] {
        let mut stream = connect(&gateway);
        stream.write_all(request.as_bytes()).unwrap();
        let (status, body) = read_one(&mut BufReader::new(stream));
        assert!(status == "200" && body.contains("up__echo"), "{status} {body}");
    }
    let mut stream = connect(&gateway);
    stream.write_all(post(&gateway, &format!("{length}Expect: 100-continue\r\n"), "").as_bytes()).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let first = Head::read(&mut reader).unwrap().expect("a word before the body");
    assert_eq!(first.second(), "100");
    stream.write_all(LIST.as_bytes()).unwrap();
    assert_eq!(read_one(&mut reader).0, "200");
}

#[test]
fn content_types_of_json_are_many() {
    let up = Script::echo(Era::Legacy).stdio();
    let gateway = Config::new().upstream("up", &up).ready();
    let ask =
        |value: &str| Request::post(gateway.mcp, "/mcp", LIST).header("Content-Type", value).send().status;
    for good in [
        "application/json",
        "application/json; charset=utf-8",
        "Application/JSON",
        "application/json;charset=UTF-8",
    ] {
        assert_eq!(ask(good), 200, "{good}");
    }
    for bad in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/jsonx",
        "multipart/form-data",
        "text/json5",
    ] {
        assert_eq!(ask(bad), 415, "{bad}: a form of a web page is no client");
    }
}

/// Two headers where one is due could mean two things to two readers.
#[test]
fn headers_that_decide_stand_once() {
    let up = Script::echo(Era::Modern).http();
    let gateway = Config::new().upstream("up", &up).ready();
    let call = Client::modern(&gateway).calling("up__echo", r#"{"text":"x"}"#);
    for (name, value) in
        [("Mcp-Name", "up__other"), ("Mcp-Method", "tools/list"), ("MCP-Protocol-Version", "2025-11-25")]
    {
        let refused = call.clone().also(name, value).send();
        assert_eq!(refused.status, 400, "{name}: {}", refused.text());
    }
    let legacy = Client::legacy(&gateway);
    let other = Client::legacy(&gateway);
    let twice = legacy.request("tools/list", "{}").also("Mcp-Session-Id", other.session()).send();
    assert!(matches!(twice.status, 400 | 404), "{}", twice.text());
    assert_eq!(up.calls().len(), 0);
}

#[test]
fn smuggled_lengths_are_refused() {
    let up = Script::echo(Era::Legacy).stdio();
    let gateway = Config::new().upstream("up", &up).ready();
    let both = post(
        &gateway,
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
    );
    let two = post(&gateway, "Content-Length: 5\r\nContent-Length: 50\r\n", LIST);
    for request in [both, two] {
        let mut stream = connect(&gateway);
        stream.write_all(request.as_bytes()).unwrap();
        drop(stream.shutdown(std::net::Shutdown::Write));
        let mut answer = String::new();
        drop(stream.read_to_string(&mut answer));
        assert!(!answer.contains(" 200 "), "{answer}");
    }
    assert_eq!(Client::legacy(&gateway).echo("up__echo", "alive"), "alive");
}

#[test]
fn streams_say_that_nobody_may_hold_them_back() {
    let up = Script::echo(Era::Legacy).stdio();
    let gateway = Config::new().upstream("up", &up).ready();
    let response =
        Client::legacy(&gateway).calling("up__echo", "{}").header("Accept", "text/event-stream").send();
    assert!(
        response.header("cache-control").is_some_and(|value| value.contains("no-")),
        "{:?}",
        response.head
    );
    assert_eq!(response.header("x-accel-buffering"), Some("no"), "{:?}", response.head);
}

/// A silent call is kept alive by comments; who takes JSON alone gets one document all the same.
#[test]
fn str_03_a_silent_call_is_kept_alive() {
    for era in [Era::Legacy, Era::Modern] {
        let (gate, slow) = Gate::new("at last");
        let up = Script::legacy().tool("slow", slow).stdio();
        let gateway =
            Config::new().upstream("up", &up).set("sessions", json!({"keep_alive": "100ms"})).ready();
        let client = Client::of(&gateway, era);
        let mut stream = client.calling("up__slow", "{}").header("Accept", "text/event-stream").open();
        assert_eq!(stream.status, 200);
        let plain = client.calling("up__slow", "{}").header("Accept", "application/json");
        std::thread::scope(|scope| {
            let document = scope.spawn(move || plain.send());
            std::thread::sleep(scaled(700));
            gate.open();
            let event = stream.event().expect("the answer");
            assert!(event.data.contains("at last"), "{event:?}");
            assert!(stream.comments >= 2, "{} comments", stream.comments);
            assert_eq!(document.join().unwrap().json()["result"]["content"][0]["text"], "at last");
        });
    }
}

/// A call that may have been executed is not executed again: the connection broke before the answer.
#[test]
fn con_05_a_call_is_not_executed_twice() {
    for transport in Transport::LEGACY {
        for era in [Era::Legacy, Era::Modern] {
            if (transport, era) == (Transport::Sse, Era::Modern) {
                continue;
            }
            let up = Script::echo(era).tool("append", |turn| turn.break_off()).over(transport);
            let gateway = Config::new().upstream("up", &up).ready();
            let client = Client::legacy(&gateway);
            assert_eq!(client.echo("up__echo", "warm"), "warm");
            let answer = client.call("up__append", json!({}));
            assert_eq!(answer["result"]["isError"], true, "{answer}");
            let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
            assert!(
                ["may have", "unknown"].iter().any(|word| text.contains(word)),
                "tells that the outcome is unknown: {text}"
            );
            std::thread::sleep(scaled(300));
            let times = up.calls().iter().filter(|call| call.name() == "append").count();
            assert_eq!(times, 1, "{transport:?} {era:?}");
        }
    }
}

/// A server closes idle connections without a word: the next call is not lost.
#[test]
fn con_05_a_stale_connection_loses_no_call() {
    let closing = Arc::new(AtomicBool::new(false));
    let closes = Arc::clone(&closing);
    let script = Script::legacy().sessionless().tool("echo", move |turn| {
        turn.text(&turn.argument("text").unwrap_or_default());
        if closes.load(Ordering::Relaxed) {
            turn.break_off();
        }
    });
    let up = script.http();
    let gateway = Config::new().upstream("up", &up).ready();
    let client = Client::legacy(&gateway);
    closing.store(true, Ordering::Relaxed);
    for round in 0..20 {
        let text = round.to_string();
        assert_eq!(client.echo("up__echo", &text), text);
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(up.calls().len(), 20, "each once");
}

#[test]
fn con_04_a_call_to_one_upstream_wakes_no_other() {
    let (a, b) = (Script::echo(Era::Legacy).http(), Script::echo(Era::Modern).http());
    let gateway = Config::new().upstream("a", &a).upstream("b", &b).ready();
    let client = Client::legacy(&gateway);
    client.wait_tools(&["a__echo", "b__echo"]);
    let (listed, before) = (a.of_method("tools/list").len(), b.received().len());
    for index in 0..50 {
        assert_eq!(client.echo("a__echo", &index.to_string()), index.to_string());
        client.tool_names();
    }
    assert_eq!(b.received().len(), before);
    assert_eq!(a.of_method("tools/list").len(), listed, "lists come from the catalog");
    assert_eq!(a.of_method("initialize").len(), 2, "one session for the lists, and one for all calls");
}

#[test]
fn can_03_clients_that_vanish_leave_nothing_in_flight() {
    let (gate, slow) = Gate::new("done");
    let script = Script::echo(Era::Legacy).tool("slow", move |turn| {
        turn.progress(1);
        slow(turn);
    });
    let up = script.stdio();
    let gateway = Config::new().upstream("up", &up).ready();
    let client = Client::modern(&gateway);
    let params = r#"{"name":"up__slow","arguments":{},"_meta":{"progressToken":1}}"#;
    let streams: Vec<_> = (0..20).map(|_| client.request("tools/call", params).open()).collect();
    eventually("all calls are there", || (up.calls().len() == 20).then_some(()));
    gateway.wait_metric("waypost_calls_in_flight", &[("upstream", "up")], 20.0);
    std::thread::scope(|scope| {
        let staying = scope.spawn(|| client.echo("up__slow", ""));
        eventually("the last one, too", || (up.calls().len() == 21).then_some(()));
        streams.into_iter().for_each(crate::support::client::Open::hang_up);
        eventually("each is cancelled", || {
            (up.of_method("notifications/cancelled").len() == 20).then_some(())
        });
        gateway.wait_metric("waypost_calls_in_flight", &[("upstream", "up")], 1.0);
        gate.open();
        assert_eq!(staying.join().unwrap(), "done");
    });
    gateway.wait_metric("waypost_calls_in_flight", &[], 0.0);
}

#[test]
fn agg_05_an_upstream_that_comes_up_later_is_seen() {
    let (late, healthy) = (Script::echo(Era::Legacy).http(), Script::echo(Era::Legacy).stdio());
    late.go_down();
    let gateway = Config::new().upstream("late", &late).upstream("healthy", &healthy).start();
    let client = Client::legacy(&gateway);
    client.wait_tools(&["healthy__echo"]);
    late.come_back();
    client.wait_tools(&["healthy__echo", "late__echo"]);
    assert_eq!(client.echo("late__echo", "x"), "x");
    assert_eq!(healthy.of_method("tools/list").len(), 1, "the other had no part in it");
}

#[test]
fn str_05_a_server_without_a_get_stream_is_not_pestered() {
    let up = Script::echo(Era::Legacy).http();
    let gateway = Config::new().upstream("up", &up).ready();
    std::thread::sleep(scaled(1_500));
    assert_eq!(Client::legacy(&gateway).echo("up__echo", "x"), "x");
    let gets = up.received().iter().filter(|received| received.text.is_empty()).count();
    assert!(gets <= 2, "{gets} requests without a body");
}

/// Redirects are not followed: a credential goes where the configuration says.
#[test]
fn tls_03_a_redirect_is_told_not_followed() {
    let target = Script::echo(Era::Legacy).http();
    let there = target.url();
    let up = Script::echo(Era::Legacy)
        .first(move |turn| {
            turn.with_header("Location", &there);
            turn.respond("307 Temporary Redirect", "", "");
            true
        })
        .http();
    let gateway = Config::new()
        .upstream_with("up", &up, json!({"headers": {"Authorization": "Bearer x-secret"}}))
        .start();
    let is_told = |line: &String| {
        line.contains("\"up\"") && (line.contains("307") || line.to_lowercase().contains("redirect"))
    };
    eventually("the reason is told", || gateway.warnings().iter().any(is_told).then_some(()));
    assert!(target.received().is_empty());
}

#[test]
fn lek_01_clients_that_never_say_goodbye_are_forgotten() {
    let up = Script::echo(Era::Legacy).stdio();
    let gateway = Config::new().upstream("up", &up).set("sessions", json!({"idle_timeout": "1s"})).ready();
    let files = |gateway: &Gateway| {
        std::fs::read_dir(format!("/proc/{}/fd", gateway.pid())).map(Iterator::count).unwrap_or_default()
    };
    assert_eq!(Client::legacy(&gateway).echo("up__echo", "warm"), "warm");
    let before = files(&gateway);
    let jobs: Vec<_> = (0..8)
        .map(|_| {
            let gateway = &gateway;
            move || (0..10).for_each(|_| assert_eq!(Client::legacy(gateway).echo("up__echo", "x"), "x"))
        })
        .collect();
    at_once(jobs);
    eventually("sessions are collected", || {
        (gateway.metrics().sum("waypost_sessions", &[]) < 0.5).then_some(())
    });
    eventually("descriptors are back", || (files(&gateway) <= before + 3).then_some(()));
    assert_eq!(up.processes().len(), 1);
}

/// More connections than the limit wait, or are turned away; those that are there are served.
#[test]
fn connections_are_bounded() {
    let up = Script::echo(Era::Legacy).stdio();
    let gateway = Config::new().upstream("up", &up).set("limits", json!({"connections": 8})).ready();
    let idle: Vec<_> = (0..30).map(|_| connect(&gateway)).collect();
    std::thread::sleep(scaled(100));
    drop(idle);
    let answers = || Request::post(gateway.mcp, "/mcp", initialize(LEGACY)).send().status == 200;
    eventually("it serves again", || answers().then_some(()));
    assert_eq!(gateway.admin("/healthz").0, 200);
}
