//! Servers that hang, crash, or do not answer: told apart, given up or waited for, and shown.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::gateway::{Config, Gateway};
use crate::support::matrix::{Cell, Era, Transport};
use crate::support::script::Script;
use crate::support::{eventually, process, scaled};

crate::matrix! { con_05_what_was_lost_is_repeated_only_where_that_does_no_harm }

fn status(gateway: &Gateway, up: &str) -> Value {
    let status: Value = serde_json::from_str(&gateway.admin("/api/status").1).expect("JSON");
    let all = status["upstreams"].as_array().expect("a list").clone();
    all.into_iter().find(|entry| entry["name"] == up).expect("the upstream")
}

/// One that is stopped says nothing to a question: it is started anew, without any call having suffered.
#[test]
fn a_stuck_child_is_found_out_and_started_anew() {
    for era in [Era::Legacy, Era::Modern] {
        let up = Script::echo(era).stdio();
        let keys = json!({"health": {"interval": "200ms", "timeout": "200ms"}});
        let gateway = Config::new().upstream_with("up", &up, keys).ready();
        let client = Client::modern(&gateway);
        std::thread::sleep(scaled(1_000));
        assert_eq!(up.processes().len(), 1, "an idle one that answers is left alone");
        let first = up.process().pid();
        process::signal(first, Signal::STOP);
        eventually("another child", || (up.process().pid() != first).then_some(()));
        assert_eq!(client.echo("up__echo", "x"), "x");
        eventually("the stuck one is gone", || (!process::is_alive(first)).then_some(()));
        let missed =
            gateway.metrics().sum("waypost_upstream_health_checks_missed_total", &[("upstream", "up")]);
        assert!(missed >= 2.0, "{missed}");
    }
}

/// One that works on a call and reads nothing meanwhile is busy, however often it is asked.
#[test]
fn a_busy_child_is_left_to_its_work() {
    let script = Script::echo(Era::Legacy).flag("serial").tool("work", |turn| {
        std::thread::sleep(scaled(2_500));
        turn.text("done");
    });
    let up = script.stdio();
    let keys = json!({"health": {"interval": "100ms", "timeout": "100ms"}});
    let gateway = Config::new().upstream_with("up", &up, keys).ready();
    let client = Client::legacy(&gateway);
    assert_eq!(client.echo("up__work", ""), "done");
    assert_eq!(up.processes().len(), 1);
    eventually("it is found busy", || {
        gateway.events("health_check_missed").into_iter().find(|line| line["verdict"] == "busy")
    });
}

/// One that does not read and has calls is given up once all of them have failed.
#[test]
fn a_stuck_child_with_calls_is_given_up_after_their_time() {
    let up = Script::echo(Era::Legacy).stdio();
    let keys = json!({"timeout": "1s", "health": {"interval": "200ms", "timeout": "200ms"}});
    let gateway = Config::new().upstream_with("up", &up, keys).ready();
    let client = Client::modern(&gateway);
    let first = up.process().pid();
    process::signal(first, Signal::STOP);
    let end = std::time::Instant::now() + crate::support::patience();
    while up.process().pid() == first {
        assert!(std::time::Instant::now() < end, "it is never given up while calls keep coming");
        drop(client.call("up__echo", json!({"text": "x"})));
    }
    eventually("it works again", || {
        (client.call("up__echo", json!({"text": "x"}))["result"]["isError"] != true).then_some(())
    });
}

