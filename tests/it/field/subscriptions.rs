//! Subscriptions to resources: who is told of an update, of which one, and what the server behind is asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::support::client::{Client, Open};
use crate::support::gateway::{Config, Gateway};
use crate::support::matrix::{Cell, Era, Transport};
use crate::support::script::{Script, plain_entry};
use crate::support::upstream::updated;
use crate::support::{eventually, scaled};

crate::matrix! {
    chg_01_an_update_reaches_who_has_subscribed_and_nobody_else
    chg_05_subscriptions_are_made_again_and_the_gap_is_told
    sub_what_the_server_does_not_tell_of_is_said_to_the_client
}

const ERAS: [Era; 2] = [Era::Legacy, Era::Modern];
const A: &str = "file:///a";
const B: &str = "file:///b";

/// A server that tells of updates of its two resources, and of what is below them.
fn telling(era: Era) -> Script {
    let script = Script::echo(era).telling_of_resources([]);
    script.resources("up", [A, B]).template("file:///{+path}")
}

fn uri(uri: &str) -> String {
    json!({"uri": uri}).to_string()
}

/// Subscribes the way of the era. A legacy client opens its stream, a modern one reads its acknowledgement.
fn subscribed(client: &Client, uris: &[&str]) -> (Open, Vec<String>) {
    match client.era {
        Era::Legacy => {
            let is_told =
                |named: &&&str| client.request("resources/subscribe", &uri(named)).send().code() == 0;
            let told = uris.iter().filter(is_told).map(|named| (*named).to_owned()).collect();
            (client.listening(), told)
        }
        Era::Modern => {
            let filter = json!({"notifications": {"resourceSubscriptions": uris}}).to_string();
            let mut open = client.request("subscriptions/listen", &filter).open();
            let ack = open.message().expect("an acknowledgement");
            assert_eq!(ack["method"], "notifications/subscriptions/acknowledged", "{ack}");
            let told = ack["params"]["notifications"]["resourceSubscriptions"].as_array();
            let told = told.into_iter().flatten().map(|named| named.as_str().unwrap().to_owned());
            (open, told.collect())
        }
    }
}

fn following(client: &Client, uris: &[&str]) -> Open {
    let (open, told) = subscribed(client, uris);
    assert_eq!(told, uris);
    open
}

fn expect_updated(open: &mut Open, uri: &str) {
    let message = open.message().expect("a notification, not the end of the stream");
    assert_eq!(message["method"], "notifications/resources/updated", "{message}");
    assert_eq!(message["params"]["uri"], uri, "{message}");
    assert!(message.get("id").is_none(), "{message}");
}

fn subscriptions(gateway: &Gateway, count: f64) {
    gateway.wait_metric("waypost_resource_subscriptions", &[], count);
}

fn chg_01_an_update_reaches_who_has_subscribed_and_nobody_else(cell: Cell) {
    let up = telling(cell.server).over(cell.transport);
    let gateway = Config::new().upstream("up", &up).ready();
    let client = Client::of(&gateway, cell.client);
    let mut open = following(&client, &[A]);
    let mut others = ERAS.map(|era| Client::of(&gateway, era).listening());
    up.wait_subscribed(&[A]);
    up.wait_heard();
    up.update(A);
    expect_updated(&mut open, A);
    up.update(B);
    up.update("file:///a/below");
    expect_updated(&mut open, "file:///a/below");
    assert!(open.is_silent(scaled(300)), "told once, and of nothing else");
    others.iter_mut().for_each(|other| assert!(other.is_silent(scaled(50)), "they asked for nothing"));
    if cell.client == Era::Legacy {
        subscriptions(&gateway, 1.0);
        assert_eq!(client.request("resources/unsubscribe", &uri(A)).send().json()["result"], json!({}));
        up.wait_subscribed(&[]);
        assert!(open.is_silent(scaled(100)));
    }
    open.hang_up();
    subscriptions(&gateway, 0.0);
    up.wait_subscribed(&[]);
}

