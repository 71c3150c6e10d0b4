//! Clients that lose their connection and come back, and servers that have Waypost come back.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::client::{Client, LEGACY, Open, Request};
use crate::support::eventually;
use crate::support::gateway::{Config, Gateway};
use crate::support::matrix::{Era, Transport};
use crate::support::script::Script;
use crate::support::turn::{Gate, Turn};

const PARAMS: &str = r#"{"name":"up__slow","arguments":{},"_meta":{"progressToken":1}}"#;

/// All upstreams that there are.
fn upstreams() -> Vec<(Era, Transport)> {
    let modern = Transport::ALL.map(|transport| (Era::Modern, transport));
    Transport::LEGACY.map(|transport| (Era::Legacy, transport)).into_iter().chain(modern).collect()
}

fn again(client: &Client, last: &str) -> Request {
    client.bodyless("GET").header("Accept", "text/event-stream").header("Last-Event-ID", last)
}

fn rest(mut open: Open) -> Vec<Value> {
    std::iter::from_fn(|| open.message()).collect()
}

fn progress(message: &Value) -> Option<u64> {
    message["params"]["progress"].as_u64()
}

fn begin(client: &Client) -> (Open, String) {
    let mut open = client.request("tools/call", PARAMS).open();
    let first = open.message().expect("the first progress");
    assert_eq!(progress(&first), Some(1));
    let last = open.last_id.clone().expect("an id");
    (open, last)
}

