//! Two gateways from one file, and clients that come to either.

use serde_json::json;

use crate::support::client::Client;
use crate::support::gateway::{Config, Gateway};
use crate::support::matrix::Era;
use crate::support::script::Script;
use crate::support::upstream::Upstream;

fn replica(up: &Upstream, key: &str) -> Gateway {
    let clients = json!({"a": {"tokens": [{"env": "A"}]}, "b": {"tokens": [{"env": "B"}]}});
    let config = Config::new().upstream("up", up).clients(clients).env("A", "t-a").env("B", "t-b");
    config.set("sessions", json!({"key": key})).ready()
}

/// A client that says at another replica what it would say at its own.
fn at(gateway: &Gateway, client: &Client) -> Client {
    let mut there = Client::at(gateway.mcp, client.era);
    let is_host = |name: &str| name.eq_ignore_ascii_case("host");
    there.headers = client.headers.iter().filter(|(name, _)| !is_host(name)).cloned().collect();
    there
}

#[test]
fn dep_02_a_session_goes_on_at_any_replica_with_the_key() {
    for era in [Era::Legacy, Era::Modern] {
        let up = Script::echo(Era::Legacy).http();
        let (one, other) =
            (replica(&up, "one key for both of them"), replica(&up, "one key for both of them"));
        let client = match era {
            Era::Legacy => Client::legacy_with(&one, "t-a"),
            Era::Modern => Client::modern_with(&one, "t-a"),
        };
        let there = at(&other, &client);
        for number in 0..6 {
            let text = number.to_string();
            let asked = if number % 2 == 0 { &there } else { &client };
            assert_eq!(asked.echo("up__echo", &text), text, "{era:?}");
        }
        drop(one);
        assert_eq!(there.tool_names(), ["up__echo"], "the other one is gone");
    }
}

#[test]
fn dep_02_a_session_of_another_key_or_another_client_is_unknown_at_once() {
    let up = Script::echo(Era::Legacy).http();
    let (one, same, stranger) = (
        replica(&up, "one key for two of them"),
        replica(&up, "one key for two of them"),
        replica(&up, "the key of another gateway"),
    );
    let client = Client::legacy_with(&one, "t-a");
    let unknown = at(&stranger, &client).request("tools/list", "{}").send();
    assert_eq!(unknown.status, 404, "it begins anew: {}", unknown.text());
    let mut thief = at(&same, &client);
    thief.headers.retain(|(name, _)| name != "Authorization");
    let theft = thief.bearer("t-b").request("tools/list", "{}").send();
    assert_eq!(theft.status, 404, "{}", theft.text());
    assert_eq!(at(&same, &client).echo("up__echo", "x"), "x");
}