/// No word from the server: its process is another one, its session is lost, or its connection was cut.
fn chg_05_subscriptions_are_made_again_and_the_gap_is_told(cell: Cell) {
    let up = telling(cell.server).over(cell.transport);
    let gateway = Config::new().upstream("up", &up).ready();
    let client = Client::of(&gateway, cell.client);
    let mut open = following(&client, &[A]);
    up.wait_subscribed(&[A]);
    match (cell.transport, cell.server) {
        (Transport::Stdio, _) => up.process().exit(1),
        (Transport::Http, Era::Legacy) => {
            // Calls go in a session of their client's own, which must be there to be lost.
            assert_eq!(client.echo("up__echo", "x"), "x");
            up.forget_sessions();
            assert_eq!(client.echo("up__echo", "x"), "x");
        }
        (Transport::Http, Era::Modern) | (Transport::Sse, _) => {
            up.go_down();
            up.come_back();
        }
    }
    expect_updated(&mut open, A);
    up.wait_subscribed(&[A]);
    up.wait_heard();
    assert!(open.is_silent(scaled(300)), "the gap is told once");
    up.update(A);
    expect_updated(&mut open, A);
}

fn sub_what_the_server_does_not_tell_of_is_said_to_the_client(cell: Cell) {
    let mute = Script::echo(cell.server).telling().resources("mute", ["mute:///a"]).over(cell.transport);
    let script = Script::echo(cell.server).telling_of_resources([B]).resources("up", [A, B]);
    let up = script.over(cell.transport);
    let gateway = Config::new().upstream("up", &up).upstream("mute", &mute).ready();
    let client = Client::of(&gateway, cell.client);
    let (mut open, told) = subscribed(&client, &[A, B, "mute:///a"]);
    assert_eq!(told, [A], "what each of them tells of, and no more");
    if cell.client == Era::Legacy {
        let refused = client.request("resources/subscribe", &uri("mute:///a")).send();
        assert_eq!((refused.status, refused.code()), (200, -32601), "{}", refused.text());
        let refused = client.request("resources/subscribe", &uri(B)).send();
        let code = if cell.server == Era::Legacy { -32042 } else { -32601 };
        assert_eq!(refused.code(), code, "a server's own error is passed on: {}", refused.text());
    }
    subscriptions(&gateway, 1.0);
    up.wait_subscribed(&[A]);
    up.wait_heard();
    up.update(A);
    expect_updated(&mut open, A);
}

#[test]
fn sub_many_clients_are_one_subscription_and_many_updates_one_word() {
    for (server, transport) in [(Era::Legacy, Transport::Http), (Era::Modern, Transport::Stdio)] {
        let up = telling(server).over(transport);
        let gateway = Config::new().upstream("up", &up).ready();
        let clients: Vec<Client> = (0..12).map(|index| Client::of(&gateway, ERAS[index % 2])).collect();
        let mut opens: Vec<Open> = clients.iter().map(|client| following(client, &[A, B])).collect();
        subscriptions(&gateway, 24.0);
        up.wait_subscribed(&[A, B]);
        up.wait_heard();
        if server == Era::Legacy {
            assert_eq!(up.of_method("resources/subscribe").len(), 2, "each of them once");
        }
        for _ in 0..200 {
            up.update(A);
        }
        for open in &mut opens {
            expect_updated(open, A);
        }
        // Those 200 may have come in more than one piece, but in far fewer than 200.
        let more: usize = opens.iter_mut().map(|open| rest(open, A)).sum();
        assert!(more <= 12 * 10, "{more}");
        let last = opens.pop().unwrap();
        opens.into_iter().for_each(Open::hang_up);
        drop(clients);
        up.wait_subscribed(&[A, B]);
        last.hang_up();
        gateway.wait_metric("waypost_streams_open", &[], 0.0);
        if server == Era::Legacy {
            assert!(up.of_method("resources/unsubscribe").is_empty(), "the sessions still have them");
        } else {
            subscriptions(&gateway, 12.0);
        }
    }
}

fn rest(open: &mut Open, uri: &str) -> usize {
    let mut count = 0;
    while !open.is_silent(scaled(250)) {
        expect_updated(open, uri);
        count += 1;
    }
    count
}

