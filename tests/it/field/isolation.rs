//! Whose connection to a server a call goes on: what the server keeps for one never reaches another.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::client::{Client, Open};
use crate::support::gateway::{Config, Gateway};
use crate::support::matrix::{Era, Transport};
use crate::support::script::Script;
use crate::support::turn::{Gate, Turn};
use crate::support::upstream::Upstream;
use crate::support::{at_once, eventually, process};

/// Where the server keeps things: the session over HTTP, the process on a pipe.
fn place(turn: &Turn) -> String {
    turn.header("mcp-session-id").map_or_else(|| format!("peer {}", turn.peer), str::to_owned)
}

/// A server whose tool `count` counts its calls where the server keeps things.
fn counting(era: Era) -> Script {
    let counts: Mutex<HashMap<String, u32>> = Mutex::default();
    Script::of(era).tool("count", move |turn| {
        let mut counts = counts.lock().unwrap();
        let count = counts.entry(place(turn)).or_default();
        *count += 1;
        turn.text(&count.to_string());
    })
}

fn two_clients(up: &Upstream, more: Value) -> Config {
    let clients = json!({"a": {"tokens": [{"env": "A"}]}, "b": {"tokens": [{"env": "B"}]}});
    Config::new().upstream_with("up", up, more).clients(clients).env("A", "t-a").env("B", "t-b")
}