#[test]
fn a_crash_loop_shows_its_last_words_everywhere() {
    let entry = json!({"command": "sh", "args": ["-c", "echo out of cheese >&2; exit 7"]});
    let gateway = Config::new().raw_upstream("up", entry).start();
    let client = Client::modern(&gateway);
    // Each call has it tried again, no more than once a second.
    eventually("a crash loop", || {
        drop(client.call("up__x", json!({})));
        (status(&gateway, "up")["state"] == "crash_looping").then_some(())
    });
    let shown = status(&gateway, "up");
    assert!(shown["reason"].as_str().is_some_and(|reason| reason.contains("code 7")), "{shown}");
    assert!(shown["failures"].as_u64().is_some_and(|failures| failures >= 5), "{shown}");
    assert!(gateway.metrics().sum("waypost_upstream_failures", &[("upstream", "up")]) >= 5.0);
    let line = gateway.wait_event("upstream_failed");
    assert!(line["reason"].as_str().is_some_and(|reason| reason.contains("out of cheese")), "{line}");
    let told = client.call("up__x", json!({})).to_string();
    assert!(told.contains("code 7") && !told.contains("cheese"), "stderr is not for clients: {told}");
}

/// A server whose tools `flaky` and `flakier` answer only once they may.
fn flaky(is_silent: &Arc<AtomicBool>) -> Script {
    ["flaky", "flakier"].into_iter().fold(Script::echo(Era::Legacy), |script, name| {
        let silent = Arc::clone(is_silent);
        script.tool(name, move |turn| {
            if silent.load(Ordering::Relaxed) {
                std::thread::sleep(scaled(1_000));
            }
            turn.text("there");
        })
    })
}

/// After failures in a row, of several tools, nothing is sent for a while, and then one call, to see.
#[test]
fn an_open_breaker_spares_the_server_and_closes_with_an_answer() {
    let is_silent = Arc::new(AtomicBool::new(true));
    for transport in Transport::ALL {
        is_silent.store(true, Ordering::Relaxed);
        let up = flaky(&is_silent).over(transport);
        let other = Script::echo(Era::Legacy).stdio();
        let keys = json!({"timeouts": {"flak*": "100ms"}, "breaker": {"failures": 3, "open": "1s"}});
        let config = Config::new().upstream_with("up", &up, keys).upstream("other", &other);
        let gateway = config.ready();
        let client = Client::modern(&gateway);
        for tool in ["flaky", "flakier", "flaky"] {
            let answer = client.call(&format!("up__{tool}"), json!({})).to_string();
            assert!(answer.contains("did not answer within"), "{answer}");
        }
        let sent = up.calls().len();
        let refused = client.calling("up__flaky", "{}").send();
        let text = refused.text();
        assert!(text.contains("not called for now") && text.contains("isError\":true"), "{text}");
        assert!(
            text.contains("waypost.dev/retryAfterMs") || refused.header("retry-after").is_some(),
            "{text}"
        );
        assert_eq!(up.calls().len(), sent, "nothing is sent");
        assert_eq!(status(&gateway, "up")["breaker"], "open");
        let explained = gateway.admin("/api/explain?client=anonymous&tool=up__echo").1;
        assert!(explained.contains("unavailable") && explained.contains("\"breaker\""), "{explained}");
        gateway.wait_metric("waypost_upstream_breaker_open", &[("upstream", "up")], 1.0);
        assert_eq!(client.echo("other__echo", "x"), "x");
        is_silent.store(false, Ordering::Relaxed);
        eventually("it is tried again", || {
            (client.call("up__flaky", json!({}))["result"]["content"][0]["text"] == "there").then_some(())
        });
        gateway.wait_metric("waypost_upstream_breaker_open", &[("upstream", "up")], 0.0);
        gateway.wait_event("breaker_opened");
        assert_eq!(gateway.events("breaker_opened").len(), 1);
        assert_eq!(client.echo("up__echo", "x"), "x");
    }
}