#[test]
fn sub_a_session_gives_back_what_it_had_when_it_ends() {
    let up = telling(Era::Legacy).http();
    let sessions = json!({"idle_timeout": "1s", "keep_alive": "1s"});
    let gateway = Config::new().upstream("up", &up).set("sessions", sessions).ready();
    let (deleted, idle) = (Client::legacy(&gateway), Client::legacy(&gateway));
    for client in [&deleted, &idle] {
        assert_eq!(client.request("resources/subscribe", &uri(A)).send().json()["result"], json!({}));
    }
    assert!(matches!(deleted.bodyless("DELETE").send().status, 200 | 204));
    up.wait_subscribed(&[A]);
    subscriptions(&gateway, 0.0);
    up.wait_subscribed(&[]);
}

#[test]
fn sub_an_update_without_a_stream_is_told_when_there_is_one() {
    let up = telling(Era::Legacy).stdio();
    let gateway = Config::new().upstream("up", &up).ready();
    let client = Client::legacy(&gateway);
    let mut early = following(&client, &[A, B]);
    early = match early.is_silent(scaled(50)) {
        true => {
            early.hang_up();
            gateway.wait_metric("waypost_streams_open", &[], 0.0);
            up.update(A);
            up.update(A);
            std::thread::sleep(scaled(300));
            client.listening()
        }
        false => panic!("nothing was updated"),
    };
    expect_updated(&mut early, A);
    assert!(early.is_silent(scaled(300)), "once");
}

#[test]
fn sub_equal_uris_of_two_servers_are_told_apart() {
    let (one, two) = (telling(Era::Legacy).http(), telling(Era::Modern).http());
    let gateway = Config::new().upstream("1|one", &one).upstream("2|two", &two).ready();
    let tagged = format!("{A}#@two");
    for era in ERAS {
        let client = Client::of(&gateway, era);
        let mut open = following(&client, &[A, &tagged]);
        one.wait_subscribed(&[A]);
        two.wait_subscribed(&[A]);
        one.wait_heard();
        eventually("the lists and the resources", || (two.listened() == 2).then_some(()));
        two.update(A);
        expect_updated(&mut open, &tagged);
        two.update("file:///a/x");
        expect_updated(&mut open, "file:///a/x#@two");
        one.update(A);
        expect_updated(&mut open, A);
        let read = client.request("resources/read", &uri(&tagged)).send().json();
        assert_eq!(read["result"]["contents"][0]["text"], format!("up: {A}"), "{read}");
        if era == Era::Legacy {
            client.request("resources/unsubscribe", &uri(&tagged)).send();
            two.wait_subscribed(&[]);
        }
        open.hang_up();
        if era == Era::Legacy {
            client.bodyless("DELETE").send();
        }
        one.wait_subscribed(&[]);
        two.wait_subscribed(&[]);
    }
}

#[test]
fn sub_what_is_hidden_is_answered_like_what_is_not_there() {
    let up = telling(Era::Legacy).http();
    let clients =
        json!({"few": {"tokens": [{"env": "F"}], "resources": {"deny": ["file:///b*", "file:///a/s*"]}}});
    let gateway = Config::new().upstream("up", &up).clients(clients).env("F", "t-few").ready();
    let legacy = Client::legacy_with(&gateway, "t-few");
    let answers = [B, "file:///b/../b", "nobody://x"].map(|named| {
        let answer = legacy.request("resources/subscribe", &uri(named)).send().json();
        assert_eq!(answer["error"]["code"], -32002, "{answer}");
        answer["error"]["message"].as_str().unwrap().replace(named, "URI")
    });
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[0], answers[2]);
    let modern = Client::modern_with(&gateway, "t-few");
    let (mut open, told) = subscribed(&modern, &[B, A, "nobody://x"]);
    assert_eq!(told, [A]);
    up.wait_subscribed(&[A]);
    up.wait_heard();
    up.update("file:///a/secret");
    up.update(B);
    assert!(open.is_silent(scaled(400)), "what is below is hidden, too");
    up.update("file:///a/open");
    expect_updated(&mut open, "file:///a/open");
    assert!(up.of_method("resources/subscribe").iter().all(|seen| !seen.text.contains(B)));
}

