//! Session and handshake.

use serde_json::json;

use crate::support::client::{Client, LEGACY, Request, initialize};
use crate::support::gateway::Config;
use crate::support::matrix::Era;
use crate::support::script::Script;
use crate::support::{at_once, eventually};

fn expect_gone(client: &Client) {
    let response = client.request("tools/list", "{}").send();
    assert_eq!(response.status, 404, "{}", response.text());
    assert!(response.content_type().starts_with("application/json"), "{:?}", response.head);
    let answer = response.json();
    assert!(answer["error"]["message"].is_string(), "{answer}");
}

#[test]
fn ses_01_a_dead_session_answers_404() {
    let up = Script::echo(Era::Legacy).stdio();
    let config = Config::new().upstream("up", &up);
    let clients = json!({"a": {"tokens": [{"env": "A"}]}, "b": {"tokens": [{"env": "B"}]}});
    let config = config.clients(clients).env("A", "t-a").env("B", "t-b");
    let gateway = config.ready();
    let client = Client::legacy_with(&gateway, "t-a");
    drop(client.bodyless("GET").header("Accept", "text/event-stream").open());
    assert_eq!(client.echo("up__echo", "x"), "x", "a dropped GET ends nothing");
    let deleted = client.bodyless("DELETE").send();
    assert!(matches!(deleted.status, 200 | 202 | 204), "{:?}", deleted.head);
    expect_gone(&client);
    assert_eq!(client.bodyless("DELETE").send().status, 404);
    assert_eq!(client.bodyless("GET").header("Accept", "text/event-stream").send().status, 404);
    let bad = client.request("tools/list", "{}").header("Authorization", "Bearer wrong").send();
    assert_eq!(bad.status, 401, "with a bad bearer never 404");
    let mut invented = Client::legacy_with(&gateway, "t-a");
    let real = invented.session().to_owned();
    let forgeries = ["made-up".to_owned(), String::from("0"), real.to_uppercase(), format!("{real}x"), {
        let mut bytes = real.clone().into_bytes();
        let middle = bytes.len() / 2;
        bytes[middle] = if bytes[middle] == b'A' { b'B' } else { b'A' };
        String::from_utf8(bytes).unwrap()
    }];
    for forgery in forgeries {
        invented.headers.retain(|(name, _)| name != "Mcp-Session-Id");
        invented.headers.push(("Mcp-Session-Id".to_owned(), forgery));
        expect_gone(&invented);
    }
    let mut stolen = Client::legacy_with(&gateway, "t-a");
    stolen.headers.retain(|(name, _)| name != "Authorization");
    expect_gone(&stolen.bearer("t-b"));
    let alive = Client::legacy_with(&gateway, "t-a");
    let headers = alive.headers.clone();
    drop(gateway);
    let restarted = config.ready();
    let mut old = Client::bare(&restarted, Era::Legacy);
    old.headers = headers;
    expect_gone(&old);
    assert_eq!(old.request("tools/list", "{}").header("Authorization", "Bearer wrong").send().status, 401);
    assert_eq!(Client::legacy_with(&restarted, "t-a").echo("up__echo", "again"), "again");
}

/// With one key a session outlives the process: any replica serves it.
#[test]
fn ses_01_with_a_key_a_restart_ends_no_session() {
    let up = Script::echo(Era::Legacy).stdio();
    let key = json!({"key": "${SESSION_KEY}"});
    let config = Config::new().upstream("up", &up).set("sessions", key);
    let config = config.env("SESSION_KEY", "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=");
    let first = config.ready();
    let client = Client::legacy_at(&first, "2025-06-18");
    let second = config.ready();
    let mut moved = Client::bare(&second, Era::Legacy);
    moved.headers = client.headers.clone();
    assert_eq!(moved.echo("up__echo", "moved"), "moved");
    assert_eq!(client.echo("up__echo", "stayed"), "stayed");
}

#[test]
fn ses_01_an_idle_session_ends() {
    let up = Script::echo(Era::Legacy).stdio();
    let config = Config::new().upstream("up", &up).set("sessions", json!({"idle_timeout": "1s"}));
    let gateway = config.ready();
    let client = Client::legacy(&gateway);
    eventually("it is counted", || (gateway.metrics().sum("waypost_sessions", &[]) >= 1.0).then_some(()));
    eventually("it is collected", || (gateway.metrics().sum("waypost_sessions", &[]) < 0.5).then_some(()));
    expect_gone(&client);
}

