//! Too much of everything: what does not fit is refused in words, and what was promised is kept.

use serde_json::json;

use crate::support::client::Client;
use crate::support::eventually;
use crate::support::gateway::{Config, Gateway};
use crate::support::matrix::{Era, Transport};
use crate::support::script::Script;
use crate::support::turn::Form;

/// More than a socket holds for a client that does not read.
const LARGE: usize = 24 << 20;

fn held(gateway: &Gateway) -> f64 {
    gateway.metrics().sum("waypost_message_bytes", &[])
}

/// Large answers of all upstreams together take no more than `limits.memory`, however slowly they are read.
#[test]
fn answers_that_do_not_fit_into_the_memory_fail_alone() {
    let forms =
        [(Transport::Stdio, Form::Json), (Transport::Http, Form::Json), (Transport::Http, Form::Sse("\n"))];
    for (transport, form) in forms {
        let script = Script::echo(Era::Legacy).form(form).tool("make", |turn| turn.text(&"m".repeat(LARGE)));
        let up = script.over(transport);
        let other = Script::echo(Era::Legacy).stdio();
        let config = Config::new().upstream("up", &up).upstream("other", &other);
        let gateway = config.set("limits", json!({"memory": "32MiB"})).ready();
        let client = Client::modern(&gateway);
        let slow = client.calling("up__make", "{}").open();
        let holds = || (held(&gateway) >= LARGE as f64).then_some(());
        eventually(&format!("the answer is held: {transport:?} {form:?}"), holds);
        let refused = client.call("up__make", json!({}));
        assert_eq!(refused["result"]["isError"], true, "{:.300}", refused.to_string());
        let text = refused["result"]["content"][0]["text"].as_str().unwrap_or_default();
        assert!(text.contains("up") && text.contains("large messages"), "{text}");
        let body = client.calling("other__echo", &json!({"text": "b".repeat(12 << 20)}).to_string()).send();
        assert_eq!((body.status, body.header("retry-after")), (503, Some("1")), "{:.300}", body.text());
        assert_eq!(client.echo("other__echo", "small"), "small");
        assert_eq!(client.echo("up__echo", "small"), "small");
        let whole = slow.whole().json();
        assert_eq!(whole["result"]["content"][0]["text"].as_str().map(str::len), Some(LARGE));
        eventually("the memory is free again", || (held(&gateway) < 1.0).then_some(()));
        let again = client.call("up__make", json!({}));
        assert_eq!(again["result"]["content"][0]["text"].as_str().map(str::len), Some(LARGE));
        eventually("and again", || (held(&gateway) < 1.0).then_some(()));
    }
}

/// A client that is gone without a word is noticed by the system: probes on a connection where nothing is sent.
#[test]
fn connections_are_probed_for_dead_peers() {
    let up = Script::echo(Era::Legacy).stdio();
    let gateway = Config::new().upstream("up", &up).set("limits", json!({"peer_timeout": "8s"})).ready();
    let client = Client::legacy(&gateway);
    let _stream = client.listening();
    let port = format!(":{:04X}", gateway.mcp.port());
    let timers = || {
        let table = std::fs::read_to_string("/proc/net/tcp").expect("a table of connections");
        let lines = table.lines().filter_map(|line| {
            let fields: Vec<_> = line.split_whitespace().collect();
            // Local address, state (01 is established), timer (02 is keep-alive) with its hundredths of a second.
            (fields.get(1)?.ends_with(&port) && *fields.get(3)? == "01").then(|| fields[5].to_owned())
        });
        let lines: Vec<_> = lines.collect();
        let probed = lines.iter().find_map(|timer| {
            let ticks = u32::from_str_radix(timer.strip_prefix("02:")?, 16).ok()?;
            (ticks <= 400).then_some(ticks)
        });
        probed.filter(|_| !lines.is_empty())
    };
    eventually("the idle stream is probed every four seconds", timers);
}

/// Calls go on while nobody reads the log, and it is whole afterwards.
#[test]
fn a_log_that_nobody_reads_stops_no_call() {
    let up = Script::echo(Era::Legacy).stdio();
    let gateway = Config::new().upstream("up", &up).ready();
    let client = Client::modern(&gateway);
    // Each call is a line of more than 100 bytes, and the pipe holds 64 KiB.
    let calls = 1000;
    gateway.unread(|| {
        for call in 0..calls {
            assert_eq!(client.echo("up__echo", &call.to_string()), call.to_string());
        }
    });
    eventually("every call has its line", || (gateway.events("call").len() == calls).then_some(()));
    assert_eq!(gateway.metrics().sum("waypost_log_lines_dropped_total", &[]), 0.0);
}
