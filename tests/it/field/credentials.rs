//! Credentials of our own towards upstreams, and that none of anybody gets where it must not.

use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::eventually;
use crate::support::gateway::{Config, Gateway};
use crate::support::issuer::{Issuer, Key};
use crate::support::matrix::Era;
use crate::support::script::Script;
use crate::support::upstream::Upstream;

/// A server that takes nothing but `Bearer` and the text that `token` gives.
fn guarded(era: Era, token: std::sync::Arc<std::sync::Mutex<String>>) -> Upstream {
    let script = Script::echo(era).first(move |turn| {
        let wanted = format!("Bearer {}", token.lock().unwrap());
        let is_known = turn.header("authorization") == Some(&*wanted);
        if !is_known {
            turn.respond("401 Unauthorized", "application/json", "{}");
        }
        !is_known
    });
    script.http()
}

fn oauth(server: &Issuer) -> Value {
    json!({"oauth": {
        "token_url": format!("{}/token", server.url()), "client_id": "way post", "client_secret": "${SECRET}",
        "scopes": ["a", "b"], "resource": "https://up.example/mcp",
    }})
}

fn grant(server: &Issuer, token: &str, seconds: u64) {
    server.publish("/token", json!({"access_token": token, "token_type": "bearer", "expires_in": seconds}));
}

fn no_secret_is_told(gateway: &Gateway, secrets: &[&str]) {
    let told = [
        gateway.log().join("\n"),
        gateway.admin("/metrics").1,
        gateway.admin("/api/status").1,
        gateway.admin("/readyz?upstreams=all").1,
    ];
    for secret in secrets {
        assert!(!told.iter().any(|text| text.contains(secret)), "{secret} is told: {told:?}");
    }
}

#[test]
fn aut_17_an_upstream_gets_a_token_of_ours_and_a_new_one_in_time() {
    for era in [Era::Legacy, Era::Modern] {
        let server = Issuer::start(&[]);
        grant(&server, "tok-1", 3600);
        let token = std::sync::Arc::new(std::sync::Mutex::new("tok-1".to_owned()));
        let up = guarded(era, std::sync::Arc::clone(&token));
        let gateway =
            Config::new().upstream_with("up", &up, oauth(&server)).env("SECRET", "s3cret:&é").ready();
        let client = Client::modern_with(&gateway, "cl1ent-token");
        assert_eq!(Client::modern(&gateway).echo("up__echo", "x"), "x");
        let asked = server.seen("/token");
        assert_eq!(asked.len(), 1, "{asked:?}");
        assert_eq!(asked[0].head.header("authorization"), Some("Basic d2F5K3Bvc3Q6czNjcmV0JTNBJTI2JUMzJUE5"));
        let form = "grant_type=client_credentials&scope=a+b&resource=https%3A%2F%2Fup.example%2Fmcp";
        assert_eq!(asked[0].body, form);

        grant(&server, "tok-2", 3600);
        "tok-2".clone_into(&mut token.lock().unwrap());
        let calls: Vec<_> = (0..8).map(|_| || Client::modern(&gateway).echo("up__echo", "y")).collect();
        assert!(
            crate::support::at_once(calls).iter().all(|text| text == "y"),
            "a token that is refused is replaced"
        );
        assert_eq!(server.seen("/token").len(), 2, "once for all");

        "nobody has it".clone_into(&mut token.lock().unwrap());
        let refused = client.calling("up__echo", "{}").send();
        assert!(refused.status != 200 || refused.json()["error"].is_object(), "{}", refused.text());
        let tries = up.received().iter().filter(|received| received.name() == "echo").count();
        assert!(tries < 40, "and not for ever: {tries}");
        no_secret_is_told(&gateway, &["s3cret", "tok-1", "tok-2", "cl1ent-token"]);
        assert!(up.received().iter().all(|received| !format!("{received:?}").contains("s3cret")));
    }
}

#[test]
fn aut_17_a_short_token_is_replaced_before_its_end() {
    let server = Issuer::start(&[]);
    grant(&server, "tok-1", 1);
    let up = Script::echo(Era::Modern).http();
    let gateway = Config::new().upstream_with("up", &up, oauth(&server)).env("SECRET", "s3cret").ready();
    grant(&server, "tok-2", 3600);
    eventually("the next token is used", || {
        Client::modern(&gateway).echo("up__echo", "x");
        let last = up.received().into_iter().next_back()?;
        (last.header("authorization") == Some("Bearer tok-2")).then_some(())
    });
    assert!(up.received().iter().all(|received| received.header("authorization").is_some()));
}

#[test]
fn aut_17_without_a_token_the_server_is_left_alone() {
    let server = Issuer::start(&[]);
    server.publish("/token", json!({"access_token": "tok\nX-Evil: 1", "token_type": "bearer"}));
    let up = Script::echo(Era::Modern).http();
    let gateway = Config::new().upstream_with("up", &up, oauth(&server)).env("SECRET", "s3cret").start();
    let failed = |reason: &str| {
        eventually(reason, || {
            let told = gateway
                .log()
                .into_iter()
                .find(|line| line.contains("upstream_failed") && line.contains(reason));
            told.map(drop)
        });
    };
    failed("no access token to be had");
    server.go_down();
    failed("its authorization server cannot be reached");
    assert!(up.received().is_empty(), "nothing is sent without a token");
    server.come_back();
    grant(&server, "tok-1", 3600);
    gateway.wait_ready();
    no_secret_is_told(&gateway, &["s3cret", "tok-1", "X-Evil"]);
}

#[test]
fn aut_18_the_token_of_an_issuer_stays_with_us() {
    let key = Key::es256();
    let issuer = Issuer::start(&[key.jwk("k")]);
    let (http, child) = (Script::echo(Era::Legacy).http(), Script::echo(Era::Legacy).stdio());
    let jwt = json!([{"issuer": issuer.url(), "audience": "gw"}]);
    let gateway = Config::new()
        .upstream("http", &http)
        .upstream("child", &child)
        .set("auth", json!({"anonymous": false, "jwt": jwt}))
        .ready();
    let token = key.token(Some("k"), &issuer.claims(json!({"sub": "som3body"})));
    let client = Client::legacy_with(&gateway, &token);
    assert_eq!(client.echo("http__echo", "x") + &client.echo("child__echo", "y"), "xy");
    for received in [http.received(), child.received()].concat() {
        let whole = format!("{received:?}");
        assert!(!whole.contains("som3body") && !whole.contains(&token), "{whole}");
    }
    no_secret_is_told(&gateway, &[&token, token.rsplit('.').next().unwrap()]);
}
