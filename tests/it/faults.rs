//! Every fault of a server at every stage of an answer, over every method that goes to one: no call hangs, none
//! is answered wrongly, nothing leaks, and the neighbour does not notice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::fault::{Fault, Kind, Stage};
use crate::support::gateway::{Config, Gateway};
use crate::support::matrix::{Cell, Era, Transport};
use crate::support::script::Script;
use crate::support::turn::Turn;
use crate::support::upstream::Upstream;
use crate::support::{at_once, eventually, patience, process, scaled};

/// What is translated is not what breaks: each scenario runs for both eras on both transports.
macro_rules! straight {
    ($($scenario:ident)*) => {$(
        mod $scenario {
            use crate::support::matrix::{Cell, Era, Transport};

            fn run(era: Era, transport: Transport) {
                super::$scenario(Cell { client: era, server: era, transport });
            }

            #[test]
            fn legacy_over_stdio() {
                run(Era::Legacy, Transport::Stdio);
            }

            #[test]
            fn legacy_over_http() {
                run(Era::Legacy, Transport::Http);
            }

            #[test]
            fn modern_over_stdio() {
                run(Era::Modern, Transport::Stdio);
            }

            #[test]
            fn modern_over_http() {
                run(Era::Modern, Transport::Http);
            }
        }
    )*};
}

straight! {
    every_fault_of_a_call_fails_that_call_in_time
    every_fault_of_a_list_leaves_what_is_known
}

