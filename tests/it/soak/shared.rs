//! Clients whose calls share one stream: a connection over HTTP+SSE, or the pipe of a gateway that they launch. Many
//! calls are under way at once, and each has its one answer; what was launched leaves nothing behind, however it ends.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::connection::Answer;
use super::dice::Dice;
use super::world::World;
use crate::support::client::{LEGACY, Open, Request};
use crate::support::gateway::Config;
use crate::support::matrix::Era;
use crate::support::pipe::Pipe;
use crate::support::{patience, process};

/// The revision of HTTP+SSE.
const FIRST: &str = "2024-11-05";

/// Lets such clients come and go until `is_over`.
pub fn come_and_go(world: &World, mut dice: Dice, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        match dice.once_in(4) {
            true => launch(world, &mut dice),
            false => connect(world, &mut dice),
        }
        std::thread::sleep(dice.time(100, 500));
    }
}

/// Some calls: their ids, and what is called with what.
fn calls(servers: &[&str], dice: &mut Dice) -> Vec<(u64, String)> {
    let count = 2 + dice.below(8);
    let call = |id: usize| {
        let tool = dice.one_of(&["echo", "peek", "slow", "large"]);
        let server = dice.one_of(servers);
        let params = json!({"name": format!("{server}__{tool}"), "arguments": {"token": format!("shared-{id}"), "size": "20000"}});
        (id as u64, params.to_string())
    };
    (1..=count).map(call).collect()
}

/// Notes an answer; one that came before is a fault.
fn note(world: &World, seen: &mut HashMap<u64, usize>, what: &'static str, message: &Value) {
    let Some(id) = message["id"].as_u64().filter(|_| message.get("method").is_none()) else { return };
    let count = seen.entry(id).or_default();
    *count += 1;
    if *count > 1 {
        world.ledger.breach("answer doubled", format!("{what}: {message}"));
    }
    let text = message.to_string();
    let answer = Answer::among(&format!(r#"{{"id":{id}}}"#), std::slice::from_ref(&text));
    if matches!(answer, Answer::Right(_)) && id > 0 && !text.contains(&format!("\"shared-{id}")) {
        world.ledger.breach("wrong answer", text);
    }
    if id > 0 {
        world.ledger.ended(what, answer.name());
    }
}

/// A client over HTTP+SSE.
fn connect(world: &World, dice: &mut Dice) {
    let what = "over HTTP+SSE";
    let lost = |text: String| world.ledger.breach("answer lost", format!("{what}: {text}"));
    let request = Request::get(world.gateway.mcp, "/sse").header("Accept", "text/event-stream");
    let Ok(mut open) = request.try_open() else { return lost("the stream".to_owned()) };
    let Ok(Some(endpoint)) = open.try_event() else { return lost("the endpoint".to_owned()) };
    let post = |body: &str| {
        let request = Request::post(world.gateway.mcp, &endpoint.data, body).without("Accept");
        request.header("Connection", "close").try_open().map(|open| open.status)
    };
    let hello = format!(
        r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{FIRST}","capabilities":{{}},"clientInfo":{{"name":"old","version":"1"}}}}}}"#
    );
    let names: Vec<&str> = world.servers.iter().map(|server| server.name).collect();
    let calls = calls(&names, dice);
    let is_leaving = dice.once_in(3);
    let requests = calls.iter().map(|(id, params)| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#)
    });
    let note_sent = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_owned();
    for body in std::iter::once(hello).chain([note_sent]).chain(requests) {
        match post(&body) {
            Ok(202) => {}
            other => return lost(format!("{body}: {other:?}")),
        }
    }
    if is_leaving {
        return leave(world, open, dice);
    }
    let mut seen = HashMap::new();
    while seen.len() < calls.len() + 1 {
        match open.try_event() {
            Ok(Some(event)) => {
                let message = serde_json::from_str(&event.data).unwrap_or_default();
                note(world, &mut seen, what, &message);
            }
            other => return lost(format!("{other:?} after {seen:?} of {}", calls.len() + 1)),
        }
    }
}

fn leave(world: &World, open: Open, dice: &mut Dice) {
    match dice.once_in(2) {
        true => open.reset(),
        false => open.hang_up(),
    }
    world.ledger.fault("client: leaves its HTTP+SSE connection");
}

/// A client that launches a gateway of its own.
fn launch(world: &World, dice: &mut Dice) {
    let what = "on a pipe";
    let [legacy, modern] = &world.launched;
    let config = Config::new().upstream("legacy", legacy).upstream("modern", modern);
    let era = *dice.one_of(&[Era::Legacy, Era::Modern]);
    let mut pipe = Pipe::launch(&config, &[]);
    if era == Era::Legacy {
        let params = format!(
            r#"{{"protocolVersion":"{LEGACY}","capabilities":{{}},"clientInfo":{{"name":"c","version":"1"}}}}"#
        );
        pipe.ask(era, 0, "initialize", &params);
        assert_eq!(pipe.message()["id"], 0);
        pipe.notify("notifications/initialized", &json!({}));
    }
    let calls = calls(&["legacy", "modern"], dice);
    for (id, params) in &calls {
        pipe.ask(era, *id, "tools/call", params);
    }
    let (is_leaving, way) = (dice.once_in(3), dice.below(3));
    let mut seen = HashMap::new();
    while !is_leaving && seen.len() < calls.len() {
        note(world, &mut seen, what, &pipe.message());
    }
    let offspring = process::descendants(pipe.pid());
    match way {
        0 => pipe.hang_up(),
        1 => process::signal(pipe.pid(), Signal::TERM),
        _ => process::signal(pipe.pid(), Signal::KILL),
    }
    world.ledger.fault(
        ["launched gateway: end of input", "launched gateway: SIGTERM", "launched gateway: SIGKILL"][way],
    );
    pipe.wait_exit();
    let end = std::time::Instant::now() + patience();
    while offspring.iter().any(|pid| process::is_alive(*pid)) {
        if std::time::Instant::now() > end {
            return world
                .ledger
                .breach("process left behind", format!("{offspring:?} of a launched gateway"));
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}
