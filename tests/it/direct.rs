//! The scripted peers understand each other without a gateway between them: what fails here is the tests' own
//! fault.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::at_once;
use crate::support::client::{Client, LEGACY};
use crate::support::json::get;
use crate::support::matrix::Era;
use crate::support::script::Script;
use crate::support::turn::Form;

fn filler(length: usize) -> String {
    (0..length / 8 + 1).map(|part| format!("{part:07x} ")).collect::<String>()[..length].to_owned()
}

fn connected(era: Era, up: &crate::support::upstream::Upstream) -> Client {
    let client = Client::at(up.address(), era);
    if era == Era::Legacy { client.connected(LEGACY) } else { client }
}

#[test]
fn scripted_peers_speak_http_with_each_other() {
    for era in [Era::Legacy, Era::Modern] {
        for form in [Form::Json, Form::Sse("\n")] {
            let script = Script::echo(era).form(form).tools(["a", "b", "c"]).paged(2).tool("work", |turn| {
                turn.progress(1);
                turn.text("done");
            });
            let up = script.http();
            let client = connected(era, &up);
            assert_eq!(client.tool_names(), ["echo", "a", "b", "c", "work"]);
            assert_eq!(client.echo("echo", "é"), "é");
            assert_eq!(client.call("nope", json!({}))["error"]["code"], -32602);
            let params = r#"{"name":"work","arguments":{},"_meta":{"progressToken":"p"}}"#;
            let messages = client.request("tools/call", params).send().messages();
            assert_eq!(get(&messages[0], &["params", "progressToken"]), Some("\"p\""));
            assert!(messages[1].contains("done"));
            let big = filler(1 << 20);
            assert!(client.echo("echo", &big) == big);
            let jobs: Vec<_> = (0..20)
                .map(|index| {
                    let client = &client;
                    move || client.echo("echo", &index.to_string())
                })
                .collect();
            for (index, text) in at_once(jobs).into_iter().enumerate() {
                assert_eq!(text, index.to_string());
            }
            assert_eq!(up.faults(), Vec::<String>::new());
        }
    }
}

#[test]
fn scripted_peers_speak_over_a_childs_streams() {
    let up = Script::echo(Era::Legacy).stdio();
    let entry = up.entry();
    let args: Vec<_> = entry["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap()).collect();
    let mut child = Command::new(entry["command"].as_str().unwrap())
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    let mut ask = |message: String| -> Value {
        stdin.write_all(format!("{message}\n").as_bytes()).unwrap();
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    };
    let hello = ask(crate::support::client::initialize("2025-06-18"));
    assert_eq!(hello["result"]["protocolVersion"], "2025-06-18");
    let big = filler(2 << 20);
    let note = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let call = json!({"jsonrpc": "2.0", "id": "x", "method": "tools/call", "params": {"name": "echo", "arguments": {"text": big}}});
    let answer = ask(format!("{note}\n{call}"));
    assert!(answer["result"]["content"][0]["text"] == *big);
    assert_eq!(up.process().pid(), child.id());
    drop(stdin);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