fn text(answer: &Value) -> String {
    let text = answer["result"]["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("no text: {answer}")).to_owned()
}

fn count(client: &Client) -> u32 {
    text(&client.call("up__count", json!({}))).parse().unwrap()
}

fn own(gateway: &Gateway) -> u64 {
    let status: Value = serde_json::from_str(&gateway.admin("/api/status").1).unwrap();
    status["upstreams"][0]["own_connections"].as_u64().unwrap()
}

fn wait_own(gateway: &Gateway, wanted: u64) {
    eventually(&format!("{wanted} own connections"), || (own(gateway) == wanted).then_some(()));
    gateway.wait_metric("waypost_upstream_own_connections", &[("upstream", "up")], wanted as f64);
}

fn wait_servers(gateway: &Gateway, wanted: usize) {
    let what = format!("{wanted} servers");
    eventually(&what, || (process::servers(gateway.pid()).len() == wanted).then_some(()));
}

#[test]
fn ses_07_what_a_server_keeps_for_one_session_no_other_sees() {
    for transport in Transport::ALL {
        let up = counting(Era::Legacy).over(transport);
        let more =
            if transport == Transport::Stdio { json!({"isolation": "per_session"}) } else { json!({}) };
        let gateway = two_clients(&up, more).ready();
        let first = Client::legacy_with(&gateway, "t-a");
        let second = Client::legacy_with(&gateway, "t-a");
        let other = Client::legacy_with(&gateway, "t-b");
        assert_eq!(own(&gateway), 0, "nothing is opened before it is needed");
        assert_eq!((count(&first), count(&second), count(&other)), (1, 1, 1), "{transport:?}");
        assert_eq!((count(&first), count(&first), count(&second), count(&other)), (2, 3, 2, 2));
        let (modern, stranger) = (Client::modern_with(&gateway, "t-a"), Client::modern_with(&gateway, "t-b"));
        assert_eq!((count(&modern), count(&modern), count(&stranger)), (1, 2, 1), "one for each client");
        wait_own(&gateway, 5);
        if transport == Transport::Stdio {
            assert_eq!(process::servers(gateway.pid()).len(), 6, "and the one that reads the lists");
        }
        let ended = up.calls()[0].header("mcp-session-id").map(str::to_owned);
        assert!(first.bodyless("DELETE").send().status < 300);
        wait_own(&gateway, 4);
        match transport {
            Transport::Stdio => wait_servers(&gateway, 5),
            _ => {
                let is_delete = |head: &str| head.starts_with("DELETE ");
                let deleted = up.wait_for("the end of the session", |received| {
                    received.head.as_ref().is_some_and(|head| is_delete(&head.start))
                });
                assert_eq!(deleted.header("mcp-session-id"), ended.as_deref());
            }
        }
        assert_eq!((count(&second), count(&other)), (3, 3), "the others' is as it was");
    }
}

#[test]
fn ses_07_all_own_connections_end_with_the_gateway() {
    for transport in Transport::ALL {
        let up = counting(Era::Legacy).over(transport);
        let mut gateway = two_clients(&up, json!({"isolation": "per_session"})).ready();
        let clients: Vec<_> = (0..3).map(|_| Client::legacy_with(&gateway, "t-a")).collect();
        assert!(clients.iter().all(|client| count(client) == 1));
        let children = process::descendants(gateway.pid());
        gateway.signal(rustix::process::Signal::TERM);
        assert_eq!(gateway.wait_exit(), Some(0));
        assert!(!children.iter().any(|pid| process::is_alive(*pid)), "{children:?}");
        if transport == Transport::Http {
            let deleted = up.received().into_iter().filter(|received| {
                received.head.as_ref().is_some_and(|head| head.start.starts_with("DELETE "))
            });
            let sessions: HashSet<_> =
                deleted.map(|received| received.header("mcp-session-id").unwrap().to_owned()).collect();
            assert_eq!(sessions.len(), 4, "each session is deleted");
        }
    }
}

#[test]
fn a_client_has_one_connection_for_all_its_sessions_if_the_file_says_so() {
    for (era, transport) in
        [(Era::Legacy, Transport::Stdio), (Era::Legacy, Transport::Http), (Era::Modern, Transport::Stdio)]
    {
        let up = counting(era).over(transport);
        let gateway = two_clients(&up, json!({"isolation": "per_client"})).ready();
        let first = Client::legacy_with(&gateway, "t-a");
        let second = Client::modern_with(&gateway, "t-a");
        let other = Client::legacy_with(&gateway, "t-b");
        assert_eq!((count(&first), count(&second), count(&other), count(&first)), (1, 2, 1, 3));
        assert!(first.bodyless("DELETE").send().status < 300);
        assert_eq!(count(&second), 4, "the client is still there");
        wait_own(&gateway, 2);
    }
}

#[test]
fn nobody_needs_a_connection_of_its_own_where_a_server_keeps_nothing() {
    for script in [counting(Era::Modern), counting(Era::Legacy).sessionless()] {
        let up = script.http();
        let gateway = two_clients(&up, json!({"isolation": "per_session"})).ready();
        for client in [Client::legacy_with(&gateway, "t-a"), Client::modern_with(&gateway, "t-b")] {
            count(&client);
        }
        assert_eq!(own(&gateway), 0);
        assert!(up.of_method("initialize").len() <= 1);
    }
}

/// A server tells of what a call has changed in the session of that call, and in no other.
#[test]
fn chg_01_an_own_session_is_listened_to() {
    let up = counting(Era::Legacy).telling().http();
    let gateway = two_clients(&up, json!({})).ready();
    up.wait_heard();
    let client = Client::legacy_with(&gateway, "t-a");
    assert_eq!(count(&client), 1);
    eventually("its stream, and that of the lists", || (up.listened() == 2).then_some(()));
    assert!(client.bodyless("DELETE").send().status < 300);
    eventually("that of the lists", || (up.listened() == 1).then_some(()));
}

#[test]
fn ses_07_own_connections_are_bounded_and_the_idlest_makes_room() {
    let (gate, hold) = Gate::new("held");
    let up = counting(Era::Legacy).tool("hold", hold).stdio();
    let gateway = two_clients(&up, json!({"isolation": "per_session", "max_connections": 2})).ready();
    let clients: Vec<_> = (0..3).map(|_| Client::legacy_with(&gateway, "t-a")).collect();
    assert_eq!((count(&clients[0]), count(&clients[1]), count(&clients[0])), (1, 1, 2));
    assert_eq!(count(&clients[2]), 1, "in the place of the one that was not used for longest");
    wait_servers(&gateway, 3);
    assert_eq!(count(&clients[0]), 3, "which is not this one");
    let refused = std::thread::scope(|scope| {
        let holding: Vec<_> = [&clients[0], &clients[2]]
            .map(|client| scope.spawn(|| client.call("up__hold", json!({}))))
            .into();
        let is_held = || (up.calls().iter().filter(|call| call.name() == "hold").count() == 2).then_some(());
        eventually("both are in use", is_held);
        let refused = clients[1].call("up__count", json!({}));
        gate.open();
        holding.into_iter().for_each(|holding| assert_eq!(text(&holding.join().unwrap()), "held"));
        refused
    });
    assert_eq!(refused["result"]["isError"], true, "{refused}");
    assert!(text(&refused).contains("max_connections"), "{refused}");
    assert_eq!(count(&clients[1]), 1, "it began anew");
    wait_own(&gateway, 2);
}

#[test]
fn lek_03_own_connections_that_nobody_uses_end() {
    let up = counting(Era::Legacy).stdio();
    let config = two_clients(&up, json!({"isolation": "per_client"}));
    let gateway = config.set("sessions", json!({"idle_timeout": "1s"})).ready();
    let client = Client::modern_with(&gateway, "t-a");
    assert_eq!(count(&client), 1);
    assert_eq!(process::servers(gateway.pid()).len(), 2);
    wait_servers(&gateway, 1);
    wait_own(&gateway, 0);
    assert_eq!(count(&client), 1, "and come again");
}

#[test]
fn a_broken_connection_of_its_own_is_made_anew_and_an_opening_is_shared() {
    let up = counting(Era::Legacy).tool("die", Turn::break_off).stdio();
    let gateway = two_clients(&up, json!({"isolation": "per_session"})).ready();
    let client = Client::legacy_with(&gateway, "t-a");
    let counted = at_once((0..5).map(|_| || count(&client)).collect());
    assert_eq!(counted.iter().sum::<u32>(), 15, "five calls at once open one connection: {counted:?}");
    let failed = client.call("up__die", json!({}));
    assert_eq!(failed["result"]["isError"], true, "{failed}");
    assert_eq!(count(&client), 1);
    wait_own(&gateway, 1);
}

#[test]
fn calls_beyond_max_concurrency_wait_and_those_beyond_the_queue_are_refused() {
    for transport in Transport::ALL {
        let (gate, hold) = Gate::new("held");
        let up = Script::echo(Era::Legacy).tool("hold", hold).over(transport);
        let more = json!({"isolation": "shared", "max_concurrency": 1, "max_waiting": 1, "timeout": "10s"});
        let gateway = two_clients(&up, more).ready();
        let (a, b) = (Client::modern_with(&gateway, "t-a"), Client::modern_with(&gateway, "t-b"));
        std::thread::scope(|scope| {
            let held = scope.spawn(|| a.call("up__hold", json!({})));
            up.wait_method("tools/call");
            let waiting = scope.spawn(|| b.echo("up__echo", "x"));
            let both = || (gateway.metrics().sum("waypost_calls_in_flight", &[]) > 1.5).then_some(());
            eventually("both are under way", both);
            std::thread::sleep(Duration::from_millis(100));
            let refused = a.call("up__echo", json!({"text": "y"}));
            assert!(text(&refused).contains("max_waiting"), "{refused}");
            assert_eq!(up.calls().len(), 1, "one at a time");
            gate.open();
            assert_eq!(
                (text(&held.join().unwrap()).as_str(), waiting.join().unwrap().as_str()),
                ("held", "x")
            );
        });
    }
}

const ABLE: &str = r#"{"elicitation":{},"roots":{}}"#;

/// A server whose tool `ask` asks for roots and tells what it heard; and that asks for roots by itself after a call
/// of `later`, once that is answered.
fn asking() -> (Script, Arc<Mutex<Vec<Value>>>) {
    let heard: Arc<Mutex<Vec<Value>>> = Arc::default();
    let (hearing, telling) = (Arc::clone(&heard), Arc::clone(&heard));
    let later: Arc<Mutex<HashSet<String>>> = Arc::default();
    let due = Arc::clone(&later);
    let question = |id: &str| format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"roots/list"}}"#);
    let script = Script::legacy()
        .first(move |turn| {
            let is_get = turn.head.as_ref().is_some_and(|head| head.start.starts_with("GET "));
            if is_get && turn.header("mcp-session-id").is_some() {
                turn.raw(b": open\n\n");
                while !turn.is_abandoned() {
                    if due.lock().unwrap().remove(&place(turn)) {
                        turn.send(&question("later"));
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
                return true;
            }
            let message: Value = serde_json::from_str(&turn.text).unwrap_or_default();
            if message.get("method").is_none() && message.get("id").is_some() {
                hearing.lock().unwrap().push(message);
            }
            false
        })
        .tool("ask", move |turn| {
            let id = format!("ask-{}-{}", turn.peer, turn.id().unwrap());
            turn.send(&question(&id));
            let answer = eventually("an answer", || {
                let heard = telling.lock().unwrap();
                heard.iter().find(|message| message["id"] == *id).cloned()
            });
            let body = answer.get("result").or(answer.get("error")).unwrap();
            turn.send(r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"mine"}}"#);
            turn.text(&body.to_string());
        })
        .tool("later", move |turn| {
            turn.text("yes");
            match &turn.head {
                Some(_) => drop(later.lock().unwrap().insert(place(turn))),
                None => {
                    std::thread::sleep(Duration::from_millis(200));
                    turn.send(&question("later"));
                }
            }
        })
        .declaring("logging");
    (script, heard)
}