#[test]
fn sub_the_limits_hold_and_what_is_given_back_can_be_taken() {
    let uris: Vec<String> = (0..6).map(|index| format!("file:///{index}")).collect();
    let named: Vec<&str> = uris.iter().map(String::as_str).collect();
    let up = telling(Era::Legacy).stdio();
    let limits = json!({"subscriptions": 4, "subscriptions_per_session": 3});
    let gateway = Config::new().upstream("up", &up).set("limits", limits).ready();
    let legacy = Client::legacy(&gateway);
    for named in &named[..3] {
        assert_eq!(legacy.request("resources/subscribe", &uri(named)).send().code(), 0);
    }
    assert_eq!(legacy.request("resources/subscribe", &uri(named[0])).send().code(), 0, "it has it already");
    let refused = legacy.request("resources/subscribe", &uri(named[3])).send();
    assert!(refused.text().contains("limits.subscriptions_per_session"), "{}", refused.text());
    let modern = Client::modern(&gateway);
    let (open, told) = subscribed(&modern, &named);
    assert_eq!(told.len(), 1, "four in all: {told:?}");
    subscriptions(&gateway, 4.0);
    legacy.request("resources/unsubscribe", &uri(named[0])).send();
    open.hang_up();
    subscriptions(&gateway, 2.0);
    let (_open, told) = subscribed(&modern, &named);
    assert_eq!(told.len(), 2, "{told:?}");
}

