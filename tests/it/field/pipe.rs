//! `waypost stdio`: clients that launch their servers, in both eras, before every kind of server.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::gateway::{Config, run_with};
use crate::support::matrix::{Cell, Era, Transport};
use crate::support::pipe::Pipe;
use crate::support::script::{Script, plain_entry};
use crate::support::turn::Gate;
use crate::support::upstream::Upstream;
use crate::support::{eventually, process};

crate::matrix! {
    a_launched_gateway_calls_tells_and_cancels
}

const ABLE: &str = r#"{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{}},"roots":{}}"#;

fn wait_calls(up: &Upstream, count: usize) {
    eventually("the calls arrive", || (up.calls().len() >= count).then_some(()));
}

fn quiet() -> Config {
    Config::new().without("listen").without("admin")
}

fn a_launched_gateway_calls_tells_and_cancels(cell: Cell) {
    let script = Script::echo(cell.server).telling().tool("count", |turn| {
        turn.progress(1);
        turn.progress(2);
        turn.text("counted");
    });
    let (gate, held) = Gate::new("late");
    let up = script.tool("held", held).over(cell.transport);
    let mut pipe = Pipe::launch(&quiet().upstream("up", &up), &[]);
    pipe.open(cell.client, "{}");
    pipe.ask(cell.client, 1, "tools/list", "{}");
    let listed = pipe.message();
    assert_eq!(
        listed["result"]["tools"].as_array().map(Vec::len),
        Some(3),
        "the first list is whole: {listed}"
    );
    pipe.ask(
        cell.client,
        2,
        "tools/call",
        r#"{"name":"up__echo","arguments":{"text":"é \u0061","big":9007199254740993}}"#,
    );
    assert_eq!(pipe.message()["result"]["content"][0]["text"], "é a");
    assert!(up.calls()[0].arguments().contains("9007199254740993"), "byte for byte");
    let meta = r#"{"name":"up__count","arguments":{},"_meta":{"progressToken":"mine"}}"#;
    match cell.client {
        Era::Legacy => pipe.ask(Era::Legacy, 3, "tools/call", meta),
        Era::Modern => pipe.write(&format!(
            r#"{{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{}}}"#,
            meta.replace(
                r#""progressToken""#,
                r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"progressToken""#
            )
        )),
    }
    for step in 1..=2 {
        let progress = pipe.message();
        assert_eq!(
            (&progress["params"]["progressToken"], &progress["params"]["progress"]),
            (&json!("mine"), &json!(step))
        );
    }
    assert_eq!(pipe.message()["id"], 3);
    pipe.ask(cell.client, 4, "tools/call", r#"{"name":"up__held","arguments":{}}"#);
    wait_calls(&up, 3);
    pipe.notify("notifications/cancelled", &json!({"requestId": 4, "reason": "enough"}));
    if cell.client == Era::Modern {
        pipe.ask(Era::Modern, 5, "subscriptions/listen", r#"{"notifications":{"toolsListChanged":true}}"#);
        assert_eq!(pipe.message()["method"], "notifications/subscriptions/acknowledged");
    }
    up.wait_heard();
    up.change_tools(vec![plain_entry("echo")]);
    let changed = pipe.message();
    assert_eq!(changed["method"], "notifications/tools/list_changed", "{changed}");
    gate.open();
    pipe.hang_up();
    let rest = pipe.rest();
    assert_eq!(
        rest.len(),
        usize::from(cell.client == Era::Modern),
        "the end of the subscription at most: {rest:?}"
    );
    assert_eq!(pipe.wait_exit(), Some(0));
    let calls = eventually("all is logged", || Some(pipe.events("call")).filter(|calls| calls.len() == 3));
    let outcomes: Vec<_> = calls.iter().map(|call| call["outcome"].as_str().unwrap_or_default()).collect();
    assert_eq!(outcomes, ["ok", "ok", "cancelled"], "{calls:?}");
}

#[test]
fn a_legacy_client_on_a_pipe_is_asked_and_a_modern_one_retries() {
    let script = Script::modern().tool("ask", |turn| {
        let message: Value = serde_json::from_str(&turn.text).unwrap();
        match message["params"]["inputResponses"].get("q") {
            Some(answer) => turn.text(&answer["content"]["name"].to_string()),
            None => turn.result(
                r#"{"resultType":"input_required","requestState":"s","inputRequests":{"q":{"method":"elicitation/create","params":{"message":"who?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}}}}"#,
            ),
        }
    });
    for transport in Transport::ALL {
        let up = script.clone().over(transport);
        let mut pipe = Pipe::launch(&quiet().upstream("up", &up), &[]);
        pipe.open(Era::Legacy, ABLE);
        pipe.ask(Era::Legacy, 1, "tools/call", r#"{"name":"up__ask","arguments":{}}"#);
        let question = pipe.message();
        assert_eq!(
            (&question["method"], &question["params"]["message"]),
            (&json!("elicitation/create"), &json!("who?"))
        );
        let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"name": "ada"}}});
        pipe.write(&answer.to_string());
        let end = pipe.message();
        assert_eq!(
            (&end["id"], &end["result"]["content"][0]["text"]),
            (&json!(1), &json!("\"ada\"")),
            "{end}"
        );
        pipe.ask(Era::Modern, 2, "tools/call", r#"{"name":"up__ask","arguments":{}}"#);
        let asked = pipe.message();
        assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
        let retry = r#"{"name":"up__ask","arguments":{},"requestState":"s","inputResponses":{"q":{"action":"accept","content":{"name":"bob"}}}}"#;
        pipe.ask(Era::Modern, 3, "tools/call", retry);
        assert_eq!(pipe.message()["result"]["content"][0]["text"], "\"bob\"");
    }
}

