//! How long calls are waited for, by servers that work, that say so without end, and that say nothing.

use serde_json::json;

use crate::support::client::Client;
use crate::support::gateway::Config;
use crate::support::matrix::{Cell, Era, Transport};
use crate::support::script::Script;
use crate::support::turn::Turn;
use crate::support::{json, scaled};

crate::matrix! { str_09_progress_puts_the_timeout_off_but_not_for_ever }

/// Says that it is at work so many times, and answers.
fn work(turn: &Turn, times: u32) {
    for step in 1..=times {
        std::thread::sleep(scaled(100));
        turn.progress(step);
    }
    turn.text("worked");
}

fn str_09_progress_puts_the_timeout_off_but_not_for_ever(cell: Cell) {
    let script = Script::echo(cell.server)
        .tool("work", |turn| work(turn, 24))
        .tool("work_for_ever", |turn| work(turn, 300))
        .tool("hurry", |turn| {
            std::thread::sleep(scaled(3_000));
            turn.text("too late");
        });
    let up = script.lenient().over(cell.transport);
    let keys = json!({
        "timeout": "2s", "max_timeout": "7s", "timeouts": {"hurry": "700ms", "work*": "2s"},
        "breaker": {"failures": 0},
    });
    let gateway = Config::new().upstream_with("up", &up, keys).ready();
    let client = Client::of(&gateway, cell.client);
    let call = |tool: &str| {
        let params = format!(r#"{{"name":"up__{tool}","arguments":{{}},"_meta":{{"progressToken":"p"}}}}"#);
        client.request("tools/call", &params).send()
    };
    let worked = call("work");
    assert_eq!(worked.json()["result"]["content"][0]["text"], "worked", "longer than its timeout");
    assert_eq!(worked.messages().len(), 25, "with all of its progress");
    let endless = call("work_for_ever").json().to_string();
    assert!(endless.contains("isError\":true") && endless.contains("within 7 s, the most"), "{endless}");
    let hurried = call("hurry").json().to_string();
    assert!(hurried.contains("isError\":true") && hurried.contains("within 700 ms"), "{hurried}");
    let is_told_by_stream = cell.server == Era::Modern && cell.transport == Transport::Http;
    if !is_told_by_stream {
        for tool in ["work_for_ever", "hurry"] {
            let sent = up.calls().into_iter().find(|call| call.name() == tool).expect("the call");
            let (id, peer) = (sent.id().map(str::to_owned), sent.peer);
            up.wait_for("it is cancelled", |received| {
                let named = json::get(&received.text, &["params", "requestId"]).map(str::to_owned);
                let is_peer = cell.transport == Transport::Http || received.peer == peer;
                received.method() == "notifications/cancelled" && is_peer && named == id
            });
        }
    }
    assert_eq!(client.echo("up__echo", "usable"), "usable");
}