#[test]
fn sub_a_session_is_needed_and_the_promise_is_kept() {
    let mute = Script::echo(Era::Legacy).telling().resources("mute", [A]).http();
    let gateway = Config::new().upstream("mute", &mute).ready();
    let client = Client::legacy(&gateway);
    let promise =
        |client: &Client| client.hello.as_ref().unwrap()["result"]["capabilities"]["resources"].clone();
    assert_eq!(promise(&client), json!({"listChanged": true}));
    for method in ["resources/subscribe", "resources/unsubscribe"] {
        assert_eq!(client.request(method, &uri(A)).send().code(), -32601, "nobody has it");
    }
    let up = telling(Era::Modern).http();
    let gateway = Config::new().upstream("mute", &mute).upstream("up", &up).ready();
    let client = Client::legacy(&gateway);
    assert_eq!(promise(&client), json!({"listChanged": true, "subscribe": true}));
    let modern = Client::modern(&gateway);
    let discovered = modern.request("server/discover", "{}").send().json();
    assert_eq!(discovered["result"]["capabilities"]["resources"], promise(&client));
    let bare = Client::bare(&gateway, Era::Legacy);
    let refused = bare.request("resources/subscribe", &uri(B)).send();
    assert_eq!(refused.code(), -32600, "{}", refused.text());
    let refused = modern.request("resources/subscribe", &uri(B)).send();
    assert_eq!((refused.status, refused.code()), (404, -32601), "it is none of its revision");
    assert_eq!(client.request("resources/subscribe", "{}").send().code(), -32602);
    let broken = modern.request("subscriptions/listen", r#"{"notifications":{"resourceSubscriptions":[1]}}"#);
    assert_eq!(broken.send().code(), -32602);
}

/// A server may say it on the stream of a call.
#[test]
fn chg_01_an_update_told_on_the_stream_of_a_call_reaches_those_who_follow() {
    for transport in Transport::ALL {
        let script = telling(Era::Legacy).tool("touch", |turn| {
            turn.send(&updated(A, ""));
            turn.text("touched");
        });
        let up = script.over(transport);
        let gateway = Config::new().upstream("up", &up).ready();
        let mut opens = ERAS.map(|era| following(&Client::of(&gateway, era), &[A]));
        let answer = Client::modern(&gateway).calling("up__touch", "{}").send();
        assert_eq!(answer.messages().len(), 1, "the caller did not ask: {}", answer.text());
        opens.iter_mut().for_each(|open| expect_updated(open, A));
    }
}

/// Lists and resources on one subscription, which bears one id.
#[test]
fn sub_a_modern_subscription_carries_lists_and_resources_of_several_servers() {
    let (one, two) = (telling(Era::Modern).http(), Script::echo(Era::Legacy).telling_of_resources([]));
    let two = two.resources("two", ["two://x"]).stdio();
    let gateway = Config::new().upstream("one", &one).upstream("two", &two).ready();
    let filter = json!({"toolsListChanged": true, "resourceSubscriptions": ["two://x", A, "two://x"]});
    let client = Client::modern(&gateway);
    let request = client.request("subscriptions/listen", &json!({"notifications": filter}).to_string());
    let mut open = request.open();
    let ack = open.message().unwrap();
    let honoured = json!({"toolsListChanged": true, "resourceSubscriptions": ["two://x", A]});
    assert_eq!(ack["params"]["notifications"], honoured);
    let id = |message: &Value| message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"].clone();
    eventually("both are heard", || (one.listened() == 2).then_some(()));
    two.update("two://x");
    let message = open.message().unwrap();
    assert_eq!((&message["params"]["uri"], id(&message)), (&json!("two://x"), id(&ack)));
    one.update(A);
    let message = open.message().unwrap();
    assert_eq!((&message["params"]["uri"], id(&message)), (&json!(A), id(&ack)));
    two.change_tools(vec![plain_entry("echo"), plain_entry("fresh")]);
    let message = open.message().unwrap();
    assert_eq!((&message["method"], id(&message)), (&json!("notifications/tools/list_changed"), id(&ack)));
}

/// A server that will not have its subscription changed is not asked for it without end, and tells as before.
#[test]
fn sub_a_subscription_that_fails_is_not_asked_for_in_a_storm() {
    let fails = Arc::new(AtomicBool::new(false));
    let is_failing = Arc::clone(&fails);
    let up = telling(Era::Modern).first(move |turn| {
        let refuses = turn.method() == "subscriptions/listen" && is_failing.load(Ordering::Relaxed);
        if refuses {
            turn.respond("503 Service Unavailable", "text/plain", "not now");
        }
        refuses
    });
    let up = up.http();
    let gateway = Config::new().upstream("up", &up).ready();
    let client = Client::modern(&gateway);
    let (mut one, other) = (following(&client, &[A]), following(&client, &[B]));
    up.wait_subscribed(&[A, B]);
    fails.store(true, Ordering::Relaxed);
    let before = up.of_method("subscriptions/listen").len();
    other.hang_up();
    let asked = || up.of_method("subscriptions/listen").len() - before;
    eventually("it is asked for less", || (asked() >= 2).then_some(()));
    std::thread::sleep(scaled(500));
    // The waits begin with half a second and grow; each try without one takes a millisecond.
    assert!(asked() < 20, "{} tries", asked());
    up.update(A);
    expect_updated(&mut one, A);
}

/// One method that a server answers like a lost session does not cost the session of everybody again and again.
#[test]
fn sub_a_refusal_that_looks_like_a_lost_session_is_a_refusal() {
    let script = telling(Era::Legacy).first(|turn| {
        let refuses = turn.method() == "resources/subscribe";
        if refuses {
            turn.respond("404 Not Found", "text/plain", "not found");
        }
        refuses
    });
    let up = script.http();
    let gateway = Config::new().upstream("up", &up).ready();
    let client = Client::legacy(&gateway);
    let refused = client.request("resources/subscribe", &uri(A)).send();
    assert_ne!(refused.code(), 0, "{}", refused.text());
    assert_eq!(client.echo("up__echo", "x"), "x");
    let handshakes = up.of_method("initialize").len();
    assert!(handshakes <= 3, "{handshakes} handshakes");
}

/// All that a filter names is asked for, though limits let only some of it be asked for at once.
#[test]
fn sub_a_filter_of_many_resources_waits_for_its_turns() {
    let uris: Vec<String> = (0..6).map(|number| format!("file:///{number}")).collect();
    let uris: Vec<&str> = uris.iter().map(String::as_str).collect();
    let script = Script::modern().telling_of_resources([]).resources("up", uris.clone());
    let up = script.http();
    let limits = json!({"limits": {"concurrency": 2}});
    let gateway = Config::new().upstream_with("up", &up, limits).ready();
    let (_stream, told) = subscribed(&Client::modern(&gateway), &uris);
    assert_eq!(told, uris);
}
