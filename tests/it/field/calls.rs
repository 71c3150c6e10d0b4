//! Concurrency, ids, progress, cancellation.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::support::client::Client;
use crate::support::gateway::Config;
use crate::support::json::{get, replaced, string};
use crate::support::matrix::{Cell, Era};
use crate::support::script::Script;
use crate::support::turn::Gate;
use crate::support::turn::Turn;
use crate::support::{at_once, eventually, patience, scaled};

crate::matrix! { con_01_a_slow_call_blocks_nothing prg_01_progress_bears_the_callers_token }

fn con_01_a_slow_call_blocks_nothing(cell: Cell) {
    let (gate, slow) = Gate::new("slow");
    let a = Script::echo(cell.server).tool("slow", slow).over(cell.transport);
    let b = Script::echo(Era::Legacy).stdio();
    let gateway = Config::new().upstream("a", &a).upstream("b", &b).ready();
    let client = Client::of(&gateway, cell.client);
    std::thread::scope(|scope| {
        let running = scope.spawn(|| client.echo("a__slow", ""));
        eventually("the slow call is there", || (!a.calls().is_empty()).then_some(()));
        if cell.client == Era::Legacy {
            assert_eq!(client.request("ping", "{}").send().status, 200);
        }
        client.wait_tools(&["a__echo", "a__slow", "b__echo"]);
        assert_eq!(client.echo("a__echo", "same upstream"), "same upstream");
        assert_eq!(client.echo("b__echo", "another"), "another");
        assert!(!running.is_finished(), "the others did not wait for it");
        gate.open();
        assert_eq!(running.join().unwrap(), "slow");
    });
}

/// The stub holds its answers back until all calls are there, and gives them in reverse.
#[test]
fn con_02_a_hundred_parallel_calls_over_one_pipe() {
    const CALLS: usize = 100;
    let waiting: Mutex<Vec<(String, String)>> = Mutex::default();
    let script = Script::legacy().tool("echo", move |turn| {
        let mut waiting = waiting.lock().unwrap();
        waiting.push((turn.id().unwrap().to_owned(), turn.argument("text").unwrap()));
        if waiting.len() == CALLS {
            for (id, text) in waiting.drain(..).rev() {
                let text = crate::support::json::quoted(&text);
                turn.send(&format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":{text}}}]}}}}"#
                ));
            }
        }
    });
    let up = script.stdio();
    let gateway = Config::new().upstream("up", &up).ready();
    let client = Client::legacy(&gateway);
    let jobs: Vec<_> = (0..CALLS)
        .map(|index| {
            let client = &client;
            move || {
                let text = format!("{index} ").repeat(300 + index * 500);
                assert!(client.echo("up__echo", &text) == text, "call {index}");
            }
        })
        .collect();
    at_once(jobs);
    assert_eq!(up.processes().len(), 1);
}

