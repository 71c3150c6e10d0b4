//! `waypost explain` and `waypost who` say what the gateway does.

use std::process::Output;

use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::gateway::{Config, Gateway, run_with};
use crate::support::script::Script;
use crate::support::upstream::Upstream;

const TOKENS: [(&str, &str); 2] = [("ALICE", "t-alice"), ("BOB", "t-bob")];

fn config(up: &Upstream) -> Config {
    let config = Config::new()
        .upstream_with("up", up, json!({"tools": {"deny": ["drop"]}}))
        .raw_upstream("gone", json!({"url": "http://127.0.0.1:1/mcp", "connect_timeout": "2s"}))
        .set("roles", json!({"reader": {"tools": {"allow": ["*__get_*", "gone__*"]}}}))
        .clients(json!({
            "alice": {"tokens": [{"env": "ALICE"}], "roles": ["reader"]},
            "bob": {"tokens": [{"env": "BOB"}], "limits": {"rate": "60/min"}},
        }));
    TOKENS.iter().fold(config, |config, (name, token)| config.env(name, token))
}

fn up() -> Upstream {
    Script::legacy().tools(["get_x", "put_x", "drop"]).http()
}

/// A running gateway whose other upstream has failed once.
fn running(config: &Config) -> Gateway {
    let gateway = config.start();
    gateway.wait_metric("waypost_upstream_up", &[("upstream", "up")], 1.0);
    crate::support::eventually("the other upstream is known to be down", || {
        gateway.admin("/api/status").1.contains("\"down\"").then_some(())
    });
    gateway
}

fn run(command: &[&str], config: &Config) -> Output {
    run_with(command, &config.text(), &TOKENS)
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

const CASES: [(&str, &str, &str, i32); 8] = [
    ("alice", "up__get_x", "allowed", 0),
    ("alice", "up__put_x", "denied", 3),
    ("alice", "up__drop", "denied", 3),
    ("alice", "gone__x", "unavailable", 5),
    ("bob", "up__put_x", "allowed", 0),
    ("bob", "up__drop", "denied", 3),
    ("bob", "up__none", "unknown", 4),
    ("bob", "gone__x", "unavailable", 5),
];

#[test]
fn explanations_agree_with_calls_offline_and_of_a_running_gateway() {
    let up = up();
    let config = config(&up);
    let gateway = running(&config);
    let admin = format!("http://{}", gateway.admin);
    for (client, tool, verdict, code) in CASES {
        let token = format!("t-{client}");
        let answer = Client::modern_with(&gateway, &token).call(tool, json!({}));
        let is_done = answer["result"]["isError"] != json!(true) && answer["error"].is_null();
        assert_eq!(is_done, verdict == "allowed", "{client} {tool}: {answer}");

        let page = gateway.admin(&format!("/api/explain?client={client}&tool={tool}")).1;
        let page: Value = serde_json::from_str(&page).unwrap();
        assert_eq!(page["explanation"]["verdict"], verdict, "{client} {tool}: {page}");
        let asked = ["explain", "--client", client, "--tool", tool, "--json", "--admin", &admin];
        let output = run(&asked, &config);
        assert_eq!(output.status.code(), Some(code), "{client} {tool}: {}", text(&output.stderr));
        let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(printed, page["explanation"]);
    }
    assert_eq!(up.calls().len(), 2, "explaining calls nothing");
}

#[test]
fn an_explanation_from_the_file_names_the_rule_and_its_line() {
    let up = up();
    let output = run(&["explain", "--client", "alice", "--tool", "up__put_x"], &config(&up));
    let page = text(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(page.starts_with("tool up__put_x for alice: denied\n"), "{page}");
    let stop = page.lines().find(|line| line.contains("STOP")).unwrap();
    assert!(stop.contains("roles.reader.tools") && stop.contains("`allow`"), "{page}");
    let (_, place) = stop.rsplit_once("(gateway.yaml:").unwrap();
    let line: usize = place.trim_end_matches(')').parse().unwrap();
    assert!(config(&up).text().lines().nth(line - 1).unwrap().starts_with("roles:"), "{page}");
}

#[test]
fn who_lists_every_client_and_why_not() {
    let up = up();
    let output = run(&["who", "--tool", "up__put_x"], &config(&up));
    let page = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let lines: Vec<_> = page.lines().skip(2).collect();
    assert!(
        lines[0].contains("alice") && lines[0].contains("denied") && lines[0].contains("roles.reader"),
        "{page}"
    );
    assert_eq!(lines[1].split_whitespace().collect::<Vec<_>>(), ["bob", "allowed"], "{page}");
    assert_eq!(run(&["who", "--tool", "up__drop"], &config(&up)).status.code(), Some(3));
}

#[test]
fn who_asks_wrong_is_told_how() {
    let up = up();
    for (command, said) in [
        (vec!["explain", "--tool", "up__get_x"], "`--client` is one of alice, bob"),
        (vec!["explain", "--tool", "x", "--client", "carol"], "no client is called `carol`"),
        (vec!["explain", "--client", "alice"], "--tool"),
        (vec!["who", "--tool", "x", "--admin", "http://127.0.0.1:1"], "no gateway answers"),
        (vec!["who", "--tool", "x", "--admin", "https://127.0.0.1:1"], "speaks http"),
    ] {
        let output = run(&command, &config(&up));
        assert!(output.stdout.is_empty() && !output.status.success(), "{command:?}");
        assert!(text(&output.stderr).contains(said), "{command:?}: {}", text(&output.stderr));
    }
}