#[test]
fn a_pipe_has_the_policy_of_the_client_that_it_is() {
    let up = Script::echo(Era::Legacy).tool("other", |turn| turn.text("")).stdio();
    let clients = json!({
        "alice": {"tokens": [{"env": "PIPE_TOKEN"}]},
        "ci": {"tokens": [{"env": "PIPE_TOKEN_2"}], "tools": {"allow": ["up__echo"]}, "limits": {"rate": "1/h"}},
    });
    let config = quiet().upstream("up", &up).clients(clients);
    let env = [
        ("PIPE_TOKEN", "0123456789abcdef0123456789abcdef"),
        ("PIPE_TOKEN_2", "f123456789abcdef0123456789abcdef"),
    ];
    for (arguments, told) in [
        (&["stdio"][..], "say who it is with `--client NAME`, one of alice, ci"),
        (
            &["stdio", "--client", "bob"],
            "there is no client \"bob\" in the configuration; there is alice, ci",
        ),
    ] {
        let output = run_with(arguments, &config.text(), &env);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(output.stdout.is_empty() && errors.contains(told), "{errors}");
    }
    let config = env.iter().fold(config, |config, (name, value)| config.env(name, value));
    let mut pipe = Pipe::launch(&config, &["--client", "ci"]);
    pipe.ask(Era::Modern, 1, "tools/list", "{}");
    let listed = pipe.message();
    assert_eq!(listed["result"]["tools"].as_array().map(Vec::len), Some(1), "{listed}");
    pipe.ask(Era::Modern, 2, "tools/call", r#"{"name":"up__other","arguments":{}}"#);
    assert_eq!(pipe.message()["error"]["message"], "Unknown tool: up__other");
    pipe.ask(Era::Modern, 3, "tools/call", r#"{"name":"up__echo","arguments":{"text":"x"}}"#);
    assert_eq!(pipe.message()["result"]["content"][0]["text"], "x");
    pipe.ask(Era::Modern, 4, "tools/call", r#"{"name":"up__echo","arguments":{"text":"x"}}"#);
    assert_eq!(pipe.message()["result"]["isError"], true, "its limit");
    let calls = pipe.events("call");
    assert!(calls.iter().all(|call| call["client"] == "ci"), "{calls:?}");
}

#[test]
fn what_is_under_way_is_answered_when_the_client_hangs_up_or_a_signal_comes() {
    for is_signal in [false, true] {
        let (gate, held) = Gate::new("late");
        let up = Script::echo(Era::Legacy).tool("held", held).stdio();
        let mut pipe = Pipe::launch(&quiet().upstream("up", &up), &[]);
        pipe.open(Era::Legacy, "{}");
        pipe.ask(Era::Legacy, 1, "tools/call", r#"{"name":"up__held","arguments":{}}"#);
        wait_calls(&up, 1);
        let children = process::descendants(pipe.pid());
        assert!(!children.is_empty());
        match is_signal {
            true => process::signal(pipe.pid(), Signal::TERM),
            false => pipe.hang_up(),
        }
        eventually("it stops", || (!pipe.events("stopping").is_empty()).then_some(()));
        gate.open();
        assert_eq!(pipe.message()["result"]["content"][0]["text"], "late");
        assert_eq!(pipe.wait_exit(), Some(0));
        assert!(pipe.rest().is_empty());
        assert!(children.into_iter().all(|child| !process::is_alive(child)), "no child is left");
    }
}

#[test]
fn a_call_that_outlasts_the_drain_ends_with_the_process() {
    let (_gate, held) = Gate::new("never");
    let up = Script::echo(Era::Legacy).tool("held", held).stdio();
    let config = quiet().upstream("up", &up).set("drain_timeout", json!("200ms"));
    let mut pipe = Pipe::launch(&config, &[]);
    pipe.ask(Era::Modern, 1, "tools/call", r#"{"name":"up__held","arguments":{}}"#);
    wait_calls(&up, 1);
    pipe.hang_up();
    assert_eq!(pipe.wait_exit(), Some(0));
}

#[test]
fn nothing_listens_but_what_the_file_asks_for_and_an_address_that_is_taken_is_no_error() {
    let up = Script::echo(Era::Legacy).stdio();
    let mut pipe = Pipe::launch(&quiet().upstream("up", &up), &[]);
    pipe.ask(Era::Modern, 1, "server/discover", "{}");
    assert_eq!(pipe.message()["id"], 1);
    let descriptors = fs::read_dir(format!("/proc/{}/fd", pipe.pid())).unwrap().flatten();
    let sockets: Vec<_> = descriptors.filter_map(|entry| fs::read_link(entry.path()).ok()).collect();
    let listening = fs::read_to_string("/proc/net/tcp").unwrap();
    let is_listener = |link: &std::path::PathBuf| {
        let link = link.to_string_lossy();
        let inode = link.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        inode.is_some_and(|inode| {
            listening
                .lines()
                .any(|line| line.split_whitespace().nth(9) == Some(inode) && line.contains(" 0A "))
        })
    };
    assert!(!sockets.iter().any(is_listener), "{sockets:?}");

    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let config = quiet().upstream("up", &up).set("admin", json!(address));
    let mut pipe = Pipe::launch(&config, &[]);
    pipe.ask(Era::Modern, 1, "server/discover", "{}");
    assert_eq!(pipe.message()["id"], 1);
    assert_eq!(pipe.events("listen_failed").len(), 1, "{:?}", pipe.log());
}

#[test]
fn a_broken_pipe_ends_quietly() {
    let up = Script::echo(Era::Legacy).stdio();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("gateway.yaml"), quiet().upstream("up", &up).text()).unwrap();
    let program = env!("CARGO_BIN_EXE_waypost");
    let script = format!(
        r#"(while true; do echo '{{"jsonrpc":"2.0","id":1,"method":"ping"}}' || exit; sleep 0.01; done) | {program} stdio 2>errors | head -n 1; echo "${{PIPESTATUS[1]}}""#
    );
    let output =
        std::process::Command::new("bash").args(["-c", &script]).current_dir(folder.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.lines().last(), Some("0"), "{text}");
    let errors = fs::read_to_string(folder.path().join("errors")).unwrap();
    assert!(!errors.contains("panicked") && !errors.contains(r#""level":"error""#), "{errors}");
}