fn able(gateway: &Gateway, token: &str) -> Client {
    Client::bare(gateway, Era::Legacy).bearer(token).able(ABLE).connected("2025-11-25")
}

fn next(stream: &mut Open) -> Value {
    stream.message().expect("another message")
}

fn reply(client: &Client, question: &Value, roots: &str) {
    let id = &question["id"];
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"roots":[{{"uri":"file:///{roots}","x":1.0}}]}}}}"#
    );
    assert_eq!(client.post(body).send().status, 202);
}

#[test]
fn s2c_02_a_pipe_that_belongs_to_one_user_carries_its_questions_and_logs() {
    let (script, _) = asking();
    let up = script.stdio();
    let gateway = two_clients(&up, json!({"isolation": "per_session"})).ready();
    let jobs = [("t-a", "a1"), ("t-a", "a2"), ("t-b", "b1"), ("t-b", "b2")].map(|(token, name)| {
        let gateway = &gateway;
        move || {
            let client = able(gateway, token);
            let mut stream = client.calling("up__ask", "{}").open();
            let question = next(&mut stream);
            assert_eq!(question["method"], "roots/list", "{question}");
            reply(&client, &question, name);
            assert_eq!(next(&mut stream)["params"]["data"], "mine");
            let told = text(&next(&mut stream));
            assert!(told.contains(&format!("file:///{name}")), "another one's: {told}");
        }
    });
    at_once(jobs.into());
}