/// A tool whose calls never end in time is not called for a while; the others of its server are.
#[test]
fn an_open_breaker_of_a_tool_spares_it_alone() {
    for transport in Transport::ALL {
        let is_silent = Arc::new(AtomicBool::new(true));
        let up = flaky(&is_silent).over(transport);
        let keys = json!({"timeouts": {"flak*": "100ms"}, "breaker": {"failures": 3, "open": "1s"}});
        let gateway = Config::new().upstream_with("up", &up, keys).ready();
        let client = Client::modern(&gateway);
        let open = || gateway.metrics().sum("waypost_tool_breakers_open", &[("upstream", "up")]);
        eventually("its breaker opens", || {
            let answer = client.call("up__flaky", json!({})).to_string();
            assert!(answer.contains("isError\":true"), "{answer}");
            (open() > 0.5).then_some(())
        });
        let line = gateway.wait_event("tool_breaker_opened");
        assert_eq!((&line["upstream"], &line["tool"]), (&json!("up"), &json!("up__flaky")));
        for text in ["a", "b", "c", "d", "e"] {
            assert_eq!(client.echo("up__echo", text), text, "the other tool is called on");
        }
        assert_eq!(status(&gateway, "up")["breaker"], "closed");
        eventually("nothing is sent for a while", || {
            let sent = up.calls().len();
            let answer = client.call("up__flaky", json!({})).to_string();
            let is_refused = answer.contains("this tool of it is not called for now");
            assert!(!is_refused || up.calls().len() == sent, "{answer}");
            is_refused.then_some(())
        });
        is_silent.store(false, Ordering::Relaxed);
        eventually("it is tried again", || {
            (client.call("up__flaky", json!({}))["result"]["content"][0]["text"] == "there").then_some(())
        });
        gateway.wait_metric("waypost_tool_breakers_open", &[("upstream", "up")], 0.0);
        assert!(gateway.events("breaker_opened").is_empty(), "the upstream was never in doubt");
    }
}

/// A server that dies on its first call, and answers the second.
fn con_05_what_was_lost_is_repeated_only_where_that_does_no_harm(cell: Cell) {
    let hints = [
        (r#"{"destructiveHint":true}"#, 1),
        (r#"{"idempotentHint":true}"#, 2),
        (r#"{"title":"a","readOnlyHint": true}"#, 2),
    ];
    for (annotations, expected) in hints {
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&runs);
        let entry =
            format!(r#"{{"name":"tool","inputSchema":{{"type":"object"}},"annotations":{annotations}}}"#);
        let script = Script::of(cell.server).listed(&entry).handled("tool", move |turn| {
            match counted.fetch_add(1, Ordering::Relaxed) {
                0 => turn.break_off(),
                _ => turn.text("second"),
            }
        });
        let up = script.lenient().over(cell.transport);
        let gateway = Config::new().upstream("up", &up).ready();
        let answer = Client::of(&gateway, cell.client).call("up__tool", json!({}));
        assert_eq!(runs.load(Ordering::Relaxed), expected, "{annotations}: {answer}");
        let repeated = gateway.metrics().sum("waypost_calls_repeated_total", &[("upstream", "up")]);
        match expected {
            1 => {
                assert_eq!(answer["result"]["isError"], true, "{answer}");
                assert!(answer.to_string().contains("outcome is unknown"), "{answer}");
                assert!(repeated < 0.5);
            }
            _ => {
                assert_eq!(answer["result"]["content"][0]["text"], "second", "{annotations}: {answer}");
                assert!(repeated > 0.5);
            }
        }
    }
}

#[test]
fn con_05_never_repeats_and_always_repeats_are_what_they_say() {
    for (retry, expected) in [("never", 1), ("always", 2)] {
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&runs);
        let entry = r#"{"name":"tool","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":false}}"#;
        let script = Script::echo(Era::Legacy).listed(entry).handled("tool", move |turn| {
            counted.fetch_add(1, Ordering::Relaxed);
            turn.break_off();
        });
        let up = script.http();
        let gateway = Config::new().upstream_with("up", &up, json!({"retry": retry})).ready();
        let answer = Client::modern(&gateway).call("up__tool", json!({}));
        assert!(answer.to_string().contains("outcome is unknown"), "{answer}");
        assert_eq!(runs.load(Ordering::Relaxed), expected, "{retry}");
    }
}