/// Across sessions and, since each POST has its own answer, within one: never a swapped or a missing answer.
#[test]
fn s2c_04_every_request_may_carry_id_1() {
    for transport in crate::support::matrix::Transport::LEGACY {
        let script = Script::legacy().tool("echo", |turn| {
            let text = turn.argument("text").unwrap();
            std::thread::sleep(Duration::from_millis(u64::try_from(text.len() * 7 % 60).unwrap()));
            turn.text(&text);
        });
        let up = script.over(transport);
        let gateway = Config::new().upstream("up", &up).ready();
        let clients = [Client::legacy(&gateway), Client::legacy(&gateway), Client::modern(&gateway)];
        let jobs: Vec<_> = (0..36)
            .map(|index| {
                let client = &clients[index % 3];
                move || {
                    let text = "x".repeat(index);
                    let id = if index % 4 == 0 { "\"1\"" } else { "1" };
                    let params = format!(r#"{{"name":"up__echo","arguments":{{"text":"{text}"}}}}"#);
                    let body = replaced(&client.body("tools/call", &params), &["id"], id);
                    let response = client.message(&body).send();
                    let message = response.message();
                    assert_eq!(get(&message, &["id"]), Some(id), "{message}");
                    // A session may refuse an id that is in use, but never mixes two calls up.
                    if response.code() == -32600 {
                        assert_eq!(client.era, Era::Legacy, "{message}");
                        return;
                    }
                    assert_eq!(response.json()["result"]["content"][0]["text"], text, "{message}");
                }
            })
            .collect();
        at_once(jobs);
    }
}

fn prg_01_progress_bears_the_callers_token(cell: Cell) {
    let script = Script::of(cell.server).tool("work", |turn| {
        for step in 1..=3 {
            turn.progress(step);
        }
        turn.text("done");
    });
    let up = script.over(cell.transport);
    let gateway = Config::new().upstream("up", &up).ready();
    let client = Client::of(&gateway, cell.client);
    for token in ["7", "\"7\"", "9007199254740993", "\"\"", "0", "\"a\\u00e9\""] {
        let params = format!(
            r#"{{"name":"up__work","arguments":{{}},"_meta":{{"com.example/k":1.0,"progressToken":{token}}}}}"#
        );
        let response = client.request("tools/call", &params).send();
        let messages = response.messages();
        assert_eq!(messages.len(), 4, "{token}: {messages:?}");
        for (step, message) in messages[..3].iter().enumerate() {
            assert_eq!(get(message, &["method"]), Some("\"notifications/progress\""), "{message}");
            assert_eq!(get(message, &["params", "progressToken"]), Some(token), "{message}");
            assert_eq!(get(message, &["params", "progress"]), Some(&*(step + 1).to_string()), "{message}");
            assert_eq!(get(message, &["params", "x-more"]), Some("1.0"), "{message}");
        }
        assert_eq!(response.json()["result"]["content"][0]["text"], "done");
        let call = up.calls().pop().unwrap();
        assert_eq!(get(&call.text, &["params", "_meta", "com.example/k"]), Some("1.0"), "{}", call.text);
    }
    let plain = client.calling("up__work", "{}").send();
    assert_eq!(plain.messages().len(), 1, "no token, no progress: {}", plain.text());
    assert_eq!(plain.json()["result"]["content"][0]["text"], "done");
}

/// Two callers with one token: each gets its own events only.
#[test]
fn prg_01_tokens_of_different_callers_may_be_equal() {
    let script = Script::legacy().tool("work", |turn| {
        let own = turn.argument("text").unwrap().parse().unwrap();
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(20));
            turn.progress(own);
        }
        turn.text("done");
    });
    let up = script.stdio();
    let gateway = Config::new().upstream("up", &up).ready();
    let client = Client::legacy(&gateway);
    let jobs: Vec<_> = (1..=8)
        .map(|own| {
            let client = &client;
            move || {
                let params = format!(
                    r#"{{"name":"up__work","arguments":{{"text":"{own}"}},"_meta":{{"progressToken":1}}}}"#
                );
                let messages = client.request("tools/call", &params).send().messages();
                assert_eq!(messages.len(), 4, "{messages:?}");
                for message in &messages[..3] {
                    assert_eq!(get(message, &["params", "progress"]), Some(&*own.to_string()), "{message}");
                }
            }
        })
        .collect();
    at_once(jobs);
}

/// A tool that never answers.
fn hang(_: &Turn) {
    std::thread::sleep(Duration::from_secs(120));
}

#[test]
fn can_01_a_cancel_reaches_exactly_the_call_meant() {
    let a = Script::echo(Era::Legacy).tool("slow", hang).stdio();
    let b = Script::echo(Era::Legacy).tool("slow", hang).stdio();
    let gateway = Config::new().upstream("a", &a).upstream("b", &b).ready();
    let client = Client::legacy(&gateway);
    let call = |id: u32, name: &str| {
        client.message(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{name}","arguments":{{}}}}}}"#))
    };
    std::thread::scope(|scope| {
        let (slow, other) = (call(101, "a__slow"), call(103, "a__slow"));
        let running = scope.spawn(move || slow.send());
        eventually("the slow call is there", || (a.calls().len() == 1).then_some(()));
        let staying = scope.spawn(move || other.open());
        eventually("the other one, too", || (a.calls().len() == 2).then_some(()));
        assert_eq!(call(102, "b__echo").send().status, 200);
        let from = Instant::now();
        let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":101,"reason":"changed my mind"}}"#;
        let accepted = client.post(cancel).send();
        assert_eq!((accepted.status, accepted.body.len()), (202, 0));
        let cancelled = a.wait_method("notifications/cancelled");
        let first = a.calls().remove(0);
        assert_eq!(
            get(&cancelled.text, &["params", "requestId"]),
            first.id(),
            "its own id: {}",
            cancelled.text
        );
        assert_eq!(string(&cancelled.text, &["params", "reason"]).as_deref(), Some("changed my mind"));
        let ended = running.join().unwrap();
        assert!(from.elapsed() < patience() / 2, "at once, not at the timeout");
        assert!(!ended.text().contains("\"content\":[]"), "no good result: {}", ended.text());
        assert!(b.of_method("notifications/cancelled").is_empty(), "B has no part in it");
        assert_eq!(a.of_method("notifications/cancelled").len(), 1, "nor has the other call");
        assert_eq!(client.echo("a__echo", "usable"), "usable");
        // What nobody waits for is accepted, and goes nowhere.
        for unknown in ["999", "\"101\"", "102"] {
            let cancel = format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{unknown}}}}}"#
            );
            assert_eq!(client.post(cancel).send().status, 202);
        }
        let last = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":103}}"#;
        assert_eq!(client.post(last).send().status, 202);
        eventually("the other call ends by its own cancel", || {
            (a.of_method("notifications/cancelled").len() == 2).then_some(())
        });
        drop(staying.join());
    });
}