#[test]
fn a_modern_client_is_asked_by_the_server_on_its_own_pipe() {
    let (script, _) = asking();
    let up = script.stdio();
    let gateway = two_clients(&up, json!({"isolation": "per_client"})).ready();
    let client = Client::modern_with(&gateway, "t-a").able(ABLE);
    let asked = client.call("up__ask", json!({}));
    let requests = asked["result"]["inputRequests"].as_object().unwrap_or_else(|| panic!("{asked}"));
    let key = requests.keys().next().unwrap();
    let params = json!({"name": "up__ask", "arguments": {}, "requestState": asked["result"]["requestState"],
        "inputResponses": {key: {"roots": [{"uri": "file:///m"}]}}});
    let told = client.request("tools/call", &params.to_string()).send().json();
    assert_eq!(text(&told), r#"{"roots":[{"uri":"file:///m"}]}"#);
}

#[test]
fn a_session_declares_what_its_own_client_can() {
    for transport in Transport::ALL {
        let (script, _) = asking();
        let up = script.over(transport);
        let gateway = two_clients(&up, json!({"isolation": "per_session"})).ready();
        let declared = || {
            let hello = up.of_method("initialize").pop().unwrap();
            serde_json::from_str::<Value>(&hello.text).unwrap()["params"]["capabilities"].clone()
        };
        let unable = Client::legacy_with(&gateway, "t-a");
        assert!(text(&unable.call("up__ask", json!({}))).contains("-32601"));
        assert_eq!(declared(), json!({}));
        let able = able(&gateway, "t-a");
        let only_json = able.calling("up__later", "{}").header("Accept", "application/json");
        assert_eq!(only_json.send().status, 200);
        assert_eq!(declared(), serde_json::from_str::<Value>(ABLE).unwrap());
    }
}

#[test]
fn one_call_at_a_time_tells_whose_a_question_is_on_a_shared_pipe() {
    let (script, _) = asking();
    let up = script.stdio();
    let gateway = two_clients(&up, json!({"max_concurrency": 1})).ready();
    let jobs = ["t-a", "t-b", "t-a", "t-b"].into_iter().enumerate().map(|(index, token)| {
        let gateway = &gateway;
        move || {
            let (client, name) = (able(gateway, token), format!("client-{index}"));
            let mut stream = client.calling("up__ask", "{}").open();
            let question = next(&mut stream);
            reply(&client, &question, &name);
            assert_eq!(next(&mut stream)["params"]["data"], "mine");
            let told = text(&next(&mut stream));
            assert!(told.contains(&format!("file:///{name}")), "{name}: {told}");
        }
    });
    at_once(jobs.collect());
    assert_eq!(up.processes().len(), 1);
}

#[test]
fn a_question_after_a_dropped_call_is_nobody_elses() {
    let (script, heard) = asking();
    let script = script.tool("linger", |turn| {
        std::thread::sleep(Duration::from_millis(1_500));
        turn.send(r#"{"jsonrpc":"2.0","id":"late","method":"roots/list"}"#);
    });
    let up = script.stdio();
    let gateway = two_clients(&up, json!({"max_concurrency": 1})).ready();
    let first = able(&gateway, "t-a");
    let lingering = first.body("tools/call", r#"{"name":"up__linger","arguments":{}}"#);
    let id: Value = serde_json::from_str::<Value>(&lingering).unwrap()["id"].clone();
    let (gateway, up, first, heard) = (&gateway, &up, &first, &heard);
    std::thread::scope(|scope| {
        scope.spawn(move || first.post(lingering).send());
        up.wait_method("tools/call");
        let cancel =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
        first.post(cancel.to_string()).send();
        up.wait_method("notifications/cancelled");
        let second = able(gateway, "t-b").calling("up__ask", "{}").send();
        let messages = second.messages().join("\n");
        assert!(!messages.contains("roots/list") && messages.contains("-32601"), "{messages}");
        let refused = eventually("an answer to the late question", || {
            heard.lock().unwrap().iter().find(|message| message["id"] == "late").cloned()
        });
        assert_eq!(refused["error"]["code"], -32601, "{refused}");
    });
}

#[test]
fn s2c_03_a_question_outside_of_any_call_goes_to_the_stream_of_its_session() {
    for transport in Transport::ALL {
        let (script, heard) = asking();
        let up = script.over(transport);
        let gateway = two_clients(&up, json!({"isolation": "per_session"})).ready();
        let (client, other) = (able(&gateway, "t-a"), able(&gateway, "t-a"));
        let (mut stream, mut foreign) = (client.listening(), other.listening());
        assert_eq!(text(&client.call("up__later", json!({}))), "yes");
        let question = next(&mut stream);
        assert_eq!(question["method"], "roots/list", "{question}");
        reply(&client, &question, "mine");
        let told = eventually("the answer", || {
            heard.lock().unwrap().iter().find(|message| message["id"] == "later").cloned()
        });
        assert_eq!(told["result"]["roots"][0]["uri"], "file:///mine", "{told}");
        assert_eq!(told["result"]["roots"][0]["x"].to_string(), "1.0", "as it was");
        assert!(foreign.is_silent(Duration::from_millis(200)), "nobody else hears of it");
    }
}

#[test]
fn s2c_03_a_question_outside_of_any_call_is_refused_where_nobody_listens() {
    let (script, heard) = asking();
    let up = script.stdio();
    let gateway = two_clients(&up, json!({"isolation": "per_session"})).ready();
    let deaf = able(&gateway, "t-a");
    assert_eq!(text(&deaf.call("up__later", json!({}))), "yes");
    let told = eventually("the refusal", || heard.lock().unwrap().first().cloned());
    assert_eq!(told["error"]["code"], -32601, "{told}");
}

/// How many processes there are is what the file says: one, or one for each session and one that reads the lists.
#[test]
fn lek_05_nobody_has_a_process_unasked() {
    for (isolation, own) in [("shared", 0_usize), ("per_session", 10)] {
        let up = counting(Era::Legacy).stdio();
        let more = if own == 0 { json!({}) } else { json!({"isolation": isolation}) };
        let gateway = two_clients(&up, more).ready();
        let clients: Vec<_> = (0..10)
            .map(|number| Client::legacy_with(&gateway, if number % 2 == 0 { "t-a" } else { "t-b" }))
            .collect();
        assert!(clients.iter().all(|client| count(client) == 1 || own == 0));
        wait_servers(&gateway, 1 + own);
        clients.iter().for_each(|client| assert!(client.bodyless("DELETE").send().status < 300));
        wait_servers(&gateway, 1);
    }
}