/// A session belongs to the principal, not to the bytes of the token.
#[test]
fn ses_01_another_token_of_the_same_client_is_the_same_principal() {
    let up = Script::echo(Era::Legacy).stdio();
    let clients = json!({"a": {"tokens": [{"env": "A1"}, {"env": "A2"}]}});
    let gateway =
        Config::new().upstream("up", &up).clients(clients).env("A1", "t-1").env("A2", "t-2").ready();
    let mut client = Client::legacy_with(&gateway, "t-1");
    client.headers.retain(|(name, _)| name != "Authorization");
    assert_eq!(client.bearer("t-2").echo("up__echo", "rotated"), "rotated");
}

#[test]
fn ses_02_a_lost_upstream_session_is_made_again_once() {
    let up = Script::echo(Era::Legacy).http();
    let gateway = Config::new().upstream("up", &up).ready();
    let client = Client::legacy(&gateway);
    let session = client.session().to_owned();
    assert_eq!(client.echo("up__echo", "first"), "first");
    let old = up.calls()[0].header("mcp-session-id").expect("a session upstream").to_owned();
    let before = up.of_method("initialize").len();
    up.forget_sessions();
    let mark = up.received().len();
    assert_eq!(client.echo("up__echo", "second"), "second");
    assert_eq!(up.of_method("initialize").len(), before + 1, "exactly one new handshake");
    let later = up.received().split_off(mark);
    let carrying = later.iter().filter(|received| received.header("mcp-session-id") == Some(&*old)).count();
    assert_eq!(carrying, 1, "the one that found out, and nothing after it");
    assert_eq!(client.echo("up__echo", "third"), "third");
    assert_eq!(client.session(), session);
    assert_eq!(up.of_method("initialize").len(), before + 1);
}

/// Many calls that find the session lost at once make it again once, and all are answered.
#[test]
fn ses_02_many_calls_that_lose_the_session_at_once() {
    let up = Script::echo(Era::Legacy).http();
    let gateway = Config::new().upstream("up", &up).ready();
    let client = Client::legacy(&gateway);
    assert_eq!(client.echo("up__echo", "x"), "x");
    let before = up.of_method("initialize").len();
    up.forget_sessions();
    let jobs: Vec<_> = (0..20)
        .map(|index| {
            let client = &client;
            move || assert_eq!(client.echo("up__echo", &index.to_string()), index.to_string())
        })
        .collect();
    at_once(jobs);
    let again = up.of_method("initialize").len() - before;
    assert_eq!(again, 1, "{again} handshakes");
}

#[test]
fn ses_04_a_client_that_never_sends_its_session_is_served() {
    let up = Script::echo(Era::Legacy).stdio();
    let clients = json!({"a": {"tokens": [{"env": "A"}]}});
    let gateway = Config::new().upstream("up", &up).clients(clients).env("A", "t-a").ready();
    let client = Client::bare(&gateway, Era::Legacy).bearer("t-a");
    let opened = client.post(initialize(LEGACY)).send();
    assert!(opened.header("mcp-session-id").is_some(), "{:?}", opened.head);
    let note = client.post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).send();
    assert_eq!((note.status, note.body.len()), (202, 0));
    assert_eq!(client.request("tools/list", "{}").send().status, 200);
    assert_eq!(client.echo("up__echo", "x"), "x");
    assert_eq!(client.request("ping", "{}").send().json()["result"], json!({}));
    let with_version = client.request("tools/list", "{}").header("MCP-Protocol-Version", "2025-06-18").send();
    assert_eq!(with_version.status, 200, "{}", with_version.text());
    let anonymous = Request::post(gateway.mcp, "/mcp", client.body("tools/list", "{}")).send();
    assert_eq!(anonymous.status, 401, "with a good bearer only");
}

/// A table of sessions has a bound, and says so.
#[test]
fn ses_04_sessions_are_bounded() {
    let up = Script::echo(Era::Legacy).stdio();
    let gateway = Config::new().upstream("up", &up).set("limits", json!({"sessions": 3})).ready();
    let clients: Vec<_> = (0..3).map(|_| Client::legacy(&gateway)).collect();
    let refused = Request::post(gateway.mcp, "/mcp", initialize(LEGACY)).send();
    // Either the newest is refused in words, or the oldest made room for it.
    if refused.header("mcp-session-id").is_none() {
        assert_ne!(refused.status, 500, "{}", refused.text());
        assert!(refused.json()["error"]["message"].is_string(), "{}", refused.text());
        assert_eq!(clients[0].echo("up__echo", "alive"), "alive");
    }
    assert!(gateway.metrics().sum("waypost_sessions", &[]) <= 3.0);
    assert_eq!(clients[2].echo("up__echo", "alive"), "alive");
}
