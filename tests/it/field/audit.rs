//! The audit log: who called what, what became of it, and by which rule.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::eventually;
use crate::support::gateway::{Config, Gateway};
use crate::support::matrix::Era;
use crate::support::script::Script;
use crate::support::upstream::Upstream;

fn audited(up: &Upstream, audit: Value) -> Config {
    let clients = json!({
        "ci": {"tokens": [{"env": "CI"}], "tools": {"deny": ["*__drop"]}, "limits": {"rate": "4/h"}},
    });
    Config::new().upstream("up", up).clients(clients).env("CI", "t-ci").set("audit", audit)
}

fn lines(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
}

fn wait_lines(gateway: &Gateway, count: usize) -> Vec<Value> {
    let file = gateway.folder().join("audit.jsonl");
    eventually("the lines are there", || Some(lines(&file)).filter(|lines| lines.len() >= count))
}

#[test]
fn every_call_and_every_refusal_is_a_line_with_its_reason() {
    for era in [Era::Legacy, Era::Modern] {
        let up = Script::echo(Era::Legacy).tools(["drop"]).stdio();
        let gateway = audited(&up, json!({"file": "audit.jsonl"})).ready();
        let client = Client::bare(&gateway, era).bearer("t-ci");
        let client = if era == Era::Legacy { client.connected("2025-11-25") } else { client };
        let secret = "nobody is to read this";
        let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let meta = json!({"traceparent": trace});
        let called = json!({"name": "up__echo", "arguments": {"text": secret}, "_meta": meta});
        assert_eq!(client.request("tools/call", &called.to_string()).send().code(), 0);
        client.call("up__drop", json!({"password": secret}));
        client.call("up__none", json!({}));
        for _ in 0..4 {
            client.call("up__echo", json!({"text": "x"}));
        }
        let all = wait_lines(&gateway, 7);
        assert_eq!(all.len(), 7);
        let of = |place: usize, key: &str| all[place][key].clone();
        assert_eq!((of(0, "client"), of(0, "outcome")), (json!("ci"), json!("ok")));
        assert_eq!((of(0, "upstream"), of(0, "tool")), (json!("up"), json!("up__echo")));
        assert_eq!((of(0, "method"), of(0, "target")), (json!("tools/call"), json!("up__echo")));
        assert_eq!((of(0, "address"), of(0, "endpoint")), (json!("127.0.0.1"), json!("/mcp")));
        assert_eq!(of(0, "trace"), trace);
        assert!(of(0, "duration_ms").as_f64() > Some(0.0) && of(0, "request_bytes").as_u64() > Some(20));
        assert_eq!((of(1, "outcome"), of(1, "target")), (json!("denied"), json!("up__drop")));
        let rule = of(1, "rule");
        assert!(
            rule.as_str().is_some_and(|rule| rule.contains("clients.ci.tools") && rule.contains("*__drop"))
        );
        assert!(
            of(1, "place").as_str().is_some_and(|place| place.starts_with("gateway.yaml:")),
            "{}",
            all[1]
        );
        assert_eq!((of(2, "outcome"), of(2, "rule")), (json!("unknown"), Value::Null));
        assert_eq!(of(6, "outcome"), "rate_limited", "{:?}", all[6]);
        let text = std::fs::read_to_string(gateway.folder().join("audit.jsonl")).unwrap();
        assert!(!text.contains(secret) && !text.contains("t-ci"), "no arguments, no credentials");
    }
}

#[test]
fn arguments_are_told_as_far_as_the_file_says() {
    let call = |audit: Value| {
        let up = Script::echo(Era::Legacy).http();
        let gateway = audited(&up, audit).ready();
        let client = Client::modern_with(&gateway, "t-ci");
        for text in ["a", "a", "b"] {
            client.call(
                "up__echo",
                json!({"text": text, "ApiToken": "hidden", "deep": [{"password": "hidden"}]}),
            );
        }
        wait_lines(&gateway, 3)
    };
    let hashed = call(json!({"file": "audit.jsonl", "arguments": "hash"}));
    let digest = |place: usize| hashed[place]["arguments_sha256"].as_str().map(str::to_owned);
    assert!(digest(0).is_some_and(|digest| digest.len() == 64) && digest(0) == digest(1));
    assert_ne!(digest(1), digest(2));
    let redacted = call(json!({"file": "audit.jsonl", "arguments": "redacted"}));
    let wanted = json!({"text": "b", "ApiToken": "***", "deep": [{"password": "***"}]});
    assert_eq!(redacted[2]["arguments"], wanted);
    let own = call(json!({"file": "audit.jsonl", "arguments": "redacted", "redact": ["TEXT"]}));
    assert_eq!(
        own[0]["arguments"],
        json!({"text": "***", "ApiToken": "hidden", "deep": [{"password": "hidden"}]})
    );
}

#[test]
fn full_files_are_put_aside_and_a_file_that_cannot_be_written_keeps_it_from_starting() {
    let up = Script::echo(Era::Legacy).http();
    let config = audited(&up, json!({"file": "audit.jsonl", "max_size": "4KiB", "keep": 1}));
    let config = config.set("clients", json!({"ci": {"limits": {"rate": "1000/s"}}}));
    let gateway = config.ready();
    let client = Client::modern_with(&gateway, "t-ci");
    eventually("a file is put aside", || {
        client.call("up__echo", json!({"text": "x"}));
        gateway.folder().join("audit.jsonl.1").exists().then_some(())
    });
    assert!(!lines(&gateway.folder().join("audit.jsonl.1")).is_empty());
    assert!(!gateway.folder().join("audit.jsonl.2").exists());
    assert!(gateway.metrics().sum("waypost_audit_lines_dropped_total", &[]) < 0.5);

    let nowhere = audited(&up, json!({"file": "/no/such/folder/audit.jsonl"})).text();
    let output = crate::support::gateway::run_with(&["serve"], &nowhere, &[("CI", "t-ci")]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && told.contains("`audit`"), "{told}");
}