/// A tool that says something before the gate opens, and after it.
fn gated(gate: impl Fn(&Turn) + Send + Sync + 'static) -> impl Fn(&Turn) + Send + Sync + 'static {
    move |turn| {
        turn.progress(1);
        gate(turn);
    }
}

#[test]
fn a_call_outlives_its_connection() {
    for (era, transport) in upstreams() {
        let (gate, waits) = Gate::new("done");
        let up = Script::echo(era).tool("slow", gated(waits)).over(transport);
        let gateway = Config::new().upstream("up", &up).ready();
        for version in ["2025-03-26", "2025-06-18", LEGACY] {
            let client = Client::legacy_at(&gateway, version);
            let (open, last) = begin(&client);
            open.hang_up();
            gate.open();
            let got = rest(again(&client, &last).open());
            assert_eq!(got.len(), 1, "{era:?} {transport:?}: {got:?}");
            assert_eq!(got[0]["result"]["content"][0]["text"], "done", "{got:?}");
            assert!(up.of_method("notifications/cancelled").is_empty(), "a lost connection is no cancel");
        }
    }
}

#[test]
fn each_message_comes_once_whoever_reads() {
    let script = Script::legacy().tool("slow", |turn| {
        for number in 1..=5 {
            turn.progress(number);
        }
        turn.text("done");
    });
    let up = script.http();
    let gateway = Config::new().upstream("up", &up).ready();
    let client = Client::legacy(&gateway);
    let (mut open, mut last) = begin(&client);
    let mut seen = vec![1];
    loop {
        open.hang_up();
        open = again(&client, &last).open();
        let message = open.message().expect("something new");
        last = open.last_id.clone().expect("an id");
        match progress(&message) {
            Some(number) => seen.push(number),
            None => break assert_eq!(message["result"]["content"][0]["text"], "done"),
        }
    }
    assert_eq!(seen, [1, 2, 3, 4, 5]);
    for _ in 0..2 {
        let refused = again(&client, &last).send();
        assert_eq!(refused.status, 410, "nothing more comes: {}", refused.text());
    }
}

#[test]
fn a_lost_call_ends_by_wish_by_session_and_by_time() {
    let (gate, waits) = Gate::new("done");
    let up = Script::legacy().tool("slow", gated(waits)).stdio();
    let config = Config::new().upstream_with("up", &up, json!({"timeout": "300s"}));
    let gateway = config.set("sessions", json!({"resume_window": "500ms"})).ready();
    let ended = |gateway: &Gateway, reason: &str| {
        eventually(reason, || {
            let notes = up.of_method("notifications/cancelled");
            notes.iter().any(|note| note.text.contains(reason)).then_some(())
        });
        eventually("nothing is left of it", || {
            (gateway.metrics().sum("waypost_calls_detached", &[]) < 1.0).then_some(())
        });
    };
    let client = Client::legacy(&gateway);
    begin(&client).0.hang_up();
    ended(&gateway, "client disconnected");
    let client = Client::legacy(&gateway);
    begin(&client).0.hang_up();
    assert_eq!(client.bodyless("DELETE").send().status, 204);
    ended(&gateway, "ended by the client");
    gate.open();
}

#[test]
fn str_06_an_id_is_good_for_its_session_alone() {
    let up = Script::legacy().tool("slow", |turn| {
        turn.progress(1);
        turn.text("done");
    });
    let up = up.stdio();
    let gateway = Config::new().upstream("up", &up).ready();
    let (client, other) = (Client::legacy(&gateway), Client::legacy(&gateway));
    let (open, last) = begin(&client);
    drop(open);
    for refused in [again(&other, &last), again(&client, "1"), again(&client, &last.to_uppercase())] {
        let refused = refused.send();
        assert_eq!(refused.status, 400, "{}", refused.text());
        assert!(refused.text().contains("Last-Event-ID"), "{}", refused.text());
    }
    assert_eq!(rest(again(&client, &last).open()).len(), 1);
}

#[test]
fn what_a_session_was_told_is_told_again_to_who_did_not_get_it() {
    let up = Script::echo(Era::Legacy).stdio();
    let gateway = Config::new().upstream("up", &up).ready();
    let client = Client::legacy(&gateway);
    let mut open = client.listening();
    let before = open.last_id.clone().expect("an id");
    up.change_tools(vec![crate::support::script::plain_entry("other")]);
    assert_eq!(open.message().unwrap()["method"], "notifications/tools/list_changed");
    let after = open.last_id.clone().expect("another id");
    open.hang_up();
    let mut lost = again(&client, &before).open();
    assert_eq!(lost.message().unwrap()["method"], "notifications/tools/list_changed");
    lost.hang_up();
    let mut open = again(&client, &after).open();
    open.wait_comment();
    assert!(open.is_silent(Duration::from_millis(300)), "it has got that");
}

/// A server that closes the stream of a call, and answers to whoever comes back.
fn polled(retry: u32) -> Script {
    let call = Arc::new(Mutex::new(String::new()));
    let asked = Arc::clone(&call);
    let script = Script::echo(Era::Legacy).tool("slow", move |turn| {
        *asked.lock().unwrap() = turn.id().unwrap_or_default().to_owned();
        let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":TOKEN,"progress":1}}"#;
        let token = crate::support::json::get(&turn.received.text, &["params", "_meta", "progressToken"]);
        let progress = progress.replace("TOKEN", token.unwrap_or("0"));
        let body = format!("id: p1\nretry: {retry}\ndata:\n\nid: p2\ndata: {progress}\n\n");
        turn.respond("200 OK", "text/event-stream", &body);
    });
    script.first(move |turn| {
        let is_back = turn.header("last-event-id") == Some("p2");
        if is_back {
            let id = call.lock().unwrap().clone();
            let answer = format!(
                r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":"done"}}]}}}}"#
            );
            turn.respond("200 OK", "text/event-stream", &format!("id: p3\ndata: {answer}\n\n"));
        }
        is_back
    })
}

#[test]
fn a_server_that_wants_to_be_asked_again_is() {
    let up = polled(300).http();
    let gateway = Config::new().upstream("up", &up).ready();
    for client in [Client::legacy(&gateway), Client::modern(&gateway)] {
        let before = up.received().len();
        let mut open = client.request("tools/call", PARAMS).open();
        assert_eq!(progress(&open.message().expect("progress")), Some(1));
        let answer = open.message().expect("an answer");
        assert_eq!(answer["result"]["content"][0]["text"], "done");
        let received = up.received();
        let at = |wanted: &dyn Fn(&crate::support::turn::Received) -> bool| {
            received[before..].iter().find(|received| wanted(received)).map(|received| received.at).unwrap()
        };
        let called = at(&|received| received.method() == "tools/call");
        let back = at(&|received| received.header("last-event-id") == Some("p2"));
        assert!(back - called >= Duration::from_millis(300), "not before the server's own `retry`");
    }
}

#[test]
fn both_sides_may_come_back() {
    let up = polled(10).http();
    let gateway = Config::new().upstream("up", &up).ready();
    let client = Client::legacy(&gateway);
    let (open, last) = begin(&client);
    open.hang_up();
    let answer = rest(again(&client, &last).open());
    assert_eq!(answer[0]["result"]["content"][0]["text"], "done", "{answer:?}");
}