/// The methods that go to one server, and what their right answer is.
const METHODS: [(&str, &str); 4] = [
    ("tools/call", r#""content":[{"type":"text","text":"right"}]"#),
    ("prompts/get", r#""messages":[{"role":"user","content":{"type":"text","text":"right"}}]"#),
    ("resources/read", r#""contents":[{"uri":"x://x","text":"right"}]"#),
    ("completion/complete", r#""completion":{"values":["right"]}"#),
];

/// The lists of a server, and the name of their entries.
const LISTS: [(&str, &str); 4] = [
    ("tools/list", "tools"),
    ("prompts/list", "prompts"),
    ("resources/list", "resources"),
    ("resources/templates/list", "resourceTemplates"),
];

/// A server with everything, which does what a request asks it to do.
fn faulty(cell: Cell, own: &str) -> Script {
    let script = Script::of(cell.server)
        .tool("echo", |turn| turn.text(&turn.argument("text").unwrap_or_default()))
        .prompt("prompt")
        .resources(own, [&*format!("{own}://there")])
        .template(&format!("{own}://{{+fault}}"))
        .declaring("completions");
    script.lenient().first(|turn| match Fault::named_in(&turn.text) {
        Some(fault) => {
            let method = turn.method();
            let answer = METHODS.iter().find(|(known, _)| *known == method);
            fault.inject(turn, answer.map_or("", |(_, result)| result));
            true
        }
        None => false,
    })
}

/// The parameters with which a client asks an upstream for a fault.
fn params(method: &str, up: &str, fault: Fault) -> String {
    let name = fault.name();
    match method {
        "tools/call" => format!(r#"{{"name":"{up}__echo","arguments":{{"text":"{name}"}}}}"#),
        "prompts/get" => format!(r#"{{"name":"{up}__prompt","arguments":{{"text":"{name}"}}}}"#),
        "resources/read" => format!(r#"{{"uri":"{up}://{name}"}}"#),
        _ => format!(
            r#"{{"ref":{{"type":"ref/prompt","name":"{up}__prompt"}},"argument":{{"name":"a","value":"{name}"}}}}"#
        ),
    }
}

/// Descriptors that the gateway holds.
fn descriptors(gateway: &Gateway) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", gateway.pid())).map(Iterator::count).unwrap_or_default()
}

/// Waits until an upstream answers as ever.
fn wait_works(client: &Client, up: &str, after: &str) {
    let echo = format!("{up}__echo");
    // Attempts to connect may be far apart by now.
    let end = Instant::now() + patience() * 6;
    loop {
        let answer = client.call(&echo, json!({"text": "back"}));
        if answer["result"]["content"][0]["text"] == "back" {
            return;
        }
        assert!(Instant::now() < end, "{up} does not come back after {after}: {answer}");
        std::thread::sleep(scaled(20));
    }
}

fn strike(client: &Client, method: &str, up: &str, fault: Fault) {
    // Reading gives up long before a call that hangs would end by itself.
    let answer = client.request(method, &params(method, up, fault)).send().json();
    let text = answer.to_string();
    if fault.is_answered() {
        assert!(text.contains("right") && answer["error"].is_null(), "{method} {}: {text}", fault.name());
    } else {
        let is_refused = answer["result"]["isError"] == true || answer["error"].is_object();
        assert!(is_refused && !text.contains("right"), "{method} {}: {text:.500}", fault.name());
        let is_late = text.contains("did not answer within");
        assert_eq!(is_late, up.ends_with("short"), "{method} {} at its timeout: {text:.500}", fault.name());
        assert!(text.contains(up), "{method} {} names no upstream: {text:.500}", fault.name());
    }
    wait_works(client, up, &fault.name());
}

/// Says that it is over when it is dropped, also by a panic.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn every_fault_of_a_call_fails_that_call_in_time(cell: Cell) {
    // One upstream for each method, whose calls may be silent for a short time, and one for a long time.
    let names: Vec<(&str, String)> =
        METHODS.iter().enumerate().map(|(at, (method, _))| (*method, format!("up{at}"))).collect();
    let neighbour = Script::echo(Era::Legacy).stdio();
    let mut config = Config::new()
        .set("limits", json!({"message": "1MiB"}))
        .set("defaults", json!({"stream_idle": "300ms"}))
        .upstream("neighbour", &neighbour);
    let mut servers: Vec<Upstream> = Vec::new();
    for (_, name) in &names {
        for (suffix, timeout) in [("short", "700ms"), ("long", "15s")] {
            let name = format!("{name}{suffix}");
            let server = faulty(cell, &name).over(cell.transport);
            config = config.upstream_with(&name, &server, json!({"timeout": timeout}));
            servers.push(server);
        }
    }
    let gateway = config.ready();
    let client = Client::of(&gateway, cell.client);
    for (_, name) in &names {
        wait_works(&client, &format!("{name}long"), "the start");
        wait_works(&client, &format!("{name}short"), "the start");
    }
    let before = (process::descendants(gateway.pid()).len(), descriptors(&gateway));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (watching, over) = (&client, &is_over);
        let neighbour = scope.spawn(move || {
            let mut round = 0;
            while !over.load(Ordering::Relaxed) {
                round += 1;
                assert_eq!(watching.echo("neighbour__echo", &round.to_string()), round.to_string());
                std::thread::sleep(scaled(20));
            }
        });
        let strikes = names.iter().map(|(method, name)| {
            let client = &client;
            move || {
                for fault in Fault::all() {
                    let suffix = if fault.is_silent(cell.transport) { "short" } else { "long" };
                    strike(client, method, &format!("{name}{suffix}"), fault);
                }
            }
        });
        let over = Over(&is_over);
        at_once(strikes.collect());
        drop(over);
        neighbour.join().expect("the neighbour never fails");
    });
    gateway.wait_metric("waypost_calls_in_flight", &[], 0.0);
    assert_eq!(neighbour.processes().len(), 1, "the neighbour was left alone");
    eventually("processes are back", || {
        (process::descendants(gateway.pid()).len() == before.0).then_some(())
    });
    // A connection or two to each server may be kept for the next request.
    eventually("descriptors are back", || {
        (descriptors(&gateway) <= before.1 + 2 * servers.len()).then_some(())
    });
}

fn every_fault_of_a_list_leaves_what_is_known(cell: Cell) {
    let armed: Arc<std::sync::Mutex<Option<(&'static str, Fault)>>> = Arc::default();
    let is_struck = Arc::new(AtomicBool::new(false));
    let (trap, struck) = (Arc::clone(&armed), Arc::clone(&is_struck));
    let script = faulty(cell, "up").first(move |turn: &Turn| {
        let wanted = *trap.lock().expect("no panic");
        match wanted.filter(|(method, _)| *method == turn.method()) {
            Some((_, fault)) => {
                struck.store(true, Ordering::Relaxed);
                fault.inject(turn, "");
                true
            }
            None => false,
        }
    });
    let up = script.over(cell.transport);
    let keys = json!({"stream_idle": "300ms", "list_timeout": "700ms", "refresh": "150ms", "grace": "5m"});
    let gateway =
        Config::new().set("limits", json!({"message": "1MiB"})).upstream_with("up", &up, keys).ready();
    let client = Client::of(&gateway, cell.client);
    wait_works(&client, "up", "the start");
    let lists = |client: &Client| LISTS.map(|(method, key)| client.entries(method, key));
    let known = lists(&client);
    assert!(known.iter().all(|list| !list.is_empty()), "{known:?}");
    let faults = [Stage::Headers, Stage::MidEvent].into_iter().flat_map(|stage| {
        [Kind::Reset, Kind::Half, Kind::Stall, Kind::Garbage].map(|kind| Fault { stage, kind })
    });
    for (at, fault) in faults.enumerate() {
        let (method, _) = LISTS[at % LISTS.len()];
        is_struck.store(false, Ordering::Relaxed);
        *armed.lock().expect("no panic") = Some((method, fault));
        eventually("the list is read again", || is_struck.load(Ordering::Relaxed).then_some(()));
        assert_eq!(lists(&client), known, "{method} {}: nothing blinks", fault.name());
        *armed.lock().expect("no panic") = None;
        wait_works(&client, "up", &fault.name());
        assert_eq!(lists(&client), known, "{method} {}: nor afterwards", fault.name());
    }
    gateway.wait_metric("waypost_calls_in_flight", &[], 0.0);
}

/// A server that misbehaves before it has said a word: it is down with a reason, is tried again, and is there as
/// soon as it behaves.
#[test]
fn every_fault_of_a_handshake_is_survived() {
    let kinds = [Kind::Refuse, Kind::Reset, Kind::Stall, Kind::Garbage, Kind::Half];
    for era in [Era::Legacy, Era::Modern] {
        let jobs = Transport::ALL.into_iter().flat_map(|transport| {
            kinds.map(|kind| move || handshake(era, transport, Fault { stage: Stage::Headers, kind }))
        });
        at_once(jobs.collect());
    }
}

fn handshake(era: Era, transport: Transport, fault: Fault) {
    let is_armed = Arc::new(AtomicBool::new(true));
    let trap = Arc::clone(&is_armed);
    let script = Script::echo(era).lenient().first(move |turn| {
        let is_struck = trap.load(Ordering::Relaxed);
        if is_struck {
            fault.inject(turn, "");
        }
        is_struck
    });
    let up = script.over(transport);
    let neighbour = Script::echo(Era::Legacy).stdio();
    // Those that say nothing take all of it, once; it is long enough for a child on a machine under load.
    let seconds = if fault.is_silent(transport) { 10 } else { 60 };
    let timeout = format!("{}ms", scaled(seconds * 1_000).as_millis());
    let config = Config::new().upstream_with("up", &up, json!({"connect_timeout": timeout}));
    let gateway = config.upstream("neighbour", &neighbour).start();
    let client = Client::of(&gateway, Era::Modern);
    client.wait_tools(&["neighbour__echo"]);
    let failures = || gateway.metrics().sum("waypost_upstream_connect_failures_total", &[("upstream", "up")]);
    eventually("it is failed", || (failures() >= 1.0).then_some(()));
    let answer = client.call("up__echo", json!({"text": "x"}));
    assert_eq!(answer["result"]["isError"], true, "{}: {answer}", fault.name());
    let status: Value = serde_json::from_str(&gateway.admin("/api/status").1).expect("JSON");
    let reason = status["upstreams"][1]["reason"].as_str().or(status["upstreams"][0]["reason"].as_str());
    assert!(reason.is_some_and(|reason| !reason.is_empty()), "{status}");
    is_armed.store(false, Ordering::Relaxed);
    wait_works(&client, "up", &fault.name());
    assert_eq!(client.echo("neighbour__echo", "x"), "x");
    assert_eq!(neighbour.processes().len(), 1);
}

/// Nobody accepts, or somebody accepts and says nothing at all: neither holds a call for longer than it may take.
#[test]
fn a_server_that_cannot_be_connected_to_fails_its_calls() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let deaf = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let entry = |address: std::net::SocketAddr| json!({"url": format!("http://{address}/mcp"), "connect_timeout": "500ms", "timeout": "3s"});
    let config = Config::new()
        .raw_upstream("closed", entry(closed))
        .raw_upstream("deaf", entry(deaf.local_addr().unwrap()));
    let gateway = config.start();
    let client = Client::modern(&gateway);
    for (up, word) in [("closed", "refused"), ("deaf", "in time")] {
        let says = || {
            let answer = client.call(&format!("{up}__echo"), json!({})).to_string();
            assert!(answer.contains("isError\":true") && answer.contains(up), "{answer}");
            answer.contains(word).then_some(())
        };
        eventually(word, says);
    }
    gateway.wait_metric("waypost_calls_in_flight", &[], 0.0);
}
