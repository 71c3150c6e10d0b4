//! Streaming, timeouts, acknowledgements.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::client::Client;
use crate::support::gateway::Config;
use crate::support::matrix::{Cell, Era, Transport};
use crate::support::script::Script;
use crate::support::turn::{Form, Gate, Turn};
use crate::support::{eventually, patience};

crate::matrix! { str_09_the_timeout_is_the_one_configured }

#[test]
fn str_01_streams_of_every_line_end_are_read() {
    for era in [Era::Legacy, Era::Modern] {
        let [crlf, cr, lf] = ["\r\n", "\r", "\n"].map(|end| {
            let script = Script::echo(era).form(Form::Sse(end)).tool("work", |turn| {
                turn.progress(1);
                turn.text("worked");
            });
            script.http()
        });
        let gateway = Config::new().upstream("crlf", &crlf).upstream("cr", &cr).upstream("lf", &lf).ready();
        let client = Client::legacy(&gateway);
        for up in ["crlf", "cr", "lf"] {
            assert_eq!(client.echo(&format!("{up}__echo"), "x"), "x");
            let params = format!(r#"{{"name":"{up}__work","arguments":{{}},"_meta":{{"progressToken":1}}}}"#);
            assert_eq!(client.request("tools/call", &params).send().messages().len(), 2, "{up}");
        }
    }
}

/// Bytes as they come: comments, a mark, ids, several data lines, no space, cut anywhere.
#[test]
fn str_01_streams_may_be_cut_anywhere() {
    let script = Script::legacy().tool("pieces", |turn| {
        let id = turn.id().unwrap_or("0").to_owned();
        let result = r#""result":{"content":[{"type":"text","text":"in pieces é 日本"}]}"#;
        let stream = format!(
            "\u{feff}: a comment\r\n\r\nid: 1\nretry: 5\ndata\n\nevent: ping\ndata: {{}}\n\nevent:message\r\nid:2\r\n\
             unknown: field\r\ndata:{{\"jsonrpc\":\"2.0\",\r\ndata: \"id\":{id},\r\ndata:{result}}}\r\n\r\n"
        );
        for byte in stream.as_bytes() {
            turn.raw(std::slice::from_ref(byte));
        }
        std::thread::sleep(Duration::from_millis(20));
    });
    let up = script.http();
    let gateway = Config::new().upstream("up", &up).ready();
    assert_eq!(Client::legacy(&gateway).echo("up__pieces", ""), "in pieces é 日本");
}

/// Stdio: the child closes its stdout and lives on. HTTP: the stream ends without an answer, that of the call or
/// that of all calls.
#[test]
fn str_08_a_stream_that_ends_mid_call_fails_the_call_at_once() {
    let cut = |turn: &Turn| {
        turn.progress(1);
        std::thread::sleep(Duration::from_millis(50));
        match &turn.out {
            crate::support::turn::Out::Stdio(process) => process.close_stdout(),
            crate::support::turn::Out::Http(_) | crate::support::turn::Out::Sse(_) => turn.break_off(),
        }
    };
    let clean = |turn: &Turn| turn.respond("200 OK", "text/event-stream", ": nothing\n\n");
    for transport in Transport::LEGACY {
        let up = Script::echo(Era::Legacy).tool("cut", cut).handled("clean", clean).over(transport);
        let gateway = Config::new().upstream_with("up", &up, json!({"timeout": "60s"})).ready();
        let client = Client::legacy(&gateway);
        let from = Instant::now();
        let params = r#"{"name":"up__cut","arguments":{},"_meta":{"progressToken":1}}"#;
        let answer = client.request("tools/call", params).send().json();
        assert_eq!(answer["result"]["isError"], true, "{answer}");
        assert!(answer.to_string().contains("up"), "{answer}");
        assert!(from.elapsed() < patience(), "not at the timeout of a minute");
        let works = || client.call("up__echo", json!({"text": "x"}))["result"]["isError"] != true;
        eventually("the next call works", || works().then_some(()));
    }
}

#[test]
fn str_08_a_stream_that_ends_without_an_answer_is_a_failure() {
    let script = Script::echo(Era::Legacy).tool("clean", |turn| {
        turn.respond("200 OK", "text/event-stream", "id: 1\ndata:\n\n: nothing\n\n");
    });
    let up = script.http();
    let gateway = Config::new().upstream_with("up", &up, json!({"timeout": "60s"})).ready();
    let client = Client::modern(&gateway);
    let from = Instant::now();
    let answer = client.call("up__clean", json!({}));
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    assert!(from.elapsed() < patience(), "not at the timeout of a minute");
    assert_eq!(client.echo("up__echo", "x"), "x");
}

fn str_09_the_timeout_is_the_one_configured(cell: Cell) {
    let ((late, first), (gate, second)) = (Gate::new("too late"), Gate::new("slow"));
    let form = Form::Sse("\n");
    let a = Script::echo(cell.server).form(form).tool("slow", first).over(cell.transport);
    let b = Script::echo(cell.server).tool("slow", second).over(cell.transport);
    let config = Config::new().upstream_with("short", &a, json!({"timeout": "700ms"}));
    let gateway = config.upstream_with("long", &b, json!({"timeout": "60s"})).ready();
    let client = Client::of(&gateway, cell.client);
    std::thread::scope(|scope| {
        let long = scope.spawn(|| client.echo("long__slow", ""));
        let from = Instant::now();
        let answer = client.call("short__slow", json!({}));
        assert_eq!(answer["result"]["isError"], true, "{answer}");
        assert!(from.elapsed() >= Duration::from_millis(650), "not before its budget");
        let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
        assert!(text.contains("short") && text.contains('7'), "names the upstream and the budget: {text}");
        assert!(!long.is_finished());
        gate.open();
        assert_eq!(long.join().unwrap(), "slow");
    });
    late.open();
    let is_told_by_stream = cell.server == Era::Modern && cell.transport == Transport::Http;
    if !is_told_by_stream {
        let cancelled = a.wait_method("notifications/cancelled");
        let call = a.calls().remove(0);
        assert_eq!(crate::support::json::get(&cancelled.text, &["params", "requestId"]), call.id());
    }
    assert!(b.of_method("notifications/cancelled").is_empty());
    assert_eq!(client.echo("short__echo", "usable"), "usable", "a late answer disturbs nobody");
}

#[test]
fn str_10_what_covers_json_or_a_stream_is_served() {
    let up = Script::echo(Era::Legacy).stdio();
    let gateway = Config::new().upstream("up", &up).ready();
    for client in [Client::legacy(&gateway), Client::modern(&gateway)] {
        let cases = [
            (None, "application/json"),
            (Some("*/*"), "application/json"),
            (Some("application/json"), "application/json"),
            (Some("text/event-stream"), "text/event-stream"),
            (Some("application/json, text/event-stream"), ""),
            (Some("application/*"), "application/json"),
            (Some("text/*"), "text/event-stream"),
            (Some("TEXT/Event-Stream;q=0.5, application/JSON;q=0.1"), ""),
            (Some("text/html, */*;q=0.1"), ""),
            (Some("application/json; charset=utf-8"), "application/json"),
        ];
        for (accept, wanted) in cases {
            for request in [client.request("tools/list", "{}"), client.calling("up__echo", r#"{"text":"x"}"#)]
            {
                let request = request.without("Accept");
                let request =
                    accept.into_iter().fold(request, |request, value| request.header("Accept", value));
                let response = request.send();
                assert_eq!(response.status, 200, "{accept:?}: {}", response.text());
                assert!(response.content_type().starts_with(wanted), "{accept:?}: {:?}", response.head);
                assert!(response.json()["result"].is_object(), "{}", response.text());
            }
        }
        for accept in ["image/png", "text/html", "application/xml, image/*"] {
            let refused = client.request("tools/list", "{}").header("Accept", accept).send();
            assert_eq!(refused.status, 406, "{accept}: {}", refused.text());
        }
    }
    let note = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    assert_eq!(Client::legacy(&gateway).post(note).without("Accept").send().status, 202);
}

#[test]
fn str_10_who_takes_json_alone_gets_one_document() {
    let script = Script::legacy().tool("work", |turn| {
        turn.progress(1);
        turn.progress(2);
        turn.text("done");
    });
    let up = script.stdio();
    let gateway = Config::new().upstream("up", &up).ready();
    for client in [Client::legacy(&gateway), Client::modern(&gateway)] {
        let params = r#"{"name":"up__work","arguments":{},"_meta":{"progressToken":1}}"#;
        let response = client.request("tools/call", params).header("Accept", "application/json").send();
        assert!(response.content_type().starts_with("application/json"), "{:?}", response.head);
        assert_eq!(response.json()["result"]["content"][0]["text"], "done");
    }
}

#[test]
fn str_11_notifications_are_acknowledged_without_a_body() {
    let up = Script::echo(Era::Legacy).stdio();
    let gateway = Config::new().upstream("up", &up).ready();
    let client = Client::legacy(&gateway);
    let bodies = [
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/of/the/future","params":{"x":1}}"#,
        r#"{"jsonrpc":"2.0","id":77,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":"78","error":{"code":-32601,"message":"no"}}"#,
    ];
    for body in bodies {
        let response = client.post(body).send();
        assert_eq!((response.status, response.body.len()), (202, 0), "{body}: {}", response.text());
        assert!(!response.content_type().contains("event-stream"), "{:?}", response.head);
    }
    let call = client.calling("up__echo", r#"{"text":"x"}"#).header("Accept", "text/event-stream").send();
    assert_eq!(call.status, 200, "{}", call.text());
    assert_eq!(client.request("ping", "{}").send().json()["result"], json!({}));
}

#[test]
fn str_12_sloppy_acknowledgements_are_tolerated() {
    let acknowledging = |status: &'static str, content_type: &'static str, body: &'static str| {
        let script = Script::echo(Era::Legacy).first(move |turn| {
            let is_note = turn.method().starts_with("notifications/");
            if is_note {
                turn.respond(status, content_type, body);
            }
            is_note
        });
        script.http()
    };
    let ups = [
        acknowledging("202 Accepted", "text/plain", "Accepted"),
        acknowledging("200 OK", "", ""),
        acknowledging("200 OK", "application/json", "null"),
        acknowledging("204 No Content", "", ""),
        acknowledging("200 OK", "application/json", "{}"),
        acknowledging("200 OK", "text/event-stream", ": nothing\n\n"),
    ];
    let add = |config: Config, (index, up): (usize, &_)| config.upstream(&format!("up{index}"), up);
    let gateway = ups.iter().enumerate().fold(Config::new(), add).ready();
    let client = Client::legacy(&gateway);
    for index in 0..ups.len() {
        assert_eq!(client.echo(&format!("up{index}__echo"), "x"), "x", "up{index}");
    }
}
