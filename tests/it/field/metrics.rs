//! Metrics: every way to end has a number of its own.

use std::collections::BTreeMap;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::support::client::Client;
use crate::support::eventually;
use crate::support::gateway::Config;
use crate::support::matrix::Era;
use crate::support::process;
use crate::support::script::Script;

#[test]
fn met_01_each_way_to_end_is_an_outcome_of_its_own() {
    let script = Script::echo(Era::Legacy)
        .tools(["forbidden"])
        .tool("sad", |turn| turn.ok(r#"{"content":[],"isError":true}"#))
        .tool("fail", |turn| turn.error(-32000, "no"))
        .tool("slow", |_| std::thread::sleep(Duration::from_secs(60)));
    let up = script.stdio();
    let limited = Script::echo(Era::Modern).http();
    let down = Script::echo(Era::Legacy).http();
    let config = Config::new()
        .upstream_with("up", &up, json!({"timeout": "1s", "tools": {"deny": ["forbidden"]}}))
        .upstream_with("limited", &limited, json!({"limits": {"rate": "1/h"}}))
        .upstream("down", &down);
    let gateway = config.ready();
    down.go_down();
    let client = Client::legacy(&gateway);
    let calls = [
        "up__echo",
        "up__sad",
        "up__fail",
        "up__slow",
        "up__forbidden",
        "up__nope",
        "limited__echo",
        "limited__echo",
        "down__echo",
    ];
    for name in calls {
        client.call(name, json!({"text": "x"}));
    }
    std::thread::scope(|scope| {
        let body = client.body("tools/call", r#"{"name":"up__slow","arguments":{}}"#);
        let id = crate::support::json::get(&body, &["id"]).unwrap().to_owned();
        let request = client.message(&body);
        let running = scope.spawn(move || request.open());
        eventually("the second slow call", || {
            (up.calls().iter().filter(|call| call.name() == "slow").count() == 2).then_some(())
        });
        let cancel = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id},"reason":"bored"}}}}"#
        );
        assert_eq!(client.post(cancel).send().status, 202);
        drop(running.join());
    });
    let wanted: BTreeMap<_, _> = [
        ("ok", 2.0),
        ("tool_error", 1.0),
        ("error", 1.0),
        ("timeout", 1.0),
        ("denied", 1.0),
        ("unknown", 1.0),
        ("rate_limited", 1.0),
        ("unavailable", 1.0),
        ("cancelled", 1.0),
    ]
    .into();
    for (outcome, count) in &wanted {
        gateway.wait_metric("waypost_calls_total", &[("outcome", outcome), ("method", "tools/call")], *count);
    }
    let metrics = gateway.metrics();
    let all = metrics.sum("waypost_calls_total", &[("method", "tools/call")]);
    let timed = metrics.sum("waypost_call_duration_seconds_count", &[("method", "tools/call")]);
    assert!((all - 10.0).abs() < 0.1 && (timed - 10.0).abs() < 0.1, "{all} calls, {timed} timed");
    let own = [("client", "anonymous"), ("upstream", "up"), ("tool", "up__sad"), ("outcome", "tool_error")];
    assert!((metrics.sum("waypost_calls_total", &own) - 1.0).abs() < 0.1);
    for sample in &metrics.0 {
        let is_from_request = sample.labels.values().any(|value| value.contains("nope"));
        assert!(!is_from_request, "no label comes from a request: {sample:?}");
    }
    gateway.wait_metric("waypost_calls_in_flight", &[], 0.0);
}

#[test]
fn met_03_a_dead_fleet_does_not_look_idle() {
    let healthy = Script::echo(Era::Legacy).stdio();
    let refusing = Script::echo(Era::Legacy)
        .first(|turn| {
            turn.with_header("WWW-Authenticate", "Bearer");
            turn.respond("401 Unauthorized", "application/json", "{}");
            true
        })
        .http();
    let gateway = Config::new()
        .upstream("healthy", &healthy)
        .raw_upstream("dead", json!({"url": "http://127.0.0.1:1/mcp"}))
        .raw_upstream("looping", json!({"command": "sh", "args": ["-c", "echo boom >&2; exit 1"]}))
        .upstream("refusing", &refusing)
        .start();
    let all = ["healthy", "dead", "looping", "refusing"];
    for upstream in all {
        assert!(
            gateway.metrics().has("waypost_upstream_up", &[("upstream", upstream)]),
            "right from the start"
        );
    }
    gateway.wait_metric("waypost_upstream_up", &[("upstream", "healthy")], 1.0);
    for upstream in &all[1..] {
        let failures =
            || gateway.metrics().sum("waypost_upstream_connect_failures_total", &[("upstream", upstream)]);
        eventually(upstream, || (failures() >= 1.0).then_some(()));
        assert!(gateway.metrics().sum("waypost_upstream_up", &[("upstream", upstream)]) < 0.5, "{upstream}");
    }
    gateway.wait_metric("waypost_upstream_connects_total", &[("upstream", "healthy")], 1.0);
    process::signal(healthy.process().pid(), Signal::KILL);
    gateway.wait_metric("waypost_upstream_restarts_total", &[("upstream", "healthy")], 1.0);
    gateway.wait_metric("waypost_upstream_up", &[("upstream", "healthy")], 1.0);
    assert!(gateway.metrics().has("waypost_config_info", &[]));
    assert_eq!(gateway.admin("/healthz").0, 200, "it lives, whatever its upstreams do");
}