/// Another session cannot end a call by guessing its id.
#[test]
fn can_01_a_cancel_of_another_session_ends_nothing() {
    let up = Script::legacy().tool("slow", |turn| {
        std::thread::sleep(scaled(700));
        turn.text("done");
    });
    let up = up.stdio();
    let gateway = Config::new().upstream("up", &up).ready();
    let (one, two) = (Client::legacy(&gateway), Client::legacy(&gateway));
    std::thread::scope(|scope| {
        let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"up__slow"}}"#;
        let request = one.post(body);
        let running = scope.spawn(move || request.send().json());
        up.wait_method("tools/call");
        let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
        assert_eq!(two.post(cancel).send().status, 202);
        assert_eq!(running.join().unwrap()["result"]["content"][0]["text"], "done");
    });
    assert!(up.of_method("notifications/cancelled").is_empty());
}

/// In the modern era closing the stream is the cancel; in the legacy era a lost connection is none.
#[test]
fn can_01_closing_the_stream_cancels_in_the_modern_era_alone() {
    let script = || {
        Script::echo(Era::Legacy).tool("slow", |turn| {
            turn.progress(1);
            std::thread::sleep(scaled(1_000));
            turn.text("done");
        })
    };
    let up = script().stdio();
    let gateway = Config::new().upstream("up", &up).ready();
    let params = r#"{"name":"up__slow","arguments":{},"_meta":{"progressToken":1}}"#;
    let mut stream = Client::modern(&gateway).request("tools/call", params).open();
    assert!(stream.event().is_some(), "the first progress");
    stream.hang_up();
    let cancelled = up.wait_method("notifications/cancelled");
    assert_eq!(get(&cancelled.text, &["params", "requestId"]), up.calls().remove(0).id());
    let legacy = Client::legacy(&gateway);
    let mut stream = legacy.request("tools/call", params).open();
    assert!(stream.event().is_some(), "the first progress");
    stream.hang_up();
    eventually("the legacy call ends by itself", || {
        let metrics = gateway.metrics();
        let ended = metrics.sum("waypost_calls_total", &[("tool", "up__slow")]);
        (ended >= 2.0).then_some(())
    });
    assert_eq!(up.of_method("notifications/cancelled").len(), 1, "a lost connection is no cancel");
}

/// Over HTTP a modern server learns of a cancel by the end of the stream.
#[test]
fn can_01_a_modern_http_server_sees_its_stream_closed() {
    let (seen, sees) = std::sync::mpsc::channel();
    let script = Script::modern().tool("slow", move |turn| {
        turn.progress(1);
        let end = Instant::now() + patience();
        while Instant::now() < end {
            if turn.is_abandoned() {
                let _nobody_waits = seen.send(());
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    let up = script.http();
    let gateway = Config::new().upstream("up", &up).ready();
    let params = r#"{"name":"up__slow","arguments":{},"_meta":{"progressToken":1}}"#;
    let mut stream = Client::modern(&gateway).request("tools/call", params).open();
    assert!(stream.event().is_some(), "the first progress");
    stream.hang_up();
    sees.recv_timeout(patience()).expect("the stream is closed");
    assert!(up.of_method("notifications/cancelled").is_empty(), "no notification where closing says it");
}
