//! Rate limits: their shape, their scope, and whom they do not hurt.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::client::{Client, Request, Response};
use crate::support::gateway::{Config, Gateway};
use crate::support::matrix::Era;
use crate::support::script::Script;
use crate::support::{at_once, scaled};

fn two_clients(config: Config, alice: Value, bob: Value) -> Gateway {
    let with_token = |mut client: Value, variable: &str| {
        client["tokens"] = json!([{"env": variable}]);
        client
    };
    let clients = json!({"alice": with_token(alice, "ALICE"), "bob": with_token(bob, "BOB")});
    config.clients(clients).env("ALICE", "t-alice").env("BOB", "t-bob").ready()
}

fn retry_after(response: &Response) -> u64 {
    let value =
        response.header("retry-after").unwrap_or_else(|| panic!("no Retry-After: {:?}", response.head));
    value.parse().unwrap_or_else(|_| panic!("not in seconds: {value}"))
}

/// A call that a limit refused: a result that a model can read, with the wait.
fn expect_limited(response: &Response) -> u64 {
    let answer = response.json();
    assert_eq!((response.status, &answer["result"]["isError"]), (200, &json!(true)), "{answer}");
    let text = answer["result"]["content"][0]["text"].as_str().expect("a text");
    assert!(text.contains("limit"), "{text}");
    let wait = answer["result"]["_meta"]["waypost.dev/retryAfterMs"].as_u64().expect("the wait");
    assert!(wait > 0, "{answer}");
    assert!(retry_after(response) >= wait.div_ceil(1000).max(1), "never earlier than the wait: {response:?}");
    wait
}

#[test]
fn rat_01_a_call_limit_counts_calls_of_one_client() {
    let up = Script::echo(Era::Legacy).stdio();
    let config = Config::new().upstream("up", &up);
    let gateway = two_clients(config, json!({"limits": {"rate": "3/min"}}), json!({}));
    let (alice, bob) = (Client::legacy_with(&gateway, "t-alice"), Client::legacy_with(&gateway, "t-bob"));
    let between = || {
        assert_eq!(alice.request("ping", "{}").send().status, 200);
        assert_eq!(alice.request("tools/list", "{}").send().status, 200);
        Client::legacy_with(&gateway, "t-alice");
        assert_eq!(Request::get(gateway.mcp, "/.well-known/oauth-protected-resource").send().status, 404);
        let bad = alice.request("tools/list", "{}").header("Authorization", "Bearer wrong").send();
        assert_eq!(bad.status, 401);
    };
    for text in ["1", "2", "3"] {
        between();
        assert_eq!(alice.echo("up__echo", text), text);
    }
    between();
    let wait = expect_limited(&alice.calling("up__echo", "{}").send());
    assert!(wait <= 21_000, "one of three a minute comes back in 20 s: {wait}");
    expect_limited(&Client::modern_with(&gateway, "t-alice").calling("up__echo", "{}").send());
    assert_eq!(bob.echo("up__echo", "free"), "free");
    assert_eq!(up.calls().len(), 4, "what is refused never reaches the upstream");
    let metrics = gateway.metrics();
    let limited = metrics.sum("waypost_rate_limited_total", &[("client", "alice"), ("scope", "client")]);
    assert!((limited - 2.0).abs() < 0.1, "{limited}");
}

/// An edge limit guards the gateway: whatever the request is, the fourth is 429 under its own id.
#[test]
fn rat_01_an_edge_limit_counts_requests_of_one_caller() {
    let up = Script::echo(Era::Legacy).stdio();
    let config = Config::new().upstream("up", &up).set("limits", json!({"edge": {"rate": "3/min"}}));
    let gateway = two_clients(config, json!({}), json!({}));
    let body = r#"{"jsonrpc":"2.0","id":"mine","method":"tools/call","params":{"name":"up__echo"}}"#;
    let request = |token: &str| {
        Request::post(gateway.mcp, "/mcp", body).header("Authorization", &format!("Bearer {token}")).send()
    };
    for _ in 0..3 {
        assert_eq!(request("wrong").status, 401, "bad tokens make no bucket");
        assert_eq!(request("t-alice").status, 200);
    }
    let refused = request("t-alice");
    assert_eq!(refused.status, 429, "{}", refused.text());
    assert!((1..=21).contains(&retry_after(&refused)), "{:?}", refused.head);
    assert!(refused.content_type().starts_with("application/json"), "{:?}", refused.head);
    let answer = refused.json();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!("mine"), &json!(429)), "{answer}");
    assert_eq!(request("t-bob").status, 200);
    for path in ["/.well-known/oauth-protected-resource", "/.well-known/oauth-authorization-server"] {
        assert_eq!(Request::get(gateway.mcp, path).send().status, 404, "probing is not counted");
    }
    assert_eq!(gateway.admin("/healthz").0, 200);
}

#[test]
fn rat_03_the_limit_of_one_upstream_is_not_that_of_another() {
    let (x, y) = (Script::echo(Era::Legacy).stdio(), Script::echo(Era::Legacy).http());
    let config = Config::new().upstream_with("x", &x, json!({"limits": {"rate": "1/min"}})).upstream("y", &y);
    let gateway = config.ready();
    let client = Client::legacy(&gateway);
    assert_eq!(client.echo("x__echo", "1"), "1");
    expect_limited(&client.calling("x__echo", "{}").send());
    assert_eq!(client.echo("y__echo", "1"), "1");
    // An unknown tool and a refused one take nothing from the bucket of anybody.
    assert_eq!(client.call("x__nope", json!({}))["error"]["code"], -32602);
    let limited = gateway.metrics().sum("waypost_rate_limited_total", &[("scope", "upstream")]);
    assert!((limited - 1.0).abs() < 0.1, "{limited}");
}

#[test]
fn rat_03_refusals_do_not_put_the_refill_off() {
    let up = Script::echo(Era::Legacy).stdio();
    let config = Config::new().upstream_with("up", &up, json!({"limits": {"rate": "1/s", "burst": 1}}));
    let gateway = config.ready();
    let client = Client::legacy(&gateway);
    assert_eq!(client.echo("up__echo", "1"), "1");
    let mut last = 0;
    for _ in 0..100 {
        let response = client.calling("up__echo", "{}").send();
        if response.json()["result"]["isError"] == true {
            last = expect_limited(&response);
        }
    }
    assert!(last <= 1_000, "the wait is that of the bucket: {last}");
    std::thread::sleep(Duration::from_millis(last) + scaled(50));
    assert_eq!(client.echo("up__echo", "on time"), "on time");
}

#[test]
fn rat_03_of_200_at_once_exactly_the_limit_passes() {
    let up = Script::echo(Era::Legacy).http();
    let config = Config::new().upstream("up", &up);
    let gateway = two_clients(
        config,
        json!({"limits": {"rate": "50/h"}}),
        json!({"limits": {"rate": "10/h", "burst": 4}}),
    );
    for (token, limit, tries) in [("t-alice", 50, 200), ("t-bob", 4, 40)] {
        let client = Client::legacy_with(&gateway, token);
        let per_job = tries / 20;
        let jobs: Vec<_> = (0..20)
            .map(|_| {
                let client = &client;
                move || {
                    let passes =
                        |_: &i32| client.call("up__echo", json!({"text": "x"}))["result"]["isError"] != true;
                    (0..per_job).filter(passes).count()
                }
            })
            .collect();
        assert_eq!(at_once(jobs).into_iter().sum::<usize>(), limit, "{token}");
    }
    assert_eq!(up.calls().len(), 54);
}

/// A limit on calls in flight refuses what is too many, and forgets what ended or was given up.
#[test]
fn rat_03_calls_in_flight_are_counted_while_they_fly() {
    let script = Script::echo(Era::Legacy).tool("slow", |turn| {
        std::thread::sleep(scaled(1_500));
        turn.text("done");
    });
    let up = script.stdio();
    let config = Config::new().upstream_with("up", &up, json!({"limits": {"concurrency": 2}}));
    let gateway = config.ready();
    let client = Client::legacy(&gateway);
    let slow = || client.calling("up__slow", "{}").open();
    std::thread::scope(|scope| {
        let first = scope.spawn(slow);
        let second = scope.spawn(slow);
        crate::support::eventually("two slow calls", || (up.calls().len() == 2).then_some(()));
        let refused = client.calling("up__echo", "{}").send().json();
        assert_eq!(refused["result"]["isError"], true, "{refused}");
        for running in [first, second] {
            assert_eq!(running.join().unwrap().whole().json()["result"]["content"][0]["text"], "done");
        }
    });
    assert_eq!(client.echo("up__echo", "free again"), "free again");
}
